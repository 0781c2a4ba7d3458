"""``siafu completion``: what the shells themselves complete with its scripts."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra.imports import ROOT
from siafu.__main__ import SIAFU, VERBS, main, parsers

#: What bash does at a TAB: it calls the function that is registered for siafu, and reads COMPREPLY.
TAB = """
source siafu.bash
function_of() { complete -p siafu | sed 's/.*-F \\([^ ]*\\).*/\\1/'; }
tab() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMPREPLY=()
    $(function_of) "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    echo "${COMPREPLY[*]}"
}
"""
#: Words before a TAB, the last of them unfinished -> what is offered, in a folder with graph.npz and runs/.
OFFERED = {
    "tr": "train",
    "train --epo": "--epochs",
    "train --mode ''": "no-pipe pipe async",
    "train graph.npz --backend c": "cpu",
    "train --model gc": "gcn gcnii",
    "train g": "graph.npz",
    "train --config r": "runs",  # a file may lie there
    "resume ''": "runs",
    "resume runs --epochs ''": "",
    "baseline pi": "pipegcn",
    "get cor": "cora",
    "convert graph.npz --to p": "parquet pyg",
    "completion z": "zsh",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """Scripts for all shells, a graph, and a folder of runs."""
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        (tmp_path / f"siafu.{shell}").write_text(capsys.readouterr().out)
    (tmp_path / "graph.npz").touch()
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_bash_completes_verbs_flags_values_and_files(folder: Path) -> None:
    tabs = "\n".join(f"tab siafu {words}" for words in OFFERED)
    ended = subprocess.run(["bash", "--norc", "-c", TAB + tabs], capture_output=True, text=True, check=True)
    assert dict(zip(OFFERED, ended.stdout.splitlines(), strict=True)) == OFFERED


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_the_same(folder: Path) -> None:
    for words, offered in {"siafu tr": "train", "siafu train --mode pi": "pipe", "siafu get cor": "cora"}.items():
        command = ["fish", "--no-config", "-c", f"source siafu.fish; complete -C '{words}'"]
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
        assert ended.stdout.split()[:1] == [offered], words


def test_every_verb_and_every_flag_is_in_every_script(folder: Path) -> None:
    _, verbs = parsers(SIAFU, VERBS)
    for shell in ("bash", "zsh", "fish"):
        words = set(re.split(r"[^\w-]+", (folder / f"siafu.{shell}").read_text()))
        missing = {
            flag
            for parser in verbs.values()
            for action in parser._actions
            for flag in action.option_strings
            if flag.startswith("--") and action.help != argparse.SUPPRESS and not {flag, flag[2:]} & words
        }
        assert missing == set(), shell
        assert set(VERBS) <= words, shell


def test_the_script_is_written_without_any_heavy_package() -> None:
    code = (
        "import sys; from siafu.__main__ import main; main(['completion', 'bash']);"
        "sys.exit(', '.join({'torch', 'boto3', 'matplotlib', 'ray', 'pyarrow'} & set(sys.modules)) or 0)"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
