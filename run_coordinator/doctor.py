"""``siafu doctor``: checks what this machine can do, what is missing for the rest, and that files are undamaged."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import platform
import shutil
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from run_coordinator import known_answer, verify_run
from siafu import __version__, allotment, kernels, start
from siafu.errors import ConfigError, GnnError
from siafu.sockets import check_loopback

PACKAGES = ("numpy", "scipy", "scikit-learn", "pyzmq", "pymetis", "safetensors", "awslambdaric", "rich")

#: extra -> (a distribution that it brings, what it is for)
EXTRAS = {
    "aws": ("boto3", "Lambdas and servers on AWS, Lambdas on LocalStack"),
    "ray": ("ray", "servers and Lambdas on a Ray cluster"),
    "infra": ("aws-cdk-lib", "siafu deploy"),
    "data": ("pyarrow", "edge lists in Parquet and CSV"),
    "plot": ("matplotlib", "pictures of runs and plans"),
    "networkx": ("networkx", "graphs of NetworkX"),
    "pyg": ("torch_geometric", "graphs of PyG"),
    "export": ("onnx", "siafu export to torch, PyG, DGL and ONNX"),
    "loggers": ("wandb", "--logger: TensorBoard, MLflow, W&B offline"),
    "gpu": ("torch", "siafu baseline, and servers with a GPU"),
    "dev": ("pytest", "tests and development"),
}

STYLES = {"": "", "ok": "green", "slow": "yellow", "FAIL": "bold red", "--": "dim"}
MIN_GFLOPS, MIN_FREE_GIB, LAMBDA_LIMIT_S = 1.0, 1.0, 40.0


@dataclass(frozen=True)
class Check:
    """Something that training needs or that makes it faster, and what was found."""

    what: str
    ok: bool
    found: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu doctor [PATH] [--json]"
    parser.description = (
        "Check what this machine can do; or read every byte of a prepared graph, a run, a checkpoint or a model,\n"
        "and report damage. Exit code 0 if the machine can train, or nothing is damaged; else 1."
    )
    parser.epilog = (
        "examples:\n  siafu doctor\n  siafu doctor --json\n  siafu doctor shards/mine\n  siafu doctor runs/my-run"
    )
    parser.add_argument("path", nargs="?", default="", metavar="PATH", help="what to look at instead of the machine")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def main(args: argparse.Namespace) -> int:
    if args.path:
        return _examine_files(args)
    report = examine()
    if args.json:
        print(json.dumps(report))
    else:
        _show(report, Console(highlight=False, markup=False, soft_wrap=True))
    return 0 if report["ok"] else 1


def _examine_files(args: argparse.Namespace) -> int:
    checks = [Check(*found) for found in verify_run.examined(Path(args.path))]
    ok = all(check.ok for check in checks)
    if args.json:
        print(json.dumps({"path": args.path, "checks": [asdict(check) for check in checks], "ok": ok}))
        return 0 if ok else 1
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for check in checks:
        _line(console, "ok" if check.ok else "FAIL", check.what, check.found)
    console.print("no damage found" if ok else "something is damaged: see FAIL above")
    return 0 if ok else 1


def examine() -> dict[str, Any]:
    """``machine`` and ``packages`` (name -> value), ``checks``, ``kernels``, ``extras``,
    ``tools``, and ``ok`` if every check is."""
    checks = [_products(), _arithmetic(), _loopback(), _environment(), _disk()]
    return {
        "machine": {
            "siafu": __version__,
            "python": platform.python_version(),
            "platform": f"{platform.system()} {platform.machine()}",
            "cores": allotment.cores(),
            "memory_gib": round(allotment.memory_bytes() / 2**30, 1),
        },
        "packages": {name: _version(name) for name in PACKAGES},
        "checks": [asdict(check) for check in checks],
        "kernels": asdict(compiled_kernels()),
        "extras": [{"name": name, "for": what, "found": _version(brings)} for name, (brings, what) in EXTRAS.items()],
        "tools": [_gpus(), _node(), _localstack()],
        "ok": all(check.ok for check in checks),
    }


def _show(report: dict[str, Any], console: Console) -> None:
    machine = report["machine"]
    rows = [("", "machine", f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['platform']}")]
    rows += [("", "siafu", f"{machine['siafu']} on Python {machine['python']}")]
    rows += [("ok" if check["ok"] else "FAIL", check["what"], check["found"]) for check in report["checks"]]
    rows += [("ok" if report["kernels"]["ok"] else "slow", report["kernels"]["what"], report["kernels"]["found"])]
    rows += [("ok" if found else "FAIL", name, found or "not installed") for name, found in report["packages"].items()]
    for extra in report["extras"]:
        found = f"{extra['found'] or 'not installed'} ({extra['for']})"
        rows += [("ok" if extra["found"] else "--", f"siafu[{extra['name']}]", found)]
    for tool in report["tools"]:
        found = f"{tool['found'] or 'not installed'} ({tool['for']})"
        rows += [("ok" if tool["found"] else "--", tool["name"], found)]
    for mark, name, found in rows:
        _line(console, mark, name, found)
    console.print(
        "this machine can train: siafu train" if report["ok"] else "this machine cannot train yet: see FAIL above"
    )


def _line(console: Console, mark: str, name: str, found: str) -> None:
    console.print(Text(f"{mark:4}", STYLES[mark]) + Text(f"  {name:16}{found}"))


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _products() -> Check:
    X = np.ones((1024, 1024), np.float32)
    X @ X
    start = time.perf_counter()
    for _ in range(5):
        X @ X
    rate = 5 * 2 * 1024**3 / (time.perf_counter() - start) / 1e9
    return Check("dense products", rate > MIN_GFLOPS, f"{rate:.0f} GFLOP/s in float32, all cores")


def _arithmetic() -> Check:
    """Whether a run has the same bits here as on other machines. Not checked without compiled kernels."""
    if kernels.ISA == "numpy":
        return Check("arithmetic", True, "NumPy's: the last bits of weights depend on the processor")
    found = known_answer.digest()
    if found == known_answer.KNOWN:
        return Check("arithmetic", True, f"as everywhere ({found})")
    return Check(
        "arithmetic",
        False,
        f"{found}, must be {known_answer.KNOWN}: this machine computes other bits than all others; please report it "
        f"with its processor ({kernels.ISA})",
    )


def compiled_kernels() -> Check:
    """Whether compiled kernels are there. Training works without them, so a false ``ok`` is no failure."""
    if kernels.ISA != "numpy":
        return Check("gather kernel", True, f"{kernels.ISA}, compiled")
    return Check(
        "gather kernel",
        False,
        "no compiled kernel (no C++ compiler when siafu was installed): SciPy does its work, several times slower; "
        "install g++ and run make setup again",
    )


def _node() -> dict[str, str | None]:
    return {"name": "node", "for": "siafu deploy, with npx; 20 or newer", "found": _answer("node", "--version")}


def _gpus() -> dict[str, str | None]:
    """The GPUs, as nvidia-smi names them: torch takes seconds to import, and may not be installed."""
    found = _answer("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")
    return {"name": "GPUs", "for": "siafu baseline; without any it runs on the CPU", "found": found}


def _answer(*command: str) -> str | None:
    """A program's output; None if the program is missing or fails."""
    if shutil.which(command[0]) is None:
        return None
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LAMBDA_LIMIT_S, check=False)
    return "; ".join(ended.stdout.strip().splitlines()) or None if not ended.returncode else None


def _localstack() -> dict[str, str | None]:
    try:
        is_installed = importlib.import_module("infra.localstack.install").installed()
    except ConfigError as error:  # no home, so that nothing was kept
        return {"name": "localstack", "for": str(error), "found": None}
    use = "--lambda-on localstack" if is_installed else "python -m infra.localstack install"
    return {"name": "localstack", "for": use, "found": "installed" if is_installed else None}


def _loopback() -> Check:
    try:
        check_loopback()
    except GnnError as error:
        return Check("loopback", False, str(error))
    return Check("loopback", True, "processes of this machine reach each other")


def _environment() -> Check:
    """Starts one local Lambda environment, in a process of its own, and invokes it."""
    what = "local Lambda"
    command = start.command("lambda_funcs")
    try:
        ended = subprocess.run(
            command, env=start.environment(), capture_output=True, text=True, timeout=LAMBDA_LIMIT_S, check=False
        )
        answer = json.loads(ended.stdout)
    except subprocess.TimeoutExpired:
        return Check(what, False, f"no answer within {LAMBDA_LIMIT_S:g} s")
    except ValueError:
        return Check(what, False, ended.stderr.strip()[-300:])
    if "error" in answer:
        return Check(what, False, answer["error"])
    return Check(what, True, f"starts in {answer['init_ms']:.0f} ms, {answer['max_memory_mb']} MB at rest")


def _disk() -> Check:
    free = shutil.disk_usage(".").free / 2**30
    return Check("free disk", free > MIN_FREE_GIB, f"{free:.0f} GiB here")
