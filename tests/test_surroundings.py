"""tests/surroundings.py: what this run sees is what it should, and so is what a run sees that was
started in hostile surroundings."""

from __future__ import annotations

import json
import locale
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import threadpoolctl

from tests import surroundings
from tests.surroundings import MARK, ROOT, VARIABLES

#: A variable with a folder: the two tests of what a run sees write there where its HOME is.
REPORT = "SURROUNDINGS_REPORT"
#: What a child says of itself.
CHILD = """
import json, os, signal, sys, time
import siafu
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
said = {
    "variables": dict(os.environ),
    "asserts": __debug__,
    "warnings": sys.warnoptions,
    "interrupt": signal.getsignal(signal.SIGINT) == signal.default_int_handler,
    "blocked": int(status["SigBlk"], 16),
    "umask": int(status["Umask"], 8),
    "zone": time.tzname[0],
    "siafu": siafu.__file__,
}
print(json.dumps(said))
"""
#: Makes signals, the umask and the mask hostile, and then becomes the command that follows.
HOSTILE_START = """
import os, signal, sys
for name in ("SIGINT", "SIGQUIT", "SIGHUP", "SIGTERM", "SIGCHLD", "SIGUSR1"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGCHLD, signal.SIGTERM, signal.SIGALRM})
os.umask(0o077)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
HOSTILE = {
    **{name.replace("*", "X"): "7" for name, value, _ in VARIABLES if not name.startswith("PYTHON") and value is None},
    "LC_ALL": "tr_TR.UTF-8",
    "LANG": "tr_TR.UTF-8",
    "TZ": "Asia/Kathmandu",
    "TERM": "dumb",
    "COLUMNS": "20",
    "http_proxy": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "PYTHONWARNINGS": "ignore",
    "PYTHONUNBUFFERED": "1",
    "PYTHONIOENCODING": "latin-1",
    "PYTHONHASHSEED": "7",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "AWS_ACCESS_KEY_ID": "AKIAREAL",
    "AWS_PROFILE": "mine",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    "AWS_CONFIG_FILE": "/nowhere",
    "AWS_EC2_METADATA_DISABLED": "false",
    "RAY_ADDRESS": "127.0.0.1:9",
    "XDG_CACHE_HOME": "relative",
}


# --- what a run sees: these two also run inside the runs below --------------------------------------------------------


def expect_variables(found: dict[str, str]) -> None:
    """Of a process of a run, hostile or not. Libraries set variables of their own when they are imported, so that most
    that are removed are only known not to be what the hostile run was given."""
    for name, value, why in VARIABLES:
        if value is not None:
            assert found[name] == value, why
    assert {name: value for name, value in HOSTILE.items() if found.get(name) == value} == {}
    assert {name for name in found if name.startswith("LC_")} == {"LC_ALL"}
    assert {name for name in found if name.startswith("AWS_")} == {
        "AWS_CONFIG_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_EC2_METADATA_DISABLED",
    }
    assert not {"COLUMNS", "LINES"} & set(found)
    assert found["HOME"] == found[MARK]


def report(where: str) -> None:
    if folder := os.environ.get(REPORT):
        home = os.environ["HOME"]
        made = None if surroundings._home is None else surroundings._home.name
        words = {"home": home, "made": made, "there": os.path.isdir(home), "cache": in_cache(Path(home))}
        Path(folder, f"{where}-{os.getpid()}.json").write_text(json.dumps(words))


def in_cache(home: Path) -> list[str]:
    cache = home / ".cache" / "siafu"
    return sorted(str(path.relative_to(cache)) for path in cache.glob("**/*"))


def test_this_process_has_nothing_of_its_surroundings(tmp_path: Path) -> None:
    report("here")
    expect_variables(dict(os.environ))
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN  # Python's own choice
    ignored = {number for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_IGN}
    assert ignored <= surroundings.IGNORED_BY_PYTHON
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
    (tmp_path / "file").write_text("İı")  # no encoding is named: the locale's
    assert (tmp_path / "file").read_bytes() == "İı".encode()
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644
    assert time.tzname == ("UTC", "UTC")
    assert locale.setlocale(locale.LC_CTYPE) == "C.UTF-8"
    assert tempfile.gettempdir() == "/tmp"
    assert Path.home().stat().st_mode & 0o777 == 0o700


def test_what_it_starts_has_nothing_of_them_either(tmp_path: Path) -> None:
    report("child")
    ended = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True, cwd=tmp_path)
    said = json.loads(ended.stdout)
    expect_variables(said["variables"])
    assert (said["asserts"], said["warnings"]) == (True, [])
    assert (said["interrupt"], said["blocked"], said["umask"], said["zone"]) == (True, 0, 0o022, "UTC")
    assert Path(said["siafu"]) == ROOT / "siafu" / "__init__.py"
    # What is no Python has nothing ignored at all, of what a process may set: 32 and 33 are the C library's own.
    status = subprocess.run(
        ["cat", "/proc/self/status"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    (ignored,) = (int(line.split()[1], 16) for line in status if line.startswith("SigIgn:"))
    assert [number for number in signal.valid_signals() if ignored >> (number - 1) & 1] == []


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor: OpenBLAS has one thread anyhow")
def test_numpy_was_loaded_after_the_variables_were_settled() -> None:
    found = [library for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]
    assert all(library["num_threads"] > 1 for library in found), found


# --- runs in hostile surroundings -------------------------------------------------------------------------------------

SEEN = (
    "test_this_process_has_nothing_of_its_surroundings",
    "test_what_it_starts_has_nothing_of_them_either",
    "test_numpy_was_loaded_after_the_variables_were_settled",
)


def pytest_of_its_own(
    variables: dict[str, str], *options: str, tests: tuple[str, ...] = SEEN
) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-c",
        HOSTILE_START,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *options,
        *(f"{Path(__file__).relative_to(ROOT)}::{test}" for test in tests),
    ]
    around = {
        "PATH": os.environ["PATH"],
        **{name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
    }
    return subprocess.run(
        command, cwd=ROOT, env={**around, **variables}, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("there", [True, False], ids=["HOME is there", "HOME is nowhere"])
def test_a_run_in_hostile_surroundings_sees_none_of_them(tmp_path: Path, workers: int, there: bool) -> None:
    home, reports = tmp_path / "home", tmp_path / "reports"
    reports.mkdir()
    if there:
        (home / ".cache" / "siafu" / "localstack-abc").mkdir(parents=True)
        (home / ".cache" / "siafu" / "localstack-abc" / "complete").write_text("pins")
        (home / ".cache" / "siafu" / "digits-0123").mkdir()  # a prepared graph
        (home / "precious").write_text("mine")
    (tmp_path / "temporary").mkdir()
    given = {
        **HOSTILE,
        "TMPDIR": str(tmp_path / "temporary"),
        "HOME": str(home),
        REPORT: str(reports),
        MARK: str(home / "elsewhere"),
    }
    ended = pytest_of_its_own(given, "-n", str(workers))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "passed" in ended.stdout

    said = [json.loads(path.read_text()) for path in reports.iterdir()]
    assert len(said) == 2
    (made,) = {one["home"] for one in said}  # by the run, once: workers share it
    assert Path(made).name.startswith("siafu-tests-home-")
    assert [one["made"] for one in said] == ([None, None] if workers else [made, made])
    assert all(one["there"] for one in said)
    assert not os.path.lexists(made)  # any more

    assert home.is_dir() == there  # nobody made it
    if there:
        assert (home / "precious").read_text() == "mine"
        assert (home / ".cache" / "siafu" / "localstack-abc" / "complete").read_text() == "pins"
        assert (home / ".cache" / "siafu" / "digits-0123").is_dir()
        assert all("localstack-abc" in one["cache"] and "digits-0123" not in one["cache"] for one in said)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_run_that_another_has_started_shares_its_home_and_leaves_it(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    reports = tmp_path / "reports"
    reports.mkdir()
    ended = pytest_of_its_own(
        {"HOME": str(tmp_path), MARK: str(tmp_path), REPORT: str(reports)}, "-n", "0", tests=SEEN[1:]
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (said,) = (json.loads(path.read_text()) for path in reports.iterdir())
    assert (said["home"], said["made"]) == (str(tmp_path), None)
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize("level", ["1", "2"])
def test_a_run_without_asserts_is_refused(tmp_path: Path, level: str) -> None:
    ended = pytest_of_its_own({"HOME": str(tmp_path), "PYTHONOPTIMIZE": level}, "-n", "0")
    assert ended.returncode != 0
    assert "passed" not in ended.stdout
    assert "will be ignored because assert statements are not executed" in ended.stderr


# --- programs find what they keep below the HOME that was given -------------------------------------------------------


def test_programs_find_their_caches_below_the_home_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_CONFIG_FILE", "PIP_CACHE_DIR", "NPM_CONFIG_USERCONFIG", "NPM_CONFIG_CACHE", "PYENV_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("JSII_RUNTIME_PACKAGE_CACHE_ROOT", raising=False)
    filled = {
        "PIP_CACHE_DIR": str(tmp_path / ".cache" / "pip"),
        "NPM_CONFIG_CACHE": str(tmp_path / ".npm"),
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(tmp_path / ".cache" / "aws" / "jsii" / "package-cache"),
    }
    assert surroundings.variables_of_caches(tmp_path / "nowhere") == {}
    assert surroundings.variables_of_caches(tmp_path) == filled
    (tmp_path / ".npmrc").write_text("registry=https://127.0.0.1/\n")
    (tmp_path / "config" / "pip").mkdir(parents=True)
    (tmp_path / "config" / "pip" / "pip.conf").write_text("[global]\nindex-url = https://127.0.0.1/\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("NPM_CONFIG_CACHE", "/said")
    found = surroundings.variables_of_caches(tmp_path)
    assert found.pop("PIP_CONFIG_FILE") == str(tmp_path / "config" / "pip" / "pip.conf")
    assert found.pop("NPM_CONFIG_USERCONFIG") == str(tmp_path / ".npmrc")
    del filled["NPM_CONFIG_CACHE"]
    assert found == filled


def test_what_is_made_once_is_found_and_stays_the_users(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "peers-0123" / "bin").mkdir(parents=True)
    (cache / "calibration-host.json").write_text("{}")
    with tempfile.TemporaryDirectory(dir=tmp_path) as home:
        surroundings.link_what_is_made_once(cache, Path(home), may_make=True)
        ours = Path(home) / ".cache" / "siafu"
        assert {path.name for path in ours.iterdir()} == {"peers-0123", "wheelhouse", "package"}
        assert not (ours / "package").is_symlink()  # zips of this tree are the run's own
        (ours / "package" / "wheels" / "numpy.whl").write_text("kept")
        (ours / "peers-0123" / "marker").write_text("kept")
    assert (cache / "package" / "wheels" / "numpy.whl").read_text() == "kept"
    assert sorted(path.name for path in (cache / "peers-0123").iterdir()) == ["bin", "marker"]
