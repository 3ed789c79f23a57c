"""What fairseq imports for a few functions is imported when one of them is called."""

import ast
import importlib
import sys
from pathlib import Path

import fairseq

from fairseq_plugins import on_demand

ROOT = Path(fairseq.__file__).parent


def test_a_function_imports_its_module(tmp_path, monkeypatch):
    (tmp_path / "slow_one").mkdir()
    (tmp_path / "slow_one" / "__init__.py").touch()
    (tmp_path / "slow_one" / "scores.py").write_text("def twice(x):\n    return 2 * x\n")
    (tmp_path / "user_of_it.py").write_text(
        "from slow_one import scores\nfrom slow_one.scores import twice\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(on_demand, "FILES", ("user_of_it",))
    monkeypatch.setattr(on_demand, "DEFERRED", ("slow_one", "slow_one.scores"))
    on_demand.defer_statistics()
    on_demand.defer_statistics()
    assert sys.meta_path.count(on_demand.Finder) == 1
    user = importlib.import_module("user_of_it")
    assert not {"slow_one", "slow_one.scores"} & set(sys.modules)
    assert user.twice(2) == 4 and user.scores.twice(x=3) == 6
    assert type(sys.modules["slow_one.scores"]) is type(sys)  # the module itself


def test_fairseq_imports_them_in_these_files_alone():
    found = set()
    for path in ROOT.rglob("*.py"):
        if "examples" in path.relative_to(ROOT).parts:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.split(".")[0] in ("sklearn", "scipy") for name in names):
                found.add(".".join(("fairseq", *path.relative_to(ROOT).with_suffix("").parts)))
    assert found == set(on_demand.FILES)
