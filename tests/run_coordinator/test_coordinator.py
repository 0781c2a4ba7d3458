"""A run as the coordinator sees it; members are played by the test. Rules are those of
``run_coordinator.coordinator``."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from run_coordinator.actions import Action, Record, Save
from run_coordinator.coordinator import LAST_WORD_S, STATE_S, Coordinator
from run_coordinator.reports import added, lambda_cpu_share, lanes, links, total
from run_coordinator.states import state_message
from siafu.address import Address, Send, graph_server, param_server
from siafu.config import Config
from siafu.errors import ConfigError, Diverged, PeerLost, ProtocolError, RemoteProtocolError, UnknownError, WorkerError
from siafu.evaluation import outcome
from siafu.metrics import LOSS, TERMS
from siafu.sparse import Array
from siafu.wire import (
    EpochReport,
    EvalReport,
    Failed,
    GetModel,
    GetState,
    Heartbeat,
    Hello,
    Judged,
    ModelWeights,
    ParamState,
    Ready,
    Refused,
    Roster,
    Start,
    Stop,
    Stopped,
    Usage,
    Welcome,
)

G0, G1, Q0, Q1 = graph_server(0), graph_server(1), param_server(0), param_server(1)
MEMBERS = [G0, G1, Q0, Q1]


def coordinator(**train: Any) -> Coordinator:
    settings = {"data.parts": 2, "servers.param_servers": 2, "train.epochs": 6, "servers.silence_s": 30}
    return Coordinator(Config().replace({**settings, **{f"train.{k}": v for k, v in train.items()}}))


def hello(core: Coordinator, member: Address, now: float = 0.0) -> list[Action]:
    message = Hello(member.role, member.index, core.config.digest, f"tcp://{member.role}-{member.index}")
    return core.handle(member, message, now)


def started(now: float = 10.0, **train: Any) -> Coordinator:
    core = coordinator(**train)
    for member in MEMBERS:
        hello(core, member)
    for member in MEMBERS:
        core.handle(member, Ready(member.role, member.index), now)
    return core


def epoch_report(server: int, epoch: int, loss: list[float] | None = None, **fields: Any) -> EpochReport:
    values = {"ghost_bytes": 100, "staleness": [4, 0], "usage": '{"tasks": 3}'} | fields
    return EpochReport(
        server,
        epoch,
        np.array(loss or [0.25, 0.25]),
        values["ghost_bytes"],
        np.array(values["staleness"]),
        values["usage"],
    )


def tally(correct: int, of: int = 10, loss: float = 1.0) -> Array:
    """Counts of one server: ``correct`` of ``of`` validation vertices, their mean loss; 1 of 2 test vertices."""
    counts = np.zeros((3, 5, 2))
    counts[1, TERMS, 0], counts[1, LOSS, 0] = of, of * loss
    counts[1, 0, 0], counts[1, 2, 0], counts[1, 1, 1] = correct, of - correct, of - correct
    counts[2, 0, 0], counts[2, 2, 0], counts[2, 1, 1], counts[2, 3, 0] = 1, 1, 1, 2
    return counts


def evaluate(
    core: Coordinator, epoch: int, correct: int, of: int = 10, now: float = 20.0, loss: float = 1.0
) -> list[Action]:
    """Both servers count; the validation accuracy is ``correct / of``."""
    assert core.handle(G1, EvalReport(1, epoch, tally(0, 0)), now) == []
    return core.handle(G0, EvalReport(0, epoch, tally(correct, of, loss)), now)


def messages(actions: list[Action], kind: type) -> list[tuple[Address, Any]]:
    return [(a.to, a.message) for a in actions if isinstance(a, Send) and isinstance(a.message, kind)]


def records(actions: list[Action]) -> list[dict[str, Any]]:
    return [action.values for action in actions if isinstance(action, Record)]


# --- rule 1 -----------------------------------------------------------------------------------------------------------


def test_everybody_learns_where_everybody_listens_once_all_have_said_hello():
    core = coordinator()
    for member in MEMBERS[:-1]:
        actions = hello(core, member)
        assert [(to, type(message)) for to, message in messages(actions, object)] == [(member, Welcome)]
    assert core.missing() == [Q1]
    actions = hello(core, Q1)
    rosters = messages(actions, Roster)
    assert [to for to, _ in rosters] == MEMBERS
    assert rosters[0][1].graph_servers == ("tcp://graph_server-0", "tcp://graph_server-1")
    assert rosters[0][1].param_servers == ("tcp://param_server-0", "tcp://param_server-1")
    assert core.missing() == []


@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[::5])
def test_training_starts_once_all_are_ready(order: tuple[int, ...]):
    core = coordinator()
    for member in MEMBERS:
        hello(core, member)
    for number, i in enumerate(order):
        actions = core.handle(MEMBERS[i], Ready(MEMBERS[i].role, MEMBERS[i].index), 7.0)
        assert bool(actions) == (number == 3)
    assert [to for to, _ in messages(actions, Start)] == MEMBERS
    assert [record["event"] for record in records(actions)] == ["start"]


def test_the_start_says_how_long_roles_took_to_start():
    """``time_s`` leaves it out, a planned run's time and a bill do not."""
    core = coordinator()
    core.begin(2.0)
    for member in MEMBERS:
        hello(core, member)
    actions = [action for m in MEMBERS for action in core.handle(m, Ready(m.role, m.index), 7.5)]
    assert [record["setup_s"] for record in records(actions)] == [5.5]


def test_a_member_with_another_config_is_refused():
    core = coordinator()
    (answer,) = core.handle(G0, Hello("graph_server", 0, "0123", "tcp://x"), 0.0)
    assert isinstance(answer, Send)
    assert isinstance(answer.message, Refused)
    assert answer.message.reason == f"graph_server 0 has config 0123, the run has {core.config.digest}"
    assert G0 in core.missing()


@pytest.mark.parametrize("stranger", [graph_server(2), param_server(9)])
def test_a_member_that_is_not_part_of_the_run_is_refused(stranger: Address):
    core = coordinator()
    (answer,) = hello(core, stranger)
    assert isinstance(answer, Send)
    assert isinstance(answer.message, Refused)


# --- rule 2 -----------------------------------------------------------------------------------------------------------


def test_an_epochs_loss_is_summed_in_the_order_of_the_intervals_whoever_reports_first():
    shares = [0.1, 1e16], [1.0, 1.0]  # in another order the sum would have other bits
    losses = []
    for order in ((0, 1), (1, 0)):
        core = started()
        assert core.handle(MEMBERS[order[0]], epoch_report(order[0], 0, shares[order[0]]), 11.0) == []
        core.handle(MEMBERS[order[1]], epoch_report(order[1], 0, shares[order[1]]), 12.0)
        losses.append(core.ledger.losses)
    assert losses[0] == losses[1] == [((0.1 + 1e16) + 1.0) + 1.0]


def test_an_epoch_is_recorded_once_all_graph_servers_have_reported():
    core = started(now=10.0)
    core.handle(G0, epoch_report(0, 0), 11.0)
    (record,) = records(core.handle(G1, epoch_report(1, 0, staleness=[1, 2, 3]), 12.5))
    assert record == {
        "event": "epoch",
        "epoch": 1,
        "loss": 1.0,
        "time_s": 2.5,
        "epoch_s": 2.5,
        "ghost_bytes": 200,
        "staleness": [5, 2, 3],
        "usage": {"tasks": 6},
        "usd": 0.0,
    }
    assert (core.status.epoch, core.status.loss, core.status.ghost_bytes) == (1, 1.0, 200)


def test_what_evaluation_takes_stands_beside_what_training_takes():
    core = started()
    usage = {
        "train_tasks": 6,
        "eval_tasks": 4,
        "train_ghost_bytes": 100,
        "eval_ghost_bytes": 60,
        "GA_s": 1.5,
        "eval_s": 0.5,
    }
    for epoch in range(2):
        for server in range(2):
            so_far = json.dumps({name: (epoch + 1) * value for name, value in usage.items()})
            actions = core.handle(graph_server(server), epoch_report(server, epoch, usage=so_far), 11.0 + epoch)
    (record,) = records(actions)
    assert (core.status.ghost_bytes, core.status.eval_ghost_bytes) == (200, 120)  # each of an epoch
    assert lanes(record["usage"]) == {
        "train": {"tensor_tasks": 24, "ghost_bytes": 400, "compute_s": 6.0},
        "eval": {"tensor_tasks": 16, "ghost_bytes": 240, "compute_s": 2.0},
    }


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_ends_the_run(loss: float):
    core = started()
    core.handle(G0, epoch_report(0, 0), 11.0)
    assert core.handle(G1, epoch_report(1, 0, [loss]), 12.0) == []
    for server in (0, 1):  # nothing that comes meanwhile is taken
        assert core.handle(MEMBERS[server], epoch_report(server, 1, [0.25]), 12.1) == []
    core.tick(12.0 + LAST_WORD_S - 0.1)
    with pytest.raises(Diverged, match=r"^epoch 1: the loss is (nan|inf); no step was taken yet, so edge weights"):
        core.tick(12.0 + LAST_WORD_S)


def test_of_a_loss_that_is_no_number_the_parameter_server_has_the_last_word():
    core = started()
    core.handle(G0, epoch_report(0, 0), 11.0)
    core.handle(G1, epoch_report(1, 0, [float("nan")]), 12.0)
    core.tick(12.5)
    with pytest.raises(Diverged, match=r"^param_server 0: gradient of epoch 0 interval 3 holds NaN"):
        core.handle(Q0, Failed("param_server", 0, "Diverged", "gradient of epoch 0 interval 3 holds NaN", ""), 12.6)


def test_epochs_come_in_order_though_the_report_of_one_is_late():
    core = started(eval_every=1)
    core.handle(G0, epoch_report(0, 0, [0.5]), 11.0)
    for server in (0, 1):  # of server 1, the report of epoch 0 is on another way
        assert core.handle(MEMBERS[server], epoch_report(server, 1, [0.25]), 12.0) == []
    both = records(core.handle(G1, epoch_report(1, 0, [1.0]), 13.0))
    assert [(record["epoch"], record["loss"]) for record in both] == [(1, 1.5), (2, 0.5)]
    assert core.ledger.losses == [1.5, 0.5]


def test_evaluations_are_judged_in_order_though_the_counts_of_one_are_late():
    core = started()
    core.handle(G0, EvalReport(0, 0, tally(7)), 11.0)
    assert evaluate(core, 1, 3) == []
    verdicts = messages(core.handle(G1, EvalReport(1, 0, tally(0, 0)), 12.0), Judged)
    assert [(verdict.epoch, verdict.best) for to, verdict in verdicts if to == G0] == [(0, True), (1, False)]
    assert core.ledger.judged == 1


# --- rule 3 -----------------------------------------------------------------------------------------------------------


def test_an_evaluation_is_judged_once_all_graph_servers_have_counted():
    core = started()
    actions = evaluate(core, 0, 7)
    assert [to for to, _ in messages(actions, Judged)] == MEMBERS
    (record,) = records(actions)
    assert (record["epoch"], record["val"]["acc"], record["test"]["acc"], record["time_s"]) == (1, 0.7, 0.5, 10.0)


def test_the_best_is_the_highest_validation_accuracy_and_the_earlier_of_equals():
    #  accuracy   0.3   0.5   0.5   0.4   0.6
    #  best       yes   yes   no    no    yes
    core = started()
    verdicts = [messages(evaluate(core, epoch, correct), Judged)[0][1] for epoch, correct in enumerate([3, 5, 5, 4, 6])]
    assert [verdict.best for verdict in verdicts] == [True, True, False, False, True]
    assert core.ledger.best["epoch"] == 5


@pytest.mark.parametrize("stop_on", ["score", "loss", "both"])
def test_without_validation_vertices_the_last_is_the_best_and_patience_never_ends(stop_on: str):
    core = started(stop_on=stop_on, patience=1)
    for epoch in range(3):
        ((_, verdict), *_) = messages(evaluate(core, epoch, 0, of=0), Judged)
        assert (verdict.best, verdict.stop) == (True, False)
    assert core.ledger.best["epoch"] == 3


@pytest.mark.parametrize("stop_on", ["score", "loss", "both"])
def test_without_validation_vertices_there_is_no_validation_score_and_no_best_epoch(stop_on: str):
    core = started(stop_on=stop_on)
    (record,) = records(evaluate(core, 0, 0, of=0))
    for epoch in range(1, 6):
        evaluate(core, epoch, 0, of=0)
    told = outcome(core.ledger.best, core.ledger.final, core.config.train)
    assert json.loads(json.dumps(record))["val"] is None
    assert [told[key] for key in ("val_acc", "val_loss", "best_epoch", "test_acc")] == [None, None, None, 0.5]
    assert told["kept"] == {"epoch": 6, "why": "no validation vertices: the last epoch is kept"}
    assert told["scores"] == told["final_scores"]


# --- rule 4 -----------------------------------------------------------------------------------------------------------


def stops(core: Coordinator, accuracies: list[int]) -> list[bool]:
    return [messages(evaluate(core, epoch, correct), Judged)[0][1].stop for epoch, correct in enumerate(accuracies)]


def test_training_stops_after_the_last_epoch():
    assert stops(started(), [1, 2, 3, 4, 5, 6]) == [False] * 5 + [True]


def test_training_stops_at_the_target_accuracy():
    assert stops(started(target_acc=0.5), [3, 4, 5]) == [False, False, True]


def test_training_stops_after_patience_evaluations_without_a_better_one():
    #  best          *     *                 equal is not better
    assert stops(started(patience=2), [3, 4, 4, 2]) == [False, False, False, True]


def test_training_stops_by_validation_loss_and_keeps_that_of_the_lowest():
    #  loss    0.9   0.8   0.8   0.85     equal is not lower, and accuracy says nothing
    core = started(patience=2, stop_on="loss")
    evaluations = enumerate([(3, 0.9), (4, 0.8), (5, 0.8), (9, 0.85)])
    verdicts = [messages(evaluate(core, epoch, c, loss=x), Judged)[0][1] for epoch, (c, x) in evaluations]
    assert [(verdict.best, verdict.stop) for verdict in verdicts] == [(1, 0), (1, 0), (0, 0), (0, 1)]
    assert (core.ledger.best["epoch"], core.ledger.best["val"]["loss"], core.stopped) == (2, 0.8, "patience")


def test_at_the_stop_the_weights_are_asked_for_after_the_verdict():
    core = started(target_acc=0.5)
    actions = evaluate(core, 0, 9, now=33.0)
    kinds = [(a.to, type(a.message)) for a in actions if isinstance(a, Send)]
    assert kinds == [(Q0, GetState), *((m, Judged) for m in MEMBERS), (Q0, GetModel), (Q1, GetModel), (Q0, GetModel)]
    assert [message.which for _, message in messages(actions, GetModel)] == ["final", "final", "best"]
    assert core.stopped_at == 33.0


def test_what_comes_after_the_stop_and_its_state_changes_nothing():
    core = started(target_acc=0.5)
    for server in (0, 1):
        core.handle(MEMBERS[server], epoch_report(server, 0), 11.0)
    evaluate(core, 0, 9)
    core.handle(Q0, state_of(1), 39.0)
    for server in (0, 1):
        assert core.handle(MEMBERS[server], epoch_report(server, 1), 40.0) == []
        assert core.handle(MEMBERS[server], EvalReport(server, 1, tally(10)), 41.0) == []
    assert core.ledger.losses == [1.0]
    assert core.ledger.final["epoch"] == 1


# --- rule 5 -----------------------------------------------------------------------------------------------------------


def limited(**run: Any) -> Coordinator:
    """Begun at 0, everybody ready at 10."""
    settings = {"data.parts": 2, "servers.param_servers": 2, "train.epochs": 60, "servers.backend": "lambda"}
    core = Coordinator(Config().replace({**settings, **{f"run.{k}": v for k, v in run.items()}}))
    core.begin(0.0)
    for member in MEMBERS:
        hello(core, member)
    for member in MEMBERS:
        core.handle(member, Ready(member.role, member.index), 10.0)
    return core


def test_training_stops_at_the_evaluation_after_which_the_next_would_come_too_late():
    #  evaluations at  20   30   40; the next would come at 50, and 5 s are kept for the end: 50 + 5 >= 52
    core = limited(max_seconds=52)
    actions = [evaluate(core, epoch, 5, now=now) for epoch, now in enumerate([20.0, 30.0, 40.0])]
    assert [messages(sent, Judged)[0][1].stop for sent in actions] == [False, False, True]
    assert [message.which for _, message in messages(actions[-1], GetModel)] == ["final", "final", "best"]
    assert core.stopped == "time"
    assert core.at_limit


def test_the_first_evaluation_says_nothing_of_when_the_next_one_will_come():
    core = limited(max_seconds=52)  # it took 36 s from the start, with cold starts and the making of layer 0
    assert not messages(evaluate(core, 0, 5, now=46.0), Judged)[0][1].stop


def test_a_run_breaks_off_at_its_limit_and_asks_one_server_for_its_latest_weights_and_the_best_so_far():
    core = limited(max_seconds=50)
    assert core.tick(44.9) == []
    evaluate(core, 0, 5, now=30.0)
    actions = core.tick(45.0)
    assert [(to, message.which) for to, message in messages(actions, GetModel)] == [(Q0, "latest"), (Q0, "best")]
    assert records(actions) == [{"event": "stop", "reason": "time", "usd": 0.0}]
    assert (core.status.phase, core.complete) == ("saving", False)
    assert core.tick(46.0) == []
    core.handle(Q0, ModelWeights("best", 1, {"0.weight": np.ones(1)}, 1), 46.0)
    core.handle(Q0, ModelWeights("latest", 3, {"0.weight": np.zeros(1)}, 1), 46.0)
    assert not core.complete  # a state that a later run can go on from is waited for, but not long
    core.tick(45.0 + STATE_S)
    assert core.complete
    result = core.result()
    assert (result["stopped"], result["epochs"], result["best_epoch"], result["val_acc"]) == ("time", 3, 1, 0.5)


def test_before_the_first_evaluation_there_are_no_scores_and_no_best():
    core = limited(max_seconds=50)
    actions = core.tick(45.0)
    assert [message.which for _, message in messages(actions, GetModel)] == ["latest"]
    core.handle(Q0, ModelWeights("latest", 0, {"0.weight": np.zeros(1)}, 1), 46.0)
    (saved,) = core.handle(Q0, state_of(0), 46.0)
    assert isinstance(saved, Save)
    assert saved.state.version == 0
    assert core.complete
    result = core.result()
    assert [result[key] for key in ("epochs", "best_epoch", "test_acc", "val_loss", "scores")] == [0, *[None] * 4]
    assert result["final_scores"] is None
    json.dumps(result)


def test_a_limit_that_comes_before_anybody_is_ready_waits_for_nobody_and_starts_nobody():
    core = Coordinator(Config().replace({"run.max_seconds": 1.0}))
    core.begin(5.0)
    assert messages(core.tick(5.95), object) == []
    assert core.complete
    for member in (G0, Q0):
        hello(core, member, 6.0)
        actions = core.handle(member, Ready(member.role, member.index), 6.0)
    assert actions == []
    core.fall_back({"0.weight": np.ones(1)})
    assert (core.result()["epochs"], core.result()["train_seconds"]) == (0, 0.0)


def test_weights_that_do_not_come_are_replaced_by_the_first_ones():
    core = limited(max_seconds=50)
    core.tick(45.0)
    assert not core.complete
    core.fall_back({"0.weight": np.ones(1)})
    assert core.complete
    assert core.result()["epochs"] == 0


def test_weights_that_do_not_come_are_replaced_by_the_best_if_those_have():
    core = limited(max_seconds=50)
    evaluate(core, 0, 5, now=30.0)
    core.tick(45.0)
    core.handle(Q0, ModelWeights("best", 1, {"0.weight": np.zeros(1)}, 1), 46.0)
    core.fall_back({"0.weight": np.ones(1)})
    assert (core.result()["epochs"], core.result()["best_epoch"]) == (1, 1)


def test_weights_that_do_not_come_after_a_verdict_are_replaced_too():
    core = limited(max_seconds=52)
    for epoch, now in enumerate([20.0, 30.0, 40.0]):
        evaluate(core, epoch, 5, now=now)
    core.handle(Q1, ModelWeights("final", 3, {"0.weight": np.zeros(1)}, 1), 41.0)  # parameter server 0 is silent
    core.fall_back({"0.weight": np.ones(1)})
    assert (core.complete, core.result()["epochs"]) == (True, 0)
    said = [core.result()[key] for key in ("kept", "scores", "best_epoch", "val_acc")]
    assert said == 4 * [None]  # they are the best evaluation's, not those of the first weights
    assert core.result()["final_scores"] is not None


def test_a_run_that_went_on_from_before_its_best_evaluation_does_not_ask_for_weights_that_are_to_come():
    before = advanced().states.latest
    assert before is not None
    best = {**before.ledger["best"], "epoch": 5}  # training had got there, and its only parameter server died
    core = Coordinator(
        limited(max_seconds=50).config, before=replace(before, ledger={**before.ledger, "best": best, "judged": 4})
    )
    core.begin(0.0)
    for member in MEMBERS:
        hello(core, member)
    for member in (*MEMBERS, Q0, Q1):
        core.handle(member, Ready(member.role, member.index), 10.0)
    actions = core.tick(45.0)
    assert core.at_limit
    assert [message.which for _, message in messages(actions, GetModel)] == ["latest"]
    core.handle(Q0, ModelWeights("latest", 2, {"0.weight": np.zeros(1)}, 1), 46.0)
    assert (core.result()["epochs"], core.result()["kept"], core.result()["scores"]) == (2, None, None)


def test_training_stops_before_its_budget_is_spent():
    #  2 x 50 environments of 192 MB on arm cost 0.00025 $/s from 10.0 on, and 5 s are kept: 0.01 are reached after 35 s
    core = limited(budget_usd=0.01)
    for second in range(10, 60):
        for server in (0, 1):
            core.handle(MEMBERS[server], Usage(server, 0, 50, json.dumps({"invocations": 50})), second)
        core.heard.update(dict.fromkeys(MEMBERS, second))
        if core.tick(second):
            break
    assert (core.stopped, second) == ("budget", 45)
    assert 0.008 < core.status.usd < 0.01


def test_what_was_spent_is_recorded_with_every_epoch():
    core = limited()
    for now in (10.0, 20.0):
        core.handle(G0, Usage(0, 0, 4, json.dumps({"invocations": 4})), now)
    core.handle(G0, epoch_report(0, 0, usage='{"invocations": 4}'), 20.0)
    (record,) = records(core.handle(G1, epoch_report(1, 0, usage='{"invocations": 0}'), 20.0))
    assert record["usd"] == pytest.approx(4 * 0.2e-6 + 40 * 192 / 1024 * 0.0000133334)


def finished(core: Coordinator) -> Coordinator:
    """Two epochs of 2 s and 4 s, evaluated to 0.6 and 0.9, with the weights in."""
    for epoch, (now, correct) in enumerate([(12.0, 6), (16.0, 9)]):
        for server in (0, 1):
            usage = json.dumps({"invocations": 2 + server, "gb_s": 0.5})
            core.handle(MEMBERS[server], epoch_report(server, epoch, usage=usage), now)
        evaluate(core, epoch, correct, now=now + 1)
    assert not core.complete
    for server, peak in ((Q0, 2), (Q1, 3)):
        core.handle(server, ModelWeights("final", 2, {"0.weight": np.ones((2, 2))}, peak), 18.0)
    core.handle(Q0, ModelWeights("best", 2, {"0.weight": np.ones((2, 2))}, 2), 18.0)
    assert not core.complete
    core.handle(Q0, state_of(2), 18.0)
    assert core.complete
    return core


def test_a_run_that_ends_keeps_its_state_also_where_servers_are_ahead_of_its_last_epoch():
    core = started(target_acc=0.5)
    for server in (0, 1):
        core.handle(MEMBERS[server], epoch_report(server, 0), 11.0)
    evaluate(core, 0, 9, now=12.0)
    assert core.stopped == "target"
    assert core.handle(Q0, state_of(2), 13.0) == []  # of an epoch that has not been reported
    core.handle(G0, epoch_report(0, 1), 13.0)
    (saved,) = [action for action in core.handle(G1, epoch_report(1, 1), 13.0) if isinstance(action, Save)]
    assert (saved.state.version, saved.state.ledger["judged"]) == (2, -1)  # by a higher target it is judged anew


def test_a_state_with_weights_that_are_no_numbers_is_not_kept():
    core = started()
    for server in (0, 1):
        core.handle(MEMBERS[server], epoch_report(server, 0), 11.0)
    assert core.handle(Q0, ParamState(0, 1, -1, -1, {"1/0.weight": np.array([np.nan])}, {}), 12.0) == []
    assert core.states.latest is None


def test_a_parameter_server_that_has_said_its_last_word_is_asked_for_nothing():
    core = started()
    with pytest.raises(WorkerError):
        core.handle(Q1, Failed("param_server", 1, "WorkerError", "", ""), 12.0)
    assert [send.to for send in core.ask_for_state(MEMBERS)] == [Q0]


def test_a_parameter_server_that_has_lost_a_peer_is_asked_for_its_state():
    """It stays for that (``param_server.server``): its weights are whole."""
    core = started()
    with pytest.raises(PeerLost):
        core.handle(Q1, Failed("param_server", 1, "PeerLost", "the link from graph_server 0 lost a message", ""), 12.0)
    assert [send.to for send in core.ask_for_state(MEMBERS)] == [Q0, Q1]


def test_an_exception_that_is_none_of_ours_is_told_with_its_place():
    trace = 'Traceback:\n  File "/a/b.py", line 3, in f\n  File "/a/c.py", line 5, in g\nKeyError: 1'
    with pytest.raises(UnknownError, match=r"^graph_server 1: KeyError: 1 \(/a/c.py:5\)") as caught:
        started().handle(G1, Failed("graph_server", 1, "KeyError", "KeyError: 1", trace), 12.0)
    assert caught.value.what == "KeyError: 1 (/a/c.py:5)"


@pytest.mark.parametrize(
    ("settings", "share"),
    [
        ({"servers.backend": "lambda"}, "free"),  # lambda.cpu_share = auto
        ({"servers.backend": "lambda", "lambda.cpu_share": "real"}, "real"),
        ({"servers.backend": "lambda", "lambda.on": "aws"}, None),
        ({"servers.backend": "cpu"}, None),
    ],
)
def test_a_result_says_what_environments_that_are_not_on_aws_computed_with(settings, share):
    assert lambda_cpu_share(Config().replace(settings)) == share


def test_the_result_is_what_the_members_reported():
    result = finished(started(target_acc=0.9)).result()
    assert result["loss_history"] == [1.0, 1.0]
    assert (result["val_acc"], result["test_acc"], result["best_epoch"], result["epochs"]) == (0.9, 0.5, 2, 2)
    assert (result["val_loss"], result["scores"]["val"]["loss"]) == (1.0, 1.0)
    assert (result["train_seconds"], result["epoch_seconds_median"]) == (7.0, 4.0)
    assert result["stash_peak_versions"] == 3
    assert result["lambda"]["invocations"] == 5
    assert result["lambda"]["gb_s"] == 1.0
    assert result["lambda"]["relaunches"] == 0
    assert len(result["weights_digest"]) >= 16


def test_parameter_servers_that_disagree_end_the_run():
    core = finished(started(target_acc=0.9))
    core.handle(Q1, ModelWeights("final", 2, {"0.weight": np.zeros((2, 2))}, 3), 18.0)
    with pytest.raises(ProtocolError, match="disagree on the final weights"):
        core.result()


def state_of(version: int) -> ParamState:
    return ParamState(0, version, -1, -1, {f"{version}/0.weight": np.ones(1)}, {"steps": np.array(version)})


def test_a_state_is_saved_once_its_epochs_are_in_and_not_taken_for_a_result():
    core = started()
    assert core.handle(Q0, state_of(1), 12.0) == []
    core.handle(G0, epoch_report(0, 0), 13.0)
    actions = core.handle(G1, epoch_report(1, 0), 13.0)
    (saved,) = [action for action in actions if isinstance(action, Save)]
    assert (saved.state.version, saved.state.ledger["losses"]) == (1, core.ledger.losses)
    assert core.states.latest == saved.state
    assert core.models == {}


def test_a_member_that_is_silent_for_too_long_is_named():
    core = started(now=10.0)
    assert core.silent(40.0) is None
    for member, alive in (
        (G0, Usage(0, 1, 1, "{}")),
        (Q0, Heartbeat("param_server", 0)),
        (Q1, Heartbeat("param_server", 1)),
    ):
        core.handle(member, alive, 30.0)
    assert core.silent(40.1) == G1


def test_while_servers_load_silence_is_only_a_stall():
    core = coordinator()
    for member in MEMBERS:
        hello(core, member, now=0.0)
    assert core.silent(31.0) is None
    assert core.silent(core.config.servers.stall_s + 1) == G0


def test_tasks_that_get_done_are_movement_though_no_epoch_ends():
    core = started(now=10.0)
    for now, tasks, moved in [(20.0, 0, 10.0), (30.0, 5, 30.0), (40.0, 5, 30.0), (50.0, 6, 50.0)]:
        core.handle(G1, Usage(1, 1, 1, json.dumps({"tasks": tasks})), now)
        assert core.moved_at == moved


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"tasks": "3"}', '{"tasks": null}', "[" * 100_000])
def test_totals_that_are_none_are_the_senders_fault(text: str):
    core = started()
    for message in (Usage(0, 1, 1, text), Stopped("graph_server", 0, text), epoch_report(0, 0, usage=text)):
        with pytest.raises(RemoteProtocolError, match=rf"^{type(message).__name__}\.usage of graph_server 0: "):
            core.handle(G0, message, 11.0)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "-1", "1e999", "1" + 400 * "0"])
def test_totals_that_are_not_finite_or_are_negative_are_the_senders_fault(number: str):
    core = started()
    text = f'{{"tasks": 1, "gb_s": {number}}}'
    for message in (Usage(0, 1, 1, text), Stopped("graph_server", 0, text), epoch_report(0, 0, usage=text)):
        with pytest.raises(RemoteProtocolError, match=rf"^{type(message).__name__}\.usage of graph_server 0: gb_s = "):
            core.handle(G0, message, 11.0)
    assert core.usages.totals == {}


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (epoch_report(1, 0), "EpochReport of graph_server 0: it names graph_server 1"),
        (EvalReport(1, 0, tally(7)), "EvalReport of graph_server 0: it names graph_server 1"),
        (Usage(1, 1, 1, "{}"), "Usage of graph_server 0: it names graph_server 1"),
        (Stopped("graph_server", 1, "{}"), "Stopped of graph_server 0: it names graph_server 1"),
        (Stopped("param_server", 0, "{}"), "Stopped of graph_server 0: it names param_server 0"),
        (epoch_report(0, 0, [0.5, -0.5]), "EpochReport of graph_server 0: loss float64 [2], must be"),
        (epoch_report(0, 0, ghost_bytes=-1), "EpochReport of graph_server 0: -1 ghost bytes"),
        (epoch_report(0, 0, staleness=[4, -1]), "EpochReport of graph_server 0: 100 ghost bytes, staleness [4, -1]"),
        (Usage(0, -1, 1, "{}"), "Usage of graph_server 0: -1 tasks"),
        (Usage(0, 1, -1, "{}"), "Usage of graph_server 0: 1 tasks, -1 workers"),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)
def test_what_a_graph_server_cannot_report_is_its_fault_and_counts_for_nothing(message: Any, words: str):
    core = started()
    with pytest.raises(RemoteProtocolError) as caught:
        core.handle(G0, message, 11.0)
    assert str(caught.value).startswith(words)
    assert (core.usages.totals, core._reports, core._counts) == ({}, {}, {})


def test_a_member_that_has_left_is_not_missed():
    core = started(now=10.0)
    for member in MEMBERS:
        assert not core.everybody_left
        core.handle(member, Stopped(member.role, member.index, "{}"), 11.0)
    assert core.everybody_left
    assert core.silent(1e6) is None


def test_the_last_word_of_a_graph_server_is_its_usage_whatever_the_parameter_server_of_that_number_says():
    core = started()
    core.handle(G0, Stopped("graph_server", 0, '{"gb_s": 2.5}'), 11.0)
    core.handle(Q0, Stopped("param_server", 0, "{}"), 11.0)
    assert core.usages.totals == {0: {"gb_s": 2.5}}


def test_usage_is_complete_once_every_graph_server_has_said_its_last_word():
    core = finished(started(target_acc=0.9))
    for member in (G0, Q0, Q1):
        core.handle(member, Stopped(member.role, member.index, "{}"), 19.0)
    assert core.result()["usage_complete"] is False
    core.handle(G1, Stopped("graph_server", 1, '{"gb_s": 4}'), 19.0)
    assert core.result()["usage_complete"] is True
    assert core.result()["lambda"]["gb_s"] == 4


def test_usage_is_not_complete_where_invocations_were_cut():
    core = finished(started(target_acc=0.9))
    core.handle(G0, Stopped("graph_server", 0, '{"gb_s": 1}'), 19.0)
    core.handle(G1, Stopped("graph_server", 1, '{"gb_s": 4, "cut": 2}'), 19.0)
    assert core.result()["usage_complete"] is False
    assert core.result()["usage"]["cut"] == 2


def test_a_failure_is_a_last_word_too_but_no_bill():
    core = finished(started(target_acc=0.9))
    with pytest.raises(WorkerError):
        core.handle(G1, Failed("graph_server", 1, "WorkerError", "", ""), 19.0)
    for member in (G0, Q0, Q1):
        core.handle(member, Stopped(member.role, member.index, "{}"), 19.0)
    assert core.everybody_left
    assert core.result()["usage_complete"] is False


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("WorkerError", WorkerError),
        ("ConfigError", ConfigError),
        ("ValueError", UnknownError),  # none of ours
        ("__doc__", UnknownError),  # no error at all
        ("__builtins__", UnknownError),
    ],
)
def test_a_failure_of_a_member_is_raised_here_as_what_it_was_there(name: str, expected: type[Exception]):
    core = started()
    with pytest.raises(expected) as caught:
        core.handle(G1, Failed("graph_server", 1, name, "no bread", "Traceback of the server"), 12.0)
    assert str(caught.value) == "graph_server 1: no bread"
    notes = getattr(caught.value, "__notes__", ["Traceback of the server"])  # Python 3.10 has no notes
    assert notes == ["Traceback of the server"]


def test_everybody_is_told_to_stop():
    core = coordinator()
    for member in (G0, Q1, G1):
        hello(core, member)
    assert [(send.to, type(send.message), send.message.reason) for send in core.farewell("enough")] == [
        (Q1, Stop, "enough"),  # first: it would miss a graph server
        (G0, Stop, "enough"),
        (G1, Stop, "enough"),
    ]


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_progress_shows_the_sum_over_graph_servers():
    core = started()
    core.handle(G0, Usage(0, 3, 2, "{}"), 11.0)
    core.handle(G1, Usage(1, 4, 5, "{}"), 11.0)
    core.handle(G0, Usage(0, 1, 2, "{}"), 12.0)
    assert (core.status.tasks_in_flight, core.status.workers) == (5, 7)


def test_totals_add_up_what_servers_have_in_common_and_what_only_one_has():
    assert total({1: {"tasks": 2, "extra": 1.5}, 0: {"tasks": 1}}) == {"tasks": 3, "extra": 1.5}


def test_bytes_of_links_are_a_matrix_and_no_total():
    usage = {0: {"tasks": 1, "bytes_to_1": 200}, 1: {"tasks": 2, "bytes_to_0": 90}}
    assert total(usage) == {"tasks": 3}
    assert links(usage, parts=3, epochs=2) == [[0, 100, 0], [45, 0, 0], [0, 0, 0]]


# --- rule 6 -----------------------------------------------------------------------------------------------------------


def advanced() -> Coordinator:
    """Two epochs and an evaluation are in, the third epoch is half in; a checkpoint of version 2 is asked for."""
    core = started(patience=3)
    for epoch in range(2):
        for server in range(2):
            core.handle(graph_server(server), epoch_report(server, epoch), 12.0 + epoch)
    evaluate(core, 0, 5, now=13.5)
    core.handle(G0, epoch_report(0, 2), 13.9)
    weights = {f"{version}/0.weight": np.ones(1) for version in (1, 2)}  # 1 is the best
    core.handle(Q0, ParamState(0, 2, 1, -1, weights, {"steps": np.array(2)}), 14.0)
    return core


def test_a_run_goes_on_from_its_state_with_what_it_knew_and_spent():
    before = advanced().states.latest
    assert before is not None
    core = Coordinator(advanced().config, before=before)
    core.begin(100.0)
    for member in MEMBERS:
        hello(core, member, 100.0)
    assert core.handle(G0, Ready("graph_server", 0), 101.0) == core.handle(G1, Ready("graph_server", 1), 101.0) == []
    for q in (Q0, Q1):
        (fed,) = messages(core.handle(q, Ready(q.role, q.index), 102.0), ParamState)
        assert (fed[0], fed[1].version, fed[1].best, fed[1].judged) == (q, 2, 1, 0)
    core.handle(Q0, Ready("param_server", 0), 103.0)
    actions = core.handle(Q1, Ready("param_server", 1), 103.0)
    assert [(to, start.epoch, start.judged) for to, start in messages(actions, Start)] == [(m, 2, 0) for m in MEMBERS]
    assert core.ledger.losses == advanced().ledger.losses
    core.handle(G0, epoch_report(0, 2), 104.0)
    (record,) = records(core.handle(G1, epoch_report(1, 2), 104.0))
    assert (record["epoch"], record["usage"]["tasks"]) == (3, 12)  # 3 of each server, before and since
    assert record["time_s"] == pytest.approx(4.0 + 4.0)  # 4 s of training before, 4 s since the roles started


def test_a_state_of_epochs_that_are_not_in_waits_for_them():
    core = advanced()
    assert core.handle(Q1, ParamState(1, 3, -1, -1, {"3/0.weight": np.ones(1)}, {}), 14.0) == []
    assert core.states.latest is not None
    assert core.states.latest.version == 2
    (saved,) = [a for a in core.handle(G1, epoch_report(1, 2), 15.0) if isinstance(a, Save)]
    assert saved.state.version == 3
    assert core.states.given >= {Q1}


def test_a_state_that_comes_after_a_newer_one_is_not_saved():
    """Parameter servers that are left after a failure may have come unequally far; a checkpoint of the older one would
    take the place of the newer one's (``siafu.checkpoints``, S2)."""
    core = advanced()
    core.handle(G1, epoch_report(1, 2), 14.0)
    saved = []
    for server, version in ((Q0, 3), (Q1, 2)):
        state = ParamState(server.index, version, -1, -1, {f"{version}/0.weight": np.ones(1)}, {})
        saved += [action.state.version for action in core.handle(server, state, 15.0) if isinstance(action, Save)]
    assert saved == [3]
    assert core.states.given >= {Q0, Q1}
    assert core.states.latest is not None
    assert core.states.latest.version == 3


def test_a_checkpoint_is_asked_for_now_and_then():
    core = coordinator()
    core = Coordinator(core.config.replace({"run.checkpoint_seconds": 20.0}))
    for member in MEMBERS:
        hello(core, member)
    for member in MEMBERS:
        core.handle(member, Ready(member.role, member.index), 10.0)
    assert messages(core.tick(29.9), GetState) == []
    assert [to for to, _ in messages(core.tick(30.0), GetState)] == [Q0]
    assert messages(core.tick(31.0), GetState) == []


def test_the_evaluation_that_ends_a_run_is_judged_once_more_by_who_goes_on():
    """It was the best, and parameter servers have let the one before go: nobody may ask for that."""
    core = started(epochs=2)
    for epoch in range(2):
        for server in range(2):
            core.handle(graph_server(server), epoch_report(server, epoch), 12.0 + epoch)
        evaluate(core, epoch, 5 + epoch, now=13.5 + epoch)
    assert core.stopped == "epochs"
    weights = {"2/0.weight": np.ones(1)}
    core.handle(Q0, ParamState(0, 2, 2, -1, weights, {}), 16.0)
    state = core.states.latest
    assert state is not None
    assert (state.ledger["judged"], state.ledger["best"]["epoch"]) == (0, 1)
    assert state_message(state, 0).best == -1
    again = Coordinator(core.config, before=state)
    assert again.ledger.judged == 0


def test_a_run_at_a_limit_goes_on_behind_its_last_evaluation():
    core = limited(max_seconds=52)
    for epoch, now in enumerate([20.0, 30.0, 40.0]):
        evaluate(core, epoch, 5 + epoch, now=now)
    assert core.at_limit
    assert (core._dump(0, 41.0)["judged"], core._dump(0, 41.0)["best"]["epoch"]) == (2, 3)


def test_what_a_server_has_is_not_added_up_over_attempts():
    before = {"gb_s": 2.0, "environments_wanted": 8, "environments_wanted_peak": 9, "split_in": 4}
    now = {"gb_s": 1.0, "environments_wanted": 6, "environments_wanted_peak": 7, "split_in": 0}
    assert added(before, now) == {"gb_s": 3.0, "environments_wanted": 6, "environments_wanted_peak": 9, "split_in": 4}


def test_memory_is_what_the_server_that_held_the_most_held_in_any_attempt():
    held = {0: {"peak_memory_bytes": 5.0, "gb_s": 1.0}, 1: {"peak_memory_bytes": 9.0, "gb_s": 1.0}}
    assert total(held) == {"peak_memory_bytes": 9.0, "gb_s": 2.0}
    assert added(held[1], held[0]) == {"peak_memory_bytes": 9.0, "gb_s": 2.0}
