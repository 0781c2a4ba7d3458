"""infra.kernels: cross-compiled by a zig that only writes down what it is told; by the real one in a long test."""

from __future__ import annotations

import importlib.metadata
import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

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


@pytest.mark.parametrize(
    ("editable", "asked", "expected"),
    [
        (True, None, {"avx512", "avx512bf16"}),
        (True, "all", set(build.X86)),
        (False, None, set(build.X86)),
        (False, "native", {"avx512", "avx512bf16"}),
    ],
)
def test_an_editable_installation_is_for_this_machine_alone(monkeypatch, editable, asked, expected):
    """An extra installed into what make setup made asked for all sets, and compiled for minutes."""
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.delenv("SIAFU_ISAS", raising=False)
    if asked is not None:
        monkeypatch.setenv("SIAFU_ISAS", asked)
    monkeypatch.chdir(ROOT)
    command = runpy.run_path("setup.py")["BuildKernels"](Distribution())
    command.editable_mode, command._best = editable, lambda: "avx512bf16"
    assert set(command._wanted) == expected


@pytest.mark.parametrize("elsewhere", ["none", "ready.so"])
def test_a_library_that_is_compiled_elsewhere_is_not_compiled(monkeypatch, tmp_path, elsewhere):
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    (tmp_path / "ready.so").write_text("compiled")
    monkeypatch.setenv("SIAFU_LIBRARY", "none" if elsewhere == "none" else str(tmp_path / elsewhere))
    monkeypatch.chdir(ROOT)
    command = runpy.run_path("setup.py")["BuildKernels"](Distribution())
    command.build_lib = str(tmp_path / "lib")  # a compiler, which it has none of, would be an error
    command.build_extension(SimpleNamespace(name="siafu.kernels._native"))
    made = [file.read_text() for file in (tmp_path / "lib").rglob("*.so")]
    assert made == ([] if elsewhere == "none" else ["compiled"])


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
def test_setup_compiles_what_the_description_says(monkeypatch, tmp_path, machine):
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.delenv("SIAFU_ISAS", raising=False)
    monkeypatch.chdir(ROOT)
    setup = runpy.run_path("setup.py")
    compiled = []

    def compile(sources, output_dir, macros=(), include_dirs=(), extra_postargs=()):
        compiled.append((*sources, Path(output_dir).name, extra_postargs, macros))
        return [f"{output_dir}/{sources[0]}"]

    def link(objects, path, **_):
        Path(path).write_text(str(len(objects)))

    command = setup["BuildKernels"](Distribution())
    command.compiler = SimpleNamespace(compile=compile, link_shared_object=link)
    command.build_lib, command.build_temp = str(tmp_path / "lib"), str(tmp_path / "temp")
    command.build_extension.__globals__["is_new"] = lambda *_: False
    command.build_extension(SimpleNamespace(name="siafu.kernels._native"))
    units = build.units(build.instruction_sets(machine))
    expected = [(f"siafu/kernels/src/{u.name}.cpp", u.folder, build.FLAGS + u.flags, u.macros) for u in units]
    assert sorted(one for one in compiled if "probe.cpp" not in one[0]) == sorted(expected)
    assert (tmp_path / "lib" / "siafu" / "kernels" / "_native.so").read_text() == str(len(units))


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
    for isa in ("scalar", "avx2", "avx512", "avx512bf16"):
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
