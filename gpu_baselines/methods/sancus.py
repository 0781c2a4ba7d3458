"""SANCUS (Peng et al., VLDB 2022): CAGNET's broadcasts, of which ranks skip some and compute with older rows instead.

1. By default ranks follow the schedule of the authors' code (chenzhao/light-dist-gnn, models/cached_gcn.py): they
   broadcast in every epoch up to number ``fresh``, then in one epoch of ``every``. The code has 50 and 2, and sends the
   features once: ``preaggregate``. (As published the code has its caches switched off: it is CAGNET 1D, like ``every``
   = 1.)
2. With ``skip`` > 0 ranks decide by how much rows change, the paper's adaptive variant. A rank broadcasts if ‖H - H'‖ >
   skip ‖H'‖ (Frobenius), H' being its last broadcast. It also does if rows have changed at all and it has skipped
   ``max_skips`` broadcasts in a row. Before each layer ranks agree on who broadcasts: one flag each, all-reduced
   ("control").
3. Rows are compared, and travel, before dropout: everybody drops the copy that it has by this epoch's mask.
   But dropout in earlier layers changes rows too: MEASURED on cora, 2 ranks, 150 epochs, skip = 0.05 saves 70% of the
   broadcasts without dropout, none with 0.5, where it takes skip = 1 to save 89%. Its authors train without.
4. Backward nothing is skipped: gradients of sums are broadcast in every epoch, as in its authors' code.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gpu_baselines.blocks import Broadcasts, Grid, Way
from gpu_baselines.clock import Clock
from gpu_baselines.methods.cagnet import Cagnet
from siafu.baseline import Baseline


class Sancus(Cagnet):
    def made_carrier(self, grid: Grid, sizes: list[int]) -> Broadcasts:
        return Skipping(grid, sizes, self.run.clock, self.run.device, self.run.baseline)


class Skipping(Broadcasts):
    """Broadcasts that ranks may skip, in a grid without replicas."""

    def __init__(self, grid: Grid, sizes: list[int], clock: Clock, device: torch.device, asked: Baseline):
        """sizes: rows of each block. asked: fresh and every, or skip and max_skips."""
        assert grid.replicas == 1, grid.replicas
        super().__init__(grid, sizes, clock)
        self._device, self._asked = device, asked
        # All mutable state, by layer:
        self._sent: dict[int, Tensor] = {}  # [n, F], our rows as others have them
        self._held: dict[int, Tensor] = {}  # [h', F], others' rows that we need
        self._skips: dict[int, int] = {}  # in a row
        self._epochs: dict[int, int] = {}  # so far
        self._given, self._saved = 0, 0  # our broadcasts so far, and our skipped ones

    def __call__(self, way: Way, layer: int, rows: Tensor, wanted: list[Tensor]) -> Tensor:
        if way == "backward":
            return super().__call__(way, layer, rows, wanted)
        counts = [len(places) for places in wanted]
        held = self._held.setdefault(layer, rows.new_empty(sum(counts), rows.shape[1]))
        for k, (goes, mine) in enumerate(zip(self._who_goes(layer, rows), held.split(counts), strict=True)):
            if goes:
                mine.copy_(self.one(way, k, rows, wanted[k]))
        return held

    def state(self) -> dict[str, Tensor]:
        found = {"sancus.counts": torch.tensor([self._given, self._saved])}
        for layer, sent in self._sent.items():
            found |= {
                f"sancus.{layer}.sent": sent,
                f"sancus.{layer}.held": self._held[layer],
                f"sancus.{layer}.skips": torch.tensor([self._skips[layer], self._epochs[layer]]),
            }
        return found

    def restore(self, state: dict[str, Tensor]) -> None:
        self._given, self._saved = state["sancus.counts"].tolist()
        for layer in {
            int(name.split(".")[1]) for name in state if name.startswith("sancus.") and name.endswith(".sent")
        }:
            self._sent[layer] = state[f"sancus.{layer}.sent"].to(self._device)
            self._held[layer] = state[f"sancus.{layer}.held"].to(self._device)
            self._skips[layer], self._epochs[layer] = state[f"sancus.{layer}.skips"].tolist()

    def facts(self) -> dict[str, object]:
        """Facts of all ranks. Collective."""
        told = self.grid.column.share([self._given, self._saved])
        given, saved = (sum(one[i] for one in told) for i in (0, 1))
        found: dict[str, object] = {"broadcasts": given, "broadcasts_skipped": saved}
        if given and not saved and self.grid.num_blocks > 1:
            found["warnings"] = [f"none of {given} broadcasts was skipped: this is CAGNET 1D; {self._advice()}"]
        return found

    def _advice(self) -> str:
        asked = self._asked
        if asked.skip:
            return f"raise baseline.skip = {asked.skip:g}, or train without dropout"
        if asked.every == 1:
            return "baseline.every = 1 skips nothing"
        return f"it skips after epoch {asked.fresh + 1}: train for longer, or lower baseline.fresh = {asked.fresh}"

    def _who_goes(self, layer: int, rows: Tensor) -> list[bool]:
        """Whether each rank broadcasts its rows of this layer."""
        if not self._asked.skip:
            return [self._recorded(layer, rows, self._scheduled(layer))] * self.grid.num_blocks
        flags = torch.zeros(self.grid.num_blocks, dtype=torch.int32, device=self._device)
        flags[self.grid.block] = self._recorded(layer, rows, self._changed(layer, rows))
        with self._clock("communicate"):
            self.grid.column.all_reduce(flags, "control")
        return [bool(goes) for goes in flags.tolist()]

    def _scheduled(self, layer: int) -> bool:
        late = self._epochs.get(layer, 0) - self._asked.fresh
        return late <= 0 or late % self._asked.every == 0

    def _changed(self, layer: int, rows: Tensor) -> bool:
        sent, asked = self._sent.get(layer), self._asked
        if sent is None:
            return True
        change, norm = float(torch.linalg.norm(rows - sent)), float(torch.linalg.norm(sent))
        return not change <= asked.skip * norm or (change > 0 and self._skips[layer] >= asked.max_skips)

    def _recorded(self, layer: int, rows: Tensor, goes: bool) -> bool:
        """Records whether our rows are broadcast, and keeps them if so; returns ``goes``."""
        self._epochs[layer] = self._epochs.get(layer, 0) + 1
        if goes:
            self._sent[layer], self._skips[layer] = rows.clone(), 0
            self._given += 1
        else:
            self._skips[layer] += 1
            self._saved += 1
        return goes
