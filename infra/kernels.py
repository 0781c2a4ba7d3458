"""Cross-compiles the kernels for Lambda and for wheels with zig, which brings a C++ library and every version of the
C library.

Zig comes as a wheel (``ziglang``, in the extra ``infra``). What it makes needs nothing there but the C library, in the
version that the runtime has. The same sources and the same zig give the same bytes.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import tempfile
from pathlib import Path

from infra.wheels import ARCHITECTURES, Target
from siafu import allotment, extras
from siafu.errors import ConfigError
from siafu.kernels import build

COMPILE_S = 1800.0  # for one call of the compiler; the longest takes a minute or two on a busy core
#: The last two against what zig does by itself. The linker gets them too, for the C++ library that zig compiles then.
FLAGS = ["-fPIC", "-fno-sanitize=undefined", "-fomit-frame-pointer"]
LINK = [*FLAGS, "-shared", "-s", "-Wl,-z,defs"]  # stripped; what is defined nowhere is an error here, not on Lambda


def cross_compiled(target: Target, cache: Path) -> Path:
    """The kernels for ``target``: the library in the folder ``cache``. Compiles it on first use, with all cores, in
    minutes.

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
    key = hashlib.sha256(repr((wheel.version, build.FLAGS, FLAGS, LINK, units)).encode()).hexdigest()[:16]
    made = cache / f"kernels-{triple}-{key}.so"
    if not made.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".zig-") as kept:  # 100 MB, else in the user's home for good
            command = [str(wheel.locate_file("ziglang/zig")), "c++", "-target", triple]
            variables = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": kept, "ZIG_LOCAL_CACHE_DIR": kept}
            try:
                build.Compiler(command, FLAGS, LINK, variables, COMPILE_S).library(units, made, allotment.cores())
            except build.CompileError as error:
                raise ConfigError(
                    f"zig cannot compile the function's kernels: {error}; "
                    f"{extras.install('infra')} brings the zig that can"
                ) from None
    os.utime(made)  # it is in use
    return made


def has_zig() -> bool:
    """Whether ziglang is installed."""
    return importlib.util.find_spec("ziglang") is not None
