"""Who does not belong, at the door of a run: refused, logged, and the run unharmed. A flood of connections besides.

    python -m benchmarks.acceptance.intruder [--epochs N] [--flood N] [--only TEXT] [--elsewhere] [--json FILE]

Trains the digits with keys on this machine, alone and then beside each intruder, which knows more than one would: the
run's id, where everybody listens and everybody's public keys. It claims to be the coordinator and servers, tells
members to stop, reports failures and sends gradients, as fast as it can. One is a Lambda for all that its key and its
name say, and lies. Exit code 1 unless every run has the weights of the undisturbed one, was not started again, and has
counted refusals or dropped messages. An intruder takes its share of this machine's processors; with ``--elsewhere``
only what nobody else wants (Linux: SCHED_IDLE), and what slows the run then is what refusing costs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import zmq

from benchmarks.acceptance import table
from run_coordinator import api, launch
from siafu import start, wire
from siafu.address import COORDINATOR, Address, graph_server, param_server, worker
from siafu.config import Config
from siafu.keys import SECRET_BYTES, Keys, workers_secret
from siafu.member import allow_open_files
from siafu.sockets import Hub, public_key
from siafu.wire import (
    Bye,
    EpochDone,
    Failed,
    FetchWeights,
    Gradient,
    Hello,
    Pull,
    RowsMissing,
    Stop,
    TaskFailed,
    TaskResult,
)

PORTS = (27100, 27119)
SETTINGS: dict[str, Any] = {
    "data.source": "digits",
    "data.parts": 2,
    "servers.param_servers": 2,
    "lambda.count": 2,
    "train.mode": "pipe",
    "servers.security": "curve",
    "servers.ports": f"{PORTS[0]}-{PORTS[1]}",
}
KINDS = {
    "none": "nobody",
    "keyless": "without keys",
    "stranger": "with keys of its own",
    "other run": "with keys of another run",
    "worker": "with a Lambda's key, as everybody else",
    "liar": "with a Lambda's key and name, with lies",
    "flood": "connections that say nothing",
}
CLAIMS = (COORDINATOR, graph_server(0), graph_server(1), param_server(0), worker("w1-0"))
LIAR = worker("w0-99")  # no such one was invoked, but only its graph server knows
PAUSE_S = 0.2  # between two rounds of an intruder: it shall not win by taking the processor


@dataclass
class Outcome:
    kind: str
    digest: str
    restarts: int
    train_s: float
    refused: int  # connections, counted by graph servers
    malformed: int  # messages, counted by graph servers
    log_lines: int  # of all members, about either
    attempts: int  # connections that the intruder has opened


def main(argv: Sequence[str] | None = None) -> int:
    parser = table.parser(
        __doc__,
        epochs=(200, "long enough for an intruder to start [200]"),
        flood=(10_000, "connections [10000]"),
        only=("", "intruders whose name contains it"),
        elsewhere=(False, "an intruder computes when nobody else does"),
    )
    parser.add_argument("--intrude", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.intrude:
        return _intrude(json.load(sys.stdin))
    kinds = [kind for kind in KINDS if kind == "none" or args.only in kind]
    outcomes = [_beside(kind, args.epochs, args.flood, elsewhere=args.elsewhere) for kind in kinds]
    table.record(args.json, [asdict(outcome) for outcome in outcomes])
    table.show([_shown(outcome, outcomes[0]) for outcome in outcomes])
    return 0 if all(_sound(outcome, outcomes[0]) for outcome in outcomes) else 1


def _sound(outcome: Outcome, alone: Outcome) -> bool:
    unharmed = outcome.digest == alone.digest and outcome.restarts == 0
    seen = outcome.refused + outcome.malformed > 0 and outcome.log_lines > 0
    # silence is heard after 10 s, if a run lasts as long
    return unharmed and (seen or outcome.kind in ("none", "flood"))


def _shown(o: Outcome, alone: Outcome) -> dict[str, str]:
    return {
        "": "ok" if _sound(o, alone) else "BAD",
        "intruder": KINDS[o.kind],
        "weights": o.digest,
        "connections": f"{o.attempts:,}",
        "refused": f"{o.refused:,}",
        "dropped": f"{o.malformed:,}",
        "log lines": str(o.log_lines),
        "training": f"{o.train_s:.1f} s, {100 * (o.train_s / alone.train_s - 1):+.0f}%",
    }


# --- the run ----------------------------------------------------------------------------------------------------------


class _Known:
    """What the intruder gets to know of a run, as the run begins."""

    def __init__(self) -> None:
        self.keys: list[Keys] = []
        self.hubs: list[Hub] = []

    def watch(self, stack: ExitStack) -> None:
        """From now on, for the runs of this process."""

        def keys(*arguments: Any) -> Keys:
            self.keys.append(Keys(*arguments))
            return self.keys[-1]

        def hub(*arguments: Any, **named: Any) -> Hub:
            self.hubs.append(Hub(*arguments, **named))
            return self.hubs[-1]

        stack.enter_context(patch.object(launch, "Keys", keys))
        stack.enter_context(patch.object(launch, "Hub", hub))

    def told(self, kind: str, flood: int) -> dict[str, Any]:
        """As the intruder reads it: the secret that it has, if any."""
        keys = self.keys[-1]
        secret = {
            "stranger": secrets.token_bytes(SECRET_BYTES),
            "other run": Keys(secrets.token_bytes(SECRET_BYTES), 2, 2, public_key).ring(graph_server(1)).secret,
            **dict.fromkeys(("worker", "liar"), workers_secret(keys.ring(graph_server(0)).secret, graph_server(0))),
        }.get(kind, b"")
        public = sorted(set(keys.public.values()))
        return {
            "kind": kind,
            "run_id": self.hubs[-1].run_id.hex(),
            "public": public,
            "secret": secret.hex(),
            "flood": flood,
        }


def _beside(kind: str, epochs: int, flood: int, *, elsewhere: bool = False) -> Outcome:
    known, intruders = _Known(), list[subprocess.Popen[str]]()

    def on_status(status: Any) -> None:
        if status.phase == "training" and kind != "none" and not intruders:
            command = start.command("benchmarks.acceptance.intruder", "--intrude")
            intruder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            if elsewhere:
                os.sched_setscheduler(intruder.pid, os.SCHED_IDLE, os.sched_param(0))
            assert intruder.stdin is not None
            with intruder.stdin as stdin:
                json.dump(known.told(kind, flood), stdin)
            intruder.stdin = None  # or its end would be flushed again
            intruders.append(intruder)

    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        known.watch(stack)
        config = Config().replace({**SETTINGS, "train.epochs": epochs, "run.dir": f"{folder}/run"})
        run = api.train(config=config, on_status=on_status)
        attempts = sum(map(_end, intruders))
        logs = "".join(path.read_text(errors="replace") for path in (run.dir / "logs").glob("*.log"))
    result = run.result
    usage = result["usage"]
    return Outcome(
        kind,
        result["weights_digest"],
        len(result["restarts"]),
        result["train_seconds"],
        int(usage["connections_refused"]),
        int(usage["messages_malformed"]),
        logs.count("refused a connection") + logs.count("dropped a message"),
        attempts,
    )


def _end(intruder: subprocess.Popen[str]) -> int:
    """How many connections it has opened."""
    intruder.terminate()
    said, _ = intruder.communicate(timeout=20)
    lines = said.split()
    return int(lines[-1]) if lines else 0


# --- the intruder -----------------------------------------------------------------------------------------------------


def _intrude(told: dict[str, Any]) -> int:
    """Until it is ended; prints how many connections it has opened so far, now and then."""
    allow_open_files()
    ports = [port for port in range(PORTS[0], PORTS[1] + 1) if _listens(port)]
    for count in _flood(ports, told["flood"]) if told["kind"] == "flood" else _knock(ports, told):
        print(count, flush=True)
    return 0


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _knock(ports: Sequence[int], told: dict[str, Any]) -> Iterator[int]:
    """Every claim at every port, by every public key: it does not know whose port is whose."""
    run_id, secret, opened = bytes.fromhex(told["run_id"]), bytes.fromhex(told["secret"]), 0
    claims, lies = ((LIAR,), _lies_of_a_worker()) if told["kind"] == "liar" else (CLAIMS, _lies())
    while True:
        with zmq.Context() as context:
            links = []
            for port in ports:
                for claim in claims:
                    for server_key in told["public"] if secret else ("",):
                        links.append(_link(context, port, claim, secret, server_key))
                        for message in lies:
                            with suppress(zmq.Again):
                                links[-1].send_multipart(wire.encode(message, run_id, number=1), zmq.NOBLOCK)
            opened += len(links)
            time.sleep(PAUSE_S)
            for link in links:
                link.close(linger=0)
        yield opened


def _lies() -> list[Any]:
    gradient: wire.Tensors = {"0.weight": np.full((64, 16), 1e30, np.float32)}
    return [
        Hello("graph_server", 1, "0" * 16, "tcp://127.0.0.1:1"),
        Stop("by an intruder"),
        Gradient(0, 0, 0, 0, gradient),
        EpochDone(0, 1, 16),
        Failed("graph_server", 1, "PeerLost", "a lie", ""),
    ]


def _lies_of_a_worker() -> list[Any]:
    """That its key and its name let it say: of another one's work, with numbers that cannot be, to a graph
    server's intervals that is not its own. Not among them is what nobody can tell from the truth: wrong
    results of tasks that it was given."""
    task = ("train", 0, 0, 4)
    rows: wire.Tensors = {"dZ1": np.zeros((4, 4), np.float32)}
    gradient: wire.Tensors = {"0.weight": np.full((64, 16), 1e30, np.float32)}
    theirs = SETTINGS["data.parts"] * Config().train.intervals - 1
    return [
        Hello("worker", 0, "0" * 16, ""),
        Pull("w0-0", 1),
        Pull(LIAR.name, -1),
        Bye("w0-0"),
        TaskResult(*task, 0, "w0-0", 0.0, 0.0, rows),
        TaskResult(*task, 0, LIAR.name, 0.0, math.nan, rows),
        TaskResult(*task, 0, LIAR.name, -1.0, 0.0, rows),
        TaskFailed(*task, 0, "w0-0", "a lie"),
        RowsMissing(*task, 0, "w0-0", 0),
        *(Gradient(epoch, theirs, 0, 0, gradient) for epoch in range(4)),
        FetchWeights("train", 3, theirs, (0,), 0, ()),
    ]


def _link(context: Any, port: int, claim: Address, secret: bytes, server_key: str) -> Any:
    link = context.socket(zmq.DEALER)
    link.setsockopt(zmq.IDENTITY, claim.identity)
    if secret:
        link.setsockopt(zmq.CURVE_SECRETKEY, secret)
        link.setsockopt(zmq.CURVE_PUBLICKEY, public_key(secret).encode())
        link.setsockopt(zmq.CURVE_SERVERKEY, server_key.encode())
    link.connect(f"tcp://127.0.0.1:{port}")
    return link


def _flood(ports: Sequence[int], count: int) -> Iterator[int]:
    """So many connections at once, and again those that were closed."""
    held: list[socket.socket] = []
    opened = 0
    while True:
        held = [one for one in held if not _closed(one)]
        for _ in range(min(500, count - len(held))):
            one = socket.socket()
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.connect(("127.0.0.1", ports[opened % len(ports)]))
            held.append(one)
            opened += 1
        yield opened
        time.sleep(0.05 if len(held) < count else PAUSE_S)


def _closed(one: socket.socket) -> bool:
    try:
        while one.recv(256):  # a greeting
            pass
        ended = True
    except BlockingIOError:
        return False
    except OSError:
        ended = True
    if ended:
        one.close()
    return ended


if __name__ == "__main__":
    sys.exit(main())
