"""Edge lists of tests that are not about features: they say that theirs are random."""

from typing import Any

SAID = "features=random:32"


def said(source: str) -> str:
    """The source with random features, unless it names features."""
    return source if "features=" in source else f"{source}{'&' if '?' in source else '?'}{SAID}"


def for_edges(function: Any) -> Any:
    """The function of an edge list's name, called with ``said`` of it."""
    return lambda source, *args, **options: function(said(source), *args, **options)
