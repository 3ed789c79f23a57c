"""What is changed in fairseq while it is imported."""

import ast
import importlib
import importlib.util
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Optional

import fairseq
import fairseq.dataclass
import pytest

from fairseq_plugins import fairseq_program, importing
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.training import launch

ROOT = Path(fairseq.__file__).parent


def test_a_function_imports_its_module(tmp_path, monkeypatch):
    (tmp_path / "slow_one").mkdir()
    (tmp_path / "slow_one" / "__init__.py").touch()
    (tmp_path / "slow_one" / "scores.py").write_text("def twice(x):\n    return 2 * x\n")
    (tmp_path / "user_of_it.py").write_text(
        "from slow_one import scores\nfrom slow_one.scores import twice\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(importing, "FILES", ("user_of_it",))
    monkeypatch.setattr(importing, "DEFERRED", ("slow_one", "slow_one.scores"))
    importing.watch_imports()
    importing.watch_imports()
    assert sys.meta_path.count(importing.Finder) == 1
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
    assert found == set(importing.FILES)


def test_a_type_or_none_is_read_as_the_type():
    """Python 3.14 writes `Optional[int]` as `int | None`, and fairseq reads what is written."""
    spec = importing.Finder.find_spec(importing.OPTIONS, fairseq.dataclass.__path__)
    utils = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(utils)
    assert utils.interpret_dc_type(int | None) is int
    assert utils.interpret_dc_type(list[str] | None) == list[str]
    assert utils.interpret_dc_type(Optional[float]) is float  # noqa: UP045
    assert utils.interpret_dc_type(int | str) == int | str


def test_programs_of_fairseq_run_on_newer_python(monkeypatch, capsys):
    monkeypatch.setattr(sys, "version_info", (3, 14))
    module, program = fairseq_program.words_of("generate")[1:]
    monkeypatch.undo()
    assert importlib.import_module(module) is fairseq_program
    monkeypatch.setattr(sys, "argv", ["", program, "-h"])
    before = logging.NullHandler()  # with it, fairseq's basicConfig would set no format
    monkeypatch.setattr(logging.getLogger(), "handlers", [before])
    with pytest.raises(SystemExit) as ended:
        fairseq_program.main()
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: fairseq-generate ")
    assert before not in logging.getLogger().handlers


@pytest.mark.parametrize("given", ["eval-lm", "eval_lm", "fairseq-eval-lm"])
def test_programs_of_fairseq_are_known_by_both_names(given, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["", given, "-h"])
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with pytest.raises(SystemExit):
        fairseq_program.main()
    assert capsys.readouterr().out.startswith("usage: fairseq-eval-lm ")


@pytest.mark.parametrize("words", [[], ["-h"], ["trian", "DATA"]])
def test_other_programs_are_told_in_one_line(words, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["", *words])
    with pytest.raises(ConfigurationError, match="^give a program of fairseq first, not '.*train"):
        fairseq_program.main()


@pytest.mark.parametrize("version", [(3, 11), (3, 14)])
def test_the_process_that_planned_a_training_gets_the_words_of_fairseq_train(monkeypatch, version):
    monkeypatch.setattr(sys, "version_info", version)
    command = [sys.executable, *fairseq_program.words_of("train"), "DATA", "--arch", "transformer"]
    given = []
    planned = SimpleNamespace(
        environment={}, process=None, begin=lambda *words: given.extend(words)
    )
    jobs = SimpleNamespace(environment=lambda threads: {}, run=lambda *words, begun: 0)
    todo = SimpleNamespace(alone=True, threads=1)
    assert launch._run(todo, command, jobs, "log", print, planned=planned) == 0
    assert given == [["DATA", "--arch", "transformer"], None]
