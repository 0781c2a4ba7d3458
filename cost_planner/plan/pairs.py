"""How much work it is to predict edges (``siafu.models.link_prediction``): the pairs of a lane, and what their AE does
beside its products. Pure.

1. Training scores its edges and, of the pool of false pairs, one in ``negatives``: each where either end lies. An
   evaluation scores all that are held out, each at one end.
2. A graph thread draws an epoch's false pairs by a hash of each in the pool, and copies the rows of the other ends of
   those that are scored, each once (``graph_server.operators.pairs``).
3. AE is NumPy's, on one thread: passes over the values of all pairs. Only products are shared among threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cost_planner.reach import Links
from siafu.graph import TRAIN_NEGATIVE
from siafu.tasks import Lane
from siafu.views import PAIRS

#: Arrays of a value for each false pair of the pool, read or written, to draw those of an epoch (``Pairs._drawn`` and
#: ``ops.edge_dropout``): ids of both ends 8, the smaller and the larger 6, as unsigned 4, place and key 9, the hash's
#: three shifts, three exclusive ors and two products 23, its 16 bits compared and made a factor 6, and back 3.
DRAWING = 59
#: And for each pair of the pool, to tell which are scored (``Pairs.edge_rows``).
CHOOSING = 14
#: And for each that is scored, to number the rows that they share (``numbered``).
NUMBERING = 8
#: Arrays as wide as pairs' rows that are read or written for the scores, by decoder. dot: own rows and others' 2, inner
#: products 2. mlp: both rows 2, their products by value 3, a product, bias and relu 2 each, and the last layer's
#: product 1.
SCORING = {"dot": 4, "mlp": 12}
#: And for the gradients: scores' gradients times rows 2. mlp: and back through both layers.
LEARNING = {"dot": 2, "mlp": 18}
#: Arrays of a value for each pair: the loss and its gradient.
OF_LOSS = 26
#: MEASURED: NumPy's sum over the pairs of a vertex begins, for each column, in the time in which it adds so many
#: values: 3 to 100 pairs, 64 columns.
SUM_BEGINS = 10


@dataclass(frozen=True)
class Scored:
    """Of a vertex, on average, in one lane."""

    pool: float  # pairs that stand at it
    false: float  # of these, false ones that training draws from
    pairs: float  # that are scored

    @classmethod
    def of(cls, links: Links, degree: float, lane: Lane, negatives: int) -> Scored:
        """degree: edges of all types into a vertex."""
        pool = degree * sum(links.edges[kind] for kind in PAIRS[lane])
        false = degree * links.edges[TRAIN_NEGATIVE] if lane is Lane.TRAIN else 0.0
        return cls(pool, false, pool - false + false / negatives)

    def rows_read(self, vertices: float, table_rows: float) -> float:
        """Rows of other ends that the pairs of so many vertices have: each once, however many pairs it is in
        (``Pairs._others``). Assumed: other ends lie anywhere in the table."""
        return -table_rows * math.expm1(-self.pairs * vertices / max(1.0, table_rows))

    def cut_s(self, values: float, read_ns: float, element_ns: float) -> float:
        """Of a graph thread, for a vertex: rule 2. values: that are copied. read_ns, element_ns: of ``Speeds``."""
        passes = DRAWING * self.false + CHOOSING * self.pool * bool(self.false) + NUMBERING * self.pairs
        return (passes * read_ns + values * element_ns) * 1e-9

    def values_s(self, width: int, decoder: str, learns: bool, read_ns: float, element_ns: float) -> float:
        """Of a core, for a vertex: AE but for its products."""
        passes = SCORING[decoder] * self.pairs * width
        if not learns:
            return passes * read_ns * 1e-9
        passes += self.pairs * (LEARNING[decoder] * width + OF_LOSS)
        sums = (self.pairs + SUM_BEGINS) * width
        return (passes * read_ns + sums * element_ns) * 1e-9
