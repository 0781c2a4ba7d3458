"""Compiles the kernels: sources, instruction sets, flags, macros and compiler, for ``setup.py`` and for
``infra.kernels``.

    python -I siafu/kernels/build.py      compiles them in a checkout, before anything is installed (the Makefile)

No other file defines them. ``setup.py`` runs this file by its path, before siafu can be imported, and this file runs
``siafu/allotment.py`` in the same way: neither imports a package. SIAFU_ISAS in the environment: ``all`` instruction
sets, or ``native``: only this machine's best, in a third of the time. CXX, CXXFLAGS and LDFLAGS are used.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).with_name("src")
#: Compiled once per instruction set; they use no templates of the standard library, which the linker would merge.
PER_ISA = (
    "gather_rows",
    "pack_rows",
    "attention_rows",
    "attention_forward_float",
    "attention_forward_bfloat16",
    "attention_backward_float",
    "attention_backward_bfloat16",
    "dense_rows",
    "quantise_rows",
    "dropout_rows",
    "functions_rows",
    "plain_rows",
    "pairs_rows",
)
#: The longest to compile: they are compiled first, so that the build does not wait for one of them at the end.
LONGEST = (
    "gather_rows",
    "attention_forward_float",
    "attention_forward_bfloat16",
    "attention_backward_float",
    "attention_backward_bfloat16",
    "dense_rows",
)
#: Compiled once, for any processor: threads, the choice of the instruction set, and code without vectors.
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
    "pairs",
)

#: Flags that both GCC and clang know.
FLAGS = [
    "-std=c++17",
    "-O3",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",  # only src/fused.hpp fuses products and sums
    "-pthread",
    "-Wall",
    "-Wno-psabi",  # vectors wider than the processor's are passed between inlined functions alone
    "-g0",
]
_AVX2 = ["-mavx2", "-mfma", "-mf16c", "-mbmi2"]
_AVX512 = ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512cd", *_AVX2, "-mprefer-vector-width=512"]
_AVX512_BF16 = ["-mavx512bf16", *_AVX512]
_AMX = ["-mamx-tile", "-mamx-bf16", *_AVX512_BF16]
X86 = {"scalar": [], "avx2": _AVX2, "avx512": _AVX512, "avx512bf16": _AVX512_BF16, "amx": _AMX}
#: Instruction sets by their number in siafu/kernels/src/isa.hpp.
ISAS = ("scalar", "neon", "avx2", "avx512", "avx512bf16", "amx")
#: Instruction set -> the set that it uses for everything but products of bfloat16.
RESTS_ON = {"avx512bf16": "avx512", "amx": "avx512"}
#: NEON is part of every 64-bit arm processor: the compiler's own vectors become NEON.
ARM: dict[str, list[str]] = {"neon": []}


class Unit(NamedTuple):
    """One call of the compiler: ``name``.cpp becomes an object of that name in ``folder``."""

    name: str
    folder: str  # "common" or an instruction set
    flags: list[str]  # besides FLAGS
    macros: list[tuple[str, str]]


def instruction_sets(machine: str) -> dict[str, list[str]]:
    """Returns name -> flags of the instruction sets that ``machine``, a ``platform.machine()``, may have."""
    machine = machine.lower()
    if machine in ("x86_64", "amd64"):
        return X86
    return ARM if machine in ("aarch64", "arm64") else {"scalar": []}


def units(sets: dict[str, list[str]]) -> list[Unit]:
    """Returns all units for these instruction sets, in the order of compilation; their objects make one library."""
    built = [(f"SIAFU_HAS_{isa.upper()}", "1") for isa in sets]
    found = [Unit(name, "common", [], [("SIAFU_SOURCES", f'"{sources_digest()}"'), *built]) for name in COMMON]
    for isa, flags in sets.items():
        # A set that rests on another may have the flags of a lower one, which stands in for it.
        has = next(name for name, known in X86.items() if known == flags) if isa in RESTS_ON else isa
        macros = [("SIAFU_ISA", isa), (f"SIAFU_{has.upper()}", "1")]
        names = ["dense_rows"] if isa in RESTS_ON else PER_ISA
        found += [Unit(name, isa, flags, macros) for name in names]
    return sorted(found, key=lambda unit: unit.name not in LONGEST)


def sources_digest() -> str:
    """Returns a digest of the sources. ``siafu.kernels.library`` compares it, so that a library of older sources is not
    called with newer structures."""
    digest = hashlib.sha256()
    for file in sorted(FOLDER.glob("*.[ch]pp")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


# --- compiling --------------------------------------------------------------------------------------------------------

IN_TREE = FOLDER.with_name("_native.so")  # the library in a checkout
SAY_EVERY_S = 5.0


class CompileError(Exception):
    """Compiling failed: the message is the compiler's first error, or says that there is no compiler."""


class Compiler(NamedTuple):
    """A C++ compiler: the command, and its flags before FLAGS. FLAGS override them: conda's CXXFLAGS have -O2."""

    command: Sequence[str]
    flags: Sequence[str]
    link: Sequence[str]
    environment: Mapping[str, str] | None = None
    timeout_s: float | None = None

    @classmethod
    def of_this_machine(cls) -> Compiler:
        """Returns the compiler CXX, or the first one installed. Raises: CompileError without one."""
        there = [name for name in ("c++", "g++", "clang++") if shutil.which(name)]
        command = shlex.split(os.environ.get("CXX", "")) or there[:1]
        if not command:
            raise CompileError("there is no C++ compiler: g++ or clang++")
        flags, link = (shlex.split(os.environ.get(name, "")) for name in ("CXXFLAGS", "LDFLAGS"))
        return cls(command, ("-fPIC", *flags), ("-fPIC", "-shared", *flags, *link))

    def run(self, *words: str) -> None:
        """Runs the compiler in the folder of the sources, so that its output contains no path. Raises: CompileError."""
        try:
            ended = subprocess.run(
                [*self.command, *words],
                cwd=FOLDER,
                env=self.environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self.timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CompileError(f"{words[-3]} is not compiled after {self.timeout_s:g} s") from None
        except OSError as error:
            raise CompileError(f"{self.command[0]}: {error.strerror}") from None
        if ended.returncode:
            lines = ended.stderr.strip().splitlines() or ["no output"]
            raise CompileError(next((line for line in lines if "error:" in line), lines[-1])[:300])

    def knows(self, flag: str) -> bool:
        try:
            self.run(flag, "-fsyntax-only", "-x", "c++", os.devnull)
        except CompileError:
            return False
        return True

    def library(self, units: Sequence[Unit], out: Path, jobs: int, *, says: bool = False) -> None:
        """Compiles these units into a library at ``out``, by ``jobs`` processes, in a folder beside it. Processes that
        have an older library mapped keep it. says: prints the progress every few seconds. Raises: CompileError."""
        with tempfile.TemporaryDirectory(dir=out.absolute().parent, prefix=".draft-") as folder:
            draft = Path(folder)
            with ThreadPoolExecutor(jobs) as pool:  # the compiler is a process of its own
                compiling = [pool.submit(self._object, unit, draft) for unit in units]
                try:
                    self._follow(compiling, says)
                finally:
                    pool.shutdown(wait=False, cancel_futures=True)
            self.run(*self.link, *FLAGS, *(one.result() for one in compiling), "-o", str(draft / "library.so"))
            (draft / "library.so").replace(out)

    def _follow(self, compiling: Sequence[Future[str]], says: bool) -> None:
        """Waits until all units are compiled; raises the error of the first that failed."""
        begin, left = time.monotonic(), set(compiling)
        while left:
            if says:
                done, waited_s = len(compiling) - len(left), time.monotonic() - begin
                print(f"siafu: compiling the kernels, {done} of {len(compiling)} files, {waited_s:.0f} s", flush=True)
            left = wait(left, SAY_EVERY_S, FIRST_EXCEPTION).not_done
            for one in set(compiling) - left:
                one.result()

    def _object(self, unit: Unit, draft: Path) -> str:
        out = str(draft / f"{unit.folder}-{unit.name}.o")
        macros = [f"-D{name}={value}" for name, value in unit.macros]
        self.run(*self.flags, *FLAGS, *unit.flags, *macros, "-c", f"{unit.name}.cpp", "-o", out)
        return out


def build(out: Path, default: str) -> None:
    """Builds this machine's library at ``out``. If IN_TREE has all of it, it is copied instead, so that installing an
    extra later compiles nothing again. default: of SIAFU_ISAS. Raises: CompileError."""
    sets = instruction_sets(platform.machine())
    if os.environ.get("SIAFU_ISAS", default) != "all":
        there = loaded(IN_TREE)
        best = ISAS[_best(Compiler.of_this_machine()) if there is None else there.siafu_best()]
        sets = {isa: flags for isa, flags in sets.items() if isa in (best, RESTS_ON.get(best))}
    if is_new(IN_TREE, sets):
        if out != IN_TREE:
            shutil.copy2(IN_TREE, out)
        return
    compiler = Compiler.of_this_machine()
    stand_in = "avx512"
    for isa in RESTS_ON if RESTS_ON.keys() & sets else ():  # GCC knows AVX512_BF16 from 10 on, AMX from 11 on
        if compiler.knows(X86[isa][0]):
            stand_in = isa
        elif isa in sets:
            print(f"siafu: this compiler has no {isa}: {stand_in} stands in for it", file=sys.stderr)
            sets = {**sets, isa: X86[stand_in]}
    cores = runpy.run_path(str(Path(__file__).parents[1] / "allotment.py"))["cores"]
    compiler.library(units(sets), out, cores(), says=True)


def loaded(library: Path) -> ctypes.CDLL | None:
    """Loads the library; None unless it was made of these sources and flags, and for this kind of machine."""
    try:
        if library.stat().st_mtime < Path(__file__).stat().st_mtime:  # perhaps other flags
            return None
        found = ctypes.CDLL(str(library.resolve()))  # another machine's is not loaded
        found.siafu_sources.restype = ctypes.c_char_p
        return found if found.siafu_sources().decode() == sources_digest() else None
    except (OSError, AttributeError):
        return None


def is_new(library: Path, wanted: Iterable[str]) -> bool:
    """Whether the library is current and has all of these instruction sets."""
    found = loaded(library)
    return found is not None and all(found.siafu_built() >> ISAS.index(isa) & 1 for isa in wanted)


def _best(compiler: Compiler) -> int:
    """Returns the number of this machine's best instruction set, from the same code that chooses it at run time."""
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder, "probe.so")
        compiler.library([Unit("isa", "common", [], [("SIAFU_SOURCES", '""')])], probe, 1)
        return int(ctypes.CDLL(str(probe)).siafu_best())


def main() -> None:
    """Builds the kernels in the checkout. If that fails, siafu computes with SciPy."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a shell's background: Ctrl-C must end compilers too
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # which removes the draft
    try:
        build(IN_TREE, "native")
    except (CompileError, OSError) as error:
        print(f"siafu: the kernels could not be compiled ({error}); SciPy will do their work", file=sys.stderr)


if __name__ == "__main__":
    main()
