"""Starts one local Lambda environment and invokes it: ``siafu doctor`` runs this and reads the JSON line it prints."""

from __future__ import annotations

import json
import sys
from queue import Empty, SimpleQueue

from lambda_funcs.local_pool import Invocation, LocalPool

LIMIT_S = 20.0


def main() -> int:
    """Prints ``{"init_ms": ..., "max_memory_mb": ...}`` and returns 0, or ``{"error": ...}`` and 1."""
    done: SimpleQueue[Invocation] = SimpleQueue()
    with LocalPool(handler="lambda_funcs.handler.ping", max_environments=1, on_done=done.put) as pool:
        pool.invoke({}, "doctor")
        try:
            invocation = done.get(timeout=LIMIT_S)
        except Empty:
            print(json.dumps({"error": f"no answer within {LIMIT_S:g} s"}))
            return 1
    if invocation.error is not None:
        print(json.dumps({"error": f"{invocation.error}: {invocation.log_tail[-300:]}"}))
        return 1
    print(json.dumps({"init_ms": invocation.init_ms, "max_memory_mb": invocation.max_memory_mb}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
