"""R-Drop against its equation, and against plain label smoothing."""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.logging import metrics

from fairseq_plugins.criterions import LabelSmoothedCrossEntropyRDrop

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


def run(criterion, model, seed=7, **kwargs):
    torch.manual_seed(seed)
    model.zero_grad()
    loss, size, log = criterion(model, make_sample(), **kwargs)
    loss.sum().backward()
    return loss.detach(), size, log, [p.grad.clone() for p in model.parameters()]


def make(alpha, **kwargs):
    return LabelSmoothedCrossEntropyRDrop(TASK, False, SMOOTHING, rdrop_alpha=alpha, **kwargs)


@pytest.mark.parametrize("dropout, training", [(0.3, False), (0.3, True), (0.0, True)])
def test_alpha_zero_is_label_smoothing(dropout, training):
    plain = LabelSmoothedCrossEntropyCriterion(TASK, False, SMOOTHING)
    model = Model(dropout).train(training)
    expected, actual = run(plain, model), run(make(0.0), model)
    assert expected[0] == actual[0] and expected[1] == actual[1]
    assert expected[2] == actual[2]
    assert all(torch.equal(a, b) for a, b in zip(expected[3], actual[3]))


def test_without_dropout_both_passes_agree():
    plain = LabelSmoothedCrossEntropyCriterion(TASK, False, SMOOTHING)
    model = Model(0.0).train()
    expected, actual = run(plain, model), run(make(5.0), model)
    assert actual[2]["kl"] == 0
    torch.testing.assert_close(actual[0], expected[0])
    torch.testing.assert_close(actual[3], expected[3])


def test_loss_is_the_equation():
    alpha, model = 2.5, Model(0.4).train()
    loss, size, log, _ = run(make(alpha), model)
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


def test_validation_is_label_smoothing():
    plain = LabelSmoothedCrossEntropyCriterion(TASK, False, SMOOTHING)
    model = Model(0.4).eval()
    assert run(plain, model)[0] == run(make(5.0), model)[0]


TRAININGS = {
    "transformer_ftc": ["--encoder-blocks", "1,1"],
    "fastformer_encoder": ["--update-freq", 2],
    "mscffn_transformer": ["--bf16"],
}


@pytest.mark.parametrize("arch", sorted(TRAININGS))
def test_trains_every_architecture(run_train, toy_data, train_args, tmp_path, arch):
    words = list(train_args)
    words[words.index("--arch") + 1] = arch
    words[words.index("--criterion") + 1] = "label_smoothed_cross_entropy_rdrop"
    result = run_train(
        toy_data.bin, *words, *TRAININGS[arch], "--dropout", 0.1, "--rdrop-alpha", 5,
        "--save-dir", tmp_path, "--max-update", 2, "--log-interval", 1,
    )  # fmt: skip
    assert "| kl " in result.output
    assert "nan" not in result.output
