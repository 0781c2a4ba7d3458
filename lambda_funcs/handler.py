"""The Lambda function: one invocation is one worker, which pulls tasks until it is idle or near its deadline."""

from __future__ import annotations

from typing import Any

from lambda_funcs.assignment import Assignment
from lambda_funcs.worker import Worker
from siafu import allotment

#: With less memory than this, freed memory goes back to the system: otherwise up to 64 MB of it are kept.
ROOMY_MB = 1024


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Runs one worker. ``event``: the payload that ``graph_server.lambdas.invoker`` sends. Returns the worker's
    summary, as JSON."""
    assignment = Assignment.from_event(event)
    if int(context.memory_limit_in_mb) >= ROOMY_MB:
        allotment.keep_freed_memory()
    with Worker(assignment, lambda: context.get_remaining_time_in_millis() / 1000) as worker:
        return worker.run()


def ping(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answers ``siafu doctor``: an environment that gets here can import everything."""
    return {"memory_mb": context.memory_limit_in_mb}
