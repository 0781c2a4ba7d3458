"""The launcher `rie`'s Lambdas: AWS's own runtime interface emulator (RIE), one for each environment of a run.

``python -m infra.rie --config FILE --run-dir DIR`` keeps the contract of ``run_coordinator.lambda_emulator``: it starts the emulators, prints
where they answer, and ends when its stdin does. Each runs the unmodified package (``infra.package``) under AWS's runtime
interface client; neither sees anything else that is installed here. The binary is taken out of a pinned wheel.

What an emulator answers to ``POST /2015-03-31/functions/function/invocations``, as measured (1.170.0). It sets none of
Lambda's headers: no X-Amz-Function-Error, no X-Amz-Log-Result, no request id of its own, and Content-Type is text/plain:

| what happened             | status | body                                                                               |
|---------------------------|--------|------------------------------------------------------------------------------------|
| the handler returned      | 200    | its JSON                                                                           |
| the handler raised        | 200    | {"errorMessage": "no such", "errorType": "ValueError", "requestId": "…", "stackTrace": […]} |
| payload beyond about 6 MB | 200    | the same with "Runtime.UnmarshalError": it is cut short                            |
| timeout                   | 200    | Task timed out after 3.00 seconds        (plain text, no JSON)                     |
| the process died          | 502    | {"errorType":"Runtime.ExitError","errorMessage":"RequestId: … Error: Runtime exited with error: exit status 3"} |
| its module is not there   | 502    | {"errorMessage": "Unable to import module 'x': …", "errorType": "Runtime.ImportModuleError", "requestId": "", …} |
| another function's name   | 404    | 404 page not found        (the name in the path must be "function")                |
| a second call meanwhile   | none   | it panics: both connections are reset, and the runtime of the first is orphaned     |

Invocations of type Event are run synchronously too. Init happens at the first call, not at the start, and counts as a part
of its duration. START, END and REPORT lines are in its log alone, which is where its "Max Memory Used" (always all of it)
and "Init Duration" (always next to nothing) are wrong; "INIT REPORT(durationMs: …)" there is right. The memory limit is not
enforced. Environments die at a crash or a timeout, and the next call starts another.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import math
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from infra import package, wheels
from siafu import config as configs
from siafu.config import Config, cache_folder
from siafu.errors import ConfigError, GnnError, WorkerError
from siafu.leash import Leash
from siafu.machine import num_environments

logger = logging.getLogger(__name__)

WHEEL = "aws-sam-cli==1.170.0"
#: Lambda's name of the architecture -> SHA-256 of the emulator in that wheel.
BINARIES = {
    "x86_64": "6b1e686e62ab2baf5759c412c4864276ef2a88b094fca53ec070637ccba9b9a5",
    "arm64": "ec2e5d09633d853834c008b1ef264bf834b258a94d551d2b2074966494b39a21",
}
CACHE = cache_folder()
FUNCTION = "function"  # the one name that an emulator answers to
READY_S = 20.0  # for an emulator to listen
TERM_S = 2.0  # to end by itself; it kills its runtime first
#: An emulator that dies so often in a row, each time within a second of its start, will not come up.
MAX_SHORT_LIVES = 5

#: What an emulator runs. It puts the runtime into a group of its own, which our leash on the emulator does not reach: so
#: the runtime ties itself, to the descriptor that is its first argument, and goes if we are gone already.
RUNTIME = """
import fcntl, os, runpy, select, signal, sys
leash = int(sys.argv.pop(1))
fcntl.fcntl(leash, fcntl.F_SETOWN, -os.getpgrp())
fcntl.fcntl(leash, fcntl.F_SETSIG, signal.SIGKILL)
fcntl.fcntl(leash, fcntl.F_SETFL, os.O_ASYNC)
if select.select([leash], [], [], 0)[0]:
    sys.exit("nobody is there any more")
runpy.run_module("awslambdaric", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class Function:
    """What all emulators run."""

    task_root: Path  # the unpacked package
    handler: str
    memory_mb: int
    timeout_s: float
    name: str = "siafu"  # as the handler's context gives it

    def command(self, leash: int) -> list[str]:
        """Of the runtime. The emulator takes the last argument for the handler's name."""
        return [sys.executable, "-S", "-B", "-c", RUNTIME, str(leash), self.handler]

    def environ(self) -> dict[str, str]:
        """All variables of an emulator, which hands them on: as the local launcher's, so that the bits agree."""
        kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        paths = [self.task_root, runtime_client(), *self._beyond_the_package()]
        return {
            **kept,
            **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "LANG": "C.UTF-8",
            "TZ": ":UTC",
            "LAMBDA_TASK_ROOT": str(self.task_root),
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{wheels.our_runtime()}",
            "AWS_REGION": "local",
            "AWS_DEFAULT_REGION": "local",
            "AWS_LAMBDA_FUNCTION_NAME": self.name,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(self.memory_mb),
            "AWS_LAMBDA_FUNCTION_TIMEOUT": str(math.ceil(self.timeout_s)),
        }

    def _beyond_the_package(self) -> list[Path]:
        """Where the handler comes from, if that is not the package: handlers of tests."""
        top = self.handler.partition(".")[0]
        if (self.task_root / top).exists() or (self.task_root / f"{top}.py").exists():
            return []
        found = importlib.util.find_spec(top)
        if found is None or not (found.submodule_search_locations or found.origin):
            raise ConfigError(f"lambda.handler = {self.handler}: there is no {top} in the function's package, nor here")
        inside = [Path(folder) for folder in found.submodule_search_locations or ()]
        return [folder.parent for folder in inside] or [Path(str(found.origin)).parent]


class Emulator:
    """One emulator, and the environment in it. ``close`` when done."""

    def __init__(self, name: str, function: Function, program: Path, log: Path) -> None:
        self.name, self._function, self._program, self._log = name, function, program, log
        # All mutable state:
        self._alive = ExitStack()  # what there is of the process
        self._process: subprocess.Popen[bytes] | None = None
        self._born = 0.0
        self._short_lives = 0
        self.port = 0
        self.exit_fd = -1  # readable once it has ended

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, port: int, api_port: int) -> None:
        """Returns at once; ``wait`` until it listens on ``port``. Its runtime calls it on ``api_port``."""
        self._alive.close()
        self.port, self._born = port, time.monotonic()
        with ExitStack() as undo:
            leash, runtimes = Leash(), Leash()
            undo.callback(leash.close)
            undo.callback(runtimes.close)  # kills the runtime, also where the emulator has left it behind
            output = undo.enter_context(self._log.open("ab"))
            addresses = ["--runtime-interface-emulator-address", f"127.0.0.1:{port}"]
            addresses += ["--runtime-api-address", f"127.0.0.1:{api_port}", "--log-level", "info"]
            process = self._process = subprocess.Popen(
                [str(self._program), *addresses, *self._function.command(runtimes.fd)],
                cwd=self._function.task_root, env=self._function.environ(), stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True, pass_fds=(leash.fd, runtimes.fd),
            )  # fmt: skip
            undo.callback(process.wait)
            undo.callback(process.kill)
            leash.tie(process.pid)
            os.close(runtimes.fd)
            runtimes.fd = -1  # the runtime ties it
            self.exit_fd = os.pidfd_open(process.pid)
            undo.callback(os.close, self.exit_fd)
            self._alive = undo.pop_all()

    def wait(self) -> bool:
        """Until it listens; False if it has ended instead."""
        assert self._process is not None
        while self._process.poll() is None:
            if _listens(self.pid, self.port):
                return True
            if time.monotonic() > self._born + READY_S:
                raise WorkerError(f"emulator {self.name} does not listen after {READY_S:g} s: {self._log}")
            select.select([self.exit_fd], [], [], 0.01)
        return False

    def restart(self, api_port: int) -> None:
        """On its port, after it has died. WorkerError if it does so again and again."""
        self._short_lives = self._short_lives + 1 if time.monotonic() < self._born + 1 else 0
        if self._short_lives >= MAX_SHORT_LIVES:
            raise WorkerError(f"emulator {self.name} died {MAX_SHORT_LIVES} times in a row: {_last_words(self._log)}")
        self.start(self.port, api_port)

    def end(self) -> None:
        """Asks it to; ``close`` waits."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def close(self, deadline: float = 0.0) -> None:
        """Kills it, and its runtime, at ``deadline`` (monotonic seconds). May be called again."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(max(0.0, deadline - time.monotonic()))
        self._alive.close()


class Emulators:
    """``count`` of them, side by side: use in a ``with`` block. ``watch`` keeps them alive."""

    def __init__(self, function: Function, count: int, log_dir: Path) -> None:
        log_dir.mkdir(parents=True, exist_ok=True)
        function.environ()  # raises what is wrong with it
        names = [f"env-{number:04d}" for number in range(1, count + 1)]
        self.all = [Emulator(name, function, binary(), log_dir / f"{name}.log") for name in names]

    def __enter__(self) -> Emulators:
        try:
            ports = _free_ports(2 * len(self.all))
            for emulator in self.all:
                emulator.start(ports.pop(), ports.pop())
            for emulator in self.all:
                while not emulator.wait():  # somebody took its port
                    emulator.port = _free_ports(1)[0]
                    emulator.restart(_free_ports(1)[0])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        deadline = time.monotonic() + TERM_S
        for emulator in self.all:
            emulator.end()
        for emulator in self.all:
            emulator.close(deadline)

    @property
    def urls(self) -> list[str]:
        return [emulator.url for emulator in self.all]

    def watch(self, until: int) -> None:
        """Starts again what dies, until the descriptor ``until`` is at its end."""
        poller = select.poll()
        poller.register(until, select.POLLIN | select.POLLHUP)
        by_fd = {}
        for emulator in self.all:
            poller.register(emulator.exit_fd, select.POLLIN)
            by_fd[emulator.exit_fd] = emulator
        while True:
            for fd, _ in poller.poll():
                if fd == until:
                    if not os.read(until, 4096):
                        return
                    continue
                emulator = by_fd.pop(fd)
                poller.unregister(fd)
                logger.warning("emulator %s died: it is started again", emulator.name)
                emulator.restart(_free_ports(1)[0])
                poller.register(emulator.exit_fd, select.POLLIN)
                by_fd[emulator.exit_fd] = emulator


def environments(config: Config) -> int:
    """How many emulators a run needs: twice what it wants at work, for a silent worker's place may be taken."""
    return 2 * num_environments(config) * config.data.parts


# --- what is run --------------------------------------------------------------------------------------------------------


def binary() -> Path:
    """The emulator for this machine, from the cache or out of ``WHEEL``. ConfigError if it cannot be had, or is another."""
    arch = wheels.Target.here().arch
    place = _place(arch)
    if place.is_file():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".draft-") as draft:
        with zipfile.ZipFile(wheels.download(WHEEL, Path(draft))) as archive:
            found = archive.read(f"samcli/local/rapid/aws-lambda-rie-{arch}")
        digest = hashlib.sha256(found).hexdigest()
        if digest != BINARIES[arch]:
            raise ConfigError(f"the emulator in {WHEEL} has SHA-256 {digest}, must be {BINARIES[arch]}")
        program = Path(draft, "program")
        program.write_bytes(found)
        program.chmod(0o755)
        program.replace(place)
    return place


def installed() -> bool:
    """Whether the emulator is in the cache."""
    try:
        return _place(wheels.Target.here().arch).is_file()
    except ConfigError:  # no machine for it
        return False


def _place(arch: str) -> Path:
    return CACHE / "rie" / f"aws-lambda-rie-{arch}-{BINARIES[arch][:8]}"


def runtime_client() -> Path:
    """A folder with AWS's runtime interface client and what it needs, and nothing else: /var/runtime on Lambda."""
    names = ["awslambdaric", *_needed_by("awslambdaric")]
    versions = [f"{name} {importlib.metadata.version(name)}" for name in names]
    key = hashlib.sha256(repr((sys.executable, wheels.our_runtime(), versions)).encode()).hexdigest()[:8]
    place = CACHE / "rie" / f"runtime-{key}"
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=place.parent, prefix=".draft-"))
        for target in _installed(names):
            (draft / target.name).symlink_to(target)
        try:
            draft.rename(place)
        except OSError:  # another process was faster
            shutil.rmtree(draft)
    return place


def _needed_by(name: str) -> Iterator[str]:
    for requirement in importlib.metadata.requires(name) or ():
        if "extra ==" not in requirement:
            found = re.match(r"[\w.-]+", requirement)
            assert found is not None
            yield found[0]


def _installed(names: list[str]) -> set[Path]:
    """Top-level files and folders of distributions."""
    found = set()
    for name in names:
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not top.endswith(".dist-info"):
                found.add(Path(str(distribution.locate_file(top))).resolve())
    return found


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [sock.getsockname()[1] for sock in sockets]


def _listens(pid: int, port: int) -> bool:
    """Whether it is this process, and no other, that listens on the loopback port."""
    with contextlib.suppress(OSError):  # it has just ended
        rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()]
        listening = [f"socket:[{row[9]}]" for row in rows if (row[1], row[3]) == (f"0100007F:{port:04X}", "0A")]
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # it has just been closed
                if os.readlink(file) in listening:
                    return True
    return False


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][-300:] if lines else f"{log} is empty"


# --- the process --------------------------------------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.rie", description="Serve a run's Lambdas by AWS's emulator.")
    parser.add_argument("--config", required=True, type=Path, metavar="FILE", help="the run's config")
    parser.add_argument("--run-dir", required=True, type=Path, metavar="DIR", help="logs go to DIR/logs/lambda-rie")
    args = parser.parse_args(argv)
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the block below is left
    try:
        serve(configs.load(args.config), args.run_dir)
    except (GnnError, OSError) as error:
        print(error, file=sys.stderr)
        return getattr(error, "exit_code", 1)
    except KeyboardInterrupt:
        return 130
    return 0


def serve(config: Config, run_dir: Path) -> None:
    """Until stdin ends."""
    lambdas = config.lambdas
    task_root = package.unpacked(package.build_here())
    function = Function(task_root, lambdas.handler, lambdas.memory_mb, lambdas.timeout_s, lambdas.function)
    with Emulators(function, environments(config), run_dir / "logs" / "lambda-rie") as emulators:
        found = {"endpoint": ",".join(emulators.urls), "function": FUNCTION, "callback_host": ""}
        print(json.dumps(found), flush=True)
        emulators.watch(sys.stdin.fileno())


if __name__ == "__main__":
    sys.exit(main())
