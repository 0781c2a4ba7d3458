"""``--checkpoint-every``: parameter server 0 sends what is to be saved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from siafu import wire
from siafu.address import COORDINATOR, Address, graph_server, param_server, worker
from siafu.config import Run
from siafu.evaluation import is_checkpoint
from tests.param_server.delivery import LAYERS, MODEL, gradient_of, layer_of, make_config, make_replica

CONFIG = replace(make_config(num_replicas=2, graph_servers=1, intervals=1), run=Run(checkpoint_every=2))


@pytest.mark.parametrize(("every", "expected"), [(0, []), (1, [0, 1, 2, 3, 4]), (2, [1, 3]), (9, [])])
def test_checkpoints_of_a_run_of_5(every, expected):
    assert [epoch for epoch in range(5) if is_checkpoint(epoch, Run(checkpoint_every=every))] == expected


def test_r7_only_parameter_server_0_sends_what_is_to_be_saved():
    """Two replicas; the only interval is the second one's."""
    replicas = [make_replica(CONFIG, index) for index in range(2)]
    saved = []
    for epoch in range(CONFIG.train.epochs):
        w, server = worker("w0-0"), graph_server(0)
        fetches = [wire.FetchWeights("train", epoch, 0, (x,), 0, ()) for x in LAYERS]
        gradients = [wire.Gradient(epoch, 0, x, 0, gradient_of(epoch, 0, x, layer_of(MODEL.init(), x))) for x in LAYERS]
        waiting: list[tuple[Address, int, wire.Message]] = [(w, 1, message) for message in (*fetches, *gradients)]
        waiting += [(server, 1, wire.IntervalDone(epoch, 0))]
        waiting += [(server, q, wire.EpochDone(0, epoch, q)) for q in range(2)]
        while waiting:
            sender, q, message = waiting.pop(0)
            for send in replicas[q].handle(sender, message):
                if send.to == COORDINATOR:
                    saved.append((q, replicas[q].version, send.message))
                elif send.to.role == "param_server":
                    waiting.append((param_server(q), send.to.index, send.message))
    assert [(q, version, type(message), message.version) for q, version, message in saved] == [
        (0, 2, wire.ParamState, 2),
        (0, 4, wire.ParamState, 4),
    ]
    for _, version, message in saved:  # nothing was judged: what is still to be evaluated is in it
        by_version = wire.by_version(message.weights)
        assert by_version.keys() == set(range(1, version + 1))
        assert all(weights.keys() == MODEL.init().keys() for weights in by_version.values())
