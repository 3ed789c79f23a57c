"""Nothing outside the laboratory imports it; it works as fairseq's `--user-dir`."""

import ast
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

PACKAGE = ROOT / "fairseq_plugins"
LAB = PACKAGE / "lab"
CODE = """
import argparse, sys
from fairseq import criterions, models, tasks, utils
utils.import_user_module(argparse.Namespace(user_dir=sys.argv[1]))
for name in ("transformer_ftc", "news_recommender", "pair_classifier"):
    assert name in models.ARCH_MODEL_REGISTRY, name
assert "news_recommendation" in tasks.TASK_REGISTRY
assert "news_recommendation" in criterions.CRITERION_REGISTRY
assert sys.modules["lab"] is sys.modules["fairseq_plugins.lab"]
from sys import path
assert not any(place.endswith("fairseq_plugins") for place in path), path
"""


def imported(path: Path) -> set:
    """All modules that a file names: imported, or as a string, as importlib takes them."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            folder = path.relative_to(ROOT).parts[: -node.level] if node.level else ()
            module = ".".join([*folder, *([node.module] if node.module else [])])
            names.update(f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value.lstrip("."))
    return names


def test_nothing_outside_imports_it():
    files = [
        p
        for name in ("fairseq_plugins", "scripts", "examples")
        for p in (ROOT / name).rglob("*.py")
    ]
    outside = [path for path in files if LAB not in path.parents]
    assert len(outside) > 150
    for path in outside:
        found = {name for name in imported(path) if f"{name}.".startswith("fairseq_plugins.lab.")}
        assert not found, f"{path} imports {found}"


def test_it_is_a_user_dir(tmp_path):
    """Not installed, with models of its own, which register once under either name."""
    for folder in (PACKAGE, LAB):
        copy = tmp_path / folder.relative_to(ROOT)
        copy.mkdir()
        for path in folder.iterdir():
            if path != LAB:
                (copy / path.name).symlink_to(path)
    words = [sys.executable, "-W", "ignore", "-P", "-c", CODE, "lab"]
    done = subprocess.run(
        words,
        cwd=str(tmp_path / "fairseq_plugins"),
        env={"PATH": ""},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
