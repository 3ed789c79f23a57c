"""Models in the box: found by name, after what exists under that name."""

import io
import json
import re
import shutil
import sys
from types import SimpleNamespace

import pytest

import fairseq_plugins
from fairseq_plugins import Translator, cli, pretrained
from fairseq_plugins.errors import ConfigurationError

LARGEST = 8 << 20  # bytes of a model in the box


@pytest.fixture
def box(exported, tmp_path, monkeypatch):
    """A folder with one model, which is looked in for names."""
    shutil.copytree(exported.folder, tmp_path / "box" / "tiny-de-en")
    (tmp_path / "box" / "tiny-de-en" / "CARD.md").write_text("# A model\n")
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path / "box")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_name_is_a_model(box, exported, monkeypatch, capsys):
    lines = ["a b", ""]
    expected = Translator(exported.folder).translate(lines)
    assert Translator("tiny-de-en").translate(lines) == expected
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a b\n\n")))
    assert cli.main(["translate", "--model", "tiny-de-en"]) == 0
    assert capsys.readouterr().out.splitlines() == expected


def test_an_unknown_name_asks_for_the_nearest(box):
    with pytest.raises(ConfigurationError, match="^--model tiny does .*: did you mean tiny-de-en"):
        Translator("tiny")
    with pytest.raises(ConfigurationError, match="^--model tiny does not exist: "):
        fairseq_plugins.Classifier(["tiny"])


def test_a_path_that_exists_is_preferred(box):
    (box / "tiny-de-en").mkdir()
    told = "tiny-de-en has neither checkpoint_best.pt nor .* or an exported folder$"
    with pytest.raises(ConfigurationError, match=told):
        Translator("tiny-de-en")


@pytest.mark.parametrize(
    "make", [Translator, fairseq_plugins.Summarizer, fairseq_plugins.Classifier]
)
def test_arguments_of_another_type_are_told(make, box):
    for model in (5, None, b"tiny", [5]):
        with pytest.raises(ConfigurationError, match="is of type .*: give the folder of a trai"):
            make(model)
    for option in ("threads", "max_tokens"):
        told = f"^--{option.replace('_', '-')} '2': must be a whole number$"
        with pytest.raises(ConfigurationError, match=told):
            make("tiny-de-en", **{option: "2"})


def test_each_model_has_a_card_and_is_small():
    for name in pretrained.names():
        files = [*(pretrained.FOLDER / name).iterdir()]
        listed = json.loads((pretrained.FOLDER / name / "config.json").read_text())["files"]
        assert {path.name for path in files} == {"CARD.md", "config.json", *listed}
        assert sum(path.stat().st_size for path in files) <= LARGEST
        assert Translator(name).translate([""]) == [""]


def test_without_torch_one_line_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    told = re.escape(f"--model {tmp_path}, which is not an exported model, needs torch and fairseq")
    for command in ("translate", "summarize", "classify"):
        with pytest.raises(ConfigurationError, match=told):
            cli.main([command, "--model", str(tmp_path)])
    with pytest.raises(ConfigurationError, match=told):
        fairseq_plugins.Classifier(tmp_path)
