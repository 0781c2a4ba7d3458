"""``siafu.Predictions``: a model's output for every vertex, as arrays and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graph_data.sources.arrow import arrow
from run_coordinator import tables
from run_coordinator.predict.files import Block, Sheet, in_arrow, leading
from siafu.sparse import Array

SHOWN_ROWS, SHOWN_COLUMNS = 5, 12  # of the table in a notebook


@dataclass(frozen=True, repr=False)
class Predictions:
    """Arrays in the order of the graph's vertices. ``to_pandas`` and ``to_arrow`` make a table of them, with the
    columns of the CSV file that ``siafu predict`` writes: id, class, true, split, and one for each value."""

    ids: Array  # [N] what the source calls them
    values: Array  # [N, C] probabilities or logits; numbers of a regression; the embedding of a layer
    classes: Array | None  # int64 [N]; bool [N, C] where a vertex may have several; None: nothing is classified
    result: Mapping[str, Any]  # what ``siafu predict --json`` prints
    true: Array | None = None  # labels, as ``classes``, -1 where unknown; float of a regression; None: there are none
    split: Array | None = None  # uint8 [N]: 0 nothing, 1 train, 2 validation, 3 test; None: no vertex is in any
    class_names: tuple[str, ...] = ()  # of classes 0, 1, ...; (): they are called by their numbers
    _sheet: Sheet = field(default=Sheet("embedding", 0))
    _ids: Any = None  # an Arrow array, where ids are no integers

    @classmethod
    def of(cls, sheet: Sheet, blocks: Sequence[Block], result: Mapping[str, Any]) -> Predictions:
        """All blocks in one object."""

        def joined(key: str) -> Array | None:
            parts = [getattr(block, key) for block in blocks]
            return None if parts[0] is None else np.concatenate(parts)

        first = blocks[0].ids
        named = None if isinstance(first, np.ndarray) else arrow().concat_arrays([block.ids for block in blocks])
        ids = np.concatenate([np.asarray(block.ids) for block in blocks])
        values, classes = joined("values"), joined("decided") if sheet.classifies else None
        assert values is not None
        return cls(ids, values, classes, result, joined("true"), joined("split"), sheet.names, sheet, named)

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table``, which polars and DuckDB take too. Raises: ConfigError without pyarrow."""
        return arrow().table(in_arrow(self._sheet, self._block()) | self._columns())

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame``. Raises: ConfigError without pandas."""
        pandas = tables.pandas()
        head = leading(self._sheet, self._block())
        if "true" in head and self._sheet.target == "classes" and not self.class_names:
            head["true"] = pandas.array(head["true"], dtype="Int64")  # integers, of which some are missing
        return pandas.DataFrame({**head, **self._columns()})

    def _columns(self) -> dict[str, Array]:
        names = self._sheet.columns(self.values.shape[1])
        return {name: np.ascontiguousarray(self.values[:, i]) for i, name in enumerate(names)}

    def _block(self, rows: slice = slice(None)) -> Block:
        decided = np.empty(0, np.int64) if self.classes is None else self.classes[rows]
        true, split = (None if array is None else array[rows] for array in (self.true, self.split))
        return Block((self.ids if self._ids is None else self._ids)[rows], self.values[rows], decided, true, split)

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        scores = [f"{split} {found['acc']:.4f}" for split, found in (self.result["scores"] or {}).items() if found]
        said = [f"{len(self):,} vertices", f"{self.values.shape[1]} columns of {self._sheet.kind}", *scores]
        return f"Predictions({', '.join(said)})"

    def _repr_html_(self) -> str:
        """The first rows, as a notebook shows them."""
        block = self._block(slice(SHOWN_ROWS))
        head = leading(self._sheet, block)
        names = self._sheet.columns(self.values.shape[1])
        shown = names[: max(1, SHOWN_COLUMNS - len(head))]
        rows = [
            [*words, *(f"{value:.4g}" for value in values[: len(shown)])]
            for words, values in zip(zip(*head.values(), strict=True), block.values, strict=True)
        ]
        left = [f"{len(self) - len(rows):,} more rows"] if len(rows) < len(self) else []
        left += [f"{len(names) - len(shown):,} more columns"] if len(shown) < len(names) else []
        return tables.as_html(repr(self), [*head, *shown], rows, " and ".join(left))
