"""Lambda functions that do to us what Lambda may do: for ``lambda.handler``."""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

from lambda_funcs.assignment import Assignment
from lambda_funcs.worker import Worker
from siafu.address import Address
from siafu.wire import Gradient, Message, TaskResult

Event = dict[str, Any]

#: Share of the answers that are sent twice, after the first one.
TWICE = 0.05


def answers_twice(event: Event, context: Any) -> Event:
    """Sends its first result or gradient twice, and 5% of the others."""
    rng, odds = random.Random(event["worker"]), 1.0
    with Worker(Assignment.from_event(event), lambda: context.get_remaining_time_in_millis() / 1000) as worker:
        send = worker._hub.send

        def maybe_twice(to: Address, message: Message) -> bool:
            nonlocal odds
            if isinstance(message, TaskResult | Gradient) and rng.random() < odds:
                odds = TWICE
                send(to, message)
            return send(to, message)

        worker._hub.send = maybe_twice  # type: ignore[method-assign]
        return worker.run()


def every_third_dies(event: Event, context: Any) -> Event:
    """Answers twice, but the first three workers and then every third are killed, a task in their hands."""
    nth = int(event["worker"].rpartition("-")[2])
    if nth >= 3 and nth % 3:
        return answers_twice(event, context)
    left = 1 + nth % 5
    with Worker(Assignment.from_event(event), lambda: context.get_remaining_time_in_millis() / 1000) as worker:
        send = worker._hub.send

        def killed_at_last(to: Address, message: Message) -> bool:
            nonlocal left
            if isinstance(message, TaskResult | Gradient):
                left -= 1
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)
            return send(to, message)

        worker._hub.send = killed_at_last  # type: ignore[method-assign]
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


def sees_its_end_after_five_tasks(event: Event, context: Any) -> Event:
    """The clock says that the deadline is near once the worker has done so many."""

    def remaining_s() -> float:
        return 0.0 if worker._desk.num_done >= 5 else float(context.get_remaining_time_in_millis()) / 1000

    with Worker(Assignment.from_event(event), remaining_s) as worker:
        return worker.run()


def does_nothing(event: Event, context: Any) -> Event:
    return {}


def dies_at_start_once_there_is_a_file(event: Event, context: Any) -> Event:
    """Works as it should until there is the file "broken" that PATH names; then those at work are
    killed, and so is whoever starts."""
    broken = Path(next(part for part in os.environ["PATH"].split(os.pathsep) if part.endswith("/broken")))
    if broken.exists():
        os.kill(os.getpid(), signal.SIGKILL)
    with Worker(Assignment.from_event(event), lambda: context.get_remaining_time_in_millis() / 1000) as worker:
        send = worker._hub.send

        def unless_broken(to: Address, message: Message) -> bool:
            if broken.exists():
                os.kill(os.getpid(), signal.SIGKILL)
            return send(to, message)

        worker._hub.send = unless_broken  # type: ignore[method-assign]
        return worker.run()
