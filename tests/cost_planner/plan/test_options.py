"""What is looked at, and what is not because it does not fit."""

from __future__ import annotations

import csv
from dataclasses import replace
from datetime import date

import pytest

from cost_planner import memory
from cost_planner.plan import cards, cores, graphs
from cost_planner.plan.asked import MEMORIES_MB, MODES, Asked
from cost_planner.plan.bounds import RESOURCES
from cost_planner.plan.epochs import Epochs, ratio
from cost_planner.plan.options import CARD, USABLE, Catalogue
from cost_planner.plan.quotas import needed
from cost_planner.plan.ranking import first_epochs
from cost_planner.plan.speeds import Speeds
from run_coordinator import intervals
from siafu.config import Config
from siafu.errors import PriceUnknown
from siafu.pricing import prices

SMALL = graphs.of_counts(200_000, 4_000_000, 32, 10)
FRIENDSTER = graphs.of_counts(65_600_000, 3_600_000_000, 32, 50)
ASKED = Asked(Config(), SMALL, Epochs(100), Speeds(), instances=["c7g.2xlarge", "c6i.2xlarge"], servers=[1, 4])


def test_every_combination_that_fits_is_there():
    found = Catalogue(ASKED).options
    kinds = {(option.machine.name, option.in_pipe.servers, *option.kind) for option in found}
    assert kinds == {
        (machine, servers, backend, *mode)
        for machine in ASKED.instances or ()
        for servers in (1, 4)
        for backend in ("cpu", "lambda")
        for mode in MODES
    }
    assert {option.config.lambdas.memory_mb for option in found if option.kind[0] == "lambda"} <= set(MEMORIES_MB)


def test_two_vcpus_of_intel_are_a_core_and_one_of_graviton_is():
    threads = {option.machine.name: option.in_pipe.threads for option in Catalogue(ASKED).options}
    assert threads == {"c7g.2xlarge": 8, "c6i.2xlarge": 4}


def test_a_lambda_computes_on_the_core_of_its_architecture():
    """Graviton2's, or a vCPU of x86, whatever the servers are; more memory than comes with a core is no faster."""
    assert cores.of_lambda("arm64").speed == cores.cores_of(prices.instance("c6g.2xlarge", "us-east-1")).speed
    assert cores.lambda_share(192) == pytest.approx(192 / 1769)
    assert cores.lambda_share(5000) == cores.lambda_share(1769) == 1
    asked = replace(ASKED, instances=["c8g.2xlarge", "c6g.2xlarge"], backends=["lambda"], memories_mb=[1769])
    remote = {
        one.machine.name: [work.seconds for work in one.in_pipe.work if work.down]
        for one in Catalogue(asked).options
        if one.in_pipe.servers == 1
    }
    assert remote["c8g.2xlarge"] == remote["c6g.2xlarge"] != []


@pytest.mark.parametrize("graph", [graphs.of_counts(2_708, 10_556, 1_433, 7), SMALL, FRIENDSTER])
def test_intervals_are_those_that_the_trainer_would_choose(graph):
    asked = replace(ASKED, graph=graph, servers=[8], instances=["r7g.2xlarge"])
    for option in Catalogue(asked).options:
        untold = option.config.replace({"train.intervals": 0})
        assert option.in_pipe.intervals == option.config.train.intervals == intervals.of(untold, graph.manifest(8))
    assert {one.in_pipe.intervals for one in Catalogue(replace(asked, intervals=3)).options} == {3}
    told = replace(asked, config=asked.config.replace({"train.intervals": 5}))
    assert {one.in_pipe.intervals for one in Catalogue(told).options} == {5}


def test_products_run_no_faster_than_the_peak_of_the_core():
    """Graviton's vectors have 128 bits: a core that was calibrated with 512 says nothing of its products."""
    calibrated = replace(Speeds(), flop_ns=1 / 170)
    graviton, intel = (cores.cores_of(prices.instance(name, "us-east-1")) for name in ("c8g.2xlarge", "c6i.2xlarge"))
    assert graviton.speeds(calibrated).flop_ns == pytest.approx(1 / 89.6)
    assert graviton.speeds(calibrated).value_ns == calibrated.value_ns
    assert intel.speeds(calibrated).flop_ns == pytest.approx(1 / 170 / 0.72)  # no peak is published: it only scales
    slow = replace(calibrated, flop_ns=1.0)
    assert graviton.speeds(slow).flop_ns == 1.0


def test_a_machine_has_its_vcpus_share_of_the_memorys_bandwidth():
    small, large, unknown = (
        cores.memory_of(prices.instance(name, "us-east-1")) for name in ("c8g.2xlarge", "c8g.4xlarge", "g6.2xlarge")
    )
    assert small.bytes_per_s == pytest.approx(536.7e9 * 8 / 96)
    assert large.bytes_per_s == pytest.approx(2 * small.bytes_per_s)
    assert cores.memory_of(prices.instance("c5n.2xlarge", "us-east-1")).bytes_per_s == pytest.approx(128e9 * 8 / 36)
    assert unknown.bytes_per_s == float("inf")


def test_every_figure_of_a_chip_has_a_source_and_a_date():
    for row in csv.DictReader(cores.CHIPS.read_text().splitlines()):
        assert row["source"]
        date.fromisoformat(row["as_of"])
        assert bool(row["watts_per_vcpu"]) == bool(row["watts_source"])
    with_price = {cores.family(one) for one in prices.instances("us-east-1") if not one.gpu} - set(cores.BURSTABLE)
    assert all(cores.cores_of(one).chip for one in prices.instances("us-east-1") if cores.family(one) in with_price)


@pytest.mark.parametrize(("name", "ghz"), [("c5n.2xlarge", 3.4), ("m5.2xlarge", 3.1), ("c6i.2xlarge", 3.5)])
def test_two_units_of_512_bits_do_64_operations_a_cycle(name, ghz):
    chip = cores.cores_of(prices.instance(name, "us-east-1")).chip
    assert chip is not None
    assert chip.flops == pytest.approx(2 * 16 * 2 * ghz * 1e9)


def test_a_large_graphs_epoch_is_never_shorter_than_its_rows_from_memory():
    """Amazon's counts, gcn 300-16-25: two gathers of 16 columns, a cache line an edge from 590 MB of rows; the second
    passes along the edges of the training vertices alone."""
    amazon = graphs.of_counts(9_200_000, 313_900_000, 300, 25)
    config = Config().replace({"model.hidden": "16", "train.eval_every": 0})
    asked = Asked(config, amazon, Epochs(10), Speeds(), instances=["c8g.4xlarge"], servers=[1], backends=["cpu"])
    least_s = 313.9e6 * (64 * (1 - 36 * 2**20 / (9.2e6 * 64)) + 4) / (536.7e9 * 16 / 96)
    found = Catalogue(asked).options[0]
    assert found.floor_s > least_s
    assert first_epochs(found, seed=0).epoch_s > least_s


def test_nothing_exceeds_the_memory_of_its_machine():
    wide = Config().replace({"model.hidden": "32"})
    catalogue = Catalogue(Asked(wide, FRIENDSTER, Epochs(10), Speeds(), servers=[2, 32], backends=["cpu"]))
    for option in catalogue.options:
        fits = option.memory_gib[memory.GRAPH_SERVERS] <= USABLE * option.machine.mem_gib
        assert fits != option.needs_low_cut
    assert catalogue.dropped["a graph server needs more memory than there is"]
    assert {option.machine.mem_gib for option in catalogue.options if option.in_pipe.servers == 2} == {64.0}


def test_what_fits_nowhere_is_told():
    wide = Config().replace({"model.hidden": "1024"})
    catalogue = Catalogue(Asked(wide, FRIENDSTER, Epochs(10), Speeds(), servers=[1]))
    assert not catalogue.options
    assert "the largest machine has 64" in catalogue.why_nothing_fits


def test_machines_stay_within_the_accounts_vcpus():
    every = Catalogue(ASKED).options
    few = Catalogue(replace(ASKED, max_vcpus=12))
    assert {option.vcpus for option in few.options} == {vcpus for option in every if (vcpus := option.vcpus) <= 12}
    assert few.dropped["more vCPUs than --max-vcpus"] == len(every) - len(few.options) > 0
    for option in few.options:
        assert option.vcpus == option.machines * 8 + 4 * option.config.servers.param_servers


def test_environments_stay_within_the_account():
    catalogue = Catalogue(replace(ASKED, servers=[4], backends=["lambda"], concurrency=10))
    assert max(option.environments for option in catalogue.options) <= 10


def test_an_environment_must_hold_its_tasks():
    catalogue = Catalogue(
        Asked(Config(), FRIENDSTER, Epochs(10), Speeds(), servers=[2], backends=["lambda"], instances=["r7g.2xlarge"])
    )
    assert catalogue.dropped["an environment needs more memory than it has"]
    assert 192 not in {option.config.lambdas.memory_mb for option in catalogue.options}


def test_a_slower_family_has_a_slower_floor_and_its_lambdas_do_not():
    threads = RESOURCES.index("graph threads")
    same = replace(ASKED, speeds=replace(Speeds(), flop_ns=1.0))  # no peak is so slow
    slow, fast = (
        next(o for o in Catalogue(replace(same, instances=[name], servers=[1], backends=["cpu"])).options)
        for name in ("c6g.2xlarge", "c8g.2xlarge")
    )
    assert slow.floors.table[:, threads].sum() == pytest.approx(fast.floors.table[:, threads].sum() / 0.62)
    core_s = [
        next(
            o for o in Catalogue(replace(ASKED, instances=[name], servers=[1], backends=["lambda"], lambdas=2)).options
        ).floors.core_s
        for name in ("c6g.2xlarge", "c8g.2xlarge")
    ]
    assert core_s[0] == pytest.approx(core_s[1])


def test_unknown_and_retired_types_are_refused():
    for name in ("z9.huge", "p3.2xlarge"):
        with pytest.raises(PriceUnknown, match=name):
            Catalogue(replace(ASKED, instances=[name]))


# --- GPUs -------------------------------------------------------------------------------------------------------------

WITH_GPUS = replace(ASKED, instances=["g6.xlarge", "g4dn.2xlarge", "p4d.24xlarge", "c7g.2xlarge"], servers=[1, 4, 8])


def test_machines_with_one_gpu_are_for_the_backend_gpu_and_all_of_one_machine_for_vanilla():
    found = Catalogue(WITH_GPUS)
    kinds = {
        (option.backend, option.machine.name, option.machines, option.in_pipe.servers)
        for option in found.options
        if option.card
    }
    servers = {("gpu", name, count, count) for name in ("g6.xlarge", "g4dn.2xlarge") for count in (1, 4, 8)}
    ranks = {("vanilla", "g6.xlarge", 1, 1), ("vanilla", "g4dn.2xlarge", 1, 1), ("vanilla", "p4d.24xlarge", 1, 8)}
    assert kinds == servers | ranks
    assert {option.machine.name for option in found.options if not option.card} == {"c7g.2xlarge"}
    assert found.dropped["several GPUs, of which a graph server uses one"]


def test_a_card_must_hold_what_lies_on_it():
    wide = Config().replace({"model.hidden": "64"})
    asked = Asked(
        wide, FRIENDSTER, Epochs(10), Speeds(), instances=["g4dn.2xlarge", "p4d.24xlarge"], backends=["gpu", "vanilla"]
    )
    found = Catalogue(asked)
    assert found.dropped["a GPU has too little memory"]
    for option in found.options:
        assert option.card is not None
        assert option.memory_gib[CARD] <= USABLE * option.card.memory_gib or option.needs_low_cut
    assert min(option.in_pipe.servers for option in found.options) > 1


def test_a_model_without_layers_of_the_baselines_has_no_vanilla():
    for name, there in (("gat", True), ("rgcn", False)):
        model = Config().replace({"model.name": name})
        assert (
            "vanilla" in {option.backend for option in Catalogue(replace(WITH_GPUS, config=model)).options}
        ) == there


def test_attention_keeps_its_rows_and_sums_on_the_host():
    gat = replace(WITH_GPUS, config=Config().replace({"model.name": "gat"}), backends=["gpu"], servers=[1])
    found = {
        name: next(iter(Catalogue(one).options)) for name, one in (("gat", gat), ("gcn", replace(gat, config=Config())))
    }
    gathers = {
        name: [
            work for step, work in zip(option.in_pipe.program.steps, option.in_pipe.work, strict=True) if step.gathers
        ][1]
        for name, option in found.items()
    }
    assert gathers["gat"].card == 0 < gathers["gcn"].card
    assert gathers["gat"].seconds > gathers["gcn"].seconds


def test_every_card_that_can_be_rented_has_figures_and_a_source():
    for machine in prices.instances():
        if machine.gpu:
            card = cards.card_of(machine)
            assert card is not None, machine.gpu
            assert card.source
            assert card.as_of
    machine = prices.instance("p5.48xlarge")
    card = cards.card_of(machine)
    assert card is not None
    assert (cards.count_of(machine), card.memory_gib, card.bytes_per_s) == (8, 80.0, 3.35e12)
    assert cards.card_of(prices.instance("c7g.2xlarge")) is None


def test_sums_take_a_cards_memory_products_the_longer_of_both_and_copies_ordinary_memory():
    t4 = cards.card_of(prices.instance("g4dn.xlarge"))
    assert t4 is not None
    assert t4.gather_s(1e9, 0, 120) == pytest.approx(1e-4 + 128e9 / 160e9)
    assert t4.product_s(8.1e12, 1.0, orders=3) == pytest.approx(3e-4 + 2)
    assert t4.product_s(1.0, 320e9, orders=1) == pytest.approx(1e-4 + 2)
    assert t4.copy_s(4e9) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("name", "backend", "code", "spot"),
    [
        ("g6.xlarge", "gpu", "L-DB2E81BA", "L-3819A6DF"),
        ("p5.4xlarge", "gpu", "L-417A185B", "L-C4BD4855"),
        ("p4d.24xlarge", "vanilla", "L-417A185B", "L-7212CCBC"),
    ],
)
def test_vcpus_of_gpus_are_counted_by_quotas_of_their_own(name, backend, code, spot):
    asked = replace(ASKED, instances=[name], backends=[backend], servers=[1, 8])
    option = next(o for o in Catalogue(asked).options if o.in_pipe.servers == (8 if backend == "vanilla" else 1))
    found = needed(option)
    assert found["vcpus_quota"]["code"] == code
    params = {"L-1216C47A": 4 * option.config.servers.param_servers} if backend == "gpu" else {}
    assert {one["code"]: one["needed"] for one in found["vcpus_by_quota"]} == {code: option.machine.vcpu, **params}
    assert found["vcpus"] == option.machine.vcpu + sum(params.values())
    assert "a new account has none" in found["raise"][0]
    assert needed(replace(option, config=option.config.replace({"cloud.spot": True})))["vcpus_quota"]["code"] == spot


def test_vcpus_are_added_in_one_place():
    for option in Catalogue(replace(ASKED, backends=["cpu", "gpu", "vanilla"])).options:
        found = needed(option)
        assert found["vcpus"] == option.vcpus == sum(one["needed"] for one in found["vcpus_by_quota"])


def test_quotas_count_all_servers():
    option = next(o for o in Catalogue(ASKED).options if o.kind[0] == "lambda" and o.in_pipe.servers == 4)
    found = needed(option)
    assert found["vcpus"] == 4 * 8 + 4 * option.config.servers.param_servers
    assert found["vcpus_quota"]["code"] == "L-1216C47A"
    assert found["lambda_concurrency"] == {"needed": option.environments, "default": 1000}
    spot = replace(option, config=option.config.replace({"cloud.spot": True}))
    assert needed(spot)["vcpus_quota"]["code"] == "L-34B43A08"


def test_a_burst_counts_for_five_minutes():
    machine = prices.instance("c7g.2xlarge")  # 3.75 Gbps, 15 in a burst
    fast, slow = 15e9 / 8, 3.75e9 / 8
    rates = [
        cores.link_of(machine, nbytes, connections=99).bytes_per_s
        for nbytes in (1e6, fast * 300, fast * 300 + slow * 300)
    ]
    assert rates == pytest.approx([fast, fast, (fast + slow) / 2])
    assert cores.link_of(machine, 1e18, connections=99).bytes_per_s == pytest.approx(slow, rel=1e-3)
    assert cores.link_of(machine, 1e6, connections=1).bytes_per_s == 5e9 / 8


def test_every_family_that_can_be_rented_has_a_speed_and_a_source():
    with cores.FILE.open() as file:
        rows = {row["family"]: row for row in csv.DictReader(file)}
    ours = {cores.family(machine) for machine in prices.instances()} - set(cores.BURSTABLE)
    assert ours <= rows.keys()
    assert all(row["source"] and 0 < float(row["speed"]) <= 1 for row in rows.values())


def test_asynchrony_needs_more_epochs():
    assert [round(ratio(*mode), 2) for mode in MODES] == [1.0, 1.08, 1.41, 1.0]
    assert Epochs(100).of("async", 0) == 108
    assert Epochs(100, {("async", 0): 90}).of("async", 0) == 90
