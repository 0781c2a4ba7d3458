"""The reports of an epoch: when they are written, and in which order."""

from __future__ import annotations

import json

import pytest

from graph_server.ledger import Ledger
from siafu.address import COORDINATOR, Send, param_server
from siafu.wire import EpochDone, EpochReport


def closed(param_servers: int = 2) -> list[Send]:
    """What graph server 1 sends when epoch 3 is over, whose two intervals went to the
    first and the last parameter server."""
    ledger = Ledger(1, [4, 5], param_servers)
    ledger[3].losses.update({4: 0.5, 5: 0.25})
    ledger[3].by_param_server[0] += 1
    assert ledger.close(3, lambda: "{}") == []
    ledger[3].by_param_server[param_servers - 1] += 1
    return ledger.close(3, lambda: json.dumps({"tasks": 7}))


@pytest.mark.parametrize("param_servers", [1, 2, 3])
def test_the_coordinator_is_told_the_losses_before_any_parameter_server_may_step(param_servers: int) -> None:
    """A server may be killed between any two of its messages, and weights whose losses are not known are of no use."""
    report, *dones = closed(param_servers)
    assert report.to == COORDINATOR
    assert isinstance(report.message, EpochReport)
    assert [done.to for done in dones] == [param_server(q) for q in range(param_servers)]
    assert all(isinstance(done.message, EpochDone) for done in dones)


def test_an_epoch_is_reported_with_what_all_its_intervals_added_up() -> None:
    report, *dones = (send.message for send in closed())
    assert isinstance(report, EpochReport)
    assert (report.server, report.epoch, report.loss.tolist(), report.usage) == (1, 3, [0.5, 0.25], '{"tasks": 7}')
    assert [done.intervals for done in dones if isinstance(done, EpochDone)] == [1, 1]
