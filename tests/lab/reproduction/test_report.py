"""The table beside a paper's figures, what limits its figures, and its plots."""

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.commands import reproduce
from fairseq_plugins.train import sweep_report
from tests.conftest import ROOT
from tests.lab.reproduction.conftest import FTC_PAPER, cells, results_of

EXAMPLES = ROOT / "examples"


def test_the_table_stands_beside_the_papers_figures():
    results = results_of(
        "ftc",
        {"transformer": [34.5, 34.7], "ftc-2x3": [35.25, 35.25]},
        {"transformer": [80.0, 84.0], "ftc-2x3": [61.5, 61.5]},
        planned=[["transformer", 1], ["transformer", 2], ["ftc-2x3", 3]],
    )
    table = sweep_report.table(results)
    assert cells(table, "Transformer", "1x6", "-") == [
        "34.9", "34.60 ± 0.14 (2) [33.60, 35.60]", "39.47", "-", "82", "50,000", "1.000", "1.000",
    ]  # fmt: skip
    assert cells(table, "Feature+Time", "2x3", "2") == [
        "35.1", "35.25 ± 0.00 (2) [34.25, 36.25]", "39.47", "-", "61.5", "50,000", "0.755", "0.750",
    ]  # fmt: skip
    assert cells(table, "Feature", "2x3", "2 (linear)") == ["35.1", *"------"[1:], "0.944", "-"]
    assert cells(table, "BiLSTM (Gehring et al. 2016)", "-", "-")[:2] == ["29.8", "cited"]
    assert "Not run: ftc-2x3 3." in table and "Machine: a GPU, kind cuda, cores 8" in table
    assert "not with the paper's column" not in table and "differs" not in table
    with pytest.raises(ConfigurationError, match="is not a row"):
        FTC_PAPER.choose_rows(["BiLSTM"])


def test_a_committed_result_gives_its_table_again(tmp_path, capsys):
    stored = EXAMPLES / "classification" / "results" / "fastformer-imdb.json"
    (tmp_path / "results.json").write_bytes(stored.read_bytes())
    words = ["fastformer-imdb", "--report-only", "--out", str(tmp_path)]
    assert reproduce.main(words) == 0
    table = (tmp_path / "table.md").read_text()
    assert table in capsys.readouterr().out and "disagrees" in table
    assert cells(table, "Fastformer")[1].startswith("81.94 ± 2.4")
