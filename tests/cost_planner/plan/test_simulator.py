"""A simulated run against what can be computed by hand, and against itself."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from cost_planner.plan.parts import Cores, Link, LinkRate, Pool, Timeline
from cost_planner.plan.simulated_run import Environments, Plan, StepWork
from cost_planner.plan.simulator import Outcome, simulated
from siafu import models
from siafu.models import ModelSpec
from siafu.tasks import TENSOR_KINDS, Kind, Lane, Program, Step

SPEC = ModelSpec("gcn", in_features=8, num_classes=3, num_train=10, narrow=False)
PROGRAM = models.build(SPEC).program(Lane.TRAIN)
EXACT: dict[str, Any] = {"sigma": 0.0, "latency_s": 0.0, "exchange_s": 0.0, "update_s": 0.0}


def work(
    *, graph_s: float = 0.0, tensor_s: float = 0.0, down: float = 0.0, up: float = 0.0, peers: float = 0.0
) -> list[StepWork]:
    found = []
    for step in PROGRAM.steps:
        if step.kind in TENSOR_KINDS:
            found.append(StepWork(tensor_s, down=down, up=up))
        elif step.kind is Kind.WU or (step.gathers and step.gathers not in PROGRAM.publisher):
            found.append(StepWork())
        else:
            found.append(StepWork(graph_s, peers=peers if step.publishes else 0.0))
    return found


TENSOR = sum(step.kind in TENSOR_KINDS for step in PROGRAM.steps)
GRAPH = sum(one.seconds > 0 for one in work(graph_s=1.0))
SCATTERS = len(PROGRAM.publisher)


def lambdas(**changes: Any) -> Environments:
    return replace(Environments(count=8, sigma=0.0, latency_s=0.0, cold_s=0.0, link=LinkRate(1e12)), **changes)


def run(epochs: int = 4, **changes: Any) -> Outcome:
    return simulated(Plan(PROGRAM, **{"work": work(), "environments": None, **EXACT, **changes}), epochs, Random(0))


# --- parts ----------------------------------------------------------------------------------------------------------


def test_a_link_sends_one_after_the_other():
    link = Link(Timeline(Random(0)), LinkRate(100.0))
    assert [link.leave(50), link.leave(100)] == [0.5, 1.5]


def test_a_thread_is_not_free_before_what_it_waits_for_is_over():
    timeline, done = Timeline(Random(0)), []
    pool, card = Pool(timeline, 2, Cores(timeline, 2)), Pool(timeline, 1, Cores(timeline, 1))
    for name in "abc":
        pool.add((), 1.0, lambda name=name: done.append((name, timeline.now)), lambda over: card.add((), 2.0, over))
    while timeline.step():
        pass
    assert done == [("a", 3.0), ("b", 5.0), ("c", 7.0)]  # c begins at 3, and finds the card at work for b


def test_threads_take_the_most_urgent_first():
    timeline, seen = Timeline(Random(0)), []
    pool = Pool(timeline, 1, Cores(timeline, 1))
    for name, priority in (("first", 9), ("late", 5), ("urgent", 1)):
        pool.add((priority,), 1.0, lambda name=name: seen.append((name, timeline.now)))
    while timeline.step():
        pass
    assert seen == [("first", 1.0), ("urgent", 2.0), ("late", 3.0)]


# --- a run ----------------------------------------------------------------------------------------------------------


def test_a_thread_that_is_woken_after_every_task_shows_where_one_task_waits_for_another():
    def epoch_s(intervals: int, wake_s: float) -> float:
        return run(work=work(graph_s=0.01, tensor_s=0.01), threads=1, intervals=intervals, wake_s=wake_s).epoch_s

    assert epoch_s(1, 0.002) == pytest.approx(epoch_s(1, 0.0) + (GRAPH + TENSOR) * 0.002)
    assert epoch_s(16, 0.002) < 1.02 * epoch_s(16, 0.0)


def test_one_thread_takes_the_sum_of_all():
    found = run(work=work(graph_s=0.01, tensor_s=0.02), threads=1, intervals=5)
    assert found.epoch_s == pytest.approx(5 * (GRAPH * 0.01 + TENSOR * 0.02))
    assert found.tensor_tasks == 4 * 5 * TENSOR


def test_threads_share_the_work():
    alone, shared = (run(work=work(graph_s=0.01), threads=n, intervals=16) for n in (1, 4))
    assert alone.epoch_s / shared.epoch_s == pytest.approx(4.0, rel=0.05)


def test_a_server_waits_for_weights_as_often_as_it_asks():
    """Its one thread has nothing else to do meanwhile."""

    def epoch_s(asked: int) -> float:
        steps, left = [], asked
        for one, step in zip(work(), PROGRAM.steps, strict=True):
            steps.append(replace(one, asks=step.kind in TENSOR_KINDS and left > 0))
            left -= steps[-1].asks
        return run(work=steps, threads=1, intervals=1, latency_s=0.5, exchange_s=0.25).epoch_s

    for asked in (1, TENSOR):
        assert epoch_s(asked) - epoch_s(0) == pytest.approx(asked * (0.5 + 0.25 + 0.5))


def test_an_environment_asks_once_for_an_intervals_weights_that_it_holds():
    """Of a version that a task of another interval has brought it must still ask which one is its own."""
    steps = [replace(one, weights=0.0) for one in work()]
    plan = {"intervals": 1, "threads": 1, "latency_s": 0.0, "exchange_s": 0.25, "work": steps}
    layers = {step.layer for step in PROGRAM.steps if step.kind in TENSOR_KINDS}
    gradients = sum(step.has_gradient for step in PROGRAM.steps if step.kind in TENSOR_KINDS)
    outcome = run(**plan, environments=lambdas(count=1))
    assert len(layers) < TENSOR
    assert outcome.epoch_s == pytest.approx(0.25 * (len(layers) + gradients))


def test_lambdas_hide_behind_threads():
    """pipe, plenty of environments: what is left is the graph work, but for what cannot
    begin before the last has scattered."""
    found = run(
        epochs=6, work=work(graph_s=0.01, tensor_s=0.01), threads=1, intervals=16, environments=lambdas(count=16)
    )
    graph = 16 * GRAPH * 0.01
    assert graph <= found.epoch_s < 1.15 * graph + TENSOR * 0.01


def test_few_environments_are_the_limit():
    found = run(work=work(graph_s=0.001, tensor_s=0.1), threads=4, intervals=16, environments=lambdas(count=2))
    assert found.epoch_s == pytest.approx(16 * TENSOR * 0.1 / 2, rel=0.1)


def test_a_small_share_of_a_core_takes_longer():
    whole, half = (run(work=work(tensor_s=0.1), environments=lambdas(count=2, core=core)) for core in (1.0, 0.5))
    assert half.epoch_s == pytest.approx(2 * whole.epoch_s, rel=0.05)


def test_the_servers_link_is_the_limit():
    found = run(work=work(down=1e6), link=LinkRate(1e7), intervals=8, environments=lambdas())
    assert found.epoch_s == pytest.approx(8 * TENSOR * 0.1, rel=0.05)


@pytest.mark.parametrize("servers", [2, 4, 16])
def test_rows_for_all_other_servers_leave_by_one_link(servers):
    found = run(work=work(peers=1e5), link=LinkRate(1e7), intervals=8, servers=servers)
    assert found.epoch_s == pytest.approx(8 * SCATTERS * (servers - 1) * 0.01, rel=0.1)


def test_no_pipe_is_slower_and_async_is_not():
    plan = {"work": work(graph_s=0.01, tensor_s=0.02), "threads": 2, "intervals": 16, "environments": lambdas(count=4)}
    spans = {mode: run(epochs=8, mode=mode, **plan).epoch_s for mode in ("no-pipe", "pipe", "async")}
    assert spans["no-pipe"] > 1.2 * spans["pipe"]
    assert spans["async"] <= 1.01 * spans["pipe"]


def test_cold_starts_delay_the_first_epoch_alone():
    found = run(work=work(tensor_s=0.001), environments=lambdas(cold_s=5.0))
    assert found.epoch_ends[0] > 5.0
    assert found.epoch_s < 0.1


def test_the_autotuner_finds_how_many_are_needed():
    busy = run(
        epochs=60,
        work=work(graph_s=0.01, tensor_s=0.04),
        threads=2,
        intervals=32,
        mode="async",
        staleness=0,
        freshness=0.0,
        environments=lambdas(count=0, cold_s=0.2),
    )
    needed = 2 * TENSOR * 0.04 / (GRAPH * 0.01)
    assert needed <= busy.environments <= 2.5 * needed


def test_equal_seeds_give_equal_runs():
    plan = Plan(
        PROGRAM, work(graph_s=0.01, tensor_s=0.02, down=1e5, up=1e5, peers=1e5), servers=3, mode="async", staleness=1
    )
    first, same, other = (simulated(plan, 5, Random(seed)) for seed in (0, 0, 1))
    assert first == same
    assert first != other


@pytest.mark.parametrize("mode", ["no-pipe", "pipe", "async"])
@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_every_run_ends(mode, staleness):
    plan = Plan(
        PROGRAM,
        work(graph_s=0.001, tensor_s=0.004, down=1e5, peers=1e4),
        servers=2,
        mode=mode,
        staleness=staleness,
        intervals=3,
    )
    assert len(simulated(plan, 7, Random(0)).epoch_ends) == 7


# --- processors that are shared ---------------------------------------------------------------------------------------


def test_cores_are_shared_equally_and_none_is_faster_than_one():
    timeline, seen = Timeline(Random(0)), []
    cores = Cores(timeline, 2)
    for name, seconds in {"a": 1.0, "b": 2.0, "c": 3.0}.items():
        cores.run(seconds, lambda name=name: seen.append((name, round(timeline.now, 9))))
    while timeline.step():
        pass
    # Three share two until a has had its second: 1.5 s. Then b and c have one each.
    assert seen == [("a", 1.5), ("b", 2.5), ("c", 3.5)]


@pytest.mark.parametrize("count", [1, 1.5, 2, 16])
@pytest.mark.parametrize("seed", range(10))
def test_cores_do_all_work_and_no_more_than_they_can(seed: int, count: float):
    rng = Random(seed)
    jobs = [(rng.uniform(0, 5), rng.uniform(0.001, 5)) for _ in range(rng.randint(1, 12))]
    timeline, ends = Timeline(Random(0)), {}
    cores = Cores(timeline, count)
    for number, (begin, seconds) in enumerate(jobs):
        timeline.at(
            begin,
            lambda number=number, seconds=seconds: cores.run(seconds, lambda: ends.__setitem__(number, timeline.now)),
        )
    while timeline.step():
        pass
    assert len(ends) == len(jobs)
    first, last, work_s = min(begin for begin, _ in jobs), max(ends.values()), sum(seconds for _, seconds in jobs)
    assert last - first >= work_s / count - 1e-6
    for number, (begin, seconds) in enumerate(jobs):
        assert ends[number] >= begin + seconds - 1e-6


def test_one_machine_for_all_takes_the_sum_of_their_work():
    apart = {"work": work(graph_s=0.01, tensor_s=0.01), "threads": 1, "intervals": 32, "environments": lambdas(count=8)}
    alone, together = run(**apart), run(**apart, cores=1, together=True)
    steps = [one.seconds for one in apart["work"]]
    assert together.epoch_s == pytest.approx(32 * sum(steps), rel=0.01)
    assert alone.epoch_s < 0.7 * together.epoch_s


def test_an_environment_of_this_machine_that_gets_a_share_of_a_core_sleeps_and_leaves_the_core_to_others():
    slow = {"work": work(graph_s=0.02, tensor_s=0.01), "threads": 1, "intervals": 32, "cores": 2, "together": True}

    def epoch_s(count: int, core: float) -> float:
        return run(**slow, environments=lambdas(count=count, core=core)).epoch_s

    assert epoch_s(1, 0.25) == pytest.approx(32 * TENSOR * 0.01 / 0.25, rel=0.05)
    assert epoch_s(4, 0.25) == pytest.approx(epoch_s(4, 1.0), rel=0.05)  # as much work in all, on the same processors


# --- evaluation -------------------------------------------------------------------------------------------------------


def evaluated(every: int, **changes: Any) -> Outcome:
    steps = (Step(Kind.GA, 1, writes=("Z1",), gathers="H0"), Step(Kind.AV, 1, ("Z1",), ("H2",)))
    work_ = [StepWork(0.02), StepWork(0.0)]
    return run(
        epochs=9, threads=1, intervals=4, eval_program=Program(steps), eval_work=work_, eval_every=every, **changes
    )


@pytest.mark.parametrize("mode", ["pipe", "no-pipe", "async"])
def test_an_evaluation_takes_threads_their_time(mode: str):
    without, each, third = (evaluated(every, work=work(graph_s=0.01), mode=mode) for every in (0, 1, 3))
    spans = [one.epoch_ends[-1] for one in (without, third, each)]
    assert spans[0] < spans[1] < spans[2]
    assert each.epoch_s == pytest.approx(without.epoch_s + 4 * 0.02, rel=0.02)


def test_no_pipe_waits_for_the_evaluation_of_its_last_epoch():
    ends = evaluated(1, work=work(graph_s=0.01), mode="no-pipe").epoch_ends
    alone = evaluated(0, work=work(graph_s=0.01), mode="no-pipe").epoch_ends
    assert ends[0] == pytest.approx(alone[0])
    assert ends[1] == pytest.approx(alone[1] + 4 * 0.02)


def test_a_gpu_does_one_thing_at_a_time_however_many_threads_wait_for_it():
    found = [replace(one, seconds=0.0, card=0.01 * bool(one.seconds)) for one in work(graph_s=1.0)]
    assert run(work=found, threads=4, intervals=8).epoch_s == pytest.approx(8 * GRAPH * 0.01, rel=1e-6)
    shared = run(work=found, threads=4, intervals=8, servers=2).epoch_s
    assert shared == pytest.approx(8 * GRAPH * 0.01, rel=0.05)  # each has its own
