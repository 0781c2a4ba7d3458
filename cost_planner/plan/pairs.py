"""Counts the work of link prediction (``siafu.models.link_prediction``): the pairs of a lane, and what their
ApplyEdge does beside its products. Pure.

1. Training scores its edges and one in ``negatives`` pairs of the pool of false pairs, each at both ends. An evaluation
   scores all held-out pairs, each at one end.
2. A server draws an epoch's false pairs by a hash of each pair in the pool, numbers the rows of the scored pairs' other
   ends, and copies each once (``graph_server.operators.pairs``).
3. Pairs' rows are read in place (``siafu.kernels.pairs``), as in a gather, for each inner product and each sum of
   gradients. The MLP makes arrays of all pairs' values.
4. A graph thread ranks the held-out pairs that it has scored, and the coordinator judges all of them
   (``siafu.ranking``).

The work for a pair that does not depend on its width is counted in the time of an attention score
(``Speeds.score_ns``): both are a few operations in a core's vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cost_planner.plan.speeds import Speeds
from cost_planner.reach import Links
from siafu.graph import TRAIN_NEGATIVE
from siafu.tasks import Lane
from siafu.views import PAIRS

#: MEASURED on two cores of an Intel Xeon, half a million pairs of 64 values. In attention scores, for each pair: to
#: draw from the pool of false ones; to number the rows of those that are scored; their loss and its gradient; the rank
#: of a held-out one, and what it is worth among all.
DRAWING, NUMBERING, LOSS, RANKING, JUDGING = 1.3, 1.2, 2.0, 28.0, 26.0
#: In values that a gather reads, for each value of a pair: its inner product, and the sum of its gradient.
SCORING, SUMMING = 2.0, 1.7
#: Passes over pairs' values that the MLP makes, besides its products': to score, and to learn. Some pairs at a time, so
#: that they stay in a cache: each is a value that is read.
MLP_SCORES, MLP_LEARNS = 2, 4


@dataclass(frozen=True)
class Scored:
    """Pairs of a vertex, on average, in one lane."""

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
        """Distinct rows of other ends in the pairs of ``vertices`` vertices (``Pairs._others``). Assumed: other ends
        lie anywhere in the table."""
        return -table_rows * math.expm1(-self.pairs * vertices / max(1.0, table_rows))

    def drawn_ns(self, score_ns: float) -> float:
        """Nanoseconds per vertex to draw false pairs, for the server's threads together."""
        return DRAWING * self.false * score_ns

    def numbered_ns(self, score_ns: float) -> float:
        """Nanoseconds per vertex to number its pairs' rows, for one graph thread."""
        return NUMBERING * self.pairs * score_ns

    def ranked_ns(self, score_ns: float) -> float:
        """Nanoseconds per vertex to rank its pairs in an evaluation, for one graph thread."""
        return RANKING * self.pairs * score_ns

    def judged_ns(self, score_ns: float) -> float:
        """Nanoseconds per vertex to judge its pairs, for the coordinator."""
        return JUDGING * self.pairs * score_ns

    def scored_ns(self, width: int, decoder: str, learns: bool, speeds: Speeds) -> float:
        """Nanoseconds per vertex of a core: AE without its products."""
        if decoder == "dot":
            passes = SCORING * speeds.value_ns
        else:
            passes = (MLP_SCORES + MLP_LEARNS * learns) * speeds.read_ns
        if learns:
            passes += SUMMING * speeds.value_ns
        return self.pairs * (passes * width + LOSS * speeds.score_ns * learns)
