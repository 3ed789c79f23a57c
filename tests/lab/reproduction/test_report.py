"""The table of results, and what its notes say."""

import json

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.commands import reproduce
from fairseq_plugins.lab.reproduction import report
from tests.lab.reproduction.conftest import FTC_PAPER, cells


def test_the_table_stands_beside_the_papers_figures(results):
    table = report.table(results[0])
    assert cells(table, "Transformer", "1x6", "-") == [
        "34.9", "34.60 ± 0.14 (2)", "216", "82", "1.000", "1.000", "39.47 M", "50,000",
    ]  # fmt: skip
    assert cells(table, "Feature+Time", "2x3", "2") == [
        "35.1", "35.25 ± 0.00 (2)", "163", "61.5", "0.755", "0.750", "39.47 M", "50,000",
    ]  # fmt: skip
    assert cells(table, "Feature", "2x3", "2 (linear)") == [
        "35.1", "-", "204", "-", "0.944", "-", "-", "-",
    ]  # fmt: skip
    for note in ("not interleaved.", "a GPU (8 cores", "1234567", "Seeds: 1, 2.", "`--lr 5e-4`"):
        assert note in table
    assert "not with the paper's column" not in table and "shared the machine" not in table


def test_the_table_says_what_limits_its_figures(results):
    made, add = results
    made["data"]["pairs"]["train"] = 48880
    assert "--generate" not in report.table(made)
    add("tc-2x3", 1, 34.0, None, updates=700, parallel=3, command=["--bf16"])
    here = made["rows"][0]["runs"][0]["training"]["machine"]
    add("ftc-2x3", 3, 35.25, 61.5, command=["--bf16"], machine={**here, "device": "another GPU"})
    made["rows"][0]["runs"][0]["scoring"]["generate"] = ["--beam", "1"]
    table = report.table(made)
    assert cells(table, "Time", "2x3", "2")[3] == "-"  # too short to be timed
    for note in (
        "not with the paper's column",
        "not trained for the same number of updates",
        "not to be trusted here",
        "1 to 3 runs shared the machine",
        "Machine: another GPU",
        "Seeds differ",
        "Precision of training differs: fp32 (transformer 1, ",
        "Tested once, in different ways: ",
    ):
        assert note in table


def test_interleaved_times_replace_those_of_the_log(results):
    made, _ = results
    machine = made["rows"][0]["runs"][0]["training"]["machine"]
    figure = {"time_ratio": 0.7654, "time_ratio_quartiles": [0.75, 0.77]}
    rows = {"transformer": dict(figure, time_ratio=1.0), "ftc-2x3": figure}
    made["interleaved"] = {"rows": rows, "machine": machine}
    made["interleaved"].update(batches=8, rounds=5)
    table = report.table(made)
    assert cells(table, "Feature+Time", "2x3", "2")[5] == "0.765"
    assert "ftc-2x3 0.750 - 0.770" in table and "not interleaved" not in table


def test_rows_of_other_work_are_printed_as_cited(results):
    table = report.table(results[0])
    assert cells(table, "BiLSTM (Gehring et al. 2016)", "-", "-")[:2] == ["29.8", "cited"]
    with pytest.raises(ConfigurationError, match="is not a row"):
        FTC_PAPER.choose_rows(["BiLSTM"])


def test_results_beside_are_of_the_same_table_and_other_data(results, tmp_path):
    words = ["ftc", "--report-only", "--out", tmp_path / "out", "--beside", tmp_path / "less"]
    with pytest.raises(ConfigurationError, match="--beside .* add --report-only"):
        reproduce.main(["ftc", *map(str, words[2:])])
    for folder, made, message in (
        ("out", None, "--out: .*out has no results.json of ftc"),
        ("out", results[0], "--beside: .*less has no results.json of ftc"),
        ("less", {**results[0], "table": "multi30k"}, "--beside: .*less has no results.json of"),
        ("less", [], "--beside: .*less has no results.json of"),
        ("less", results[0], "--beside: .*less has 160,239 training pairs"),
        ("less", {**results[0], "reduced": True}, "--beside: .*less has 160,239 training pairs"),
    ):
        if made is not None:
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / "results.json").write_text(json.dumps(made))
        with pytest.raises(ConfigurationError, match=message):
            reproduce.main(list(map(str, words)))
