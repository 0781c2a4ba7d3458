"""A tensor worker: connects to its graph server, pulls tasks, computes them, and sends the results.

While it computes one task, the rows, weights and acknowledgements of others are on their way (``prefetch``). Sockets
are opened inside the invocation, because a frozen environment loses them silently.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from lambda_funcs.assignment import Assignment
from lambda_funcs.cpu_share import CpuShare
from lambda_funcs.desk import Desk
from siafu import processor
from siafu.address import graph_server
from siafu.address import worker as worker_address
from siafu.errors import GnnError, PeerLost
from siafu.kernels.library import isa
from siafu.sockets import Hub
from siafu.tensor_task import TensorWorker
from siafu.wire import Bye, Hello, Leave, Message, Pull, Refused


class Worker:
    """The worker of one invocation. Use in a ``with`` block; ``run`` returns when there is nothing more to do."""

    def __init__(self, assignment: Assignment, remaining_s: Callable[[], float]):
        self.assignment, self._remaining_s = assignment, remaining_s
        self._home = graph_server(assignment.index)
        self._share = CpuShare(assignment.core)
        self._hub = Hub(worker_address(assignment.worker), assignment.run_id, ring=assignment.keys)
        self._desk = Desk(
            self._home, TensorWorker(assignment.spec, assignment.worker, self._share.clock, assignment.keep_bytes)
        )

    def run(self) -> dict[str, Any]:
        """Pulls and computes tasks until it is idle, told to leave, or near its deadline. Returns its name, the number
        of tasks done, and the reason why it stopped. Raises: PeerLost if a server does not answer."""
        self._hub.dial(self._home, self.assignment.graph_server, self.assignment.proxy)
        self._hub.send(self._home, Hello("worker", self.assignment.index, self.assignment.config_digest, ""))
        self._hub.send(self._home, Pull(self.assignment.worker, self.assignment.prefetch, processor.kind(isa())))
        reason = self._work()
        self._hub.send(self._home, Bye(self.assignment.worker))
        return {"worker": self.assignment.worker, "tasks": self._desk.num_done, "reason": reason}

    def _work(self) -> str:
        heard = time.monotonic()
        while True:
            left_s = self._remaining_s() - self.assignment.margin_s
            if left_s <= 0:
                return "deadline"
            patience = self.assignment.idle_s if self._desk.idle else self.assignment.wait_s
            messages = self._hub.poll(min(heard + patience - time.monotonic(), left_s))
            for _, message in messages:
                if isinstance(message, Leave):
                    return "told to leave"
                self._take(message)
            now = time.monotonic()
            if messages:
                heard = now
            elif now - heard >= patience:
                if self._desk.idle:
                    return "idle"
                raise PeerLost(f"no answer within {patience:g} s: {self._desk.waits_for()}")

    def _take(self, message: Message) -> None:
        if isinstance(message, Refused):
            raise GnnError(f"refused: {message.reason}")
        with self._share:
            sends = self._desk.handle(message)
        for send in sends:
            if send.to.role == "param_server" and not self._hub.knows(send.to):
                self._hub.dial(send.to, self.assignment.param_servers[send.to.index], self.assignment.proxy)
            self._hub.send(send.to, send.message)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._hub.flush_and_close()
