"""Presets build what they built in 0.1.0, and its checkpoints load."""

import json
from pathlib import Path

import pytest
import torch
from fairseq.models.transformer.transformer_config import DEFAULT_MIN_PARAMS_TO_WRAP

from fairseq_plugins.models.options import DELETED
from tests.models.describe_presets import build as build_preset
from tests.models.describe_presets import describe, old_name

RECORD = json.loads((Path(__file__).parent / "presets.json").read_text(encoding="utf-8"))


@pytest.mark.usefixtures("uninitialised")
@pytest.mark.parametrize("arch", sorted(RECORD["presets"]))
def test_a_preset_builds_what_it_built(parse, arch):
    parse("--arch", "transformer_ftc")  # reads the plugin
    args, model = build_preset(arch)
    vars(args).update({name: option.default for name, option in DELETED.items()})
    if not args.share_all_embeddings:  # fairseq once stored its default here, now in a copy
        args.min_params_to_wrap = DEFAULT_MIN_PARAMS_TO_WRAP
    options = [name for name in RECORD["options"] if hasattr(args, name)]
    found, expected = describe(args, model, options), dict(RECORD["presets"][arch])
    assert found == expected


@pytest.mark.parametrize("words", ["", "--checkpoint-activations", "--decoder-layerdrop 0.1"])
def test_a_checkpoint_with_the_old_names_loads(build, make_sample, words):
    words = ["--encoder-blocks", "1,1", "--decoder-ffn", "mscffn", *words.split()]
    old, new = build(*words), build(*words, seed=2)
    state = {old_name(name): tensor for name, tensor in old.state_dict().items()}
    assert "decoder.layers.0.fc1.in_proj.weight" in state
    new.load_state_dict(state, strict=True)
    net_input = make_sample((5, 1, 7))["net_input"]
    assert torch.equal(new.eval()(**net_input)[0], old.eval()(**net_input)[0])
