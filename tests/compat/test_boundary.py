"""The repairs of fairseq know of this plugin only what it tells them."""

import ast

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
