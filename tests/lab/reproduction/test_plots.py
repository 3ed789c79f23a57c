"""What the plots show."""

import copy

import pytest

from fairseq_plugins.lab.reproduction import plots
from fairseq_plugins.lab.reproduction.tables import FILES, table_of


@pytest.mark.parametrize("bars", [False, True])
def test_the_plot_shows_each_row_that_has_a_score(results, tmp_path, bars):
    pytest.importorskip("matplotlib")
    made = results[0]
    made["timed"] = not bars
    stem = "BLEU" if bars else "bleu_against_time"
    first = plots.plot(made, tmp_path)
    assert [path.name for path in first] == [f"{stem}.svg"]
    before = first[0].read_text()
    assert "<svg" in before and not list(tmp_path.glob("*.part"))
    without = copy.deepcopy(made)
    without["rows"][8]["runs"] = []
    plots.plot(without, tmp_path)
    assert first[0].read_text() != before


def test_learning_curves_are_those_of_the_logs(results, tmp_path):
    made, add = results
    assert plots.learning_curves(made) == ("", [])
    points = [  # the run was killed after update 200 and went on from 100
        {"num_updates": 100.0, "bleu": 1.5, "nll_loss": 7.0},
        {"num_updates": 200.0, "bleu": 4.0, "nll_loss": 6.0},
        {"num_updates": 200.0, "bleu": 3.0, "nll_loss": 6.0},
        {"num_updates": 300.0, "bleu": 2.0, "nll_loss": 5.0},
    ]
    add("ftc-2x3", 3, 35.0, 3600.0, updates_per_epoch=100, valid=points)
    add("ftc-2x3", 4, 35.0, 3600.0, updates_per_epoch=100, valid=points[:1], first_seconds=7200.0)
    curve = ("ftc-2x3", 3, [1.0, 2.0, 3.0], [1.5, 3.0, 2.0])
    later = ("ftc-2x3", 4, [3.0], [1.5])  # after two hours on other data
    assert plots.learning_curves(made) == ("bleu", [curve, later])
    losses = [{"num_updates": 50.0, "nll_loss": 8.0}]
    add("transformer", 3, 34.0, 1800.0, updates_per_epoch=100, valid=losses)
    measure, curves = plots.learning_curves(made)
    assert measure == "nll_loss" and curves[0] == ("transformer", 3, [0.25], [8.0])
    pytest.importorskip("matplotlib")
    assert [path.name for path in plots.plot(made, tmp_path)][1:] == ["learning_curves.svg"]


def test_scores_are_plotted_against_the_number_of_pairs(results, tmp_path):
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
    names = [path.name for path in plots.plot(made, tmp_path, [less])]
    assert names[1:] == ["scores_against_pairs.svg"]
    assert len(plots.plot(made, tmp_path)) == 1
    # published scores are of one of the metrics
    for table in map(table_of, FILES):
        if table.by_pairs:
            assert table.by_pairs["metric"] in [title for _, title in table.metrics]
            made["by_pairs"] = table.by_pairs
            plots.plot(made, tmp_path, [less])
            assert table.by_pairs["source"][:8] in (tmp_path / names[1]).read_text()
