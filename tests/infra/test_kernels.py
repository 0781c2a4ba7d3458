"""infra.kernels: cross-compiled by a zig that only writes down what it is told; by the real one in a long test."""

from __future__ import annotations

import importlib.metadata
import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from setuptools import Distribution

from infra import kernels
from infra.imports import ROOT
from infra.wheels import Target
from siafu import extras
from siafu.errors import ConfigError
from siafu.kernels import build, elf

ARM = Target("arm64", "python3.11", 26)
FAKE = """
import os, sys
words = sys.argv[1:]
with open(os.path.join(os.path.dirname(__file__), "calls"), "a") as calls:
    calls.write(" ".join(words) + "\\n")
if os.path.basename(sys.argv[-3]) == "REFUSED.cpp":
    sys.exit("one.cpp:2:3: warning: so so\\none.cpp:4:5: error: no such thing\\n1 error generated.")
with open(words[words.index("-o") + 1], "w") as made:
    made.write("made")
"""


class FakeZig:
    """A package ``ziglang`` in ``folder``, before any other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, version: str = "0.17.1", refused: str = "nothing") -> None:
        (self.folder / "ziglang").mkdir(parents=True, exist_ok=True)
        program = self.folder / "ziglang" / "zig"
        program.write_text(f"#!{sys.executable} -IS{FAKE.replace('REFUSED', refused)}")
        program.chmod(0o755)
        described = self.folder / "ziglang-1.dist-info"
        described.mkdir(exist_ok=True)
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: ziglang\nVersion: {version}\n")

    @property
    def calls(self) -> list[str]:
        return (self.folder / "ziglang" / "calls").read_text().splitlines()


@pytest.fixture
def zig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeZig:
    fake = FakeZig(tmp_path / "site")
    fake.install()
    monkeypatch.syspath_prepend(str(fake.folder))
    return fake


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


# --- the description --------------------------------------------------------------------------------------------------


def test_every_source_is_compiled():
    assert sorted((*build.COMMON, *build.PER_ISA)) == sorted(path.stem for path in build.FOLDER.glob("*.cpp"))


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """setup.py's names."""
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    monkeypatch.chdir(ROOT)
    return runpy.run_path("setup.py")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[build.Unit]:
    """What is compiled on a machine with AVX512_BF16 by a compiler that only notes it."""
    noted: list[build.Unit] = []
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(build, "loaded", lambda _: None)
    monkeypatch.setattr(build, "_best", lambda _: build.ISAS.index("avx512bf16"))
    monkeypatch.setattr(build.Compiler, "library", lambda _, units, *__, **___: noted.extend(units))
    monkeypatch.delenv("SIAFU_ISAS", raising=False)
    return noted


@pytest.mark.parametrize(("editable", "default"), [(True, "native"), (False, "all")])
def test_an_editable_installation_is_for_this_machine_alone(monkeypatch, tmp_path, setup, editable, default):
    calls = []
    monkeypatch.setattr(setup["build"], "build", lambda path, sets: calls.append((path, sets)))
    command = setup["BuildKernels"](Distribution())
    command.build_lib, command.editable_mode = str(tmp_path), editable
    command.build_extension(SimpleNamespace(name="siafu.kernels._native"))
    (call,) = calls
    assert call[1] == default
    assert call[0].name == "_native.so"
    assert call[0].parent.is_dir()


@pytest.mark.parametrize(
    ("asked", "default", "expected"),
    [
        (None, "native", {"avx512", "avx512bf16"}),
        ("all", "native", set(build.X86)),
        (None, "all", set(build.X86)),
        ("native", "all", {"avx512", "avx512bf16"}),
    ],
)
def test_the_instruction_sets_are_those_that_were_asked_for(monkeypatch, tmp_path, compiled, asked, default, expected):
    """An extra installed into what make setup made asked for all sets, and compiled for minutes."""
    if asked is not None:
        monkeypatch.setenv("SIAFU_ISAS", asked)
    build.build(tmp_path / "made.so", default)
    assert {unit.folder for unit in compiled} == expected | {"common"}


@pytest.mark.parametrize(
    ("machine", "knows", "stand_in"),
    [("avx512bf16", "", "avx512"), ("amx", "", "avx512"), ("amx", "-mavx512bf16", "avx512bf16")],
)
def test_a_lower_set_stands_in_for_one_that_the_compiler_lacks(
    monkeypatch, tmp_path, compiled, capsys, machine, knows, stand_in
):
    monkeypatch.setattr(build, "_best", lambda _: build.ISAS.index(machine))
    monkeypatch.setattr(build.Compiler, "knows", lambda _, flag: flag == knows)
    build.build(tmp_path / "made.so", "native")
    (own,) = (unit for unit in compiled if unit.folder == machine)
    assert own.flags == build.X86[stand_in]
    assert own.macros == [("SIAFU_ISA", machine), (f"SIAFU_{stand_in.upper()}", "1")]
    assert capsys.readouterr().err == f"siafu: this compiler has no {machine}: {stand_in} stands in for it\n"


@pytest.mark.parametrize("elsewhere", ["none", "ready.so"])
def test_a_library_that_is_compiled_elsewhere_is_not_compiled(monkeypatch, tmp_path, setup, elsewhere):
    (tmp_path / "ready.so").write_text("compiled")
    monkeypatch.setenv("SIAFU_LIBRARY", "none" if elsewhere == "none" else str(tmp_path / elsewhere))
    command = setup["BuildKernels"](Distribution())
    command.build_lib = str(tmp_path / "lib")
    monkeypatch.setattr(setup["build"], "build", None)
    command.build_extension(SimpleNamespace(name="siafu.kernels._native"))
    made = [file.read_text() for file in (tmp_path / "lib").rglob("*.so")]
    assert made == ([] if elsewhere == "none" else ["compiled"])


def test_one_library_of_all_units_by_the_compiler_of_the_environment(monkeypatch, tmp_path, zig):
    """And what was mapped stays: another file takes its place."""
    monkeypatch.setenv("CXX", f"{zig.folder / 'ziglang' / 'zig'} c++")
    monkeypatch.setenv("CXXFLAGS", "-DMINE='a b' -O0")
    monkeypatch.setenv("LDFLAGS", "-lmine")
    out = tmp_path / "made.so"
    out.write_text("older")
    units = build.units(build.instruction_sets("riscv64"))
    with out.open() as mapped:
        build.Compiler.of_this_machine().library(units, out, 2)
        assert (out.read_text(), mapped.read()) == ("made", "older")
    *compiled, linked = zig.calls
    flags = " ".join(build.FLAGS)
    for unit in units:
        macros = " ".join(f"-D{name}={value}" for name, value in unit.macros)
        assert any(
            call.startswith(f"c++ -fPIC -DMINE=a b -O0 {flags} {macros} -c {unit.name}.cpp") for call in compiled
        )
    assert linked.startswith(f"c++ -fPIC -shared -DMINE=a b -O0 -lmine {flags} ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made.so", "site"]


@pytest.mark.parametrize("compiler", ["", "/nowhere/c++"])
def test_without_a_compiler_one_line_says_so(monkeypatch, tmp_path, capsys, compiler):
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(build, "loaded", lambda _: None)
    build.main()
    why = f"{compiler}: No such file or directory" if compiler else "there is no C++ compiler: g++ or clang++"
    expected = f"siafu: the kernels could not be compiled ({why}); SciPy will do their work\n"
    assert capsys.readouterr().err == expected


# --- cross-compiling --------------------------------------------------------------------------------------------------


def test_all_units_are_compiled_for_the_target_and_linked(zig, cache):
    made = kernels.cross_compiled(ARM, cache)
    assert made.read_text() == "made"
    assert [path.name for path in cache.iterdir()] == [made.name]
    *compiled, linked = zig.calls
    assert len(compiled) == len(build.COMMON) + len(build.PER_ISA)
    assert all(" -ffp-contract=off " in call and " -fno-sanitize=undefined " in call for call in compiled)
    assert all(call.startswith("c++ -target aarch64-linux-gnu.2.26 ") for call in zig.calls)
    assert len(re.findall(r"\S+\.o ", linked)) == len(compiled)


def test_all_sets_of_x86_are_compiled(zig, cache):
    kernels.cross_compiled(Target("x86_64", "python3.12", 34), cache)
    for isa in build.X86:
        own = 1 if isa in build.RESTS_ON else len(build.PER_ISA)
        assert len([call for call in zig.calls if f"-DSIAFU_ISA={isa} " in call]) == own
        assert len([call for call in zig.calls if f"-DSIAFU_HAS_{isa.upper()}=1 " in call]) == len(build.COMMON)


def test_a_library_is_compiled_once_for_a_target_and_a_zig(zig, cache, monkeypatch):
    monkeypatch.setattr(build, "COMMON", ("isa",))
    monkeypatch.setattr(build, "PER_ISA", ("dense_rows",))
    first = kernels.cross_compiled(ARM, cache)
    assert kernels.cross_compiled(ARM, cache) == first
    assert len(zig.calls) == 3
    others = {kernels.cross_compiled(Target("arm64", "python3.12", 34), cache)}
    zig.install("0.18.0")
    others |= {kernels.cross_compiled(ARM, cache)}
    assert len(zig.calls) == 9
    assert len(others - {first}) == 2


def test_without_ziglang_the_error_says_what_to_install(monkeypatch, cache):
    def distribution(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    with pytest.raises(ConfigError) as caught:
        kernels.cross_compiled(ARM, cache)
    assert str(caught.value) == (
        "ziglang, which compiles the kernels of the function's package, is not installed: " + extras.install("infra")
    )


def test_what_the_compiler_refuses_is_said_and_not_kept(zig, cache):
    zig.install(refused="order")
    expected = (
        r"^zig cannot compile the function's kernels: one.cpp:4:5: error: no such thing; "
        + re.escape(extras.install("infra"))
        + " brings the zig that can$"
    )
    with pytest.raises(ConfigError, match=expected):
        kernels.cross_compiled(ARM, cache)
    assert list(cache.iterdir()) == []


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_library_for_arm_needs_nothing_but_the_oldest_runtimes_c_library(cache):
    try:
        data = kernels.cross_compiled(ARM, cache).read_bytes()
    except ConfigError as error:
        if "not installed" not in str(error):
            raise
        pytest.skip(str(error))
    machine, libraries, strings = elf.needs(data)
    assert elf.MACHINES[machine] == "aarch64"
    assert libraries <= {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-aarch64.so.1"}
    assert max(int(text.removeprefix("GLIBC_2.")) for text in strings if text.startswith("GLIBC_2.")) <= 26
    assert "siafu_gather" in strings
    assert not [path for path in (cache, ROOT) if str(path).encode() in data]
