"""Figure 2 of Fastformer and table 3 of MSCFFN: presets of `growth`, which resumes."""

import argparse
import json
import re

import pytest

from fairseq_plugins.lab.benchmarks import contenders, figure2, growth, table3, timing
from fairseq_plugins.lab.commands import benchmark
from tests.lab.benchmarks.test_train_step import measure, refused


@pytest.fixture
def points(monkeypatch):
    """The (value, what) that were measured, by a `point` that invents its rows."""
    measured = []

    def point(args, device, value, what, before, left_out):
        measured.append((value, what))
        rows = [
            {"value": value, "what": what, "contender": words, "problem": ""}
            for words in args.contender
        ]
        for number, row in enumerate(rows):
            row["median_seconds"] = (number + 1) * 0.5
            row["seconds"] = [row["median_seconds"] * slow for slow in (1.0, 1.2, 1.4)]
        if value > 4000:
            rows[0]["problem"] = left_out[args.contender[0], what] = "does not fit"
            del rows[0]["median_seconds"]
        return rows

    monkeypatch.setattr(growth, "point", point)
    return measured


def test_a_rerun_keeps_what_was_measured(tmp_path, points):
    words = ["growth", "--tokens", 64, "--contender", "transformer"]
    measure(tmp_path, *words, "--values", "8")
    again = measure(tmp_path, *words, "--values", "8,16")
    assert points == [(8, "training"), (8, "forward"), (16, "training"), (16, "forward")]
    assert [(row["value"], row["what"]) for row in again["rows"]] == points
    # with another setting, nothing is kept
    measure(tmp_path, *words[:2], 32, *words[3:], "--values", "8")
    assert points[4:] == [(8, "training"), (8, "forward")]
    # on another commit neither
    path = tmp_path / "figures.json"
    found = json.loads(path.read_text())
    found["machine"]["commit"] = "another"
    path.write_text(json.dumps(found))
    measure(tmp_path, *words[:2], 32, *words[3:], "--values", "8")
    assert points[6:] == [(8, "training"), (8, "forward")]


def test_an_interrupted_run_has_written_what_it_has(tmp_path, points, monkeypatch):
    whole = growth.point

    def point(args, device, value, *rest):
        if value == 16:
            raise OSError("killed")
        return whole(args, device, value, *rest)

    monkeypatch.setattr(growth, "point", point)
    words = ["growth", "--contender", "transformer", "--values", "8,16"]
    with pytest.raises(OSError):
        measure(tmp_path, *words)
    monkeypatch.setattr(growth, "point", whole)
    assert len(measure(tmp_path, *words)["rows"]) == 4
    assert points == [(8, "training"), (8, "forward"), (16, "training"), (16, "forward")]


def test_why_a_contender_is_left_out_is_kept_too(tmp_path, points, monkeypatch):
    words = ["growth", "--contender", "transformer", "--tokens", 9000]
    measure(tmp_path, *words, "--values", "4096")
    seen = []

    def point(args, device, value, what, before, left_out):
        seen.append(dict(left_out))
        return []

    monkeypatch.setattr(growth, "point", point)
    measure(tmp_path, *words, "--values", "4096,8192")
    assert seen[0]["transformer", "training"] == "does not fit"


def test_figure_2_has_seven_curves_and_says_whether_fastformer_is_fastest(tmp_path, points, capsys):
    plot = tmp_path / "plot.svg"
    words = ["figure2", "--values", "8,16", "--tokens", 16]
    rows = measure(tmp_path, *words, "--plot", plot)["rows"]
    assert len(rows) == 2 * 2 * 7
    output, drawn = capsys.readouterr().out, plot.read_text()
    for title in figure2.ENCODERS:
        assert f"| 16 | forward | {title} |" in output and title in drawn
    # the invented times grow in the order of the contenders, and Fastformer is the last
    assert "training: Fastformer is not the fastest (disagrees with the paper) at" in output
    assert "8 (Transformer takes 0.14 of its time), 16 (Tra" in output
    for row in rows:
        row["median_seconds"] = 0.1 if "mixer fastformer" in row["contender"] else 1.0
    (training, forward) = figure2.agreement(rows)
    assert "is the fastest (agrees with the paper) at length" in training
    assert training.endswith(", 16 (Transformer takes 10.00 of its time)")
    assert forward.startswith("forward: ")


def test_table_3_stands_beside_the_papers_figures(tmp_path, points, capsys):
    words = ["table3", "--sentences", 1, "--values", "128,4096"]
    found = measure(tmp_path, *words)
    assert found["arguments"]["what"] == "training"
    output = capsys.readouterr().out

    def cells(*start):
        rows = [[c.strip() for c in line.strip("| ").split("|")] for line in output.splitlines()]
        (row,) = [row for row in rows if tuple(row[: len(start)]) == start]
        return row[len(start) :]

    # the fifth contender takes 2.5 s, and the first 0.5 s
    assert cells("128", "Transformer+")[:4] == ["29.1", "0.4", "1.44", "0.20 (0.20 - 0.20)"]
    assert cells("128", "Transformer")[:4] == ["20.2", "2", "-", "-"]
    assert cells("4,096", "Transformer+")[:4] == ["-", "0.4", "-", "-"]
    assert cells("4,096", "Transformer")[-1] == "does not fit"
    assert cells("4,096", "Performer+")[:2] == ["1.85", "0.286"]
    # the slower the encoder, the smaller the invented gain; of 4,096 the first has none
    assert "faster in 0 of 7 comparisons" in output and "0.20 to 0.50 times as many" in output
    assert "in the paper in 6 of 6, with 1.44 to 1.74 times as many" in output


def test_a_gain_counts_if_its_lower_quartile_is_above_one():
    spreads = [timing.spread(times) for times in ([1.1, 1.2, 1.3], [0.8, 1.2, 1.2])]
    found = {(8, str(n)): table3.Gain(None, spread) for n, spread in enumerate(spreads)}
    (line,) = table3.agreement(found)
    assert "faster in 1 of 2 comparisons" in line and "paper" not in line
    assert table3.agreement({(8, "a"): table3.Gain(1.5, None)}) == []


SMALL = "--encoder-embed-dim 24 --encoder-ffn-embed-dim 32 --encoder-attention-heads 2"


ENCODERS = [*figure2.ENCODERS.values(), *map(table3.encoder, table3.PUBLISHED)]


@pytest.mark.parametrize("words", ENCODERS)
def test_each_encoder_can_be_built(words):
    options = f"--encoder-layers 2 {SMALL} --decoder-layers 1 --max-source-positions 64"
    model = contenders.build_without_data(words, options, 20, "fp32", True).cfg.model
    kind = words.split("--encoder-token-mixer ")[1].split()[0]
    assert model.encoder_token_mixer == kind
    assert (model.encoder_ffn == "mscffn") == ("--encoder-ffn mscffn" in words)


def test_sentences_instead_of_tokens():
    parser = argparse.ArgumentParser()
    table3.add_arguments(parser)
    args = parser.parse_args(["--values", "128,1024"])
    setting = growth.setting_of(args, 1024, "training", growth.machine.choose_device(args))
    assert (setting.length, setting.sentences, setting.part) == (1024, 32, "encoder")


def test_mistakes_are_errors_of_one_line():
    assert "at least one --contender" in refused("growth", "--values", "8")
    assert "--sentences 0: must be at least 1" in refused("table3", "--sentences", "0")
    assert set(benchmark.COMMANDS) >= {"figure2", "table3"}


def test_steps_that_would_take_too_long_are_left_out():
    """From 128 to 1,024, 32 sentences take at least 8 times as long."""
    parser = argparse.ArgumentParser()
    table3.add_arguments(parser)
    args = parser.parse_args(["--longest-step", "60"])
    words = args.contender[0]
    row = {"contender": words, "what": "training", "value": 128, "first_seconds": 7.4}
    assert growth.too_slow(args, 1024, "training", words, [row]) == ""
    row["first_seconds"] = 7.6
    found = growth.too_slow(args, 1024, "training", words, [row])
    assert found == "not run: at least 61 s a step from length 1,024 on"


@pytest.mark.parametrize("name", benchmark.COMMANDS)
def test_the_defaults_in_the_help_are_those_that_are_used(name):
    """Figure 2 and table 3 change defaults of `growth`."""
    parser = argparse.ArgumentParser()
    benchmark.find(name).add_arguments(parser)
    shown = 0
    for action in parser._actions:
        said = re.search(r"default: ([\w.]+)\)?$", (action.help or "") % vars(action))
        if said and (said[1][0].isdigit() or said[1] in map(str, action.choices or [])):
            assert str(action.default).strip("[]") == said[1], action.option_strings
            shown += 1
    assert shown
