"""The benchmark of single modules and encoders: what it counts, and how it takes turns."""

import pytest
import torch

from fairseq_plugins.lab.benchmarks import timing
from tests.lab.benchmarks.test_train_step import SIZES, measure, refused

LAYER = ["layer", "--rounds", 1, "--warmup", 0]


def test_operations_are_those_of_the_equations(tmp_path):
    words = [*LAYER, "--what", "forward", "--dim", 48, "--heads", 4, "--tokens", 64]
    names = ["ffn", "mscffn", "ffn --inner 96", "sdpa", "softmax", "fastformer-plain"]
    for name in names:
        words += ["--contender", name]
    rows = measure(tmp_path, *words, "--lengths", "16,64")["rows"]
    assert [row["contender"] for row in rows] == names + names
    d, tokens = 48, 64
    for length, own in ((16, rows[:6]), (64, rows[6:])):
        attention = 4 * d * d + 2 * length * d
        multiply_adds = [8 * d * d, 2.25 * d * d, 4 * d * d, attention, attention, 3 * d * d]
        assert [row["length"] for row in own] == [length] * 6
        assert [row["flops"] for row in own] == [2 * tokens * count for count in multiply_adds]
        assert own[0]["time_ratio"] == 1.0
        limit = own[1]["ratio_to_flop_limit"]
        assert limit == pytest.approx(own[1]["time_ratio"] * 8 / 2.25)


def test_backward_is_counted_with_what_it_computes_again(tmp_path):
    words = [*LAYER, "--dim", 48, "--heads", 4, "--tokens", 64, "--lengths", 32]
    for name in ("ffn", "sdpa"):
        words += ["--contender", name]
    ffn, sdpa = measure(tmp_path, *words)["rows"]
    assert ffn["flops"] == 3 * 2 * 64 * 8 * 48 * 48
    # the fused attention computes its scores once more
    assert sdpa["flops"] == 2 * 64 * (3 * 4 * 48 * 48 + (2 + 5) * 32 * 48)


@pytest.mark.parametrize("what, passes", [("forward", 1), ("training", 3)])
def test_reductions_beside_a_copy(tmp_path, what, passes):
    """A copy has no operations; a summary has a score and a sum for each head and feature."""
    words = ["layer", "--rounds", 1, "--what", what, "--dim", 48, "--heads", 4, "--tokens", 64]
    words += ["--lengths", 32, "--contender", "copy", "--contender", "summaries"]
    copy, summaries = measure(tmp_path, *words)["rows"]
    assert (copy["flops"], summaries["flops"]) == (0, passes * 2 * 64 * 2 * 4 * 48)
    assert copy["parameters"] == 0 and summaries["parameters"] == 4 * 48


def test_encoders_side_by_side(tmp_path):
    words = [*LAYER, "--options", SIZES, "--tokens", 64, "--lengths", "16,32"]
    for name in ("transformer", "transformer", "transformer_ftc --feature-window 1"):
        words += ["--contender", name]
    plot = tmp_path / "plot.svg"
    rows = measure(tmp_path, *words, "--plot", plot)["rows"]
    assert [row["flop_ratio"] for row in rows[:2]] == [1.0, 1.0]
    assert rows[2]["flop_ratio"] < 0.9 and rows[5]["flop_ratio"] < 0.9
    assert rows[0]["parameters"] == rows[1]["parameters"] > 0
    assert "transformer_ftc --feature-window 1" in plot.read_text()


@pytest.mark.parametrize(
    "words, complaint",
    [
        (["--contender", "sdpa", "--lengths", "64", "--tokens", "32"], "--tokens 32 is less than"),
        (["--contender", "sdpb"], "'sdpb' is not an architecture"),
        (["--contender", "ffn --colour 3"], "`ffn --colour 3`: unrecognized arguments"),
        (["--contender", "mscffn --subspaces 7"], "--mscffn-subspaces 7 must be even"),
        (["--contender", "softmax --heads 7"], "`softmax --heads 7`"),
        (["--contender", "fastformer --heads 7"], "7 heads do not divide"),
        (["--contender", "sdpa --heads 7"], "7 heads do not divide"),
        (["--contender", "ffn --dropout 2"], "`ffn --dropout 2`: --dropout 2: must be from 0 to 1"),
        (["--contender", "ffn", "--dim", "0"], "--dim 0: must be at least 1"),
        (["--contender", "ffn", "--json", "."], "--json . is a folder: give a file"),
        (["--contender", "ffn", "--json", "no/f.json"], "--json no/f.json: no such folder"),
        (["--contender", "ffn", "--plot", "no/f.svg"], "--plot no/f.svg: no such folder"),
        (["--contender", "ffn", "--rounds", "0"], "--rounds 0"),
        (["--contender", "ffn", "--threads", "0"], "--threads 0: must be from 1 to 1024"),
    ],
)
def test_mistakes_are_errors_of_one_line(words, complaint):
    assert complaint in refused("layer", *words)


def test_works_take_turns_and_begin_in_turn():
    calls = []
    works = [lambda item, n=name: calls.append(n + item) for name in "ab"]
    times = timing.interleave(works, ["1", "2"], 2, 1, torch.device("cpu"), "test")
    assert calls == ["a1", "b1", "a2", "b2", "b1", "a1", "b2", "a2", "a1", "b1", "a2", "b2"]
    assert [len(own) for own in times] == [4, 4]


@pytest.mark.parametrize("queued", [True, False])
def test_a_gpu_waits_until_the_work_is_queued_before_its_clock_starts(monkeypatch, queued):
    calls = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            calls.append("record")

        def elapsed_time(self, end):
            return 2500.0

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: calls.append("wait"))
    gpu = torch.device("cuda")
    assert timing.seconds(lambda: calls.append("work"), gpu, queued=queued) == 2.5
    wait = ["wait"] if queued else []
    assert calls == ["synchronize", *wait, "record", "work", "record", "synchronize"]


def test_layers_are_queued_before_they_are_timed(monkeypatch, tmp_path):
    given, interleave = [], timing.interleave

    def record(*arguments, **named):
        given.append(named)
        return interleave(*arguments, **named)

    monkeypatch.setattr(timing, "interleave", record)
    words = ["--dim", 16, "--heads", 2, "--tokens", 8, "--lengths", 8, "--contender", "ffn"]
    measure(tmp_path, *LAYER, *words)
    assert given == [{"queued": True}]


def test_ratios_are_taken_within_a_moment():
    slow = [1.0, 10.0, 1.0]  # a machine that was busy in the middle
    rows = timing.comparison(["a", "b"], [slow, [t / 2 for t in slow]], [8, 2])
    assert rows[1]["time_ratio"] == 0.5 and rows[1]["time_ratio_quartiles"] == [0.5, 0.5]
    assert rows[1]["ratio_to_flop_limit"] == 2.0
    assert timing.comparison(["a"], [slow], [None])[0]["flop_ratio"] is None
