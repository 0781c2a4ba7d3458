"""The command line's parser: the words of other tools, and help that fits a screen."""

from __future__ import annotations

import argparse
import importlib

import pytest

from siafu.__main__ import VERBS, main
from siafu.errors import counted, one_of
from siafu.parser import _FLAGS, _VERBS, FLAGS, UNNEEDED, Parser, is_common, meant_flag, meant_verb


def flags_of(verb: str) -> list[str]:
    parser = Parser(prog=verb)
    importlib.import_module(VERBS[verb][0]).add_arguments(parser)
    return [flag for action in parser._actions for flag in action.option_strings]


def said(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words.split()) == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("train --gpu", "--gpu: here it is --backend gpu, or siafu baseline for GPU systems"),
        ("train --workers 4", "--workers: here it is --lambdas (workers), or --parts (graph servers)"),
        ("train --resume runs/x", "--resume: here it is siafu resume RUN"),
        ("train --batch-size=64", "--batch-size=64: not needed: the whole graph is one batch"),
        ("train --hidden-channels 16", "--hidden-channels: here it is --hidden"),
        ("train --weight_decay 0.1", "--weight_decay, did you mean --weight-decay?"),
        ("train --epoch 3", "--epoch, did you mean --epochs?"),
        ("train --frobnicate", "unknown argument --frobnicate; see"),
        ("trian", "trian: no such verb, did you mean train?"),
        ("Train", "Train: no such verb, did you mean train?"),
        ("ls", "ls: no such verb, did you mean runs?"),
        ("--quiet train", "unknown argument --quiet: flags stand after the verb"),
        ("-v train", "unknown argument -v: flags stand after the verb"),
        ("plan digits --instance c8g.2xlargee", "did you mean c8g.2xlarge?"),
        ("baseline pipegcn --gpus 2", "--gpus: here it is --ranks, one for each GPU"),
        ("baseline digits pipegcn", "METHOD comes first: siafu baseline pipegcn digits"),
        ("train digits GCN", "unknown argument GCN, did you mean --model gcn?"),
        ("train digits async", "unknown argument async, did you mean --mode async?"),
        ("train --json=1", "argument --json: takes no value, but was given '1'"),
        ("train --runs two", "argument --runs: must be an integer, not 'two'"),
        ("help nosuch", "nosuch: no such verb"),
        ("frobnicate", "frobnicate: no such verb: must be one of train, resume, "),
    ],
)
def test_words_of_other_tools_are_understood(words: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert meant in said(words, capsys)


def test_help_is_a_verb_too(capsys: pytest.CaptureFixture[str]) -> None:
    for words, flag in (("help", "--help"), ("help runs", "runs --help")):
        assert main(words.split()) == main(flag.split()) == 0
        said = capsys.readouterr().out
        assert said[: len(said) // 2] == said[len(said) // 2 :]


def test_a_flag_is_not_advised_where_the_verb_has_none() -> None:
    assert meant_flag("--learning-rate", ["--epochs"]) == ""
    assert meant_flag("--learning-rate", ["--lr"]) == ": here it is --lr"


def test_what_is_advised_is_there() -> None:
    """Flags of train or baseline, verbs, and settings."""
    known = [*flags_of("train"), *flags_of("baseline")]
    for ours in _FLAGS:
        first = ours.split()[0].rstrip(",")
        if first.startswith("--"):
            assert first in known, ours
        elif not ours.startswith((UNNEEDED, "SOURCE")):
            assert ours.split()[1] in VERBS, ours
    assert not set(_VERBS) - set(VERBS)
    assert not {f"--{word}" for word in FLAGS} & set(flags_of("train"))


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("GCN", "gcn"),
        ("asynchronous", "async"),
        ("gcn2", None),
        ("ayncs", "async"),
        ("transformer", None),
        ("sync", None),  # is the opposite
        ("Float32", "float32"),
        ("float16", None),
    ],
)
def test_a_value_that_is_nearly_one_is_named(word: str, meant: str | None) -> None:
    end = f"; did you mean {meant}?" if meant else ""
    assert one_of(word, ("gcn", "async", "float32")) == f"must be one of gcn, async, float32{end}"


def test_one_thing_is_no_plural() -> None:
    assert [counted(number, "row") for number in (0, 1, 2, 2000)] == ["0 rows", "1 row", "2 rows", "2,000 rows"]


def test_verbs_of_another_program_are_its_own() -> None:
    assert meant_verb("mesure", ("measure", "chaos"), {"up": "deploy"}) == ", did you mean measure?"
    assert meant_verb("up", ("measure", "chaos"), {"up": "deploy"}) == ""


@pytest.mark.parametrize(("columns", "most"), [(80, 40), (110, 32)])
def test_help_of_train_fits_a_screen(
    columns: int, most: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["train", "--help"]) == 0
    brief = capsys.readouterr().out
    assert len(brief.splitlines()) <= most
    assert "--help-all" in brief
    assert "--checkpoint-every" not in brief
    assert main(["train", "--help-all"]) == 0
    whole = capsys.readouterr().out
    assert "--checkpoint-every" in whole
    assert "examples:" in whole


@pytest.mark.parametrize("verb", ["search", "value", "plan", "baseline", "prepare"])
def test_help_of_verbs_with_many_flags_shows_the_common_ones(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    whole = flags_of(verb)
    assert main([verb, "--help"]) == 0
    brief = capsys.readouterr().out
    assert len(brief.splitlines()) <= 62
    assert "--help-all" in brief
    assert sum(f" {flag} " in brief for flag in whole) < len(whole) / 2
    assert main([verb, "--help-all"]) == 0
    all_of_it = capsys.readouterr().out
    assert [flag for flag in whole if flag not in all_of_it] == []


def test_the_short_help_has_every_positional_and_what_is_marked() -> None:
    parser = Parser(prog="it")
    parser.brief, parser.usage = "and so on", "it SOURCE"
    parser.add_argument("source")
    parser.add_argument("--rare")
    parser.shorten()
    assert [action.dest for action in parser._actions if is_common(action)] == ["help_all"]
    assert "source" in parser.format_help()
    assert "--rare" not in parser.format_help()
    assert "--rare" in parser.format_all()
    assert isinstance(parser, argparse.ArgumentParser)
