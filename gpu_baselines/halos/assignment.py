"""Ranks agree on the widths of each other's rows: AdaQP's assigner (Wan et al., MLSys
2023, section 3.3), without a master.

1. Every rank groups the rows that it sends by their ranges, and tells all ranks its groups.
2. Each stream's problems are solved by one rank, streams in turn; ``gpu_baselines.halos.assigner`` states them.
3. All ranks learn all groups' widths, and every sender tells each receiver the widths of its rows: a byte for a row,
   counted as "widths".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpu_baselines.group import Group
from gpu_baselines.halos import assigner
from gpu_baselines.halos.assigner import Pair
from gpu_baselines.halos.codec import Stream
from gpu_baselines.halos.message_cost import LinkCosts
from gpu_baselines.part import Part
from siafu.baseline import Baseline
from siafu.sparse import Array

Rows = dict[Stream, list[Array]]  # of each stream something for each row, by peer


@dataclass(frozen=True, eq=False)
class Assignment:
    """Data that is the same for every agreement."""

    group: Group
    device: torch.device
    asked: Baseline
    coefficients: list[Array]  # of the rows that each rank wants of ours, as ``squared_coefficients`` gives them

    def __call__(
        self,
        ranges: Mapping[Stream, list[Tensor]],
        columns: Mapping[Stream, int],
        counts: Mapping[Stream, list[int]],
        costs: LinkCosts,
    ) -> tuple[Rows, Rows]:
        """Widths, uint8, of the rows to send and of those to receive. Collective, with the same order of streams on all
        ranks.

        ranges: sums of (max - min)^2 of the rows sent, by peer; columns: of a row;
        counts: of the rows that come, by peer.
        """
        grouped = {stream: self._grouped(stream, ranges[stream], columns[stream]) for stream in ranges}
        told = self.group.share([[(beta.tolist(), values.tolist()) for _, beta, values in grouped[s]] for s in ranges])
        mine = {
            place: self._solved([rank[place] for rank in told], costs)
            for place in range(len(ranges))
            if place % self.group.size == self.group.rank
        }
        chosen = {int(place): widths for rank in self.group.share(mine) for place, widths in rank.items()}
        sent: Rows = {}
        for place, stream in enumerate(ranges):
            to_peers = zip(grouped[stream], chosen[place][self.group.rank], strict=True)
            sent[stream] = [self._by_row(order, widths) for (order, _, _), widths in to_peers]
        return sent, self._told(sent, counts)

    def _grouped(self, stream: Stream, ranges: list[Tensor], columns: int) -> list[tuple[Array, Array, Array]]:
        """Groups of rows for each receiver, as ``assigner.grouped`` returns them."""
        betas = [one.cpu().numpy() * columns / 6 for one in ranges]
        if stream.way == "forward":
            betas = [beta * weight for beta, weight in zip(betas, self.coefficients, strict=True)]
        return [assigner.grouped(beta, columns, self.asked.group_size) for beta in betas]

    def _solved(self, told: list[Any], costs: LinkCosts) -> list[list[list[int]]]:
        """The widths of one stream's groups, by sender and receiver. told: beta and values, also by sender and
        receiver."""
        size = self.group.size
        found: list[list[list[int]]] = [[[] for _ in range(size)] for _ in range(size)]
        for turn in range(1, size):
            ends = [(sender, (sender + turn) % size) for sender in range(size)]
            pairs = [
                Pair(np.array(told[a][b][0], np.float64), np.array(told[a][b][1], np.int64), *costs.of(a, b))
                for a, b in ends
            ]
            widths = assigner.assigned(pairs, self.asked.balance)
            for (sender, receiver), one in zip(ends, widths, strict=True):
                found[sender][receiver] = one.tolist()
        return found

    def _by_row(self, order: Array, widths: list[int]) -> Array:
        rows = np.empty(len(order), np.uint8)
        rows[order] = np.repeat(np.array(widths, np.uint8), self.asked.group_size)[: len(order)]
        return rows

    def _told(self, sent: Rows, counts: Mapping[Stream, list[int]]) -> Rows:
        """The widths of the rows that the others will send."""
        size, streams = self.group.size, list(sent)
        sends = [np.concatenate([np.zeros(0, np.uint8), *(sent[s][peer] for s in streams)]) for peer in range(size)]
        recvs = [
            torch.empty(sum(counts[s][peer] for s in streams), dtype=torch.uint8, device=self.device)
            for peer in range(size)
        ]
        self.group.exchange([torch.from_numpy(one).to(self.device) for one in sends], recvs, "widths")
        came: Rows = {stream: [] for stream in streams}
        for peer, rows in enumerate(recvs):
            for stream, one in zip(streams, rows.split([counts[s][peer] for s in streams]), strict=True):
                came[stream].append(one.cpu().numpy())
        return came


def squared_coefficients(part: Part, group: Group, device: torch.device) -> list[Array]:
    """For the rows that each rank needs of ours, the sums of the squared coefficients with which that rank adds them.
    float64 [k] for each rank. Collective."""
    outer = part.outer
    edges = outer.edges
    indices = np.asarray(edges.indices)
    target = np.repeat(np.arange(outer.num_rows), np.diff(edges.indptr))
    a = np.ones(len(indices)) if edges.weight is None else np.array(edges.weight, np.float64)
    for scale, end in ((outer.target_scale, target), (outer.source_scale, indices)):
        if scale is not None:
            a *= scale.double().cpu().numpy()[end]
    sums = torch.from_numpy(np.bincount(indices, a**2, outer.num_columns)).to(device)
    came = [torch.empty(len(index), dtype=torch.float64, device=device) for index in part.given]
    group.exchange(list(sums.split(part.wanted)), came, "setup")
    return [one.cpu().numpy() for one in came]
