"""Results as tables: pandas for a DataFrame, and HTML that a notebook shows."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from siafu.errors import ConfigError

#: That a notebook shows.
MOST_ROWS = 20


def pandas() -> Any:
    """The module. Raises: ConfigError without it."""
    try:
        return import_module("pandas")
    except ImportError:
        raise ConfigError("to_pandas needs pandas: pip install pandas") from None


def frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> Any:
    """A ``pandas.DataFrame``. A list of one value becomes the value (widths of one layer: 32), a longer list text
    ("64,32"), so that rows can be grouped and plotted by them. Raises: ConfigError without pandas."""
    plain = [{name: _plain(value) for name, value in row.items()} for row in rows]
    return pandas().DataFrame(plain, columns=columns)


def _plain(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return value
    return value[0] if len(value) == 1 else ",".join(map(str, value))


def as_html(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "") -> str:
    """A table of the first rows below its title. Every word is escaped; None is an empty cell, a list its words."""
    table = [_row("th", head), *(_row("td", row) for row in rows[:MOST_ROWS])]
    note = f"{len(rows) - MOST_ROWS:,} more rows" if len(rows) > MOST_ROWS else note
    said = [f"<p>{html.escape(note)}</p>"] if note else []
    return "\n".join([f"<p>{html.escape(title)}</p>", "<table>", *table, "</table>", *said])


def _row(tag: str, words: Sequence[Any]) -> str:
    cells = (
        "" if word is None else " ".join(map(str, word)) if isinstance(word, list) else str(word) for word in words
    )
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"
