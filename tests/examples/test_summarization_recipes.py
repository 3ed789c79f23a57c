"""examples/summarization: the recipes train and are scored; flags and YAML say the same."""

import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import recipe_settings  # noqa: E402

FOLDER = ROOT / "examples" / "summarization"
RECIPES = sorted(
    path.stem for path in FOLDER.glob("*.sh") if path.stem not in ("train", "evaluate")
)
IMPLIED = {"log_format", "log_interval", "_name", "data", "save_dir"}  # by the launcher, or ???


def options_of(name):
    """What a recipe adds to the common settings, and the name it trains under."""
    text = (FOLDER / (name + ".sh")).read_text()
    found = re.search(r'/train.sh" (\S+) \\\n    "([^"]*)" "\$@"\n$', text)
    assert found, text
    return found.group(1), shlex.split(found.group(2))


@pytest.fixture(scope="module")
def data(tmp_path_factory, script) -> Path:
    """Prepared documents, one of them longer than any recipe reads."""
    folder = tmp_path_factory.mktemp("documents")
    words = "ant bee cow dog eel fox".split()
    for split, lengths in (("train", [20, 30, 6000, 12] * 5), ("valid", [9, 14]), ("test", [9, 7])):
        for side, longest in (("source", 10000), ("target", 8)):
            lines = [
                " ".join(words[(i * i + n) % 6] for i in range(min(length, longest)))
                for n, length in enumerate(lengths)
            ]
            (folder / "{}.{}".format(split, side)).write_text("\n".join(lines) + "\n")
    script("prepare_summarization").main(
        [str(folder / "data"), "--vocab-size", "22", "--workers", "1"]
        + [word for s in ("train", "valid", "test") for word in ("--" + s, str(folder / s))]
    )
    return folder / "data"


@pytest.mark.parametrize("name", RECIPES)
def test_flags_and_yaml_say_the_same(name, data):
    title, words = options_of(name)
    assert title == name
    common = recipe_settings.read_settings(FOLDER / "cnn_dm.args")
    args = vars(recipe_settings.parse([str(data), *common, *words]))
    settings = yaml.safe_load((FOLDER / "config" / "cnn_dm.yaml").read_text())
    for group, values in yaml.safe_load((FOLDER / "config" / (name + ".yaml")).read_text()).items():
        if group != "defaults":
            settings.setdefault(group, {}).update(values)
    in_yaml = {}
    for group, values in settings.items():
        choice = {"model": "arch"}.get(group, group)
        if "_name" in values:
            assert args[choice] == values["_name"]
            in_yaml[choice] = values["_name"]
        for option, value in values.items():
            if option not in IMPLIED:
                in_yaml[option] = value
                # YAML reads 1e-4 as text, which fairseq does not mind
                value = [float(rate) for rate in value] if option == "lr" else value
                assert args[option] == value, option
    given = {word[2:].replace("-", "_") for word in [*common, *words] if word.startswith("--")}
    assert given <= set(in_yaml), "not in the YAML file"


@pytest.mark.parametrize("name", RECIPES)
def test_the_header_names_the_recipe(name):
    text = (FOLDER / (name + ".sh")).read_text()
    assert text.count("examples/summarization/{}.sh ".format(name)) >= 2
    assert "runs/{} ".format(name) in text
    assert "config/{}.yaml".format(name) in text
    yaml_text = (FOLDER / "config" / (name + ".yaml")).read_text()
    assert "--config-name {} ".format(name) in yaml_text and "runs/{} ".format(name) in yaml_text
    for path in re.findall(r"(?:scripts|examples)/\S+\.(?:sh|py|args|yaml)", text + yaml_text):
        assert (ROOT / path).is_file(), path


def test_a_recipe_trains_and_is_scored(data, run_process, tmp_path):
    tiny = "--encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2"
    tiny += " --decoder-embed-dim 16 --decoder-ffn-embed-dim 16 --decoder-attention-heads 2"
    tiny += " --decoder-layers 1 --max-update 2 --num-workers 0"
    run = tmp_path / "run"
    trained = run_process(
        ["bash", FOLDER / "fastformer_tc_cnn_dm.sh", data, "--save-dir", run, "--cpu", "--"]
        + tiny.split(),
        cwd=tmp_path,
    )
    assert trained.returncode == 0, trained.stdout
    log = (run / "train.log").read_text()
    assert re.search(r"train: 5 of 20 documents are longer than 2,048 positions and cut", log)
    scored = run_process(
        ["bash", FOLDER / "evaluate.sh", data, run, FOLDER / "generate_headlines.args"]
        + ["--cpu", "--num-workers", "0", "--rouge-resamples", "10"],
        cwd=tmp_path,
    )
    assert scored.returncode == 0, scored.stdout
    assert "ROUGE-Lsum" in scored.stdout and "stem:porter" in scored.stdout
    kept = (run / "evaluation" / "generate-test.txt").read_text()
    assert len(re.findall(r"^D-", kept, re.MULTILINE)) == 2
    assert not (run / "evaluation.part").exists()


def test_evaluate_tells_what_is_missing(run_process, tmp_path, data):
    (tmp_path / "run").mkdir()
    settings = FOLDER / "generate_cnn_dm.args"
    for words, message in (
        ([data], "usage: "),
        ([tmp_path / "absent", tmp_path / "run", settings], "absent: no such folder"),
        ([data, tmp_path / "run", settings], "has no checkpoint_best.pt"),
    ):
        result = run_process(["bash", FOLDER / "evaluate.sh", *words])
        assert result.returncode == 1 and message in result.stdout
