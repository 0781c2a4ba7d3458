"""Builds the compiled kernels (siafu/kernels/src) with whatever C++ compiler there is;
everything else is in pyproject.toml.

One shared library, called through ctypes: no Python header is needed, and one build serves every Python. What
is compiled, and with which flags, is in siafu/kernels/build.py: most sources once for each instruction set of
the machine's architecture. siafu picks at run time what the processor has, so that a library built on one x86
server runs on all of them. With SIAFU_ISAS=native in the environment, and for a checkout (``pip install -e``,
``setup.py build_ext --inplace``) without SIAFU_ISAS=all, only this machine's best is compiled, in a third of the time.
SIAFU_LIBRARY=FILE takes a library that was compiled elsewhere (``infra.distributions``), SIAFU_LIBRARY=none leaves it
to another process (the Makefile). Without a compiler the installation succeeds all the same: siafu then computes with
SciPy, slower, and ``siafu doctor`` says so.
"""

from __future__ import annotations

import ctypes
import os
import platform
import runpy
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

BUILD = Path("siafu/kernels/build.py")
#: What is compiled and how, which siafu reads as well. siafu cannot be imported yet.
build = SimpleNamespace(**runpy.run_path(str(BUILD)))
elf = SimpleNamespace(**runpy.run_path(str(BUILD.with_name("elf.py"))))
SAY_EVERY_S = 5.0
IN_TREE = BUILD.with_name("_native.so")  # where an editable installation leaves it


def loaded(library: Path) -> ctypes.CDLL | None:
    """The library, if it was made of these sources and flags and for a machine like this."""
    try:
        if library.stat().st_mtime < max(Path(__file__).stat().st_mtime, BUILD.stat().st_mtime):  # perhaps other flags
            return None
        found = ctypes.CDLL(str(library.resolve()))  # another machine's is not loaded
        found.siafu_sources.restype = ctypes.c_char_p
        return found if found.siafu_sources().decode() == build.sources_digest() else None
    except (OSError, AttributeError):
        return None


def is_new(library: Path, wanted: Iterable[str]) -> bool:
    """Whether all that would be compiled is in it, which takes minutes: an extra that is
    installed later needs it no second time."""
    found = loaded(library)
    return found is not None and all(found.siafu_built() >> build.ISAS.index(isa) & 1 for isa in wanted)


def say_how_far(compiling: Sequence[Future[str]]) -> None:
    """Until all are done: the longest takes ten seconds, and the Makefile shows these lines."""
    left, begin = set(compiling), time.monotonic()
    while left:
        done = len(compiling) - len(left)
        waited_s = time.monotonic() - begin
        # In one piece: the compiler's commands are printed by other threads.
        sys.stdout.write(f"siafu: compiling the kernels, {done} of {len(compiling)} files, {waited_s:.0f} s\n")
        sys.stdout.flush()
        left = wait(left, timeout=SAY_EVERY_S).not_done


class BuildKernels(build_ext):
    _in_place = False

    @cached_property
    def _knows_bf16(self) -> bool:
        """Whether the compiler does: GCC from 10 on. Else AVX-512 stands in."""
        probe = Path(self.build_temp, "probe.cpp")
        probe.parent.mkdir(parents=True, exist_ok=True)
        probe.write_text("int probe() { return 0; }\n")
        try:
            self.compiler.compile([str(probe)], self.build_temp, extra_postargs=["-mavx512bf16"])
        except CompileError:
            return False
        return True

    @cached_property
    def _wanted(self) -> dict[str, list[str]]:
        every = build.instruction_sets(platform.machine())
        # An extra, installed later into a checkout, does not ask for more.
        default = "native" if self.editable_mode or self._in_place else "all"
        if os.environ.get("SIAFU_ISAS", default) == "all":
            return every
        best = self._best()
        return {isa: flags for isa, flags in every.items() if isa == best or isa == build.RESTS_ON.get(best)}

    def _best(self) -> str:
        """This machine's, in the words of the code that will choose."""
        if (there := loaded(IN_TREE)) is not None:
            return str(build.ISAS[there.siafu_best()])
        probe = Path(self.build_temp, "best.so").absolute()
        made = self.compiler.compile(
            [str(build.FOLDER / "isa.cpp")],
            output_dir=f"{self.build_temp}/probe",
            macros=[("SIAFU_SOURCES", '""')],
            include_dirs=[str(build.FOLDER)],
            extra_postargs=build.FLAGS,
        )
        self.compiler.link_shared_object(made, str(probe), target_lang="c++")
        return str(build.ISAS[ctypes.CDLL(str(probe)).siafu_best()])

    def build_extension(self, ext: Extension) -> None:
        path = Path(self.get_ext_fullpath(ext.name))
        path.parent.mkdir(parents=True, exist_ok=True)
        if ready := os.environ.get("SIAFU_LIBRARY"):
            if ready != "none":
                shutil.copy2(ready, path)
            return
        if is_new(IN_TREE, self._wanted):
            shutil.copy2(IN_TREE, path)
            return
        if "avx512bf16" in self._wanted and not self._knows_bf16:
            print("siafu: this compiler has no AVX512_BF16: AVX-512 stands in for it", file=sys.stderr)
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:  # the compiler is a process of its own
            compiling = [pool.submit(self._compile, unit) for unit in build.units(self._wanted)]
            say_how_far(compiling)
            objects = [one.result() for one in compiling]
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        self.compiler.link_shared_object(
            objects, str(draft), extra_postargs=["-pthread"], build_temp=self.build_temp, target_lang="c++"
        )
        draft.replace(path)  # a process that has the old one mapped keeps it

    def _compile(self, unit: Any) -> str:
        """``unit``: a Unit of siafu/kernels/build.py."""
        name, folder, flags, macros = unit
        if folder == "avx512bf16" and not self._knows_bf16:
            flags, macros = build.X86["avx512"], [("SIAFU_ISA", folder), ("SIAFU_AVX512", "1")]
        made: list[str] = self.compiler.compile(
            [str(build.FOLDER / f"{name}.cpp")],
            output_dir=f"{self.build_temp}/{folder}",
            macros=macros,
            include_dirs=[str(build.FOLDER)],
            extra_postargs=build.FLAGS + flags,
        )
        return made[0]

    def get_ext_filename(self, fullname: str) -> str:
        """``_native.so``: no Python's tag, for it is no Python module."""
        return str(Path(*fullname.split("."))) + ".so"

    def run(self) -> None:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a shell's background: Ctrl-C ends compilers too
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        self._in_place = bool(self.inplace)  # setuptools builds elsewhere all the same, and copies at its end
        try:
            super().run()
        except Exception as error:
            print(
                f"siafu: the compiled kernels could not be built ({error}); SciPy will do their work", file=sys.stderr
            )


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
