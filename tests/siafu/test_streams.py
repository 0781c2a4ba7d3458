"""siafu.streams: a verb works in every language of a machine, on every terminal, with
every name of a file that may be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from siafu import config as configs
from siafu.__main__ import VERBS, main
from siafu.errors import ConfigError

#: Of a machine without UTF-8; Python itself would take UTF-8 there, unless it is told not to.
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LATIN = os.fsdecode(b"d\xe9")  # a name as an older machine has written it


def siafu(*arguments: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "siafu", *arguments]
    return subprocess.run(command, capture_output=True, env={**os.environ, **variables})


def write_graph(folder: Path) -> None:
    """A ring of 20 vertices of two classes, in two tables."""
    folder.mkdir()
    (folder / "e.csv").write_text("source,target\n" + "".join(f"{v},{(v + 1) % 20}\n" for v in range(20)))
    rows = "".join(f"{v},{v % 3},{v % 7},{('blé', 'Übung')[v % 2]}\n" for v in range(20))
    (folder / "x.csv").write_text(f"id,a,b,label\n{rows}", encoding="utf-8")


@pytest.mark.long
def test_a_locale_without_utf_8_changes_no_file_and_stops_no_verb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_graph(tmp_path / "données")
    graph = ("données/e.csv", "--features", "données/x.csv", "--labels", "données/x.csv#label")
    shown = siafu("prepare", *graph, "--inspect", **ASCII)
    assert shown.returncode == 0, shown.stderr
    assert b"\\xdcbung" in shown.stdout
    assert b"####" in shown.stdout
    prepared = siafu("prepare", *graph, "--out", "données/shards", **ASCII)
    assert prepared.returncode == 0, prepared.stderr
    trained = siafu("train", "données/shards", "--epochs", "1", "--run-dir", "données/run", **ASCII)
    assert trained.returncode == 0, trained.stderr
    assert (tmp_path / "données" / "run" / "result.json").is_file()


@pytest.mark.long
@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_is_shown_on_a_terminal_without_unicode(verb: str) -> None:
    shown = siafu(*verb.split(), "--help", PYTHONIOENCODING="ascii")
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert shown.stdout.isascii()


@pytest.mark.parametrize("name", ["exp#3", "why?", "a b+c&d=e", "50%", "données"])
def test_a_folder_may_be_called_anything(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_graph(tmp_path / name)
    tables = ["--features", f"{name}/x.csv#a,b", "--labels", f"{name}/x.csv#label"]
    assert main(["prepare", f"{name}/e.csv", *tables, "--out", f"{name}/shards"]) == 0
    assert main(["prepare", f"{name}/e.csv", "--features", f"{name}/x.csv", *tables[2:], "--out", f"{name}/all"]) == 0


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        ["train", "digits", "--run-dir", f"{LATIN}/run"],
        ["train", f"{LATIN}/shards"],
        ["prepare", f"{LATIN}/e.csv", "--features", f"{LATIN}/x.csv", "--out", "shards"],
        ["search", "digits", "--set", f"data.cache_dir={LATIN}"],
    ],
    ids=lambda words: words[0],
)
def test_a_name_that_is_not_utf_8_is_refused_in_one_line(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_graph(tmp_path / LATIN)
    if words[-1] == f"{LATIN}/shards":
        prepared = siafu("prepare", "digits", "--out", words[-1])  # which needs no UTF-8
        assert prepared.stdout.endswith(os.fsencode(f"{words[-1]}\n"))
    assert main(words) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"siafu {words[0]}: ")
    assert said.endswith("': a name that is not UTF-8: rename it")


def test_a_config_holds_no_name_that_is_not_utf_8() -> None:
    with pytest.raises(ConfigError, match=r"data\.source = 'd.udce9': a name that is not UTF-8: rename it"):
        configs.Config().replace({"data.source": LATIN})
