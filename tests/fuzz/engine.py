"""The loop: pick an input, change it, run it, keep it if it took an edge that none before it took."""

from __future__ import annotations

import random
import time
import traceback
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from siafu.errors import GnnError
from tests.fuzz.coverage import Coverage
from tests.fuzz.inputs import Input, size_of, stored
from tests.fuzz.mutations import changed
from tests.fuzz.targets import Target

SECONDS = 1.0  # of the CPU, for one input
ROOT = Path(__file__).parents[2]
CHANGES = (1, 1, 1, 2, 4)  # between an input and the next
MEASURED = 32  # of so many runs one is measured for memory; what is kept is measured too


@dataclass(frozen=True)
class Finding:
    """What an input did that nothing may: ``what`` is one for all inputs that show the same mistake."""

    what: str
    detail: str
    given: Input


@dataclass
class Entry:
    given: Input
    edges: frozenset[int]


@dataclass
class Fuzzer:
    """One target and its corpus. Everything of ``step`` follows from the seed and from what the corpus began with."""

    target: Target
    rng: random.Random
    before_run: Callable[[Input], None] = lambda given: None  # who must know of it, should this process not survive it
    entries: list[Entry] = field(default_factory=list)
    edges: set[int] = field(default_factory=set)
    findings: dict[str, Finding] = field(default_factory=dict)
    executions: int = 0

    def __post_init__(self) -> None:
        self._coverage = Coverage(self.target.modules)

    def begin(self) -> None:
        """With the corpus and the target's own examples; each runs twice, as the first time fills caches."""
        known = [given for _, given in stored(self.target.name)]
        begun = (*self.target.examples(), *known)
        for given in begun:
            self.run(given)
        for given in begun:
            self.try_out(given, example=True)

    def step(self) -> None:
        """One input more."""
        given = self.rng.choice(self.entries if self.rng.random() < 0.5 else self.entries[-20:]).given
        others = [self.rng.choice(self.entries).given for _ in range(2)]
        for _ in range(self.rng.choice(CHANGES)):
            edited = self.target.edited(given, self.rng) if self.rng.random() < self.target.structured else None
            given = edited or changed(given, self.rng, others, self.target.tokens, self.target.repeatable)
        if self.rng.random() < 0.9:
            given = self.target.sealed(given)
        self.try_out(given)

    def try_out(self, given: Input, *, example: bool = False) -> None:
        """Runs it and keeps it if something about it is new. Examples are kept: they
        differ in more than their edges."""
        edges = self.run(given)
        if example or not edges <= self.edges:
            self._measure(given)
            self.entries.append(Entry(given, frozenset(edges)))
            self.edges |= edges
        elif self.executions % MEASURED == 0:
            self._measure(given)

    def run(self, given: Input) -> set[int]:
        self.before_run(given)
        self.executions += 1
        started = time.process_time()
        edges = self._coverage.edges_of(lambda: self._judge(given))
        if time.process_time() - started > SECONDS:  # traced lines are slow: whether the parser is, is seen without
            started = time.process_time()
            self._judge(given)
            if (took := time.process_time() - started) > SECONDS:
                self._found("slow", f"{took:.2f} s of CPU for {size_of(given)} bytes", given)
        return edges

    def _measure(self, given: Input) -> None:
        """Memory at its most, held against what the target allows."""
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            self._judge(given)
            grown = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
        limit = self.target.constant_bytes + self.target.bytes_per_byte * size_of(given)
        if grown > limit:
            self._found("memory", f"{grown} bytes for {size_of(given)} of input, at most {limit}", given)

    def _judge(self, given: Input) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.target.run(given)
        except GnnError as error:
            if "\n" in str(error) or "\r" in str(error):
                what = f"{type(error).__name__} not of one line at {_place(error.__traceback__)}"
                self._found(what, repr(str(error))[:500], given)
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            what = f"{type(error).__name__} at {_place(error.__traceback__)}"
            self._found(what, "".join(traceback.format_exception(error))[-3000:], given)

    def _found(self, what: str, detail: str, given: Input) -> None:
        held = self.findings.get(what)
        if held is None or size_of(given) < size_of(held.given):
            self.findings[what] = Finding(what, detail, given)


def cover(entries: list[Entry]) -> list[Entry]:
    """Few and small ones that together take every edge: the smallest first, then each that still adds one."""
    taken: set[int] = set()
    kept = []
    for entry in sorted(entries, key=lambda entry: (size_of(entry.given), entry.given)):
        if not entry.edges <= taken:
            taken |= entry.edges
            kept.append(entry)
    needed: set[int] = set()
    last = []
    for entry in reversed(kept):  # a large one may make several small ones superfluous
        if not entry.edges <= needed:
            needed |= entry.edges
            last.append(entry)
    return last


def _place(trace: TracebackType | None) -> str:
    """The innermost line of ours."""
    inside = [frame for frame in traceback.extract_tb(trace) if _is_ours(Path(frame.filename))]
    frame = inside[-1] if inside else traceback.extract_tb(trace)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def _is_ours(file: Path) -> bool:
    return file.is_relative_to(ROOT) and not file.is_relative_to(ROOT / ".venv") and "fuzz" not in file.parts
