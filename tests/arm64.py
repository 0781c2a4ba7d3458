"""The tests of the kernels, and the golden bits of all models, on an emulated 64-bit arm processor:
what an x86 machine can check of NEON.

    .venv/bin/python -m tests.arm64 [--folder build/arm64] [pytest's arguments]

Debian's qemu-user runs Debian's Python for arm64; packages come as wheels, the kernels by the compiler that makes the
Lambda's. Nothing is installed: all of it lies in the folder, about 500 MB, and is made once. It needs Debian or Ubuntu,
and their archive and the package index within reach. What starts a process of its own does not work in there: this
kernel runs no program for arm64.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from infra.kernels import cross_compiled
from infra.wheels import Target, our_runtime, wheel

ROOT = Path(__file__).resolve().parents[1]
#: Debian's packages: what emulates, with its libraries; what is emulated.
EMULATOR = ("qemu-user", "libcapstone4", "liburing2")
PYTHON = (
    *("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libffi8", "libssl3", "libexpat1", "libbz2-1.0", "liblzma5"),
    *("libsqlite3-0", "libuuid1", "libncursesw6", "libtinfo6", "libreadline8", "libnsl2", "libtirpc3", "libcrypt1"),
    *(f"{our_runtime()}-minimal", f"lib{our_runtime()}-minimal", f"lib{our_runtime()}-stdlib"),
)
#: What the tests of the kernels and the servers import. METIS has no wheel for arm64: the golden models need none.
PACKAGES = (
    *("numpy", "scipy", "pyzmq", "scikit-learn", "joblib", "threadpoolctl", "safetensors", "rich", "markdown-it-py"),
    *("mdurl", "Pygments", "shtab", "pytest", "pytest-timeout", "iniconfig", "packaging", "pluggy"),
)
GLIBC = 36  # Debian 12's
TESTS = ("tests/siafu/kernels", "tests/integration/test_golden_models.py")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.arm64", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "arm64")
    args, rest = parser.parse_known_args(argv)
    folder = args.folder.resolve()
    emulator, root = folder / "emulator", folder / "root"
    _unpacked("amd64", EMULATOR, emulator)
    _unpacked("arm64", PYTHON, root)
    target = Target("arm64", our_runtime(), GLIBC)
    _packages(target, folder)
    tree = folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in tracked.decode().split("\0")[:-1]:
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tree / name)
    print("arm64: the kernels are compiled, if they are not there: minutes", flush=True)
    shutil.copyfile(cross_compiled(target, folder / "kernels"), tree / "siafu" / "kernels" / "_native.so")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LD_LIBRARY_PATH": str(emulator / "usr/lib/x86_64-linux-gnu"),
    }
    inside = {"LD_LIBRARY_PATH": "/usr/lib/aarch64-linux-gnu", "PYTHONPATH": f"{tree}:{folder / 'packages'}"}
    return subprocess.run(
        [
            str(emulator / "usr/bin/qemu-aarch64"),
            *("-L", str(root)),
            *(word for name, value in inside.items() for word in ("-E", f"{name}={value}")),
            *(str(root / "usr/bin" / our_runtime()), "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-o", "addopts=--timeout 3600 -m '(sampled or not long) and not slow'"),
            *(rest or TESTS),
        ],
        cwd=tree,
        env=environment,
        check=False,
    ).returncode


def _unpacked(arch: str, names: Sequence[str], into: Path) -> None:
    """Debian's packages for ``arch``, in a tree of their own; apt's lists are kept apart from this machine's."""
    if into.is_dir():
        return
    print(f"{arch}: {len(names)} packages of Debian's archive", flush=True)
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into.parent) as draft:
        for name in ("lists/partial", "cache/archives/partial", "debs", "tree"):
            Path(draft, name).mkdir(parents=True)
        Path(draft, "status").touch()
        options = {
            "APT::Architecture": arch,
            "APT::Architectures": arch,
            "APT::Sandbox::User": "root",
            "Dir::State": draft,
            "Dir::State::lists": f"{draft}/lists",
            "Dir::State::status": f"{draft}/status",
            "Dir::Cache": f"{draft}/cache",
        }
        apt = ["apt-get", "-q", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
        subprocess.run([*apt, "update"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([*apt, "download", *names], check=True, stdout=subprocess.DEVNULL, cwd=Path(draft, "debs"))
        for package in sorted(Path(draft, "debs").glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", str(package), f"{draft}/tree"], check=True)
        Path(draft, "tree").replace(into)


def _packages(target: Target, folder: Path) -> None:
    """The versions that are installed here, for ``target``."""
    if (folder / "packages").is_dir():
        return
    print(f"arm64: {len(PACKAGES)} wheels", flush=True)
    with tempfile.TemporaryDirectory(dir=folder) as draft:
        for name in PACKAGES:
            fetched = wheel(target, name, importlib.metadata.version(name), folder / "wheels")
            with zipfile.ZipFile(fetched) as file:
                file.extractall(Path(draft, "packages"))
        Path(draft, "packages").replace(folder / "packages")


if __name__ == "__main__":
    sys.exit(main())
