"""A run with keys: the same numbers, and nothing secret left where others could read it."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.processes import ENVIRONMENT, SERVERS, Training

DIGITS = ("digits", "--mode", "pipe", "--parts", "2", "--param-servers", "2", "--epochs", "4")
LAMBDAS = ("--backend", "lambda", "--lambdas", "2")


@pytest.mark.long
@pytest.mark.parametrize("backend", [LAMBDAS, ("--backend", "cpu")], ids=["lambda", "cpu"])
def test_weights_do_not_depend_on_keys(tmp_path: Path, backend: tuple[str, ...]) -> None:
    digests = set()
    for security in ("none", "curve"):
        with Training(tmp_path / security, *DIGITS, *backend, "--security", security) as training:
            assert training.wait(120) == 0, training.errors
            result = training.result
            digests.add(result["weights_digest"])
            assert result["restarts"] == []
            assert result["usage"]["messages_malformed"] == result["usage"]["connections_refused"] == 0
    assert len(digests) == 1


@pytest.mark.long
def test_keys_are_in_no_arguments_and_the_run_directory_is_its_owners(tmp_path: Path) -> None:
    with Training(tmp_path / "run", *DIGITS, *LAMBDAS, "--epochs", "100000", "--security", "curve") as training:
        training.until(lambda: training.epochs() >= 1, "an epoch")
        assert stat.S_IMODE(training.run_dir.stat().st_mode) == 0o700
        for role in (*SERVERS, ENVIRONMENT):
            assert training.pids(role)
            for pid in training.pids(role):
                told = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
                assert b"public" not in told
        files = [path for path in training.run_dir.rglob("*") if path.suffix in (".log", ".toml", ".json", ".jsonl")]
        assert files
        assert all(b'"public"' not in path.read_bytes() for path in files)


#: As a user who owns nothing: asks ports and Unix sockets (a line of them at a time) for an invocation, and knocks as
#: ZMTP does.
STRANGER = r"""
import json, os, socket, sys
"x".encode("idna")  # loaded while its file can be read
os.setgroups([]); os.setgid(65534); os.setuid(65534)
requests = nbytes = secrets = served = 0
greetings = (
    b"GET /2018-06-01/runtime/invocation/next HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\xff" + bytes(8) + b"\x7f\x03\0NULL" + bytes(48),
)
for line in sys.stdin:
    for door in line.split():
        for said in greetings:
            requests += 1
            data = b""
            try:
                with socket.socket(socket.AF_UNIX if door[0] == "@" else socket.AF_INET) as link:
                    link.settimeout(0.5)
                    link.connect("\0" + door[1:] if door[0] == "@" else ("127.0.0.1", int(door)))
                    link.settimeout(0.05)
                    link.sendall(said)
                    data = link.recv(1 << 16)
            except OSError:
                pass
            nbytes, secrets = nbytes + len(data), secrets + (b"secret" in data)
            served += data.startswith(b"HTTP")
print(json.dumps({"uid": os.getuid(), "requests": requests, "bytes": nbytes, "secrets": secrets, "served": served}))
"""


def listening(pids: list[int]) -> list[str]:
    """Ports of loopback on which one of these processes listens, and names of Unix sockets without a file ("@...")."""

    def of(inode: str) -> str:
        return f"socket:[{inode}]"

    sockets = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    sockets.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    ports = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    named = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    accepting = 1 << 16  # of a Unix socket's flags
    listen = [row[1] for row in ports if row[3] == "0A" and of(row[9]) in sockets]
    return sorted(
        {str(int(address.partition(":")[2], 16)) for address in listen if address.startswith("0100007F")}
        | {
            row[7]
            for row in named
            if row[7:] and int(row[3], 16) & accepting and of(row[6]) in sockets and row[7][0] == "@"
        }
    )


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root, to become another user")
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc/net/tcp, to know the ports of the run")
def test_another_user_of_the_machine_reads_no_secret_and_changes_no_weight(tmp_path: Path) -> None:
    arguments = (*DIGITS, *LAMBDAS, "--epochs", "20", "--security", "curve")
    with Training(tmp_path / "quiet", *arguments) as training:
        assert training.wait(60) == 0, training.errors
        quiet = training.result
    stranger = subprocess.Popen(
        [sys.executable, "-c", STRANGER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    polled = set[str]()
    with stranger, Training(tmp_path / "beside", *arguments) as training:
        assert stranger.stdin is not None
        while training.process.poll() is None:
            ports = listening(training.pids())
            polled.update(ports)
            with contextlib.suppress(BrokenPipeError):
                print(*ports, file=stranger.stdin, flush=True)
            time.sleep(0.05)
        assert training.process.returncode == 0, training.errors
        beside = training.result
        told = json.loads(stranger.communicate(timeout=30)[0])
    assert told["uid"] == 65534
    assert sum(door.startswith("@siafu-") for door in polled) >= 5  # the coordinator's, and those of four servers
    assert len(polled) >= 7  # and of two Lambdas at least
    assert told["requests"] >= 2 * len(polled)
    assert (told["secrets"], told["served"]) == (0, 0), told
    assert beside["weights_digest"] == quiet["weights_digest"]
    assert beside["restarts"] == []
    logs = "".join(path.read_text(errors="replace") for path in (tmp_path / "beside" / "logs").rglob("*.log"))
    assert "refused a connection to its Runtime API" in logs
