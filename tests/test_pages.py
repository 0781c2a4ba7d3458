"""What README.md and docs/ have a reader type is run as it is written: page by page, in the order of the page, in a
folder that has only what stands above it.

What the pages need and how they say it: tests/reader.py. ``RUN`` is the newest run; other words in capitals are the
reader's (``CAPITALS``). Pages whose blocks are one program have tests of their own: docs/adding-a-model.md
tests/test_tutorial.py, docs/migrating.md tests/examples/test_migrating.py.
"""

from __future__ import annotations

import ast
import glob
import importlib.util
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from siafu.__main__ import main
from siafu.baseline import load
from siafu.run_files import CONFIG
from tests import reader
from tests.reader import Piece

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {
    page.relative_to(ROOT).as_posix(): list(reader.pieces(page.read_text()))
    for page in sorted([ROOT / "README.md", ROOT / "SECURITY.md", *DOCS.glob("*.md"), *DOCS.glob("concepts/*.md")])
    if page.name not in ("adding-a-model.md", "migrating.md")
}
#: Whose commands are run by make test: they are read first, and take seconds.
FAST = ("README.md",)
#: Verbs that train many times, or load torch.
LONG = ("baseline", "export", "report", "search", "value")
#: What a command has in it -> the extra of siafu without which it ends with an error.
EXTRAS = {
    r"^siafu baseline |^siafu value .*(vanilla|pipegcn)": "gpu",
    r"^siafu deploy ": "infra",
    r"^siafu export ": "export",
    r"^siafu report ": "plot",
    r"--to (csv|parquet)|(?<!--out )\b[\w*./]+\.(csv|parquet)\b": "data",
}
CAPITALS = {"NEW.csv": "new.csv", "USERS2.csv": "users2.csv", "DIR": "out"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SIAFU_DATA", raising=False)
    return tmp_path


def run_page(page: str, capfd: pytest.CaptureFixture[str], long: bool) -> None:
    """Runs the page's pieces, one after the other. Without ``long``, not those that take long."""
    for piece in PAGES[page]:
        if piece.kind == "given":
            reader.give(piece.text)
        elif not piece.needs and (long or not takes_long(piece)):
            code, wanted = run(piece)
            said = capfd.readouterr()
            assert code == wanted, f"{page}:{piece.line}: {piece.text}\n{said.out[-500:]}\n{said.err[-2000:]}"


def takes_long(piece: Piece) -> bool:
    return piece.text.split()[1] in LONG if piece.kind == "siafu" else "siafu.train" in piece.text


def run(piece: Piece) -> tuple[int, int]:
    """Its exit code, and the one it should have."""
    if piece.kind == "python":
        Path("block.py").write_text(piece.text)
        return subprocess.run([sys.executable, "block.py"], check=False).returncode, 0
    words = list(as_typed(shlex.split(piece.text)[1:]))
    if words[0] == "watch":
        return stopped_by_ctrl_c(words), 128 + signal.SIGINT
    try:
        return main(words), 0
    finally:
        shutil.rmtree("out", ignore_errors=True)


def as_typed(words: list[str]) -> Iterator[str]:
    """The words as the reader's shell and the reader would make them."""
    runs = newest_runs() if words[0] != "resume" else [a_stopped_run()]
    for word in words:
        if word.partition("/")[0] == "RUN" or (word.startswith("runs/2") and not Path(word).exists()):
            assert runs, "no run stands above it"
            found = runs.pop() if words.count("RUN") == 2 else runs[-1]
            yield found + word.removeprefix("RUN") if word.startswith("RUN") else found
        elif word == "NEW":  # with as many features as the run's
            yield load(Path(runs[-1]) / CONFIG).data.source
        elif word.startswith("runs/*"):
            yield from glob.glob(word)
        else:
            yield CAPITALS.get(word, word)


def newest_runs() -> list[str]:
    return [
        str(path.parent) for path in sorted(Path("runs").glob("*/result.json"), key=lambda path: path.stat().st_mtime)
    ]


def a_stopped_run() -> str:
    """A run whose machine crashed after half of its epochs."""
    run = Path("stopped")
    shutil.rmtree(run, ignore_errors=True)
    assert (
        main(["train", "digits", "--epochs", "8", "--checkpoint-every", "4", "--keep", "9", "--run-dir", str(run)]) == 0
    )
    (run / "result.json").unlink()
    shutil.rmtree(run / "checkpoints" / "epoch-0008")
    return str(run)


def stopped_by_ctrl_c(words: list[str]) -> int:
    """A command that goes on until then: it has said something on stdout before."""
    command = [sys.executable, "-m", "siafu", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        return process.returncode


@pytest.mark.parametrize("page", FAST)
def test_commands_run_as_they_are_written(page: str, capfd: pytest.CaptureFixture[str]) -> None:
    run_page(page, capfd, long=False)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", PAGES)
def test_every_command_runs_as_it_is_written(page: str, capfd: pytest.CaptureFixture[str]) -> None:
    run_page(page, capfd, long=True)


def test_python_that_is_not_run_compiles_and_its_imports_exist() -> None:
    for page, pieces in PAGES.items():
        for piece in pieces:
            if piece.kind == "python" and piece.needs:
                for node in ast.walk(ast.parse(piece.text, page)):
                    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                    names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                    assert all(importlib.util.find_spec(name.partition(".")[0]) for name in names), (page, names)


def test_a_page_says_which_extra_a_command_needs() -> None:
    """Who has followed a page from its top, after ``make setup``, has what its commands need, or was told. The machine
    that runs this has every extra."""
    silent = []
    for page, pieces in PAGES.items():
        lines = (ROOT / page).read_text().splitlines()
        for piece in (piece for piece in pieces if piece.kind == "siafu"):
            above = "\n".join(lines[: piece.line])
            needed = {extra for pattern, extra in EXTRAS.items() if re.search(pattern, piece.text)}
            silent += [
                f"{page}:{piece.line}: {piece.text}: [{extra}]"
                for extra in needed
                if not re.search(rf"\[(\w+,)*{extra}(,\w+)*\]|extras? (`\w+` and )*`{extra}`", above)
            ]
    assert not silent


def test_most_commands_are_run() -> None:
    """``needs`` is for what a machine cannot have, not for what is in the way."""
    found = [piece for pieces in PAGES.values() for piece in pieces if piece.kind != "given"]
    skipped = [piece for piece in found if piece.needs]
    assert {piece.needs for piece in skipped} <= {
        "an AWS account",
        "a Ray cluster",
        "a GPU",
        "an idle machine",
        "the network",
        "a usage, not a command",
        "files of your own",
    }
    assert len(skipped) < len(found) / 3
