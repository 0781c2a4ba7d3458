"""Contenders that are run: in which order, what goes on, what fails, what a limit leaves. Rules are those of
``cost_planner.value.contest``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cost_planner.value import contest, judge, tuning
from cost_planner.value.contenders import parse
from run_coordinator import api, baseline
from run_coordinator.actions import Status
from run_coordinator.run import Run
from siafu import run_files
from siafu.__main__ import main
from siafu.baseline import BaselineConfig
from siafu.config import Config
from siafu.errors import ConfigError, Diverged, PeerLost
from tests.cost_planner.value.runs import write

BASE = Config().replace({"train.epochs": 3, "train.target_acc": 0.8})
Raises = Callable[[Config], BaseException | None]


class Trainers:
    """Stand in for those who train: they leave a run that takes 100 s, and remember whose."""

    def __init__(self) -> None:
        self.trained: list[tuple[str, int]] = []
        self.configs: list[Config] = []
        self.raises: Raises = lambda config: None
        self.result: Callable[[Config], dict[str, Any]] = lambda config: {}
        self.statuses = 0
        self.epoch_s: Callable[[Config], float] = lambda config: 100.0

    def train(self, config: Config, on_status: Any = None, on_epoch: Any = None) -> Run:
        return self._run(config, config.servers.backend + " " + config.train.mode)

    def train_baseline(self, method: str, config: BaselineConfig, on_status: Any = None) -> Run:
        for _ in range(self.statuses):
            on_status(Status())
        return self._run(config, method)

    def _run(self, config: Config, name: str) -> Run:
        self.configs.append(config)
        self.trained.append((name, config.train.seed))
        folder = Path(config.run.dir)
        if (error := self.raises(config)) is not None:
            folder.mkdir(parents=True)
            if isinstance(error, Diverged):
                run_files.write_divergence(folder, error)
            raise error
        write(folder, config, [0.5, 0.9], epoch_s=self.epoch_s(config))
        result = {
            "val_acc": 0.9,
            "test_acc": 0.8,
            "epochs": 2,
            "train_seconds": 200.0,
            "stopped": "target",
            "metric": "accuracy",
            "cost": None if isinstance(config, BaselineConfig) else {"usd": 0.25},
            "device": "cpu",
            **self.result(config),
        }
        (folder / "result.json").write_text(json.dumps(result))
        return Run(folder, result)


@pytest.fixture
def trainers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Trainers:
    found = Trainers()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api, "train", found.train)
    monkeypatch.setattr(baseline, "train_baseline", found.train_baseline)
    monkeypatch.setattr(baseline, "needs_torch", lambda: None)
    return found


def hold(text: str, base: Config = BASE, **options: Any) -> contest.Contest:
    return contest.hold(parse(text), base, **options)


def test_contenders_take_turns_seed_by_seed(trainers: Trainers):
    """Rule 1."""
    found = hold("cpu, lambda pipe, vanilla", runs=2)
    assert trainers.trained == [
        ("cpu pipe", 0),
        ("lambda pipe", 0),
        ("vanilla", 0),
        ("cpu pipe", 1),
        ("lambda pipe", 1),
        ("vanilla", 1),
    ]
    assert [one.name for one in found.finished] == ["cpu pipe", "lambda pipe", "vanilla ranks=1"] * 2
    assert found.complete
    assert {config.train.target_acc for config in trainers.configs} == {0.8}


def test_the_same_call_goes_on_and_takes_more_contenders_and_seeds(trainers: Trainers):
    trainers.raises = lambda config: KeyboardInterrupt() if config.servers.backend == "lambda" else None
    with pytest.raises(KeyboardInterrupt):
        hold("cpu, lambda pipe")
    trainers.raises = lambda config: None
    first = hold("cpu, lambda pipe")
    assert trainers.trained == [("cpu pipe", 0), ("lambda pipe", 0), ("lambda pipe", 0)]
    more = hold("cpu, lambda pipe, cpu no-pipe", runs=2)
    assert more.dir == first.dir
    assert trainers.trained[3:] == [("cpu no-pipe", 0), ("cpu pipe", 1), ("lambda pipe", 1), ("cpu no-pipe", 1)]
    assert hold("cpu", BASE.replace({"train.target_acc": 0.7})).dir != first.dir


def test_who_diverges_has_an_answer_and_does_not_end_the_rest(trainers: Trainers):
    """Rule 3."""
    trainers.raises = lambda config: Diverged("the loss is nan") if config.train.mode == "no-pipe" else None
    found = hold("cpu no-pipe, cpu")
    assert found.failed == {"cpu no-pipe": ["the loss is nan"], "cpu pipe": []}
    assert [one.name for one in found.finished] == ["cpu pipe"]
    trainers.raises = lambda config: None
    assert hold("cpu no-pipe, cpu").failed["cpu no-pipe"] == ["the loss is nan"]
    assert len(trainers.trained) == 2


def test_what_who_diverges_had_spent_is_counted(trainers: Trainers):
    """A run that fails costs what the next one must make up for."""

    def trained(config: Config, on_status: Any = None, on_epoch: Any = None) -> Run:
        if config.train.seed:
            return trainers.train(config)
        write(Path(config.run.dir), config, [0.5, 0.6, 0.7], stopped="")
        run_files.write_divergence(Path(config.run.dir), error := Diverged("the loss is nan"))
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "train", trained)
        held = hold("cpu", runs=2)
    for found in (held, contest.read(held.dir)):
        ((broken, ran), ran_into) = (*found.broken, *found.finished), found.failed["cpu pipe"]
        assert (broken.error, broken.last.seconds, ran.error, ran_into) == (
            "the loss is nan",
            300.0,
            "",
            ["the loss is nan"],
        )
        table = judge.judged([broken, ran], judge.StandIn("c7g.xlarge"), failed=found.failed)
        (row,) = table["rows"]
        assert (row["runs"], row["reached"], row["missed"], row["seconds"]) == (2, 1, 1, 300.0 + 200.0)


def test_who_was_lost_is_tried_again_by_the_next_call(trainers: Trainers):
    trainers.raises = lambda config: PeerLost("graph server 0 died")
    assert hold("cpu").failed == {"cpu pipe": ["graph server 0 died"]}
    trainers.raises = lambda config: None
    assert hold("cpu").failed == {"cpu pipe": []}


def test_what_cannot_be_is_tried_once(trainers: Trainers):
    trainers.raises = lambda config: ConfigError("torch sees no GPU") if config.servers.backend == "gpu" else None
    found = hold("gpu, cpu", runs=3)
    assert trainers.trained == [("gpu pipe", 0), ("cpu pipe", 0), ("cpu pipe", 1), ("cpu pipe", 2)]
    assert found.failed["gpu pipe"] == ["torch sees no GPU"] * 3
    assert found.complete


def test_methods_without_torch_or_without_the_model_are_left_out(trainers: Trainers, monkeypatch: pytest.MonkeyPatch):
    found = hold("cpu, vanilla", BASE.replace({"model.name": "gin"}))
    assert "model.name = gin: baselines have" in found.left_out["vanilla ranks=1"]

    def missing() -> None:
        raise ConfigError("baselines need torch")

    monkeypatch.setattr(baseline, "needs_torch", missing)
    found = hold("cpu, vanilla")
    assert (found.failed["vanilla ranks=1"], found.left_out) == ([], {"vanilla ranks=1": "baselines need torch"})
    assert ("vanilla", 0) not in trainers.trained


def test_mistakes_cost_no_run(trainers: Trainers):
    for text, base in (
        ("cpu, vanilla lambdas=2", BASE),
        ("cpu", BASE.replace({"model.hops": 3, "run.write": "nothing"})),
    ):
        with pytest.raises(ConfigError):
            hold(text, base)
    with pytest.raises(ConfigError, match="runs = 0"):
        hold("cpu", runs=0)
    assert not trainers.trained


def test_a_budget_is_of_all_of_them(trainers: Trainers):
    found = hold("cpu, vanilla, lambda pipe, cpu no-pipe", BASE.replace({"run.budget_usd": 0.4}))
    assert trainers.trained == [("cpu pipe", 0), ("vanilla", 0), ("lambda pipe", 0)]
    assert not found.complete
    assert hold("cpu, vanilla, lambda pipe, cpu no-pipe", BASE.replace({"run.budget_usd": 9.0})).complete


def test_the_time_limit_holds_for_baselines_too(trainers: Trainers):
    trainers.statuses = 1
    limited = BASE.replace({"run.max_seconds": 1e-9})
    assert hold("vanilla", limited).num_done == 0
    limited = BASE.replace({"run.max_seconds": 60.0})
    assert hold("vanilla", limited).complete
    assert trainers.configs[-1].run.max_seconds == 0  # which no baseline heeds


def test_a_baseline_that_a_limit_stops_is_begun_anew(trainers: Trainers, monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    monkeypatch.setattr("cost_planner.value.contest.time.monotonic", lambda: now[0])

    def slow(method: str, config: BaselineConfig, on_status: Any) -> Run:
        now[0] += 30
        on_status(Status())
        raise AssertionError("the limit is over")

    with monkeypatch.context() as patch:
        patch.setattr(baseline, "train_baseline", slow)
        assert hold("vanilla", BASE.replace({"run.max_seconds": 20.0})).num_done == 0
    assert hold("vanilla").complete


def test_a_directory_can_be_judged_again(trainers: Trainers):
    trainers.raises = lambda config: Diverged("nan") if config.train.mode == "no-pipe" else None
    held = hold("cpu no-pipe, cpu, lambda lambda_memory=512", runs=2)
    found = contest.read(held.dir)
    assert sorted(one.where for one in found.finished) == sorted(one.where for one in held.finished)
    assert {one.name for one in found.finished} == {"cpu pipe", "lambda async s=0 lambda_memory=512"}
    assert found.failed["cpu no-pipe"] == ["nan", "nan"]
    (held.dir / "cpu-pipe,seed-0/result.json").unlink()
    (held.dir / "cpu-pipe,seed-1/result.json").unlink()
    assert contest.read(held.dir).left_out == {"cpu pipe": "no run of it is finished"}


# --- learning rates of their own --------------------------------------------------------------------------------------


def test_rates_lie_around_the_first():
    assert tuning.rates(0.01, 6) == [0.01, 0.032, 0.0032, 0.1, 0.001, 0.32]
    assert tuning.rates(0.0123, 2) == [0.0123, 0.039]


def rates(found: contest.Contest) -> dict[str, float | None]:
    return {name: one.rate for name, one in found.tuned.items()}


def fastest_at(rates: dict[str, float]) -> Callable[[Config], dict[str, Any]]:
    """The farther a backend's rate is from its best one, the more epochs it takes."""
    return lambda config: {"epochs": 2 + round(1000 * abs(config.train.lr - rates[config.servers.backend]))}


def test_each_is_compared_with_the_rate_that_reaches_the_target_first(trainers: Trainers):
    """Rule 4."""
    trainers.result = fastest_at({"cpu": 0.032, "lambda": 0.0032})
    found = hold("cpu, lambda pipe, cpu no-pipe lr=0.5", runs=2, tune=3)
    assert rates(found) == {"cpu pipe": 0.032, "lambda pipe": 0.0032}
    tried, compared = trainers.configs[:6], trainers.configs[6:]
    assert [config.train.lr for config in tried] == [0.01, 0.032, 0.0032] * 2
    assert {config.train.seed for config in tried} == {tuning.OTHER_SEED}
    assert [(config.train.lr, config.train.seed) for config in compared] == [
        (rate, seed) for seed in (0, 1) for rate in (0.032, 0.0032, 0.5)
    ]
    assert [one.name for one in found.finished] == ["cpu pipe", "lambda pipe", "cpu no-pipe lr=0.5"] * 2
    assert hold("cpu, lambda pipe, cpu no-pipe lr=0.5", runs=2, tune=3).tuned == found.tuned
    assert len(trainers.configs) == 12  # it went on where nothing was missing
    assert [one.name for one in contest.read(found.dir).finished].count("cpu pipe") == 2
    assert hold("cpu", tune=2).dir != found.dir != hold("cpu").dir


def test_without_a_run_at_the_target_the_best_score_tells(trainers: Trainers):
    trainers.result = lambda config: {"stopped": "epochs", "val_acc": 1 - config.train.lr}
    assert rates(hold("cpu", tune=3)) == {"cpu pipe": 0.0032}
    assert trainers.configs[-1].train.lr == 0.0032


def test_a_rate_that_diverges_is_not_taken_and_who_always_does_keeps_that_of_all(trainers: Trainers):
    trainers.result = fastest_at({"cpu": 0.032})
    trainers.raises = lambda config: (
        Diverged("nan") if config.servers.backend == "lambda" or config.train.lr == 0.032 else None
    )
    found = hold("cpu, lambda pipe", tune=3)
    assert rates(found) == {"cpu pipe": 0.01}
    assert found.failed == {"cpu pipe": [], "lambda pipe": ["nan"]}
    assert trainers.configs[-1].train.lr == 0.01


def test_runs_with_a_rate_that_a_later_call_no_longer_takes_are_nobodys(trainers: Trainers):
    """A try that had failed succeeds in the next call, and is the best: what was trained with another is left out."""
    trainers.result = fastest_at({"cpu": 0.032})
    trainers.raises = lambda config: PeerLost("no room") if config.train.lr == 0.032 else None
    first = hold("cpu", tune=2)
    trainers.raises = lambda config: None
    found = hold("cpu", tune=2)
    assert (rates(first), rates(found)) == ({"cpu pipe": 0.01}, {"cpu pipe": 0.032})
    for held in (found, contest.read(found.dir)):
        assert [one.config.train.lr for one in held.finished] == [0.032]


def test_tuning_counts_towards_the_limits(trainers: Trainers):
    found = hold("cpu", BASE.replace({"run.budget_usd": 0.7}), tune=3)
    assert [config.run.budget_usd for config in trainers.configs] == pytest.approx([0.7, 0.45, 0.2])
    assert (found.finished, found.complete) == ([], False)
    found = hold("cpu", BASE.replace({"run.budget_usd": 0.9}), tune=3)
    assert trainers.configs[-1].run.budget_usd == pytest.approx(0.15)
    assert found.complete


def test_a_mistake_of_a_contender_is_said_before_any_rate_is_tried(trainers: Trainers):
    with pytest.raises(ConfigError, match=r"model\.heads"):
        hold("cpu, lambda pipe heads=-1", tune=2)
    with pytest.raises(ConfigError, match=r"--tune 1: must be >= 2 learning rates"):
        hold("cpu", tune=1)
    assert trainers.configs == []


# --- clusters of their own --------------------------------------------------------------------------------------------

TO_FOUR = tuning.Sizes((1, 2, 4), (1, 2, 4))


def cluster(config: Config) -> int:
    return config.baseline.ranks if isinstance(config, BaselineConfig) else config.data.parts


def slower_on(sizes: dict[int, float]) -> Callable[[Config], float]:
    return lambda config: sizes[cluster(config)]


def test_the_cluster_of_the_highest_value_is_tuned_on_and_compared(trainers: Trainers):
    """Rule 4. Twice the servers for 0.8 of the time are not worth it; for 0.3 of the time they are. A machine of ranks
    costs the same whatever their number."""
    trainers.epoch_s = slower_on({1: 100.0, 2: 30.0, 4: 24.0})
    trainers.result = lambda config: {"epochs": 2 if config.train.lr == 0.032 else 9}
    found = hold("cpu, vanilla", runs=2, tune=2, sizes=TO_FOUR, stand_in=judge.StandIn("c7g.xlarge", gpu="g4dn.xlarge"))
    tried, compared = trainers.configs[:8], trainers.configs[8:]
    assert [(cluster(config), config.train.lr) for config in tried] == [
        *((size, 0.01) for size in (1, 2, 4)),
        *((size, 0.01) for size in (1, 2, 4)),
        (2, 0.032),
        (4, 0.032),
    ]
    assert {config.train.seed for config in tried} == {tuning.OTHER_SEED}
    assert [(cluster(config), config.train.lr, config.train.seed) for config in compared] == [
        (2, 0.032, 0),
        (4, 0.032, 0),
        (2, 0.032, 1),
        (4, 0.032, 1),
    ]
    assert [one.name for one in found.finished] == ["cpu pipe parts=2", "vanilla ranks=4"] * 2
    assert {name: (one.asked, one.size, one.rate) for name, one in found.tuned.items()} == {
        "cpu pipe parts=2": ("cpu pipe", 2, 0.032),
        "vanilla ranks=4": ("vanilla", 4, 0.032),
    }
    assert [len(found.tries(name)) for name in found.tuned] == [4, 4]
    read = contest.read(found.dir)
    assert (read.tuned, sorted(one.name for one in read.finished)) == (
        found.tuned,
        sorted(one.name for one in found.finished),
    )
    again = hold("cpu, vanilla", runs=2, tune=2, sizes=TO_FOUR, stand_in=judge.StandIn("c7g.xlarge", gpu="g4dn.xlarge"))
    assert (again.tuned, len(trainers.configs)) == (found.tuned, 12)


def test_all_have_as_many_tries_whatever_sizes_they_can_have(trainers: Trainers):
    """Rule 2: pipegcn has nothing to do at one rank, and who says a cluster tries rates alone. A rate that was said is
    kept."""
    asked = "cpu, pipegcn, cpu no-pipe parts=2, lambda pipe lr=0.5"
    found = hold(asked, tune=2, sizes=TO_FOUR, stand_in=judge.StandIn(gpu="g4dn.xlarge"))
    tries = {
        one.asked: sorted((cluster(run.config), run.config.train.lr) for run in found.tries(name))
        for name, one in found.tuned.items()
    }
    assert tries == {
        "cpu pipe": [(1, 0.01), (1, 0.032), (2, 0.01), (4, 0.01)],
        "pipegcn": [(2, 0.0032), (2, 0.01), (2, 0.032), (4, 0.01)],
        "cpu no-pipe parts=2": [(2, 0.0032), (2, 0.01), (2, 0.032), (2, 0.1)],
        "lambda pipe lr=0.5": [(1, 0.5), (2, 0.5), (4, 0.5)],
    }
    assert not found.left_out


def test_who_can_have_no_size_that_is_tried_is_left_out_and_the_others_have_the_only_one(trainers: Trainers):
    found = hold("cpu, pipegcn", tune=2, sizes=tuning.Sizes((1,), (1,)))
    assert list(found.left_out) == ["pipegcn ranks=1"]
    assert {name: len(found.tries(name)) for name in found.tuned} == {"cpu pipe parts=1": 2}
    assert [one.name for one in found.finished] == ["cpu pipe parts=1"]


def test_a_cluster_that_none_of_its_tries_can_tell_is_that_of_the_call(trainers: Trainers):
    trainers.raises = lambda config: PeerLost("no room") if config.train.seed else None
    found = hold("cpu", tune=2, sizes=TO_FOUR)
    assert [one.name for one in found.finished] == ["cpu pipe"]
    assert not found.tuned


def test_who_is_tuned_to_what_another_was_asked_with_has_a_name_of_its_own(trainers: Trainers):
    found = hold("cpu, cpu parts=1", tune=2, sizes=TO_FOUR)
    assert sorted(one.name for one in found.finished) == ["cpu pipe parts=1", "cpu pipe parts=1 tuned"]


def test_without_a_target_clusters_are_judged_by_whole_runs(trainers: Trainers):
    trainers.result = lambda config: {"stopped": "epochs"}
    trainers.epoch_s = slower_on({1: 100.0, 2: 30.0, 4: 24.0})
    found = hold("cpu", BASE.replace({"train.target_acc": 0.0}), tune=2, sizes=TO_FOUR)
    assert list(found.tuned) == ["cpu pipe parts=2"]


# --- the verb ---------------------------------------------------------------------------------------------------------

#: Keys that whoever reads --json relies on.
KEYS = {"source", "stand_in", "machines", "run_dir", "tuned", "target", "split", "relative_to", "rows", "finding"}
KEYS |= {"predicted_widths"}
ROW = {
    "name",
    "kind",
    "runs",
    "reached",
    "missed",
    "cut_short",
    "errors",
    "left_out",
    "seconds",
    "setup_s",
    "evaluation_s",
    "epochs",
    "scores",
    "cost",
    "value",
    "relative_value",
    "interval",
    "spread",
    "tensor_share",
    "evaluation_share",
    "threads",
    "attempts",
    "run_usd",
    "ranks",
    "devices",
    "stand_in",
    "shares_cores",
    "whole_cores",
    "best",
    "run_dirs",
}
FINDING = {"text", "best", "best_beside_others", "lambda_beside_cpu", "lambdas_win", "gpu_beside_rest", "but"}


def test_verb_runs_judges_and_says(
    trainers: Trainers, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("siafu.allotment.cores", lambda: 2)
    command = [
        "value",
        "digits",
        "--contenders",
        "cpu, lambda pipe, vanilla",
        "--target",
        "0.8",
        "--runs",
        "2",
        "--tune",
        "2",
        "--json",
    ]
    assert main([*command, "--as", "c7g.xlarge", "--as-gpu", "g4dn.xlarge", "--relative-to", "lambda pipe"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found.keys() == KEYS
    assert all(row.keys() == ROW for row in found["rows"])
    assert found["finding"].keys() == FINDING
    assert [row["runs"] for row in found["rows"]] == [2, 2, 2]
    told = {name: (one["asked"], one["size"], one["lr"], one["tries"]) for name, one in found["tuned"].items()}
    assert told == {
        "cpu pipe parts=1": ("cpu pipe", 1, 0.01, 3),
        "lambda pipe parts=1": ("lambda pipe", 1, 0.01, 3),
        "vanilla ranks=1": ("vanilla", 1, 0.01, 3),
    }
    assert "lambda pipe parts=1 lr=0.032, seed 1000000: validation 0.9000" in said.err
    assert "vanilla ranks=1, seed 1: validation 0.9000 after 2 epochs" in said.err
    assert json.loads((Path(found["run_dir"]) / "value.json").read_text()) == found
    again = ["value", found["run_dir"], "--as", "c7g.2xlarge", "--as-gpu", "g6.xlarge", "--relative-to", "cpu pipe"]
    assert main(again) == 0
    shown = capsys.readouterr().out
    assert "digits: to 0.8 (val)" in shown
    words = " ".join(shown.split())
    assert "c7g.2xlarge for each graph server and of 1 x c7g.xlarge for parameter servers" in words
    assert "Not enough runs: a claim needs 5 seeds" in shown
    assert "cpu pipe parts=1 = 1" in shown
    assert "tuned by runs with another seed" in shown
    assert "lambda pipe parts=1: learning rate 0.01; 3 tries, 600 s, $" in shown
    assert "tried on this machine, whose cores they share" in shown
    assert len(trainers.trained) == 3 * (3 + 2)


@pytest.mark.parametrize(
    ("flags", "sizes"),
    [
        ([], ((1, 2, 4), (1, 2, 4))),
        (["--as-gpu", "g4dn.xlarge"], ((1, 2, 4), (1,))),
        (["--ranks", "2"], ((1, 2, 4), ())),
        (["--parts", "1"], ((), ())),
        (["--set", "data.parts=2"], ((), ())),
        (["--on", "aws"], ((), ())),
    ],
)
def test_verb_tunes_clusters_that_nobody_has_said(monkeypatch: pytest.MonkeyPatch, flags: list[str], sizes: Any):
    """A core for each server or rank, of 7 here; a GPU for each rank, where the machine that it stands for has one."""
    monkeypatch.setattr("siafu.allotment.cores", lambda: 7)
    held: list[tuning.Sizes] = []

    def hold(*args: Any, sizes: tuning.Sizes, **options: Any) -> contest.Contest:
        held.append(sizes)
        raise ConfigError("that was all")

    monkeypatch.setattr(contest, "hold", hold)
    assert main(["value", "digits", "--contenders", "cpu", "--tune", "2", *flags]) == 2
    assert [(tuple(one.servers), tuple(one.ranks)) for one in held] == [sizes]


def test_verb_warns_of_cores_that_are_not_those_of_the_type_before_it_trains(
    trainers: Trainers, capsys: pytest.CaptureFixture[str]
):
    for threads, said in ((3, True), (4, False)):
        words = ["value", "digits", "--contenders", "cpu", "--as", "c7g.xlarge", "--set", f"servers.threads={threads}"]
        assert main(words) == 0
        first = capsys.readouterr().err.splitlines()[0]
        assert ("computes on 3 cores here, c7g.xlarge has 4 vCPUs" in first) == said


def test_verb_tells_failures_in_the_table(trainers: Trainers, capsys: pytest.CaptureFixture[str]):
    trainers.raises = lambda config: Diverged("epoch 3: the loss is nan") if config.train.mode == "no-pipe" else None
    assert main(["value", "digits", "--contenders", "cpu, cpu no-pipe"]) == 0
    assert "cpu no-pipe: epoch 3: the loss is nan" in capsys.readouterr().out
    assert main(["value", "digits", "--contenders", "cpu no-pipe"]) == 1


def test_verb_ends_with_3_at_a_limit(trainers: Trainers, capsys: pytest.CaptureFixture[str]):
    assert main(["value", "digits", "--contenders", "cpu, cpu no-pipe", "--budget", "0.1"]) == 3
    assert "1 of 2 runs finished before the limit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["digits", "--contenders", "vanilla"], "vanilla: at the price of which machine? --as-gpu"),
        (["digits", "--contenders", "cpu", "--as", "c5.tiny"], "c5.tiny"),
        (["digits", "--contenders", "cpu", "--relative-to", "cpu"], "--relative-to cpu: must be one of cpu pipe"),
        (["digits", "cora", "--contenders", "cpu"], "compared on one SOURCE"),
        (["digits"], "digits: not a run directory; to train on it, add --contenders"),
        (["digits", "--hidden", "8"], "--hidden: is for training; add --contenders"),
        (["runs/a", "--as", "c7g.xlarge", "--runs", "3"], "--runs: is for training; add --contenders"),
        (["runs/a", "--set", "model.norm=layer"], "--set: is for training; add --contenders"),
        ([], "nothing to compare"),
    ],
)
def test_verb_names_mistakes(trainers: Trainers, capsys: pytest.CaptureFixture[str], words: list[str], said: str):
    assert main(["value", *words]) != 0
    assert said in capsys.readouterr().err
    assert not trainers.trained


@pytest.mark.long
def test_contenders_are_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """For once without stand-ins: on digits, until the target."""
    monkeypatch.chdir(tmp_path)
    command = ["value", "digits", "--contenders", "cpu, lambda pipe", "--target", "0.2", "--epochs", "20", "--json"]
    assert main(command) == 0
    cpu, lambdas = json.loads(capsys.readouterr().out)["rows"]
    assert cpu["reached"] == lambdas["reached"] == 1
    assert cpu["epochs"] == lambdas["epochs"] < 20  # pipe computes the same wherever
    assert lambdas["cost"]["parts"]["lambda"] > 0
