"""Builds the compiled kernels (siafu/kernels/src) with whatever C++ compiler there is;
everything else is in pyproject.toml.

One shared library, called through ctypes: no Python header is needed, and one build serves every Python. What
is compiled, by which compiler and with which flags, is in siafu/kernels/build.py: most sources once for each
instruction set of the machine's architecture. siafu picks at run time what the processor has, so that a library
built on one x86 server runs on all of them; for a checkout (``pip install -e``), only this machine's best is compiled.
SIAFU_LIBRARY=FILE takes a library that was compiled elsewhere (``infra.distributions``), SIAFU_LIBRARY=none leaves it
to another process (the Makefile). Without a compiler the installation succeeds all the same: siafu then computes with
SciPy, slower, and ``siafu doctor`` says so.
"""

from __future__ import annotations

import os
import runpy
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

KERNELS = Path("siafu/kernels")
#: siafu cannot be imported yet.
build = SimpleNamespace(**runpy.run_path(str(KERNELS / "build.py")))
elf = SimpleNamespace(**runpy.run_path(str(KERNELS / "elf.py")))


class BuildKernels(build_ext):
    def build_extension(self, ext: Extension) -> None:
        path = Path(self.get_ext_fullpath(ext.name))
        path.parent.mkdir(parents=True, exist_ok=True)
        if ready := os.environ.get("SIAFU_LIBRARY"):
            if ready != "none":
                shutil.copy2(ready, path)
            return
        build.build(path, "native" if self.editable_mode else "all")

    def get_ext_filename(self, fullname: str) -> str:
        """``_native.so``: no Python's tag, for it is no Python module."""
        return str(Path(*fullname.split("."))) + ".so"

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            print(f"siafu: the kernels could not be compiled ({error}); SciPy will do their work", file=sys.stderr)


class Wheel(bdist_wheel):
    """For every Python 3: what it has compiled is no Python module."""

    @property
    def _library(self) -> Path:
        return Path(self.get_finalized_command("build").build_lib, "siafu", "kernels", "_native.so")

    def run(self) -> None:
        self.run_command("build")
        if not self._library.is_file():  # no compiler: nothing in it depends on the machine
            self.root_is_pure, self.distribution.ext_modules = True, []
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        if not self._library.is_file():  # the wheel of an editable installation has none either
            return "py3", "none", "any"
        try:
            platform_tag = elf.platform_tag(self._library.read_bytes())
        except ValueError:  # not of Linux
            platform_tag = super().get_tag()[2]
        if os.environ.get("SIAFU_ISAS", "all") != "all":  # for this machine's processor
            platform_tag = platform_tag.replace("manylinux_2_28", "linux")
        return "py3", "none", platform_tag


# ``optional``: a compiler's error is a warning of the build, never a failed installation.
setup(
    ext_modules=[Extension("siafu.kernels._native", sources=[], optional=True)],
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": Wheel},
)
