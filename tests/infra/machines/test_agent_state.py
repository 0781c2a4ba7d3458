"""What an agent owes a role, rule by rule: orders and events in, actions and reports out."""

from __future__ import annotations

from typing import Any

import pytest

from infra.machines.agent_state import STOPPED, Duty, End, Fetch, Order, Start, Stop
from run_coordinator.hosts import LOST
from siafu.address import COORDINATOR, graph_server
from siafu.errors import RemoteProtocolError

DATA, OTHER = "a" * 64, "b" * 64
G0 = graph_server(0)


def order(number: int, do: str = "start", run: str = "run-1", data: str = DATA) -> Order:
    fields = {"run_id": "0" * 16, "coordinator": "tcp://10.0.0.1:7000"} if do == "start" else {}
    return Order.of(
        {"id": f"{number:016x}", "do": do, "run": run, **({"data": data} if do != "stop" else {}), **fields}
    )


def running(member: Any = G0) -> Duty:
    duty = Duty(member)
    assert duty.receive(order(1)) == [Fetch(order(1))]
    assert duty.fetched() == [Start(order(1))]
    return duty


# --- orders from the bucket -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": "x"}, "id = 'x'"),
        ({"do": "rm -rf"}, "do = 'rm -rf'"),
        ({"run": "../.."}, "is not the name of a run"),
        ({"data": "../.."}, "is not the digest of a graph"),
        ({"data": ""}, "is not the digest of a graph"),
        ({"run_id": "zz"}, "run_id = 'zz'"),
        ({"coordinator": "ipc:///tmp/x"}, "coordinator = 'ipc:///tmp/x'"),
        ({"coordinator": "tcp://h:1 --shards /"}, "coordinator = "),
        ({"more": "x"}, "not an order"),
    ],
)
def test_a_malformed_order_is_refused(change: dict[str, str], words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        Order.of({**order(1).value, **change})


def test_an_order_is_read_as_it_was_written() -> None:
    for do in ("fetch", "start", "stop"):
        assert Order.of(order(1, do).value) == order(1, do)


# --- rule 1 -----------------------------------------------------------------------------------------------------------


def test_an_order_is_taken_once() -> None:
    duty = running()
    assert duty.receive(order(1)) == []
    duty.exited(0, "bye")
    assert duty.receive(order(1)) == []
    assert duty.receive(None) == []


def test_a_successor_reports_what_died_with_its_predecessor_and_does_not_start_it_again() -> None:
    duty = Duty(G0, running().report())
    assert duty.end == End(order(1).id, "run-1", LOST, "its agent was started anew", True)
    assert duty.receive(order(1)) == []
    assert duty.report()["order"] == order(1).id
    assert duty.receive(order(2, run="run-2")) == [Fetch(order(2, run="run-2"))]


def test_a_successor_keeps_the_end_that_its_predecessor_reported() -> None:
    before = running()
    before.exited(-9, "killed")
    duty = Duty(G0, before.report())
    assert duty.end == End(order(1).id, "run-1", -9, "killed", True)
    assert duty.receive(order(1)) == []


def test_a_successor_fetches_again_what_its_predecessor_was_fetching() -> None:
    before = Duty(G0)
    before.receive(order(1, "fetch"))
    assert Duty(G0, before.report()).receive(order(1, "fetch")) == [Fetch(order(1, "fetch"))]


@pytest.mark.parametrize("before", [{}, {"state": "running"}, {"order": 3, "ended": "x"}, {"ended": {"order": ""}}])
def test_a_report_that_is_none_is_survived(before: dict[str, Any]) -> None:
    assert Duty(G0, before).receive(order(7)) == [Fetch(order(7))]


# --- rule 2 -----------------------------------------------------------------------------------------------------------


def test_a_graph_that_is_here_is_not_fetched_before_the_start() -> None:
    duty = Duty(G0)
    assert duty.receive(order(1, "fetch")) == [Fetch(order(1, "fetch"))]
    assert (duty.fetched(), duty.state) == ([], "ready")
    assert duty.receive(order(2)) == [Start(order(2))]


def test_another_graph_is_fetched_first() -> None:
    duty = running()
    duty.exited(0, "")
    assert duty.receive(order(2, data=OTHER)) == [Fetch(order(2, data=OTHER))]


def test_a_graph_that_does_not_come_is_the_end_of_the_order() -> None:
    duty = Duty(G0)
    duty.receive(order(1))
    assert duty.fetched("disk full") == []
    assert duty.end == End(order(1).id, "run-1", 1, "disk full")
    assert duty.unkept
    assert (duty.state, duty.report()["error"]) == ("waiting", "disk full")


def test_an_order_that_comes_while_a_graph_is_fetched_waits_for_it() -> None:
    duty = Duty(G0)
    duty.receive(order(1, "fetch"))
    assert duty.receive(order(2)) == []
    duty.fetched()
    assert duty.receive(order(2)) == [Start(order(2))]


# --- rules 3 and 4 ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("member", "gently"), [(G0, False), (COORDINATOR, True)])
def test_stop_kills_servers_and_asks_a_coordinator(member: Any, gently: bool) -> None:
    duty = running(member)
    assert duty.receive(order(2, "stop")) == [Stop(gently)]
    assert duty.receive(order(2, "stop")) == []  # it is on its way
    duty.exited(-9, "")
    assert duty.end == End(order(1).id, "run-1", -9, "")
    assert duty.receive(order(2, "stop")) == []
    assert (duty.state, duty.report()["order"]) == ("waiting", order(2).id)


def test_an_order_of_another_run_ends_this_one_first() -> None:
    duty = running()
    later = order(2, run="run-2")
    assert duty.receive(later) == [Stop(False)]
    assert duty.receive(later) == []
    duty.exited(-9, "")
    assert duty.receive(later) == [Start(later)]


@pytest.mark.parametrize("state", ["fetching", "ready", "running", "ending"])
def test_a_stop_of_another_run_is_seen_and_forgotten(state: str) -> None:
    duty = Duty(COORDINATOR)
    duty.receive(order(1, "fetch" if state == "ready" else "start"))
    if state != "fetching":
        duty.fetched()
    if state == "ending":
        duty.leave()
    before, foreign = duty.report(), order(2, "stop", "of-somebody-else")
    assert duty.state == state
    assert duty.receive(foreign) == []
    assert duty.report() == before
    if state in ("running", "ending"):
        duty.exited(0, "done")
        assert duty.receive(foreign) == []
        assert duty.end == End(order(1).id, "run-1", 0, "done")


def test_a_process_that_ctrl_c_killed_before_it_could_say_so_was_stopped() -> None:
    duty = running(COORDINATOR)
    duty.leave()
    duty.exited(-2, "KeyboardInterrupt")
    assert duty.end == End(order(1).id, "run-1", 130, "KeyboardInterrupt")
    duty = running(COORDINATOR)
    duty.exited(-2, "")
    assert duty.end == End(order(1).id, "run-1", -2, "")


def test_stop_of_an_order_that_was_never_taken_is_its_end() -> None:
    duty = Duty(G0)
    assert duty.receive(order(2, "stop")) == []
    assert duty.end == End(order(2).id, "run-1", STOPPED, "stopped before it began")
    assert duty.unkept


def test_without_a_coordinator_a_process_is_ended_and_nothing_else() -> None:
    assert Duty(G0).leave() == []
    duty = running()
    assert duty.leave() == [Stop(False)]
    assert duty.leave() == []


# --- rule 5 -----------------------------------------------------------------------------------------------------------


def test_what_was_written_is_reported_as_kept_once_it_is() -> None:
    duty = running()
    duty.exited(1, "no bread")
    assert duty.report()["ended"] == {
        "order": order(1).id,
        "run": "run-1",
        "code": 1,
        "last_line": "no bread",
        "kept": False,
    }
    duty.kept()
    assert duty.report()["ended"]["kept"]


def test_a_new_start_forgets_the_end_of_the_last_one() -> None:
    duty = running()
    duty.exited(1, "")
    duty.receive(order(2))
    assert (duty.report()["ended"], duty.report()["state"]) == (None, "running")
