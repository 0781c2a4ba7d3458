"""Totals of what a graph server's Lambdas did and cost, by name: for metrics.jsonl and the bill. Pure."""

from __future__ import annotations

from lambda_funcs.invocation import Invocation
from siafu.wire import TaskResult


class LambdaUsage:
    """The totals of one graph server's invocations. ``memory_mb``: of an environment."""

    def __init__(self, memory_mb: int):
        self.memory_mb = memory_mb
        # All mutable state:
        self._totals: dict[str, float] = {
            "invocations": 0,
            "billed_ms": 0,
            "init_ms": 0,
            "cold_starts": 0,
            "refused": 0,
            "tasks": 0,
            "compute_s": 0.0,
            "lost_workers": 0,
            "failures": 0,
            "ignored": 0,
            "bytes_in": 0,
        }

    @property
    def totals(self) -> dict[str, float]:
        return {**self._totals, "gb_s": self._totals["billed_ms"] / 1000 * self.memory_mb / 1024}

    def invoked(self, number: int) -> None:
        self._totals["invocations"] += number

    def ended(self, invocation: Invocation, *, refused: bool) -> None:
        """Counts an invocation that ended. A refused one is not a paid request: it is counted by the service's reason
        instead."""
        self._totals["billed_ms"] += invocation.billed_ms
        if invocation.init_ms:
            self._totals["init_ms"] += invocation.init_ms
            self._totals["cold_starts"] += 1
        if refused:
            self._totals["invocations"] -= 1
            self._totals["refused"] += 1
            name = f"refused_{_word(invocation.reason) or _word(invocation.error or '')}"
            self._totals[name] = self._totals.get(name, 0) + 1

    def lost(self, is_so: bool) -> None:
        self._totals["lost_workers"] += is_so

    def done(self, result: TaskResult) -> None:
        self._totals["tasks"] += 1
        self._totals["compute_s"] += result.compute_s
        self._totals["bytes_in"] += self.nbytes(result)

    @staticmethod
    def nbytes(result: TaskResult) -> int:
        return sum(rows.nbytes for rows in result.rows.values())

    def failed(self, is_new: bool) -> None:
        self._totals["failures"] += is_new

    def ignored(self, is_so: bool) -> None:
        self._totals["ignored"] += is_so


def _word(text: str) -> str:
    """Returns the text if it is a single name, "" if it is a sentence."""
    return text if text.isidentifier() else ""
