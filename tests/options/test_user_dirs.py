"""The commands import a token mixer of another package only from a folder that the user names."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fairseq_plugins
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options import recipes
from fairseq_plugins.options.user_dirs import import_user_dirs, user_dirs_of
from tests.conftest import ROOT
from tests.tiny_runs import PREPARE, call, sentence, within, write_pairs

MIXER = """
from typing import Any

import fairseq_plugins
from fairseq_plugins.layers.token_mixers.multi_head import MultiHeadMixer
from fairseq_plugins.layers.token_mixer import register_token_mixer

@register_token_mixer("cumsquare")
class CumSquare(MultiHeadMixer):
    projections = "v"

    def mix(self, x, memory, padding_mask, memory_padding_mask):
        v = self.split(self.v_proj(memory))
        if memory_padding_mask is not None:
            v = v.masked_fill(memory_padding_mask[:, None, :, None], 0.0)
        return v.square().cumsum(dim=2) / 10
"""
RECIPE = """
task: {_name: translation}
model: {_name: fastformer_encoder, encoder_token_mixer: cumsquare, encoder_layers: 1,
  encoder_embed_dim: 16, encoder_ffn_embed_dim: 16, encoder_attention_heads: 2, decoder_layers: 1,
  decoder_embed_dim: 16, decoder_ffn_embed_dim: 16, decoder_attention_heads: 2,
  share_all_embeddings: true}
criterion: {_name: cross_entropy}
optimizer: {_name: adam}
lr_scheduler: {_name: fixed}
optimization: {lr: [0.01], max_update: 3}
dataset: {max_tokens: 400, num_workers: 0}
common: {user_dir: mine}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Text, its prepared `data`, a recipe, and the user-dir `mine`, which has the mixer."""
    folder = tmp_path_factory.mktemp("user_dirs")
    with within(folder):
        write_pairs(folder / "raw", ("de", "en"), sentence, {"train": 30, "valid": 4, "test": 4})
        languages = "--source-lang de --target-lang en --joined-dictionary --subword bpe".split()
        call("prepare-translation", *PREPARE, 60, *languages)
    (folder / "mine").mkdir()
    (folder / "mine" / "__init__.py").write_text(MIXER)
    (folder / "recipe.yaml").write_text(RECIPE)
    return folder


FORKS = """
import os, shlex, sys
import fairseq_plugins
from fairseq_plugins import cli
from fairseq_plugins.errors import ConfigurationError
fairseq_plugins.register()
for line in sys.argv[1:]:
    if os.fork() == 0:  # a part that another command imported is not known here
        os.dup2(os.open("input", os.O_RDONLY), 0)
        try:
            os._exit(cli.main(shlex.split(line)))
        except ConfigurationError as error:
            print("rejected:", error, flush=True)
        finally:
            os._exit(1)
    print("status", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


def run(folder, *lines):
    """The exit status of each command line, in processes that have imported fairseq, and errors."""
    environment = {"PATH": "", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    (folder / "input").write_text("Der Hund\n")
    words = [sys.executable, "-W", "ignore", "-c", FORKS, *lines]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    found = re.findall(r"^status (\d+)", done.stdout, re.M)
    rejected = re.findall(r"^rejected: (.*)", done.stdout, re.M)
    assert len(found) == len(lines), done.stderr
    return list(map(int, found)), rejected, done.stderr


@pytest.mark.parametrize("count", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_a_part_of_a_user_dir_trains_and_is_used(folder, count):
    train = "train recipe.yaml data --save-dir run --cpu --processes 2"
    commands = (
        "evaluate data run --checkpoint checkpoint_last.pt --cpu",
        "translate --model run/checkpoint_last.pt --cpu",
        "distill data run/checkpoint_last.pt --out new --cpu --processes 1",
        "export run/checkpoint_last.pt --out exported",
    )
    known = [f"{each} --user-dir mine" for each in commands[:count]]
    status, rejected, errors = run(folder, train, *commands[:2], *known)
    assert status == [0, 1, 1] + [0] * count, (rejected, errors)
    assert len(rejected) == 2
    for message in rejected:
        assert "--encoder-token-mixer cumsquare, which is unknown here: give" in message
        assert "--user-dir" in message
    state = torch.load(folder / "run/checkpoint_last.pt", weights_only=False)
    assert state["cfg"]["model"].encoder_token_mixer == "cumsquare"


def test_a_folder_that_cannot_be_imported_is_one_line(tmp_path):
    with pytest.raises(ConfigurationError, match="^--user-dir nowhere: no such folder$"):
        import_user_dirs("nowhere")
    (tmp_path / "needs_more").mkdir()
    (tmp_path / "needs_more" / "__init__.py").write_text("import no_such_package\n")
    (tmp_path / "torch").mkdir()
    for name, told in (("needs_more", "No module named"), ("torch", "not globally unique")):
        with pytest.raises(ConfigurationError, match=f"^--user-dir .*{name}: .*{told}"):
            import_user_dirs([tmp_path / name])


def distribution(folder, module, code):
    """An installed package of one module, as pip writes it, with an entry point."""
    (folder / f"{module}.py").write_text(code)
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[fairseq_plugins.parts]\nmine = {module}\n")


def test_parts_of_installed_packages_are_imported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    distribution(tmp_path, "parts_of_mine", "import fairseq_plugins.layers.token_mixer")
    fairseq_plugins.register()
    assert sys.modules.pop("parts_of_mine").__file__ == str(tmp_path / "parts_of_mine.py")
    distribution(tmp_path, "broken_parts", "import no_such_package")
    with pytest.raises(ConfigurationError, match="^broken_parts: its entry point mine .*: No mod"):
        fairseq_plugins.register()


def test_recipes_name_folders_too(tmp_path):
    yaml, words = tmp_path / "a.yaml", tmp_path / "a.txt"
    yaml.write_text("common: {user_dir: mine}\ntask: {_name: translation}\n")
    given = [Path("other"), Path("mine")]
    assert user_dirs_of([yaml], given) == [Path("mine"), Path("other")]
    words.write_text("--user-dir theirs --lr 1\n")
    assert user_dirs_of([yaml, words], []) == [Path("theirs")]
    assert "--user-dir" not in recipes.arguments([yaml, words])
