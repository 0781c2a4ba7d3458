"""Fetches wheels for another machine with pip, which chooses by platform tags what the function's runtime can load.

A runtime is a Python and a C library. Wheels for a newer glibc than the runtime's are not taken: they would fail at
import, on Lambda.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from siafu import start
from siafu.errors import ConfigError

#: Runtime -> minor version of its glibc 2: Amazon Linux 2 and 2023 (Lambda developer guide, "Lambda runtimes"). Not
#: python3.10, which AWS deprecates at the end of October 2026: no new function may have it soon after.
RUNTIMES = {"python3.11": 26, "python3.12": 34, "python3.13": 34, "python3.14": 34}
#: Lambda's names of architectures -> those of wheels.
ARCHITECTURES = {"x86_64": "x86_64", "arm64": "aarch64"}
OLDEST_GLIBC = 17  # manylinux2014
PIP_S = 600.0


class NoWheelError(ConfigError):
    """Raised if there is an index, but no wheel in it that the target can load."""


@dataclass(frozen=True)
class Target:
    """The machine that a wheel must run on."""

    arch: str  # x86_64 or arm64
    runtime: str  # python3.X
    glibc: int  # minor version of its glibc 2

    def __post_init__(self) -> None:
        if self.arch not in ARCHITECTURES:
            raise ConfigError(f"architecture {self.arch}: must be one of {', '.join(ARCHITECTURES)}")

    @classmethod
    def of_lambda(cls, arch: str, runtime: str) -> Target:
        return cls(arch, runtime, RUNTIMES[runtime])

    @classmethod
    def here(cls, runtime: str | None = None) -> Target:
        """This machine, with this Python or another."""
        name, version = platform.libc_ver()
        if name != "glibc":
            raise ConfigError(f"LocalStack's functions need Linux with glibc, this is {platform.platform()}")
        arch = {"aarch64": "arm64"}.get(platform.machine(), platform.machine())
        return cls(arch, runtime or our_runtime(), int(version.split(".")[1]))

    @property
    def is_our_python(self) -> bool:
        """Whether modules compiled for this Python run there: they depend on its version alone."""
        return self.runtime == our_runtime()

    @property
    def tags(self) -> list[str]:
        """Platform tags of the wheels that the target can load, newest first."""
        machine = ARCHITECTURES[self.arch]
        numbered = [f"manylinux_2_{minor}_{machine}" for minor in range(self.glibc, OLDEST_GLIBC - 1, -1)]
        return [*numbered, f"manylinux2014_{machine}", "any"]

    def __str__(self) -> str:
        return f"{self.arch}-{self.runtime}-glibc2.{self.glibc}"


def our_runtime() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def minor(runtime: str) -> int:
    """X of python3.X."""
    return int(runtime.rpartition(".")[2])


def wheel(target: Target, name: str, version: str, cache: Path) -> Path:
    """The wheel, from ``cache`` or by pip. ConfigError if it is not available."""
    folder = cache / str(target)
    folder.mkdir(parents=True, exist_ok=True)
    found = next(folder.glob(f"{name}-{version}-*.whl"), None)
    if found is not None:
        return found
    with tempfile.TemporaryDirectory(dir=folder, prefix=".draft-") as draft:
        try:
            fetched = _download(f"{name}=={version}", Path(draft), target)
        except NoWheelError:
            newer = [one for one in RUNTIMES if minor(one) > minor(target.runtime)] or ["an older one"]
            raise NoWheelError(
                f"{name} {version} has no wheel for {target.runtime} on {target.arch} with glibc 2.{target.glibc}: "
                f"choose another runtime ({', '.join(newer)}) or install another {name}"
            ) from None
        return fetched.replace(folder / fetched.name)


def pip_download(target: Target, folder: Path, words: Sequence[str], late: str) -> subprocess.CompletedProcess[str]:
    """Runs pip to put wheels for the target into ``folder``; returns the ended process. ConfigError with ``late`` if it
    does not end."""
    command = start.command(
        *("pip", "download", "--quiet", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"),
        *("--retries", "2", "--implementation", "cp", "--python-version", target.runtime.removeprefix("python")),
        *(f"--platform={tag}" for tag in target.tags),
        *("--dest", str(folder)),
        *words,
    )
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=PIP_S, check=False)
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{late} after {PIP_S:g} s") from None


def _download(requirement: str, folder: Path, target: Target) -> Path:
    """Has pip put the wheel into ``folder``. ConfigError with pip's own words if it cannot."""
    late = f"{requirement}: pip has not downloaded it"
    ended = pip_download(target, folder, ["--no-deps", requirement], late)
    if ended.returncode == 0:
        return next(folder.glob("*.whl"))
    if "No module named pip" in ended.stderr:
        raise ConfigError(f"{requirement} is downloaded by pip, which {sys.executable} lacks: run it with -m ensurepip")
    if "No matching distribution" in ended.stderr and "(from versions: none)" not in ended.stderr:
        raise NoWheelError(f"{requirement} has no wheel for what was asked: {target}")
    errors = [line for line in ended.stderr.splitlines() if line.startswith("ERROR:")] or ["ERROR: no output"]
    raise ConfigError(f"pip cannot download {requirement}: {errors[0].removeprefix('ERROR: ')[:300]}")
