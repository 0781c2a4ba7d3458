"""Connects to a Ray cluster: finds it, joins it as a driver, and keeps Ray's output off the user's screen.

The host of servers and the launcher of Lambdas on Ray use this module. Ray itself would look for a missing cluster for
two minutes, print pages, end the process by ``sys.exit`` on SIGTERM, and write the last messages of other machines'
daemons to stdout, where a run's result belongs.
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

PORT = 6379  # the default port of `ray start --head`
PROBE_S = 5.0
_MAX_TEXT = 300
#: Settings of our drivers, unless the user has set them.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # spares a warning
    # The wait of a call to a dead actor for the reason of its death. Within 1 s, Ray's default, other members report
    # its silence, and the run would end with their message instead.
    "RAY_timeout_ms_task_wait_for_death_info": "100",
}
#: The start of HTTP/2, and so of gRPC: the client's preface and empty settings. A server's first frame is of settings.
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_HTTP2_SETTINGS = 4


def load() -> Any:
    """Imports the package ray. Raises: ConfigError if it is not installed."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ConfigError(f"a Ray cluster needs the package ray: {extras.install('ray')} ({error})") from error
    return ray


class Connection:
    """This process's connection to a cluster, as a driver. ``close`` leaves the cluster, unless other code had joined
    it before."""

    def __init__(self, address: str, *, ours: bool):
        self.address = address  # of the cluster: host:port
        self._ours = ours

    def close(self) -> None:
        """Leaves the cluster; all that this driver started there ends. May be called again."""
        if self._ours:
            self._ours = False
            with _signals_kept():
                load().shutdown()


def connect(address: str) -> Connection:
    """Joins the cluster at ``address``: host:port, or "auto" for the cluster that this machine is part of.

    Raises: ConfigError, in one line and within seconds, if there is no cluster, this machine is not part of it, or its
    version of Ray differs.
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
        except Exception as error:  # the edge of a foreign library, which may raise anything
            ray.shutdown()
            raise ConfigError(f"cloud.ray_address = {address}: {_hint(error)}") from error
    # No setting keeps Ray from printing the last words of other machines' daemons on stdout.
    worker = sys.modules.get("ray._private.worker")
    if hasattr(worker, "print_worker_logs"):
        worker.print_worker_logs = lambda *_: None  # type: ignore[union-attr]
    return Connection(found, ours=True)


class _Paths(list[str]):
    """The folders that Ray adds to its workers' import path: only those of our path, without the working folder."""

    def extend(self, paths: Iterable[str]) -> None:
        super().extend(path for path in paths if path in start.paths())


def find(address: str) -> str:
    """Returns host:port of the cluster meant by ``address``. Raises: ConfigError if the address is not valid, or this
    machine is in no cluster."""
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
    """Returns the reason in an error of Ray's as one line: its own text may fill a page."""
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
    """Returns the reason why there is no cluster at ``host:port``; empty if a gRPC server answers there."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), PROBE_S) as link:
            link.settimeout(PROBE_S)
            link.sendall(_HTTP2_HELLO)
            head = link.recv(9)
    except OSError as error:
        return f"no Ray cluster answers there: {error.strerror or error}"
    spoken = len(head) == 9 and head[3] == _HTTP2_SETTINGS
    # A server with TLS rightly hangs up on us: then Ray itself must find out.
    return "" if spoken or os.environ.get("RAY_USE_TLS") == "1" else "what answers there is no Ray cluster"


def _hint(error: Exception) -> str:
    text = text_of(error)
    if "Version mismatch" in text:
        return f"its machines run another Ray or Python than this one: {text}"
    return f"cannot join: {text}; siafu must run on a machine of the cluster"


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Restores our handlers of SIGTERM and SIGINT, which Ray replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
