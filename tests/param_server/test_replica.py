"""Rules R1-R9 of param_server.replica and E1-E4 of param_server.epoch, one message at a time.

Two graph servers with one interval each (leaves 0 and 1), unless said otherwise.
"""

from dataclasses import replace

import numpy as np
import pytest

from param_server.replica import MAX_SKIPPED
from siafu import wire
from siafu.address import COORDINATOR, Send, graph_server, param_server, worker
from siafu.errors import Diverged, RemoteProtocolError, StaleWeights, nan_advice
from siafu.sparse import SparseRows
from tests.param_server.delivery import LAYERS, MODEL, gradient_of, layer_of, make_config, make_replica, same_bits

WORKERS = worker("w0-3"), worker("w1-5")  # of graph server 0 and of 1
WORKER = WORKERS[1]
PEER = param_server(1)


def replica_of(num_replicas=1, **train):
    return make_replica(make_config(num_replicas, graph_servers=2, intervals=1, **train))


def fetch(replica, epoch, interval, *, lane="train", layer=0, have=()):
    ((send),) = replica.handle(WORKERS[interval], wire.FetchWeights(lane, epoch, interval, (layer,), 5, have))
    assert send.to == WORKERS[interval]
    assert (send.message.epoch, send.message.interval, send.message.attempt) == (epoch, interval, 5)
    return send.message


def gradient(epoch, interval, layer):
    values = gradient_of(epoch, interval, layer, layer_of(MODEL.init(), layer))
    return wire.Gradient(epoch, interval, layer, 0, dict(values))


def give(replica, message):
    """A gradient, for which its worker has fetched the weights."""
    fetch(replica, message.epoch, message.interval, layer=message.layer)
    return replica.handle(WORKERS[message.interval], message)


def push(replica, epoch, interval):
    """All gradients of an interval, and that it is done; what is sent besides the acks."""
    sends = [send for layer in LAYERS for send in give(replica, gradient(epoch, interval, layer))]
    sends += replica.handle(graph_server(interval), wire.IntervalDone(epoch, interval))
    return [send for send in sends if not isinstance(send.message, wire.GradientAck)]


def report(replica, epoch, intervals=(1, 1)):
    sends = []
    for server in (0, 1):
        sends += replica.handle(graph_server(server), wire.EpochDone(server, epoch, intervals[server]))
    return sends


def run_epoch(replica, epoch):
    return [send for interval in (0, 1) for send in push(replica, epoch, interval)] + report(replica, epoch)


def kinds(sends: list[Send]):
    return [(send.to, type(send.message).__name__) for send in sends]


def get_model(replica, which):
    ((send),) = replica.handle(COORDINATOR, wire.GetModel(which))
    return send.message


def judge(replica, epoch, *, best=False, stop=False):
    assert replica.handle(COORDINATOR, wire.Judged(epoch, best, stop)) == []


def test_each_graph_server_is_told_of_the_stashes_of_the_others():
    replica = replica_of(staleness=1)
    fetch(replica, 1, 0)
    fetch(replica, 1, 1)
    replica.handle(graph_server(1), wire.IntervalDone(1, 1))
    told = {send.to: send.message.load for send in run_epoch(replica, 0) if isinstance(send.message, wire.WeightsReady)}
    assert told == {graph_server(0): 0, graph_server(1): 1}


# --- R1, R2: fetches ----------------------------------------------------------------------------------------------


def test_r1_fetch_gets_the_layers_parameters():
    reply = fetch(replica_of(), 0, 0, layer=1)
    assert reply.version == 0
    assert same_bits(reply.tensors, layer_of(MODEL.init(), 1))


def test_r1_tensors_are_left_out_if_the_asker_has_them():
    reply = fetch(replica_of(), 0, 0, have=(3, 0))
    assert (reply.version, reply.tensors) == (0, {})


def test_r1_interval_keeps_its_version_when_a_newer_one_is_published():
    replica = replica_of(staleness=1)
    assert fetch(replica, 1, 0).version == 0
    run_epoch(replica, 0)
    assert fetch(replica, 1, 0, layer=1).version == 0
    assert fetch(replica, 1, 1).version == 1
    assert replica.stash_references == {0: 1, 1: 1}


def test_r1_late_fetch_resurrects_no_stash():
    replica = replica_of()
    fetch(replica, 0, 0)
    push(replica, 0, 0)
    assert fetch(replica, 0, 0).version == 0
    assert replica.stash_references == {}
    push(replica, 0, 1)
    report(replica, 0)
    assert fetch(replica, 0, 0).version == 1
    assert replica.stash_references == {}
    assert replica.versions_held == (1,)
    assert replica.duplicates == {"FetchWeights": 2}


def test_r2_evaluation_gets_the_version_after_its_epoch_while_training_goes_on():
    replica = replica_of()
    run_epoch(replica, 0)
    run_epoch(replica, 1)
    assert fetch(replica, 0, 1, lane="eval").version == 1
    assert fetch(replica, 1, 1, lane="eval").version == 2
    assert replica.stash_references == {}


def test_r2_late_evaluation_fetch_gets_the_latest():
    replica = replica_of()
    run_epoch(replica, 0)
    run_epoch(replica, 1)
    judge(replica, 0)
    assert fetch(replica, 0, 1, lane="eval").version == 2
    assert replica.duplicates == {"FetchWeights": 1}


def test_r2_evaluation_of_weights_that_do_not_exist_yet_is_an_error():
    with pytest.raises(RemoteProtocolError, match="fetch of version 1 for evaluation: the newest is 0"):
        fetch(replica_of(), 0, 0, lane="eval")


# --- R3, R4, E1-E4: gradients -----------------------------------------------------------------------------------------


def test_r3_every_gradient_is_acknowledged_to_who_sent_it():
    replica = replica_of()
    fetch(replica, 0, 1)
    for sender in (WORKER, worker("w1-duplicate")):
        ((send),) = replica.handle(sender, gradient(0, 1, 0))
        assert send.to == sender
        assert vars(send.message) == {"epoch": 0, "interval": 1, "layer": 0, "attempt": 0}
    run_epoch(replica, 0)
    assert kinds(replica.handle(WORKER, gradient(0, 1, 0))) == [(WORKER, "GradientAck")]
    assert replica.duplicates == {"Gradient": 3}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_r3_gradient_that_is_not_finite_names_interval_layer_and_parameter(bad):
    message = gradient(0, 1, 1)
    message.tensors["1.bias"][2] = bad
    where = r"epoch 0 interval 1 \(graph server 1\) layer 1: 1\.bias holds NaN or infinity"
    with pytest.raises(Diverged, match=where):
        give(replica_of(), message)


def test_r3_duplicate_that_is_not_finite_does_no_harm():
    replica = replica_of()
    give(replica, gradient(0, 1, 1))
    duplicate = gradient(0, 1, 1)
    duplicate.tensors["1.bias"][2] = np.nan
    assert kinds(replica.handle(WORKER, duplicate)) == [(WORKER, "GradientAck")]


# --- R9: what is not finite -------------------------------------------------------------------------------------------


def skipping(num_replicas=1, index=0):
    config = make_config(num_replicas, graph_servers=2, intervals=1, epochs=40)
    return make_replica(replace(config, run=replace(config.run, on_nan="skip")), index=index)


def bad_gradient(epoch, value=np.nan):
    message = gradient(epoch, 1, 1)
    message.tensors["1.bias"][2] = value
    return message


def run_bad_epoch(replica, epoch, value=np.nan):
    """An epoch that has one number that is not finite; what the coordinator is told of it."""
    sends = give(replica, bad_gradient(epoch, value)) + run_epoch(replica, epoch)
    return [send.message for send in sends if isinstance(send.message, wire.Skipped)]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_r9_a_step_whose_gradient_is_not_finite_is_left_out(bad):
    """The versions go on, the weights and what the optimiser knows stay; the next step is as if there had been none."""
    replica, undisturbed = skipping(), skipping()
    run_epoch(replica, 0)
    before = dict(replica.state().weights), replica.state().optimiser
    (first, *_) = run_bad_epoch(replica, 1, bad)
    assert first.where == "gradient of epoch 1 interval 1 (graph server 1) layer 1: 1.bias"
    assert replica.version == 2
    assert same_bits({n.partition("/")[2]: W for n, W in before[0].items()}, get_weights(replica, 2))
    assert same_bits(before[1], replica.state().optimiser)
    run_epoch(undisturbed, 0)
    undisturbed._stash.publish(2, undisturbed._stash.weights(1))
    for each in (replica, undisturbed):
        assert not any(isinstance(send.message, wire.Skipped) for send in run_epoch(each, 2))
    assert same_bits(get_weights(replica, 3), get_weights(undisturbed, 3))


def get_weights(replica, version):
    assert version == replica.version
    return replica._stash.weights(version)


def test_r9_every_replica_leaves_the_same_steps_out():
    """Wherever the number came: what each adds to the sum of the others is not finite either."""
    replicas = [skipping(2, 0), skipping(2, 1)]
    shared = []
    for server, replica in enumerate(replicas):
        bad = [bad_gradient(0)] if server else []
        for message in [*bad, *(gradient(0, server, layer) for layer in LAYERS)]:
            shared += [(server, send) for send in give(replica, message)]
        shared += [(server, s) for s in replica.handle(graph_server(server), wire.IntervalDone(0, server))]
        for reporter in (0, 1):
            done = wire.EpochDone(reporter, 0, int(reporter == server))
            shared += [(server, s) for s in replica.handle(graph_server(reporter), done)]
    told = []
    for sender, send in shared:
        if isinstance(send.message, wire.PartialSums):
            told += replicas[send.to.index].handle(param_server(sender), send.message)
    assert [replica.version for replica in replicas] == [1, 1]
    assert same_bits(get_weights(replicas[0], 1), MODEL.init())
    assert same_bits(get_weights(replicas[1], 1), MODEL.init())
    said = [send.message for send in told if isinstance(send.message, wire.Skipped)]
    assert {(message.server, message.epoch) for message in said} == {(0, 0), (1, 0)}
    assert said[0].where == "sum of all gradients of epoch 0: 1.bias"


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_r9_a_sum_that_is_beyond_all_numbers_ends_the_run_too():
    replica = replica_of()
    for interval in (0, 1):
        message = gradient(0, interval, 1)
        message.tensors["1.bias"][2] = np.finfo(np.float32).max
        give(replica, message)
    with pytest.raises(Diverged, match=r"^sum of all gradients of epoch 0: 1\.bias holds NaN or infinity"):
        run_epoch(replica, 0)


def test_a_smaller_learning_rate_is_not_advised_before_the_first_step():
    assert "learning rate" not in nan_advice(0)
    assert nan_advice(1) == "a smaller learning rate may help"


def test_r9_what_is_left_out_again_and_again_ends_the_run():
    replica = skipping()
    for epoch in range(MAX_SKIPPED):
        run_bad_epoch(replica, epoch)
    run_epoch(replica, MAX_SKIPPED)  # a good one between them
    for epoch in range(MAX_SKIPPED + 1, 2 * MAX_SKIPPED + 1):
        run_bad_epoch(replica, epoch)
    with pytest.raises(Diverged, match=r"^11 steps in a row had NaN or infinity, of epoch 21 in 1\.bias$"):
        run_bad_epoch(replica, 2 * MAX_SKIPPED + 1)


# --- R4: steps --------------------------------------------------------------------------------------------------------


def test_r4_step_waits_for_every_gradient_and_every_report():
    replica = replica_of()
    assert push(replica, 0, 0) == []
    assert report(replica, 0) == []
    assert replica.version == 0
    assert kinds(push(replica, 0, 1)) == [(graph_server(0), "WeightsReady"), (graph_server(1), "WeightsReady")]
    assert replica.version == 1


def test_e1_step_waits_for_gradients_that_come_after_everything_else():
    replica = replica_of()
    push(replica, 0, 0)
    replica.handle(graph_server(1), wire.IntervalDone(0, 1))
    assert report(replica, 0) == []
    assert kinds(replica.handle(WORKER, gradient(0, 1, 0))) == [(WORKER, "GradientAck")]
    assert replica.version == 0
    replica.handle(WORKER, gradient(0, 1, 1))
    assert replica.version == 1


def test_e1_sums_go_to_every_peer_when_our_own_intervals_are_in():
    replica = replica_of(num_replicas=3)
    push(replica, 0, 1)
    sends = report(replica, 0, intervals=(0, 1))
    assert kinds(sends) == [(param_server(peer), "PartialSums") for peer in (1, 2) for _ in LAYERS]
    first, second = (send.message for send in sends[:2])
    assert (first.server, first.epoch, first.layer, first.last) == (0, 0, 0, False)
    assert (second.layer, second.last) == (1, True)
    assert first.nodes == ("0:1",)
    assert set(first.tensors) == {"0:1/0.weight", "0:1/0.bias", "0:1/1.weight"}  # layer 1 gets narrower


def test_e1_server_without_intervals_shares_nothing_and_still_steps():
    replica, peer = (make_replica(make_config(2, graph_servers=2, intervals=1), index) for index in (0, 1))
    push(peer, 0, 0)
    push(peer, 0, 1)
    for send in report(replica, 0, intervals=(0, 0)):
        assert (send.message.nodes, send.message.tensors) == ((), {})
        peer.handle(param_server(0), send.message)
    for send in report(peer, 0):
        if send.to == param_server(0):
            replica.handle(PEER, send.message)
    assert (replica.version, peer.version) == (1, 1)
    assert same_bits(get_model(replica, "latest").tensors, get_model(peer, "latest").tensors)


def test_e3_sums_of_a_peer_that_is_ahead_are_kept_and_not_shared():
    replica = replica_of(num_replicas=2)
    for layer in LAYERS:
        values = gradient(0, 0, layer).tensors
        tensors = {f"0:0/{name}": value for name, value in values.items()}
        assert replica.handle(PEER, wire.PartialSums(1, 0, layer, ("0:0",), tensors, False)) == []
        assert replica.handle(PEER, wire.PartialSums(1, 0, layer, ("0:0",), tensors, False)) == []
    assert replica.duplicates == {"PartialSums": len(LAYERS)}
    push(replica, 0, 1)
    sends = report(replica, 0, intervals=(0, 1))
    assert [send.message.nodes for send in sends if send.to == PEER] == [("0:1",)] * 2
    assert replica.version == 1


def test_e4_more_intervals_than_announced_is_an_error():
    replica = replica_of(num_replicas=2)
    push(replica, 0, 0)
    push(replica, 0, 1)
    with pytest.raises(RemoteProtocolError, match="epoch 0: 2 intervals were here, 1 were announced"):
        report(replica, 0, intervals=(0, 1))


def test_e4_missing_gradients_are_an_error_and_no_hang():
    replica = replica_of()
    push(replica, 0, 0)
    with pytest.raises(RemoteProtocolError, match="epoch 0 layer 0: gradients of 1 intervals, must be 2"):
        report(replica, 0, intervals=(1, 0))


# --- R5: steps ----------------------------------------------------------------------------------------------------


def test_r5_epochs_step_in_order_when_a_later_one_is_in_first():
    replica = replica_of(staleness=1)
    assert run_epoch(replica, 1) == []
    sends = run_epoch(replica, 0)
    assert [send.message.version for send in sends] == [1, 1, 2, 2]
    assert (replica.version, replica.num_pending) == (2, 0)


def test_r5_the_first_report_of_a_server_counts_and_others_are_counted_as_duplicates():
    replica = replica_of(epochs=2)
    for intervals in (1, 2):
        assert replica.handle(graph_server(0), wire.EpochDone(0, 0, intervals)) == []
    assert replica.duplicates == {"EpochDone": 1}
    assert replica._epochs[0].reports[0].intervals == 1


# --- R6: verdicts and models ------------------------------------------------------------------------------------------


def test_r6_only_evaluated_versions_are_pinned():
    replica = replica_of(epochs=6, eval_every=2)
    for epoch in range(5):
        run_epoch(replica, epoch)
    assert replica.versions_held == (2, 4, 5)


def test_r6_best_is_the_latest_epoch_judged_best():
    replica = replica_of()
    for epoch in range(3):
        run_epoch(replica, epoch)
    judge(replica, 1, best=True)
    judge(replica, 0, best=True)
    judge(replica, 2)
    assert get_model(replica, "best").version == 2
    assert replica.versions_held == (2, 3)


def test_r6_stop_names_the_final_version_and_frees_the_rest():
    replica = replica_of(epochs=5)
    for epoch in range(3):
        run_epoch(replica, epoch)
    judge(replica, 0, best=True)
    judge(replica, 1, stop=True)
    run_epoch(replica, 3)  # was under way: nobody will judge it
    run_epoch(replica, 4)
    assert replica.versions_held == (1, 2, 5)
    assert [get_model(replica, which).version for which in ("best", "final", "latest")] == [1, 2, 5]


def test_r6_verdict_waits_for_a_version_that_this_replica_has_not_stepped_to():
    replica = replica_of()
    judge(replica, 0, best=True, stop=True)
    with pytest.raises(StaleWeights):
        get_model(replica, "final")
    run_epoch(replica, 0)
    assert (get_model(replica, "best").version, get_model(replica, "final").version) == (1, 1)


def test_r6_repeated_verdicts_change_nothing():
    replica = replica_of()
    run_epoch(replica, 0)
    for _ in range(2):
        judge(replica, 0, best=True, stop=True)
    run_epoch(replica, 1)
    judge(replica, 0, best=True, stop=True)
    assert replica.versions_held == (1, 2)


def test_r6_final_model_is_the_last_epochs_if_nobody_said_stop():
    replica = replica_of(epochs=2)
    run_epoch(replica, 0)
    with pytest.raises(StaleWeights, match="version 2: not held"):
        get_model(replica, "final")
    run_epoch(replica, 1)
    model = get_model(replica, "final")
    assert (model.version, model.stash_peak, set(model.tensors)) == (2, 1, set(MODEL.init()))


def test_r6_best_model_needs_a_verdict():
    with pytest.raises(StaleWeights, match="no evaluation was judged best yet"):
        get_model(replica_of(), "best")


# --- the border ---------------------------------------------------------------------------------------------------


def sparse_tensors():
    tensors = gradient(0, 0, 0).tensors
    empty = np.zeros(0, np.int32)
    return tensors | {"0.weight": SparseRows(np.zeros(6, np.int64), empty, empty.astype(np.float32), 4)}


GOOD = gradient(0, 0, 0).tensors
BAD_MESSAGES = {
    "epoch": wire.Gradient(4, 0, 0, 0, GOOD),
    "negative epoch": wire.IntervalDone(-1, 0),
    "interval": wire.Gradient(0, 2, 0, 0, GOOD),
    "layer": wire.Gradient(0, 0, 2, 0, GOOD),
    "missing": wire.Gradient(0, 0, 0, 0, {"0.weight": GOOD["0.weight"]}),
    "unknown": wire.Gradient(0, 0, 0, 0, {**GOOD, "1.bias": GOOD["0.bias"]}),
    "shape": wire.Gradient(0, 0, 0, 0, {**GOOD, "0.bias": GOOD["0.bias"][:2]}),
    "dtype": wire.Gradient(0, 0, 0, 0, {**GOOD, "0.bias": GOOD["0.bias"].astype(np.float64)}),
    "sparse": wire.Gradient(0, 0, 0, 0, sparse_tensors()),
    "fetched layer": wire.FetchWeights("train", 0, 0, (2,), 0, ()),
    "graph server": wire.EpochDone(2, 0, 1),
    "intervals": wire.EpochDone(0, 0, -1),
    "ourselves": wire.PartialSums(0, 0, 0, (), {}, True),
    "peer": wire.PartialSums(2, 0, 0, (), {}, True),
    "peer's layer": wire.PartialSums(1, 0, 2, (), {}, True),
    "node's text": wire.PartialSums(1, 0, 0, ("0",), {f"0/{name}": value for name, value in GOOD.items()}, True),
    "node missing": wire.PartialSums(1, 0, 0, ("0:0",), {}, True),
    "stray tensor": wire.PartialSums(1, 0, 0, (), {f"0:0/{name}": value for name, value in GOOD.items()}, True),
    "verdict's epoch": wire.Judged(4, True, False),
    "which model": wire.GetModel("worst"),
    "kind of message": wire.Heartbeat("worker", 0),
}


#: Who may say such a thing; anybody else would be refused for that alone.
SPEAKERS = {
    wire.IntervalDone: graph_server(0),
    wire.EpochDone: graph_server(0),
    wire.PartialSums: PEER,
    wire.Judged: COORDINATOR,
    wire.GetModel: COORDINATOR,
}


@pytest.mark.parametrize("what", BAD_MESSAGES)
def test_message_that_no_peer_may_send_is_refused(what):
    replica, message = replica_of(num_replicas=2), BAD_MESSAGES[what]
    fetch(replica, 0, 0)
    with pytest.raises(RemoteProtocolError) as caught:
        replica.handle(SPEAKERS.get(type(message), WORKERS[0]), message)
    assert "may say so" not in str(caught.value)
    assert "fetched" not in str(caught.value)


# --- R11: who may speak of what ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [0, 1])
def test_r11_a_worker_sets_no_gradient_of_another_graph_servers_interval(epoch):
    replica = replica_of(staleness=1)
    fetch(replica, epoch, 1)
    lie = gradient(epoch, 1, 0)
    with pytest.raises(RemoteProtocolError, match=r"from worker w0-3: interval 1 is of graph server 1$"):
        replica.handle(WORKERS[0], lie)
    assert replica.num_pending == 0


@pytest.mark.parametrize("sender", [WORKERS[0], graph_server(0), PEER, COORDINATOR, worker("x")])
def test_r11_weights_are_stashed_for_the_intervals_of_who_asks(sender):
    replica = replica_of()
    with pytest.raises(RemoteProtocolError, match=r"interval 1 is of graph server 1$"):
        replica.handle(sender, wire.FetchWeights("train", 0, 1, (0,), 0, ()))
    assert replica.stash_references == {}


@pytest.mark.parametrize("epoch", [0, 1, 2, 3])
def test_r11_a_gradient_for_which_nobody_has_fetched_weights_is_refused(epoch):
    replica = replica_of(staleness=1)
    with pytest.raises(RemoteProtocolError, match="from worker w1-5: no worker has fetched weights for it"):
        replica.handle(WORKER, gradient(epoch, 1, 0))
    assert replica.num_pending == 0
    run_epoch(replica, 0)
    assert replica.version == 1


def test_r11_the_bound_on_epochs_holds_for_gradients_too():
    replica = replica_of(staleness=1)
    with pytest.raises(RemoteProtocolError, match="fetch of epoch 2 at version 0: staleness is at most 1"):
        fetch(replica, 2, 1)
    with pytest.raises(RemoteProtocolError, match="gradient of epoch 2"):
        replica.handle(WORKER, gradient(2, 1, 0))


@pytest.mark.parametrize(
    ("sender", "message"),
    [
        (graph_server(0), wire.IntervalDone(0, 1)),
        (WORKER, wire.IntervalDone(0, 1)),
        (graph_server(0), wire.EpochDone(1, 0, 1)),
        (param_server(2), wire.PartialSums(1, 0, 0, (), {}, True)),
        (graph_server(1), wire.Judged(0, True, False)),
    ],
)
def test_r11_nobody_reports_as_somebody_else(sender, message):
    with pytest.raises(RemoteProtocolError, match=r"only .* may say so"):
        replica_of(num_replicas=3).handle(sender, message)
