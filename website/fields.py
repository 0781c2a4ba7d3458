"""Comments behind the fields of a dataclass, as their docstrings on the page of the Python API."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Fields(griffe.Extension):
    """An extension of mkdocstrings' reader (mkdocs.yml)."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **more: Any) -> None:
        """griffe's event: an attribute was read."""
        of_class = attr.parent is not None and attr.parent.is_class
        if of_class and attr.docstring is None and (found := re.search(r"  # (.+)$", attr.source)):
            attr.docstring = griffe.Docstring(found[1].strip(), parent=attr)
