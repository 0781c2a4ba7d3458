"""The Lambda function's package: a zip of siafu's leaf modules and compiled kernels, lambda_funcs,
numpy and pyzmq, built without Docker.

Wheels of numpy and pyzmq come through pip, for the runtime's Python, architecture and C library, in the versions
that are installed here, so that a function's bits are ours. ``build`` makes the package for AWS, with
cross-compiled kernels (``infra.kernels``); ``build_here`` the one that our LocalStack runs: this Python, this
architecture, this C library, these kernels.

The same tree and versions give the same bytes: names are sorted, times and permissions fixed. If the runtime's Python
is ours, modules travel compiled too: ``/var/task`` is read-only, so Lambda would compile them at every cold start
(measured: an import of 72 ms instead of 168). Their .pyc are not checked against the source's time, which unpacking
does not keep.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import hashlib
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from infra import kernels
from infra.imports import ROOT, shipped_to_lambda
from infra.wheels import ARCHITECTURES, RUNTIMES, NoWheelError, Target, minor, wheel
from siafu.config import cache_folder
from siafu.errors import ConfigError, GnnError
from siafu.kernels import library

HANDLER = "lambda_funcs.handler.handler"
MAX_NBYTES = 250 * 2**20  # Lambda's limit on an unzipped package
KEPT_S = 2 * 86_400  # packages and kernels that nobody used for so long are removed from the cache
#: Raised when what ``_stage`` does to files changes: packages in the cache are keyed by it.
VERSION = 3
#: Where ``siafu.kernels.library`` looks for them.
KERNELS = library.PATH.relative_to(ROOT).as_posix()

#: Of the wheels, nothing at run time reads these. Folders end with a slash.
NOT_NEEDED = (
    "*/tests/",
    "*.pyi",
    "*.pxd",
    "*.pyx",
    "*.h",
    "*.hpp",
    "*.c",
    "*.a",
    "*.lib",
    "*.typed",
    "*.dist-info/RECORD",
    "*.dist-info/WHEEL",
    "*.dist-info/INSTALLER",
    "*.dist-info/entry_points.txt",
    "*_tests.*.so",
    "numpy/f2py/",
    "numpy/doc/",
    "numpy/_core/include/",
    "numpy/_core/lib/",
    "numpy/random/lib/",
    "numpy/random/_examples/",
    "numpy/distutils/",
    "numpy/_pyinstaller/",
    "zmq/utils/*.json",
    "*.data/",
)


@dataclass(frozen=True)
class Package:
    """The function's package. Sizes are in bytes; ``unzipped``, ``beyond_numpy`` and ``kernels`` count files."""

    path: Path
    sha256: str
    handler: str
    runtime: str
    arch: str
    zipped: int
    unzipped: int
    beyond_numpy: int
    kernels: int  # 0: there are none, and siafu computes with NumPy


def build(arch: str) -> Package:
    """The function's package for AWS, in the cache.

    Its runtime is this Python's, or the next newer one whose C library can load the wheels of our versions.
    ConfigError if there are no such wheels, no index to get them from, or no compiler for the kernels, which takes
    minutes, once for the same sources and compiler.
    """
    ours = [name for name in RUNTIMES if minor(name) >= sys.version_info.minor] or [max(RUNTIMES, key=minor)]
    for name in ours[:-1]:
        try:
            return _build(Target.of_lambda(arch, name))
        except NoWheelError:
            continue
    return _build(Target.of_lambda(arch, ours[-1]))


def build_here(runtime: str | None = None) -> Package:
    """Builds the package that our LocalStack runs on this machine; ``runtime`` None: this Python's.

    It has the kernels that siafu computes with here; none if siafu computes with NumPy here.
    """
    return _build(Target.here(runtime), here=True)


# --- building ---------------------------------------------------------------------------------------------------------


def _build(target: Target, *, here: bool = False) -> Package:
    wheels = [wheel(target, name, version, cache() / "wheels") for name, version in _requirements(target)]
    files = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in sorted(shipped_to_lambda())}
    if not here:
        files[KERNELS] = kernels.cross_compiled(target, cache() / "kernels").read_bytes()
    elif library.LIBRARY is not None:
        files[KERNELS] = library.PATH.read_bytes()
    cached = cache() / f"{target}-{_key(target, wheels, files)}.zip"
    if not cached.is_file():
        _forget_old()
        _write(target, wheels, files, cached)
    os.utime(cached)
    return _described(target, cached)


def _write(target: Target, wheels: list[Path], files: dict[str, bytes], path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".draft-") as draft:
        stage = Path(draft, "stage")
        _stage(target, wheels, files, stage)
        _zip(stage, Path(draft, path.name))
        Path(draft, path.name).replace(path)


def _stage(target: Target, wheels: list[Path], files: dict[str, bytes], stage: Path) -> None:
    """Writes the package's files below ``stage``."""
    for path in wheels:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(stage, [name for name in archive.namelist() if not _not_needed(name)])
    for name, data in files.items():
        place = stage / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    if target.is_our_python:
        # A process of its own, with fixed hashes: marshalled sets and references depend on what ran before.
        command = [sys.executable, "-S", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
        command += ["-s", str(stage), "-p", "/var/task", str(stage)]
        subprocess.run(command, cwd=stage.parent, env={"PYTHONHASHSEED": "0"}, check=True)  # not in the user's folder


def _zip(stage: Path, path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        files = {file.relative_to(stage).as_posix(): file for file in stage.rglob("*") if file.is_file()}
        for name, file in sorted(files.items()):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system = 3  # Unix, whatever we run on: the permissions count
            entry.external_attr = (0o100755 if ".so" in file.name else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())


def _not_needed(name: str) -> bool:
    folders = [name[: i + 1] for i, letter in enumerate(name) if letter == "/"]
    return any(
        any(fnmatch.fnmatchcase(folder, pattern) for folder in folders)
        if pattern.endswith("/")
        else fnmatch.fnmatchcase(name, pattern)
        for pattern in NOT_NEEDED
    )


def _described(target: Target, path: Path) -> Package:
    with zipfile.ZipFile(path) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    unzipped = sum(sizes.values())
    if unzipped > MAX_NBYTES:
        raise ConfigError(f"the function's package has {unzipped} bytes unzipped, Lambda's limit is {MAX_NBYTES}")
    numpys = sum(size for name, size in sizes.items() if name.startswith(("numpy/", "numpy.libs/", "numpy-")))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Package(
        path,
        digest,
        HANDLER,
        target.runtime,
        target.arch,
        path.stat().st_size,
        unzipped,
        unzipped - numpys,
        sizes.get(KERNELS, 0),
    )


def _requirements(target: Target) -> list[tuple[str, str]]:
    """(distribution, version) of each import of the function that is not ours."""
    found = [(name, importlib.metadata.version(name)) for name in ("numpy", "pyzmq")]
    return found + [("tomli", "2.2.1")] * (target.runtime == "python3.10")  # stands in for tomllib


# --- the cache --------------------------------------------------------------------------------------------------------


def cache() -> Path:
    """The folder of wheels, kernels and packages, made if it is missing."""
    folder = cache_folder() / "package"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _key(target: Target, wheels: list[Path], files: dict[str, bytes]) -> str:
    compiled_by = sys.version if target.is_our_python else ""
    digest = hashlib.sha256(repr((VERSION, NOT_NEEDED, compiled_by, [path.name for path in wheels])).encode())
    for name, data in files.items():
        digest.update(f"{name} {len(data)}\n".encode() + data)
    return digest.hexdigest()[:16]


def _forget_old() -> None:
    limit = time.time() - KEPT_S
    for path in [*cache().glob("*.zip"), *cache().glob("kernels/*.so")]:
        if path.stat().st_mtime < limit:
            path.unlink(missing_ok=True)


# --- the command ------------------------------------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m infra.package", description="Build the Lambda function's package and show its sizes."
    )
    parser.add_argument("--arch", choices=ARCHITECTURES, default="arm64")
    args = parser.parse_args(argv)
    try:
        package = build(args.arch)
    except (GnnError, OSError) as error:
        print(f"infra.package: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 1)
    for name, value in dataclasses.asdict(package).items():
        print(f"{name:16}{value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
