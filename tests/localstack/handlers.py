"""Lambda functions of the LocalStack tests: they travel in the package."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from lambda_funcs.assignment import Assignment
from lambda_funcs.worker import Worker
from siafu.address import Address
from siafu.wire import Message, TaskResult

Event = dict[str, Any]


def where(event: Event, context: Any) -> Event:
    """What the function is made of."""
    import numpy
    import zmq

    return {"numpy": numpy.__file__, "zmq": zmq.__file__, "cwd": os.getcwd(), "path": sys.path, "pid": os.getpid()}


def sleeps(event: Event, context: Any) -> Event:
    """For ``event["seconds"]``, in a child of its own."""
    subprocess.run([sys.executable, "-c", f"import time; time.sleep({event['seconds']})"], check=True)
    return {}


def first_crashes(event: Event, context: Any) -> Event:
    """The first worker of each graph server dies instead of giving its first result."""
    with Worker(Assignment.from_event(event), lambda: context.get_remaining_time_in_millis() / 1000) as worker:
        send = worker._hub.send

        def die(to: Address, message: Message) -> bool:
            if isinstance(message, TaskResult) and event["worker"].endswith("-0"):
                print("about to go", flush=True)
                os._exit(3)
            return send(to, message)

        worker._hub.send = die  # type: ignore[method-assign]
        return worker.run()
