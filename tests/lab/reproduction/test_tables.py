"""The tables as data: their rows, options and figures; what is concluded from them."""

import itertools

import pytest

from fairseq_plugins import lab
from fairseq_plugins.lab.commands import reproduce
from fairseq_plugins.lab.reproduction.agreement import CLAIMS, agreement
from fairseq_plugins.lab.reproduction.tables import FILES, RECIPES, table_of
from fairseq_plugins.layers.feed_forwards.low_dimensional import inner_dim
from fairseq_plugins.options import recipes
from fairseq_plugins.train import planning, sweep_report
from fairseq_plugins.train.sweep import describe_model
from tests.lab.reproduction.conftest import cells, results_of
from tests.labelled import prepare

CLASSIFICATION = [
    "fastformer-imdb", "fastformer-amazon", "fastformer-mind", "fastformer-interaction",
    "fastformer-sharing", "mscffn-listops", "mscffn-text", "mscffn-retrieval", "mscffn-image",
    "mscffn-pathfinder",
]  # fmt: skip
SUMMARIZATION = ["fastformer-cnn-dm", "fastformer-pubmed"]
# one of each kind of rows and model: building takes a second for each table
BUILT = CLASSIFICATION[:1] + CLASSIFICATION[3:6]
EACH = list(itertools.product(CLASSIFICATION, (False, True)))
COMPARED = {
    "encoder_token_mixer", "encoder_ffn", "fastformer_interaction", "fastformer_sharing",
    "save_dir", "mscffn_subspaces",
}  # fmt: skip


@pytest.fixture(scope="module")
def labelled_data(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("labelled"))[0]


@pytest.fixture(scope="module")
def joined_data(make_toy_data, tmp_path_factory):
    sizes = {"train": 8, "valid": 2, "test": 2}
    return make_toy_data(tmp_path_factory.mktemp("toy"), sizes, joined=True).bin


def settings_of(table):
    return [RECIPES, *recipes.folders(recipes.find(table.rows[0].recipe, [RECIPES]))]


@pytest.mark.parametrize("name", FILES)
def test_a_table_is_complete(name):
    table = table_of(name)
    assert table.reduce().average == 0  # few updates leave too few checkpoints
    names = [row.name for row in table.rows]
    assert {row for row, _ in table.runs} <= set(names)
    for row in table.rows:
        assert len(row.labels) == len(table.columns)
        assert row.against in names and row.claim in ("", *CLAIMS)
        assert recipes.find(row.recipe, [RECIPES]).is_file()
        if row.paper:
            assert len(row.paper["scores"]) == len(table.metrics)
            assert len(row.paper.get("deviations", [])) in (0, len(table.metrics))
    for each in (table, table.reduce()):
        beside = settings_of(table)
        for setting in each.settings:
            place = recipes.find(setting, beside).parent
            assert {place, place.parent} & set(beside)
        assert all(recipes.find(name, beside) for name in each.generate)


def planned(name, reduced, data, tmp_path):
    """The options of each row of a table, as fairseq-train parses them."""
    table = table_of(name).reduce() if reduced else table_of(name)
    beside = settings_of(table)
    lab.register()
    return {
        row.name: planning.plan(
            planning.TrainingRequest(
                recipe=recipes.find(row.recipe, beside),
                data=data,
                save_dir=tmp_path / row.name,
                settings=[recipes.find(setting, beside) for setting in table.settings],
                words=row.options.split(),
                cpu=True,
            )
        ).given
        for row in table.rows
    }


@pytest.mark.parametrize(
    "name, reduced",
    [EACH[0], *(pytest.param(*each, marks=pytest.mark.slow) for each in EACH[1:])],
)
def test_rows_differ_only_in_what_they_compare(name, reduced, labelled_data, tmp_path):
    rows = planned(name, reduced, labelled_data, tmp_path)
    switch = {"switch_experts", "encoder_ffn_embed_dim"}
    first = vars(next(iter(rows.values())))
    for row, given in rows.items():
        differ = {key for key, value in vars(given).items() if value != first.get(key)}
        allowed = COMPARED | (switch if row == "flowformer-switch" else set())
        if name in ("fastformer-imdb", "fastformer-mind") and not reduced:
            allowed = allowed | {"max_positions"}  # the paper's Transformer reads less
        assert differ <= allowed, row
        if row == "flowformer-switch":
            assert given.encoder_ffn_embed_dim == inner_dim(given.encoder_embed_dim)
        if reduced and name in BUILT:
            assert describe_model(given)["parameters"] < 2e6  # it can be built
    if reduced:
        assert first["encoder_embed_dim"] == 64 and first["max_update"] <= 600


@pytest.mark.parametrize("name", SUMMARIZATION)
def test_rows_of_summarization_can_be_trained_and_reduced(name, joined_data, tmp_path):
    full, small = (planned(name, reduced, joined_data, tmp_path) for reduced in (False, True))
    sizes = ("max_source_positions", "encoder_embed_dim")
    assert {tuple(getattr(given, size) for size in sizes) for given in small.values()} == {
        (128, 128)
    }
    assert full["transformer"].max_source_positions < full["bigbird"].max_source_positions


# --- conclusions ----------------------------------------------------------------------------------


def test_each_difference_is_judged():
    values = {
        "transformer": [80.0, 80.2, 80.4],
        "fastformer": [83.0, 83.2, 83.4],  # clear, as in the paper
        "linformer": [64.0, 65.0, 66.0],  # clear, and the other way round
        "bigbird": [80.1, 80.3, 80.5],  # not clear
        "longformer": [99.0, 99.1, 99.2],  # clear here; the paper's own interval includes 0
        "linear": [85.0],  # one seed
    }
    planned, metrics = [["linear", 2], ["poolingformer", 1]], ["accuracy", "macro F1"]
    imdb = results_of("fastformer-imdb", values, planned=planned, metrics=metrics, reduced=True)
    table = sweep_report.table(imdb, agreement(imdb))

    def verdict(name):
        return cells(table, name, "transformer")[-1]

    assert verdict("fastformer") == "agrees" and verdict("linformer") == "disagrees"
    assert verdict("bigbird") == "open" and verdict("linear") == "open"
    assert verdict("longformer") == "clear only here"
    assert verdict("poolingformer") == "not run"
    paper, here, _ = cells(table, "fastformer", "transformer")
    assert paper == "+2.06 [+1.38, +2.74]"  # deviations 0.50 and 0.42 over five runs
    assert here == "+3.00 [+2.55, +3.45]"  # 2.776 x 0.2 x sqrt(2 / 3)
    # of 15 pairs, linear's five are open here, bigbird's with the Transformer too, and in the paper
    # longformer's with the Transformer and bigbird's with linformer
    assert "Pairs of rows: 15. Their order" in table and "and open for 6." in table
    assert "clear only here for 2" in table


# --- the real thing -------------------------------------------------------------------------------


@pytest.mark.slow
def test_classifiers_are_trained_and_scored(labelled_data, tmp_path, capsys):
    words = ["fastformer-interaction", labelled_data, "--out", tmp_path, "--reduced", "--cpu"]
    words += ["--rows", "concat", "--seeds", 1, "--max-update", 6, "--threads", 1]
    assert reproduce.main(list(map(str, words))) == 0
    table = (tmp_path / "table.md").read_text()
    assert table in capsys.readouterr().out
    score, deviation = cells(table, "concat")[1].split()[:2]
    assert 0 <= float(score) <= 100 and deviation.startswith("[")
    assert cells(table, "add")[1] == "-"
