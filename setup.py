"""Builds the compiled kernels (siafu/kernels/src) with whatever C++ compiler there is; everything else is in pyproject.toml.

One shared library, called through ctypes: no Python header is needed, and one build serves every Python. A source of
``PER_ISA`` is compiled once for each instruction set of the machine's architecture, and siafu picks at run time what the
processor has, so that a library built on one x86 server runs on all of them. With SIAFU_ISAS=native in the environment only
this machine's best is compiled, in a third of the time. Without a compiler the installation succeeds all the same: siafu
then computes with SciPy, slower, and ``siafu doctor`` says so.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

FOLDER = Path("siafu/kernels/src")
IN_TREE = FOLDER.with_name("_native.so")  # where an editable installation leaves it
#: Compiled once per instruction set; they use no templates of the standard library, which the linker would merge.
PER_ISA = (
    "gather_rows",
    "pack_rows",
    "attention_rows",
    "dense_rows",
    "quantise_rows",
    "dropout_rows",
    "functions_rows",
    "plain_rows",
)
LONGEST = ("attention_rows", "gather_rows")  # to compile: first, so that nothing is left to wait for at the end
#: Compiled once, for any processor: threads, the choice of the instruction set, and what needs no vectors.
COMMON = (
    "threads",
    "isa",
    "limits",
    "gather",
    "pack",
    "attention",
    "dense",
    "order",
    "checksum",
    "quantise",
    "dropout",
    "functions",
    "plain",
)

FLAGS = [
    "-std=c++17",
    "-O3",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",  # a product and a sum are one operation only where src/fused.hpp says so
    "-pthread",
    "-Wall",
    "-Wno-psabi",  # vectors wider than the processor's are passed between inlined functions alone
    "-g0",
]
X86 = {
    "scalar": [],
    "avx2": ["-mavx2", "-mfma", "-mf16c", "-mbmi2"],
    "avx512": [
        "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512cd", "-mavx2", "-mfma", "-mf16c", "-mbmi2",
        "-mprefer-vector-width=512",
    ],
    "avx512bf16": [
        "-mavx512bf16", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512cd", "-mavx2", "-mfma", "-mf16c",
        "-mbmi2", "-mprefer-vector-width=512",
    ],
}  # fmt: skip
#: By the number that siafu/kernels/src/isa.hpp gives them.
ISAS = ("scalar", "neon", "avx2", "avx512", "avx512bf16")
#: Where nothing is multiplied in bfloat16, one set's functions are the other's.
RESTS_ON = {"avx512bf16": "avx512"}
#: NEON is part of every 64-bit arm processor: the compiler's own vectors become NEON.
ARM = {"neon": []}


def instruction_sets() -> dict[str, list[str]]:
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        return X86
    return ARM if machine in ("aarch64", "arm64") else {"scalar": []}


def sources_digest() -> str:
    """What ``siafu.kernels.library`` compares, so that a library of older sources is not called with newer structures."""
    digest = hashlib.sha256()
    for file in sorted(FOLDER.glob("*.[ch]pp")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def is_new(library: Path, wanted: Iterable[str]) -> bool:
    """Whether all that would be compiled is in it, which takes minutes: an extra that is installed later needs it no second
    time."""
    try:
        if library.stat().st_mtime < Path(__file__).stat().st_mtime:  # perhaps with other flags
            return False
        found = ctypes.CDLL(str(library.resolve()))  # another machine's is not loaded
        found.siafu_sources.restype = ctypes.c_char_p
        has_all = all(found.siafu_built() >> ISAS.index(isa) & 1 for isa in wanted)
        return has_all and bool(found.siafu_sources().decode() == sources_digest())
    except (OSError, AttributeError):
        return False


class BuildKernels(build_ext):
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
        every = instruction_sets()
        if os.environ.get("SIAFU_ISAS", "all") == "all":
            return every
        best = self._best()
        return {isa: flags for isa, flags in every.items() if isa == best or isa == RESTS_ON.get(best)}

    def _best(self) -> str:
        """This machine's, in the words of the code that will choose."""
        probe = Path(self.build_temp, "best.so").absolute()
        made = self.compiler.compile(
            [str(FOLDER / "isa.cpp")], output_dir=f"{self.build_temp}/probe", macros=[("SIAFU_SOURCES", '""')],
            include_dirs=[str(FOLDER)], extra_postargs=FLAGS,
        )  # fmt: skip
        self.compiler.link_shared_object(made, str(probe), target_lang="c++")
        return ISAS[ctypes.CDLL(str(probe)).siafu_best()]

    def build_extension(self, ext: Extension) -> None:
        path = Path(self.get_ext_fullpath(ext.name))
        path.parent.mkdir(parents=True, exist_ok=True)
        if is_new(IN_TREE, self._wanted):
            shutil.copy2(IN_TREE, path)
            return
        if "avx512bf16" in self._wanted and not self._knows_bf16:
            print("siafu: this compiler has no AVX512_BF16: AVX-512 stands in for it", file=sys.stderr)
        built = [(f"SIAFU_HAS_{isa.upper()}", "1") for isa in self._wanted]
        units = [(name, "common", [], [("SIAFU_SOURCES", f'"{sources_digest()}"'), *built]) for name in COMMON]
        for isa, flags in self._wanted.items():
            macros = [("SIAFU_ISA", isa), (f"SIAFU_{isa.upper()}", "1")]
            units += [(name, isa, flags, macros) for name in PER_ISA]
        units.sort(key=lambda unit: unit[0] not in LONGEST)
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:  # the compiler is a process of its own
            objects = list(pool.map(lambda unit: self._compile(*unit), units))
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        self.compiler.link_shared_object(
            objects, str(draft), extra_postargs=["-pthread"], build_temp=self.build_temp, target_lang="c++"
        )
        draft.replace(path)  # a process that has the old one mapped keeps it

    def _compile(self, name: str, folder: str, flags: list[str], macros: list[tuple[str, str]]) -> str:
        if folder == "avx512bf16" and not self._knows_bf16:
            flags, macros = X86["avx512"], [("SIAFU_ISA", folder), ("SIAFU_AVX512", "1")]
        made: list[str] = self.compiler.compile(
            [str(FOLDER / f"{name}.cpp")], output_dir=f"{self.build_temp}/{folder}", macros=macros,
            include_dirs=[str(FOLDER)], extra_postargs=FLAGS + flags,
        )  # fmt: skip
        return made[0]

    def get_ext_filename(self, fullname: str) -> str:
        """``_native.so``: no Python's tag, for it is no Python module."""
        return str(Path(*fullname.split("."))) + ".so"

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            print(
                f"siafu: the compiled kernels could not be built ({error}); SciPy will do their work", file=sys.stderr
            )


# ``optional``: a compiler's error is a warning of the build, never a failed installation.
setup(
    ext_modules=[Extension("siafu.kernels._native", sources=[], optional=True)],
    cmdclass={"build_ext": BuildKernels},
)
