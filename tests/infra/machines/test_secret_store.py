"""Secrets of runs in Systems Manager, moto's."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from infra.machines import secret_store as vaults
from infra.machines.agent_state import Order
from infra.machines.secret_store import Vault, parameter
from siafu.errors import ConfigError, PeerLost, RemoteProtocolError
from tests.infra.deployment import bucket

RUN_ID, SECRET = bytes.fromhex("0123456789abcdef"), bytes(range(32))
NAME = "/siafu/siafu/graph_server/0123456789abcdef"


@pytest.fixture(scope="module")
def vault() -> Iterator[Vault]:
    with bucket() as mailbox:
        yield Vault(endpoint=mailbox.endpoint, region="us-east-1")


def test_a_secret_comes_out_as_it_went_in_and_is_gone_once_removed(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vaults, "APPEAR_S", 0.0)
    assert parameter("siafu", "graph_server", RUN_ID) == NAME
    vault.put(NAME, SECRET)
    assert vault.get(NAME) == SECRET
    found = {listed["Name"]: listed["Type"] for listed in vault._ssm.describe_parameters()["Parameters"]}
    assert found[NAME] == "SecureString"
    vault.remove([NAME])
    vault.remove([NAME])
    with pytest.raises(ConfigError, match=f"{NAME}.*ParameterNotFound"):
        vault.get(NAME)


def test_a_secret_that_is_not_there_yet_is_waited_for(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the coordinator has put may not be seen by a machine at once."""
    name, looks = parameter("late", "graph_server", RUN_ID), []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            vault.put(name, SECRET)

    monkeypatch.setattr(vaults, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: sum(looks)))
    assert vault.get(name) == SECRET
    vault.remove([name])
    with pytest.raises(ConfigError, match="ParameterNotFound"):
        vault.get(name)
    assert vaults.APPEAR_S < sum(looks[3:]) < vaults.APPEAR_S + 2.0


def test_a_secret_that_is_put_again_is_the_last_one(vault: Vault) -> None:
    """An answer that was lost made a run fail: boto3 asked again, and the parameter was there already."""
    name = parameter("siafu", "param_server", RUN_ID)
    for secret in (SECRET[::-1], SECRET, SECRET):
        vault.put(name, secret)
    assert vault.get(name) == SECRET
    vault.remove([name])


def test_what_is_no_secret_is_refused_and_not_shown(vault: Vault) -> None:
    name = parameter("other", "graph_server", RUN_ID)
    vault._ssm.put_parameter(Name=name, Value="a password", Type="String")
    with pytest.raises(RemoteProtocolError, match="not a secret of 32 bytes") as caught:
        vault.get(name)
    assert "password" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["", "/aws/reference/x", "/siafu/siafu/graph_server/../x", "/siafu/siafu/coordinator/0123456789abcdef", f"{NAME}0"],
)
def test_orders_name_secrets_of_runs_and_nothing_else(vault: Vault, name: str) -> None:
    with pytest.raises(RemoteProtocolError, match="not the name of a run's secret"):
        vault.get(name)
    order = Order("01234567", "start", "run", "0" * 64, secret=name)
    if name:
        with pytest.raises(RemoteProtocolError, match="not the name of a run's secret"):
            Order.of(order.value)
    else:
        assert Order.of(order.value) == order  # a run without keys


def test_a_service_out_of_reach_is_a_lost_peer() -> None:
    with pytest.raises(PeerLost, match="Systems Manager"):
        Vault(endpoint="http://127.0.0.1:1", region="us-east-1").get(NAME)
