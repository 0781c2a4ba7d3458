"""What runs and deployments cost, against sums done by hand from the price lists."""

from __future__ import annotations

import pytest

from bench import cost
from bench.prices import instance, instances, rates
from siafu.config import Config
from siafu.errors import PriceUnknown


def config(**settings: object) -> Config:
    return Config().replace({key.replace("__", "."): value for key, value in settings.items()})


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
    asked = config(data__parts=4, servers__param_servers=2, cloud__gpu_instance="g4dn.xlarge", cloud__volume_gib=20)
    volumes = (6 * 20 + 120) * 0.08 / 730  # the GPU machine's image needs more than 20 GiB
    assert cost.per_hour(asked) == pytest.approx(
        {"graph_servers": 1.16, "param_servers": 0.29, "gpu": 0.526, "volumes": volumes, "endpoints": 0.04}
    )
    assert set(cost.per_hour(config())) == {"graph_servers", "param_servers", "volumes", "endpoints"}
    assert cost.per_hour(config(cloud__spot=True))["graph_servers"] == pytest.approx(0.29 * 0.31)
    assert cost.per_hour(config(cloud__spot=True), on_demand=True) == cost.per_hour(config())


@pytest.mark.parametrize(
    ("settings", "number"), [({}, 1), ({"cloud__shell": True}, 4), ({"cloud__gpu_instance": "g5.xlarge"}, 4)]
)
def test_a_shell_and_a_gpu_machine_need_three_more_endpoints(settings: dict[str, object], number: int):
    assert cost.num_endpoints(config(**settings)) == number


def test_a_type_that_nobody_knows_the_spot_saving_of_is_not_said_to_be_cheaper():
    asked = config(
        run__on="aws", cloud__spot=True, cloud__graph_instance="c8i.2xlarge", cloud__param_instance="c7g.2xlarge"
    )
    assert cost.bought(asked, "c7g.2xlarge") == " (spot)"
    assert cost.bought(asked, "c8i.2xlarge") == " (spot, counted on demand: what it saves is not known)"
    assert cost.bought(config(), "c7g.2xlarge") == ""
    assert cost.of_run(asked, requests=0, gb_s=0, seconds=1).counted == (
        "what Lambda would charge for local, servers at spot prices, their volumes and endpoints for as long as the run took, "
        "of them c8i.2xlarge at on-demand prices: what spot saves is not known"
    )


def test_environments_cost_their_memory_by_the_hour():
    assert cost.lambda_per_hour(config(), 100) == pytest.approx(0.90, rel=1e-4)


def test_a_local_run_counts_what_lambda_would_charge_and_no_servers():
    found = cost.of_run(config(), requests=1e6, gb_s=1e5, seconds=1e4)
    assert found.parts == pytest.approx({"lambda": 0.2 + 1.33334})
    assert found.counted == "what Lambda would charge for local, no servers: run.on = local"
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
        cloud__gpu_instance="p5.48xlarge",
    )
    found = cost.of_run(asked, requests=0, gb_s=0, seconds=1800)
    assert found.parts == pytest.approx(
        {
            "lambda": 0,
            "graph_servers": 8 * 0.145,
            "param_servers": 0.085,
            "volumes": 9 * 20 * 0.04 / 730,
            "endpoints": 4 * 0.005,
        }
    )
    assert found.counted == "Lambda, servers, their volumes and endpoints for as long as the run took"
    assert found.as_of == "2026-07-20"
