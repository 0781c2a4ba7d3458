"""What only the local pool promises; what it shares with all launchers is in tests/contracts/test_launchers.py."""

import contextlib
import errno
import gc
import json
import os
import queue
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graph_server.lambdas.invoke_errors import Next, judge
from lambda_funcs import process
from lambda_funcs.invocation import NO_ROOM
from lambda_funcs.local_pool import Invocation, LocalPool
from siafu.config import Config
from siafu.errors import ConfigError, WorkerError

HANDLERS = "tests.lambda_funcs.handlers"
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the leash and pidfds are Linux's")

Outcomes = queue.SimpleQueue[Invocation]

#: What does not come within this never does, even where sixteen interpreters start on one slow core.
LONG_S = 120.0


def pool(handler: str, outcomes: Outcomes, log_dir: Path | None = None) -> LocalPool:
    return LocalPool(
        handler=f"{HANDLERS}.{handler}",
        max_environments=16,
        on_done=outcomes.put,
        log_dir=log_dir,
        init_timeout_s=LONG_S,
    )


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Cycles that earlier tests have left hold descriptors: they keep them meanwhile."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def limit_with_free(count: int) -> int:
    """The limit below which so many numbers are free: it is on a descriptor's number, and a process
    that has run for long has holes."""
    taken, limit = {int(name) for name in open_descriptors()}, 0
    while count:
        count -= limit not in taken
        limit += 1
    return limit


def test_each_environment_writes_its_own_log(tmp_path: Path) -> None:
    outcomes: Outcomes = queue.SimpleQueue()
    with pool("talk", outcomes, tmp_path / "logs") as workers:
        workers.invoke({"nbytes": 10_000}, "r1")
        outcomes.get(timeout=LONG_S)
        workers.invoke({"nbytes": 1}, "r2")
        outcomes.get(timeout=LONG_S)
    (path,) = (tmp_path / "logs").iterdir()
    text = path.read_text()
    assert path.name == "env-0001.log"
    assert "x" * 10_000 in text
    assert text.index("START RequestId: r1") < text.index("REPORT RequestId: r1") < text.index("START RequestId: r2")


def test_sixteen_environments_are_up_at_a_time(tmp_path: Path) -> None:
    outcomes: Outcomes = queue.SimpleQueue()
    fifos = [tmp_path / f"fifo-{i}" for i in range(16)]
    with pool("hold", outcomes) as workers:
        for i, fifo in enumerate(fifos):
            os.mkfifo(fifo)
            workers.invoke({"until": str(fifo)}, f"r{i}")
        with contextlib.ExitStack() as holding:
            for fifo in fifos:
                holding.enter_context(fifo.open("w"))  # returns once its environment reads
            assert outcomes.empty()
        assert all(outcomes.get(timeout=LONG_S).error is None for _ in fifos)


@linux_only
def test_close_leaves_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    gc.collect()  # what earlier tests have left must not go meanwhile
    threads, descriptors = set(threading.enumerate()), open_descriptors()
    outcomes: Outcomes = queue.SimpleQueue()
    with pool("crash", outcomes, tmp_path) as workers:
        for i in range(4):
            workers.invoke({}, f"r{i}")
        for _ in range(4):
            outcomes.get(timeout=LONG_S)
        workers.invoke({}, "last")
    assert set(threading.enumerate()) <= threads
    assert open_descriptors() <= descriptors


def test_on_done_may_invoke_again_and_finds_the_environment_free() -> None:
    finished = threading.Event()
    outcomes: list[Invocation] = []

    def relaunch(outcome: Invocation) -> None:
        outcomes.append(outcome)
        if len(outcomes) < 20:
            workers.invoke({}, f"r{len(outcomes)}")
        else:
            finished.set()

    with LocalPool(handler=f"{HANDLERS}.echo", max_environments=1, on_done=relaunch) as workers:
        workers.invoke({}, "r0")
        assert finished.wait(LONG_S)
    assert [outcome.init_ms > 0 for outcome in outcomes] == [True] + [False] * 19


def test_exception_in_on_done_is_logged_and_the_pool_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    outcomes: Outcomes = queue.SimpleQueue()

    def fail_once(outcome: Invocation) -> None:
        outcomes.put(outcome)
        if outcome.request_id == "r0":
            raise RuntimeError("a bug of the caller")

    with LocalPool(handler=f"{HANDLERS}.echo", max_environments=1, on_done=fail_once) as workers:
        for name in ("r0", "r1"):
            workers.invoke({}, name)
            assert outcomes.get(timeout=LONG_S).request_id == name
    assert "on_done failed for invocation r0" in caplog.text


@linux_only
def test_environment_killed_while_idle_is_replaced() -> None:
    outcomes: Outcomes = queue.SimpleQueue()
    with pool("hold", outcomes) as workers:
        workers.invoke({"until": os.devnull}, "r1")
        pid = int(outcomes.get(timeout=LONG_S).payload)
        pidfd = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        assert ends(pidfd, LONG_S)
        os.close(pidfd)
        workers.invoke({"until": os.devnull}, "r2")
        second = outcomes.get(timeout=LONG_S)
    assert second.error is None  # the pool looks at exits before its mail
    assert second.init_ms > 0.0


@linux_only
def test_environment_killed_while_the_pool_is_at_work_is_replaced() -> None:
    """Its thread once took its mail before it had looked who had ended meanwhile."""
    outcomes: Outcomes = queue.SimpleQueue()

    def kill_and_go_on(outcome: Invocation) -> None:
        if outcome.request_id == "r1":
            pidfd = os.pidfd_open(pid := int(outcome.payload))
            os.kill(pid, signal.SIGKILL)
            assert ends(pidfd, LONG_S)
            os.close(pidfd)
            workers.invoke({"until": os.devnull}, "r2")
        outcomes.put(outcome)

    with LocalPool(
        handler=f"{HANDLERS}.hold", max_environments=1, on_done=kill_and_go_on, init_timeout_s=LONG_S
    ) as workers:
        workers.invoke({"until": os.devnull}, "r1")
        first, second = outcomes.get(timeout=LONG_S), outcomes.get(timeout=LONG_S)
    assert (first.request_id, first.error) == ("r1", None)
    assert (second.request_id, second.error) == ("r2", None)
    assert second.init_ms > 0.0


@linux_only
def test_environment_that_says_nonsense_while_idle_is_replaced(tmp_path: Path) -> None:
    outcomes: Outcomes = queue.SimpleQueue()
    until, said = tmp_path / "until", tmp_path / "said"
    for fifo in (until, said):
        os.mkfifo(fifo)
    event = {"until": str(until), "said": str(said)}
    with pool("rave", outcomes) as workers:
        workers.invoke(event, "r1")
        assert outcomes.get(timeout=LONG_S).error is None
        while workers._environments[0]._parked is None:  # else its runtime would only connect again
            threading.Event().wait(0.001)
        until.write_text("")
        assert said.read_text() == ""  # until its processes have ended
        workers.invoke(event, "r2")
        second = outcomes.get(timeout=LONG_S)
    assert second.error is None
    assert second.init_ms > 0.0


@linux_only
@pytest.mark.parametrize("asks", ["invocation/next", "init/error"])
def test_only_the_environment_itself_is_served_at_its_port(asks: str, caplog: pytest.LogCaptureFixture) -> None:
    outcomes: Outcomes = queue.SimpleQueue()
    method = "GET" if asks == "invocation/next" else "POST"
    request = f"{method} /2018-06-01/runtime/{asks} HTTP/1.1\r\nContent-Length: 0\r\n\r\n".encode()
    with pool("echo", outcomes) as workers:
        workers.invoke({"keys": "secret"}, "r1")
        while not (environments := workers._environments):
            threading.Event().wait(0.001)
        with socket.create_connection(environments[0]._listener.getsockname()) as stranger:  # before the runtime asks
            stranger.settimeout(LONG_S)
            with contextlib.suppress(ConnectionError):
                stranger.sendall(request)
                assert stranger.recv(65536) == b""
        outcome = outcomes.get(timeout=LONG_S)
    assert outcome.error is None
    assert json.loads(outcome.payload)["event"] == {"keys": "secret"}
    assert "refused a connection to its Runtime API" in caplog.text


@linux_only
def test_the_kernels_table_names_the_same_socket_as_its_sock_diag(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            expected = os.fstat(client.fileno()).st_ino
            assert process._other_end(accepted) == expected
            with monkeypatch.context() as refused:  # the kernel answers with an error
                refused.setattr(process, "_SOCK_DIAG_BY_FAMILY", 99)
                assert process._other_end(accepted) == expected
            monkeypatch.setattr(process, "_NETLINK_SOCK_DIAG", 99)  # as in a container without it
            assert process._other_end(accepted) == expected


@linux_only
def test_a_process_that_has_ended_uses_no_memory() -> None:
    with subprocess.Popen([sys.executable, "-c", "input('?')"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.read(1) == b"?"  # it runs: just after exec it is still small
        of: Any = SimpleNamespace(pid=child.pid)
        assert process.Process.peak_kib(of) > 1024
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # not reaped: its /proc entry is there, without VmHWM
        assert process.Process.peak_kib(of) == 0


def test_keys_are_given_to_no_environment_where_strangers_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lambda_funcs.process.CONNECTIONS", Path("/nowhere/net/tcp"))
    config = Config().replace({"servers.security": "curve"})
    with pytest.raises(ConfigError, match=r"servers.security = curve: without .* use --backend cpu, or Linux"):
        LocalPool.make(config, 0, 1, print, Path("/nowhere"))


@linux_only
def test_environments_and_their_children_die_with_a_killed_server(tmp_path: Path) -> None:
    fifo = tmp_path / "started"
    os.mkfifo(fifo)
    script = (
        "import sys, threading\n"
        "from lambda_funcs.local_pool import LocalPool\n"
        "pool = LocalPool(handler='tests.lambda_funcs.handlers.hang', max_environments=1, on_done=print)\n"
        "pool.invoke({'started': sys.argv[1], 'grandchild': True, 'ignore_term': True}, 'r')\n"
        "threading.Event().wait()\n"
    )
    server = subprocess.Popen([sys.executable, "-c", script, str(fifo)])
    pids = [int(pid) for pid in fifo.read_text().split()]
    pidfds = [os.pidfd_open(pid) for pid in pids]
    server.kill()
    server.wait()
    ended = [ends(pidfd, LONG_S) for pidfd in pidfds]
    for pidfd in pidfds:
        os.close(pidfd)
    assert ended == [True, True]


@pytest.mark.parametrize(
    ("code", "error"),
    [(errno.EAGAIN, NO_ROOM), (errno.ENOMEM, NO_ROOM), (errno.EMFILE, NO_ROOM), (errno.ENOENT, "Sandbox.Failure")],
)
def test_machine_without_room_for_a_process_refuses_the_invocation(
    monkeypatch: pytest.MonkeyPatch, code: int, error: str
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise OSError(code, os.strerror(code))

    outcomes: Outcomes = queue.SimpleQueue()
    with pool("echo", outcomes) as workers, monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", refuse)
        workers.invoke({}, "r")
        outcome = outcomes.get(timeout=LONG_S)
    assert (outcome.error, outcome.billed_ms) == (error, 0)
    assert outcome.reason == (os.strerror(code) if error == NO_ROOM else "")
    assert os.strerror(code).encode() in outcome.payload
    assert (judge(outcome.error, outcome.reason).next is Next.SHRINK) == (error == NO_ROOM)


@linux_only
def test_machine_out_of_descriptors_loses_no_invocation(tmp_path: Path) -> None:
    first, others = tmp_path / "first", tmp_path / "others"
    os.mkfifo(first)
    os.mkfifo(others)
    outcomes: Outcomes = queue.SimpleQueue()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()
    with pool("hold", outcomes) as workers, no_collection():
        workers.invoke({"until": str(first)}, "r0")
        with first.open("w"):  # returns once r0 reads: one environment is up, whatever becomes of the others
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit_with_free(24), hard))
            try:
                for i in range(1, 16):
                    workers.invoke({"until": str(others)}, f"r{i}")
                # An environment holds its listener, its output and its pidfd, so 8 fit; none is free for the next one.
                ended = [outcomes.get(timeout=LONG_S) for _ in range(7)]
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert {outcome.error for outcome in ended} == {NO_ROOM}
        while len(ended) < 16:
            with contextlib.suppress(OSError):  # ENXIO: of those that are left, none has begun to read
                os.close(os.open(others, os.O_WRONLY | os.O_NONBLOCK))
            with contextlib.suppress(queue.Empty):
                ended.append(outcomes.get(timeout=0.05))
        errors = {outcome.request_id: outcome.error for outcome in ended}
        assert errors.keys() == {f"r{i}" for i in range(16)}
        assert errors["r0"] is None
        assert set(errors.values()) == {None, NO_ROOM}
        workers.invoke({"until": os.devnull}, "last")
        assert outcomes.get(timeout=LONG_S).error is None


def test_failure_of_the_pool_itself_reports_what_is_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("a bug of ours")

    fifo = tmp_path / "started"
    os.mkfifo(fifo)
    outcomes: Outcomes = queue.SimpleQueue()
    with pool("hang", outcomes) as workers, monkeypatch.context() as patch:
        workers.invoke({"started": str(fifo)}, "in flight")
        fifo.read_text()
        patch.setattr(workers, "_place", fail)
        workers.invoke({}, "trigger")
        outcome = outcomes.get(timeout=LONG_S)
    assert (outcome.request_id, outcome.error) == ("in flight", "Sandbox.Failure")
    assert "a bug of ours" in caplog.text


def test_failed_invocation_frees_its_place() -> None:
    outcomes: Outcomes = queue.SimpleQueue()
    with LocalPool(handler=f"{HANDLERS}.crash", max_environments=1, on_done=outcomes.put) as workers:
        for i in range(3):
            workers.invoke({}, f"r{i}")
            assert outcomes.get(timeout=LONG_S).request_id == f"r{i}"


def test_close_says_that_on_done_does_not_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lambda_funcs.local_pool.CLOSE_S", 0.1)
    entered, leave = threading.Event(), threading.Event()

    def block(outcome: Invocation) -> None:
        entered.set()
        leave.wait(LONG_S)

    with LocalPool(handler=f"{HANDLERS}.echo", max_environments=1, on_done=block) as workers:
        workers.invoke({}, "r")
        assert entered.wait(LONG_S)
        with pytest.raises(WorkerError, match="on_done"):
            workers.close()
        leave.set()
        monkeypatch.undo()


def ends(pidfd: int, timeout_s: float) -> bool:
    """Whether the process has ended by then."""
    poll = select.poll()  # select knows descriptors below 1024 alone
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))
