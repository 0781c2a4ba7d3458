"""siafu runs, compare and clean, on run directories written by hand: what they say, what they leave alone."""

from __future__ import annotations

import errno
import functools
import io
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import siafu
from graph_data.prepare import prepare
from run_coordinator import run_directory
from run_coordinator.past_runs import COLUMNS, PastRun, Trials, clean, compare, read, run_dirs, runs
from run_coordinator.past_runs.cli import FIRST, fitting
from siafu import config as configs
from siafu import run_files
from siafu.__main__ import main
from siafu.baseline import BaselineConfig
from siafu.config import Config
from siafu.errors import ConfigError, Diverged, GnnError

DATA = {"edges": "1", "features": "2", "labels": "3", "splits": "4"}


def written(
    path: Path,
    *,
    scores: tuple[float, ...] = (0.5, 0.75),
    ended: bool = True,
    started: str = "2026-11-26T19:00:00+0000",
    config: Config | None = None,
    data: dict[str, str] | None = None,
    shards: str = "",
    **result: Any,
) -> Path:
    """A run that was evaluated after each epoch; the last evaluation is the best one."""
    path.mkdir(parents=True)
    (path / "config.toml").write_text(configs.dump(config or Config()))
    manifest = {"started": started, "data": data or DATA, "graph": {"name": "digits"}, "shards": shards}
    (path / "manifest.json").write_text(json.dumps(manifest))
    lines: list[dict[str, Any]] = [{"event": "start", "setup_s": 0.5}]
    for epoch, score in enumerate(scores, 1):
        both: dict[str, Any] = {"epoch": epoch, "time_s": 2.0 * epoch}
        lines.append(
            {"event": "epoch", **both, "loss": 1 - score, "epoch_s": 2.0, "ghost_bytes": 0, "usd": 0.25 * epoch}
        )
        lines.append(
            {"event": "evaluation", **both, "train": None, "val": {"acc": score}, "test": {"acc": score - 0.1}}
        )
    (path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    if ended:
        by_split = {"train": None, "val": {"acc": scores[-1]}, "test": {"acc": scores[-1] - 0.1}}
        found = {
            "metric": "accuracy",
            "stopped": "epochs",
            "scores": by_split,
            "train_seconds": 2.0 * len(scores),
            "epoch_seconds_median": 2.0,
            "cost": {"usd": 0.5},
            "weights_digest": path.name,
            **result,
        }
        (path / "result.json").write_text(json.dumps(found))
    return path


def seeds(folder: Path, *scores: float) -> Path:
    for seed, score in enumerate(scores):
        config = Config().replace({"train.seed": seed})
        written(folder / f"seed-{seed}", scores=(0.1, score), config=config)
    (folder / "plan.json").write_text(json.dumps({"what": "seeds"}))
    return folder


# --- siafu runs -------------------------------------------------------------------------------------------------------


def test_every_state_of_a_run_is_told(tmp_path: Path) -> None:
    written(tmp_path / "done")
    written(tmp_path / "limit", stopped="budget")
    written(tmp_path / "dead", ended=False)
    run_files.write_divergence(written(tmp_path / "nan", ended=False), Diverged("epoch 3: the loss is nan"))
    alive = written(tmp_path / "alive", ended=False)
    (tmp_path / "notes.txt").write_text("not a run")
    (tmp_path / "empty").mkdir()
    with run_directory.alone(alive):
        found = {one.dir.name: one for one in runs(tmp_path)}
    states = {name: one.state for name, one in found.items() if isinstance(one, PastRun)}
    assert states == {
        "done": "finished",
        "limit": "at its limit",
        "dead": "broken off",
        "nan": "diverged",
        "alive": "running",
    }
    dead = found["dead"]
    assert isinstance(dead, PastRun)
    assert (dead.epochs, dead.seconds, dead.usd, dead.score("val"), dead.score("train")) == (2, 4.0, 0.5, 0.75, None)


def test_runs_are_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    written(tmp_path / "b", started="2026-11-26T19:00:00+0000")
    written(tmp_path / "a", started="2026-11-26T20:00:00+0000")
    seeds(tmp_path / "c", 0.5)
    assert [one.dir.name for one in runs(tmp_path)] == ["b", "c", "a"]


def test_seeds_are_one_line_with_their_mean(tmp_path: Path) -> None:
    found = read(seeds(tmp_path / "many", 0.5, 0.7))
    assert isinstance(found, Trials)
    assert found.spread("val") == pytest.approx({"mean": 0.6, "std": 0.02**0.5, "min": 0.5, "max": 0.7})


def test_a_narrow_terminal_has_the_columns_that_fit() -> None:
    row = dict.fromkeys(COLUMNS, "12345678")
    assert fitting([row], FIRST, 8) == ["run"]
    assert fitting([row], FIRST, 17) == ["run"]
    assert fitting([row], FIRST, 18) == ["run", "state"]
    assert fitting([row], FIRST, 1000) == list(FIRST)
    long = {**row, "run": "x" * 200}  # is folded
    assert fitting([row, long], FIRST, 80)[:3] == ["run", "state", "test"]


def test_the_table_and_json_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "one")
    seeds(tmp_path / "many", 0.5, 0.7)
    assert main(["runs", str(tmp_path), "--json"]) == 0
    many, one = json.loads(capsys.readouterr().out)["runs"]
    assert (one["dir"], one["state"], one["val_acc"], one["usd"]) == (str(tmp_path / "one"), "finished", 0.75, 0.5)
    assert [run["val_acc"] for run in many["runs"]] == [0.5, 0.7]
    assert main(["runs", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "0.6500" in shown
    assert "0.500 ± 0.141" in shown  # of the test scores
    assert main(["runs", str(tmp_path), "--graph", "cora"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}: no runs on cora\n"


def test_a_dataframe_has_a_row_for_each_run_with_its_settings(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    written(tmp_path / "one", config=Config().replace({"train.lr": 0.5, "model.layers": 3, "model.hidden": (64, 32)}))
    many = seeds(tmp_path / "many", 0.5, 0.7)
    frame = siafu.runs(tmp_path).to_pandas().set_index("dir")
    assert frame["of"].to_dict() == {str(tmp_path / "one"): "", **{str(many / f"seed-{i}"): str(many) for i in (0, 1)}}
    assert frame["val_acc"].tolist() == [0.5, 0.7, 0.75]
    assert frame.loc[str(tmp_path / "one"), "train.lr"] == 0.5
    assert frame["train.seed"].tolist() == [0, 1, 0]
    assert frame["model.hidden"].tolist() == [16, 16, "64,32"]


def test_a_notebook_shows_the_table_of_the_command(tmp_path: Path) -> None:
    written(tmp_path / "<one>")
    seeds(tmp_path / "many", 0.5, 0.7)
    found = siafu.runs(tmp_path)
    assert repr(found) == f"PastRuns(3 runs in {tmp_path})"
    assert repr(tuple(found)) == (
        f"(PastRun({tmp_path}/<one>, finished, val 0.7500, test 0.6500), Trials({tmp_path}/many, seeds, 2 runs))"
    )
    shown = found._repr_html_()
    assert "<td>&lt;one&gt;</td><td>2026-11-26 19:00</td><td>digits</td><td>gcn pipe</td><td>finished</td>" in shown
    assert "<td>0.600 ± 0.141</td>" in shown


def test_names_in_brackets_are_shown_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a[old]", "b[red]"):
        written(tmp_path / name)
    assert main(["runs", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert main(["compare", str(tmp_path / "a[old]"), str(tmp_path / "b[red]")]) == 0
    for said in (shown, capsys.readouterr().out):
        assert all(name in said for name in ("a[old]", "b[red]"))


def test_a_folder_without_runs_is_a_table_without_rows(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    (tmp_path / "none").mkdir()
    written(tmp_path / "some" / "one")
    none, some = (siafu.runs(tmp_path / name).to_pandas() for name in ("none", "some"))
    assert (none.empty, list(none)) == (True, list(some))


def test_somebody_elses_runs_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "mine")
    written(tmp_path / "theirs")
    stat = os.stat

    def refuse(path: Any, **options: Any) -> os.stat_result:
        if str(path).startswith(str(tmp_path / "theirs/")):  # root may do anything
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", refuse)
    assert [one.dir.name for one in runs(tmp_path)] == ["mine"]
    assert [path.name for path in run_dirs(tmp_path)] == ["mine"]


def test_a_folder_that_is_none_and_a_broken_run_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["runs", str(tmp_path / "none")]) == 2
    why = "No such file or directory; name the folder that holds your runs"
    assert capsys.readouterr().err == f"siafu runs: {tmp_path}/none: {why}\n"
    broken = written(tmp_path / "broken")
    (broken / "metrics.jsonl").write_text("{\n")
    (written(tmp_path / "old") / "config.toml").write_text("[model]\nforgotten = 1\n")
    (written(tmp_path / "lacking") / "result.json").write_text('{"stopped": "epochs"}')
    (written(tmp_path / "other") / "manifest.json").write_text('{"graph": [1]}')
    with (written(tmp_path / "event", ended=False) / "metrics.jsonl").open("a") as file:
        file.write('{"event": "epoch", "epoch": 3}\n')
    written(tmp_path / "whole")
    assert main(["runs", str(tmp_path), "--json"]) == 0
    assert [Path(one["dir"]).name for one in json.loads(capsys.readouterr().out)["runs"]] == ["whole"]
    assert f"{broken}: left out: {broken}/metrics.jsonl: line 1: " in caplog.text
    assert f"{tmp_path}/old: left out: model.forgotten: unknown key" in caplog.text
    assert f"other: left out: {tmp_path}/other/manifest.json: graph is [1], must be an object: damaged" in caplog.text
    for name, where, key in (("lacking", "result.json", "metric"), ("event", "metrics.jsonl: line 6", "time_s")):
        assert f"{name}: left out: {tmp_path}/{name}/{where}: lacks '{key}': damaged" in caplog.text
    assert main(["compare", str(broken), str(tmp_path / "whole")]) == 2


def test_a_dataframe_of_a_run_has_a_row_for_each_epoch(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    run = written(tmp_path / "done", scores=(0.5, 0.75))
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text(
        "".join(f"{line}\n" for line in lines if '"epoch": 1' not in line or "loss" in line)
    )
    found = siafu.Run.open(run).to_pandas()
    assert found["epoch"].tolist() == [1, 2]
    assert found["loss"].tolist() == [0.5, 0.25]
    assert found["val_acc"].isna().tolist() == [True, False]  # the first was not evaluated
    assert (found["val_acc"][1], found["usd"].tolist()) == (0.75, [0.25, 0.5])


def test_a_run_is_opened_by_its_directory(tmp_path: Path) -> None:
    run = siafu.Run.open(written(tmp_path / "done"))
    assert (run.stopped, len(run.metrics())) == ("epochs", 5)
    with pytest.raises(ConfigError, match=r"dead: its run has not ended: siafu resume"):
        siafu.Run.open(written(tmp_path / "dead", ended=False))
    with pytest.raises(ConfigError, match=r"not a run directory: it has no config.toml"):
        siafu.Run.open(tmp_path)


def test_a_run_stands_for_its_directory(tmp_path: Path) -> None:
    file = written(tmp_path / "done")
    (past,), run = siafu.runs(tmp_path), siafu.Run.open(file)
    assert isinstance(past, PastRun)
    assert siafu.Run.open(past) == siafu.Run.open(run) == run
    assert Config().replace({"train.warm_start": run}).train.warm_start == str(file)
    for call in (siafu.predict, siafu.evaluate, siafu.resume, functools.partial(siafu.export, to="torch", out="x")):
        for one in (past, run):
            with pytest.raises(GnnError, match=re.escape(str(file))):
                call(one)


# --- siafu compare ----------------------------------------------------------------------------------------------------


def test_only_settings_that_differ_are_shown(tmp_path: Path) -> None:
    one = written(tmp_path / "one", config=Config().replace({"train.lr": 0.5, "run.dir": "one"}))
    other = written(tmp_path / "other", config=Config().replace({"run.dir": "other"}))
    columns = compare.columns_of([one, other])
    assert compare.differing(columns) == {"train.lr": [0.5, Config().train.lr]}
    assert compare.rows(columns)["train.lr"] == ["0.5", str(Config().train.lr)]


def test_seeds_are_a_column_with_a_spread(tmp_path: Path) -> None:
    columns = compare.columns_of([seeds(tmp_path / "many", 0.5, 0.7), written(tmp_path / "one")])
    told = compare.rows(columns)
    assert told["validation accuracy"] == ["0.6000 ± 0.1414", "0.7500"]
    assert told["runs"] == ["2", "1"]
    assert "train.seed" not in columns[0].settings
    assert told["ms per epoch"] == ["2000.0 ± 0.0", "2000.0"]
    assert told["cost"] == ["$0.5000", "$0.5000"]


def test_seeds_that_have_not_finished_do_not_count(tmp_path: Path) -> None:
    many = seeds(tmp_path / "many", 0.5, 0.7)
    written(many / "seed-2", scores=(0.1,), ended=False)
    written(tmp_path / "begun" / "seed-0", scores=(0.1,), ended=False)
    (tmp_path / "begun" / "plan.json").write_text('{"what": "seeds"}')
    columns = compare.columns_of([many, tmp_path / "begun"])
    assert compare.rows(columns)["validation accuracy"] == ["0.6000 ± 0.1414", "0.1000"]
    assert compare.as_json(columns)["runs"][0]["val_acc"] == read(many).spread("val")
    assert "many: 2 of 3 runs have finished; the others do not count" in compare.notes(columns)


def test_curves_have_one_scale(tmp_path: Path) -> None:
    low, high = written(tmp_path / "low", scores=(0.0, 0.1)), written(tmp_path / "high", scores=(0.5, 1.0))
    told = compare.rows(compare.columns_of([low, high]))
    assert told["validation curve"] == ["▁▁", "▅█"]
    assert told["loss curve"] == ["██", "▅▁"]


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminals_width_cuts_names_at_hyphens_and_curves_not_at_all(tmp_path: Path, width: int) -> None:
    names = [f"20261127-12293{n}-cora-gcn-pipe" for n in range(3)]
    found = [written(tmp_path / name, scores=tuple(k / 30 for k in range(30))) for name in names]
    console = Console(width=width, record=True, file=io.StringIO())
    compare.show(compare.columns_of(found), console)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    named = {part for name in names for part in name.split("-")}
    first = lines[: next(n for n, line in enumerate(lines) if line.startswith("validation "))]
    assert {part for line in first for word in line.split() for part in word.split("-") if part} == named
    (curve,) = [line for line in lines if line.startswith("validation curve")]
    below = lines[lines.index(curve) + 1]
    assert below.startswith("loss curve")
    assert len(curve.split()) == 2 + 3


def test_another_graph_of_the_same_name_and_equal_weights_are_noted(tmp_path: Path) -> None:
    one, two = written(tmp_path / "one", weights_digest="w"), written(tmp_path / "two", weights_digest="w")
    assert compare.notes(compare.columns_of([one, two])) == ["all have the same weights, to the last bit"]
    other = written(tmp_path / "other", data={**DATA, "labels": "9"}, weights_digest="v")
    assert compare.notes(compare.columns_of([one, other])) == ["other: its labels differ from those of one"]
    scored = written(tmp_path / "links", metric="mrr", weights_digest="u")
    assert compare.notes(compare.columns_of([one, scored])) == ["scores are not of one kind: accuracy, MRR"]


def test_a_baseline_and_a_run_have_each_its_own_settings(tmp_path: Path) -> None:
    changes = {"baseline.method": "pipegcn", "baseline.depth": 1}
    baseline = written(tmp_path / "theirs", config=BaselineConfig().replace(changes))
    found = compare.differing(compare.columns_of([written(tmp_path / "ours"), baseline]))
    assert {key: values for key, values in found.items() if key.startswith("baseline.")} == {
        "baseline.method": [None, "pipegcn"],
        "baseline.depth": [None, 1],  # and none of the 30 at their defaults, which a run of siafu has not
    }


def test_one_run_alone_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = written(tmp_path / "one")
    assert main(["compare", str(run)]) == 2
    assert "one alone: name another run" in capsys.readouterr().err
    assert main(["compare", str(run), str(tmp_path)]) == 2
    assert "not a run directory: it has neither config.toml nor plan.json" in capsys.readouterr().err
    assert main(["compare", str(run), str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"] == {}


# --- siafu clean ------------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two graphs, of which one was not used for two days, and a calibration."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "cache/siafu"
    for name, days in (("new-1", 0), ("old-2", 2)):
        (folder / name).mkdir(parents=True)
        (folder / name / "features.npy").write_bytes(bytes(10_000))
        then = time.time() - days * 86400
        for path in (folder / name / "features.npy", folder / name):
            os.utime(path, (then, then))
    (folder / "calibration-here.json").write_text("{}")
    return folder


def test_nothing_goes_without_a_yes(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean"]) == 0
    assert "would free" in capsys.readouterr().out
    assert {path.name for path in cache.iterdir()} == {"new-1", "old-2", "calibration-here.json"}


def test_what_was_used_of_late_stays(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean", "--older", "1d", "--yes", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["removed"], [Path(one["path"]).name for one in told["entries"]]) == (True, ["old-2"])
    assert {path.name for path in cache.iterdir()} == {"new-1", "calibration-here.json"}


def test_what_was_calibrated_stays(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean", "--yes"]) == 0
    assert [path.name for path in cache.iterdir()] == ["calibration-here.json"]
    assert main(["clean", "--yes"]) == 0
    assert capsys.readouterr().out.endswith("nothing to remove\n")


def test_a_run_that_goes_on_stays_and_so_does_its_graph(cache: Path) -> None:
    """Its graph stays wherever the run is: people have more than one folder of runs."""
    alive = written(cache.parents[1] / "runs/alive", ended=False)
    with run_directory.alone(alive), run_directory.reads(cache / "old-2"):
        assert main(["clean", "--runs", "1s", "--yes"]) == 0
    assert alive.is_dir()
    assert (cache / "old-2/features.npy").is_file()
    assert not (cache / "new-1").exists()


def test_a_call_of_many_runs_that_goes_on_keeps_its_folder(cache: Path) -> None:
    many = seeds(cache.parents[1] / "runs/many", 0.5)
    with run_directory.alone(many):  # between two of its runs
        assert main(["clean", "--runs", "1s", "--yes"]) == 0
    assert many.is_dir()
    assert main(["clean", "--runs", "1s", "--yes"]) == 0
    assert not many.exists()


def test_what_goes_while_it_is_counted_is_left_out(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lstat = os.lstat

    def gone(path: Any, **options: Any) -> os.stat_result:
        if "old-2" in str(path):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return lstat(path, **options)

    monkeypatch.setattr(os, "lstat", gone)
    monkeypatch.setattr(Path, "lstat", gone)
    assert [one.path.name for one in clean.entries(Path("runs"), 0.0, None)] == ["new-1"]


def test_who_trains_reads_its_graph_to_the_end(tmp_path: Path) -> None:
    shards = prepare("digits", tmp_path / "digits").path
    seen: list[bool] = []
    for train in (siafu.train, functools.partial(siafu.train_baseline, "vanilla", ranks=1)):
        train(
            str(shards),
            epochs=1,
            on_epoch=lambda end: seen.append(run_directory.is_read(shards)),
            run_dir=str(tmp_path / f"run{len(seen)}"),
        )
    assert seen == [True, True]
    assert not run_directory.is_read(shards)


def test_runs_go_by_their_age_and_only_where_one_is_named(cache: Path) -> None:
    folder = cache.parents[1] / "runs"
    now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    written(folder / "young", started=now)
    written(folder / "old")
    seeds(folder / "many", 0.5, 0.6)
    (folder / "many/seed-1/manifest.json").write_text(json.dumps({"started": now}))  # one more was added
    assert main(["clean", "--yes"]) == 0
    assert len(list(folder.iterdir())) == 3
    assert main(["clean", "--runs", "1h", "--yes"]) == 0
    assert {path.name for path in folder.iterdir()} == {"young", "many"}


def test_an_age_that_is_none_is_refused(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean", "--older", "soon"]) == 2
    assert "siafu clean: --older soon: must be seconds, or a number and one of" in capsys.readouterr().err
    assert len(clean.entries(Path("runs"), 0.0, None)) == 2
