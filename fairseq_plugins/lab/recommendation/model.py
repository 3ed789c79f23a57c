"""Recommendation of news: titles make news, and clicked news make users (Fastformer's table 5)."""

from typing import Any

import torch
import torch.nn.functional as F
from fairseq.models import register_model, register_model_architecture
from torch import Tensor

from fairseq_plugins.layers.dropout import use_fast_dropout
from fairseq_plugins.layers.sentence_pooling import SentencePooling
from fairseq_plugins.models.encoder import Encoder
from fairseq_plugins.models.encoder_classifier import (
    EncoderClassifierModel,
    fill_classifier_defaults,
    plan_encoder,
)
from fairseq_plugins.models.options import to_namespace


@register_model("news_recommender")
class NewsRecommenderModel(EncoderClassifierModel):
    """Two encoders with the same choices, as in NRMS (Wu et al. 2019) and Fastformer, section 4.1.

    The first encodes a title, and `SentencePooling` makes it the vector n of a news. The second
    encodes the vectors of the news that a user clicked, in their order, and `SentencePooling` makes
    them the vector u of the user. The score of a news is ``u . n / sqrt(d)``; the root, which the
    paper does not mention, lets scores begin near 1. A user without clicks is one zero vector.

    For the task and the criterion `news_recommendation`. The options are those of
    `EncoderClassifierModel`; both encoders have them, with parameters of their own.
    """

    def __init__(self, encoder: Encoder, sentence_pooling: str, dropout: float):
        super().__init__(encoder, sentence_pooling, dropout)
        dim = encoder.cfg.encoder.embed_dim
        self.news_pooling = SentencePooling(dim, sentence_pooling)
        self.user_pooling = SentencePooling(dim, sentence_pooling)
        self.user_encoder: Any = None

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "NewsRecommenderModel":
        """As `EncoderClassifierModel.build_model`; the task has `max_history`, too."""
        model: Any = super().build_model(args, task)
        of_users = to_namespace(args)
        of_users.no_scale_embedding = True  # vectors of news are no embeddings of words
        plan, cfg = plan_encoder(of_users, task.max_history)
        words = model.encoder.embed_tokens
        model.user_encoder = Encoder(cfg, task.source_dictionary, words, plan)
        model.user_encoder.embed_tokens = None  # it reads vectors
        if plan.fast_training:
            use_fast_dropout(model.user_encoder)
        return model

    def forward(self, titles: Tensor, history: Tensor, candidates: Tensor) -> Tensor:  # type: ignore[override]
        """The scores of candidates.

        Args:
            titles: N x T, tokens of the different news of a batch.
            history: B x H, rows of `titles` that each user clicked, and -1 after them.
            candidates: B x C, rows of `titles` to be scored, and -1 after them.

        Returns:
            B x C, -inf without a candidate.
        """
        encoded = self.encoder(titles, None)
        news = self.news_pooling(encoded["encoder_out"][0], encoded["encoder_padding_mask"][0])
        clicked = F.embedding(history.clamp(min=0), news)  # B x H x d
        padding = history < 0
        clicked = clicked.masked_fill(padding.unsqueeze(-1), 0.0)
        real = torch.cat([torch.ones_like(padding[:, :1]), ~padding[:, 1:]], dim=1)
        pad = self.encoder.padding_idx
        tokens = torch.where(real, pad + 1, pad)  # which of them does not count
        encoded = self.user_encoder(tokens, None, token_embeddings=clicked)
        users = self.user_pooling(encoded["encoder_out"][0], encoded["encoder_padding_mask"][0])
        shown = F.embedding(candidates.clamp(min=0), news)  # B x C x d
        scores = torch.einsum("bd,bcd->bc", users, shown) * users.size(1) ** -0.5
        return scores.masked_fill(candidates < 0, float("-inf"))


@register_model_architecture("news_recommender", "news_recommender")
def news_recommender(args: Any) -> None:
    """The sizes of fairseq's `transformer`, as `encoder_classifier`."""
    fill_classifier_defaults(args)
