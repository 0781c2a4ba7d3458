"""Lambda functions that do to us what Lambda may do: for ``lambda.handler``."""

from __future__ import annotations

import random
import threading
from typing import Any

from lambda_funcs.worker import Assignment, Worker
from siafu.address import Address
from siafu.wire import Gradient, Message, TaskResult

Event = dict[str, Any]

#: Share of the answers that are sent twice.
TWICE = 0.05


def answers_twice(event: Event, context: Any) -> Event:
    """Sends 5% of its results and of its gradients twice."""
    rng = random.Random(event["worker"])
    with Worker(Assignment.from_event(event), lambda: context.get_remaining_time_in_millis() / 1000) as worker:
        send = worker._hub.send

        def maybe_twice(to: Address, message: Message) -> bool:
            if isinstance(message, TaskResult | Gradient) and rng.random() < TWICE:
                send(to, message)
            return send(to, message)

        worker._hub.send = maybe_twice  # type: ignore[method-assign]
        return worker.run()


def first_hangs(event: Event, context: Any) -> Event:
    """The first worker of each graph server keeps its first result to itself, for ever."""
    with Worker(Assignment.from_event(event), lambda: context.get_remaining_time_in_millis() / 1000) as worker:
        send = worker._hub.send

        def never(to: Address, message: Message) -> bool:
            if isinstance(message, TaskResult) and event["worker"].endswith("-0"):
                threading.Event().wait()
            return send(to, message)

        worker._hub.send = never  # type: ignore[method-assign]
        return worker.run()


def does_nothing(event: Event, context: Any) -> Event:
    return {}
