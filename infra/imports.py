"""Reads the imports of our files from their syntax trees, so that a package holds what its code needs, and no more.

Nothing is imported to find out. ``tests/test_imports.py`` enforces the rules of the tree with the same reading.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: What a Lambda starts with; everything that these import, or find by name in ``MODELS``, is shipped with them.
LAMBDA_ROOTS = ("lambda_funcs/handler.py", "lambda_funcs/worker.py", "siafu/models/*.py")


def files(*patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern))


def imports(path: Path, *, checking: bool = False) -> set[str]:
    """Dotted names of the modules that a file imports anywhere in it; ``checking``: also those for type checkers.

    ``from a import b`` gives ``a.b`` if that is a module of ours, else ``a``.
    """
    names = set()
    tree = ast.parse(path.read_text(), str(path))
    for node in _statements(tree, checking):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names |= {
                f"{node.module}.{alias.name}" if source_of(f"{node.module}.{alias.name}") else str(node.module)
                for alias in node.names
            }
    return names - {"__future__"}


def source_of(module: str) -> Path | None:
    """The file of a module of ours."""
    base = ROOT / module.replace(".", "/")
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def shipped_to_lambda() -> set[Path]:
    """All files that run in a Lambda."""
    return needed_by(*LAMBDA_ROOTS)


def needed_by(*roots: str) -> set[Path]:
    """The files that match these patterns, and all our files that they import, recursively; a module adds its packages'
    ``__init__``."""
    found: set[Path] = set()
    waiting = files(*roots)
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for module in imports(path) | {module_of(path)}:
            parts = module.split(".")
            parents = (source_of(".".join(parts[:i])) for i in range(1, len(parts) + 1))
            waiting += [parent for parent in parents if parent]
    return found


def module_of(path: Path) -> str:
    """Dotted name of the module in a file of ours."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _statements(node: ast.AST, checking: bool) -> Iterable[ast.AST]:
    """Statements in a node, at any depth. Expressions import nothing."""
    for_checkers = isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        if checking or not (for_checkers and block == "body"):
            for child in getattr(node, block, ()):
                yield child
                yield from _statements(child, checking)
