"""Runs that lose members, and runs that were stopped and go on: real processes. The
oracle is the undisturbed run's bits."""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from siafu.__main__ import main
from siafu.config import REPARTITIONS, Data
from siafu.errors import ConfigError
from tests.integration.processes import Training

RUN = (
    "digits",
    "--mode",
    "pipe",
    "--parts",
    "2",
    "--param-servers",
    "2",
    "--lambdas",
    "2",
    "--intervals",
    "4",
    "--dropout",
    "0.5",
    "--epochs",
    "60",
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    with Training(tmp_path_factory.mktemp("quiet") / "run", *RUN) as training:
        assert training.wait() == 0, training.errors
        return training.result


def same(result: dict[str, object], undisturbed: dict[str, object]) -> None:
    for key in ("weights_digest", "loss_history", "scores", "final_scores", "best_epoch", "epochs"):
        assert result[key] == undisturbed[key], key


@pytest.mark.long
@pytest.mark.parametrize(
    ("role", "number"),
    [
        ("graph_server", signal.SIGKILL),
        ("param_server", signal.SIGKILL),
        ("graph_server", signal.SIGSTOP),
    ],
)
def test_a_server_that_is_gone_or_stands_still_is_replaced_without_a_trace_in_the_weights(
    tmp_path: Path, undisturbed: dict[str, object], role: str, number: signal.Signals
) -> None:
    with Training(
        tmp_path / "run", *RUN, "--set", "servers.silence_s=8", "--set", "servers.heartbeat_s=0.2"
    ) as training:
        training.until(lambda: training.epochs() >= 4, "four epochs")
        os.kill(training.pids(role)[0], number)
        assert training.wait(180) == 0, training.errors
        assert training.all_gone(60)
        result = training.result
    same(result, undisturbed)
    (restart,) = result["restarts"]
    assert restart["version"] >= 3  # what parameter servers knew, though nothing was ever saved
    assert restart["reason"].startswith(f"{role} ")
    assert ("SIGKILL" if number == signal.SIGKILL else "silent") in restart["reason"]
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [r["epoch"] for r in records if r["event"] == "epoch"] == list(range(1, 61))
    assert [r["epoch"] for r in records if r["event"] == "evaluation"] == list(range(1, 61))
    assert [r["reason"] for r in records if r["event"] == "restart"] == [restart["reason"]]


@pytest.mark.long
def test_a_second_death_while_it_starts_again_is_survived(tmp_path: Path, undisturbed: dict[str, object]) -> None:
    with Training(tmp_path / "run", *RUN) as training:
        training.until(lambda: training.epochs() >= 4, "four epochs")
        first = set(training.pids("graph_server"))
        os.kill(max(first), signal.SIGKILL)
        training.until(lambda: len(set(training.pids("graph_server")) - first) >= 1, "a new graph server")
        os.kill(min(set(training.pids("graph_server")) - first), signal.SIGKILL)
        assert training.wait(180) == 0, training.errors
        result = training.result
    same(result, undisturbed)
    assert len(result["restarts"]) == 2


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_whose_launcher_was_told_to_go_or_killed_is_resumed(
    tmp_path: Path, undisturbed: dict[str, object], number: signal.Signals
) -> None:
    run = tmp_path / "run"
    with Training(run, *RUN, "--checkpoint-every", "2") as training:
        training.until(lambda: training.epochs() >= 5, "five epochs")
        training.process.send_signal(number)
        assert training.wait() == (128 + number if number == signal.SIGTERM else -number)
        assert training.all_gone(60)
        if number == signal.SIGTERM:
            assert f"siafu resume {run} goes on from epoch" in training.errors
    with Training(tmp_path / "again", str(run), verb="resume", run_dir_flag=False) as training:
        assert training.wait(180) == 0, training.errors
        result = training.result
    same(result, undisturbed)
    assert result["resumed_from"] >= (4 if number == signal.SIGTERM else 2)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_launcher_under_guard_that_dies_or_hangs_is_replaced(
    tmp_path: Path, undisturbed: dict[str, object], number: signal.Signals
) -> None:
    quick = ("--checkpoint-every", "2", "--set", "servers.silence_s=8", "--set", "servers.heartbeat_s=0.2")
    with Training(tmp_path / "run", *RUN, *quick, "--guard") as training:
        training.until(lambda: training.epochs() >= 5, "five epochs")
        (launcher,) = set(training.pids("train")) - {training.process.pid}
        os.kill(launcher, number)
        assert training.wait(180) == 0, training.errors
        assert training.all_gone(60)
        result = training.result
        why = "killed by SIGKILL" if number == signal.SIGKILL else "silent for more than 8 s"
        assert f"siafu: the launcher was lost: {why}" in training.errors
    same(result, undisturbed)
    assert result["resumed_from"] >= 2


@pytest.mark.long
@pytest.mark.usefixtures("not_before_five_epochs")
def test_a_run_at_its_limit_goes_on_with_a_higher_one_and_on_other_servers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, quiet = tmp_path / "run", ("--json", "--quiet")
    common = ("train", "digits", "--backend", "cpu", "--mode", "pipe", "--parts", "2", "--intervals", "4", *quiet)
    assert main([*common, "--epochs", "100000", "--max-time", "4", "--run-dir", str(run)]) == 3
    limited = json.loads(capsys.readouterr().out)
    more = limited["epochs"] + 5
    others = ("--max-time", "0", "--epochs", str(more), "--parts", "1", "--param-servers", "2")
    assert main(["resume", str(run), *others, *quiet]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["resumed_from"] >= limited["epochs"]
    assert (result["epochs"], len(result["loss_history"])) == (more, more)
    assert result["loss_history"][: limited["epochs"]] == limited["loss_history"]
    assert result["train_seconds"] > limited["train_seconds"]
    assert main(["resume", str(run), "--quiet"]) == 2
    assert "is finished (epochs)" in capsys.readouterr().err


@pytest.mark.long
def test_async_goes_on_within_its_accuracy(tmp_path: Path) -> None:
    arguments = (
        "digits",
        "--mode",
        "async",
        "--staleness",
        "1",
        "--parts",
        "2",
        "--param-servers",
        "2",
        "--lambdas",
        "2",
        "--intervals",
        "4",
        "--epochs",
        "60",
    )
    with Training(tmp_path / "run", *arguments) as training:
        training.until(lambda: training.epochs() >= 20, "twenty epochs")
        os.kill(training.pids("param_server")[0], signal.SIGKILL)
        assert training.wait(120) == 0, training.errors
        result = training.result
    assert len(result["restarts"]) == 1
    assert result["test_acc"] > 0.93  # an undisturbed one: .96 to .97
    assert result["stash_peak_versions"] <= 3


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nowhere"], "not a run directory"),
        (["RUN", "--set", "model.hidden=8"], "model.hidden = (8,): the run has"),
        (["RUN", "--set", "data.source=cora"], "data.source = cora: the run has digits"),
    ],
)
def test_what_cannot_go_on_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    run = tmp_path / "run"
    assert main(["train", "digits", "--backend", "cpu", "--epochs", "1", "--run-dir", str(run), "--quiet"]) == 0
    capsys.readouterr()
    assert main(["resume", *(str(run) if word == "RUN" else word for word in arguments), "--quiet"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("siafu resume: ")
    assert reason in line


@pytest.mark.long
def test_a_run_that_begins_anew_keeps_its_history_straight_and_its_bill(
    tmp_path: Path, undisturbed: dict[str, object]
) -> None:
    """The only parameter server dies, and nothing was saved."""
    with Training(tmp_path / "run", *RUN, "--param-servers", "1") as training:
        training.until(lambda: training.epochs() >= 3, "three epochs")
        os.kill(training.pids("param_server")[0], signal.SIGKILL)
        assert training.wait(180) == 0, training.errors
        result = training.result
    assert [restart["version"] for restart in result["restarts"]] == [0]
    assert result["loss_history"] == undisturbed["loss_history"]
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    epochs = [record for record in records if record["event"] == "epoch"]
    assert [record["epoch"] for record in epochs] == list(range(1, 61))
    assert epochs[0]["usage"]["tasks"] > epochs[1]["usage"]["tasks"] - epochs[0]["usage"]["tasks"]  # three epochs more


# --- the data of a run ------------------------------------------------------------------------------------------------

EPOCHS = ("--backend", "cpu", "--checkpoint-every", "2")


def write_graph(file: Path, shift: int = 0) -> None:
    """The same vertices and edges; ``shift``: of labels, and of the splits, whose training
    and test vertices change places."""
    rng = np.random.default_rng(3)
    labels, split = rng.integers(0, 3, 90), rng.integers(0, 3, 90)
    edges, x = rng.integers(0, 90, (2, 400)), rng.normal(size=(90, 6)).astype(np.float32)
    if shift:
        labels, split = (labels + shift) % 3, 2 - split
    masks = {f"{name}_mask": split == number for number, name in enumerate(("train", "val", "test"))}
    counts = {"num_nodes": 90, "num_features": 6, "num_classes": 3}
    np.savez(file, edge_index=edges, x=x, y=labels, **counts, **masks)


@pytest.fixture
def trained_on_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """The directory of a run of ten epochs on ``graph.npz``, which it names relative
    to the folder it was started in."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    write_graph(tmp_path / "graph.npz")
    assert main(["train", "graph.npz", "--epochs", "10", "--run-dir", "run", *EPOCHS]) == 0
    capsys.readouterr()
    return tmp_path / "run"


def test_a_run_does_not_go_on_with_other_data_and_keeps_what_it_says_of_its_own(
    trained_on_a_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained_on_a_file
    before = {file.name: file.read_bytes() for file in run.iterdir() if file.is_file()}
    write_graph(run.parent / "graph.npz", shift=1)
    assert main(["resume", str(run), "--epochs", "20"]) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"graph.npz: its labels and splits differ from those that {run} was trained on" in line
    assert {file.name: file.read_bytes() for file in run.iterdir() if file.is_file()} == before
    (run / "manifest.json").unlink()  # a run that does not say is not believed, either
    assert main(["resume", str(run), "--epochs", "20"]) == 2
    assert main(["predict", str(run), "--out", str(run / "p.csv")]) == 2


def test_a_checkpoint_of_other_data_is_refused_though_the_runs_manifest_fits(
    trained_on_a_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained_on_a_file
    write_graph(run.parent / "graph.npz", shift=1)
    assert main(["train", "graph.npz", "--epochs", "2", "--run-dir", "other", *EPOCHS]) == 0
    (run / "manifest.json").write_bytes((run.parent / "other" / "manifest.json").read_bytes())
    capsys.readouterr()
    assert main(["resume", str(run), "--epochs", "20"]) == 2
    assert "was trained on other labels and splits" in capsys.readouterr().err


@pytest.mark.long
def test_a_warm_start_says_what_the_weights_were_trained_on(
    trained_on_a_file: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    run = trained_on_a_file
    again = ["train", "graph.npz", "--epochs", "1", "--warm-start", str(run), *EPOCHS]
    assert main([*again, "--run-dir", "same"]) == 0
    assert "trained on" not in caplog.text
    write_graph(run.parent / "graph.npz", shift=3)  # labels stay, training and test vertices change places
    assert main([*again, "--run-dir", "splits"]) == 0
    assert "trained on this graph with other splits: it may have learnt labels that are scored here" in caplog.text
    write_graph(run.parent / "graph.npz", shift=1)
    assert main([*again, "--run-dir", "labels"]) == 0
    assert "trained on other labels and splits" in caplog.text


@pytest.mark.long
def test_a_run_is_found_and_its_graph_too_from_another_folder_and_in_other_parts(
    trained_on_a_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["predict", "../run", "--out", "p.csv", "--set", "data.parts=2"]) == 0
    assert main(["resume", "../run", "--epochs", "12", "--parts", "2"]) == 0
    assert json.loads((trained_on_a_file / "result.json").read_text())["epochs"] == 12
    (tmp_path / "graph.npz").unlink()
    capsys.readouterr()
    assert main(["predict", "../run", "--out", "p.csv"]) == 2
    assert str(tmp_path / "graph.npz") in capsys.readouterr().err


def test_what_changes_the_data_is_fixed_for_a_run(trained_on_a_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for setting in (
        "data.feature_norm=row",
        "data.train_per_class=5",
        "data.val_per_class=5",
        "data.test_edges=0.3",
        "data.val_edges=0.3",
        "data.negatives=3",
        "data.eval_negatives=7",
        "data.split=1",
        "data.directed=true",
    ):
        assert main(["resume", str(trained_on_a_file), "--epochs", "20", "--set", setting]) == 2
        assert f"{setting.partition('=')[0]} = " in capsys.readouterr().err


def test_every_setting_of_data_is_fixed_but_those_that_cut_or_keep_the_same_graph() -> None:
    fixed = {f.name for f in fields(Data)} - REPARTITIONS
    assert {f.name for f in fields(Data)} > REPARTITIONS
    assert {"source", "task", "test_edges", "train_per_class", "feature_norm", "inductive", "seed", "split"} < fixed


@pytest.mark.long
def test_a_finished_run_that_goes_on_ends_with_the_bits_of_a_longer_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = (
        "digits",
        "--backend",
        "cpu",
        "--mode",
        "pipe",
        "--parts",
        "2",
        "--intervals",
        "4",
        "--param-servers",
        "2",
    )
    run, quiet = tmp_path / "run", ("--json", "--quiet")
    assert main(["train", *common, *quiet, "--epochs", "10", "--run-dir", str(run)]) == 0
    assert main(["resume", str(run), *quiet, "--epochs", "20"]) == 0
    assert main(["train", *common, *quiet, "--epochs", "20", "--run-dir", str(tmp_path / "long")]) == 0
    _, result, long = map(json.loads, capsys.readouterr().out.splitlines())
    same(result, long)
    assert result["resumed_from"] == 10
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for event in ("epoch", "evaluation"):
        numbers = [record["epoch"] for record in records if record["event"] == event]
        assert numbers == sorted(set(numbers))
        assert numbers == list(range(1, 21))  # as progress and best_epoch count, in every file
    assert main(["resume", str(run), *quiet]) == 2
    assert "is finished (epochs); a higher --epochs goes on" in capsys.readouterr().err


@pytest.mark.long
def test_a_run_that_came_to_its_target_goes_on_to_a_higher_one_and_begins_anew_without_its_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, quiet = tmp_path / "run", ("--json", "--quiet")
    common = ("digits", "--backend", "cpu", "--mode", "async", "--parts", "2", "--intervals", "4", "--epochs", "60")
    assert main(["train", *common, *quiet, "--target-acc", "0.5", "--run-dir", str(run)]) == 0
    assert main(["resume", str(run), *quiet, "--target-acc", "0.8"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["stopped"] == second["stopped"] == "target"
    assert second["resumed_from"] >= first["epochs"]
    assert second["epochs"] > first["epochs"]
    shutil.rmtree(run / "checkpoints")
    assert main(["resume", str(run), *quiet, "--target-acc", "0.85"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["resumed_from"] is None
    epochs = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    numbers = [record["epoch"] for record in epochs if record["event"] == "epoch"]
    assert numbers == sorted(set(numbers))


@pytest.mark.long
def test_lambdas_that_die_at_start_lose_no_epoch_and_the_error_says_how_to_go_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    run, broken = tmp_path / "run", tmp_path / "broken"
    monkeypatch.setenv("PATH", str(broken), prepend=os.pathsep)  # all that an environment inherits
    handler = "lambda.handler=tests.integration.handlers.dies_at_start_once_there_is_a_file"
    arguments = (
        "digits",
        "--backend",
        "lambda",
        "--lambdas",
        "2",
        "--mode",
        "pipe",
        "--intervals",
        "4",
        "--epochs",
        "100000",
    )
    with Training(run, *arguments, "--set", handler) as training:
        training.until(lambda: training.epochs() >= 12, "twelve epochs")
        broken.touch()
        assert training.wait(120) == 1
        last = training.errors.splitlines()[-1]
    assert last.startswith("siafu train: graph_server 0: ")
    assert "in a row ended before they took a task" in last
    assert f"with --set SECTION.KEY=VALUE for what is to change, siafu resume {run} goes on from epoch " in last
    version = int(last.rpartition(" ")[2])
    assert version >= 12
    assert main(["predict", str(run), "--backend", "cpu", "--json", "--quiet"]) == 0
    said = capsys.readouterr()
    assert "its run is not finished: these are the weights after epoch" in caplog.text + said.err
    evaluations = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    scores = [record["val"]["acc"] for record in evaluations if record["event"] == "evaluation"]
    assert json.loads(said.out)["scores"]["val"]["acc"] in (max(scores[:-1]), max(scores))
    anew = ("--set", "lambda.handler=lambda_funcs.handler.handler", "--epochs", str(version + 2), "--quiet")
    with Training(tmp_path / "again", str(run), *anew, verb="resume", run_dir_flag=False) as training:
        assert training.wait(120) == 0, training.errors
        assert training.result["resumed_from"] == version


def test_a_start_that_fails_by_a_mistake_leaves_no_run_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise ConfigError("graph_server 0: no credentials")

    monkeypatch.setattr("run_coordinator.launch.run", refuse)
    run, empty = tmp_path / "run", tmp_path / "empty"
    empty.mkdir()
    for folder in (run, empty):
        assert main(["train", "digits", "--epochs", "1", "--quiet", "--backend", "cpu", "--run-dir", str(folder)]) == 2
    assert not run.exists()
    assert empty.exists()  # the user's own
