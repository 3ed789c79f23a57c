"""Which trainings the rows are, and what is refused before any of them starts."""

import shutil
from pathlib import Path

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.commands import reproduce
from tests.conftest import SIZES
from tests.lab.reproduction.conftest import FTC_PAPER, make


@pytest.mark.parametrize(
    "words, message",
    [
        (["--", "--encoder-blocks", "3,3"], "--encoder-blocks: rows set it"),
        (["--", "--arch=transformer"], "--arch: rows set it"),
        (["--", "--seed", "3"], "use --seeds"),
        (["--settings", "nowhere.args"], "nowhere.args: no such file"),
        (["--", "--learning-rate", "1"], "row transformer .*: .* does not take --learning"),
        (["--", "--decoder-attention-heads", "5"], "row transformer .*: "),
        # sizes that only the row of six blocks cannot have
        (["--", "--encoder-embed-dim", "64"], "row fc-6x4 .* --feature-window 2 over 5 later"),
    ],
)
def test_mistakes_are_told_before_any_row_trains(data, settings, tmp_path, words, message):
    rows = ["--rows", "transformer", "fc-6x4", "--settings", settings]
    with pytest.raises(ConfigurationError, match=message) as error:
        make(data, tmp_path / "out", *rows, *words)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out" / "runs").exists()


def test_data_that_cannot_be_used(data, toy_data, settings, tmp_path):
    one = ["--rows", "transformer", "--seeds", 1, "--settings", settings]
    for folder, message in (
        (tmp_path / "no", "no such folder"),
        (toy_data.bin, "preparation.json cannot be used"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            make(folder, tmp_path / "out", *one)
    with pytest.raises(ConfigurationError, match="DATA is missing"):
        reproduce.main(["ftc", "--out", str(tmp_path / "out")])
    copied = Path(shutil.copytree(str(data), str(tmp_path / "copied")))
    (copied / "text" / "raw" / "test.en").unlink()  # only scoring needs it
    with pytest.raises(ConfigurationError, match="raw/test.en is missing; .* holds test"):
        make(copied, tmp_path / "out", *one)
    for path in copied.glob("test.*.idx"):
        path.unlink()
    with pytest.raises(ConfigurationError, match="has no test: prepare train"):
        make(copied, tmp_path / "out", *one)


@pytest.mark.slow
def test_all_thirteen_rows_can_be_built(data, settings, tmp_path):
    made = make(data, tmp_path, "--settings", settings)
    sizes = {name: model["parameters"] for name, model in made.models.items()}
    assert list(sizes) == [row.name for row in FTC_PAPER.rows]
    assert sizes["tc-2x3"] > sizes["fc-2x3-linear"] > sizes["fc-2x3"]
    assert sizes["tc-2x3"] == sizes["transformer"]
    assert sizes["fc-2x3"] == sizes["ftc-2x3"] > sizes["fc-2x3-window4"]
    assert made.data["pairs"].keys() == SIZES.keys()


def test_several_processes_share_the_batch_of_a_run(data, settings, tmp_path):
    words = ["--rows", "ftc-2x3", "--settings", settings, "--processes", 2]
    for trial in make(data, tmp_path / "out", *words).trials:
        (plan,) = trial.plans
        given = dict(zip(plan.command, plan.command[1:]))
        assert given["--nproc_per_node"] == "2" and given["--max-tokens"] == "200"
        assert plan.threads == 1
