"""Options of fairseq that need names which numpy 1.24 and 2 dropped."""

import ast
from pathlib import Path

import fairseq
import numpy as np

from fairseq_plugins import compat
from fairseq_plugins.compat.numpy_names import MODULES

compat.apply()


def test_every_module_that_needs_an_old_name_has_it():
    """fairseq.data.audio.feature_transforms.specaugment uses `interpolation` of cv2."""
    root = Path(fairseq.__file__).parent.parent
    repaired = {module.__name__: module for module in MODULES}
    needed = set()
    for path in root.glob("fairseq/**/*.py"):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        source = path.read_text(encoding="utf-8")
        if "examples" in module or "np." not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "np":
                if not hasattr(np, node.attr):
                    needed.add((module, node.attr))
    assert {module for module, _ in needed} <= set(repaired)
    assert all(hasattr(repaired[module].np, name) for module, name in needed)
