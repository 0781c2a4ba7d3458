"""Work of a run's steps against counts by hand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from random import Random

import pytest

from cost_planner import reach
from cost_planner.plan import graphs, pairs
from cost_planner.plan.bounds import OUT, RESOURCES, Floors
from cost_planner.plan.memory_traffic import Bandwidth
from cost_planner.plan.parts import LinkRate
from cost_planner.plan.products import products_of
from cost_planner.plan.simulated_run import Environments, StepWork
from cost_planner.plan.simulator import simulated
from cost_planner.plan.speeds import Speeds
from cost_planner.plan.work import Counts, constant_bytes, plan_of, processor_s, work_of
from siafu import models
from siafu.config import Config
from siafu.models import ModelSpec
from siafu.tasks import TENSOR_KINDS, Kind, Lane

SERVERS, INTERVALS = 4, 10
GRAPH = replace(graphs.of_counts(65_600_000, 3_600_000_000, 32, 50, cut=SERVERS / (SERVERS - 1) / 2), shared=1.0)
MANIFEST = GRAPH.manifest(SERVERS)
CONFIG = Config().replace(
    {
        "data.parts": SERVERS,
        "servers.param_servers": 4,
        "train.intervals": INTERVALS,
        "model.hidden": 48,
        "servers.backend": "lambda",
        "lambda.on": "aws",
        "run.on": "aws",
        "train.mode": "async",
        "train.eval_every": 0,
    }
)
MODEL = models.build(ModelSpec.of(CONFIG, MANIFEST))
STEPS = MODEL.program(Lane.TRAIN).steps
NOTHING = Speeds().scaled(0.0)
CROSSING = reach.Crossing(1.5, 0.5)
WORK = work_of(CONFIG, MODEL, Counts.of(MANIFEST), Speeds())


def test_rows_are_counted_as_the_program_moves_them():
    """GCN 32-48-50: H1 is published where it has an edge into a training vertex, dZ1 of training vertices; workers read
    Z1 and dH1 and write H1 and dZ1; Z0 is theirs once."""
    train, entry = MANIFEST.splits[0].train / GRAPH.vertices, MANIFEST.partitions[0]
    assert 0.6 < train < 0.7
    read = reach.Crossing.of(MANIFEST).leads(train)
    assert train < read < 1
    sent = sum(one.peers for one in WORK) * INTERVALS * (SERVERS - 1)
    assert sent == pytest.approx(entry.ghosts_in * 4 * 48 * (read + train))
    n = GRAPH.vertices // SERVERS
    for way in ("down", "up"):
        assert INTERVALS * sum(getattr(one, way) for one in WORK) == pytest.approx(n * 4 * (48 + 48 * train))
    assert constant_bytes(CONFIG, MODEL, Counts.of(MANIFEST)) == n * 4 * 32
    halves = work_of(CONFIG.replace({"model.rows": "bfloat16"}), MODEL, Counts.of(MANIFEST), Speeds())
    assert 2 * sum(one.peers for one in halves) == pytest.approx(sum(one.peers for one in WORK))


def test_products_by_hand():
    """GCN 32-48-50: the first forward, then the fused last layer and its backward, then the first layer's backward."""
    n = GRAPH.vertices / 4 / 10
    first, last = 2 * n * 32 * 48, 2 * n * (2 * 48 * 64 + 50 * 48)  # of 50 columns as of 64: in vectors of 16
    only = work_of(CONFIG, MODEL, Counts.of(MANIFEST), replace(NOTHING, flop_ns=1.0))
    found = [1e9 * one.seconds for step, one in zip(STEPS, only, strict=True) if step.kind in TENSOR_KINDS]
    # The fused step is forward and two products backwards, of training vertices; the last recomputes its forward,
    # and nobody wants dX of features.
    trains = MODEL.spec.num_train / GRAPH.vertices
    assert trains < 0.7
    assert sum(found) == pytest.approx(first + trains * last + 2 * first, rel=1e-6)


@pytest.mark.parametrize(("share", "sent"), [(0.1, 0.1), (0.9, 1.0)])
def test_rows_of_training_vertices_travel_to_the_loss_where_they_are_few(share: float, sent: float):
    """docs/adr/0038: where most vertices train all rows travel."""
    config, counts = CONFIG.replace({"servers.backend": "lambda"}), Counts.of(MANIFEST)
    model = models.build(replace(MODEL.spec, num_train=round(share * GRAPH.vertices)))
    loss = next(pc for pc, step in enumerate(STEPS) if step.fused)
    found = work_of(config, model, counts, NOTHING)[loss]
    n = counts.vertices / config.train.intervals
    assert found.up == pytest.approx(sent * n * 4 * 48, rel=1e-6)
    assert found.down == pytest.approx(found.up, rel=1e-6)  # labels and such are kept


@pytest.mark.parametrize(("trains", "few"), [(0.005, True), (0.2, False)])
def test_stages_before_the_loss_are_counted_on_the_rows_that_it_reads(trains: float, few: bool):
    """docs/adr/0039: where more than half of all rows are read all are computed."""
    counts = Counts.of(MANIFEST)
    model = models.build(replace(MODEL.spec, num_train=round(trains * GRAPH.vertices)))
    share = reach.share_that_feeds(trains, counts.edges / counts.vertices)
    assert (share < 0.5) is few
    first = next(pc for pc, step in enumerate(STEPS) if step.feeds_loss)
    n, rows = counts.vertices / INTERVALS, share if few else 1.0
    only = work_of(CONFIG, model, counts, replace(NOTHING, flop_ns=1.0))[first]
    assert 1e9 * only.seconds == pytest.approx(rows * 2 * n * 32 * 48, rel=1e-6)
    config = CONFIG.replace({"servers.backend": "lambda", "lambda.keep_constants": False})
    found = work_of(config, model, counts, NOTHING)[first]
    assert found.up == pytest.approx(rows * n * 4 * 48, rel=1e-6)
    assert found.down == pytest.approx(rows * n * 4 * 32, rel=1e-6)


def test_training_on_the_training_vertices_alone_is_counted_on_their_edges():
    """data.inductive: its training lane gathers along edges between training vertices; evaluation sees all."""
    whole, among = Counts.of(MANIFEST), 0.15  # of neighbours who train together there are more than of any two vertices
    counted = round(among * MANIFEST.num_edges)
    types = {"edge_types": "inductive", "type_counts": (counted, MANIFEST.num_edges - counted)}
    alone = Counts.of(replace(MANIFEST, **types))
    assert (whole.among, alone.among) == (None, pytest.approx(among))
    trains = 0.2
    model = models.build(replace(MODEL.spec, num_train=round(trains * GRAPH.vertices)))
    gathers, rows = replace(NOTHING, value_ns=1.0), replace(NOTHING, flop_ns=1.0)
    for lane in Lane:
        steps = model.program(lane).steps
        for pc, step in enumerate(steps):
            found, every = (work_of(CONFIG, model, c, gathers, lane)[pc].seconds for c in (alone, whole))
            if step.gathers in model.program(lane).publisher:
                marked = trains if step.of_loss else 1.0  # of all edges, those into training vertices
                assert found == pytest.approx(every * (among / marked if lane is Lane.TRAIN else 1.0))
            found, every = (work_of(CONFIG, model, c, rows, lane)[pc].seconds for c in (alone, whole))
            if step.feeds_loss and lane is Lane.TRAIN:
                assert found == pytest.approx(every * trains)  # of the whole graph more than half are read


def test_of_the_training_vertices_alone_the_rows_that_their_edges_reach_are_sent():
    whole = replace(Counts.of(MANIFEST), crossing=CROSSING)
    train = MODEL.spec.num_train / GRAPH.vertices
    alone = replace(whole, among=train**2)
    for lane in Lane:
        found, every = (work_of(CONFIG, MODEL, c, Speeds(), lane) for c in (alone, whole))
        for step, one, other in zip(MODEL.program(lane).steps, found, every, strict=True):
            if lane is Lane.EVAL or not step.publishes:
                assert one.peers == other.peers
                continue
            share = reach.share_of_ghosts_among(train, train**2, CROSSING) / reach.share_of_ghosts(
                step, train, CROSSING
            )
            assert share < 1
            assert one.peers == pytest.approx(share * other.peers)


@pytest.mark.parametrize(("columns", "item", "lines"), [(64, 4, 4), (40, 4, 3), (64, 2, 2), (7, 4, 1)])
def test_rows_that_a_cores_own_cache_does_not_hold_cost_more(columns: int, item: int, lines: int):
    """A row has whole cache lines."""
    rows, cache = 10_000, 1e6
    memory = Bandwidth(core_cache_bytes=cache)
    assert memory.missed_by_core(rows, columns * item) == pytest.approx(max(0.0, 1 - cache / (rows * 64 * lines)))
    assert memory.missed_by_core(0.0, columns * item) == 0.0
    counts = replace(Counts.of(MANIFEST), ghosts=0.0)
    config = CONFIG.replace({"servers.backend": "cpu", "model.rows": "bfloat16" if item == 2 else "exact"})
    gathers = [pc for pc, step in enumerate(STEPS) if step.gathers in MODEL.program(Lane.TRAIN).publisher]
    for pc in gathers:
        near, far = (
            work_of(config, MODEL, counts, replace(NOTHING, **{name: 1.0}), bandwidth=memory)[pc].seconds
            for name in ("value_ns", "missed_ns")
        )
        width = MODEL.width(str(STEPS[pc].gathers)) * item
        assert far == pytest.approx(near * memory.missed_by_core(counts.vertices, width))


def test_scores_of_attention_travel_beside_the_rows():
    """Of each head one forwards, three backwards."""
    config = CONFIG.replace({"model.name": "gat", "model.heads": 8})
    model, counts = models.build(ModelSpec.of(config, MANIFEST)), Counts.of(MANIFEST)
    program = model.program(Lane.TRAIN)
    for step, one in zip(program.steps, work_of(config, model, counts, Speeds()), strict=True):
        if step.publishes:
            heads = model.width(step.reads[-1])
            row = 4 * (model.width(step.publishes) + heads * (3 if step.backward else 1))
            share = reach.share_of_ghosts(step, model.spec.num_train / GRAPH.vertices, counts.crossing)
            assert one.peers * INTERVALS * (SERVERS - 1) == pytest.approx(share * counts.ghosts * row)


def test_an_inductive_evaluations_aggregate_is_sent_to_workers_each_time():
    """Workers keep training's, of the same name, where training holds all rows (``graph_server.partition``)."""
    whole, alone = Counts.of(MANIFEST), replace(Counts.of(MANIFEST), among=0.4)
    aggregate = GRAPH.vertices / SERVERS / INTERVALS * 4 * 32
    for trains, again in ((0.9, aggregate), (0.5, 0.0)):
        model = models.build(replace(MODEL.spec, num_train=round(trains * GRAPH.vertices)))
        found, every = (sum(one.down for one in work_of(CONFIG, model, c, NOTHING, Lane.EVAL)) for c in (alone, whole))
        assert found - every == pytest.approx(again)


def test_a_lane_that_few_rows_feed_copies_and_sums_those_alone():
    """docs/adr/0043: as many rows as it holds; inductive training, those that train."""
    whole, copies = Counts.of(MANIFEST), replace(NOTHING, copy_ns=1.0)
    alone = replace(whole, among=0.15)
    for trains, counts in ((0.005, whole), (0.4, alone)):
        model = models.build(replace(MODEL.spec, num_train=round(trains * GRAPH.vertices)))
        held = trains if counts is alone else reach.share_that_feeds(trains, counts.edges / counts.vertices)
        for lane, share in ((Lane.TRAIN, held), (Lane.EVAL, 1.0)):
            steps = model.program(lane).steps
            for step, one in zip(steps, work_of(CONFIG, model, counts, copies, lane), strict=True):
                if step.gathers in model.program(lane).publisher:
                    rows = share * counts.vertices / INTERVALS
                    assert 1e9 * one.seconds == pytest.approx(rows * model.width(str(step.gathers)))


def test_a_servers_threads_ask_for_an_intervals_weights_once_an_epoch():
    """docs/adr/0041: environments of Lambda ask for themselves, for every task as far as is known here."""
    config = CONFIG.replace({"servers.backend": "cpu"})
    plan = plan_of(config, MODEL.spec, Counts.of(MANIFEST), Speeds(), threads=2, link=LinkRate(1e9))
    tensor = [(step, one) for step, one in zip(STEPS, plan.work, strict=True) if step.kind in TENSOR_KINDS]
    assert [one.asks for _, one in tensor] == [True] + [False] * (len(tensor) - 1)
    messages = sum(plan.param_server_s(step, replace(one, weights=0.0)) for step, one in tensor) / plan.exchange_s
    gradients = sum(step.has_gradient for step, _ in tensor)
    assert messages == pytest.approx(1 + gradients)
    there = replace(plan, environments=Environments())
    messages = sum(there.param_server_s(step, replace(one, weights=0.0)) for step, one in tensor) / plan.exchange_s
    assert messages == pytest.approx(len(tensor) + gradients)


def test_evaluations_are_counted_on_the_rows_that_judged_vertices_read():
    """docs/adr/0040"""
    counts = replace(Counts.of(MANIFEST), judged=0.005, crossing=CROSSING)
    whole = replace(counts, judged=1.0)
    few, every = (work_of(CONFIG, MODEL, c, Speeds(), Lane.EVAL) for c in (counts, whole))
    steps = MODEL.program(Lane.EVAL).steps
    share = reach.share_that_feeds(0.005, counts.edges / counts.vertices)
    assert share < 0.5
    only = [work_of(CONFIG, MODEL, c, replace(NOTHING, flop_ns=1.0), Lane.EVAL) for c in (counts, whole)]
    for pc, step in enumerate(steps):
        if step.publishes and step.of_loss:
            assert few[pc].peers == pytest.approx(reach.share_of_ghosts(step, 0.005, CROSSING) * every[pc].peers)
        if step.judged or step.feeds_loss:
            wanted = 0.005 if step.judged else share
            assert only[0][pc].seconds == pytest.approx(wanted * only[1][pc].seconds)
    assert sum(step.judged for step in steps) == 1


def test_processor_seconds_are_linear_in_speeds():
    """What calibration rests on: a step's time is the sum of what each constant alone makes of it."""
    manifest, spec = MANIFEST, ModelSpec.of(CONFIG, MANIFEST)

    def spent(speeds: Speeds) -> dict[str, float]:
        return processor_s(plan_of(CONFIG, spec, Counts.of(manifest), speeds, threads=2, link=LinkRate(1e9)))

    whole, parts = spent(Speeds()), Counter[str]()
    for one in fields(Speeds):
        parts.update(spent(replace(NOTHING, **{one.name: getattr(Speeds(), one.name)})))
    assert set(whole) == {"pool", "main", "io", "lambda", "remote io", "param"}
    assert dict(parts) == pytest.approx(whole)


def test_what_is_gathered_once_takes_nothing():
    assert (STEPS[0].gathers, WORK[0].seconds) == ("H0", 0.0)


def test_twice_the_intervals_are_half_the_work_each():
    config = CONFIG.replace({"train.intervals": 20})
    halves = work_of(config, MODEL, Counts.of(MANIFEST), replace(Speeds(), task_s=0.0, tensor_s=0.0, lambda_task_s=0.0))
    wholes = work_of(
        CONFIG,
        MODEL,
        Counts.of(MANIFEST),
        replace(Speeds(), task_s=0.0, tensor_s=0.0, lambda_task_s=0.0),
    )
    for step, half, whole in zip(STEPS, halves, wholes, strict=True):
        gradients = Speeds().lambda_byte_ns * 1e-9 * step.has_gradient * whole.weights  # of all weights, each time
        assert 2 * half.seconds - gradients == pytest.approx(whole.seconds)
        assert 2 * half.down == pytest.approx(whole.down)
        assert 2 * half.peers == pytest.approx(whole.peers)


def test_a_plan_is_never_faster_than_its_links():
    """The floor of the busiest link, and not much above it where it is what limits: 1.62 times, for
    rows of workers and of ghosts, two thirds as many backwards as forwards, do not all travel at once."""
    link = LinkRate(10e9 / 8)
    plan = plan_of(
        CONFIG,
        ModelSpec.of(CONFIG, MANIFEST),
        Counts.of(MANIFEST),
        NOTHING,
        threads=16,
        link=link,
        environments=Environments(count=200),
    )
    floor = Floors.of(plan).table.sum(axis=0)[OUT]
    assert floor <= simulated(plan, 3, Random(0)).epoch_s * 1.001 < 1.65 * floor


def test_environments_are_sent_again_what_they_have_no_room_for():
    """A quarter of their memory is for rows that never change; 10 intervals, of which each reads those of AV0."""
    spec, counts, link = ModelSpec.of(CONFIG, MANIFEST), Counts.of(MANIFEST), LinkRate(1e9)
    config = CONFIG.replace({"servers.backend": "lambda"})
    never = work_of(config, MODEL, counts, NOTHING, keeps=False)
    kept = work_of(config, MODEL, counts, NOTHING)
    rows = max(one.down - two.down for one, two in zip(never, kept, strict=True))
    assert rows > 0

    def down(share: float, count: int = 5) -> list[float]:
        memory_mb = round(4 * share * INTERVALS * rows / count / 2**20)
        kind = Environments(count=count, memory_mb=memory_mb)
        plan = plan_of(config, spec, counts, Speeds(), threads=2, link=link, environments=kind)
        again = plan_of(
            config, spec, counts, Speeds(), threads=2, link=link, environments=Environments(memory_mb=2**40)
        )
        assert again.with_environments(kind) == plan
        return [work.down for work in plan.work]

    assert down(1.1) == pytest.approx([one.down for one in kept])
    assert down(0.0) == pytest.approx([one.down for one in never])
    half = [(one.down + two.down) / 2 for one, two in zip(never, kept, strict=True)]
    assert down(0.5) == pytest.approx(half, rel=1e-3)


def test_rows_that_no_cache_holds_come_from_memory():
    """By hand: 1,000 edges of 256 bytes a row; caches of two lines of all rows, of half the table, and of none."""
    table, row, sums = 10_000, 256, 100 * 256
    tiled = Bandwidth(cache_bytes=128 * table / 0.6).gathered(1_000, 100, table, row, 256)
    half = Bandwidth(cache_bytes=table * row / 2 * (64 / 256)).gathered(1_000, 100, table, row, 256)
    none = Bandwidth(cache_bytes=0).gathered(1_000, 100, table, row, 256)
    assert tiled == 4 * 1_000 + sums
    assert half == pytest.approx((4 + 256 * 7 / 8) * 1_000 + sums)
    assert none == (4 + 256) * 1_000 + sums
    line = Bandwidth(cache_bytes=2 * 64 * table).gathered(3_200, 100, table, row, 256)
    assert line == 4 * 3_200 + sums  # in tiles of one line
    narrow = Bandwidth(cache_bytes=0).gathered(1_000, 0, table, 8, 0)
    assert narrow == (4 + 64) * 1_000  # a whole cache line
    at_random = Bandwidth(cache_bytes=0, random_share=0.5).gathered(1_000, 100, table, row, 256)
    assert at_random == (4 + 2 * 256) * 1_000 + sums  # rows take twice as long as if they lay one after the other


def test_environments_share_the_memory_of_the_servers_machine_alone():
    """On one machine the bytes of tensor tasks count wherever they are computed; elsewhere a Lambda has its own."""
    config = CONFIG.replace({"train.mode": "pipe"})
    spec, counts = ModelSpec.of(config, MANIFEST), Counts.of(MANIFEST)
    memory = RESOURCES.index("memory bandwidth")

    def bound(together: float) -> tuple[float, float]:
        told = {"threads": 8, "link": LinkRate(1e15), "together": together, "environments": Environments(4)}
        plan = plan_of(config, spec, counts, NOTHING, bandwidth=Bandwidth(1e9, 32 * 2**20), **told)
        plan = replace(plan, environments=replace(plan.environments, link=LinkRate(1e15)))
        return float(Floors.of(plan).table[:, memory].sum()), simulated(plan, 3, Random(0)).epoch_s

    tensor = INTERVALS * sum(w.memory for s, w in zip(STEPS, WORK, strict=True) if s.kind in TENSOR_KINDS) / 1e9
    assert tensor > 0.1
    apart, together = bound(0.0), bound(2.0)
    assert together[0] - SERVERS * apart[0] == pytest.approx(SERVERS * tensor)
    assert together[1] >= 0.999 * together[0]
    assert apart[1] < together[1]


@pytest.mark.parametrize("together", [0.0, 2.0])
def test_an_epoch_is_never_shorter_than_its_bytes_divided_by_the_memorys_bandwidth(together):
    """With nothing else that takes time; and not much longer, as threads move bytes while others do."""
    config = CONFIG.replace({"servers.backend": "cpu", "train.mode": "pipe"})
    spec, counts = ModelSpec.of(config, MANIFEST), Counts.of(MANIFEST)
    memory = Bandwidth(1e9, 32 * 2**20)
    told = {"threads": 8, "link": LinkRate(1e15), "together": together}
    plan = plan_of(config, spec, counts, NOTHING, bandwidth=memory, **told)
    work = INTERVALS * sum(one.memory for one in plan.work) * (SERVERS if together else 1)
    assert work > 1e9
    assert Floors.of(plan).epoch_s("pipe") >= work / 1e9 * 0.999
    epoch_s = simulated(plan, 3, Random(0)).epoch_s
    assert work / 1e9 * 0.999 <= epoch_s < 1.3 * work / 1e9
    more = plan_of(config, spec, counts, NOTHING, bandwidth=memory, **{**told, "threads": 64})
    assert simulated(more, 3, Random(0)).epoch_s == pytest.approx(epoch_s, rel=0.05)  # cores do not help
    free = plan_of(config, spec, counts, NOTHING, **told)
    assert simulated(free, 3, Random(0)).epoch_s < 0.1 * epoch_s


def test_threads_without_a_task_help_with_sums_products_and_copies():
    """Of one interval: four threads take a fourth of the time."""
    config = CONFIG.replace({"servers.backend": "cpu", "train.mode": "pipe", "train.intervals": 1})
    spec, counts = ModelSpec.of(config, MANIFEST), Counts.of(MANIFEST)

    def epoch_s(threads: int, **speeds: float) -> tuple[float, float]:
        plan = plan_of(config, spec, counts, replace(NOTHING, **speeds), threads=threads, link=LinkRate(1e15))
        return simulated(plan, 3, Random(0)).epoch_s, Floors.of(plan).epoch_s("pipe")

    for speeds in ({"value_ns": 1.0}, {"flop_ns": 1.0}, {"copy_ns": 1.0}):
        for alone, several in zip(epoch_s(1, **speeds), epoch_s(4, **speeds), strict=True):
            assert alone / several == pytest.approx(4, rel=0.1), speeds


def test_a_bag_of_words_is_multiplied_by_its_stored_values():
    """The first layer's products: as many rows of weights as a row has words, not all of its columns."""
    config = CONFIG.replace({"servers.backend": "cpu"})
    dense = Counts.of(MANIFEST)
    first = next(number for number, step in enumerate(STEPS) if step.kind in TENSOR_KINDS)

    def work(counts: Counts, step: int = first, **speeds: float) -> StepWork:
        return work_of(config, MODEL, counts, replace(NOTHING, **speeds))[step]

    words, n = replace(dense, filled=0.01), dense.vertices / INTERVALS
    assert work(words, word_ns=1.0).seconds == pytest.approx(n * 0.01 * 32 * 48 * 1e-9)
    back = next(number for number in reversed(range(len(STEPS))) if STEPS[number].has_gradient)
    flops = products_of(MODEL, Lane.TRAIN)[back].flops
    assert 0 < work(words, back, word_back_ns=1.0).seconds == pytest.approx(n * 0.01 * flops / 2 * 1e-9)
    assert work(words, back, word_ns=1.0).seconds == 0
    assert work(words, flop_ns=1.0).seconds == 0
    assert work(dense, flop_ns=1.0).seconds == pytest.approx(2 * n * 32 * 48 * 1e-9)
    assert work(dense).memory - work(words).memory == pytest.approx(n * 32 * (4 - 0.01 * 8))


def test_a_product_of_dense_and_sparse_rows_has_a_part_of_each():
    """GraphSAGE: a vertex's own words are few, their sum over its neighbours is dense."""
    config = CONFIG.replace({"servers.backend": "cpu", "model.name": "sage"})
    model, counts = models.build(ModelSpec.of(config, MANIFEST)), replace(Counts.of(MANIFEST), stored=0.01)
    first = next(number for number, step in enumerate(model.program(Lane.TRAIN).steps) if step.kind in TENSOR_KINDS)

    def seconds(**speeds: float) -> float:
        return work_of(config, model, counts, replace(NOTHING, **speeds))[first].seconds

    n = counts.vertices / INTERVALS
    assert seconds(flop_ns=1.0) == pytest.approx(2 * n * 32 * 48 * 1e-9)  # of the sums; dense rows would be as much
    assert seconds(word_ns=1.0) == pytest.approx(n * 0.01 * 32 * 48 * 1e-9)


def test_attention_adds_two_sums_and_weighs_every_edge_for_every_head():
    config = CONFIG.replace({"servers.backend": "cpu", "model.name": "gat", "model.heads": 8})
    model, counts = models.build(ModelSpec.of(config, MANIFEST)), Counts.of(MANIFEST)
    steps = model.program(Lane.TRAIN).steps
    gather = next(number for number, step in enumerate(steps) if step.kind is Kind.GA)
    edges = counts.edges / INTERVALS

    def seconds(**speeds: float) -> float:
        return work_of(config, model, counts, replace(NOTHING, **speeds))[gather].seconds

    assert seconds(value_ns=1.0) == pytest.approx(edges * 2 * 48 * 1e-9)
    assert seconds(score_ns=1.0) == pytest.approx(edges * 8 * 1e-9)
    assert work_of(CONFIG, MODEL, counts, replace(NOTHING, score_ns=1.0)) == work_of(CONFIG, MODEL, counts, NOTHING)


def test_a_sum_reads_whole_cache_lines_and_is_written_with_what_is_added_to_it():
    """APPNP's sums are as narrow as the classes, and to each a share of the interval's own rows is added."""
    config = CONFIG.replace({"servers.backend": "cpu", "model.name": "appnp"})
    model, counts = models.build(replace(ModelSpec.of(config, MANIFEST), num_classes=5)), Counts.of(MANIFEST)
    steps = model.program(Lane.TRAIN).steps
    first = next(number for number, step in enumerate(steps) if step.kind is Kind.GA)
    assert len(steps[first].reads) == 1
    assert steps[first].own not in (0.0, 1.0)
    n, edges = counts.vertices / INTERVALS, counts.edges / INTERVALS

    def seconds(**speeds: float) -> float:
        return work_of(config, model, counts, replace(NOTHING, **speeds))[first].seconds

    assert seconds(value_ns=1.0) == pytest.approx(edges * 16 * 1e-9)
    assert seconds(copy_ns=1.0) == pytest.approx(n * 5 * 1e-9)
    assert seconds(element_ns=1.0) == pytest.approx(n * 5 * 1e-9)


def links_of(decoder: str) -> tuple[Config, Counts, models.Model]:
    """Eight edges in the pool of false ones for each that trains."""
    changes = {
        "data.task": "link",
        "model.hidden": "32",
        "model.decoder": decoder,
        "lambda.on": "local",
        "run.on": "local",
    }
    config = CONFIG.replace(changes)
    counts = 1_000, 1_000, 8_000, 52, 300, 100, 600
    held = replace(MANIFEST, edge_types="links", type_counts=counts, num_edges=sum(counts), directed=True)
    entries = [replace(entry, in_edges=sum(counts) // SERVERS, vertices=100) for entry in MANIFEST.partitions]
    manifest = replace(held, num_vertices=100 * SERVERS, partitions=tuple(entries))
    return config, Counts.of(manifest), models.build(ModelSpec.of(config, manifest))


def of_kind(model: models.Model, lane: Lane, work: Sequence[StepWork], kind: Kind) -> StepWork:
    (found,) = (one for step, one in zip(model.program(lane).steps, work, strict=True) if step.kind is kind)
    return found


@pytest.mark.parametrize("decoder", ["dot", "mlp"])
@pytest.mark.parametrize(("lane", "scored"), [(Lane.TRAIN, 1_000 + 1_000), (Lane.EVAL, 52 + 300 + 100 + 600)])
def test_pairs_that_are_scored_are_counted_and_travel_with_their_rows(decoder: str, lane: Lane, scored: int):
    config, counts, model = links_of(decoder)
    each, rows = scored / SERVERS / INTERVALS, 100 / INTERVALS
    found = of_kind(model, lane, work_of(config, model, counts, Speeds(), lane), Kind.AE)
    trains = lane is Lane.TRAIN
    sent = each * (4 * 32 + 4 + trains) + rows * (4 * 32 + 8 + 8 * trains)  # others' rows, which of them; own ones
    assert found.down == pytest.approx(sent, rel=1e-4)
    assert found.up == pytest.approx(rows * 4 * 32 if trains else each * 4 + rows * 8)
    flops = 0 if decoder == "dot" else (3 if trains else 1) * 2 * each * (32 * 32 + 32 * 16)  # in vectors of 16
    only = of_kind(model, lane, work_of(config, model, counts, replace(NOTHING, flop_ns=1.0), lane), Kind.AE)
    assert 1e9 * only.seconds == pytest.approx(flops)


def test_false_pairs_are_drawn_and_rows_copied_before_ae():
    config, counts, model = links_of("dot")
    drawn, numbered, loss = pairs.DRAWING * 8_000, pairs.NUMBERING * 2_000, pairs.LOSS * 2_000
    for backend, cut, seconds in (("lambda", drawn + numbered, 0.0), ("cpu", numbered, drawn + loss)):
        config = config.replace({"servers.backend": backend})
        work = work_of(config, model, counts, replace(NOTHING, score_ns=1.0), there=NOTHING)
        found = of_kind(model, Lane.TRAIN, work, Kind.AE)
        assert 1e9 * found.cut == pytest.approx(cut / SERVERS / INTERVALS)
        assert 1e9 * found.seconds == pytest.approx(seconds / SERVERS / INTERVALS)
    work = work_of(config, model, counts, replace(NOTHING, element_ns=1.0))
    copied = 2_000 * 32 / SERVERS / INTERVALS
    assert 1e9 * of_kind(model, Lane.TRAIN, work, Kind.AE).cut == pytest.approx(copied, rel=1e-4)
    assert {one.cut for one in WORK} == {0.0}


def test_a_row_is_sent_once_however_many_pairs_have_it():
    config, counts, model = links_of("dot")
    dense = replace(counts, ghosts=0.0)  # 100 rows, and 50 pairs at a vertex
    found = [of_kind(model, Lane.TRAIN, work_of(config, model, one, Speeds()), Kind.AE) for one in (counts, dense)]
    pairs_of_task, rows = 2_000 / SERVERS / INTERVALS, 100 / INTERVALS
    own = rows * (4 * 32 + 2 * 8)
    read = 2 * 100 * (1 - math.exp(-pairs_of_task / 2 / 100))  # in two parts
    assert found[1].down == pytest.approx(pairs_of_task * (4 + 1) + own + read * 4 * 32)
    assert found[1].down < found[0].down


def test_pairs_are_scored_by_all_threads_of_a_server_and_their_rows_cut_out_by_one():
    config, counts, model = links_of("mlp")
    plan = plan_of(
        config.replace({"servers.backend": "cpu", "train.intervals": 1}),
        model.spec,
        counts,
        Speeds(),
        threads=4,
        link=LinkRate(1e9),
    )
    found = of_kind(model, Lane.TRAIN, plan.work, Kind.AE)
    assert plan.thread_s(found) == pytest.approx(found.seconds / 4)
    spent = processor_s(plan)["pool"]
    less = [replace(one, cut=0.0) for one in plan.work]
    gone = SERVERS * found.cut
    assert processor_s(replace(plan, work=less))["pool"] == pytest.approx(spent - gone)
    quick, slow = (simulated(replace(plan, work=w), 4, Random(0)).epoch_s for w in (less, plan.work))
    assert slow - quick > 0.7 * gone / SERVERS
    floors = [Floors.of(replace(plan, work=w)).epoch_path_s() for w in (less, plan.work)]
    assert floors[1] - floors[0] == pytest.approx(gone / SERVERS)


def test_held_out_pairs_are_ranked_where_they_are_scored_and_judged_by_the_coordinator():
    config, counts, model = links_of("dot")
    held_out = 52 + 300 + 100 + 600
    work = work_of(config, model, counts, replace(NOTHING, score_ns=1.0), Lane.EVAL)
    ranked = (pairs.NUMBERING + pairs.RANKING) * held_out
    assert 1e9 * of_kind(model, Lane.EVAL, work, Kind.AE).cut == pytest.approx(ranked / SERVERS / INTERVALS)
    speeds = replace(NOTHING, score_ns=1.0)
    plan = plan_of(config, model.spec, counts, speeds, threads=2, link=LinkRate(1e9))
    assert 1e9 * plan.judge_s == pytest.approx(pairs.JUDGING * held_out)
    assert plan_of(CONFIG, MODEL.spec, Counts.of(MANIFEST), speeds, threads=2, link=LinkRate(1e9)).judge_s == 0.0


def test_an_apply_edge_of_lambdas_is_sent_values_of_all_edges():
    """GAT whose coefficients Lambdas compute: scores of each edge and of the one to itself, not of each vertex."""
    config = CONFIG.replace({"model.name": "gat", "model.hidden": "64", "lambda.apply_edge": "lambda"})
    model, counts = models.build(ModelSpec.of(config, MANIFEST)), Counts.of(MANIFEST)
    steps = model.program(Lane.TRAIN).steps
    pc = next(pc for pc, step in enumerate(steps) if step.kind is Kind.AE)
    n, degree, heads = counts.vertices / INTERVALS, counts.edges / counts.vertices, 8
    found = work_of(config, model, counts, Speeds())[pc]
    edges = n * (degree + 1) * heads * 4
    assert found.down == pytest.approx(edges + n * (8 + heads * 4))
    assert found.up == pytest.approx(edges + n * (8 + heads * 4))
    only = work_of(config, model, counts, replace(NOTHING, flop_ns=1.0))[pc]
    assert only.seconds == 0.0  # it has no weights
    assert work_of(config, model, counts, replace(NOTHING, copy_ns=1.0))[pc].cut == pytest.approx(edges / 4 * 1e-9)
