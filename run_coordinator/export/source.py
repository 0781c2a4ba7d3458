"""Writes the source of an exported model: the parts of our modules that it needs, in one file."""

from __future__ import annotations

import ast
import sys
from importlib.resources import files

from siafu import __version__

CONVOLUTIONS = {"torch": "plain", "onnx": "plain", "pyg": "geometric", "dgl": "dgl_nn"}
OURS = "run_coordinator.export.modules"
HEADER = '''"""{model}, exported by siafu {version}: load(folder) is the model, called with {inputs}."""

from __future__ import annotations

'''
_INPUTS = {"dgl": "rows and a DGL graph"}


def source(model: str, to: str) -> str:
    """The source of a module with ``load``, and only what ``load`` of this model needs."""
    folder = files(OURS)
    statements: list[tuple[ast.stmt, str]] = []
    for name in (CONVOLUTIONS[to], "nets"):
        text = (folder / f"{name}.py").read_text()
        statements += [(node, _text(node, text)) for node in ast.parse(text).body]
    net = _net_of(statements, model)
    statements = [
        (ast.parse(one).body[0], one) if _names(node) == {"NETS"} else (node, text)
        for node, text in statements
        for one in [f'NETS = {{"{model}": {net}}}']
    ]
    needed = _needed(statements, "load")
    imports = _imports(statements, needed)
    rest = [
        text for node, text in statements if not isinstance(node, ast.Import | ast.ImportFrom) and _names(node) & needed
    ]
    head = HEADER.format(
        model=model, version=__version__, inputs=_INPUTS.get(to, "rows, edges' ends and their weights")
    )
    return head + imports + "\n\n\n" + "\n\n\n".join(rest) + "\n"


def _text(node: ast.stmt, text: str) -> str:
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])


def _names(node: ast.stmt) -> set[str]:
    """Names that a statement defines."""
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    name = getattr(node, "name", None)
    return {name} if name else set()


def _needed(statements: list[tuple[ast.stmt, str]], name: str) -> set[str]:
    """The name, with everything that its definition uses, recursively."""
    definitions = {name: node for node, _ in statements if not _is_ours(node) for name in _names(node)}
    needed, todo = set[str](), [name]
    while todo:
        found = todo.pop()
        if found in needed or found not in definitions:
            continue
        needed.add(found)
        todo += [part.id for part in ast.walk(definitions[found]) if isinstance(part, ast.Name)]
    return needed


def _is_ours(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith((OURS, "__future__"))


def _imports(statements: list[tuple[ast.stmt, str]], needed: set[str]) -> str:
    """The import statements, reduced to the names that are needed: Python's own before others'."""
    groups: tuple[set[str], set[str]] = (set(), set())
    for node, _ in statements:
        if isinstance(node, ast.Import | ast.ImportFrom) and not _is_ours(node):
            kept = [alias for alias in node.names if (alias.asname or alias.name).partition(".")[0] in needed]
            if kept:
                made = ast.ImportFrom(node.module, kept, 0) if isinstance(node, ast.ImportFrom) else ast.Import(kept)
                room = (node.module or "") if isinstance(node, ast.ImportFrom) else kept[0].name
                groups[room.partition(".")[0] not in sys.stdlib_module_names].add(ast.unparse(made))
    return "\n\n".join("\n".join(sorted(group, key=lambda line: (line.startswith("from"), line))) for group in groups)


def _net_of(statements: list[tuple[ast.stmt, str]], model: str) -> str:
    """The class in ``NETS``."""
    (table,) = [node for node, _ in statements if isinstance(node, ast.Assign) and _names(node) == {"NETS"}]
    assert isinstance(table.value, ast.Dict)
    found = {
        ast.literal_eval(k): v.id
        for k, v in zip(table.value.keys, table.value.values, strict=True)
        if k is not None and isinstance(v, ast.Name)
    }
    return str(found[model])
