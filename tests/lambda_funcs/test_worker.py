"""The worker's loop, over real sockets: when it leaves."""

from __future__ import annotations

import json
import time

import pytest

from lambda_funcs.assignment import Assignment
from lambda_funcs.worker import Worker
from siafu import wire
from siafu.address import graph_server, param_server, worker
from siafu.errors import ConfigError, PeerLost
from siafu.keys import Ring
from siafu.models import ModelSpec
from siafu.sockets import Hub

SPEC = ModelSpec("gcn", 3, 2, num_train=12, widths=(4,), narrow=False)
RUN_ID = b"worker!!"


@pytest.mark.parametrize("busy", [False, True])
def test_a_worker_leaves_its_margin_before_the_end_of_its_invocation_even_while_it_waits(busy: bool):
    # 0.2 s are left before the margin of 30 s; what it waits for, tasks or weights, does not come for 1000 s
    with (
        Hub(graph_server(0), RUN_ID, listen="127.0.0.1") as home,
        Hub(param_server(0), RUN_ID, listen="127.0.0.1") as mute,
    ):
        assignment = Assignment(
            "w-0",
            home.endpoint,
            0,
            (mute.endpoint,),
            RUN_ID,
            "digest",
            SPEC,
            idle_s=1000,
            margin_s=30,
            prefetch=2,
            core=1.0,
            keep_bytes=0,
            proxy="",
            wait_s=1000,
        )
        end = time.monotonic() + 30.2
        with Worker(assignment, lambda: end - time.monotonic()) as it:
            if busy:
                it._take(wire.Task("train", 0, 0, 1, 0, 0, 1, (), {}))
            assert it.run() == {"worker": "w-0", "tasks": 0, "reason": "deadline"}
        assert time.monotonic() < end - 1
        said: list[wire.Message] = []
        while not said or not isinstance(said[-1], wire.Bye):
            arrived = home.poll(60)
            assert arrived
            assert {sender for sender, _ in arrived} == {worker("w-0")}
            said += [message for _, message in arrived]
    assert [type(message) for message in said] == [wire.Hello, wire.Pull, wire.Bye]


@pytest.mark.parametrize("busy", [False, True])
def test_a_worker_without_work_leaves_in_peace_and_one_that_waits_for_weights_says_for_what(busy: bool):
    with (
        Hub(graph_server(0), RUN_ID, listen="127.0.0.1") as home,
        Hub(param_server(0), RUN_ID, listen="127.0.0.1") as mute,
    ):
        assignment = Assignment(
            "w-0",
            home.endpoint,
            0,
            (mute.endpoint,),
            RUN_ID,
            "digest",
            SPEC,
            idle_s=0.1,
            margin_s=1,
            prefetch=2,
            core=1.0,
            keep_bytes=0,
            proxy="",
            wait_s=0.1,
        )
        with Worker(assignment, lambda: 1000.0) as it:
            if busy:
                it._take(wire.Task("train", 0, 0, 1, 0, 0, 1, (), {}))
                with pytest.raises(PeerLost, match=r"no answer within 0\.1 s: "):
                    it.run()
            else:
                assert it.run() == {"worker": "w-0", "tasks": 0, "reason": "idle"}


def test_an_assignment_is_the_same_after_its_way_as_json():
    ring = Ring(bytes(32), {"param_server/0": "k" * 40})
    for keys in (None, ring):
        sent = Assignment("w-0", "tcp://a:1", 3, ("tcp://b:2",), RUN_ID, "d", SPEC, 1.0, 2.0, 4, 0.5, 7, "", 9.0, keys)
        assert Assignment.from_event(json.loads(json.dumps(sent.to_event()))) == sent


@pytest.mark.parametrize("missing", ["worker", "spec", "run_id"])
def test_an_event_that_lacks_what_a_worker_needs_is_refused_by_name(missing: str):
    sent = Assignment("w-0", "tcp://a:1", 3, (), RUN_ID, "d", SPEC, 1.0, 2.0, 4, 0.5, 7, "", 9.0).to_event()
    del sent[missing]
    with pytest.raises(ConfigError, match=f"^not the event of an invocation: .*{missing}"):
        Assignment.from_event(sent)
