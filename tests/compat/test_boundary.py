"""The repairs of fairseq know of this plugin only what it tells them."""

import ast
import re

from fairseq import criterions, models, tasks

import fairseq_plugins
from fairseq_plugins.models.options import plugin_options
from tests.conftest import ROOT

PACKAGE = ROOT / "fairseq_plugins"
FILES = sorted((PACKAGE / "compat").glob("*.py"))
# what a package of these repairs would take along
LEAVES = ("errors", "files", "system.quiet", "system.cpu", "options.search", "options.fields")


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


def test_they_name_none_of_its_parts_and_options():
    fairseq_plugins.register()
    registries = (
        models.ARCH_MODEL_REGISTRY,
        models.MODEL_REGISTRY,
        tasks.TASK_REGISTRY,
        criterions.CRITERION_REGISTRY,
    )
    ours = {name for name, _ in plugin_options()}
    for registry in registries:
        ours |= {
            name
            for name, part in registry.items()
            if part.__module__.startswith("fairseq_plugins.") and name != "classification"
        }
    assert {"transformer_ftc", "summarization", "encoder_token_mixer"} <= ours
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        words = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words.update(re.findall(r"\w+", node.value.replace("-", "_")))
        assert not words & ours, f"{path} names {words & ours}"
