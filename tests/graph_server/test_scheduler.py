"""Schedules, written as tables: a line per interval, a column per tick, in each cell the step that the interval runs.

Every step takes one tick unless the test says otherwise; a dot is a tick of waiting; ``|`` opens the second epoch.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from graph_server.scheduler import Begin, Crossing, Opened, Published, Scheduler, StepDone
from siafu.models import ModelSpec, build
from siafu.sparse import Array
from siafu.tasks import Kind, Lane, Program, Step, TaskId

GCN = build(ModelSpec("gcn", 3, 2, 1, narrow=False)).program(Lane.TRAIN)  # GA0 AV0 SC0 GA1 AV1 SC1' GA1' AV0' WU0
SC, GA, SC_B, GA_B, WU = 2, 3, 5, 6, 8  # where its steps stand

#: Graph attention, one layer after another: the edge steps AE and AE' gather published rows as GA and GA' do.
GAT = Program(
    (
        Step(Kind.AV, 0, ("H0",), ("Q0",)),
        Step(Kind.SC, 0, ("Q0",), publishes="Q0"),
        Step(Kind.AE, 0, ("Q0",), ("E0",), gathers="Q0"),
        Step(Kind.GA, 0, ("E0",), ("H1",), gathers="Q0"),
        Step(Kind.AV, 1, ("H1",), ("dH1",), fused=True),
        Step(Kind.SC_B, 0, ("dH1",), publishes="dH1"),
        Step(Kind.GA_B, 0, ("E0",), ("dQ0", "dE0"), gathers="dH1"),
        Step(Kind.AE_B, 0, ("dE0",), ("ds0",), gathers="dH1"),
        Step(Kind.AV_B, 0, ("dQ0", "ds0")),
        Step(Kind.WU, 0),
    )
)


# --- how the tables are made ------------------------------------------------------------------------------------------


def crossing(into: Sequence[Sequence[int]], first: int = 0) -> Crossing:
    """``into[i][j]``: edges that reach local interval i from interval j of the graph."""
    edges = np.array(into, np.int64)  # [local, all]
    for i in range(len(edges)):
        edges[i, first + i] = 0
    reached = {j: np.flatnonzero(column) for j, column in enumerate(edges.T) if column.any()}
    return Crossing(reached, {j: edges[i, j] for j, i in reached.items()}, edges.sum(1))


def everyone(n: int) -> list[list[int]]:
    return [[1] * n] * n


def stale_edges(core: Scheduler, task: TaskId) -> tuple[int, int]:
    """(stale, all) edges from other intervals that the gather would read now."""
    scatter = core.program.waits_for[task.pc]
    assert scatter is not None
    total, fresh = int(core._crossing_of(scatter).totals[task.interval]), core._fresh.get((task.epoch, scatter))
    return total - (0 if fresh is None else int(fresh[task.interval])), total


def scheduler(into: Sequence[Sequence[int]], epochs: int = 2, program: Program = GCN, **options: Any) -> Scheduler:
    edges = crossing(into)
    intervals = range(len(into))
    return Scheduler(program, Lane.TRAIN, intervals, range(epochs), forward=edges, backward=edges, **options)


class Server:
    """Runs what the scheduler says may run: as a graph server would, with as many threads as there are intervals."""

    def __init__(self, core: Scheduler, staleness: int = 0):
        self.core, self.staleness = core, staleness
        self.running: list[TaskId] = core.handle(Opened(staleness, 0))
        self.done: list[TaskId] = []

    def finish(self, task: TaskId) -> None:
        self.running.remove(task)
        self.done.append(task)
        if self.core.program[task.pc].publishes:
            self.running += self.core.handle(Published(task.epoch, task.pc, task.interval))
        slowest = self.core.slowest
        self.running += self.core.handle(StepDone(task))
        if self.core.slowest > slowest:
            self.running += self.core.handle(Opened(self.core.slowest + self.staleness, self.core.slowest))


def table(server: Server, ticks: int, duration: Callable[[TaskId], int] = lambda task: 1) -> str:
    """What every interval does in each tick."""
    since: dict[TaskId, int] = {}
    lines: dict[int, list[str]] = {interval: [] for interval in server.core._turn}
    for tick in range(ticks):
        cells = dict.fromkeys(lines, ".")
        for task in server.running:
            since.setdefault(task, tick)
            starts_epoch = task.pc == 0 and task.epoch > 0 and since[task] == tick
            cells[task.interval] = ("|" if starts_epoch else "") + server.core.program[task.pc].name
        for interval, cell in cells.items():
            lines[interval].append(cell)
        for task in [t for t in server.running if tick + 1 - since[t] >= duration(t)]:
            server.finish(task)
    return "\n".join(f"{i}: " + " ".join(f"{cell:5}" for cell in cells).rstrip() for i, cells in lines.items())


def same(actual: str, expected: str) -> None:
    squeeze = ["\n".join(" ".join(line.split()) for line in text.strip().splitlines()) for text in (actual, expected)]
    assert squeeze[0] == squeeze[1], f"\n{actual}"


def slow(interval: int, pc: int, ticks: int, epoch: int = 0) -> Callable[[TaskId], int]:
    return lambda task: ticks if (task.epoch, task.interval, task.pc) == (epoch, interval, pc) else 1


def at_random(server: Server, seed: int) -> None:
    """Finishes running steps in a random order until nothing runs."""
    rng = random.Random(seed)
    while server.running:
        server.finish(rng.choice(server.running))


# --- rule 1 -----------------------------------------------------------------------------------------------------------


def test_a_lone_interval_runs_its_program_in_order():
    server = Server(scheduler([[0]]))
    same(table(server, 18), "0: GA0 AV0 SC0 GA1 AV1 SC'1 GA'1 AV'0 WU0 |GA0 AV0 SC0 GA1 AV1 SC'1 GA'1 AV'0 WU0")
    assert server.core.finished


def test_an_interval_runs_one_step_at_a_time():
    server = Server(scheduler(everyone(4), freshness=0.0))
    rng = random.Random(1)
    while server.running:
        assert len({task.interval for task in server.running}) == len(server.running)
        server.finish(rng.choice(server.running))


# --- rule 2 -----------------------------------------------------------------------------------------------------------


def test_nothing_runs_before_the_first_epoch_is_opened():
    core = scheduler(everyone(2))
    assert core.handle(Published(0, SC, 1)) == []
    assert core.handle(Opened(0, 0)) == [TaskId(Lane.TRAIN, 0, 0, 0), TaskId(Lane.TRAIN, 0, 1, 0)]


def test_async_with_staleness_0_waits_for_the_slowest_at_the_end_of_an_epoch():
    same(
        table(Server(scheduler(everyone(2), freshness=0.0)), 18, slow(1, 1, 6)),
        """
        0: GA0 AV0 SC0 GA1 AV1 SC'1 GA'1 AV'0 WU0 .   .    .    .    .   |GA0 AV0 SC0 GA1
        1: GA0 AV0 AV0 AV0 AV0 AV0  AV0  SC0  GA1 AV1 SC'1 GA'1 AV'0 WU0 |GA0 AV0 SC0 GA1
        """,
    )


@pytest.mark.parametrize(
    ("staleness", "expected"),
    [
        (0, "GA0 AV0 SC0 GA1 AV1 SC'1 GA'1 AV'0 WU0" + 22 * " ."),
        (1, "GA0 AV0 SC0 GA1 AV1 SC'1 GA'1 AV'0 WU0 |GA0 AV0 SC0 GA1 AV1 SC'1 GA'1 AV'0 WU0" + 13 * " ."),
        (2, "GA0 AV0 SC0 GA1 AV1 SC'1 GA'1 AV'0 WU0" + 2 * " |GA0 AV0 SC0 GA1 AV1 SC'1 GA'1 AV'0 WU0" + 4 * " ."),
    ],
)
def test_an_interval_waits_when_s_epochs_ahead(staleness: int, expected: str):
    #  interval 1 is in AV0 of epoch 0 all the time
    lines = table(Server(scheduler(everyone(2), 4, freshness=0.0), staleness), 31, slow(1, 1, 99)).splitlines()
    same(lines[0], f"0: {expected}")


def test_an_epoch_that_was_opened_stays_open():
    core = scheduler([[0]], 3)
    core.handle(Opened(1, 1))
    assert core.handle(Opened(0, 0)) == []
    server = Server(core)
    server.running = [TaskId(Lane.TRAIN, 0, 0, 0)]
    server.staleness = -9  # opens nothing more
    at_random(server, 0)
    assert server.done[-1] == TaskId(Lane.TRAIN, 1, 0, WU)


def test_no_more_than_max_ahead_intervals_enter_an_epoch_after_the_slowest():
    #  interval 0 is in AV0 of epoch 0 all the time; of the other three, two may be in epoch 1 or 2
    server = Server(scheduler(everyone(4), 4, freshness=0.0, max_ahead=2), 2)
    lines = table(server, 31, slow(0, 1, 99)).splitlines()
    epoch = "GA0 AV0 SC0 GA1 AV1 SC'1 GA'1 AV'0 WU0"
    same(lines[1], f"1: {epoch} |{epoch} |{epoch}" + 4 * " .")
    same(lines[2], f"2: {epoch} |{epoch} |{epoch}" + 4 * " .")
    same(lines[3], f"3: {epoch}" + 22 * " .")


def test_those_ahead_are_counted_until_the_slowest_has_reached_their_epoch():
    server = Server(scheduler(everyone(3), 6, freshness=0.0, max_ahead=1), 2)
    rng = random.Random(5)
    while server.running:
        ahead = {i for i in range(3) if server.core.position(i) > (server.core.slowest, WU)}
        entered = {t.interval for t in server.running if t.epoch > server.core.slowest}
        assert len(entered) <= 1, (entered, ahead)
        server.finish(rng.choice(server.running))
    assert server.core.finished


# --- rule 3 -----------------------------------------------------------------------------------------------------------


def test_pipe_gathers_when_every_neighbour_has_scattered():
    same(
        table(Server(scheduler(everyone(3), 1)), 11, slow(1, 1, 3)),
        """
        0: GA0 AV0 SC0 .   .   GA1 AV1 SC'1 GA'1 AV'0 WU0
        1: GA0 AV0 AV0 AV0 SC0 GA1 AV1 SC'1 GA'1 AV'0 WU0
        2: GA0 AV0 SC0 .   .   GA1 AV1 SC'1 GA'1 AV'0 WU0
        """,
    )


def test_pipe_waits_for_nobody_but_neighbours():
    #  rows go 0 -> 1 -> 2: interval 1 waits for the slow 0, and 2 for 1 alone, which has scattered long ago
    same(
        table(Server(scheduler([[0, 0, 0], [1, 0, 0], [0, 1, 0]], 1)), 11, slow(0, 1, 3)),
        """
        0: GA0 AV0 AV0 AV0 SC0 GA1  AV1 SC'1 GA'1 AV'0 WU0
        1: GA0 AV0 SC0 .   .   GA1  AV1 SC'1 GA'1 AV'0 WU0
        2: GA0 AV0 SC0 GA1 AV1 SC'1 .   .    GA'1 AV'0 WU0
        """,
    )


def test_backward_waits_along_the_edges_out():
    #  forward 0 -> 1; so backward 1 -> 0
    core = Scheduler(
        GCN, Lane.TRAIN, [0, 1], [0], forward=crossing([[0, 0], [1, 0]]), backward=crossing([[0, 1], [0, 0]])
    )
    same(
        table(Server(core), 12, slow(1, 4, 3)),
        """
        0: GA0 AV0 SC0 GA1 AV1 SC'1 .   .    GA'1 AV'0 WU0 .
        1: GA0 AV0 SC0 GA1 AV1 AV1  AV1 SC'1 GA'1 AV'0 WU0 .
        """,
    )


def test_with_freshness_a_half_one_of_two_equal_neighbours_is_enough():
    #  AV0 takes 1, 2 and 6 ticks: 0 gathers when 1 has scattered, 1 when 0 has, and 2 waits for nobody any more
    ticks = {(1, 1): 2, (2, 1): 6}
    same(
        table(Server(scheduler(everyone(3), 1, freshness=0.5)), 13, lambda t: ticks.get((t.interval, t.pc), 1)),
        """
        0: GA0 AV0 SC0 .   GA1 AV1 SC'1 GA'1 AV'0 WU0  .    .    .
        1: GA0 AV0 AV0 SC0 GA1 AV1 SC'1 GA'1 AV'0 WU0  .    .    .
        2: GA0 AV0 AV0 AV0 AV0 AV0 AV0  SC0  GA1  AV1  SC'1 GA'1 AV'0
        """,
    )


@pytest.mark.parametrize(("freshness", "waits"), [(0.7, False), (0.75, False), (0.76, True), (1.0, True)])
def test_the_share_is_one_of_edges_not_of_intervals(freshness: float, waits: bool):
    #  interval 0 has three edges from 1 and one from 2; 1 has scattered, 2 has not
    core = scheduler([[9, 3, 1], [0, 0, 0], [0, 0, 0]], freshness=freshness)
    core.handle(Opened(0, 0))
    core.handle(Published(0, SC, 1))
    for pc in range(3):
        assert stale_edges(core, TaskId(Lane.TRAIN, 0, 0, GA)) == (1, 4)
        started = core.handle(StepDone(TaskId(Lane.TRAIN, 0, 0, pc)))
    assert (started == []) == waits


def test_in_the_warm_up_epochs_all_edges_must_be_fresh():
    same(
        table(
            Server(scheduler(everyone(2), 2, freshness=0.0, warmup_epochs=1)),
            20,
            lambda t: 3 if (t.interval, t.pc) == (1, 1) else 1,
        ),
        """
        0: GA0 AV0 SC0 .   .   GA1 AV1 SC'1 GA'1 AV'0 WU0 |GA0 AV0 SC0 GA1 AV1 SC'1 GA'1 AV'0 WU0
        1: GA0 AV0 AV0 AV0 SC0 GA1 AV1 SC'1 GA'1 AV'0 WU0 |GA0 AV0 AV0 AV0 SC0 GA1 AV1 SC'1 GA'1
        """,
    )


def test_rows_of_a_peer_count_like_our_own():
    #  interval 2 is of another server; it may have published before we need it, or after
    for early in (True, False):
        core = scheduler([[0, 1, 1], [1, 0, 0]], 1)
        server = Server(core)
        if early:
            assert core.handle(Published(0, SC, 2)) == []
        while server.running:
            server.finish(server.running[0])
        assert core.position(0) == (0, GA_B if early else GA)
        assert core.position(1) == ((1, 0) if early else (0, GA_B))  # backward it needs the rows of interval 0
        if not early:
            assert core.handle(Published(0, SC, 2)) == [TaskId(Lane.TRAIN, 0, 0, GA)]


# --- rule 4 -----------------------------------------------------------------------------------------------------------


def test_no_pipe_keeps_all_intervals_in_the_same_step():
    same(
        table(Server(scheduler(everyone(3), 2, in_step=True)), 14, slow(1, 1, 3)),
        """
        0: GA0 AV0 .   .   SC0 GA1 AV1 SC'1 GA'1 AV'0 WU0 |GA0 AV0 SC0
        1: GA0 AV0 AV0 AV0 SC0 GA1 AV1 SC'1 GA'1 AV'0 WU0 |GA0 AV0 SC0
        2: GA0 AV0 .   .   SC0 GA1 AV1 SC'1 GA'1 AV'0 WU0 |GA0 AV0 SC0
        """,
    )


@pytest.mark.parametrize("seed", range(20))
def test_no_pipe_never_has_two_kinds_of_steps_at_once(seed: int):
    server = Server(scheduler(everyone(4), 3, in_step=True))
    rng = random.Random(seed)
    while server.running:
        assert len({(task.epoch, task.pc) for task in server.running}) == 1
        server.finish(rng.choice(server.running))
    assert server.core.finished


# --- rule 5 -----------------------------------------------------------------------------------------------------------


def test_a_second_report_of_a_step_changes_nothing():
    core = scheduler(everyone(2))
    first, _ = core.handle(Opened(0, 0))
    assert core.handle(StepDone(first)) == [TaskId(Lane.TRAIN, 0, 0, 1)]
    assert core.handle(StepDone(first)) == []
    assert core.position(0) == (0, 1)


def test_a_report_of_a_step_that_does_not_run_changes_nothing():
    core = scheduler(everyone(2))
    core.handle(Opened(0, 0))
    for task in (TaskId(Lane.TRAIN, 0, 0, 4), TaskId(Lane.TRAIN, 1, 0, 0), TaskId(Lane.EVAL, 0, 0, 0)):
        assert not core.is_running(task)
        assert core.handle(StepDone(task)) == []
    assert core.position(0) == (0, 0)


def test_rows_that_arrive_twice_count_once():
    core = scheduler([[0, 1, 1], [0, 0, 0], [0, 0, 0]], freshness=1.0)
    core.handle(Opened(0, 0))
    for _ in range(2):
        core.handle(Published(0, SC, 1))
    assert stale_edges(core, TaskId(Lane.TRAIN, 0, 0, GA)) == (1, 2)


# --- the whole --------------------------------------------------------------------------------------------------------


MODES: dict[str, tuple[int, dict[str, Any]]] = {
    "no-pipe": (0, {"in_step": True}),
    "pipe": (0, {}),
    "async 0": (0, {"freshness": 0.0}),
    "async 1": (1, {"freshness": 0.0, "warmup_epochs": 1}),
    "async 2": (2, {"freshness": 0.5, "max_ahead": 2}),
}


@pytest.mark.parametrize("program", [GCN, GAT], ids=["gcn", "gat"])
@pytest.mark.parametrize("mode", MODES)
def test_in_any_order_every_step_runs_once_and_by_the_rules(mode: str, program: Program):
    staleness, options = MODES[mode]
    for seed in range(15):
        rng = random.Random(seed)
        into = [[rng.choice([0, 0, 1, 3]) for _ in range(5)] for _ in range(5)]
        server = Server(scheduler(into, 4, program, **options), staleness)
        published: set[tuple[int, int, int]] = set()
        while server.running:
            task = rng.choice(server.running)
            assert task.epoch <= min(server.core.position(i)[0] for i in range(5)) + staleness
            scatter = program.waits_for[task.pc]
            if scatter is not None:
                edges = {j: n for j, n in enumerate(into[task.interval]) if n and j != task.interval}
                fresh = sum(n for j, n in edges.items() if (task.epoch, scatter, j) in published)
                share = 1 if task.epoch < options.get("warmup_epochs", 0) else options.get("freshness", 1)
                assert fresh >= share * sum(edges.values())
                # what was fresh when it was started is fresh now; what the scheduler counts is what there is
                assert stale_edges(server.core, task) == (sum(edges.values()) - fresh, sum(edges.values()))
            if program[task.pc].publishes:
                published.add((task.epoch, task.pc, task.interval))
            server.finish(task)
        assert server.core.finished
        assert server.core.slowest == 4
        every = [TaskId(Lane.TRAIN, e, i, pc) for e in range(4) for i in range(5) for pc in range(len(program))]
        assert sorted(server.done) == every


def test_a_model_with_edge_steps_needs_nothing_new():
    #  AE0 and GA0 gather the same rows Q0, AE'0 and GA'0 the same rows dH1: they wait for one Scatter
    same(
        table(Server(scheduler(everyone(2), 1, GAT)), 12, slow(1, 0, 3)),
        """
        0: AV0 SC0 .   .   AE0 GA0 AV1 SC'0 GA'0 AE'0 AV'0 WU0
        1: AV0 AV0 AV0 SC0 AE0 GA0 AV1 SC'0 GA'0 AE'0 AV'0 WU0
        """,
    )


def test_a_lane_may_leave_out_epochs():
    edges = crossing(everyone(2))
    core = Scheduler(GCN, Lane.EVAL, [0, 1], [1, 3, 5], forward=edges, backward=edges)
    assert core.slowest == 1
    assert core.handle(Opened(0, 0)) == []
    server = Server(core)
    server.running = core.handle(Opened(1, 1))
    server.staleness = 2
    at_random(server, 0)
    assert [task.epoch for task in server.done if task.pc == WU and task.interval == 0] == [1, 3, 5]
    assert core.finished
    assert core.position(0) == (6, 0)


def test_intervals_keep_their_global_numbers():
    edges = crossing([[0, 0, 0, 1], [0, 0, 1, 0]], first=2)  # intervals 2 and 3 of four; each gathers from the other
    core = Scheduler(GCN, Lane.TRAIN, [2, 3], [0], forward=edges, backward=edges)
    server = Server(core)
    assert [task.interval for task in server.running] == [2, 3]
    at_random(server, 0)
    assert core.finished


# --- what it costs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_finished_epochs_are_forgotten(mode: str):
    staleness, options = MODES[mode]
    core = scheduler(everyone(4), 60, **options)
    server = Server(core, staleness)
    rng = random.Random(0)
    tables = [name for name, value in vars(core).items() if isinstance(value, (dict, set))]
    assert len(tables) > 8
    peak = 0
    while server.running:
        server.finish(rng.choice(server.running))
        peak = max(peak, *(len(vars(core)[name]) for name in tables))
    assert peak <= 4 * (staleness + 2) * len(GCN)
    assert core.finished
    left = {
        name: len(vars(core)[name]) for name in ("_fresh", "_seen", "_at_gather", "_at_step", "_running", "_at_gate")
    }
    assert set(left.values()) == {0}, left


def calls(action: Callable[[], object]) -> int:
    """Function calls, Python's and C's, that the action makes."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    previous = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(previous)
    return count


def epoch_calls(core: Scheduler, num_intervals: int) -> float:
    """Calls per interval in one epoch in which all intervals keep step with each other."""

    def run() -> None:
        running = core.handle(Opened(0, 0))
        while running:
            following: list[TaskId] = []
            for task in running:
                if core.program[task.pc].publishes:
                    following += core.handle(Published(task.epoch, task.pc, task.interval))
                following += core.handle(StepDone(task))
            running = following

    made = calls(run)
    assert core.finished
    return made / num_intervals


@pytest.mark.parametrize("mode", MODES)
def test_the_cost_of_a_step_does_not_grow_with_the_number_of_intervals(mode: str):
    def ring(n: int) -> Scheduler:
        reach = np.arange(1, 11)  # interval j's rows are gathered by the ten after it
        targets: dict[int, Array] = {j: (j + reach) % n for j in range(n)}
        edges = Crossing(targets, dict.fromkeys(range(n), np.ones(10, np.int64)), np.full(n, 10))
        return Scheduler(GCN, Lane.TRAIN, range(n), [0], forward=edges, backward=edges, **MODES[mode][1])

    assert epoch_calls(ring(2000), 2000) < 1.2 * epoch_calls(ring(200), 200)


def test_where_every_interval_gathers_from_every_other_only_numpy_sees_the_square():
    def complete(n: int) -> Scheduler:
        edges = Crossing(
            dict.fromkeys(range(n), np.arange(n)), dict.fromkeys(range(n), np.ones(n, np.int64)), np.full(n, n)
        )
        return Scheduler(GCN, Lane.TRAIN, range(n), [0], forward=edges, backward=edges)

    assert epoch_calls(complete(800), 800) < 1.2 * epoch_calls(complete(100), 100)


# --- a run that goes on -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_goes_on_begins_with_its_epoch_and_everything_fresh(mode: str):
    """Rows of its first epoch that came before are known; in async its first epoch waits for all, as epoch 0 does."""
    edges = Crossing(
        {0: np.array([1]), 1: np.array([0])}, dict.fromkeys(range(2), np.ones(1, np.int64)), np.ones(2, int)
    )
    core = Scheduler(GCN, Lane.TRAIN, range(2), range(9), forward=edges, backward=edges, **MODES[mode][1])
    assert core.handle(Begin(5)) == []
    assert (core.slowest, core.position(1), core.finished) == (5, (5, 0), False)
    running, ran = core.handle(Opened(8, 5)), []
    while running:
        task = running.pop(0)
        ran.append(task)
        if core.program[task.pc].publishes:
            running += core.handle(Published(task.epoch, task.pc, task.interval))
        running += core.handle(StepDone(task))
    assert core.finished
    assert {task.epoch for task in ran} == {5, 6, 7, 8}
    assert len(ran) == 4 * 2 * len(GCN)


def test_a_run_that_goes_on_behind_its_last_epoch_has_nothing_to_run():
    edges = Crossing({}, {}, np.zeros(2, int))
    core = Scheduler(GCN, Lane.TRAIN, range(2), range(3), forward=edges, backward=edges)
    core.handle(Begin(3))
    assert core.finished
    assert core.handle(Opened(9, 9)) == []
    assert core.slowest == 3
