"""siafu watch: what the page is told, who may ask, and what a browser makes of it."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import siafu
from run_coordinator import live_status, run_directory
from run_coordinator.actions import Status
from run_coordinator.curves import MOST_POINTS, thinned
from run_coordinator.watch import Folder, newest_tasks, steps
from run_coordinator.watch.newest_tasks import timeline
from run_coordinator.watch.server import Server, finite
from siafu.__main__ import main
from siafu.errors import ConfigError
from tests.run_coordinator.past_runs.test_past_runs import seeds, written

Line = dict[str, Any]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def served(path: Path) -> Iterator[Server]:
    with Server(Folder(path), 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def asked(url: str, **headers: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


# --- what is told -----------------------------------------------------------------------------------------------------


def test_all_runs_of_a_folder_are_listed_the_newest_first(tmp_path: Path) -> None:
    written(tmp_path / "old", started="2026-11-26T18:00:00+0000")
    seeds(tmp_path / "many", 0.5, 0.7)
    written(tmp_path / "new", started="2026-11-26T20:00:00+0000", ended=False)
    found = Folder(tmp_path).lines()
    assert [line["name"] for line in found] == ["new", "many/seed-0", "many/seed-1", "old"]
    assert (found[0]["state"], found[0]["epochs"], found[0]["val"]) == ("broken off", 2, 0.75)
    assert [line["name"] for line in Folder(tmp_path / "old").lines()] == ["."]


def test_a_run_that_goes_on_grows_and_its_status_is_told(tmp_path: Path) -> None:
    run = written(tmp_path / "run", ended=False)
    folder = Folder(tmp_path)
    assert folder.page("run")["status"] == {}
    with run_directory.alone(run), live_status.kept(run, lambda status: None) as on_status:
        on_status(Status(phase="training", tasks_in_flight=7))
        page = folder.page("run")
        assert (page["line"]["state"], page["status"]["tasks_in_flight"]) == ("running", 7)
        more = {
            "event": "epoch",
            "epoch": 3,
            "time_s": 6.0,
            "loss": 0.1,
            "epoch_s": 2.0,
            "ghost_bytes": 5e6,
            "usd": 1.0,
        }
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(more) + "\n")
        page = folder.page("run")
    assert page["loss"] == [(1, 0.5), (2, 0.25), (3, 0.1)]
    assert page["ghost_mb"][-1] == (3, 5.0)
    assert page["scores"]["val"] == [(1, 0.5), (2, 0.75)]
    assert (page["seconds"], page["usd"]) == (6.0, 1.0)
    (run / "metrics.jsonl").write_text("")  # begun anew
    assert folder.page("run")["loss"] == []


def test_time_by_step_is_what_an_epoch_adds_to_the_totals() -> None:
    found = steps([(1, {"GA_s": 0.5, "AV_s": 0.25, "tasks": 3}), (2, {"GA_s": 0.75, "AV_s": 0.5}), (3, {"GA_s": 0.5})])
    assert found == {"GA": [(1, 500.0), (2, 250.0), (3, 0.0)], "AV": [(1, 250.0), (2, 250.0), (3, 0.0)]}


# --- the newest tasks -------------------------------------------------------------------------------------------------


def task(begin: float, *, interval: int = 0, epoch: int = 1, lane: str = "train", step: str = "GA0") -> list[Line]:
    """Of a graph task that waits for half a second and takes half a second."""
    same = {"lane": lane, "epoch": epoch, "interval": interval, "pc": 0, "step": step}
    return [{**same, "event": name, "time_s": begin + at} for name, at in (("start", 0), ("begin", 0.5), ("done", 1.0))]


def traced(run_dir: Path, server: int, *tasks: list[Line]) -> None:
    with (run_dir / f"trace-{server}.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for lines in tasks for line in lines)


def test_a_run_without_a_trace_has_no_timeline(tmp_path: Path) -> None:
    written(tmp_path / "run")
    assert Folder(tmp_path).page("run")["timeline"] is None


def test_the_last_two_epochs_of_a_trace_are_shown_task_by_task(tmp_path: Path) -> None:
    traced(tmp_path, 0, task(5.0), task(10.0, epoch=2), task(11.0, epoch=2, step="AV0"), task(12.0, lane="eval"))
    found = timeline(tmp_path, 1.0)
    assert found == {
        "ms": 2000.0,
        "servers": {
            "0": [
                (0, "AV0", 2, 0.0, 500.0, True),
                (0, "AV0", 2, 500.0, 1000.0, False),
                (0, "eval", 1, 1000.0, 1500.0, True),
                (0, "eval", 1, 1500.0, 2000.0, False),
            ]
        },
    }
    assert [bar[3:5] for bar in timeline(tmp_path, 1.25)["servers"]["0"]][:2] == [(0.0, 500.0), (500.0, 1000.0)]
    assert timeline(tmp_path, None)["ms"] == 8000.0  # before the first epoch has ended: all


def test_a_worker_is_at_work_for_the_last_of_its_time(tmp_path: Path) -> None:
    start, _, done = task(1.0, step="AV0")
    answered = {**done, "event": "answered", "time_s": 1.75, "compute_s": 0.25}
    traced(tmp_path, 0, [start, answered, done])
    bars = timeline(tmp_path, None)["servers"]["0"]
    assert [bar[3:] for bar in bars] == [(0.0, 500.0, True), (500.0, 750.0, False), (750.0, 1000.0, True)]


def test_servers_on_one_clock_share_an_end_and_others_have_their_own(tmp_path: Path) -> None:
    traced(tmp_path, 0, task(10.0), task(11.0))
    traced(tmp_path, 1, task(10.5))
    shared = timeline(tmp_path, None)
    assert shared["ms"] == 2000.0
    assert [bar[3] for bar in shared["servers"]["1"]] == [500.0, 1000.0]
    traced(tmp_path, 2, task(900.0))  # of another machine, which was started long before
    apart = timeline(tmp_path, None)
    assert [bar[3] for bar in apart["servers"]["1"]] == [1000.0, 1500.0]
    assert [bar[3] for bar in apart["servers"]["2"]] == [1000.0, 1500.0]


def test_a_trace_is_read_from_its_end_and_from_the_last_start_of_its_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest_tasks, "TAIL_BYTES", 1000)
    traced(tmp_path, 0, *(task(float(begin)) for begin in range(100)))
    assert timeline(tmp_path, None)["ms"] < 5000
    traced(tmp_path, 0, task(7.0, epoch=3))  # resumed after the machine was started anew
    with (tmp_path / "trace-0.jsonl").open("a") as file:
        file.write('{"time_s": 9')  # being written
    found = timeline(tmp_path, None)
    assert (found["ms"], {bar[2] for bar in found["servers"]["0"]}) == (1000.0, {3})
    traced(tmp_path, 0, task(8.0))
    with pytest.raises(ConfigError, match=r"trace-0\.jsonl: a line: "):
        timeline(tmp_path, None)


def test_long_curves_are_thinned_and_keep_their_ends() -> None:
    points = [(float(i), float(i)) for i in range(10 * MOST_POINTS)]
    found = thinned(points)
    assert (len(found), found[0], found[-1]) == (MOST_POINTS, points[0], points[-1])
    assert thinned(points[:5]) == points[:5]


def test_what_json_has_no_word_for_is_null() -> None:
    assert finite({"loss": [(1, float("nan"))], "status": {"loss": float("inf")}}) == {
        "loss": [[1, None]],
        "status": {"loss": None},
    }


def test_a_real_run_leaves_no_status_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, object]] = []
    monkeypatch.chdir(tmp_path)
    run = siafu.train(
        "digits",
        epochs=2,
        backend="cpu",
        run_dir="run",
        on_status=lambda status: seen.append(live_status.read(Path("run"))),
    )
    assert any(status.get("phase") == "training" for status in seen)
    assert not (run.dir / ".status.json").exists()
    assert Folder(run.dir).page(".")["metric"] == "accuracy"


# --- who may ask ------------------------------------------------------------------------------------------------------


def test_three_addresses_and_no_other(tmp_path: Path) -> None:
    written(tmp_path / "run")
    with served(tmp_path) as server:
        assert asked(server.url)[1].startswith(b"<!DOCTYPE html>")
        assert json.loads(asked(f"{server.url}runs")[1])[0]["name"] == "run"
        assert json.loads(asked(f"{server.url}run?name=run")[1])["line"]["epochs"] == 2
        assert asked(f"{server.url}run?name=../run") == (
            404,
            json.dumps({"error": f"../run: no run in {tmp_path}"}).encode(),
        )
        assert asked(f"{server.url}run/config.toml")[0] == 404
        assert server.server_address[0] == "127.0.0.1"


def test_a_page_of_another_site_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "run")
    with served(tmp_path) as server:
        assert asked(f"{server.url}runs", Host="evil.example:80") == (403, b"only for this machine\n")
        assert asked(f"{server.url}runs", Host=f"localhost:{server.server_address[1]}")[0] == 200


def test_what_cannot_be_shown_is_said_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(tmp_path), "--no-browser"]) == 2
    assert capsys.readouterr().err == f"siafu watch: {tmp_path}: no run in it\n"
    broken = written(tmp_path / "broken")
    (broken / "config.toml").write_text("[model]\nforgotten = 1\n")
    assert main(["watch", str(tmp_path), "--no-browser"]) == 2
    assert "model.forgotten: unknown key" in capsys.readouterr().err
    written(tmp_path / "run")
    assert [line["name"] for line in Folder(tmp_path).lines()] == ["run"]
    assert main(["watch", str(tmp_path), "--no-browser", "--port", "70000"]) == 2
    assert "--port 70000: must be 0 to 65535" in capsys.readouterr().err
    with served(tmp_path) as server:
        assert main(["watch", str(tmp_path), "--no-browser", "--port", str(server.server_address[1])]) == 2
    assert "Address already in use" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="No such file"):
        Folder(tmp_path / "none").lines()


# --- what a browser makes of it ---------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt install chromium)")
def test_a_browser_draws_the_run(tmp_path: Path) -> None:
    traced(written(tmp_path / "<b>run", scores=(0.25, 0.5, 0.75)), 0, task(1.0))  # a name is text and no markup
    with served(tmp_path) as server:
        command = [
            *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"),
            *("--virtual-time-budget=4000", "--dump-dom", server.url),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    page = html.unescape(done.stdout.partition("<script>")[0])
    assert '<h2 id="name">&lt;b&gt;run</h2>' in done.stdout
    assert "3 of 200" in page
    assert re.search(r"<span>best validation</span><b>0\.75</b>", page)
    titles = re.findall(r"<h3>(.*?)</h3>", page)
    assert titles == ["loss", "accuracy", "an epoch, ms", "the newest tasks of each interval, ms"]
    assert "<title>GA0, epoch 1, interval 0: 500 ms</title>" in page
    assert page.count("<path") == 4  # loss, validation, test, milliseconds
    assert "NaN" not in page
    assert "undefined" not in page
