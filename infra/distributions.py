"""Builds what siafu publishes: an sdist, and from it a wheel for each architecture (``make wheel``).

Zig compiles the kernels for glibc 2.28, whatever this machine has. A wheel holds every instruction set of its
architecture and serves every Python 3 (``setup.py``).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from infra import kernels, package
from infra.imports import ROOT
from infra.wheels import ARCHITECTURES, Target, our_runtime
from siafu import outputs
from siafu.errors import ConfigError, GnnError

GLIBC = 28
#: Of a checkout, what no distribution holds: made by running, or read by developers alone.
LEFT_OUT = (".*", "build", "dist", "runs", "shards", "data", "*.egg-info", "*.so", "__pycache__", "tests", "docs")
BUILD_S = 3600.0  # the kernels by a slow compiler, where there is no zig
#: PEP 517, by setuptools as it is installed here: no index is asked.
HOOK = "import sys, setuptools.build_meta as backend; print(getattr(backend, sys.argv[1])(sys.argv[2]))"


def build(out: Path, architectures: Sequence[str] = tuple(ARCHITECTURES)) -> list[Path]:
    """Builds the sdist, and from it wheels for ``architectures`` (Lambda's names), in the folder ``out``. Without zig,
    one wheel for this machine, by its own compiler.

    Minutes for each architecture the first time. ConfigError if this is no checkout, or something cannot be built.
    """
    source = sdist(out)
    if not kernels.has_zig():
        print("siafu: ziglang is not installed: the one wheel is for machines like this", file=sys.stderr)
        return [source, _wheel(source, out)]
    targets = [Target(arch, our_runtime(), GLIBC) for arch in architectures]
    libraries = [kernels.cross_compiled(target, package.cache() / "kernels") for target in targets]
    return [source, *(_wheel(source, out, SIAFU_LIBRARY=str(library)) for library in libraries)]


def sdist(out: Path) -> Path:
    """Builds the sdist in the folder ``out``. ConfigError if this is no checkout."""
    if not (ROOT / "setup.py").is_file():
        raise ConfigError(f"{ROOT}: holds no setup.py; distributions are made from a checkout of siafu")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="siafu-") as draft:
        # A copy: setuptools packs what it once left in build/ and in *.egg-info.
        tree = shutil.copytree(ROOT, Path(draft, "tree"), ignore=shutil.ignore_patterns(*LEFT_OUT))
        return _hook("build_sdist", tree, out)


def _wheel(source: Path, out: Path, **variables: str) -> Path:
    with tempfile.TemporaryDirectory(prefix="siafu-") as draft:
        return _hook("build_wheel", unpacked(source, Path(draft)), out, **variables)


def unpacked(source: Path, folder: Path) -> Path:
    """The tree of an sdist of ours, in ``folder``."""
    with tarfile.open(source) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian's Python 3.11 has none
        archive.extractall(folder)  # noqa: S202
    return folder / source.name.removesuffix(".tar.gz")


def _hook(name: str, tree: Path, out: Path, **variables: str) -> Path:
    """Runs a build hook; returns the file that it made in ``out``."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SIAFU_")}
    command = [sys.executable, "-I", "-c", HOOK, name, str(out.resolve())]
    try:
        ended = subprocess.run(
            command, cwd=tree, env={**environment, **variables}, capture_output=True, text=True, timeout=BUILD_S
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{name}: has not ended after {BUILD_S:g} s") from None
    if ended.returncode:
        raise ConfigError(f"{name}: {(ended.stderr.strip().splitlines() or ['no output'])[-1][:300]}")
    return out / ended.stdout.splitlines()[-1]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m infra.distributions", description="Build siafu's sdist and wheels."
    )
    parser.add_argument("--arch", nargs="+", choices=ARCHITECTURES, default=list(ARCHITECTURES))
    parser.add_argument("-o", "--out", type=Path, default=Path("dist"), metavar="FOLDER", help="default: dist")
    args = parser.parse_args(argv)
    try:
        outputs.check_folder("--out", args.out)
    except ConfigError as error:
        print(f"infra.distributions: {error}", file=sys.stderr)
        return error.exit_code
    print("siafu: zig compiles the kernels, minutes for each architecture", file=sys.stderr, flush=True)
    try:
        for path in build(args.out, args.arch):
            print(path)
    except (GnnError, OSError) as error:
        print(f"infra.distributions: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
