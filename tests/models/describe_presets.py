"""What every preset builds: `python -m tests.models.describe_presets` prints it as JSON.

`presets.json` holds this, so that names and shapes of parameters stay. Newer options do not count.
"""

import hashlib
import json
from argparse import Namespace
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any


def build(arch: str) -> tuple[Namespace, Any]:
    """The options of a preset, completed, and its model."""
    from fairseq.data import Dictionary
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

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


def main() -> None:
    from fairseq.models import ARCH_MODEL_INV_REGISTRY

    from fairseq_plugins.models.efficient_transformer import MODEL_NAME

    presets = sorted(set(ARCH_MODEL_INV_REGISTRY[MODEL_NAME]) - {MODEL_NAME})
    options = sorted(vars(build(presets[0])[0]))
    found = {arch: describe(*build(arch), options) for arch in presets}
    print(json.dumps({"options": options, "presets": found}, indent=1))


if __name__ == "__main__":
    main()
