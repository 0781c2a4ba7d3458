"""Which edges between lines of some files a call takes.

``sys.settrace`` sees every line of the files that are watched and none of the others: a function of another file costs
one call. An edge is a pair of lines, one after the other among those watched, whatever lies between them.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any

LINES = 1 << 14  # of a file, at most


class Coverage:
    """Of the modules named; call ``edges_of``."""

    def __init__(self, modules: Iterable[str]):
        self._bases = {_file_of(module): (i + 1) * LINES for i, module in enumerate(modules)}
        # All mutable state:
        self._base_of: dict[CodeType, int] = {}  # 0: not watched
        self._edges: set[int] = set()
        self._last = 0

    def edges_of(self, call: Callable[[], object]) -> set[int]:
        """The edges that a call takes, whether it returns or raises; it must not raise anything."""
        self._edges, self._last = set(), 0
        sys.settrace(self._enter)
        try:
            call()
        finally:
            sys.settrace(None)
        return self._edges

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        base = self._base_of.get(code)
        if base is None:
            base = self._base_of[code] = self._bases.get(code.co_filename, 0)
        return self._line if base else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            here = self._base_of[frame.f_code] + frame.f_lineno
            self._edges.add(self._last << 32 | here)
            self._last = here
        return self._line


def _file_of(module: str) -> str:
    found = importlib.util.find_spec(module)
    assert found, module
    assert found.origin, module
    return found.origin
