"""Tables of one paper as the columns of one: means of seeds, and of columns."""

import json

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.commands import join_tables
from tests.lab.reproduction.conftest import results_of

NAMES = [f"mscffn-{task}" for task in ("listops", "text", "retrieval", "image", "pathfinder")]


def write(folder, name, values):
    made = results_of(name, values, metrics=["accuracy"], reduced=True)
    made["data"] = {"name": f"made up {name}"}
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps(made))


def test_five_columns_have_the_papers_averages(tmp_path, capsys):
    for number, name in enumerate(NAMES):
        values = {"performer": [10.0 + number, 20.0 + number]}
        if number:
            values["longformer"] = [50.0]
        write(tmp_path / name, name, values)
    assert join_tables.main([str(tmp_path / name) for name in NAMES]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split(" | ")[0][2:]: line[:-2].split(" | ")[1:] for line in lines if "|" in line}
    assert rows["system"][2] == "Retrieval, reduced" and rows["system"][5] == "mean of 5"
    assert rows["Performer"][0] == "15.00 (18.01)" and rows["Performer"][5] == "17.00 (51.41)"
    assert rows["Longformer"][0] == "- (35.63)" and rows["Longformer"][5] == "- (53.46)"
    # the last column of the paper's table 1, and of its table 2
    published = [row[5].partition("(")[2][:5] for row in list(rows.values())[2:]]
    assert published == ("51.41 53.46 54.39 56.48 52.46 53.88 55.45 56.72 54.83 55.76".split())
    assert "- Text, reduced: made up mscffn-text" in lines


def test_other_rows_or_folders_are_refused(tmp_path):
    write(tmp_path / "one", "mscffn-text", {})
    write(tmp_path / "two", "fastformer-imdb", {})
    with pytest.raises(ConfigurationError, match="fastformer-imdb has other rows than mscffn-text"):
        join_tables.main([str(tmp_path / "one"), str(tmp_path / "two")])
    with pytest.raises(ConfigurationError, match="has no results.json of reproduce"):
        join_tables.main([str(tmp_path)])
