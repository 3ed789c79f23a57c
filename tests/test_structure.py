"""Files of the package import each other in one direction, also inside functions."""

import ast
import functools
import graphlib

from tests.conftest import ROOT

# the folders and files at the top, in order: each imports only from itself and from those below
FLOORS = (
    "__main__ lab cli train export distill tasks evaluate api search graphs models losses scoring "
    "data __init__ compat layers text system pretrained options files errors version"
).split()
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "fairseq_plugins").rglob("*.py"))
}


class TypesLeftOut(ast.NodeTransformer):
    """Drops what only type checkers read: the package names its classes for them."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)


@functools.cache
def imported(module: str) -> set[str]:
    """The files of the package that a file imports."""
    path = FILES[module]
    package = path.relative_to(ROOT).parts[:-1]
    names = set()
    for node in ast.walk(TypesLeftOut().visit(ast.parse(path.read_text(encoding="utf-8")))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                names.add(whole if whole in FILES else base)
    return names & FILES.keys() - {module}


def test_no_circle_of_imports():
    graph = {module: imported(module) for module in FILES}
    assert sum(map(len, graph.values())) > 600
    graphlib.TopologicalSorter(graph).prepare()  # a CycleError names the circle


def floor(module: str) -> int:
    """How far below the top a file's folder is."""
    parts = module.split(".")
    return FLOORS.index(parts[1] if parts[1:] else "__init__")


def test_imports_run_downwards():
    upwards = [
        f"{module} -> {other}"
        for module in FILES
        for other in imported(module)
        if floor(other) < floor(module)
    ]
    assert upwards == []


def test_files_at_the_top_are_few():
    top = {path.name for path in (ROOT / "fairseq_plugins").glob("*.py")}
    assert top == {"__init__.py", "__main__.py", "api.py", "errors.py", "files.py", "version.py"}


# what a package of the repairs of fairseq alone would take along
LEAVES = ("errors", "files", "system.quiet", "system.cpu", "options.search", "options.fields")


def test_repairs_of_fairseq_import_nothing_of_the_plugin_but_leaves():
    leaves = {f"fairseq_plugins.{leaf}" for leaf in LEAVES}
    repairs = {name for name in FILES if name.startswith("fairseq_plugins.compat")}
    for module in repairs:
        assert imported(module) <= repairs | leaves, module
    for module in leaves:
        assert imported(module) <= leaves, module
