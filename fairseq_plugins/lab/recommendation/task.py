"""Recommendation of news, for the model `news_recommender` and the data of prepare-mind.

    fairseq-train DATA --user-dir fairseq_plugins/lab --task news_recommendation \\
        --criterion news_recommendation --arch news_recommender --batch-size 64 ...

DATA has `input0/` (titles) and `impressions/`, as `prepare-mind recommendation` writes them. In
training, a sample is a click and --negatives news of the same impression that were not clicked,
chosen anew in each epoch. Elsewhere it is an impression with all its news.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary, data_utils
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask, register_task
from omegaconf import II, MISSING

from fairseq_plugins.compat.data_files import MissingData
from fairseq_plugins.errors import check_range
from fairseq_plugins.lab.recommendation.impressions import Impressions


@dataclass
class NewsRecommendationConfig(FairseqDataclass):
    data: str = field(default=MISSING, metadata={"help": "the folder of prepare-mind"})
    max_positions: int = field(
        default=48, metadata={"help": "tokens of a title that are read, its end among them"}
    )
    max_history: int = field(
        default=50, metadata={"help": "clicked news of a user that are read, the latest ones"}
    )
    negatives: int = field(
        default=4, metadata={"help": "news without a click beside each click, in training"}
    )
    train_subset: str = II("dataset.train_subset")
    seed: int = II("common.seed")


@register_task("news_recommendation", dataclass=NewsRecommendationConfig)
class NewsRecommendationTask(FairseqTask):
    """Ranks the news that a user is shown."""

    cfg: NewsRecommendationConfig

    def __init__(self, cfg: NewsRecommendationConfig, dictionary: Dictionary, titles: list[Any]):
        super().__init__(cfg)
        self.dictionary, self.titles = dictionary, titles
        self.max_history = cfg.max_history

    @classmethod
    def setup_task(cls, cfg: NewsRecommendationConfig, **kwargs: Any) -> "NewsRecommendationTask":
        """Load the dictionary and all titles.

        Raises:
            ConfigurationError: an option is out of range, or a file is missing.
        """
        for name in ("max_positions", "max_history", "negatives"):
            check_range(f"--{name.replace('_', '-')}", getattr(cfg, name), 1)
        folder = Path(cfg.data) / "input0"
        dictionary = Dictionary.load(str(folder / "dict.txt"))
        titles: list[Any] = []
        for part in ("train", "test"):  # first the news of training, then what test adds
            indexed = data_utils.load_indexed_dataset(str(folder / part), dictionary)
            if indexed is None and part == "train":
                raise MissingData(f"{folder / part}.idx is missing: prepare the data again")
            titles += [] if indexed is None else [indexed[n] for n in range(len(indexed))]
        return cls(cfg, dictionary, [title[: cfg.max_positions] for title in titles])

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> Impressions:
        """Load the impressions of a split.

        Raises:
            ConfigurationError: a file is missing.
        """
        prefix = Path(self.cfg.data) / "impressions" / split
        rows = data_utils.load_indexed_dataset(str(prefix))
        if rows is None:
            raise MissingData(f"{prefix}.idx is missing: choose another subset, or prepare it")
        negatives = self.cfg.negatives if split == self.cfg.train_subset else None
        self.datasets[split] = Impressions(
            rows, self.titles, self.dictionary.pad(), self.max_history, negatives, self.cfg.seed
        )
        return self.datasets[split]

    def max_positions(self) -> int:
        return self.cfg.max_positions

    @property
    def source_dictionary(self) -> Dictionary:
        return self.dictionary

    @property
    def target_dictionary(self) -> None:
        return None
