"""Halo rows and gradients in 2, 4 or 8 bits: AdaQP (Wan et al., MLSys 2023), as a ``Codec`` of any halo.

scheme     fixed      every row has ``bits``
           uniform    every row has a width of its own, drawn anew every ``period`` epochs (section 5.3)
           adaptive   8 bits in the first ``warmup`` epochs, as published ``period``; after them, and every ``period``
                      epochs from there, ``gpu_baselines.halos.assignment`` chooses from what rows have ranged over
feedback   what quantising lost of a row is added to the row that goes the same way next (error feedback: Seide et al.,
           Interspeech 2014)

Gradients come as sums over a halo row's edges, which their owner adds as they are: their coefficient is
1, where the paper sends gradients of vertices and sums there. GAT's coefficients change with its
weights: its edges count as GCN's do.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gpu_baselines import kernels
from gpu_baselines.halos import message_cost
from gpu_baselines.halos.assignment import Assignment, squared_coefficients
from gpu_baselines.halos.codec import Codec, Stream
from gpu_baselines.halos.message_cost import LinkCosts
from gpu_baselines.halos.quantise import LIMIT, WIDTHS, Layout, message_key
from gpu_baselines.part import Part
from gpu_baselines.run import Run
from siafu.errors import GnnError
from siafu.sparse import Array

Side = Literal["sent", "came"]


@dataclass
class Widths:
    """Bits of one stream's rows, by peer: uint8 [k] each."""

    sent: list[Array]
    came: list[Array]
    ranges: list[Tensor]  # float64 [k], sums of (max - min)^2 of the rows sent, by peer
    columns: int = 0  # of a row, once there was one
    packings: dict[tuple[Side, int], kernels.Packing] = field(default_factory=dict)  # made when first used


class Quantised(Codec):
    """A codec of quantised rows. All ranks make theirs at the same time: with scheme adaptive they measure links, and
    exchange coefficients."""

    def __init__(self, run: Run, part: Part):
        self._run, self._asked, self._part = run, run.baseline, part
        self._epoch = 0
        self._streams: dict[Stream, Widths] = {}
        self._residuals: dict[tuple[Stream, int], Tensor] = {}  # float32 [k, F]
        self._assignments, self._assign_s = 0, 0.0
        if self._asked.scheme == "adaptive":
            self._costs = message_cost.measured(run.group, run.device, run.clock)
            coefficients = squared_coefficients(part, run.group, run.device)
            self._assignment = Assignment(run.group, run.device, run.baseline, coefficients)

    # --- Codec --------------------------------------------------------------------------------------------------------

    def changes(self, epoch: int) -> bool:
        asked = self._asked
        first = (asked.scheme == "adaptive" and asked.warmup) or asked.period
        return asked.scheme in ("uniform", "adaptive") and epoch >= first and (epoch - first) % asked.period == 0

    def begin(self, epoch: int) -> None:
        changed, self._epoch = self.changes(epoch), epoch
        if not changed:
            return
        if self._asked.scheme == "adaptive":
            begin = time.perf_counter()
            with self._run.clock("quantise"):
                self._assign()
            self._assign_s += time.perf_counter() - begin
        else:
            self._streams = {stream: self._first(stream, widths.columns) for stream, widths in self._streams.items()}

    def pack(self, stream: Stream, peer: int, rows: Tensor) -> Tensor:
        widths = self._of(stream)
        widths.columns = rows.shape[1]
        if not rows.numel():
            return rows.new_empty(0, dtype=torch.uint8)
        packing, lost = self._packing(stream, peer, "sent"), self._residuals.get((stream, peer))
        real = rows.to(torch.float32) if lost is None else rows + lost.to(rows.dtype)
        real = real.to(torch.float32).contiguous()
        seed, rank = self._run.spec.seed, self._run.group.rank
        try:
            message = packing.pack(real, message_key(seed, self._epoch, _number(stream), rank, peer))
        except ValueError:
            raise self._unsendable(stream, peer) from None
        if self._asked.feedback:
            came = torch.empty_like(real)
            packing.unpack(message, came)
            self._residuals[stream, peer] = real - came
        if self._asked.scheme == "adaptive":
            widths.ranges[peer] += squared_ranges(message, packing.layout)
        return message

    def inbox(self, stream: Stream, peer: int, count: int, like: Tensor) -> Tensor:
        nbytes = self._packing(stream, peer, "came").layout.nbytes(like.shape[1]) if like.shape[1] else 0
        return like.new_empty(nbytes, dtype=torch.uint8)

    def unpack(self, stream: Stream, peer: int, message: Tensor, out: Tensor) -> None:
        if out.dtype == torch.float32 and out.is_contiguous() and out.numel():
            self._packing(stream, peer, "came").unpack(message, out)
        elif out.numel():
            rows = out.new_empty(out.shape, dtype=torch.float32)
            self._packing(stream, peer, "came").unpack(message, rows)
            out.copy_(rows)

    def end(self) -> None:
        for stream, widths in self._streams.items():
            for (side, peer), packing in widths.packings.items():
                if side == "sent":
                    try:
                        packing.check()
                    except ValueError:
                        raise self._unsendable(stream, peer) from None

    def _unsendable(self, stream: Stream, peer: int) -> GnnError:
        return GnnError(
            f"epoch {self._epoch}, layer {stream.layer}, {stream.way}: a row for rank {peer} has a value that is "
            f"no number or is beyond +-{LIMIT:.3g}, it cannot be sent in bits; a smaller learning rate may help"
        )

    def facts(self) -> dict[str, object]:
        """Facts for the result. sent_rows_by_bits: of rank 0, in the last epoch. link_us: time per message, without
        that of its bytes."""
        counts = {stream.name: np.concatenate(widths.sent) for stream, widths in self._streams.items()}
        found: dict[str, object] = {
            "sent_rows_by_bits": {
                name: {str(bits): int(np.sum(rows == bits)) for bits in np.unique(rows).tolist()}
                for name, rows in counts.items()
            }
        }
        if self._asked.scheme == "adaptive":
            found |= {
                "assignments": self._assignments,
                "assign_seconds": self._assign_s,
                "links_alike": self._costs.are_alike,
                "link_us_per_kb": (self._costs.theta * 8e9).round(3).tolist(),
                "link_us": (self._costs.gamma * 1e6).round(1).tolist(),
            }
        return found

    # --- widths -------------------------------------------------------------------------------------------------------

    def _assign(self) -> None:
        streams = {s: self._streams[s] for s in sorted(self._streams)}
        sent, came = self._assignment(
            {stream: widths.ranges for stream, widths in streams.items()},
            {stream: widths.columns for stream, widths in streams.items()},
            {stream: self._counts(stream, "came") for stream in streams},
            self._costs,
        )
        for stream, widths in streams.items():
            self._streams[stream] = self._with(sent[stream], came[stream], widths.columns)
        self._assignments += 1

    def _of(self, stream: Stream) -> Widths:
        if stream not in self._streams:
            self._streams[stream] = self._first(stream, 0)
        return self._streams[stream]

    def _first(self, stream: Stream, columns: int) -> Widths:
        """Widths that need no agreement: both sides can compute them."""
        rank = self._run.group.rank
        sent = [self._drawn(stream, rank, peer, k) for peer, k in enumerate(self._counts(stream, "sent"))]
        came = [self._drawn(stream, peer, rank, k) for peer, k in enumerate(self._counts(stream, "came"))]
        return self._with(sent, came, columns)

    def _with(self, sent: list[Array], came: list[Array], columns: int) -> Widths:
        nothing = [torch.zeros(len(rows), dtype=torch.float64, device=self._run.device) for rows in sent]
        return Widths(sent, came, nothing, columns)

    def _counts(self, stream: Stream, side: Side) -> list[int]:
        """Number of rows by peer."""
        forward = (stream.way == "forward") == (side == "sent")
        return [len(index) for index in self._part.given] if forward else self._part.wanted

    def _drawn(self, stream: Stream, sender: int, receiver: int, count: int) -> Array:
        """Widths of rows without an agreement, uint8 [count]."""
        asked = self._asked
        if asked.scheme != "uniform":
            return np.full(count, asked.bits if asked.scheme == "fixed" else 8, np.uint8)
        seed = [self._run.spec.seed, self._epoch // asked.period, _number(stream), sender, receiver, 3]
        return np.random.default_rng(seed).choice(np.array(WIDTHS, np.uint8), count)

    def _packing(self, stream: Stream, peer: int, side: Side) -> kernels.Packing:
        widths = self._of(stream)
        if (side, peer) not in widths.packings:
            layout = Layout((widths.sent if side == "sent" else widths.came)[peer])
            widths.packings[side, peer] = kernels.packing(layout, self._run.device, self._run.threads)
        return widths.packings[side, peer]

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        found = {"quantised.progress": torch.tensor(self._assignments)}
        for stream, widths in self._streams.items():
            name = f"quantised.rows.{stream.name}"
            found[f"{name}.sent"] = torch.from_numpy(np.concatenate(widths.sent))
            found[f"{name}.came"] = torch.from_numpy(np.concatenate(widths.came))
            found[f"{name}.ranges"] = torch.cat(widths.ranges)
            found[f"{name}.columns"] = torch.tensor(widths.columns)
        for (stream, peer), rows in self._residuals.items():
            found[f"quantised.lost.{stream.name}.{peer}"] = rows.clone()
        if self._asked.scheme == "adaptive":
            found["quantised.costs"] = torch.from_numpy(np.stack([self._costs.theta, self._costs.gamma]))
        return found

    def restore(self, state: dict[str, Tensor]) -> None:
        self._assignments = int(state["quantised.progress"])
        if self._asked.scheme == "adaptive":
            self._costs = LinkCosts(*state["quantised.costs"].numpy())
        for name, value in state.items():
            kind, way, layer, *rest = [*name.removeprefix("quantised.").split("."), "", ""]
            if not name.startswith("quantised.") or not layer:
                continue
            stream = Stream.named(f"{way}.{layer}")
            if kind == "lost":
                self._residuals[stream, int(rest[0])] = value.to(self._run.device)
            elif rest[0] == "sent":
                self._streams[stream] = self._restored(stream, state)

    def _restored(self, stream: Stream, state: dict[str, Tensor]) -> Widths:
        def rows(what: str, side: Side) -> list[Tensor]:
            return list(state[f"quantised.rows.{stream.name}.{what}"].split(self._counts(stream, side)))

        columns = int(state[f"quantised.rows.{stream.name}.columns"])
        widths = self._with(
            [r.numpy() for r in rows("sent", "sent")], [r.numpy() for r in rows("came", "came")], columns
        )
        widths.ranges = [one.to(self._run.device) for one in rows("ranges", "sent")]
        return widths


def squared_ranges(message: Tensor, layout: Layout) -> Tensor:
    """(max - min)^2 of each row of a message, from the steps that it contains: float64 [k]."""
    S = message[: layout.first_code].view(torch.bfloat16)[1::2].double()
    found = torch.empty_like(S)
    for bits, index, first in layout.groups:
        found[torch.from_numpy(index).to(S.device)] = (S[first : first + len(index)] * ((1 << bits) - 1)).square()
    return found


def _number(stream: Stream) -> int:
    return 2 * stream.layer + (stream.way == "backward")
