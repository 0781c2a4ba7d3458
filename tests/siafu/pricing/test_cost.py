"""What runs and deployments cost, against sums done by hand from the price lists."""

from __future__ import annotations

import random
from datetime import date
from typing import Any

import pytest

from siafu.config import Config
from siafu.errors import PriceUnknown
from siafu.pricing import cost
from siafu.pricing.prices import instance, instances, rates


def config(**settings: object) -> Config:
    """Of a run with Lambdas, unless it is said otherwise."""
    changes = {key.replace("__", "."): value for key, value in settings.items()}
    return Config().replace({"servers.backend": "lambda", **changes})


def test_an_instance_has_its_size_network_and_price():
    found = instance("c7g.2xlarge")
    assert (found.arch, found.vcpu, found.mem_gib, found.network_baseline_gbps) == ("arm64", 8, 16.0, 3.75)
    assert (found.usd_per_hour, found.spot_saving, found.region, found.as_of) == (0.29, 0.69, "us-east-1", "2026-07-20")
    assert found.price(spot=True) == pytest.approx(0.29 * 0.31)


def test_where_the_spot_saving_is_unknown_it_is_none():
    assert instance("c8i.2xlarge").spot_saving is None
    assert instance("c8i.2xlarge").price(spot=True) == instance("c8i.2xlarge").price() == 0.37484


@pytest.mark.parametrize(
    ("name", "region", "message"),
    [
        ("x9.huge", "us-east-1", r"^x9\.huge in us-east-1: not among the \d+ instance types whose price is known$"),
        ("c7g.2xlarge", "eu-west-1", r"^c7g\.2xlarge in eu-west-1: prices are known for us-east-1$"),
    ],
)
def test_what_has_no_price_is_named(name: str, region: str, message: str):
    with pytest.raises(PriceUnknown, match=message):
        instance(name, region)


def test_every_default_instance_has_a_price_and_every_row_makes_sense():
    cloud = config().cloud
    assert {cloud.graph_instance, cloud.param_instance} <= {found.name for found in instances()}
    for found in instances():
        assert found.arch in ("arm64", "x86_64")
        assert 0 < found.price(spot=True) <= found.price() < 100
        assert found.vcpu > 0
        assert found.mem_gib > 0


@pytest.mark.parametrize(
    ("gb_s", "arch", "used", "usd"),
    [
        (3600 * 0.1875, "x86_64", 0, 0.01125),  # an hour of 192 MB: the paper's figure
        (3600 * 0.1875, "arm64", 0, 0.0090),
        (7e9, "x86_64", 0, 6e9 * 0.0000166667 + 1e9 * 0.000015),
        (1e9, "x86_64", 14.5e9, 0.5e9 * 0.000015 + 0.5e9 * 0.0000133334),
        (20e9, "arm64", 0, 7.5e9 * 0.0000133334 + 11.25e9 * 0.0000120001 + 1.25e9 * 0.0000106667),
        (0, "arm64", 0, 0),
    ],
)
def test_lambda_is_charged_in_tiers_of_the_month(gb_s: float, arch: str, used: float, usd: float):
    assert cost.lambda_usd(0, gb_s, arch, used_gb_s=used) == pytest.approx(usd, rel=1e-5)


def test_a_million_requests_cost_20_cents():
    assert cost.lambda_usd(1e6, 0) == pytest.approx(0.20)


def test_an_unknown_architecture_has_no_price():
    with pytest.raises(PriceUnknown, match=r"^lambda_compute on vax in us-east-1: its price is not known$"):
        cost.lambda_usd(1, 1, "vax")


def test_servers_are_charged_by_the_second_and_a_minute_at_least():
    asked = config(run__on="aws", cloud__graph_instance="c5.2xlarge")
    parts = [cost.of_run(asked, requests=0, gb_s=0, seconds=s).parts["graph_servers"] for s in (1, 60, 3600)]
    assert parts == pytest.approx([0.34 / 60, 0.34 / 60, 0.34])


def test_tiers_begin_at_nothing_and_get_cheaper():
    for arch in ("arm64", "x86_64"):
        tiers = rates("lambda_compute", arch)
        assert tiers[0].above == 0
        assert [tier.above for tier in tiers] == sorted(tier.above for tier in tiers)
        assert [tier.usd for tier in tiers] == sorted((tier.usd for tier in tiers), reverse=True)


def test_a_deployment_costs_its_servers_volumes_and_endpoints_by_the_hour():
    asked = config(data__parts=4, servers__param_servers=2, cloud__volume_gib=20)
    volumes = 6 * 20 * 0.08 / 730
    assert cost.standing(asked).parts == pytest.approx(
        {"graph_servers": 1.16, "param_servers": 0.29, "volumes": volumes, "endpoints": 0.02}
    )
    assert set(cost.standing(config()).parts) == {"graph_servers", "param_servers", "volumes", "endpoints"}
    assert cost.standing(config(cloud__spot=True)).parts["graph_servers"] == pytest.approx(0.29 * 0.31)
    assert cost.standing(asked).as_of == "2026-07-20"


@pytest.mark.parametrize(
    ("settings", "number"),
    [
        ({"servers__security": "none"}, 1),
        ({}, 2),
        ({"cloud__shell": True}, 3),
    ],
)
def test_secrets_and_a_shell_need_more_endpoints(settings: dict[str, object], number: int):
    assert cost.num_endpoints(config(**settings)) == number


def test_a_type_that_nobody_knows_the_spot_saving_of_is_not_said_to_be_cheaper():
    asked = config(
        run__on="aws", cloud__spot=True, cloud__graph_instance="c8i.2xlarge", cloud__param_instance="c7g.2xlarge"
    )
    assert cost.bought(asked, "c7g.2xlarge") == " (spot)"
    assert cost.bought(asked, "c8i.2xlarge") == " (spot, counted on demand: what it saves is not known)"
    assert cost.bought(config(), "c7g.2xlarge") == ""
    assert cost.of_run(asked, requests=0, gb_s=0, seconds=1).counted == (
        "Lambda's price for local workers, servers at spot prices, their volumes and endpoints for as long as the "
        "run took, of them c8i.2xlarge at on-demand prices: what spot saves is not known"
    )


def test_environments_cost_their_memory_by_the_hour():
    assert cost.lambda_per_hour(config(), 100) == pytest.approx(0.90, rel=1e-4)


def test_a_local_run_counts_what_lambda_would_charge_and_no_servers():
    found = cost.of_run(config(), requests=1e6, gb_s=1e5, seconds=1e4)
    assert found.parts == pytest.approx({"lambda": 0.2 + 1.33334})
    assert found.counted == "Lambda's price for local workers, local servers not priced"
    assert (found.region, found.as_of) == ("us-east-1", "2026-11-20")
    assert found.to_dict()["usd"] == found.usd == pytest.approx(1.53334)


def test_a_local_run_without_lambdas_costs_nothing():
    assert cost.of_run(config(servers__backend="cpu"), requests=0, gb_s=0, seconds=1e4).usd == 0


def test_a_run_on_aws_is_charged_its_servers_time_and_is_as_old_as_its_oldest_price():
    asked = config(
        run__on="aws",
        lambda__on="aws",
        data__parts=8,
        cloud__param_instance="c5.xlarge",
        cloud__volume_gib=20,
        cloud__gpu_instance="p5.48xlarge",  # of baselines alone
    )
    found = cost.of_run(asked, requests=0, gb_s=0, seconds=1800)
    assert found.parts == pytest.approx(
        {
            "lambda": 0,
            "graph_servers": 8 * 0.145,
            "param_servers": 0.085,
            "volumes": 9 * 20 * 0.04 / 730,
            "endpoints": 2 * 0.005,
            "s3": 0.5 * (9 * (3600 * 0.0000004 + 720 * 0.000005) + 3960 * 0.000005),
        }
    )
    assert found.counted == "Lambda, servers, their volumes and endpoints for as long as the run took"
    assert found.as_of == "2026-07-20"


# --- the lines of a bill, by hand -------------------------------------------------------------------------------------


def lines(found: cost.Cost) -> dict[str, tuple[str, float, float]]:
    """What -> (part, quantity, USD)."""
    return {item.what: (item.part, item.quantity, item.usd) for item in found.items}


def approximately(expected: dict[str, tuple[str, float, float]]) -> dict[str, tuple[str, Any, Any]]:
    return {
        what: (part, pytest.approx(quantity), pytest.approx(usd)) for what, (part, quantity, usd) in expected.items()
    }


ON_AWS = {
    "run__on": "aws",
    "lambda__on": "aws",
    "data__parts": 4,
    "servers__param_servers": 2,
    "cloud__volume_gib": 100,
    "cloud__graph_instance": "c5.2xlarge",
    "cloud__param_instance": "c7g.xlarge",
}


def test_a_bill_has_a_line_for_each_thing_that_is_paid_for():
    """Half an hour of 4 + 2 servers, and 1,000 invocations of 192 MB for 10 s, each after 400 ms of INIT."""
    init, work = (cost.memory_gb_s(1000 * each_s, 192) for each_s in (0.4, 10))
    found = cost.of_run(config(**ON_AWS), requests=1000, gb_s=init + work, init_gb_s=init, seconds=1800)
    assert lines(found) == approximately(
        {
            "requests": ("lambda", 1000, 0.0002),
            "arm64, INIT": ("lambda", 75, 0.001000005),
            "arm64": ("lambda", 1875, 0.025000125),
            "4 x c5.2xlarge": ("graph_servers", 2, 0.68),
            "2 x c7g.xlarge": ("param_servers", 1, 0.145),
            "600 GiB gp3": ("volumes", 300 / 730, 0.03287671),
            "interface endpoints": ("endpoints", 1.0, 0.01),
            "GET": ("s3", 10_800, 0.00432),
            "PUT": ("s3", 2_160, 0.0108),
            "LIST": ("s3", 1_980, 0.0099),
        }
    )
    assert found.usd == pytest.approx(0.91909684)
    assert found.to_dict()["items"][0]["usd"] == pytest.approx(0.0002)


def test_every_line_says_where_its_price_is_from():
    for item in cost.of_run(config(**ON_AWS), requests=1, gb_s=1, seconds=1).items:
        assert item.source
        assert date.fromisoformat(item.as_of)


def test_spot_is_said_and_charged_where_it_is_known():
    asked = config(**ON_AWS | {"cloud__param_instance": "c8i.2xlarge"}, cloud__spot=True)
    found = cost.of_run(asked, requests=0, gb_s=0, seconds=3600)
    assert lines(found)["4 x c5.2xlarge, spot"] == ("graph_servers", 4, pytest.approx(4 * 0.34 * 0.44))
    # nobody knows what spot saves of it
    assert lines(found)["2 x c8i.2xlarge"] == ("param_servers", 2, pytest.approx(2 * 0.37484))


def test_a_spot_price_has_the_date_of_what_spot_saves():
    on_demand, spot = (
        cost.of_run(config(**ON_AWS, cloud__spot=spot), requests=0, gb_s=0, seconds=3600) for spot in (False, True)
    )
    dates = {item.what: item.as_of for item in (*on_demand.items, *spot.items)}
    assert dates["4 x c5.2xlarge"] == "2026-07-20"
    assert dates["4 x c5.2xlarge, spot"] == "2025-06-28"
    assert (on_demand.as_of, spot.as_of) == ("2026-07-20", "2025-06-28")


def test_an_unused_months_free_tier_pays_for_small_runs():
    assert cost.free_usd(500, 1000, "arm64") == pytest.approx(cost.lambda_usd(500, 1000))
    most = 1_000_000 * 0.0000002 + 400_000 * 0.0000133334
    assert cost.free_usd(10**9, 10**9, "arm64") == pytest.approx(most)
    assert cost.free_usd(0, 10**9, "x86_64") == pytest.approx(400_000 * 0.0000166667)


def test_tiers_that_are_reached_have_a_line_each():
    found = cost.of_run(config(cloud__arch="x86_64"), requests=0, gb_s=16e9, seconds=1)
    assert lines(found) == {
        "requests": ("lambda", 0, 0),
        "x86_64": ("lambda", 6e9, pytest.approx(100_000.2)),
        "x86_64, above 6e+09": ("lambda", 9e9, pytest.approx(135_000)),
        "x86_64, above 1.5e+10": ("lambda", 1e9, pytest.approx(13_333.4)),
    }


@pytest.mark.parametrize(
    ("settings", "zone_gb", "usd"),
    [
        ({"run__on": "aws", "lambda__on": "aws"}, 0, 0),  # one zone, private addresses
        ({"run__on": "aws", "lambda__on": "aws"}, 50, 2 * 50 * 0.01),  # both sides pay
        ({"run__on": "local", "lambda__on": "aws"}, 0, 10_240 * 0.09 + 760 * 0.085),
        ({"run__on": "local", "lambda__on": "local"}, 0, 0),
        ({"run__on": "local", "servers__backend": "cpu", "lambda__on": "aws"}, 0, 0),
    ],
)
def test_traffic_costs_where_it_leaves_the_zone_or_aws(settings: dict[str, Any], zone_gb: float, usd: float):
    found = cost.of_run(config(**settings), requests=0, gb_s=0, seconds=1, sent_gb=11_000, zone_gb=zone_gb)
    assert found.parts.get("traffic", 0) == pytest.approx(usd)


def test_orders_are_those_that_an_agent_at_work_asks_for():
    from infra.machines import agent_loop, runfiles

    assert cost.S3_GETS_PER_HOUR == 3600 / agent_loop.POLL_S
    assert cost.S3_PUTS_PER_HOUR == 3600 / agent_loop.POLL_S / agent_loop.BEAT
    assert cost.S3_LISTS_PER_HOUR == 3600 / agent_loop.POLL_S + 3600 / runfiles.SLOWEST_S


def test_a_bill_can_be_made_again_from_its_amounts():
    asked = config(**ON_AWS)
    found = cost.of_run(asked, requests=12, gb_s=30, init_gb_s=2, seconds=700, sent_gb=3)
    assert cost.of_run(asked, **found.amounts) == found
    usage = {"invocations": 12, "gb_s": 30, "init_ms": 2 / 0.1875 * 1000, "bytes_in": 3e9}
    assert cost.of_run(asked, **cost.amounts_of(asked, usage, 700)).parts == pytest.approx(found.parts)


def test_a_baseline_is_its_machine_and_its_disk():
    from siafu.baseline import BaselineConfig

    asked = BaselineConfig().replace({"cloud.gpu_instance": "g4dn.xlarge"})
    found = cost.of_baseline(asked, seconds=7200)
    assert found is not None
    assert lines(found) == approximately(
        {"1 x g4dn.xlarge": ("gpu", 2, 1.052), "120 GiB gp3": ("volumes", 240 / 730, 0.02630137)}
    )
    with pytest.raises(PriceUnknown, match=r"^p3\.2xlarge in us-east-1: AWS no longer offers it"):
        cost.of_baseline(asked.replace({"cloud.gpu_instance": "p3.2xlarge"}), seconds=1)


# --- properties -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_more_never_costs_less_and_what_is_used_in_two_goes_costs_the_same(seed: int):
    rng = random.Random(seed)
    arch = rng.choice(("arm64", "x86_64"))
    first, second = (rng.choice((0, 1, 1e6, 5e9, 2e10)) * rng.random() for _ in range(2))
    together = cost.lambda_usd(0, first + second, arch)
    assert together == pytest.approx(
        cost.lambda_usd(0, first, arch) + cost.lambda_usd(0, second, arch, used_gb_s=first)
    )
    assert together >= max(cost.lambda_usd(0, first, arch), cost.lambda_usd(0, second, arch))

    asked = config(**ON_AWS, cloud__spot=rng.random() < 0.5)
    seconds = sorted(10 ** rng.uniform(0, 6) for _ in range(5))
    bills = [cost.of_run(asked, requests=9, gb_s=first, seconds=length) for length in seconds]
    assert [bill.usd for bill in bills] == sorted(bill.usd for bill in bills)
    for length, bill in zip(seconds, bills, strict=True):
        assert (
            bill.usd == pytest.approx(sum(item.usd for item in bill.items)) == pytest.approx(sum(bill.parts.values()))
        )
        if length >= 60:
            twice = cost.of_run(asked, requests=18, gb_s=0, seconds=2 * length).usd
            assert twice == pytest.approx(2 * cost.of_run(asked, requests=9, gb_s=0, seconds=length).usd)


@pytest.mark.parametrize("arch", ["arm64", "x86_64"])
def test_a_tiers_price_begins_just_above_its_boundary(arch: str):
    for before, tier in zip(rates("lambda_compute", arch), rates("lambda_compute", arch)[1:], strict=False):
        below = cost.lambda_usd(0, tier.above, arch) - cost.lambda_usd(0, tier.above - 1000, arch)
        above = cost.lambda_usd(0, tier.above + 1000, arch) - cost.lambda_usd(0, tier.above, arch)
        assert (below, above) == (pytest.approx(1000 * before.usd, rel=1e-4), pytest.approx(1000 * tier.usd, rel=1e-4))
