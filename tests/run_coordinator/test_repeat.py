"""Many runs below one directory: what counts, what goes on, what stops them. Rules are
those of ``run_coordinator.repeat``."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from run_coordinator import api, repeat, run_directory
from run_coordinator.actions import Status
from run_coordinator.repeat import Done
from run_coordinator.run import Run
from siafu import run_files
from siafu.config import Config
from siafu.errors import ConfigError, Diverged, GnnError, PeerLost, WorkerError
from tests.toy_graphs import random_graph

SCORES = {0: 0.5, 1: 0.7, 2: 0.9}
Trainer = Callable[..., Run]


def result(config: Config, **changes: Any) -> dict[str, Any]:
    """What a run of that config would give."""
    score = SCORES.get(config.train.seed, 0.6)
    return {
        "val_acc": score,
        "test_acc": score - 0.1,
        "best_epoch": 2,
        "epochs": 3,
        "train_seconds": 1.0,
        "stopped": "epochs",
        "weights_digest": "0",
        "metric": "accuracy",
        "cost": {"usd": 0.25},
        "run_dir": config.run.dir,
        **changes,
    }


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Config]:
    """The configs of the runs that were trained, by a trainer that only leaves their results."""
    configs: list[Config] = []

    def train(config: Config, on_status: Any = None, on_epoch: Any = None) -> Run:
        configs.append(config)
        folder = Path(config.run.dir)
        folder.mkdir(parents=True)
        found = result(config)
        (folder / "result.json").write_text(json.dumps(found))
        return Run(folder, found)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api, "train", train)
    return configs


def failing(trained: list[Config], monkeypatch: pytest.MonkeyPatch, at: int, error: BaseException) -> None:
    """From now on, the run with this seed raises."""
    train = api.train

    def fail(config: Config, on_status: Any = None, on_epoch: Any = None) -> Run:
        if config.train.seed == at:
            Path(config.run.dir).mkdir(parents=True)
            (Path(config.run.dir) / "config.toml").write_text("")
            if isinstance(error, Diverged):
                run_files.write_divergence(Path(config.run.dir), error)
            raise error
        return train(config=config)

    monkeypatch.setattr(api, "train", fail)


# --- seeds ------------------------------------------------------------------------------------------------------------


def test_runs_differ_by_their_seeds_and_are_summed_up(trained: list[Config]):
    found = repeat.repeat("digits", runs=3, epochs=3)
    assert [config.train.seed for config in trained] == [0, 1, 2]
    assert {config.train.epochs for config in trained} == {3}
    assert found.summary["val_acc"] == pytest.approx({"mean": 0.7, "std": 0.2, "min": 0.5, "max": 0.9})
    assert found.test_acc == pytest.approx((0.6, 0.2))
    assert [run.dir.name for run in found.runs] == ["seed-0", "seed-1", "seed-2"]
    assert json.loads((found.dir / "summary.json").read_text()) == found.summary


def test_runs_are_a_table(trained: list[Config]):
    pytest.importorskip("pandas", reason="pandas is not installed")
    found = repeat.repeat("digits", runs=3)
    assert repr(found) == f"Runs(3 of 3, val 0.7000 ± 0.2000, test 0.6000 ± 0.2000, {found.dir})"
    frame = found.to_pandas()
    assert frame["val_acc"].tolist() == [0.5, 0.7, 0.9]
    assert frame["run_dir"].tolist() == [str(run.dir) for run in found.runs]
    assert "<tr><td>1</td><td>0.7000</td><td>0.6000</td><td>2</td><td>3</td><td>1.0</td></tr>" in found._repr_html_()


def test_no_finished_run_is_a_table_without_rows(tmp_path: Path):
    pytest.importorskip("pandas", reason="pandas is not installed")
    summary: repeat.SummaryOfSeeds = {**repeat.summarised([]), "asked": 2, "run_dir": str(tmp_path)}
    found = repeat.Runs(tmp_path, (), summary)
    assert repr(found) == f"Runs(0 of 2, {tmp_path})"
    assert (len(found.to_pandas()), "val_acc" in found.to_pandas()) == (0, True)


def test_seeds_count_from_the_one_that_is_asked_and_data_may_count_along(trained: list[Config]):
    repeat.repeat("digits", runs=2, seed=5, data_seeds=True, settings={"data.seed": 3})
    assert [(config.train.seed, config.data.seed) for config in trained] == [(5, 3), (6, 4)]


def test_one_run_deviates_by_nothing_and_runs_without_scores_have_none():
    assert repeat.spread([0.5]) == {"mean": 0.5, "std": 0.0, "min": 0.5, "max": 0.5}
    assert repeat.spread([None, None]) is None


@pytest.mark.parametrize(("runs", "jobs"), [(0, 1), (1, 0)])
def test_no_runs_are_refused(runs: int, jobs: int):
    with pytest.raises(ConfigError, match=rf"^runs = {runs}, jobs = {jobs}: must be >= 1$"):
        repeat.repeat("digits", runs=runs, jobs=jobs)


# --- rule 2 -----------------------------------------------------------------------------------------------------------


def test_the_same_call_goes_on_where_an_interrupted_one_was(trained: list[Config], monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        failing(trained, patch, at=1, error=KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            repeat.repeat("digits", runs=3)
    heard: list[Done] = []
    found = repeat.repeat("digits", runs=3, on_done=heard.append)
    assert [config.train.seed for config in trained] == [0, 1, 2]
    assert [(done.trial.seed, done.before) for done in heard] == [(0, True), (1, False), (2, False)]
    assert len(found.runs) == 3


def test_more_runs_take_those_that_are_there(trained: list[Config]):
    first, second = repeat.repeat("digits", runs=1), repeat.repeat("digits", runs=2)
    assert first.dir == second.dir
    assert [config.train.seed for config in trained] == [0, 1]


def test_other_settings_get_another_directory(trained: list[Config]):
    assert repeat.repeat("digits", runs=1).dir != repeat.repeat("digits", runs=1, lr=0.5).dir


def test_a_directory_with_trials_of_other_settings_is_refused(trained: list[Config], tmp_path: Path):
    repeat.repeat("digits", runs=1, run_dir=str(tmp_path / "mine"))
    with pytest.raises(ConfigError, match=r"mine: holds trials with train\.lr = 0\.01, asked is 0\.5$"):
        repeat.repeat("digits", runs=1, lr=0.5, run_dir=str(tmp_path / "mine"))
    (tmp_path / "else").mkdir()
    (tmp_path / "else/thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"else: holds something else already$"):
        repeat.repeat("digits", runs=1, run_dir=str(tmp_path / "else"))


def test_a_second_call_leaves_the_runs_of_the_first_alone(trained: list[Config], monkeypatch: pytest.MonkeyPatch):
    train = api.train

    def busy(config: Config, on_status: Any = None, on_epoch: Any = None) -> Run:
        Path(config.run.dir).mkdir()
        (Path(config.run.dir) / "config.toml").touch()
        with monkeypatch.context() as patch:
            patch.setattr(api, "train", train)
            with pytest.raises(ConfigError, match=r"digits-gcn-seeds-\w+: this run is under way$"):
                repeat.repeat("digits", runs=2)
        (Path(config.run.dir) / "config.toml").unlink()  # FileNotFoundError, had it removed the directory
        Path(config.run.dir).rmdir()
        return train(config=config)

    with monkeypatch.context() as patch:
        patch.setattr(api, "train", busy)
        assert len(repeat.repeat("digits", runs=2).runs) == 2
    assert len(repeat.repeat("digits", runs=3).runs) == 3


def test_a_run_that_somebody_resumes_is_not_begun_anew(trained: list[Config]):
    first = repeat.repeat("digits", runs=1)
    (first.runs[0].dir / "result.json").unlink()
    under_way = pytest.raises(ConfigError, match=r"seed-0: this run is under way$")
    with run_directory.alone(first.runs[0].dir), under_way:
        repeat.repeat("digits", runs=1)
    assert first.runs[0].dir.is_dir()


# --- rule 3 -----------------------------------------------------------------------------------------------------------


def test_a_budget_is_of_all_runs_together_and_counts_those_of_earlier_calls(trained: list[Config]):
    found = repeat.repeat("digits", runs=5, budget=0.6)
    assert [config.run.budget_usd for config in trained] == pytest.approx([0.6, 0.35, 0.1])
    assert len(found.runs) == 3
    assert len(repeat.repeat("digits", runs=5, budget=0.6).runs) == 3
    assert len(repeat.repeat("digits", runs=5, budget=2.0).runs) == 5
    assert len(trained) == 5


def test_a_run_that_a_limit_has_stopped_is_not_finished(trained: list[Config], monkeypatch: pytest.MonkeyPatch):
    train = api.train

    def stopped(config: Config, on_status: Any = None, on_epoch: Any = None) -> Run:
        run = train(config=config)
        told = {**run.result, "stopped": "time" if config.train.seed == 1 else "epochs"}
        (run.dir / "result.json").write_text(json.dumps(told))
        return Run(run.dir, told)

    with monkeypatch.context() as patch:
        patch.setattr(api, "train", stopped)
        assert len(repeat.repeat("digits", runs=3, max_time="1h").runs) == 1
    assert len(repeat.repeat("digits", runs=3).runs) == 3
    assert [config.train.seed for config in trained] == [0, 1, 1, 2]


@pytest.mark.parametrize("said", ["{}", "[]", "3", '{"stopped"'], ids=["nothing", "list", "number", "cut short"])
def test_a_run_whose_result_says_nothing_is_not_finished(trained: list[Config], said: str):
    first = repeat.repeat("digits", runs=2)
    (first.runs[0].dir / "result.json").write_text(said)
    assert len(repeat.repeat("digits", runs=2).runs) == 2
    assert [config.train.seed for config in trained] == [0, 1, 0]


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [GnnError("epoch 3: the loss is nan"), PeerLost("gone"), ConfigError("no")])
def test_a_run_that_fails_is_the_failure_of_all(
    trained: list[Config], monkeypatch: pytest.MonkeyPatch, error: GnnError
):
    failing(trained, monkeypatch, at=1, error=error)
    with pytest.raises(type(error), match=str(error)):
        repeat.repeat("digits", runs=3)


@pytest.mark.parametrize("error", [Diverged("the loss is nan")])
def test_where_trials_may_diverge_that_is_their_result(
    trained: list[Config], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: GnnError
):
    config = Config()
    trials, folder = repeat.seeds_of(config, 3), repeat.folder_of(config, "test", {})
    with monkeypatch.context() as patch:
        failing(trained, patch, at=1, error=error)
        done = list(repeat.carry_out(trials, folder, config, may_diverge=True))
    assert [one.error for one in done] == ["", str(error), ""]
    assert repeat._finished(folder, trials[1], may_diverge=False) is None  # where it is none, it is tried again
    again = list(repeat.carry_out(trials, folder, config, may_diverge=True))
    assert [(one.error, one.before) for one in again] == [("", True), (str(error), True), ("", True)]
    for refused in (
        PeerLost("gone"),
        GnnError("no loopback"),
        WorkerError("can't start new thread"),
    ):  # no setting's fault
        with monkeypatch.context() as patch:
            failing(trained, patch, at=3, error=refused)
            with pytest.raises(type(refused)):
                list(repeat.carry_out(repeat.seeds_of(config, 4), folder, config, may_diverge=True))
    assert repeat._finished(folder, repeat.seeds_of(config, 4)[3], may_diverge=True) is None


# --- rule 4, with real runs -------------------------------------------------------------------------------------------


@pytest.mark.long
def test_runs_side_by_side_give_the_weights_of_runs_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    options = {
        "mode": "pipe",
        "backend": "cpu",
        "epochs": 2,
        "intervals": 2,
        "settings": {"data.cache_dir": str(tmp_path)},
    }
    graph = random_graph(1)
    beside = repeat.repeat(graph, runs=2, jobs=2, run_dir=str(tmp_path / "beside"), **options)
    alone = api.train(graph, seed=1, run_dir=str(tmp_path / "alone"), **options)
    assert beside.runs[1].result["weights_digest"] == alone.result["weights_digest"]
    np.testing.assert_allclose(beside.runs[1].result["loss_history"], alone.result["loss_history"])


def processes(monkeypatch: pytest.MonkeyPatch, code: Callable[[str], str]) -> None:
    """From now on a trial's process runs the code that its name gives."""

    def command(*words: str) -> list[str]:
        file = Path(words[words.index("--config") + 1])
        return [sys.executable, "-c", code(file.stem[1:])]

    monkeypatch.setattr(repeat.start, "command", command)


def unwatched(trial: repeat.Trial) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def test_a_result_longer_than_a_pipe_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    losses = [0.123456789] * 50_000  # a pipe holds 64 KiB
    said = f"import json; print(json.dumps({{'loss_history': [{losses[0]}] * {len(losses)}}}))"
    processes(monkeypatch, lambda name: said)
    ((_, outcome),) = repeat._side_by_side(iter(repeat.seeds_of(Config(), 1)), tmp_path, 2, unwatched, None)
    assert isinstance(outcome, dict)
    assert outcome["loss_history"] == losses


def test_processes_are_ended_with_the_call_that_began_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pid, draft = tmp_path / "pid", tmp_path / "draft"
    writes = f"open({str(draft)!r}, 'w').write(str(os.getpid())); os.rename({str(draft)!r}, {str(pid)!r})"
    sleeps = f"import os, signal; {writes}; signal.pause()"
    waits = f"import os, time\nwhile not os.path.exists({str(pid)!r}): time.sleep(0.01)\nprint('{{}}')"
    processes(monkeypatch, lambda name: waits if name == "seed-0" else sleeps)
    shown: list[str] = []

    @contextlib.contextmanager
    def watch(trial: repeat.Trial) -> Iterator[None]:
        shown.append(trial.name)
        try:
            yield
        finally:
            shown.remove(trial.name)

    trials = repeat._side_by_side(iter(repeat.seeds_of(Config(), 3)), tmp_path, 2, watch, None)
    assert next(trials)[0].seed == 0
    assert shown == ["seed-1"]
    trials.close()
    assert shown == []
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_a_failure_that_somebody_keeps_ends_processes_and_frees_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A notebook keeps the last exception, with all that its frames hold."""
    monkeypatch.chdir(tmp_path)
    pid, draft = tmp_path / "pid", tmp_path / "draft"
    writes = f"open({str(draft)!r}, 'w').write(str(os.getpid())); os.rename({str(draft)!r}, {str(pid)!r})"
    sleeps = f"import os, signal; {writes}; signal.pause()"
    said = json.dumps({"type": "PeerLost", "error": "graph_server 0 died"})
    waits = f"import os, time\nwhile not os.path.exists({str(pid)!r}): time.sleep(0.01)\nprint({said!r})"
    processes(monkeypatch, lambda name: waits if name == "seed-0" else sleeps)

    with pytest.raises(PeerLost, match="graph_server 0 died") as kept:
        repeat.repeat("digits", runs=2, jobs=2, watch=unwatched, run_dir="many")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    with run_directory.alone(tmp_path / "many"):
        assert kept.traceback


def test_the_progress_of_a_trial_in_another_process_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    told: list[Status] = []
    config = Config().replace({"run.dir": str(tmp_path)})
    scores = {"train": None, "val": {"acc": 0.5, "loss": 1.0}, "test": None}
    status = json.dumps(dataclasses.asdict(Status("training", 7, 0.25, scores)))
    heard = tmp_path / "heard"
    processes(
        monkeypatch,
        lambda name: f"import os, time\nopen({str(tmp_path / '.status.json')!r}, 'w').write({status!r})\n"
        f"while not os.path.exists({str(heard)!r}): time.sleep(0.01)\nprint('{{}}')",
    )

    def hear(status: Status) -> None:
        told.append(status)
        heard.touch()

    list(
        repeat._side_by_side(
            iter(repeat.seeds_of(config, 1)), tmp_path, 2, lambda t: contextlib.nullcontext(hear), None
        )
    )
    assert told[0] == Status("training", 7, 0.25, scores)


def test_in_a_notebook_each_trial_has_a_line_below_the_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lines: list[str] = []

    def display(data: dict[str, str], **_: object) -> SimpleNamespace:
        return SimpleNamespace(update=lambda data, raw: lines.append(data["text/plain"]))

    shell = SimpleNamespace(kernel=1)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    processes(monkeypatch, lambda name: "import time\ntime.sleep(0.3)\nprint('{}')")
    for name in ("seed-0", "seed-1"):
        status = {**dataclasses.asdict(Status("training", 7, 0.25)), "scores": None}
        (tmp_path / name).mkdir()
        (tmp_path / name / ".status.json").write_text(json.dumps(status))
    trials = [
        dataclasses.replace(trial, config=trial.config.replace({"run.dir": str(tmp_path / trial.name)}))
        for trial in repeat.seeds_of(Config(), 2)
    ]
    list(repeat._side_by_side(iter(trials), tmp_path, 2, repeat.in_a_cell, None))
    for name in ("seed-0", "seed-1"):
        mine = [line for line in lines if line.startswith(name)]
        assert mine[0].startswith(f"{name}  training  epoch 7/{Config().train.epochs}  loss 0.2500")
        assert mine[-1].startswith(f"{name}  ended  epoch 7")


def test_what_a_process_without_a_result_complained_of_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    processes(monkeypatch, lambda name: "raise SystemExit('no room')" if name == "seed-1" else "print('{}')")
    trials = repeat._side_by_side(iter(repeat.seeds_of(Config(), 2)), tmp_path, 2, unwatched, None)
    done = {trial.name: outcome for trial, outcome in trials}
    log = tmp_path / ".seed-1.stderr"
    assert str(done["seed-1"]) == (
        f"the process of seed-1 ended with exit code 1 and without a result: no room (all of it: {log})"
    )
    assert log.read_text() == "no room\n"
    assert not (tmp_path / ".seed-0.stderr").exists()


def test_another_graph_in_memory_and_a_file_written_anew_are_other_trials(trained: list[Config], tmp_path: Path):
    first, second = (repeat.repeat(random_graph(seed), runs=1, settings=_cached(tmp_path)) for seed in (1, 2))
    assert first.dir != second.dir
    assert repeat.repeat(random_graph(1), runs=1, settings=_cached(tmp_path)).dir == first.dir
    assert len(trained) == 2
    folders = []
    for seed in (1, 2):
        graph = random_graph(seed, 20 + seed)
        np.savez(
            "my.npz",
            edge_index=np.stack([graph.src, graph.dst]),
            x=graph.features,
            y=graph.labels,
            num_classes=graph.num_classes,
            num_nodes=graph.num_vertices,
            num_features=graph.num_features,
            train_mask=graph.split[:, 0] == 1,
            val_mask=graph.split[:, 0] == 2,
            test_mask=graph.split[:, 0] == 3,
        )
        folders.append(repeat.repeat("my.npz", runs=1, settings=_cached(tmp_path)).dir)
    assert folders[0] != folders[1]


def _cached(folder: Path) -> dict[str, Any]:
    return {"data.cache_dir": str(folder / "cache")}
