"""Price lists: what every row of ours has, how another one goes before them, and which are refused. Rules are those of
``siafu.pricing.prices``."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from siafu.errors import ConfigError, PriceUnknown
from siafu.pricing import prices
from siafu.pricing.prices import instance, instances, rates

MINE = (
    "instance,arch,vcpu,mem_gib,usd_per_hour_on_demand,spot_saving_pct,region,as_of,source\n"
    "c7g.2xlarge,arm64,8,16,0.2,40,us-east-1,2026-11-22,our contract\n"
    "x9.huge,x86_64,64,512,3.5,,eu-west-1,2026-11-22,our contract\n"
)
TIERS = "item,arch,above,usd,unit,region,as_of,source\n"


@pytest.fixture(autouse=True)
def ours() -> Iterator[None]:
    yield
    prices.use(None)


def written(folder: Path, text: str) -> Path:
    file = folder / "mine.csv"
    file.write_text(text)
    return file


# --- ours -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", prices.OURS)
def test_every_row_has_a_region_a_date_and_a_source(name):
    with (prices.FOLDER / name).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    for row in rows:
        assert row["region"] == "us-east-1"
        assert date(2026, 7, 20) <= date.fromisoformat(row["as_of"]) <= date(2026, 11, 22)
        assert len(row["source"]) > 10


def test_lambda_has_tiers_of_both_architectures():
    assert [(tier.above, tier.usd) for tier in rates("lambda_compute", "x86_64")] == [
        (0, 0.0000166667),
        (6e9, 0.000015),
        (15e9, 0.0000133334),
    ]
    assert [(tier.above, tier.usd) for tier in rates("lambda_compute", "arm64")] == [
        (0, 0.0000133334),
        (7.5e9, 0.0000120001),
        (18.75e9, 0.0000106667),
    ]
    assert [tier.usd for tier in rates("lambda_request")] == [2e-7]


def test_a_retired_type_has_a_price_for_those_alone_who_ask_for_what_was():
    assert instance("p3.2xlarge", retired=True).usd_per_hour == 3.06
    message = r"^p3\.2xlarge in us-east-1: AWS no longer offers it, its price of 2026-07-20 is history$"
    with pytest.raises(PriceUnknown, match=message):
        instance("p3.2xlarge")
    assert not {"p2.xlarge", "p3.2xlarge"} & {found.name for found in instances()}


@pytest.mark.parametrize(
    ("as_of", "warning"),
    [("2026-11-22", ""), ("2026-05-26", ""), ("2026-05-25", ": 181 days old"), ("2026-12-01", ""), ("", "")],
)
def test_old_prices_are_warned_of(as_of, warning):
    assert prices.age(as_of, date(2026, 11, 22)) == warning


# --- others -----------------------------------------------------------------------------------------------------------


def test_rows_of_another_list_go_before_ours_until_ours_alone_are_asked_for(tmp_path):
    prices.use(written(tmp_path, MINE))
    found = instance("c7g.2xlarge")
    assert (found.usd_per_hour, found.spot_saving, found.as_of, found.source) == (
        0.2,
        0.4,
        "2026-11-22",
        "our contract",
    )
    assert instance("x9.huge", "eu-west-1").network_gbps is None
    assert instance("c5.2xlarge").usd_per_hour == 0.34
    prices.use("")
    assert instance("c7g.2xlarge").usd_per_hour == 0.29


def test_what_spot_saves_may_have_a_date_of_its_own(tmp_path):
    assert all(one.spot_as_of == "2025-06-28" for one in instances() if one.spot_saving is not None)
    ours = instance("c7g.2xlarge")
    assert (ours.dated(), ours.dated(spot=True)) == ("2026-07-20", "2025-06-28")
    prices.use(written(tmp_path, MINE))
    assert instance("c7g.2xlarge").dated(spot=True) == "2026-11-22"  # that of the row, without one
    told = (
        MINE.replace("saving_pct,", "saving_pct,spot_as_of,")
        .replace(",40,", ",40,2026-01-02,")
        .replace("3.5,,", "3.5,,,")
    )
    prices.use(written(tmp_path, told))
    assert instance("c7g.2xlarge").dated(spot=True) == "2026-01-02"
    with pytest.raises(ConfigError, match="line 2: spot_as_of = yesterday: must be a date"):
        prices.use(written(tmp_path, told.replace("2026-01-02", "yesterday")))


def test_a_list_may_be_of_services_and_all_tiers_of_one_change_together(tmp_path):
    rows = [f"lambda_compute,arm64,{above},{usd},GB-s,us-east-1,2026-11-22,mine" for above, usd in ((100, 1), (0, 2))]
    prices.use(written(tmp_path, TIERS + "\n".join(rows)))
    assert [(tier.above, tier.usd) for tier in rates("lambda_compute", "arm64")] == [(0, 2), (100, 1)]
    assert len(rates("lambda_compute", "x86_64")) == 3


def test_one_list_may_have_both(tmp_path):
    columns = "source,as_of,region,instance,item,arch,vcpu,mem_gib,usd_per_hour_on_demand,above,usd,unit\n"
    rows = (
        "s,2026-11-22,eu-west-1,c5.large,,x86_64,2,4,0.1,,,\ns,2026-11-22,eu-west-1,,volume_gp3,,,,,0,0.09,GiB-month\n"
    )
    prices.use(written(tmp_path, columns + rows))
    assert instance("c5.large", "eu-west-1").usd_per_hour == 0.1
    assert rates("volume_gp3", region="eu-west-1")[0].usd == 0.09


@pytest.mark.parametrize(
    ("was", "is_now", "message"),
    [
        ("vcpu", "cores", "line 1: unknown column 'cores'"),
        ("instance", "region", "line 1: column 'region' is there twice"),
        (",0.2,", ",-0.2,", "line 2: usd_per_hour_on_demand = -0.2: must be > 0"),
        (",0.2,", ",0,", "line 2: usd_per_hour_on_demand = 0: must be > 0"),
        (",3.5,", ",,", "line 3: usd_per_hour_on_demand is missing"),
        (",3.5,", ",cheap,", "line 3: usd_per_hour_on_demand = cheap: must be a number"),
        (",3.5,", ",nan,", "line 3: usd_per_hour_on_demand = nan: must be > 0"),
        (",40,", ",140,", "line 2: spot_saving_pct = 140: must be >= 0 and <= 99"),
        ("x9.huge,x86_64", "x9.huge,vax", "line 3: arch = vax: must be one of arm64, x86_64"),
        (",64,", ",6.4,", "line 3: vcpu = 6.4: must be a whole number"),
        (
            "2026-11-22,our contract\nx9",
            "22.11.2026,our contract\nx9",
            "line 2: as_of = 22.11.2026: must be a date such as 2026-11-22",
        ),
        (
            "2026-11-22,our contract\nx9",
            "2026-02-30,our contract\nx9",
            "line 2: as_of = 2026-02-30: must be a date such as 2026-11-22",
        ),
        ("2026-11-22,our contract\nx9", ",our contract\nx9", "line 2: as_of is missing"),
        ("our contract\nx9", "\nx9", "line 2: source is missing"),
        ("x9.huge", "", "line 3: a row is of an instance or of an item"),
        (",our contract\nx9", "\nx9", "line 2: must have 9 cells, as line 1 has"),
        ("our contract\nx9", "our contract, of May\nx9", "line 2: must have 9 cells, as line 1 has"),
        (
            "x9.huge,x86_64,64,512,3.5,,eu-west-1",
            "c7g.2xlarge,arm64,8,16,1,,us-east-1",
            "line 3: c7g.2xlarge in us-east-1 is there already",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_line(was, is_now, message, tmp_path):
    file = written(tmp_path, MINE.replace(was, is_now, 1))
    with pytest.raises(ConfigError) as refused:
        prices.use(file)
    assert str(refused.value) == f"{file}, {message}"
    assert instance("c7g.2xlarge").usd_per_hour == 0.29


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("lambda_compute,,0,1,GB-s,us-east-1,2026-11-22,s", ", line 2: arch = empty: must be one of arm64, x86_64"),
        ("volume_gp3,arm64,0,1,GiB-month,us-east-1,2026-11-22,s", ", line 2: arch = arm64: must be empty"),
        ("volume_gp3,,0,1,hour,us-east-1,2026-11-22,s", ", line 2: unit = hour: must be GiB-month"),
        ("volume_gp3,,0,-1,GiB-month,us-east-1,2026-11-22,s", ", line 2: usd = -1: must be >= 0"),
        ("volume_gp3,,5,1,GiB-month,us-east-1,2026-11-22,s", ": volume_gp3 us-east-1: no tier begins above 0"),
        (
            "s3_get,,0,1,request,us-east-1,2026-11-22,s\ns3_get,,0,2,request,us-east-1,2026-11-22,s",
            ", line 3: s3_get us-east-1 above 0 is there already",
        ),
    ],
)
def test_so_is_a_service_that_is_none(row, message, tmp_path):
    file = written(tmp_path, TIERS + row + "\n")
    with pytest.raises(ConfigError) as refused:
        prices.use(file)
    assert str(refused.value) == f"{file}{message}"


def test_a_service_nobody_knows_is_named_beside_those_that_are(tmp_path):
    with pytest.raises(ConfigError, match="line 2: item = nat: must be one of lambda_request, lambda_compute, "):
        prices.use(written(tmp_path, TIERS + "nat,,0,1,hour,us-east-1,2026-11-22,s\n"))


@pytest.mark.parametrize(
    ("content", "message"), [(None, "No such file"), (b"\xff\xfe\x00", "codec"), (b"", "no column")]
)
def test_what_is_no_list_is_refused(content, message, tmp_path):
    file = tmp_path / "mine.csv"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        prices.use(file)


def test_verbs_have_one_flag_for_it():
    parser = argparse.ArgumentParser()
    prices.add_argument(parser)
    assert parser.parse_args([]).prices == ""
    assert parser.parse_args(["--prices", "mine.csv"]).prices == "mine.csv"
