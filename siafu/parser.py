"""The command line's parser: argparse with one line for a mistake, the flags of other tools, and a short --help."""

from __future__ import annotations

import argparse
import difflib
import re
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

from siafu import streams

#: The least similarity at which a flag counts as meant.
ALIKE = 0.7
UNNEEDED = "nothing: "
#: Our flags -> flags of other tools with the same effect (PyG's, DGL's and OGB's examples, Lightning, torchrun,
#: SkyPilot).
_FLAGS = {
    "--backend gpu, or siafu baseline for GPU systems": "gpu gpus cuda device accelerator",
    "--ranks, one for each GPU": "gpus num-gpus n-gpus nproc-per-node world-size num-parts workers num-workers",
    "--device cuda": "gpu cuda accelerator",
    "--backend cpu": "cpu no-cuda",
    "--lambdas (workers), or --parts (graph servers)": "workers num-workers n-workers",
    "--parts": "num-parts num-partitions n-partitions nodes nnodes num-nodes nproc-per-node world-size ranks servers",
    "--set servers.threads=N": "threads num-threads cores num-cpus",
    "siafu resume RUN": "resume resume-from ckpt-path continue",
    "--warm-start MODEL, or siafu resume RUN": "checkpoint ckpt load pretrained init-from",
    f"{UNNEEDED}the whole graph is one batch; siafu baseline sampling trains on samples": (
        "batch-size fanout fanouts fan-out num-neighbors sampler num-batches"
    ),
    "--lr": "learning-rate lrate eta",
    "--layers": "num-layers n-layers depth",
    "--hidden": "hidden-channels hidden-dim hidden-size num-hidden n-hidden hid nhid width",
    "--epochs": "num-epochs n-epochs max-epochs iterations steps",
    "--heads": "num-heads n-heads",
    "--weight-decay": "wd l2 decay",
    "--dropout": "drop p-drop dropout-rate",
    "--patience": "early-stopping early-stop",
    "--runs": "num-runs n-runs trials repeat seeds",
    "--set train.optimizer=adam|sgd": "optimizer optim optimiser",
    "--set train.schedule=constant|cosine|step": "scheduler lr-scheduler lr-schedule schedule",
    "--set model.activation=relu|tanh|elu": "activation act",
    "--set model.norm=none|layer": "norm batch-norm layer-norm use-bn",
    "--set model.rows=bfloat16": "precision fp16 bf16 amp half",
    "SOURCE, without a flag": "data dataset graph input data-path root",
    "--run-dir": "output out out-dir output-dir save-dir log-dir workdir",
    "--logger": "log logging wandb tensorboard",
    "--quiet": "no-progress no-progress-bar silent",
    f"{UNNEEDED}graphs are made symmetric unless --directed says otherwise": "undirected symmetric",
    "--on aws, after siafu deploy": "cloud aws lambda-aws",
    "siafu plan": "dry-run",
}
#: Our verbs -> those of other tools.
_VERBS = {
    "train": "fit run start",
    "evaluate": "eval test score validate",
    "predict": "infer inference",
    "runs": "list ls ps history",
    "resume": "continue restart",
    "search": "tune sweep hpo grid",
    "prepare": "partition preprocess inspect",
    "get": "download fetch datasets",
    "watch": "dashboard monitor ui",
    "compare": "diff",
    "clean": "rm remove prune gc",
    "deploy": "up launch provision create",
    "destroy": "down delete teardown terminate",
    "status": "queue state",
    "cost": "price prices bill",
    "plan": "estimate simulate forecast",
    "doctor": "info check env version debug",
    "export": "onnx save",
}
_WORDS = sorted(set(" ".join(_FLAGS.values()).split()))
#: Word of other tools -> its possible equivalents here; a verb may have some of them.
FLAGS = {word: [ours for ours, words in _FLAGS.items() if word in words.split()] for word in _WORDS}
VERBS = {word: ours for ours, words in _VERBS.items() for word in words.split()}


class Parser(argparse.ArgumentParser):
    """A parser without abbreviated flags, with help of a readable width, and one line for a mistake.

    ``brief``: the end of --help if it shows only the common flags (``mark``), and --help-all shows all; "": --help
    shows all.
    """

    brief = ""

    def __init__(self, **options: Any):
        super().__init__(**options, allow_abbrev=False, formatter_class=_formatter)

    def shorten(self) -> None:
        """Adds --help-all; call it after all flags were added. Every verb has it, even if --help shows all flags."""
        shown = "show every flag, and exit" if self.brief else argparse.SUPPRESS
        self.add_argument("--help-all", action=_HelpAll, help=shown)

    def format_help(self) -> str:
        if not self.brief:
            return super().format_help()
        common = [action for action in self._actions if is_common(action) or not action.option_strings]
        shown = self._get_formatter()
        shown.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        shown.add_text(self.description)
        shown.start_section("most used")
        shown.add_arguments(common)
        shown.end_section()
        shown.add_text(self.brief)
        return shown.format_help()

    def format_all(self) -> str:
        return super().format_help()

    def _print_message(self, message: str, file: Any = None) -> None:
        """Prints a message; ends with 1 if stdout does not take it. argparse would drop it and end with 0."""
        stream = file or sys.stderr
        try:
            stream.write(message)
            stream.flush()
        except OSError as error:
            streams.fault_of(stream)
            if stream is sys.stdout and not isinstance(error, BrokenPipeError):  # whose reader closed it on purpose
                self.exit(1, f"{self.prog}: stdout: {error.strerror or error}\n")

    def error(self, message: str) -> NoReturn:
        message = re.sub(r"ignored explicit argument (.*)", r"takes no value, but was given \1", message)
        message = re.sub(r"invalid int value: (.*)", r"must be an integer, not \1", message)
        message = re.sub(r"invalid float value: (.*)", r"must be a number, not \1", message)
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


class _HelpAll(argparse.Action):
    def __init__(self, **options: Any):
        super().__init__(**options, nargs=0, default=argparse.SUPPRESS)
        mark(self)

    def __call__(self, parser: argparse.ArgumentParser, *args: Any) -> NoReturn:
        assert isinstance(parser, Parser)
        parser._print_message(parser.format_all(), sys.stdout)
        parser.exit()


def mark(action: argparse.Action) -> argparse.Action:
    """Marks a flag as common, so that the short --help shows it."""
    vars(action)["common"] = True
    return action


def show_few(parser: argparse.ArgumentParser, brief: str, flags: Collection[str] = ()) -> None:
    """Makes --help show the common flags and ``flags``, and end with ``brief``; --help-all shows all. Call it after the
    flags were added."""
    if isinstance(parser, Parser):
        parser.brief = brief
    for flag in flags:
        mark(parser._option_string_actions[flag])


def is_common(action: argparse.Action) -> bool:
    return bool(vars(action).get("common"))


def offer(action: argparse.Action, values: Collection[str]) -> argparse.Action:
    """Gives a flag values that a shell completes, for flags whose metavar does not list them."""
    vars(action)["offered"] = tuple(values)
    return action


def offered(action: argparse.Action) -> tuple[str, ...]:
    found: tuple[str, ...] = vars(action).get("offered", ())
    return found


class _Help(argparse.RawDescriptionHelpFormatter):
    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):  # argparse forgets that verbs are indented
            self._action_max_length += self._indent_increment


def _formatter(prog: str) -> argparse.HelpFormatter:
    width = min(shutil.get_terminal_size().columns, 110) - 2
    return _Help(prog, max_help_position=36, width=width)


def empty_argument(argv: Sequence[str], parser: argparse.ArgumentParser) -> str | None:
    """Returns the flag that was given an empty value, "" for an empty word that is no flag's value, None if there is
    none. Otherwise the default would be taken: for --graph "$NEW" the graph of the run."""
    for before, word in zip(("", *argv), argv, strict=False):
        flag, equals, value = word.partition("=")
        if flag.startswith("--") and equals and not value:
            return flag
        if not word:
            takes = before in parser._option_string_actions and parser._option_string_actions[before].nargs != 0
            return before if takes else ""
    return None


def meant_flag(flag: str, known: Sequence[str]) -> str:
    """Returns a hint at the flag that was meant by an unknown flag, as the end of a sentence; "" if there is none."""
    word = flag.lstrip("-").replace("_", "-").lower()
    if flag in known:  # an unknown one only because of its place
        return ": flags stand after the verb"
    if f"--{word}" in known:
        return f", did you mean --{word}?"
    for there in FLAGS.get(word, []):
        if there.startswith(UNNEEDED):
            return f": not needed: {there.removeprefix(UNNEEDED)}"
        if not there.startswith("--") or there.split()[0].rstrip(",") in known:
            return f": here it is {there}"
    close = difflib.get_close_matches(flag, known, 1, ALIKE)
    return f", did you mean {close[0]}?" if close else ""


def meant_word(word: str, actions: Collection[argparse.Action]) -> str:
    """Returns such a hint for a superfluous word, which may be the value of a flag."""
    for action in actions:
        if action.option_strings and word.lower() in offered(action):
            return f", did you mean {action.option_strings[0]} {word.lower()}?"
    return ""


def meant_verb(word: str, known: Collection[str], others: Mapping[str, str]) -> str:
    """Returns such a hint for an unknown verb."""
    if word.lower() in known:
        return f", did you mean {word.lower()}?"
    if others.get(word.lower(), "") in known:
        return f", did you mean {others[word.lower()]}?"
    close = difflib.get_close_matches(word.lower(), known, 1)
    return f", did you mean {close[0]}?" if close else ""
