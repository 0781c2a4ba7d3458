"""The I/O of the Lambda backend: invokes the function, and dismisses workers when the run ends.

``LambdaBackend`` decides; a graph server makes an invoker for it, and calls it on its own thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

from graph_server.backends import Action
from graph_server.lambdas import launchers
from graph_server.lambdas.backend import LambdaBackend
from lambda_funcs.assignment import Assignment
from lambda_funcs.invocation import Invocation
from siafu.address import worker as worker_address
from siafu.member import Joined
from siafu.models import ModelSpec
from siafu.sockets import public_key
from siafu.wire import Leave

#: The time that workers get to leave by themselves before their environments are stopped.
LEAVE_S = 2.0


class Invoker:
    def __init__(
        self,
        backend: LambdaBackend,
        joined: Joined,
        spec: ModelSpec,
        hand_over: Callable[[Callable[[], list[Action]]], None],
        stack: ExitStack,
    ):
        """``hand_over``: calls its argument on the server's thread, and carries out the actions that it returns."""
        self.backend, self.hub, self.roster = backend, joined.hub, joined.roster
        self.config, self.index, self.spec = joined.config, joined.index, spec
        ring = self.hub.ring
        self._workers_keys = (  # sent in invocations, and nowhere else
            None if ring is None else ring.for_workers(self.hub.me, self.config.servers.param_servers, public_key)
        )
        self._running = 0  # invocations

        def on_done(invocation: Invocation) -> None:
            hand_over(lambda: self._ended(invocation))

        folder = joined.run_dir / "logs" / f"lambda-{self.index}"
        self._launcher = launchers.build(self.config, self.index, backend.max_environments, on_done, folder)
        stack.callback(self._launcher.close)
        backend.limit(self._launcher.limit)

    def invoke(self, worker: str, credits: int) -> None:
        """Invokes the function once, for a worker of that name, which will ask for ``credits`` tasks."""
        lambdas = self.config.lambdas
        assignment = Assignment(
            worker=worker,
            graph_server=self._as_called_back(self.hub.endpoint),
            index=self.index,
            param_servers=tuple(self._as_called_back(endpoint) for endpoint in self.roster.param_servers),
            run_id=self.hub.run_id,
            config_digest=self.config.digest,
            spec=self.spec,
            idle_s=lambdas.idle_s,
            margin_s=lambdas.margin_s,
            prefetch=credits,
            core=1.0 if lambdas.place.billed else lambdas.core,
            keep_bytes=lambdas.keep_bytes,
            proxy=lambdas.proxy,
            wait_s=self.config.servers.silence_s,
            keys=self._workers_keys,
        )
        self._running += 1
        self._launcher.invoke(assignment.to_event(), worker)

    def leave(self, poll: Callable[[], None]) -> int:
        """Lets workers leave by themselves, so that their cost is known. Returns the number of invocations that still
        run at the service, which alone will know their cost. ``poll``: waits briefly for messages and events."""
        self.backend.stop()
        for name in self.backend.workers:
            self.hub.send(worker_address(name), Leave())
        deadline = time.monotonic() + LEAVE_S
        while self._running and time.monotonic() < deadline:
            poll()
        cut = self._running if self._launcher.hangs_up else 0
        self._launcher.close()
        return cut

    def _ended(self, invocation: Invocation) -> list[Action]:
        self._running -= 1
        return self.backend.ended(invocation, time.monotonic())

    def _as_called_back(self, endpoint: str) -> str:
        """Returns the endpoint as a function can reach it: in a container, this machine has another name."""
        host = self.config.lambdas.callback_host
        return f"tcp://{host}:{endpoint.rpartition(':')[2]}" if host else endpoint
