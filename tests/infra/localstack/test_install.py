"""LocalStack's environment is made once, whole, and by one process at a time. No package is fetched here."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from infra.localstack import install
from siafu.errors import ConfigError, GnnError


@pytest.fixture
def make(monkeypatch):
    """Stands in for the making: notes who made what."""
    made = []

    def make(home):
        made.append(home)
        home.mkdir()
        (home / install.MARKER).touch()

    monkeypatch.setattr(install, "_make", make)
    return made


def test_every_requirement_is_pinned():
    lines = [line for line in install.REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]
    assert all(line.partition("#")[0].count("==") == 1 for line in lines)
    pins = dict(line.partition("#")[0].strip().lower().split("==") for line in lines)
    assert (pins["localstack-core"], pins["localstack-twisted"]) == ("4.9.2", "25.5.0")
    assert int(pins["cbor2"].split(".")[0]) < 6
    assert int(pins["pyopenssl"].split(".")[0]) < 26
    assert "awslambdaric" in pins


def test_other_pins_are_another_environment(tmp_path, monkeypatch):
    before = install.folder(tmp_path)
    other = tmp_path / "requirements.txt"
    other.write_text(install.REQUIREMENTS.read_text().replace("localstack-core==4.9.2", "localstack-core==4.9.3"))
    monkeypatch.setattr(install, "REQUIREMENTS", other)
    assert install.folder(tmp_path) != before


def test_interpreter_says_how_to_install_what_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"python -m infra\.localstack install"):
        install.interpreter(tmp_path)


def test_second_installation_does_nothing(tmp_path, make):
    first = install.install(tmp_path)
    assert install.install(tmp_path) == first
    assert make == [install.folder(tmp_path)]


def test_half_of_an_installation_is_none(tmp_path, make):
    (install.folder(tmp_path) / "bin").mkdir(parents=True)
    assert not install.installed(tmp_path)


def test_two_at_once_install_once(tmp_path, monkeypatch, make):
    inside, go_on = threading.Event(), threading.Event()
    quick = install._make

    def slow(home):
        inside.set()
        assert go_on.wait(60)
        quick(home)

    monkeypatch.setattr(install, "_make", slow)
    threads = [threading.Thread(target=install.install, args=(tmp_path,)) for _ in range(2)]
    threads[0].start()
    assert inside.wait(60)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert len(make) == 1


def test_without_python_311_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(install.sys, "version_info", (3, 12, 0))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    with pytest.raises(ConfigError, match=r"needs Python 3\.11"):
        install._python()


def test_python_that_does_not_run_is_passed_over(tmp_path, monkeypatch):
    """pyenv's shims stand on PATH for versions that are not chosen."""
    shim, real = tmp_path / "python3.11", tmp_path / "versions" / "3.11.9" / "bin" / "python3.11"
    real.parent.mkdir(parents=True)
    for path, code in ((shim, 1), (real, 0)):
        path.write_text(f"#!/bin/sh\nexit {code}\n")
        path.chmod(0o755)
    monkeypatch.setattr(install.sys, "version_info", (3, 12, 0))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert install._python() == str(real)


def test_failure_of_pip_is_one_line_with_its_error():
    with pytest.raises(GnnError) as caught:
        install._run(
            [sys.executable, "-c", "print('ERROR: No matching distribution'); print('bye'); raise SystemExit(1)"]
        )
    assert str(caught.value).endswith("ERROR: No matching distribution")
    assert "\n" not in str(caught.value)


def test_its_command_line_says_what_is_wrong_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # nothing is installed there: else it would serve without end
    done = subprocess.run([sys.executable, "-m", "infra.localstack", "serve"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "python -m infra.localstack install" in done.stderr
