"""Shows a run's progress on stderr: a live panel on a terminal, plain lines elsewhere, last lines at the end."""

from __future__ import annotations

import contextlib
import importlib
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from siafu import peak_memory
from siafu.errors import counted
from siafu.metrics import SPLITS, TITLES
from siafu.run_files import BySplit, Lanes, Result, Split

#: Plain lines of a phase are at least so far apart, but for the last.
PLAIN_EVERY_S = 5.0
MAX_WIDTH = 100


class Status(Protocol):
    """Where a run stands (``run_coordinator.actions.Status``)."""

    phase: str
    epoch: int
    loss: float
    evaluation: BySplit | None
    epoch_s: float
    workers: int
    ghost_bytes: int  # of the last epoch's training
    eval_ghost_bytes: int  # of all evaluations so far, by epoch
    usd: float  # what the run has cost so far, at most
    budget_usd: float  # 0: none
    notes: tuple[str, ...]  # on the graph, to be said once

    @property
    def tasks_in_flight(self) -> int | None:
        """None: nothing here is cut into tasks."""


class Display:
    """Use in a ``with`` block; call it with every status."""

    def __init__(self, title: str, epochs: int, *, quiet: bool = False, console: Console | None = None):
        self._console = console or Console(stderr=True, quiet=quiet, markup=False)
        self._title, self._epochs = title, epochs
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(compact=True),
            console=self._console,
            expand=True,
        )
        self._task = self._bar.add_task("preparing", total=epochs)
        # All mutable state:
        self._status: Status | None = None
        self._learnt = Learnt()
        self._said_at = -math.inf
        self._said: tuple[str, int] = ("", 0)  # phase and epoch of the last plain line
        live = self._console.is_terminal and not self._console.quiet
        self._live = Live(console=self._console, transient=True, get_renderable=self._panel) if live else None

    def __call__(self, status: Status) -> None:
        self._status = status
        self._learnt.take(status)
        with contextlib.suppress(OSError):
            for note in status.notes:
                self._console.print(note, highlight=False, soft_wrap=True, markup=False)
        if self._live is not None:
            self._bar.update(self._task, description=status.phase, completed=status.epoch)
        else:
            with contextlib.suppress(OSError):  # nobody reads, or a log's disk is full: no reason to stop
                self._say(status, time.monotonic())

    def _say(self, status: Status, now: float) -> None:
        """A plain line for a new phase, for an epoch if some time has passed, and for the last evaluation."""
        phase, epoch = self._said
        ended = phase != status.phase == "saving"
        if status.phase != phase and not status.epoch:
            text = status.phase if phase else f"{status.phase} {self._title}"
            self._console.print(text, highlight=False, soft_wrap=True, markup=False)
        elif (epoch < status.epoch < self._epochs and now - self._said_at >= PLAIN_EVERY_S) or ended:
            words = [f"epoch {status.epoch}/{self._epochs}", *_scores(status), *_traffic(status)]
            self._console.print("  ".join(words), highlight=False, soft_wrap=True)
        else:
            return
        self._said_at, self._said = now, (status.phase, status.epoch)

    def _panel(self) -> Panel:
        status, learnt = self._status, self._learnt
        width = min(MAX_WIDTH, self._console.width - 4)  # the terminal's own ^C must not begin a new line
        words: list[list[str]] = [[], [], []]
        if status is not None:
            words = [learnt.beside_best(_scores(status)), [learnt.curve(width - 24)], _traffic(status)]
        lines = [fitting(line, width - 4) for line in words]
        body = Group(self._bar, *(Text(line or " ", no_wrap=True, overflow="ellipsis") for line in lines))
        title = Text(f"siafu · {self._title}")
        return Panel(body, title=title, title_align="left", border_style="cyan", width=width)

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()


class Learnt:
    """How a run's validation score went, or its loss where nothing is validated."""

    def __init__(self) -> None:
        # All mutable state:
        self._seen: BySplit | None = None
        self._epoch = 0  # of the last loss
        self._scores, self._losses = Thinned(), Thinned()
        self._best = (-math.inf, 0)  # score, epoch

    def take(self, status: Status) -> None:
        evaluation = status.evaluation
        if evaluation is not None and evaluation != self._seen and (val := evaluation["val"]):
            self._seen = evaluation
            self._scores.add(val["acc"])
            self._best = max(self._best, (val["acc"], -status.epoch))  # the earlier of equals
        if status.epoch > self._epoch:
            self._epoch = status.epoch
            self._losses.add(status.loss)

    def beside_best(self, scores: Sequence[str]) -> list[str]:
        """``scores``, as ``_scores`` words them, with validation behind the loss and its best beside it."""
        best = f" (best {self._best[0]:.3f} at {-self._best[1]})"
        val = [score + best for score in scores if score.startswith("val ") and self._scores.values]
        others = [score for score in scores if not (val and score.startswith("val "))]
        return [*others[:1], *val, *others[1:]]

    def curve(self, width: int) -> str:
        """ "validation ▁▂▄▆▇█"; "" as long as there are no two values."""
        name, values = ("validation", self._scores.values) if self._scores.values else ("loss", self._losses.values)
        finite = [value for value in values if math.isfinite(value)]
        return f"{name} {sparkline(values, min(finite), max(finite), width)}" if len(finite) > 1 else ""


class Thinned:
    """At most ``MOST`` of the values that were added, at equal distances."""

    MOST = 2048

    def __init__(self) -> None:
        # All mutable state:
        self.values: list[float] = []
        self._count, self._every = 0, 1

    def add(self, value: float) -> None:
        if self._count % self._every == 0:
            self.values.append(value)
        self._count += 1
        if len(self.values) > self.MOST:
            self.values, self._every = self.values[::2], 2 * self._every


class Cell:
    """Progress below the cell of a notebook: one line that changes, below the notes on the
    graph. Call it with every status."""

    EVERY_S = 0.3  # between two changes: each is a message to the browser

    def __init__(
        self, epochs: int, show: Callable[..., Any], clock: Callable[[], float] = time.monotonic, name: str = ""
    ):
        """show: ``IPython.display.display``; name: of the run, where there are several."""
        self._epochs, self._clock, self._name = epochs, clock, name
        self._handle = show({"text/plain": "starting"}, raw=True, display_id=True)
        # All mutable state:
        self._said_at = -math.inf
        self._phase = ""
        self._facts: list[str] = []
        self._notes: tuple[str, ...] = ()

    def __call__(self, status: Status) -> None:
        now = self._clock()
        if status.phase == self._phase and now - self._said_at < self.EVERY_S:
            return
        self._said_at, self._phase = now, status.phase
        where = [f"epoch {status.epoch}/{self._epochs}"] if status.epoch else []
        self._facts = [*where, *_scores(status), *_traffic(status)]
        self._notes = status.notes or self._notes
        self._show(status.phase)

    def end(self) -> None:
        self._show("done" if not self._name else "ended")  # of several, one may have failed

    def __enter__(self) -> Cell:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _show(self, phase: str) -> None:
        line = "  ".join([*filter(None, [self._name]), phase, *self._facts])
        self._handle.update({"text/plain": "\n".join([*self._notes, line])}, raw=True)


def of_notebook(epochs: int, name: str = "") -> Cell | None:
    """Where progress goes in the kernel of a notebook; None anywhere else, also in IPython on a terminal."""
    ipython = sys.modules.get("IPython")  # there is no notebook without it
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    return Cell(epochs, importlib.import_module("IPython.display").display, name=name)


def fitting(words: Sequence[str], width: int) -> str:
    """The first of them that fit a line: half a number would be read as another one."""
    line = ""
    for word in filter(None, words):
        longer = f"{line} · {word}" if line else word
        if line and len(longer) > width:
            break
        line = longer
    return line


def _scores(status: Status) -> list[str]:
    if math.isnan(status.loss):
        return []
    accuracies = [
        f"{split} {found['acc']:.3f}" for split in SPLITS if status.evaluation and (found := status.evaluation[split])
    ]
    return [f"loss {status.loss:.4f}", *accuracies]


def _traffic(status: Status) -> list[str]:
    if math.isnan(status.loss):
        return []
    words = [f"{1000 * status.epoch_s:.0f} ms/epoch", *_money(status)]
    words += [] if status.tasks_in_flight is None else [counted(status.tasks_in_flight, "task") + " in flight"]
    words += [counted(status.workers, "Lambda")] if status.workers else []
    words += [f"{size(status.ghost_bytes)} of ghosts/epoch"] if status.ghost_bytes else []
    evaluation = [f"evaluation {size(status.eval_ghost_bytes)}"] if status.eval_ghost_bytes else []
    return [*words, *evaluation]


def _money(status: Status) -> list[str]:
    budget = f" of ${status.budget_usd:g}" if status.budget_usd else ""
    return [f"{dollars(status.usd)}{budget}"] if status.usd or budget else []


def dollars(usd: float) -> str:
    """12.5 -> "$12.50", 0.0123 -> "$0.0123", 0.0000123 -> "$0.000012": cents, and two digits that are not zero."""
    return f"${usd:.{2 if usd >= 1 or not usd else 4 if usd >= 0.01 else 1 - math.floor(math.log10(usd))}f}"


def duration(seconds: float) -> str:
    """0.0123 -> "12 ms", 75 -> "75 s", 500 -> "8.3 min", 20000 -> "5.6 h"."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.2g} ms"
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 6000 else f"{seconds / 3600:.3g} h"


BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], low: float, high: float, width: int) -> str:
    """A line of blocks: each is the mean of its share of the values; "×" where none of these is finite."""
    count = max(0, min(width, len(values)))
    blocks = []
    for place in range(count):
        share = values[place * len(values) // count : (place + 1) * len(values) // count]
        finite = [value for value in share if math.isfinite(value)]
        if not finite:
            blocks.append("×")
            continue
        height = (sum(finite) / len(finite) - low) / (high - low) if high > low else 0.5
        blocks.append(BLOCKS[min(len(BLOCKS) - 1, int(height * len(BLOCKS)))])
    return "".join(blocks)


def size(nbytes: float) -> str:
    """1234567 -> "1.2 MB"."""
    for unit in ("B", "KB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"


def scored(scores: BySplit, title: str) -> str:
    """Of the splits that were scored: "train accuracy 0.9000, validation 0.8000, no test vertices"."""
    names: dict[Split, str] = {"train": "train", "val": "validation", "test": "test"}
    found = [f"{name} {one['acc']:.4f}" for split, name in names.items() if (one := scores[split])]
    if found:
        found[0] = found[0].replace(" ", f" {title} ")
    return ", ".join(found if scores["test"] else [*found, "no test vertices"])


def written(score: float | None, digits: int = 4) -> str:
    """A score, "–" if nothing was scored."""
    return "–" if score is None else f"{score:.{digits}f}"


#: lambda.cpu_share -> where environments that are not on AWS computed.
OF_CPU = {"real": "on the share of a core that AWS gives", "free": "on whole cores"}


def share_of_evaluation(lanes: Lanes | None) -> str:
    """Its share of what training and evaluation took; "" where nothing was trained, or nobody counts it."""
    if not lanes or not lanes["train"]["tensor_tasks"]:
        return ""
    pairs = {
        "tensor tasks": (lanes["eval"]["tensor_tasks"], lanes["train"]["tensor_tasks"]),
        "computing time": (lanes["eval"]["compute_s"], lanes["train"]["compute_s"]),
        "ghost bytes": (lanes["eval"]["ghost_bytes"], lanes["train"]["ghost_bytes"]),
    }
    return ", ".join(f"{one / (one + other):.0%} of {name}" for name, (one, other) in pairs.items() if one + other)


def summary(result: Result) -> list[str]:
    """The last lines of a run. Baselines have no Lambdas, and no cost where nobody says what they run on."""
    score = TITLES[result["metric"]]
    best, kept, usage, cost = result["scores"], result["kept"], result.get("lambda"), result["cost"]
    lines = [
        f"trained     {counted(result['epochs'], 'epoch')} in {result['train_seconds']:.1f} s, "
        f"{1000 * result['epoch_seconds_median']:.0f} ms each (median)",
    ]
    if best and kept:  # else a limit has stopped the run before anything was evaluated
        which = "best epoch" if best["val"] else "last epoch"
        why = "" if best["val"] else f" ({kept['why']})"
        lines.append(f"{which}  {kept['epoch']}: {scored(best, score)}{why}")
    if made := result.get("features"):
        lines.append(f"features    {made}: the source has none, random ones are in their place")
    if shares := share_of_evaluation(result.get("lanes")):
        lines.append(f"evaluation  {shares}")
    if skipped := result.get("skipped_steps"):
        lines.append(f"skipped     {counted(skipped, 'step')} with NaN or infinity: see metrics.jsonl")
    kinds = result.get("processors", ())
    if result.get("arithmetic") == "numpy":
        lines.append(
            f"arithmetic  NumPy's on {', '.join(kinds)}: without compiled kernels the weights' last "
            "bits depend on the processor"
        )
    elif result.get("arithmetic") == "bfloat16" and len(kinds) > 1:
        lines.append(
            f"processors  {len(kinds)} kinds ({', '.join(kinds)}): with bfloat16 rows the weights' last bits may "
            "differ from those of a run on one kind"
        )
    if usage and usage["invocations"]:
        lines.append(
            f"Lambda      {usage['invocations']:.0f} invocations, {usage['gb_s']:.1f} GB-s billed, "
            f"{usage['relaunches']:.0f} relaunches, {usage['duplicates']:.0f} duplicates"
        )
        if share := result.get("lambda_cpu_share"):
            lines[-1] += f"; {OF_CPU[share]} (lambda.cpu_share = {share})"
    if held := result.get("usage", {}).get(peak_memory.NAME):
        lines.append(f"memory      {size(held)} in the graph server that held the most")
    if cost and cost["usd"]:
        lines.append(f"cost        {dollars(cost['usd'])} ({cost['counted']})")
    return [*lines, f"saved in    {from_here(Path(result['run_dir']))}"]


def from_here(path: Path) -> Path:
    """Relative to the working folder where it lies in it."""
    try:
        return path.relative_to(Path.cwd())
    except (ValueError, OSError):  # elsewhere; or the working folder was deleted meanwhile
        return path
