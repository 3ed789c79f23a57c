"""R-Drop against its equation."""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from fairseq.logging import metrics

from fairseq_plugins.losses import LabelSmoothedCrossEntropyRDrop

PAD, VOCABULARY, SMOOTHING = 1, 11, 0.1
TASK = SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: PAD, eos=lambda: 2))


class Model(torch.nn.Module):
    """An embedding and a projection behind fairseq's interface, with dropout between."""

    def __init__(self, dropout):
        super().__init__()
        torch.manual_seed(3)
        self.embed = torch.nn.Embedding(VOCABULARY, 6)
        self.project = torch.nn.Linear(6, VOCABULARY)
        self.dropout = dropout
        self.double()

    def forward(self, src_tokens, prev_output_tokens):
        x = F.dropout(self.embed(prev_output_tokens), self.dropout, self.training)
        self.logits = self.project(x + self.embed(src_tokens).mean(dim=1, keepdim=True))
        return self.logits, None

    def get_normalized_probs(self, net_output, log_probs):
        return net_output[0].log_softmax(dim=-1)

    def get_targets(self, sample, net_output):
        return sample["target"]


def make_sample():
    generator = torch.Generator().manual_seed(5)
    source = torch.randint(3, VOCABULARY, (3, 5), generator=generator)
    target = torch.randint(3, VOCABULARY, (3, 4), generator=generator)
    target[1, 2:] = PAD
    net_input = {"src_tokens": source, "prev_output_tokens": target.roll(1, dims=1)}
    return {"net_input": net_input, "target": target, "ntokens": int(target.ne(PAD).sum())}


def test_loss_is_the_equation():
    alpha, model = 2.5, Model(0.4).train()
    torch.manual_seed(7)
    criterion = LabelSmoothedCrossEntropyRDrop(TASK, False, SMOOTHING, rdrop_alpha=alpha)
    loss, size, log = criterion(model, make_sample())
    first, second = model.logits.detach().softmax(dim=-1).chunk(2)
    target = make_sample()["target"]
    cross, divergence = 0.0, 0.0
    for b in range(target.size(0)):
        for t in range(target.size(1)):
            if target[b, t] == PAD:
                continue
            p, q = first[b, t], second[b, t]
            assert not torch.equal(p, q)  # dropout differs between the copies
            for probabilities in (p, q):
                for word in range(VOCABULARY):
                    share = SMOOTHING / (VOCABULARY - 1)
                    weight = 1 - SMOOTHING if word == target[b, t] else share
                    cross -= weight * math.log(probabilities[word])
            divergence += float((p * (p / q).log()).sum() + (q * (q / p).log()).sum()) / 2
    assert size == int(target.ne(PAD).sum())
    torch.testing.assert_close(log["kl"].item(), divergence)
    torch.testing.assert_close(loss.item(), cross / 2 + alpha / 2 * divergence)
    with metrics.aggregate() as logged:  # in bits per token of both processes
        LabelSmoothedCrossEntropyRDrop.reduce_metrics([log, log])
    assert logged["kl"].avg == pytest.approx(divergence / size / math.log(2))
