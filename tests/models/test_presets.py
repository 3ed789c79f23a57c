"""Presets build what they built: checkpoints of an architecture stay loadable.

`presets.json` holds this, so that names and shapes of parameters stay; newer options do not count.
`python -m tests.models.test_presets` prints it anew.
"""

import hashlib
import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_INV_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.models.transformer.transformer_config import DEFAULT_MIN_PARAMS_TO_WRAP

from fairseq_plugins.models.efficient_transformer import MODEL_NAME

RECORD = json.loads((Path(__file__).parent / "presets.json").read_text(encoding="utf-8"))


def build_preset(arch: str) -> tuple[Namespace, Any]:
    """The options of a preset, completed, and its model."""
    args = Namespace()
    ARCH_CONFIG_REGISTRY[arch](args)
    task = SimpleNamespace(source_dictionary=Dictionary(), target_dictionary=Dictionary())
    return args, ARCH_MODEL_REGISTRY[arch].build_model(args, task)


def describe(args: Namespace, model: Any, options: Sequence[str]) -> dict[str, Any]:
    """Counts and digests of a model's parameters, in their order, and of some options."""
    parameters = [(n, list(p.shape)) for n, p in model.named_parameters()]
    state = list(model.state_dict())
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "tensors": digest(parameters),
        "state": digest(sorted(state)),
        "options": digest([(name, str(getattr(args, name))) for name in options]),
    }


def digest(value: list[Any]) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


@pytest.mark.usefixtures("uninitialised")
@pytest.mark.parametrize("arch", sorted(RECORD["presets"]))
def test_a_preset_builds_what_it_built(arch):
    args, model = build_preset(arch)
    if not args.share_all_embeddings:  # fairseq once stored its default here, now in a copy
        args.min_params_to_wrap = DEFAULT_MIN_PARAMS_TO_WRAP
    options = [name for name in RECORD["options"] if hasattr(args, name)]
    found, expected = describe(args, model, options), dict(RECORD["presets"][arch])
    assert found == expected


if __name__ == "__main__":
    presets = sorted(set(ARCH_MODEL_INV_REGISTRY[MODEL_NAME]) - {MODEL_NAME})
    options = sorted(vars(build_preset(presets[0])[0]))
    described = {arch: describe(*build_preset(arch), options) for arch in presets}
    print(json.dumps({"options": options, "presets": described}, indent=1))
