"""The wire formats of halo rows: ``Codec`` sends them as they are, ``gpu_baselines.halos.quantised`` in 2, 4 or 8
bits.

Both sides of a link know the length of every message beforehand: the settings that decide it are agreed on between
epochs.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from torch import Tensor


class Stream(NamedTuple):
    """Messages of one layer in one direction: rows to halos ("forward"), or gradients
    back to their owners ("backward")."""

    way: Literal["forward", "backward"]
    layer: int

    @property
    def name(self) -> str:
        """The name in checkpoints and results: "forward.2"."""
        return f"{self.way}.{self.layer}"

    @classmethod
    def named(cls, name: str) -> Stream:
        way, _, layer = name.partition(".")
        return cls("forward" if way == "forward" else "backward", int(layer))


class Codec:
    """Sends rows unchanged; other formats override it. Ranks make the same calls in the same order. ``pack`` and
    ``unpack`` run on a rank's main thread.

    With late halos a message is unpacked in a later epoch than it was packed in. So the format of messages may change
    only in ``begin``, and only in epochs for which ``changes`` is true. Messages on their way are unpacked before.
    """

    def changes(self, epoch: int) -> bool:
        """Whether ``begin(epoch)`` changes the format of messages. Equal on all ranks."""
        return False

    def begin(self, epoch: int) -> None:
        """Begins an epoch. May be collective."""

    def pack(self, stream: Stream, peer: int, rows: Tensor) -> Tensor:
        """The message for ``peer`` of rows [k, F] (k may be 0), contiguous; it may be ``rows``."""
        return rows.contiguous()

    def inbox(self, stream: Stream, peer: int, count: int, like: Tensor) -> Tensor:
        """The buffer for a message of ``count`` rows from ``peer``, as wide as ``like`` [*, F] and of its dtype."""
        return like.new_empty(count, like.shape[1])

    def unpack(self, stream: Stream, peer: int, message: Tensor, out: Tensor) -> None:
        """Writes the rows of a message into ``out`` [k, F]; ``message`` may be ``out`` itself."""
        out.copy_(message)

    def end(self) -> None:
        """Ends an epoch, after all layers. May be collective."""

    def state(self) -> dict[str, Tensor]:
        """Tensors that a checkpoint needs to continue with the same bits."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restores the ``state``."""

    def facts(self) -> dict[str, object]:
        """Facts for the result; JSON."""
        return {}
