"""SANCUS (Peng et al., VLDB 2022): CAGNET's broadcasts, of which a rank skips those that would say little that is new.

1. A rank's rows of a layer are due when ‖H - H'‖ > skip ‖H'‖ (Frobenius), H' being what it broadcast last, or when they
   have changed at all and it has skipped ``max_skips`` broadcasts in a row. Everybody else computes with H' meanwhile.
2. Before each layer ranks agree on who broadcasts: one flag each, all-reduced ("control").
3. Rows are compared, and travel, before dropout: everybody drops the copy that it has by this epoch's mask.
   But dropout in earlier layers changes rows too: MEASURED on cora, 2 ranks, 150 epochs, skip = 0.05 saves 70% of the
   broadcasts without dropout, none with 0.5, where it takes skip = 1 to save 89%. Its authors train without.
4. Backward nothing is skipped: gradients of sums are broadcast in every epoch, as in its authors' code, where caches of
   gradients are off. (So, as published, are those of rows; and which ones would be reused is a list of epochs there.)

With skip = 0 rows are skipped only if they have not changed: that is CAGNET 1D.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gpu_baselines.blocks import Broadcasts, Carrier, Grid, Way
from gpu_baselines.clock import Clock
from gpu_baselines.methods.cagnet import Cagnet


class Sancus(Cagnet):
    def made_carrier(self, grid: Grid, sizes: list[int]) -> Carrier:
        run = self.run
        return Skipping(grid, sizes, run.clock, run.device, skip=run.baseline.skip, max_skips=run.baseline.max_skips)


class Skipping:
    """``gpu_baselines.blocks.Carrier`` in a grid without replicas."""

    def __init__(
        self, grid: Grid, sizes: list[int], clock: Clock, device: torch.device, *, skip: float, max_skips: int
    ):
        """sizes: rows of each block."""
        assert grid.replicas == 1, grid.replicas
        self._broadcasts = Broadcasts(grid, sizes, clock)
        self._grid, self._clock, self._device, self._skip, self._max_skips = grid, clock, device, skip, max_skips
        self.kind = self._broadcasts.kind
        # All mutable state, by layer:
        self._sent: dict[int, Tensor] = {}  # [n, F], our rows as others have them
        self._held: dict[int, Tensor] = {}  # [h', F], of others' rows those that we want
        self._skips: dict[int, int] = {}  # in a row
        self._given, self._saved = 0, 0  # our broadcasts so far, and those that we skipped

    def __call__(self, way: Way, layer: int, rows: Tensor, wanted: list[Tensor]) -> Tensor:
        if way == "backward":
            return self._broadcasts(way, layer, rows, wanted)
        counts = [len(places) for places in wanted]
        held = self._held.setdefault(layer, rows.new_empty(sum(counts), rows.shape[1]))
        flags = torch.zeros(self._grid.num_blocks, dtype=torch.int32, device=self._device)
        flags[self._grid.block] = self._goes(layer, rows)
        with self._clock("communicate"):
            self._grid.column.all_reduce(flags, "control")
        for k, (goes, mine) in enumerate(zip(flags.tolist(), held.split(counts), strict=True)):
            if goes:
                mine.copy_(self._broadcasts.one(way, k, rows, wanted[k]))
        return held

    def state(self) -> dict[str, Tensor]:
        found = {"sancus.counts": torch.tensor([self._given, self._saved])}
        for layer, sent in self._sent.items():
            found |= {
                f"sancus.{layer}.sent": sent,
                f"sancus.{layer}.held": self._held[layer],
                f"sancus.{layer}.skips": torch.tensor(self._skips[layer]),
            }
        return found

    def restore(self, state: dict[str, Tensor]) -> None:
        self._given, self._saved = state["sancus.counts"].tolist()
        for layer in {
            int(name.split(".")[1]) for name in state if name.startswith("sancus.") and name.endswith(".sent")
        }:
            self._sent[layer] = state[f"sancus.{layer}.sent"].to(self._device)
            self._held[layer] = state[f"sancus.{layer}.held"].to(self._device)
            self._skips[layer] = int(state[f"sancus.{layer}.skips"])

    def facts(self) -> dict[str, object]:
        """Of all ranks. Collective."""
        told = self._grid.column.share([self._given, self._saved])
        return {"broadcasts": sum(one[0] for one in told), "broadcasts_skipped": sum(one[1] for one in told)}

    def _goes(self, layer: int, rows: Tensor) -> bool:
        """Whether we broadcast our rows of this layer; remembers them if so."""
        sent, goes = self._sent.get(layer), True
        if sent is not None:
            change, norm = float(torch.linalg.norm(rows - sent)), float(torch.linalg.norm(sent))
            goes = not change <= self._skip * norm or (change > 0 and self._skips[layer] >= self._max_skips)
        if goes:
            self._sent[layer], self._skips[layer] = rows.clone(), 0
            self._given += 1
        else:
            self._skips[layer] += 1
            self._saved += 1
        return goes
