"""The table beside a paper's figures, what limits its figures, and its plots."""

import copy
import json

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.commands import reproduce
from fairseq_plugins.lab.reproduction import plots
from fairseq_plugins.lab.reproduction.tables import FILES, table_of
from fairseq_plugins.train import sweep_report
from tests.conftest import ROOT
from tests.lab.reproduction.conftest import FTC_PAPER, cells

EXAMPLES = ROOT / "examples"


def test_the_table_stands_beside_the_papers_figures(results):
    table = sweep_report.table(results[0])
    assert cells(table, "Transformer", "1x6", "-") == [
        "34.9", "34.60 ± 0.14 (2)", "39.47", "-", "82", "50,000", "1.000", "1.000",
    ]  # fmt: skip
    assert cells(table, "Feature+Time", "2x3", "2") == [
        "35.1", "35.25 ± 0.00 (2)", "39.47", "-", "61.5", "50,000", "0.755", "0.750",
    ]  # fmt: skip
    assert cells(table, "Feature", "2x3", "2 (linear)") == ["35.1", *"------"[1:], "0.944", "-"]
    assert cells(table, "BiLSTM (Gehring et al. 2016)", "-", "-")[:2] == ["29.8", "cited"]
    assert "Not run: ftc-2x3 3." in table and "Machine: a GPU, kind cuda, cores 8" in table
    assert "not with the paper's column" not in table and "differs" not in table
    with pytest.raises(ConfigurationError, match="is not a row"):
        FTC_PAPER.choose_rows(["BiLSTM"])


def test_the_table_says_what_limits_its_figures(results):
    made, add = results
    made["data"]["pairs"]["train"] = 48880
    machine = made["rows"][0]["runs"][0]["training"]["machine"]
    add("tc-2x3", 1, 34.0, None, parallel=3, command=["--bf16"])
    add("ftc-2x3", 3, 35.25, 61.5, machine={**machine, "device": "another GPU"}, first_updates=9)
    made["rows"][0]["runs"][0]["scoring"]["generate"] = ["--beam", "1"]
    table = sweep_report.table(made)
    for note in (
        "not with the paper's column",
        "runs side by side 3 (tc-2x3 1)",
        "another GPU",
        "ftc-2x3 3 was trained before on other data for 9 updates",
        "Precision of training differs: fp32 (transformer 1, ",
        "; bf16 (tc-2x3 1)",
        "Tested differs: the best one, with `--generate`: `--beam 1` (transformer 1); the best",
    ):
        assert note in table


def test_scores_are_plotted_for_each_row_and_against_the_number_of_pairs(results, tmp_path):
    made, add = results
    less = copy.deepcopy(made)
    add("transformer", 3, 34.9, 80.0)
    less["data"]["pairs"]["train"] = 40000
    less["rows"][0]["runs"].pop()
    points = plots.by_pairs([made, less], "BLEU")
    assert list(points["transformer"].items()) == [(40000, 34.5), (160239, pytest.approx(34.7))]
    assert points["ftc-2x3"] == {40000: 35.25, 160239: 35.25}
    assert len(points) == 2  # rows with scores
    pytest.importorskip("matplotlib")
    drawn = sweep_report.plot(made, tmp_path / "scores.svg").read_text()
    made["rows"][0]["runs"].pop()
    assert "<svg" in drawn and sweep_report.plot(made, tmp_path / "scores.svg").read_text() != drawn
    for table in map(table_of, FILES):  # published scores are of one of the metrics
        if table.by_pairs:
            assert table.by_pairs["metric"] in [title for _, title in table.metrics]
            made["by_pairs"] = table.by_pairs
            drawn = plots.plot(made, [less], tmp_path).read_text()
            assert table.by_pairs["source"][:8] in drawn


def test_results_beside_are_of_the_same_table_and_other_data(results, tmp_path):
    words = ["ftc", "--report-only", "--out", tmp_path / "out", "--beside", tmp_path / "less"]
    with pytest.raises(ConfigurationError, match="--beside .* add --report-only"):
        reproduce.main(["ftc", *map(str, words[2:])])
    results[0]["reduced"] = False
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


def test_a_committed_result_gives_its_table_again(tmp_path, capsys):
    stored = EXAMPLES / "classification" / "results" / "fastformer-imdb.json"
    (tmp_path / "results.json").write_bytes(stored.read_bytes())
    words = ["fastformer-imdb", "--report-only", "--out", str(tmp_path)]
    assert reproduce.main(words) == 0
    table = (tmp_path / "table.md").read_text()
    assert table in capsys.readouterr().out and "disagrees" in table
    assert cells(table, "Fastformer")[1].startswith("81.94 ± 2.4")
