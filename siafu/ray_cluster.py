"""Connects to a Ray cluster: finds it, joins it as a driver, and keeps Ray's output off the user's screen.

Who runs on Ray (the host of servers, the launcher of Lambdas) comes in here. Ray itself would look for two minutes for
a cluster that is not there, print pages, end the process by ``sys.exit`` when it is politely killed, and write what
other machines' daemons last said to stdout, where a run's result belongs.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from siafu import extras, start
from siafu.errors import ConfigError

PORT = 6379  # what `ray start --head` listens on
PROBE_S = 5.0
_MAX_TEXT = 300
#: How a driver of ours is set, unless the user has set it otherwise.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # spares a warning
    # A call to an actor that is gone waits so long for the cluster to say why. After 1 s, Ray's default, others have
    # complained about the member, and the run would end with their words.
    "RAY_timeout_ms_task_wait_for_death_info": "100",
}
#: How HTTP/2, and with it gRPC, begins: the client's preface and empty settings. A server's
#: first frame is of its settings.
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_HTTP2_SETTINGS = 4


def load() -> Any:
    """The package ray. ConfigError if it is not installed."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ConfigError(f"a Ray cluster needs the package ray: {extras.install('ray')} ({error})") from error
    return ray


class Connection:
    """This process as a driver of a cluster. ``close`` leaves it, unless somebody else had joined before."""

    def __init__(self, address: str, *, ours: bool):
        self.address = address  # of the cluster: host:port
        self._ours = ours

    def close(self) -> None:
        """May be called again. What this driver started on the cluster ends with it."""
        if self._ours:
            self._ours = False
            with _signals_kept():
                load().shutdown()


def connect(address: str) -> Connection:
    """Joins the cluster at ``address``: host:port, or "auto" for the one that this machine is part of.

    ConfigError, in one line and within seconds, if there is none, it is not this machine's, or its Ray is not ours.
    """
    ray = load()
    if ray.is_initialized():
        joined = ray.get_runtime_context().gcs_address
        if address not in ("auto", joined):
            raise ConfigError(f"cloud.ray_address = {address}: this process is part of {joined} already")
        return Connection(joined, ours=False)
    found = find(address)
    why = _not_a_cluster(found)
    if why:
        raise ConfigError(f"cloud.ray_address = {address}: {why}")
    with _signals_kept():
        try:
            job = ray.job_config.JobConfig()
            job._py_driver_sys_path = _Paths()
            ray.init(address=found, log_to_driver=False, logging_level=logging.ERROR, job_config=job)
        except Exception as error:  # the edge of a foreign library, which raises what it likes
            ray.shutdown()
            raise ConfigError(f"cloud.ray_address = {address}: {_hint(error)}") from error
    # No setting keeps Ray from printing the last words of other machines' daemons on stdout.
    worker = sys.modules.get("ray._private.worker")
    if hasattr(worker, "print_worker_logs"):
        worker.print_worker_logs = lambda *_: None  # type: ignore[union-attr]
    return Connection(found, ours=True)


class _Paths(list[str]):
    """Where Ray's workers import from, besides their own path. Ray would add the working folder."""

    def extend(self, paths: Iterable[str]) -> None:
        super().extend(path for path in paths if path in start.paths())


def find(address: str) -> str:
    """host:port of the cluster meant by ``address``. ConfigError if it says none, or there is none."""
    if address.startswith("ray://"):
        raise ConfigError(f"cloud.ray_address = {address}: must be host:port; run siafu on a machine of the cluster")
    if address != "auto":
        host, _, port = address.rpartition(":")
        if host and port.isdecimal():
            return address
        raise ConfigError(f"cloud.ray_address = {address!r}: must be auto or host:port")
    if found := os.environ.get("RAY_ADDRESS"):
        return find(found) if found != "auto" else f"127.0.0.1:{PORT}"
    load()
    services = importlib.import_module("ray._private.services")
    try:
        return str(services.canonicalize_bootstrap_address_or_die("auto"))
    except (ConnectionError, ValueError) as error:
        raise ConfigError(
            "cloud.ray_address = auto: this machine is in no Ray cluster; ray start --head "
            f"makes one ({text_of(error)})"
        ) from error


def text_of(error: BaseException) -> str:
    """What an error of Ray's says, in one line: it likes to fill a page."""
    text = str(getattr(error, "cause", None) or error)  # a task's error is in that of the task
    for mark in ("The actor is dead because ", "The actor died because "):
        if mark in text:
            text = text.partition(mark)[2]
            break
    if "creation task" in text:
        text = text.strip().splitlines()[-1]  # of a traceback
    line = " ".join(text.partition(" Owner Id")[0].split())
    return line if len(line) <= _MAX_TEXT else f"{line[: _MAX_TEXT - 3]}..."


def _not_a_cluster(address: str) -> str:
    """Why there is no cluster at ``host:port``; empty if something there speaks gRPC."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), PROBE_S) as link:
            link.settimeout(PROBE_S)
            link.sendall(_HTTP2_HELLO)
            head = link.recv(9)
    except OSError as error:
        return f"no Ray cluster answers there: {error.strerror or error}"
    spoken = len(head) == 9 and head[3] == _HTTP2_SETTINGS
    # With TLS it hangs up on us, as it should: then Ray has to find out.
    return "" if spoken or os.environ.get("RAY_USE_TLS") == "1" else "what answers there is no Ray cluster"


def _hint(error: Exception) -> str:
    text = text_of(error)
    if "Version mismatch" in text:
        return f"its machines run another Ray or Python than this one: {text}"
    return f"cannot join: {text}; siafu must run on a machine of the cluster"


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray takes over how a polite kill ends the process; we give it back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
