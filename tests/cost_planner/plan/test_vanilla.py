"""The baseline on one machine's GPUs, as the simulator runs it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from cost_planner.plan import card_memory, cards, graphs, vanilla
from cost_planner.plan.bounds import Floors
from cost_planner.plan.simulated_run import Plan
from cost_planner.plan.simulator import simulated
from cost_planner.plan.work import Counts
from siafu.config import Config
from siafu.models import ModelSpec
from siafu.pricing import prices

GRAPH = graphs.of_counts(10_000_000, 500_000_000, 64, 20)


def plan(ranks: int, name: str = "p4d.24xlarge", graph: graphs.Graph = GRAPH) -> Plan:
    card = cards.card_of(prices.instance(name))
    assert card is not None
    manifest = graph.manifest(ranks)
    config = Config().replace({"model.hidden": "64", "train.eval_every": "0"})
    return vanilla.plan_of(config, ModelSpec.of(config, manifest), Counts.of(manifest), card)


def epoch_s(found: Plan) -> float:
    return simulated(found, 4, Random(0)).epoch_s


def test_one_rank_does_one_thing_after_the_other():
    found = plan(1)
    alone = sum(work.card for work in found.work) + found.update_s
    assert epoch_s(found) == pytest.approx(alone, rel=0.02)
    assert Floors.of(found).epoch_s("pipe") == pytest.approx(alone)
    assert Floors.of(found).by_resource()["GPU"] == pytest.approx(alone - found.update_s)


def test_ranks_share_the_work_and_wait_for_halo_rows():
    one, eight = plan(1), plan(8)
    assert sum(work.card for work in eight.work) < sum(work.card for work in one.work) / 4
    sent = sum(work.peers for work in eight.work) * 7 / eight.link.bytes_per_s
    assert epoch_s(eight) == pytest.approx(sum(work.card for work in eight.work) + sent, rel=0.1)


def test_a_faster_card_is_faster():
    times = [epoch_s(plan(1, name)) for name in ("g4dn.xlarge", "g5.xlarge", "p5.4xlarge")]
    assert times == sorted(times, reverse=True)


def test_attention_has_its_edges_by_both_ends_and_no_rows_for_them():
    manifest = GRAPH.manifest(1)
    (entry,) = manifest.partitions

    def nbytes(name: str, **settings: object) -> float:
        return card_memory.of_rank(Config().replace({"model.name": name, **settings}), manifest, entry)

    more = nbytes("gat", **{"model.heads": 1}) - nbytes("gcn")
    assert 32 * entry.in_edges <= more < 40 * entry.in_edges
    dropped = nbytes("gat", **{"model.heads": 8, "model.attn_dropout": 0.5})
    assert dropped - nbytes("gat", **{"model.heads": 8}) >= 2 * 8 * 4 * entry.in_edges


def test_an_inductive_run_gathers_and_sends_what_is_of_training_vertices():
    plans = [plan(4, graph=replace(GRAPH, inductive=inductive)) for inductive in (False, True)]
    for whole, alone in zip(*(plan.work for plan in plans), strict=True):
        assert (alone.peers < 0.66 * whole.peers) == (whole.peers > 0)
    assert sum(one.card for one in plans[1].work) < sum(one.card for one in plans[0].work)
    assert plans[0].eval_work == plans[1].eval_work  # evaluations see all


def test_one_card_was_measured():
    """A quarter of Reddit's shape on an H200 (docs/measured/gpu.md): in the range that plans state, and not short."""
    quarter = graphs.of_counts(58_241, 28_653_850, 602, 41)
    card = cards.card_of(prices.instance("p5en.48xlarge"))
    assert card is not None
    for name, measured_s in (("gcn", 0.0151), ("sage", 0.0175)):
        settings = {"model.name": name, "model.layers": 3, "model.hidden": 128, "train.eval_every": 0}
        manifest, config = quarter.manifest(1), Config().replace(settings)
        found = vanilla.plan_of(config, ModelSpec.of(config, manifest), Counts.of(manifest), card)
        assert measured_s < epoch_s(found) < 2 * measured_s
