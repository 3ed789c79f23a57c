"""Options planted in a checkpoint run nothing and open nothing, by any program that loads it."""

import copy
import io
import logging
import os
from argparse import Namespace

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.models.transformer import TransformerModel
from omegaconf import DictConfig, OmegaConf

from fairseq_plugins import compat
from fairseq_plugins.api import Translator
from fairseq_plugins.cli import average as average_command
from fairseq_plugins.compat import unpickling
from fairseq_plugins.compat.stored_options import EVALUATED, plain
from fairseq_plugins.errors import ConfigurationError
from tests.compat.test_unpickling import Call

compat.apply()


@pytest.fixture
def touched(tmp_path):
    return tmp_path / "touched"


@pytest.fixture
def plant(tmp_path, tiny_checkpoint):
    """plant(change) writes a copy of a checkpoint after change(cfg) and gives its path."""

    def write(change, form="cfg"):
        state = torch.load(str(tiny_checkpoint), map_location="cpu", weights_only=False)
        change(state["cfg"])
        if form == "args":  # as before fairseq 0.11: one flat Namespace
            state["args"], state["cfg"] = flat(state["cfg"]), None
        path = tmp_path / "planted.pt"
        torch.save(state, str(path))
        return path

    return write


def flat(cfg):
    values = dict(vars(cfg["model"]))
    for section in ("common", "task", "criterion", "optimizer", "optimization", "bpe"):
        values.update(cfg[section] or {})
    values.update(task="translation", arch="transformer", optimizer="adam", lr_scheduler="fixed")
    values.update(criterion="label_smoothed_cross_entropy")
    return Namespace(**{k: v for k, v in values.items() if k != "_name"})


@pytest.fixture
def programs(
    toy_data, run_generate, run_interactive, run_validate, run_train, train_args, tmp_path
):
    """{name: what loads the checkpoint `path`}: every way there is."""
    bin_, out = toy_data.bin, tmp_path / "out"

    def train(path, *words):
        folder = tmp_path / "runs"
        run_train(bin_, *train_args, "--save-dir", folder, "--max-update", 7, "--no-save", *words)

    def average(path):
        average_command.main(["--inputs", str(path), "--output", str(out)])

    def from_pretrained(path):
        TransformerModel.from_pretrained(str(path.parent), path.name, str(bin_)).translate("ba be")

    return {
        "generate": lambda path: run_generate(bin_, "--path", path, "--max-len-b", 3),
        "interactive": lambda path: run_interactive(
            bin_, "--path", path, "--max-len-b", 3, stdin="ba be\n"
        ),
        "validate": lambda path: run_validate(bin_, "--path", path, "--max-tokens", 400),
        "restore": lambda path: train(path, "--restore-file", path),
        "finetune": lambda path: train(path, "--finetune-from-model", path),
        "average": average,
        "from_pretrained": from_pretrained,
        "Translator": lambda path: Translator([path], data=bin_, cpu=True),
    }


@pytest.mark.parametrize("kind", [str, Call])
def test_every_program_refuses_planted_code(kind, plant, touched, programs):
    code = f"open({str(touched)!r}, 'w')"
    code = Call(eval, code) if kind is Call else code
    path = plant(lambda cfg: setattr(cfg["model"], "adaptive_softmax_cutoff", code))
    for name, program in programs.items():
        told = f"{path} is rejected, and nothing in it was run: .* may be malicious"
        with pytest.raises(ConfigurationError, match=told):
            program(path)
        assert not touched.exists(), name


@pytest.mark.parametrize("text", ["${oc.env:SECRET}", "a${env:SECRET}b", "${oc.decode:${x}}"])
@pytest.mark.parametrize("form", ["cfg", "args"])
def test_look_ups_in_the_environment_are_refused(text, form, plant, monkeypatch):
    monkeypatch.setenv("SECRET", "planted-secret")
    path = plant(lambda cfg: cfg["common"].update(wandb_project=text), form)
    with pytest.raises(ConfigurationError, match="look up on this machine") as error:
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
    assert "planted-secret" not in str(error.value)


@pytest.mark.parametrize(
    "name, options",
    [
        ("cfg", 'common: {wandb_project: "\\x24{oc.env:HOME}"}'),
        ("cfg", '{"common": {"user_dir": "/planted"}}'),
        ("cfg", DictConfig("${x}")),
        ("cfg", Namespace(x=1)),
        ("args", "{}"),
    ],
)
def test_options_that_omegaconf_would_parse_are_refused(name, options, tiny_checkpoint, tmp_path):
    """They would be as they stand in the text, with escapes that hide look-ups."""
    state = torch.load(str(tiny_checkpoint), map_location="cpu", weights_only=False)
    torch.save({**state, name: options}, str(tmp_path / "planted.pt"))
    with pytest.raises(ConfigurationError, match=f"its {name} is a (str|Namespace)"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "planted.pt"))


def test_look_ups_in_pickled_configurations_are_refused():
    def read(value):
        file = io.BytesIO()
        torch.save(value, file)
        return unpickling.load(file)

    config = OmegaConf.create({"task": {"data": "${oc.env:HOME}", "list": [1, {"x": None}]}})
    assert read(config) == {"task": {"data": "${oc.env:HOME}", "list": [1, {"x": None}]}}
    with pytest.raises(ConfigurationError, match="its option data is '..oc.env:HOME.'"):
        plain(read(config))
    with pytest.raises(ConfigurationError, match="its option data is '..oc.env:HOME.'"):
        plain({"data": read(config.task._get_node("data"))})
    with pytest.raises(ConfigurationError, match="look up"):
        plain(read(Namespace(w2v_args=[{"x": DictConfig("${oc.env:HOME}")}])))


@pytest.mark.parametrize("value", [torch.ones(3), np.ones(3), [torch.ones(1)], {"x": object}])
def test_options_of_other_types_are_refused(value):
    """fairseq's own checks fail on them, since an array is neither true nor false."""
    for options in (Namespace(data=value), {"task": {"x": value}}):
        with pytest.raises(ConfigurationError, match=r"its option \w+ is a (Tensor|ndarray|type)"):
            plain(options)


def test_references_within_the_options_are_kept():
    options = {"lr": [0.1], "lr_scheduler": {"lr": "${optimization.lr}"}, "x": "${a.b[0]}$HOME"}
    assert plain(options) == options


@pytest.mark.parametrize("option", sorted(EVALUATED))
def test_every_evaluated_option_is_checked_at_any_depth(option):
    for value in ("f()", ["f()"], ("1", "f()")):
        with pytest.raises(ConfigurationError, match=f"option {option} is 'f"):
            plain({"w2v_args": Namespace(model=[{option: value}])})
    kept = {option: "[1, 2]", "other": "f()"}
    assert plain(kept) == kept


@pytest.mark.parametrize("form", ["cfg", "args"])
def test_no_file_is_opened_by_a_stored_name(form, plant, tmp_path, programs, monkeypatch):
    """A FIFO that nobody writes to: opening it would never end. A user-dir would leave a mark."""
    fifo, user_dir = tmp_path / "fifo", tmp_path / "planted_user_dir"
    os.mkfifo(str(fifo))
    user_dir.mkdir()
    (user_dir / "__init__.py").write_text("open({!r}, 'w')".format(str(tmp_path / "imported")))

    def change(cfg):
        cfg["common"]["user_dir"] = str(user_dir)
        cfg["generation"]["replace_unk"] = str(fifo)
        for option in ("encoder_embed_path", "decoder_embed_path"):
            setattr(cfg["model"], option, str(fifo))

    path = plant(change, form)
    with pytest.raises(ConfigurationError, match="preparation.json"):
        programs.pop("Translator")(path)  # it needs that file once the model is loaded
    for name in programs if form == "cfg" else ("generate", "from_pretrained"):
        programs[name](path)
    assert not (tmp_path / "imported").exists()


def test_the_files_of_a_tokenizer_are_those_that_the_user_names(plant, toy_data, tmp_path, caplog):
    def change(cfg):
        cfg["bpe"] = {"_name": "subword_nmt", "bpe_codes": "/planted/codes", "bpe_separator": "@@"}

    path = plant(change)
    words = [str(path.parent), path.name, str(toy_data.bin)]
    with caplog.at_level(logging.INFO), pytest.raises(OSError, match="not found"):
        TransformerModel.from_pretrained(*words)
    assert "bpe_codes /planted/codes is not opened: give the file yourself" in caplog.text
    (tmp_path / "codes").write_text("#version: 0.2\nb a</w>\n")
    model = TransformerModel.from_pretrained(*words, bpe_codes=str(tmp_path / "codes"))
    assert model.bpe.encode("ba") == "ba"


def test_a_path_does_not_leave_the_prepared_folder():
    options = {"config_yaml": "../../etc/passwd", "multitask_config_yaml": "tasks.yaml"}
    assert plain(options) == {"config_yaml": "passwd", "multitask_config_yaml": "tasks.yaml"}
    for option in options:
        with pytest.raises(ConfigurationError, match=f"{option} is .*, which may become any path"):
            plain({"task": {option: "${task.other}", "other": "/etc/passwd"}})


def test_harmless_options_stay_as_they_are(tiny_checkpoint):
    state = torch.load(str(tiny_checkpoint), map_location="cpu", weights_only=False)
    before = copy.deepcopy(state["cfg"])
    options = plain(state["cfg"])
    assert state["cfg"] == before  # a copy is changed
    changed = set()
    for section, old in before.items():
        pair = (old, options[section])
        old, new = (part if isinstance(part, dict) else vars(part or Namespace()) for part in pair)
        changed |= {name for name in old if new[name] != old[name]}
    assert changed == {"user_dir"}


def test_options_that_contain_themselves_are_refused(plant):
    def change(cfg):
        cfg["common"]["loop"] = cfg

    path = plant(change)
    with pytest.raises(ConfigurationError, match="rejected.*recursion"):
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
