"""The repairs of fairseq know of this plugin only what it tells them."""

import argparse
import ast
import re
from dataclasses import fields

from fairseq import criterions, models, tasks

import fairseq_plugins
from tests.conftest import ROOT

PACKAGE = ROOT / "fairseq_plugins"
FILES = sorted((PACKAGE / "compat").glob("*.py"))
# what a package of these repairs would take along
LEAVES = ("errors", "files", "system.quiet", "system.cpu", "search.options")


def trees():
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in FILES]


def test_they_import_nothing_of_the_plugin_but_leaves():
    allowed = {f"fairseq_plugins.{leaf}" for leaf in LEAVES}
    leaves = [PACKAGE / f"{leaf.replace('.', '/')}.py" for leaf in LEAVES]
    for path in [*FILES, *leaves]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: import by the whole name"
                top = node.module in ("fairseq_plugins", "fairseq_plugins.system")
                names = [f"{node.module}.{name}" for name in names] if top else [node.module]
            for name in names:
                ours = name.startswith("fairseq_plugins")
                compat = name.startswith("fairseq_plugins.compat") and path in FILES
                assert not ours or compat or name in allowed, f"{path} imports {name}"


def of_the_plugin(part) -> bool:
    return part.__module__.startswith("fairseq_plugins.")


def options_of_a_model(part):
    parser = argparse.ArgumentParser(conflict_handler="resolve")
    part.add_args(parser)
    return {action.dest for action in parser._actions}


def names_and_options():
    """The names of this plugin's parts, and their options that fairseq does not have."""
    ours, theirs, names = set(), set(), set()
    registries = (
        (models.MODEL_REGISTRY, models.MODEL_DATACLASS_REGISTRY),
        (tasks.TASK_REGISTRY, tasks.TASK_DATACLASS_REGISTRY),
        (criterions.CRITERION_REGISTRY, criterions.CRITERION_DATACLASS_REGISTRY),
    )
    for classes, options in registries:
        for name, part in classes.items():
            own = of_the_plugin(part)
            names |= {name} if own else set()
            known = {field.name for field in fields(options[name])} if options.get(name) else set()
            if own or name == "transformer":
                known |= options_of_a_model(part)
            (ours if own else theirs).update(known)
    names |= {arch for arch, part in models.ARCH_MODEL_REGISTRY.items() if of_the_plugin(part)}
    return names - {"classification"}, ours - theirs  # an ordinary word


def test_they_name_none_of_its_parts_and_options():
    fairseq_plugins.register()
    names, options = names_and_options()
    assert {"transformer_ftc", "summarization"} <= names
    assert {"eval_rouge", "encoder_token_mixer"} <= options
    for path, tree in trees():
        words = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words.update(re.findall(r"\w+", node.value.replace("-", "_")))
        assert not words & (names | options), f"{path} names {words & (names | options)}"
