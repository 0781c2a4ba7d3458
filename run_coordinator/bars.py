"""Progress of runs that train side by side: a bar for each, below one that counts the finished runs."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

from run_coordinator.actions import Status
from run_coordinator.repeat import Trial

#: Of a trial's name: the bar, the counts and the score need the rest of a narrow terminal.
SHARE_OF_NAME = 0.4


class Bars:
    """Use in a ``with`` block; ``shown`` is a ``repeat.Watch``. Shows nothing where stderr is no terminal."""

    def __init__(self, num_runs: int, *, quiet: bool = False, console: Console | None = None):
        console = console or Console(stderr=True, markup=False)
        width = int(SHARE_OF_NAME * console.width)
        self._progress = Progress(
            TextColumn(
                "{task.description}",
                markup=False,
                table_column=Column(no_wrap=True, overflow="ellipsis", max_width=width),
            ),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[said]}", table_column=Column(no_wrap=True)),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            expand=True,
            disable=quiet or not console.is_terminal,
        )
        # All mutable state:
        self._all = self._progress.add_task("all runs", total=num_runs, said="")

    @contextlib.contextmanager
    def shown(self, trial: Trial) -> Iterator[Callable[[Status], None]]:
        """Shows a trial's bar while the block runs; yields the function that takes every status."""
        name = re.sub(r"\b[a-z_]+\.(?=[a-z_]+=)", "", trial.name)  # "lr=0.01" for "train.lr=0.01"
        bar = self._progress.add_task(name, total=trial.config.train.epochs, said="starting")
        try:
            yield lambda status: self._progress.update(bar, completed=status.epoch, said=_said(status))
        finally:
            self._progress.remove_task(bar)

    def count(self) -> None:
        """Counts one more finished run."""
        self._progress.advance(self._all)

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def _said(status: Status) -> str:
    """The newest score, or the phase of a run without a score."""
    if status.evaluation and (val := status.evaluation["val"]):
        return f"val {val['acc']:.3f}"
    return status.phase if math.isnan(status.loss) else f"loss {status.loss:.3f}"
