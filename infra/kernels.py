"""The compiled kernels for a Lambda and for wheels, cross-compiled by zig, which brings a C++ library
and every version of the C library.

Zig comes as a wheel (``ziglang``, in the extra ``infra``). What it makes needs nothing there but the C library, in the
version that the runtime has. The same sources and the same zig give the same bytes.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from infra.wheels import ARCHITECTURES, Target
from siafu import allotment, extras
from siafu.errors import ConfigError
from siafu.kernels import build

COMPILE_S = 1800.0  # for one call of the compiler; the longest takes a minute or two on a busy core
#: The last two against what zig does by itself. The linker gets them too, for the C++ library that zig compiles then.
FLAGS = [*build.FLAGS, "-fPIC", "-fno-sanitize=undefined", "-fomit-frame-pointer"]
LINK = [*FLAGS, "-shared", "-s", "-Wl,-z,defs"]  # stripped; what is defined nowhere is an error here, not on Lambda


def cross_compiled(target: Target, cache: Path) -> Path:
    """The kernels for ``target``: the library in the folder ``cache``, compiled by all
    cores if it is not there, in minutes.

    ConfigError if ziglang is not installed or cannot compile them.
    """
    try:
        wheel = importlib.metadata.distribution("ziglang")
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError(
            "ziglang, which compiles the kernels of the function's package, is not installed: "
            f"{extras.install('infra')}"
        ) from None
    machine = ARCHITECTURES[target.arch]
    triple = f"{machine}-linux-gnu.2.{target.glibc}"
    units = build.units(build.instruction_sets(machine))  # a macro of theirs has the sources' digest
    key = hashlib.sha256(repr((wheel.version, FLAGS, LINK, units)).encode()).hexdigest()[:16]
    made = cache / f"kernels-{triple}-{key}.so"
    if not made.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".draft-") as draft:
            compiler = [str(wheel.locate_file("ziglang/zig")), "c++", "-target", triple]
            _compile(compiler, units, Path(draft)).replace(made)
    os.utime(made)  # it is in use
    return made


def has_zig() -> bool:
    """Whether ziglang is installed."""
    return importlib.util.find_spec("ziglang") is not None


def _compile(compiler: list[str], units: list[build.Unit], draft: Path) -> Path:
    """The library of these units, in the empty folder ``draft``."""

    def object_of(unit: build.Unit) -> str:
        out = draft / f"{unit.folder}-{unit.name}.o"
        macros = [f"-D{name}={value}" for name, value in unit.macros]
        _run([*compiler, *FLAGS, *unit.flags, *macros, "-c", f"{unit.name}.cpp", "-o", str(out)], draft)
        return str(out)

    with ThreadPoolExecutor(allotment.cores()) as pool:  # zig is a process of its own
        objects = list(pool.map(object_of, units))
    _run([*compiler, *LINK, *objects, "-o", str(draft / "library.so")], draft)
    return draft / "library.so"


def _run(command: list[str], draft: Path) -> None:
    """In the folder of the sources, so that no path gets into what is made. ConfigError
    with the compiler's first error."""
    kept = str(draft / "zig")  # 100 MB, else in the user's home for good
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": kept, "ZIG_LOCAL_CACHE_DIR": kept}
    try:
        ended = subprocess.run(
            command, cwd=build.FOLDER, env=environment, capture_output=True, text=True, timeout=COMPILE_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"the function's kernels: zig has not compiled {command[-3]} after {COMPILE_S:g} s") from None
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or ["no output"]
        line = next((line for line in lines if "error:" in line), lines[-1])
        raise ConfigError(
            f"zig cannot compile the function's kernels: {line[:300]}; "
            f"{extras.install('infra')} brings the zig that can"
        )
