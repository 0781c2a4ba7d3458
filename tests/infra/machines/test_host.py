"""The coordinator's side of the bucket: what it takes for a death, and how it gathers
its machines. Agents are played."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.machines import host as hosts
from infra.machines.address_exchange import Place
from infra.machines.agent_state import Order
from infra.machines.host import MachineHost, Report, Reports, await_agents
from infra.machines.mailbox import Mailbox, order_key, report_key, run_key
from run_coordinator import live_status
from run_coordinator.actions import Status
from run_coordinator.hosts import LOST
from siafu.address import Address, graph_server, param_server
from siafu.config import Config
from siafu.errors import ConfigError, PeerLost
from tests.infra.deployment import bucket, empty, until

G0, Q0 = graph_server(0), param_server(0)
DATA = "a" * 64


@pytest.fixture(scope="module")
def server() -> Iterator[Mailbox]:
    with bucket() as made:
        yield made


@pytest.fixture
def box(server: Mailbox) -> Mailbox:
    empty(server)
    return server


@pytest.fixture
def place(box: Mailbox) -> Place:
    return Place(box.bucket, "run", DATA, "127.0.0.1", endpoint=box.endpoint, poll_s=0.05)


def say(box: Mailbox, member: Address, **words: Any) -> None:
    """What the member's agent reports."""
    common = {"state": "waiting", "every_s": 60.0, "machine": "i-0abc", "host": "10.0.1.7", "ended": None, "order": ""}
    box.write(report_key(member), {**common, **words})


def order_of(box: Mailbox, member: Address) -> Order:
    letter = box.read(order_key(member))
    assert letter is not None
    return Order.of(letter.value)


@pytest.fixture
def host(box: Mailbox, place: Place, tmp_path: Path) -> Iterator[MachineHost]:
    place.write(tmp_path)
    say(box, G0)
    say(box, Q0)
    with MachineHost.make(Config(), tmp_path, tmp_path, bytes(8)) as made:
        yield made
        for member in list(made._orders):  # so that nobody waits for agents that nobody plays
            say(box, member, ended={"order": made._orders[member][0], "code": -9, "last_line": "", "kept": True})


# --- deaths -----------------------------------------------------------------------------------------------------------


def test_a_start_is_an_order_that_names_run_graph_and_coordinator(host: MachineHost, box: Mailbox) -> None:
    host.start(G0, "tcp://10.0.1.9:7000")
    order = order_of(box, G0)
    assert (order.do, order.run, order.data) == ("start", "run", DATA)
    assert (order.run_id, order.coordinator) == (bytes(8).hex(), "tcp://10.0.1.9:7000")
    assert host.dead() is None
    assert host.num_alive == 1


def test_a_role_that_no_machine_has_cannot_be_started(host: MachineHost) -> None:
    with pytest.raises(PeerLost, match="graph_server 7: no machine of the deployment has this role"):
        host.start(graph_server(7), "tcp://10.0.1.9:7000")


def test_an_end_of_another_order_is_no_death(host: MachineHost, box: Mailbox) -> None:
    host.start(G0, "tcp://10.0.1.9:7000")
    say(box, G0, ended={"order": "another", "code": -9, "last_line": "", "kept": True}, siafu="new")
    until(lambda: host._reports[G0].value.get("siafu"), "report")
    assert host.dead() is None


def test_a_machine_that_is_silent_is_lost_by_name(host: MachineHost, box: Mailbox) -> None:
    host.start(G0, "tcp://10.0.1.9:7000")
    host._stop.set()
    host._thread.join()
    host._reports = {**host._reports, G0: Report(host._reports[G0].value | {"every_s": 2.0}, 14.2)}
    death = host.dead()
    assert death is not None
    assert death.code == LOST
    assert str(death) == "graph_server 0 is lost: machine i-0abc (10.0.1.7) has said nothing for 14 s"
    assert host.num_alive == 0


def test_a_spot_notice_is_a_loss_by_name(host: MachineHost, box: Mailbox) -> None:
    host.start(G0, "tcp://10.0.1.9:7000")
    say(box, G0, notice="EC2 will terminate it at 08:00 (spot)")
    until(host.dead, "death")
    assert (
        str(host.dead()) == "graph_server 0 is lost: machine i-0abc (10.0.1.7): EC2 will terminate it at 08:00 (spot)"
    )


def test_a_known_end_goes_before_a_silent_machine(host: MachineHost, box: Mailbox) -> None:
    host.start(G0, "tcp://10.0.1.9:7000")
    host.start(Q0, "tcp://10.0.1.9:7000")
    say(box, G0, notice="EC2 takes it back (spot)")
    say(box, Q0, ended={"order": order_of(box, Q0).id, "code": -9, "last_line": "killed", "kept": True})
    until(lambda: (death := host.dead()) and death.member == Q0, "death of the parameter server")


def test_ends_of_any_shape_are_survived(host: MachineHost, box: Mailbox) -> None:
    host.start(G0, "tcp://10.0.1.9:7000")
    say(box, G0, ended={"order": order_of(box, G0).id, "code": "x", "last_line": None}, every_s="often")
    until(host.dead, "death")
    assert host.dead().code == LOST  # type: ignore[union-attr]


def test_a_start_that_was_taken_back_before_it_was_read_has_ended(host: MachineHost, box: Mailbox) -> None:
    host.start(G0, "tcp://10.0.1.9:7000")
    host.kill(G0)
    stop = order_of(box, G0)
    assert (stop.do, stop.run) == ("stop", "run")
    say(box, G0, order=stop.id)
    assert host.wait(60.0)


def test_the_coordinator_gives_a_sign_of_life(host: MachineHost, box: Mailbox) -> None:
    letter = box.read(run_key("run", "coordinator.json"))
    assert letter is not None
    assert not letter.silent


def test_a_laptop_is_no_place_for_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only a deployed machine can coordinate such a run"):
        MachineHost.make(Config(), tmp_path, tmp_path, bytes(8))


def test_reports_are_read_once_for_each_that_is_new(box: Mailbox) -> None:
    say(box, G0)
    box.put("machines/notes.txt", b"x")
    reports = Reports(box)
    first = reports.read()
    assert list(first) == [G0]
    assert reports.read()[G0].value is first[G0].value
    say(box, G0, state="running")
    assert reports.read()[G0].value["state"] == "running"


# --- await_agents -----------------------------------------------------------------------------------------------------


class Agents(threading.Thread):
    """Answers each order with the next of its reports."""

    def __init__(self, box: Mailbox, answers: dict[Address, list[dict[str, Any]]]):
        super().__init__()
        self._box, self._answers = box, answers

    def run(self) -> None:
        for member, answers in self._answers.items():
            until(lambda member=member: self._box.read(order_key(member)), "order")  # type: ignore[misc]
            for answer in answers:
                order = order_of(self._box, member)
                said = {**answer, "ended": {**answer["ended"], "order": order.id}} if answer.get("ended") else answer
                say(self._box, member, order=order.id, **said)
                time.sleep(0.05)


def test_await_agents_ends_when_every_machine_has_its_part(box: Mailbox, place: Place) -> None:
    ready = {"state": "ready", "fetched_bytes": 5, "fetch_bytes": 5}
    agents = Agents(box, {G0: [{"state": "fetching", "fetched_bytes": 2, "fetch_bytes": 5}, ready], Q0: [ready]})
    come: list[tuple[int, int]] = []

    def say_bytes(now: int, total: int, boots: list[Address]) -> None:
        if not come:
            agents.start()  # only now: nothing has come when await_agents looks first
        come.append((now, total))

    await_agents(box, place, [G0, Q0], 30.0, say_bytes)
    agents.join()
    assert come[0] == (0, 0)
    assert come[-1] == (10, 10)
    assert order_of(box, G0).do == "fetch"


def test_await_agents_names_the_machine_that_cannot_take_its_part(box: Mailbox, place: Place) -> None:
    agents = Agents(box, {G0: [{"ended": {"code": 1, "last_line": "disk full", "kept": True}}]})
    agents.start()
    with pytest.raises(PeerLost, match=r"graph_server 0: disk full \(machine i-0abc \(10.0.1.7\)\)"):
        await_agents(box, place, [G0, Q0], 60.0, lambda now, total, boots: None)
    agents.join()


@pytest.mark.long
def test_await_agents_names_a_machine_that_is_not_there_or_stands_still(
    box: Mailbox, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    with monkeypatch.context() as patch:
        patch.setattr(hosts, "BOOT_S", 0.2)
        patch.setattr(hosts, "time", SimpleNamespace(sleep=slept.append, monotonic=lambda: sum(slept)))
        with pytest.raises(
            ConfigError, match=r"graph_server 7: no machine of the deployment has this role.* waited 0 s"
        ):
            # no order for the other one lies about
            await_agents(box, place, [graph_server(7)], 0.1, lambda now, total, boots: None)
    assert 0.2 < sum(slept) < 0.3
    monkeypatch.setattr(hosts, "BOOT_S", 60.0)
    agents = Agents(box, {G0: [{"state": "fetching", "fetched_bytes": 2, "fetch_bytes": 5}]})
    agents.start()
    with pytest.raises(PeerLost, match=r"graph_server 0: nothing of its graph has come for 3 s"):
        await_agents(box, place, [G0], 3.0, lambda now, total, boots: None)
    agents.join()


def test_await_agents_waits_for_a_machine_that_boots_longer_than_for_one_that_is_there(
    box: Mailbox, place: Place
) -> None:
    agents = Agents(box, {G0: [{"state": "ready"}]})
    begun, said = time.monotonic(), []

    def say_boots(now: int, total: int, boots: list[Address]) -> None:
        said.append(boots)
        if time.monotonic() - begun > 0.5 and agents.ident is None:
            agents.start()

    await_agents(box, place, [G0], 0.2, say_boots)
    agents.join()
    assert said[0] == [G0]
    assert said[-1] == []


def test_the_coordinators_state_passes_through_its_agent(tmp_path: Path) -> None:
    assert live_status.read(tmp_path) == {}
    with live_status.kept(tmp_path, lambda status: None) as on_status:
        on_status(Status(phase="training", epoch=3, loss=0.5))
        assert live_status.read(tmp_path)["epoch"] == 3
        (tmp_path / ".status.json").write_text("{")
        assert live_status.read(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []
