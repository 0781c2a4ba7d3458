"""Processes that are born of one that has imported everything: a fleet of thirteen would
spend 7 s of CPU on imports alone.

A nursery is a process with one thread and all modules, which forks when it is asked to. What it forks is handed on to
whoever asked, as its parent (the intermediate process dies, and the asker has made itself the reaper of its
descendants): exit codes, groups, signals and leashes are those of ``subprocess.Popen``. A newborn that will have
children itself first forks a nursery of its own, before it has a thread. Linux only; elsewhere processes start as ever.

    python -m benchmarks.chaos.fork_server FD     serves the socket FD until its other end is closed
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import random
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from siafu import start
from siafu.variables import threads

#: What members, launchers and Lambda's runtime import; not its client, which reads when it
#: is imported where it is to ask.
MODULES = (
    "awslambdaric.lambda_context",
    "awslambdaric.lambda_runtime_hooks_runner",
    "awslambdaric.lambda_runtime_log_utils",
    "awslambdaric.lambda_runtime_marshaller",
    "run_coordinator.api",
    "run_coordinator.cli",
    "benchmarks.chaos.clock",
    "benchmarks.chaos.hub",
    "run_coordinator.hosts.local",
    "run_coordinator.launch",
    "run_coordinator.recovery.cli",
    "graph_server.lambdas.backend",
    "graph_server.backends.cpu",
    "graph_server.lambdas.launchers",
    "graph_server.server",
    "http.client",
    "lambda_funcs.handler",
    "lambda_funcs.local_pool",
    "multiprocessing",
    "param_server.server",
    "safetensors.numpy",
)
#: Last names of the modules whose processes start others.
PARENTS = ("launcher", "graph_server")
_PR_SET_CHILD_SUBREAPER = 36
_MOST_BYTES, _MOST_FDS = 1 << 18, 16

SUPPORTED = sys.platform == "linux"


@dataclass(frozen=True)
class Birth:
    """A module with these variables, and files for its stdin, stdout and stderr."""

    words: Sequence[str]  # the module, its arguments
    variables: Mapping[str, str]
    folder: str
    files: Sequence[int]


class Nursery:
    """The asker's end. Any thread may ask."""

    def __init__(self, line: socket.socket, pid: int = 0):
        """``pid``: of its process, which is our child."""
        self._line, self._lock, self._pid = line, threading.Lock(), pid
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    @classmethod
    def start(cls) -> Nursery:
        """One that imports everything now. OSError if it cannot."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = start.command("benchmarks.chaos.fork_server", str(theirs.fileno()))
            environ = {**os.environ, **threads()}
            subprocess.Popen(command, pass_fds=(theirs.fileno(),), env=environ, start_new_session=True)
        return cls(ours)

    def bear(self, birth: Birth) -> int:
        """The pid of a child of ours. OSError if there is none to be had."""
        asked = json.dumps([birth.words, dict(birth.variables), birth.folder]).encode()
        with self._lock:
            socket.send_fds(self._line, [asked], birth.files)
            answer = self._line.recv(16)
        if not answer:
            raise OSError("the nursery is gone")
        return int(answer)

    def note(self, births: Path) -> None:
        """Writes a line about its process: whoever ends the run must reap that too."""
        _note(births, self._pid, ["nursery"])


class Popen(subprocess.Popen[Any]):
    """``subprocess.Popen`` that asks ``nursery`` where a Python module is to be run. ``births``:
    the file that all are noted in."""

    nursery: Nursery | None = None
    births = ""

    def _execute_child(  # type: ignore[no-untyped-def]
        self,
        args,
        executable,
        preexec_fn,
        close_fds,
        pass_fds,
        cwd,
        env,
        startupinfo,
        creationflags,
        shell,
        p2cread,
        p2cwrite,
        c2pread,
        c2pwrite,
        errread,
        errwrite,
        *more,
    ) -> None:
        """Where CPython makes the child, once it has opened its pipes."""
        is_module = args[0] == sys.executable and args[1] in (start.FILE, "-m")
        if self.nursery is None or not is_module:
            super()._execute_child(  # type: ignore[misc]
                args,
                executable,
                preexec_fn,
                close_fds,
                pass_fds,
                cwd,
                env,
                startupinfo,
                creationflags,
                shell,
                p2cread,
                p2cwrite,
                c2pread,
                c2pwrite,
                errread,
                errwrite,
                *more,
            )
        else:
            files = [mine if fd == -1 else fd for mine, fd in enumerate((p2cread, c2pwrite, errwrite))]
            variables, folder = os.environ if env is None else env, os.fspath(cwd or os.getcwd())
            try:
                self.pid = self.nursery.bear(Birth(args[2:], variables, folder, [*files, *pass_fds]))
                self._child_created = True
            finally:
                self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]
        if self.births and is_module:
            self.note(Path(self.births))

    def note(self, births: Path) -> None:
        """Writes a line about the child to a file: its pid, when it began, and the words of its command."""
        _note(births, self.pid, list(self.args))  # type: ignore[arg-type]


def _note(births: Path, pid: int, words: Sequence[object]) -> None:
    if began := began_at(pid):
        with births.open("a") as file:  # a line at a time: many processes write to it
            file.write(f"{pid} {began} {' '.join(map(str, words))}\n")


def began_at(pid: int) -> str:
    """When a process began, in clock ticks since boot; "" if there is none, or nothing of it but its exit code."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    return ""


# --- the other end ----------------------------------------------------------------------------------------------------


def _serve(line: socket.socket) -> None:
    """Forks until nobody asks any more. Newborns live in here too, and leave by SystemExit."""
    while True:
        asked, files, _, _ = socket.recv_fds(line, _MOST_BYTES, _MOST_FDS)
        if not asked:
            return
        words, variables, folder = json.loads(asked)
        told, tell = os.pipe()
        if (between := os.fork()) == 0:
            if os.fork() == 0:
                os.close(told)
                line.close()
                os.setsid()  # before anybody hears of us: a leash is tied to our group
                os.write(tell, str(os.getpid()).encode())
                os.close(tell)
                _live(Birth(words, variables, folder, files))
            os._exit(0)
        os.close(tell)
        newborn = os.read(told, 16)
        os.close(told)
        os.waitpid(between, 0)
        line.send(newborn)  # only now it is a child of whoever asked
        for fd in files:
            os.close(fd)


def _live(birth: Birth) -> None:
    """A newborn becomes what was asked for. Ends in SystemExit or in what the module raises."""
    for place, fd in enumerate(birth.files[:3]):
        os.dup2(fd, place)
    for fd in birth.files[:3]:
        os.close(fd)
    os.chdir(birth.folder)
    os.environ.clear()
    os.environ.update(birth.variables)
    random.seed()
    if any(word.rpartition(".")[2] in PARENTS for word in birth.words):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if (pid := os.fork()) == 0:
            ours.close()
            _serve(theirs)
            os._exit(0)
        theirs.close()
        Popen.nursery = Nursery(ours, pid)
    sys.argv = ["", *birth.words[1:]]
    runpy.run_module(birth.words[0], run_name="__main__", alter_sys=True)
    raise SystemExit(0)


def main() -> None:
    line = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for module in MODULES:
        importlib.import_module(module)
    gc.freeze()  # what is there already is nobody's garbage, and its pages stay shared
    _serve(line)


if __name__ == "__main__":
    from benchmarks.chaos import fork_server as nursery  # whoever is born here must find this module, not __main__

    nursery.main()
