"""A LocalStack of our own on a free loopback port: used once it answers, and removed with certainty afterwards.

That LocalStack calls itself ready proves little, so three things are asserted before it is used:
that it answers calls and not only its health check, that our executor runs its functions and not Docker's, and that
none of its ports is open to the network.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from botocore.exceptions import BotoCoreError, ClientError

from infra.localstack import install, ports
from infra.localstack.fit import executor_at
from infra.localstack.identity import EXECUTOR
from infra.service import LOCAL_REGION, client
from siafu.errors import WorkerError
from siafu.leash import Leash

START_S = 90.0  # 1 to 2 s on an idle machine
TERM_S = 5.0  # a polite kill alone has been seen to take 577 s
POLL_S = 0.05
LOOPBACK = "127.0.0.1"
PREFIX = "siafu-localstack-"  # of its folder's name; the owner's process id follows
#: All of siafu that the executor needs, put on LocalStack's path by links: the folder that
#: siafu lies in may hold anything.
ROOMS = ("infra", "lambda_funcs", "siafu")


class Stack:
    """Use in a ``with`` block. ``endpoint`` is for boto3, the AWS CLI and localstack-client (``AWS_ENDPOINT_URL``).

    ``log``: file that gets what LocalStack writes. ``settings``: more of its variables, such as
    ``CFN_IGNORE_UNSUPPORTED_RESOURCE_TYPES``. Its data lies in a temporary folder and goes with it.
    """

    def __init__(self, log: Path, settings: Mapping[str, str] | None = None, cache: Path | None = None):
        self.log = log
        self._python = install.interpreter(cache)
        self._settings = dict(settings or {})
        # All mutable state:
        self.endpoint = ""
        self._undo = contextlib.ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of LocalStack, which leads its group."""
        assert self._process is not None
        return self._process.pid

    def client(self, service: str) -> Any:
        """A boto3 client of one of its services."""
        return client(service, LOCAL_REGION, self.endpoint)

    def check(self) -> None:
        """Raises WorkerError with its last words if it has ended by itself."""
        assert self._process is not None
        if (code := self._process.poll()) is not None:
            raise self._failure(f"it ended with code {code}")

    def __enter__(self) -> Stack:
        """Starts LocalStack. WorkerError with its last words if it ends, or is not set up as expected."""
        with contextlib.ExitStack() as undo:
            folder = Path(
                undo.enter_context(tempfile.TemporaryDirectory(prefix=_own_prefix(), ignore_cleanup_errors=True))
            )
            self.log.parent.mkdir(parents=True, exist_ok=True)
            output = undo.enter_context(open(self.log, "ab"))
            leash = Leash()
            undo.callback(leash.close)
            port = _free_port()
            self.endpoint = f"http://{LOOPBACK}:{port}"
            self._process = self._start(folder, port, output, leash)
            undo.callback(self._stop)
            self._until_it_listens()
            self._check()
            self._undo = undo.pop_all()  # all is well
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _start(self, folder: Path, port: int, output: IO[bytes], leash: Leash) -> subprocess.Popen[bytes]:
        for name in ("path", "tmp", "root"):
            (folder / name).mkdir()
        root = Path(install.__file__).resolve().parents[2]
        for room in ROOMS:
            (folder / "path" / room).symlink_to(root / room)
        process = subprocess.Popen(
            [str(self._python), "-m", "localstack.runtime.main"],
            cwd=folder,
            env=self._environment(folder, port),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(leash.fd,),
        )
        leash.tie(process.pid)
        return process

    def _environment(self, folder: Path, port: int) -> dict[str, str]:
        """All of LocalStack's variables. Of the user's, only paths: LocalStack sees no account and no profile."""
        return {
            **{name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ},
            "LANG": "C.UTF-8",
            "HOME": str(folder),
            "XDG_CACHE_HOME": str(self._python.parent.parent / "cache"),  # its index of plugins is made once
            "PYTHONPATH": str(folder / "path"),
            "PYTHONDONTWRITEBYTECODE": "1",  # siafu's tree is not its own
            "TMPDIR": str(folder / "tmp"),
            "FILESYSTEM_ROOT": str(folder / "root"),
            "LAMBDA_RUNTIME_EXECUTOR": EXECUTOR,
            "GATEWAY_SERVER": "hypercorn",  # its default one listens on every interface
            "GATEWAY_LISTEN": f"{LOOPBACK}:{port}",
            "LOCALSTACK_HOST": f"{LOOPBACK}:{port}",  # in URLs that it gives out
            "DNS_ADDRESS": "0",
            "SKIP_SSL_CERT_DOWNLOAD": "1",
            "DISABLE_EVENTS": "1",
            "OVERRIDE_IN_DOCKER": "0",
            **self._settings,
        }

    # -- what is asserted

    def _until_it_listens(self) -> None:
        deadline = time.monotonic() + START_S
        while not self._listens():
            self.check()
            if time.monotonic() > deadline:
                raise self._failure(f"it does not answer within {START_S:g} s")
            time.sleep(POLL_S)

    def _listens(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, int(self.endpoint.rpartition(":")[2])), timeout=1.0):
                return True
        except OSError:
            return False

    def _check(self) -> None:
        """Checks that LocalStack answers, runs functions with our executor, and listens on loopback alone. The first
        call of a service loads it."""
        try:
            self.client("s3").list_buckets()
            executor = executor_at(self.endpoint)
        except (BotoCoreError, ClientError, WorkerError) as error:
            raise self._failure(f"it does not answer: {error}") from error
        if (executor or {}).get("pid") != self.pid:
            raise self._failure("it does not run functions with our executor")
        if found := [str(at) for at in ports.listening(self.pid) if not at.is_loopback]:
            raise self._failure(f"it listens on {', '.join(found)}, not on {LOOPBACK} alone")

    def _failure(self, what: str) -> WorkerError:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return WorkerError(f"LocalStack: {what}; {lines[-1][-300:] if lines else 'it wrote nothing'} ({self.log})")

    def _stop(self) -> None:
        """Ends its whole group by TERM, then KILL. Leashes of LocalStack end the functions' processes."""
        assert self._process is not None
        for sign, patience_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, None)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)


def _own_prefix() -> str:
    """The prefix of our folder's name. Removes folders of dead owners first."""
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = left.name[len(PREFIX) :].partition("-")[0]
        if owner.isdigit() and not _alive(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    return f"{PREFIX}{os.getpid()}-"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
