"""What a user sees while a run trains, and at its end."""

from __future__ import annotations

import ast
import io
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

import siafu
from siafu import progress
from siafu.progress import Cell, Display, Learnt, Thinned, dollars, of_notebook, size, sparkline, summary

SCORES = {split: {"acc": value} for split, value in (("train", 0.9944), ("val", 0.9777), ("test", 0.9878))}


@dataclass
class Status:
    phase: str = "training"
    epoch: int = 0
    loss: float = float("nan")
    evaluation: dict[str, dict[str, float] | None] | None = None
    epoch_s: float = 0.0
    tasks_in_flight: int = 0
    workers: int = 0
    ghost_bytes: int = 0
    eval_ghost_bytes: int = 0
    usd: float = 0.0
    budget_usd: float = 0.0
    notes: tuple[str, ...] = ()


TITLE = "digits, gcn, async s=0, 2 parts, lambda"
LATE = Status("training", 114, 0.0427, SCORES, 0.1324, 124, 16, 123_456_789, 41_000_000, 0.00123, 0.5)


def panel_of(width: int, status: Status) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    display = Display(TITLE, 200, console=console)
    display(status)
    with console.capture() as captured:
        console.print(display._panel())
    return captured.get().splitlines()


def plain(statuses: list[Status]) -> list[str]:
    out = io.StringIO()
    with Display(TITLE, 200, console=Console(file=out, width=40)) as display:
        for status in statuses:
            display(status)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_panel_never_overflows(width):
    for status in (Status("preparing"), LATE):
        lines = panel_of(width, status)
        assert {len(line) for line in lines} == {min(width - 4, 100)}  # room for the terminal's own ^C
        assert len(lines) == 6


def test_a_title_in_brackets_is_shown_as_it_is():
    for force in (True, False):
        out = io.StringIO()
        with Display("edges[old].csv", 200, console=Console(file=out, width=80, force_terminal=force)) as display:
            display(Status("preparing"))
        assert "edges[old].csv" in out.getvalue()


def test_the_panel_shows_what_the_run_does():
    panel = "\n".join(panel_of(100, LATE))
    for words in (
        "training",
        "114/200",
        "ETA",
        "loss 0.0427",
        "train 0.994",
        "val 0.978",
        "loss 0.0427 · val 0.978 (best 0.978 at 114) · train 0.994 · test 0.988",
        "132 ms/epoch · $0.0012 of $0.5",
    ):
        assert words in panel
    assert "124 tasks in flight · 16 Lambdas · 123.5 MB of ghosts/epoch" in panel


@pytest.mark.parametrize("width", [56, 60, 80, 120])
def test_the_panel_leaves_out_whole_words_and_cuts_no_number(width):
    lines = panel_of(width, LATE)[2:5]
    assert not [line for line in lines if "…" in line]
    assert "val 0.978 (best 0.978 at 114)" in lines[0]
    assert ("test 0.988" in lines[0]) == (width >= 80)


def test_plain_lines_name_phases_once_and_end_with_the_last_evaluation(monkeypatch):
    now = iter([0.0, 1.0, 2.0, 3.0, 9.0, 10.0, 10.1, 10.2])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    statuses = [
        Status("preparing"),
        Status("preparing"),
        Status("training"),
        Status("training", 1, 2.5),
        Status("training", 60, 0.5, SCORES, 0.1),
        Status("training", 200, 0.1, SCORES, 0.1),
        Status("saving", 200, 0.1, SCORES, 0.1),
        Status("saving", 200, 0.1, SCORES, 0.1),
    ]
    assert plain(statuses) == [
        "preparing digits, gcn, async s=0, 2 parts, lambda",
        "training",
        "epoch 60/200  loss 0.5000  train 0.994  val 0.978  test 0.988  100 ms/epoch  0 tasks in flight",
        "epoch 200/200  loss 0.1000  train 0.994  val 0.978  test 0.988  100 ms/epoch  0 tasks in flight",
    ]


def test_notes_on_the_graph_are_said_once_before_the_phase():
    statuses = [Status("preparing"), Status("starting", notes=("x.npz: [pos] is left out",)), Status("training")]
    assert plain(statuses)[1:] == ["x.npz: [pos] is left out", "starting", "training"]


def test_quiet_says_nothing(capsys):
    with Display("digits", 200, quiet=True) as display:
        display(LATE)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("nbytes", "words"), [(0, "0 B"), (999, "999 B"), (1234567, "1.2 MB"), (2e15, "2000.0 TB")])
def test_size(nbytes, words):
    assert size(nbytes) == words


def test_the_last_lines_say_time_epochs_scores_and_what_was_billed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = {
        "metric": "accuracy",
        "epochs": 200,
        "train_seconds": 8.31,
        "epoch_seconds_median": 0.0372,
        "kept": {"epoch": 78},
        "scores": SCORES,
        "run_dir": str(tmp_path / "runs" / "one"),
        "lambda": {"invocations": 4, "gb_s": 6.24, "relaunches": 0, "duplicates": 1, "billed_ms": 33280},
        "cost": {"usd": 0.0123456, "counted": "Lambda"},
    }
    lines = [
        "trained     200 epochs in 8.3 s, 37 ms each (median)",
        "best epoch  78: train accuracy 0.9944, validation 0.9777, test 0.9878",
        "Lambda      4 invocations, 6.2 GB-s billed, 0 relaunches, 1 duplicates",
        "cost        $0.0123 (Lambda)",
        "saved in    runs/one",
    ]
    assert summary(result) == lines
    for share, words in (("real", "on the share of a core that AWS gives"), ("free", "on whole cores")):
        here = summary({**result, "lambda_cpu_share": share})
        assert here == [*lines[:2], f"{lines[2]}; {words} (lambda.cpu_share = {share})", *lines[3:]]
    assert summary({**result, "lambda_cpu_share": None}) == lines
    held = {**result, "usage": {"peak_memory_bytes": 2_500_000_000}}
    assert summary(held)[3] == "memory      2.5 GB in the graph server that held the most"
    without = {**result, "lambda": dict.fromkeys(result["lambda"], 0), "run_dir": "/elsewhere", "cost": {"usd": 0.0}}
    assert summary(without) == [*lines[:2], "saved in    /elsewhere"]


def test_what_a_run_computed_with_is_named_where_its_bits_are_not_those_of_every_machine():
    result = {
        "metric": "accuracy",
        "epochs": 1,
        "train_seconds": 1.0,
        "epoch_seconds_median": 0.1,
        "scores": None,
        "kept": None,
        "run_dir": "/elsewhere",
        "lambda": {"invocations": 0},
        "cost": {"usd": 0.0},
        "processors": ["aarch64 neon", "x86_64 avx2"],
        "arithmetic": "as everywhere",
    }
    assert [line.split()[0] for line in summary(result)] == ["trained", "saved"]
    kinds = {"arithmetic": "bfloat16", "processors": ["x86_64 avx2", "x86_64 avx512bf16"]}
    assert summary({**result, **kinds})[1:-1] == [
        (
            "processors  2 kinds (x86_64 avx2, x86_64 avx512bf16): with bfloat16 rows the weights' last bits may "
            "differ from those of a run on one kind"
        )
    ]
    assert len(summary({**result, **kinds, "processors": ["x86_64 avx2"]})) == 2
    kinds = {"arithmetic": "numpy", "processors": ["x86_64 Haswell numpy"]}
    assert summary({**result, **kinds})[1:-1] == [
        (
            "arithmetic  NumPy's on x86_64 Haswell numpy: without compiled kernels the weights' last "
            "bits depend on the processor"
        )
    ]


def test_the_last_lines_say_what_evaluation_costs():
    result = {
        "metric": "accuracy",
        "epochs": 9,
        "train_seconds": 1.0,
        "epoch_seconds_median": 0.1,
        "best_epoch": 8,
        "scores": SCORES,
        "kept": {"epoch": 8},
        "run_dir": "/elsewhere",
        "lambda": {"invocations": 0},
        "cost": {"usd": 0.0},
        "lanes": {
            "train": {"tensor_tasks": 240, "ghost_bytes": 2000, "compute_s": 0.88},
            "eval": {"tensor_tasks": 160, "ghost_bytes": 1000, "compute_s": 0.12},
        },
    }
    said = "evaluation  40% of tensor tasks, 12% of computing time, 33% of ghost bytes"
    assert summary(result)[2] == said
    for lane in result["lanes"].values():
        lane["ghost_bytes"] = 0  # of one part
    assert summary(result)[2] == said.removesuffix(", 33% of ghost bytes")
    result["lanes"]["train"] = {"tensor_tasks": 0, "ghost_bytes": 0, "compute_s": 0.0}  # --epochs 0
    assert "evaluation" not in "".join(summary(result))


def test_a_split_that_is_never_scored_is_not_mentioned():
    """Training edges, where edges are predicted."""
    result = {
        "metric": "mrr",
        "epochs": 9,
        "train_seconds": 1.0,
        "epoch_seconds_median": 0.1,
        "kept": {"epoch": 8},
        "scores": {**SCORES, "train": None},
        "run_dir": "/elsewhere",
        "lambda": {"invocations": 0},
        "cost": {"usd": 0.0},
    }
    assert summary(result)[1] == "best epoch  8: validation MRR 0.9777, test 0.9878"


@pytest.mark.parametrize(
    ("without", "line"),
    [
        ("val", "last epoch  9: train R² 0.9944, test 0.9878 (no validation vertices: the last epoch is kept)"),
        ("test", "best epoch  9: train R² 0.9944, validation 0.9777, no test vertices"),
    ],
)
def test_a_split_without_vertices_has_words_and_no_number(without: str, line: str):
    result = {
        "metric": "r2",
        "epochs": 9,
        "train_seconds": 1.0,
        "epoch_seconds_median": 0.1,
        "kept": {"epoch": 9, "why": "no validation vertices: the last epoch is kept"},
        "scores": {**SCORES, without: None},
        "run_dir": "/elsewhere",
        "lambda": {"invocations": 0},
        "cost": {"usd": 0.0},
    }
    assert summary(result)[1] == line


def test_a_run_that_was_stopped_before_its_first_evaluation_has_no_best_epoch():
    result = {
        "metric": "accuracy",
        "epochs": 0,
        "train_seconds": 0.0,
        "epoch_seconds_median": 0.0,
        "best_epoch": None,
        "scores": None,
        "kept": None,
        "run_dir": "/elsewhere",
        "lambda": {"invocations": 0},
        "cost": {"usd": 0.0},
    }
    assert summary(result) == ["trained     0 epochs in 0.0 s, 0 ms each (median)", "saved in    /elsewhere"]


@pytest.mark.parametrize(
    ("usd", "words"),
    [(0, "$0.00"), (12.5, "$12.50"), (0.0123, "$0.0123"), (0.0000123, "$0.000012"), (6.5e-7, "$0.00000065")],
)
def test_dollars(usd, words):
    assert dollars(usd) == words


# --- notebooks --------------------------------------------------------------------------------------------------------


class Output:
    """``IPython.display``, and the handle that it gives: what stands below the cell, one text after the other."""

    def __init__(self):
        self.texts = []

    def display(self, data, *, raw, display_id):
        assert raw
        assert display_id
        self.update(data, raw=raw)
        return self

    def update(self, data, *, raw):
        assert raw
        self.texts.append(data["text/plain"])


def test_a_cell_changes_one_line_now_and_then_and_for_each_phase():
    output, now = Output(), [0.0]
    cell = Cell(200, output.display, lambda: now[0])
    early = replace(LATE, phase="loading", epoch=0, loss=float("nan"))
    for seconds, status in ((0.0, early), (0.1, LATE), (0.2, LATE), (0.5, LATE)):
        now[0] = seconds
        cell(status)
    assert output.texts[:2] == ["starting", "loading"]
    cell.end()
    assert output.texts[4].removeprefix("done") == output.texts[3].removeprefix(LATE.phase)
    assert output.texts[2].startswith(f"{LATE.phase}  epoch {LATE.epoch}/200  loss {LATE.loss:.4f}  train ")


@pytest.mark.parametrize(
    ("shell", "found"), [(None, False), (SimpleNamespace(), False), (SimpleNamespace(kernel=1), True)]
)
def test_progress_goes_below_the_cell_in_the_kernel_of_a_notebook_alone(shell, found, monkeypatch):
    output = Output()
    assert of_notebook(200) is None or "IPython" in sys.modules
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", output)
    assert isinstance(of_notebook(200), Cell) is found
    assert output.texts == ["starting"] * found


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([], ""),
        ([1.0], "█"),
        ([0.0, float("nan"), 1.0], "▁×█"),
        ([float("inf")], "×"),
        ([0.0] * 30 + [1.0] * 10, "▁" * 15 + "█" * 5),
    ],
)
def test_a_curve_is_no_longer_than_its_width(values: list[float], line: str) -> None:
    assert sparkline(values, 0.0, 1.0, 20) == line


def test_the_panel_says_the_best_so_far_and_draws_how_it_went():
    shown = io.StringIO()
    console = Console(file=shown, width=80, force_terminal=True, color_system=None)
    display = Display("cora", 100, console=console)
    for epoch, acc in enumerate((0.5, 0.75, 0.6), 1):
        scores = {"train": None, "val": {"acc": acc}, "test": None}
        display(Status(phase="training", epoch=epoch, loss=1.0, evaluation=scores))
        display(Status(phase="training", epoch=epoch, loss=1.0, evaluation=scores))
    console.print(display._panel())
    assert "loss 1.0000 · val 0.600 (best 0.750 at 2)" in shown.getvalue()
    assert "validation ▁█▄" in shown.getvalue()


def test_without_validation_the_loss_is_drawn():
    learnt = Learnt()
    assert (learnt.curve(20), learnt.beside_best(["loss 2.0000"])) == ("", ["loss 2.0000"])
    for epoch in range(1, 10_000):
        learnt.take(Status(epoch=epoch, loss=10_000.0 - epoch))
    assert learnt.curve(8) == "loss █▇▆▅▄▃▂▁"
    assert len(learnt._losses.values) <= Thinned.MOST


def test_no_console_reads_markup_in_names_of_users():
    """A graph, run or class may be called "[red]": what is styled is a ``Text``."""
    found = []
    for room in ("siafu", "graph_data", "run_coordinator", "cost_planner", "infra"):
        for file in sorted((Path(siafu.__file__).parents[1] / room).rglob("*.py")):
            text = file.read_text()
            nodes = list(ast.walk(ast.parse(text))) if "Console(" in text else []
            asked = {id(one.value) for one in nodes if isinstance(one, ast.Attribute) and one.attr == "is_terminal"}
            found += [
                f"{file}:{one.lineno}"
                for one in nodes
                if isinstance(one, ast.Call) and ast.unparse(one.func) == "Console" and id(one) not in asked
                if "markup=False" not in ast.unparse(one)
            ]
    assert found == []
