"""Who is watched, and until when."""

from __future__ import annotations

import os
import sys

import pytest

from run_coordinator.recovery import guard

LAUNCHER = """
import os, sys, time
say = lambda text: os.write(int(os.environ["{variable}"]), text.encode())
say('run 0.3 "/runs/a"\\n' + {words!r})
time.sleep({sleep})
"""


def watched(words: str, sleep: float) -> str:
    """What becomes of a launcher that says these words and then sleeps."""
    code = LAUNCHER.format(variable=guard.VARIABLE, words=words, sleep=sleep)
    with guard._launched([sys.executable, "-c", code]) as launcher:
        return launcher.watch()


def test_silence_is_death() -> None:
    assert watched(".\n", 30.0) == "silent for more than 0.3 s"


def test_who_has_trained_may_be_silent() -> None:
    assert watched(".\nover\n", 1.0) == ""


@pytest.mark.parametrize("run_dir", ["/runs/a b", "/runs/a\nb", "/runs/\udcff"])  # the last: a byte that is no UTF-8
def test_the_launchers_words_are_those_that_the_guard_knows(monkeypatch: pytest.MonkeyPatch, run_dir: str) -> None:
    reader, writer = os.pipe()
    monkeypatch.setenv(guard.VARIABLE, str(writer))
    guard.tell_run(run_dir, 2.5)
    guard.beat()
    guard.over()
    launcher = guard._Launcher(None, reader)  # type: ignore[arg-type]
    for line in os.read(reader, 100).decode().splitlines():
        launcher._hear(line)
    os.close(reader)
    os.close(writer)
    assert (launcher.run_dir, launcher.silence_s) == (run_dir, None)
