"""Which rows and seeds are trained, in which order, and options that rows fix."""

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.reproduction.request import choose_rows, choose_runs, refuse_fixed
from fairseq_plugins.lab.reproduction.tables import TABLES
from tests.lab.reproduction.conftest import FTC_PAPER


def test_chosen_rows_keep_the_order_of_the_tables():
    names = [row.name for row in choose_rows(FTC_PAPER, ["tc-2x3,transformer", "fc-2x4"])]
    assert names == ["transformer", "fc-2x4", "tc-2x3"]
    assert choose_rows(FTC_PAPER, []) == FTC_PAPER.rows
    sharing = TABLES["fastformer-sharing"]
    for names in (["query-value,layer"], ["query-value,layer", "none"], ["query-value,none"]):
        found = {row.name for row in choose_rows(sharing, names)}
        whole = "query-value,layer" in names
        assert ("query-value,layer" in found, "layer" in found) == (whole, False)
    with pytest.raises(ConfigurationError, match="nearest are transformer, .*, fc-2x3-linear"):
        choose_rows(FTC_PAPER, ["nonsense"])
    with pytest.raises(ConfigurationError, match="--rows ftc-3x2 is not a row: nearest .*ftc-2x3"):
        choose_rows(FTC_PAPER, ["ftc-3x2"])


def test_runs_come_in_the_order_of_their_value_unless_seeds_are_given():
    table = TABLES["translation"]
    order = [(row.name, seed) for row, seed in choose_runs(table, [], [])]
    assert order[:2] == [("transformer", 1), ("ftc", 1)] and len(set(order)) == len(order)
    assert [seed for name, seed in order if name == "ftc"] == [1, 2, 3]
    assert order[-2:] == [("fc", 1), ("tc", 1)]
    assert {name for name, _ in order} == {row.name for row in table.rows}
    chosen = choose_runs(table, ["tc", "ftc"], [])
    assert [(row.name, seed) for row, seed in chosen] == [
        ("ftc", 1), ("ftc", 2), ("ftc", 3), ("tc", 1),
    ]  # fmt: skip
    chosen = choose_runs(table, ["tc", "ftc"], [5, 6])
    assert [(row.name, seed) for row, seed in chosen] == [
        ("ftc", 5), ("tc", 5), ("ftc", 6), ("tc", 6),
    ]  # fmt: skip
    assert [seed for _, seed in choose_runs(FTC_PAPER, [], [])] == [1] * 13
    # a new row that the order does not list is run all the same
    more = table._replace(rows=[*table.rows, table.rows[0]._replace(name="new")])
    assert [(row.name, seed) for row, seed in choose_runs(more, ["new"], [])] == [("new", 1)]
    assert [row.name for row, _ in choose_runs(more, [], [])] == [
        *(name for name, _ in order),
        "new",
    ]
    small = TABLES["multi30k"]
    assert {name for name, _ in small.runs} == {row.name for row in small.rows}


@pytest.mark.parametrize("option", ["--dropout", "--rdrop-alpha", "--seed"])
def test_options_of_rows_are_refused(option):
    """Those of both trainings of a row that begins with other data."""
    row = TABLES["low-resource"].rows[0]._replace(words="--dropout 0", then_words="--rdrop-alpha 1")
    table = TABLES["low-resource"]._replace(rows=[row])
    refuse_fixed(table, ["--clip-norm", "2"], "here")
    with pytest.raises(ConfigurationError, match=f"{option} in here: (rows set it|use --seeds)"):
        refuse_fixed(table, [f"{option}=1"], "here")
