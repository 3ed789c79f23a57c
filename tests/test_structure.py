"""Files of the package import each other in one direction, also inside functions."""

import ast
import graphlib

from tests.conftest import ROOT

FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "fairseq_plugins").rglob("*.py"))
}


class TypesLeftOut(ast.NodeTransformer):
    """Drops what only type checkers read: the package names its classes for them."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)


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
    assert sum(map(len, graph.values())) > 700
    graphlib.TopologicalSorter(graph).prepare()  # a CycleError names the circle
