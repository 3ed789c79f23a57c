"""What every preset builds: `python -m tests.models.describe_presets` prints it as JSON.

`presets.json` is what 0.1.0 printed (commit 84a0131).
"""

import hashlib
import json
from argparse import Namespace
from types import SimpleNamespace
from typing import Any, Dict, List

# names of 0.1.0 for what is named otherwise now
OLD_NAMES = ((".ffn.", ".fc1."),)


def describe(arch: str) -> Dict[str, Any]:
    """Counts and digests of a preset's parameters, in their order, and of its options."""
    from fairseq.data import Dictionary
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    args = Namespace()
    ARCH_CONFIG_REGISTRY[arch](args)
    task = SimpleNamespace(source_dictionary=Dictionary(), target_dictionary=Dictionary())
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, task)
    parameters = [(old_name(n), list(p.shape)) for n, p in model.named_parameters()]
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "tensors": digest(parameters),
        "state": digest(sorted(old_name(name) for name in model.state_dict())),
        "options": digest(sorted((name, str(value)) for name, value in vars(args).items())),
    }


def old_name(name: str) -> str:
    for new, old in OLD_NAMES:
        name = name.replace(new, old) if name.startswith("decoder.") else name
    return name


def digest(value: List[Any]) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


if __name__ == "__main__":
    from fairseq.models import ARCH_MODEL_INV_REGISTRY

    from fairseq_plugins.models.efficient_transformer import MODEL_NAME

    presets = sorted(set(ARCH_MODEL_INV_REGISTRY[MODEL_NAME]) - {MODEL_NAME})
    print(json.dumps({arch: describe(arch) for arch in presets}, indent=1))
