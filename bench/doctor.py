"""``siafu doctor``: what this machine can do, and what is missing for the rest."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import sys
import time
from typing import Any

import numpy as np

from siafu import __version__

#: extra -> (a module that it brings, what it is for)
EXTRAS = {
    "aws": ("boto3", "Lambdas on AWS or LocalStack"),
    "gpu": ("torch", "GPU baselines"),
    "infra": ("aws_cdk", "deployment"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Say what this machine can do."
    parser.epilog = "example:\n  siafu doctor --json"
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def main(args: argparse.Namespace) -> int:
    report = examine()
    if args.json:
        print(json.dumps(report))
        return 0 if report["ok"] else 1
    for name, value in report["machine"].items():
        print(f"{name:24} {value}")
    for check in report["checks"]:
        print(f"{'ok  ' if check['ok'] else 'FAIL'} {check['what']}: {check['found']}")
    for extra in report["extras"]:
        print(f"{'ok  ' if extra['installed'] else '--  '} siafu[{extra['name']}] ({extra['for']})")
    return 0 if report["ok"] else 1


def examine() -> dict[str, Any]:
    """Machine, checks (each with ``ok``, ``what``, ``found``), extras, and ``ok`` if every check is."""
    checks = [_numpy(), _lambda(), _disk()]
    extras = [
        {"name": name, "for": what, "installed": importlib.util.find_spec(module) is not None}
        for name, (module, what) in EXTRAS.items()
    ]
    machine = {
        "siafu": __version__, "python": platform.python_version(), "platform": platform.platform(),
        "cores": os.cpu_count(), "memory_gib": round(_memory_bytes() / 2**30, 1),
        **{name: importlib.metadata.version(name) for name in ("numpy", "scipy", "pyzmq", "pymetis", "awslambdaric")},
    }  # fmt: skip
    return {"machine": machine, "checks": checks, "extras": extras, "ok": all(check["ok"] for check in checks)}


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _numpy() -> dict[str, Any]:
    X = np.ones((1024, 1024), np.float32)
    X @ X
    start = time.perf_counter()
    for _ in range(5):
        X @ X
    rate = 5 * 2 * 1024**3 / (time.perf_counter() - start) / 1e9
    return {"what": "dense products, float32", "ok": rate > 1, "found": f"{rate:.0f} GFLOP/s"}


def _lambda() -> dict[str, Any]:
    """Starts one local Lambda environment and invokes it."""
    from queue import Empty, SimpleQueue

    from lambda_funcs.pool import Invocation, LocalPool

    done: SimpleQueue[Invocation] = SimpleQueue()
    with LocalPool(handler="lambda_funcs.handler.ping", max_environments=1, on_done=done.put) as pool:
        pool.invoke({}, "doctor")
        try:
            invocation = done.get(timeout=20)
        except Empty:
            return {"what": "local Lambda environment", "ok": False, "found": "no answer within 20 s"}
    if invocation.error:
        return {"what": "local Lambda environment", "ok": False, "found": f"{invocation.error}: {invocation.log_tail[-300:]}"}
    return {
        "what": "local Lambda environment", "ok": True,
        "found": f"init {invocation.init_ms:.0f} ms, {invocation.max_memory_mb} MB",
    }  # fmt: skip


def _disk() -> dict[str, Any]:
    free = shutil.disk_usage(".").free / 2**30
    return {"what": "free disk here", "ok": free > 1, "found": f"{free:.0f} GiB"}


if __name__ == "__main__":
    sys.exit(main(argparse.Namespace(json=False)))
