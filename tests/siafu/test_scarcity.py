"""What a machine does not give is said in one line, as what it is: memory, files, room for output, its own network."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from cost_planner.plan import calibration
from run_coordinator import doctor
from siafu import config, progress, sockets
from siafu.__main__ import main
from siafu.errors import ConfigError, DatasetError, GnnError


def raising(error: BaseException, cause: BaseException | None = None) -> Any:
    def raises(*_: Any) -> NoReturn:
        if cause is None:
            raise error
        try:
            raise cause
        except BaseException:
            raise error from None

    return raises


def siafu(*arguments: str, **options: Any) -> tuple[int, list[str]]:
    """The exit code, and the lines on stderr."""
    ended = subprocess.run([sys.executable, "-m", "siafu", *arguments], stderr=subprocess.PIPE, text=True, **options)
    return ended.returncode, ended.stderr.splitlines()


def test_memory_that_is_not_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "examine", raising(MemoryError("Unable to allocate 3 GiB")))
    assert main(["doctor", "--json"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["type"] == "MemoryError"
    assert said.err.splitlines() == [
        "siafu doctor: out of memory: Unable to allocate 3 GiB: siafu plan says what a run needs, "
        "siafu prepare --memory 2GiB keeps to a limit"
    ]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.EMFILE, "x.npy: Too many open files; ulimit -n 4096 allows more"),
        (errno.ENOMEM, "x.npy: Cannot allocate memory"),
        (errno.EIO, "x.npy: Input/output error"),
    ],
)
def test_a_file_is_not_held_to_blame_for_the_machine(
    number: int, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cause = OSError(number, os.strerror(number), "x.npy")
    monkeypatch.setattr(doctor, "examine", raising(DatasetError("x.npy: not a readable array"), cause))
    assert main(["doctor"]) == 1
    assert capsys.readouterr().err == f"siafu doctor: {expected}\n"


@pytest.mark.parametrize(
    ("number", "hint"), [(errno.ENOSPC, ""), (errno.EFBIG, "; ulimit -f says how large a file may be")]
)
def test_a_full_disk_is_named_by_what_was_written_to_it(
    number: int, hint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """write(2) names no file."""
    why = os.strerror(number)
    monkeypatch.setattr(
        doctor, "examine", raising(DatasetError(f"shards: cannot be written: {why}"), OSError(number, why))
    )
    assert main(["doctor"]) == 1
    assert capsys.readouterr().err == f"siafu doctor: shards: cannot be written: {why}{hint}\n"


def test_a_run_says_at_once_that_it_may_open_too_few_files(tmp_path: Path) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))

    code, said = siafu("train", "digits", "--quiet", "--run-dir", str(tmp_path / "run"), preexec_fn=few)
    assert code == 1
    assert said == ["siafu train: this system lets a process open 24 files, must be at least 128: ulimit -n 4096"]


@pytest.mark.long
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device")
@pytest.mark.parametrize("unbuffered", ["", pytest.param("1", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("doctor --json", (1, "siafu doctor: stdout: No space left on device")),
        ("prepare digits --inspect", (1, "siafu prepare: stdout: No space left on device")),
        ("--version", (1, "siafu: stdout: No space left on device")),
        ("--help", (1, "siafu: stdout: No space left on device")),
        ("prepare --help", (1, "siafu prepare: stdout: No space left on device")),
        ("prepare digits --json", (2, "siafu prepare: --out DIR is missing: the folder for the shards")),
    ],
)
def test_output_that_is_not_taken_is_said(
    words: str, expected: tuple[int, str], unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with open("/dev/full", "w") as full:
        code, said = siafu(*words.split(), stdout=full)
    assert (code, *said) == expected


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device")
def test_a_run_goes_on_where_nobody_takes_its_progress(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "siafu", "train", "digits", "--epochs", "1", "--run-dir", str(tmp_path / "run")]
    with open("/dev/full", "w") as full:
        assert subprocess.run([*words, "--json"], stdout=subprocess.PIPE, stderr=full).returncode == 0


def test_a_loopback_that_is_down_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sockets.check_loopback()
    down = OSError(errno.ENETUNREACH, "Network is unreachable")
    monkeypatch.setattr(socket, "create_connection", raising(down))
    with pytest.raises(GnnError, match=r"^127\.0\.0\.1: Network is unreachable: .*: ip link set lo up$"):
        sockets.check_loopback()
    assert doctor._loopback().ok is False


def test_no_run_waits_for_a_loopback_that_is_down(tmp_path: Path) -> None:
    alone = ["unshare", "--net"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("this user may make no network of his own")
    words = [sys.executable, "-m", "siafu", "train", "digits", "--quiet", "--epochs", "2"]
    words += ["--run-dir", str(tmp_path / "run")]
    if sys.platform == "linux":  # over Unix sockets
        assert subprocess.run([*alone, *words], timeout=60).returncode == 0
        shutil.rmtree(tmp_path / "run")
    words += ["--set", "servers.ports=7000-7099"]
    ended = subprocess.run([*alone, *words], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.startswith("siafu train: 127.0.0.1: Network is unreachable: ")
    assert len(ended.stderr.splitlines()) == 1


def test_a_stdout_that_is_closed_is_no_failure(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "siafu", "prepare", "digits", "--out", str(tmp_path / "out")]
    ended = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True, text=True)
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False)


def test_a_summary_needs_no_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert progress.from_here(tmp_path / "run") == tmp_path / "run"
    monkeypatch.chdir(tmp_path)
    assert progress.from_here(tmp_path / "run") == Path("run")


@pytest.mark.parametrize("home", [None, "relative"])
def test_doctor_and_plan_need_no_home(home: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if home is None:
        monkeypatch.setattr(Path, "home", raising(RuntimeError("Could not determine home directory.")))
    else:
        monkeypatch.setenv("HOME", home)
    with pytest.raises(ConfigError, match=r"no such home directory: .*[^.]; set data\.cache_dir"):
        config.cache_folder()
    assert calibration.Calibration.load() == calibration.Calibration()
    assert doctor._localstack()["found"] is None
