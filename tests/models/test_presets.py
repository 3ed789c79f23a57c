"""Presets build what they built: checkpoints of an architecture stay loadable."""

import json
from pathlib import Path

import pytest
from fairseq.models.transformer.transformer_config import DEFAULT_MIN_PARAMS_TO_WRAP

from tests.models.describe_presets import build as build_preset
from tests.models.describe_presets import describe

RECORD = json.loads((Path(__file__).parent / "presets.json").read_text(encoding="utf-8"))


@pytest.mark.usefixtures("uninitialised")
@pytest.mark.parametrize("arch", sorted(RECORD["presets"]))
def test_a_preset_builds_what_it_built(parse, arch):
    parse("--arch", "transformer_ftc")  # reads the plugin
    args, model = build_preset(arch)
    if not args.share_all_embeddings:  # fairseq once stored its default here, now in a copy
        args.min_params_to_wrap = DEFAULT_MIN_PARAMS_TO_WRAP
    options = [name for name in RECORD["options"] if hasattr(args, name)]
    found, expected = describe(args, model, options), dict(RECORD["presets"][arch])
    assert found == expected
