"""The wheels that servers install: what siafu imports there, for their Python and architecture, and siafu itself.

Versions are those installed here, so that all machines of a run compute the same bits. siafu travels as sources: each
machine compiles the kernels that it runs. ``setup.py`` stands on its own, so no index is asked there.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import io
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infra.imports import ROOT
from infra.stacks.boot import PYTHONS
from infra.wheels import Target, minor, pip_download
from siafu.config import cache_folder
from siafu.errors import ConfigError

#: Amazon Linux 2023's C library.
GLIBC = 34
#: What servers import. Not what prepares graphs: pymetis and scikit-learn stay on the laptop
#: (the former has no wheel for arm).
NEEDED = ("numpy", "scipy", "pyzmq", "rich", "safetensors", "awslambdaric", "boto3")
#: Build siafu there; versions are of no consequence for a run.
TOOLS = ("setuptools>=77", "wheel")
ROOMS = (
    "siafu",
    "graph_data",
    "graph_server",
    "param_server",
    "lambda_funcs",
    "run_coordinator",
    "cost_planner",
    "infra",
)
BESIDE = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in")
KEPT_S = 30 * 86_400  # wheels of older versions, 70 MB an architecture


@dataclass(frozen=True)
class Wheelhouse:
    """Files for a server's pip; ``digest`` of their names and siafu's sources."""

    arch: str
    files: tuple[Path, ...]
    digest: str


def python() -> str:
    """The servers' Python: this one's version, or the nearest that they can have. Versions installed here may have no
    wheels for another Python: NumPy 2.5 has none for Python 3.11."""
    return min(PYTHONS, key=lambda name: abs(minor(name) - sys.version_info.minor))


def build(arch: str) -> Wheelhouse:
    """Builds the wheelhouse, from the cache or by pip. ConfigError with pip's words without such wheels, or without an
    index."""
    wheels = _wheels(Target(arch, python(), GLIBC))
    sources = _sources()
    digest = hashlib.sha256(sources)
    for wheel in wheels:
        digest.update(wheel.name.encode())
    folder = _cache() / "siafu"
    folder.mkdir(parents=True, exist_ok=True)
    archive, requirements = folder / "siafu.tar.gz", folder / "requirements.txt"
    archive.write_bytes(sources)
    requirements.write_text("".join(f"{line}\n" for line in _pinned()))
    return Wheelhouse(arch, (*wheels, requirements, archive), digest.hexdigest()[:16])


def _cache() -> Path:
    return cache_folder() / "wheelhouse"


def _pinned() -> list[str]:
    return [f"{name}=={importlib.metadata.version(name)}" for name in NEEDED]


def _wheels(target: Target) -> list[Path]:
    """The wheels that pip finds for the target, dependencies included; distributions installed here keep their
    version."""
    constraints = sorted({f"{one.metadata['Name']}=={one.version}" for one in importlib.metadata.distributions()})
    key = hashlib.sha256(repr((_pinned(), TOOLS, constraints)).encode()).hexdigest()[:16]
    place = _cache() / f"{target}-{key}"
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        _forget_old(place.parent)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".draft-") as draft:
            limits = Path(draft, "constraints.txt")
            limits.write_text(
                "\n".join(line for line in constraints if not line.startswith(("siafu==", "setuptools==")))
            )
            wheels = Path(draft, "wheels")
            _download(target, wheels, limits)
            try:
                wheels.rename(place)
            except OSError:  # another process was faster
                if not place.is_dir():
                    raise
    return sorted(place.glob("*.whl"))


def _forget_old(cache: Path) -> None:
    limit = time.time() - KEPT_S
    for folder in cache.glob("*-python3*"):
        if folder.stat().st_mtime < limit:
            shutil.rmtree(folder, ignore_errors=True)


def _download(target: Target, folder: Path, constraints: Path) -> None:
    words = ["--constraint", str(constraints), *_pinned(), *TOOLS]
    ended = pip_download(target, folder, words, "wheels for servers: pip has not downloaded them")
    if ended.returncode:
        errors = [line for line in ended.stderr.splitlines() if line.startswith("ERROR:")] or ["ERROR: no output"]
        raise ConfigError(f"wheels for servers ({target}): {errors[0].removeprefix('ERROR: ')[:300]}")


def _sources() -> bytes:
    """siafu as pip builds it, in a folder of its own; the same bytes for the same tree."""
    raw = io.BytesIO()
    with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for path in _tree():
            entry = tarfile.TarInfo(f"siafu/{path.relative_to(ROOT).as_posix()}")
            data = path.read_bytes()
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return raw.getvalue()


def _tree() -> Iterator[Path]:
    for name in BESIDE:
        if not (ROOT / name).is_file():
            raise ConfigError(f"{ROOT / name}: not here; servers are made from a checkout of siafu")
        yield ROOT / name
    for room in ROOMS:
        yield from sorted(
            path for pattern in ("*.py", "*.cpp", "*.hpp", "*.csv", "py.typed") for path in (ROOT / room).rglob(pattern)
        )
