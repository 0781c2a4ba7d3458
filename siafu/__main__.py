"""The command line: a table of verbs, loaded when called."""

from siafu import start

start.without_working_folder()  # before anything else is imported: ``python -m siafu`` has put it first

import argparse
import contextlib
import errno
import importlib
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

from siafu import __version__, streams
from siafu.errors import ConfigError, GnnError
from siafu.parser import VERBS as OTHER_VERBS
from siafu.parser import Parser, empty_argument, meant_flag, meant_verb, meant_word

#: verb -> (module that has ``add_arguments(parser)`` and ``main(args) -> int``, what the verb does)
VERBS = {
    "train": ("run_coordinator.cli", "train a model on a graph"),
    "resume": ("run_coordinator.recovery.cli", "continue a run that was stopped, from its newest checkpoint"),
    "baseline": (
        "run_coordinator.baseline.cli",
        "train with a GPU baseline (PipeGCN, AdaQP, ...), on GPUs or CPUs",
    ),
    "search": ("run_coordinator.search_cli", "train with many settings and rank them by validation score"),
    "predict": ("run_coordinator.predict.cli", "predict classes for every vertex of a graph"),
    "evaluate": ("run_coordinator.evaluate.cli", "compare predictions with labels: each class, confusion, calibration"),
    "export": ("run_coordinator.export.cli", "write a run's model as a PyTorch, PyG, DGL or ONNX model"),
    "runs": ("run_coordinator.past_runs.cli", "list the runs in a folder, with their scores"),
    "watch": ("run_coordinator.watch.cli", "show runs live in the browser"),
    "compare": ("run_coordinator.past_runs.compare", "compare runs: settings that differ, scores, curves"),
    "report": ("cost_planner.report.cli", "write an HTML report of one or more runs"),
    "value": ("cost_planner.value.cli", "compare runs by value = 1 / (time x cost)"),
    "plan": (
        "cost_planner.plan.cli",
        "predict time, cost, memory and quotas before spending money",
    ),
    "prepare": ("graph_data.cli", "partition a graph into shards on disk"),
    "get": ("graph_data.get", "fetch a public graph (cora, amazon_computers, ...) into the data folder"),
    "convert": ("graph_data.convert", "write a graph in another format (npz, CSV, Parquet, PyG, DGL)"),
    "deploy": ("infra.verbs.deploy", "create servers and a Lambda function on AWS, after showing their cost"),
    "destroy": ("infra.verbs.destroy", "remove a deployment from AWS, whatever state it is in"),
    "status": ("infra.verbs.status", "show a deployment on AWS: machines, runs; or one local run"),
    "logs": ("infra.verbs.logs", "print the logs of a run, by role"),
    "attach": ("infra.verbs.attach", "follow a run on AWS that another terminal started, and fetch its results"),
    "cost": ("infra.verbs.cost", "show what a run has cost, by part"),
    "clean": ("run_coordinator.past_runs.clean", "show or remove cached graphs and old runs"),
    "completion": ("siafu.completion", "print a script that completes siafu's commands in a shell"),
    "doctor": ("run_coordinator.doctor", "check what this machine can do and what is missing"),
}

#: Errors whose cause is this machine, whichever file was opened or read.
SYSTEMS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Program:
    """A command line: its name, what it is, and its table of verbs (like ``VERBS``)."""

    name: str
    description: str
    epilog: str
    verbs: Mapping[str, tuple[str, str]]


SIAFU = Program(
    "siafu",
    "Full-graph GNN training on CPU servers and serverless tensor workers.",
    """first try:
  siafu train               train on 1,797 images of digits, on this machine, in seconds
  siafu VERB --help         flags and examples (siafu train --help-all lists every flag)
""",
    VERBS,
)


def main(argv: Sequence[str] | None = None, program: Program = SIAFU) -> int:
    """Runs a verb. Returns the exit code: 0; 1 for a failure; 2 for the user's mistake; 3 for a run stopped by its
    budget or its time; 130 after Ctrl-C, 143 after SIGTERM."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        args = _parse(argv, program)
        args.argv = argv
        return _run(args, program)
    except SystemExit as end:  # argparse: --help and --version end with 0, mistakes with 2
        if why := streams.fault_of(sys.stdout):
            print(f"{program.name}: stdout: {why}", file=sys.stderr)
        return 1 if why else int(end.code or 0)
    except KeyboardInterrupt as stop:
        print("; ".join([f"{program.name}: stopped", *map(str, stop.args)]), file=sys.stderr)
        return 128 + (stop.signal if isinstance(stop, _Stopped) else signal.SIGINT)


def _run(args: argparse.Namespace, program: Program) -> int:
    level = logging.INFO if args.verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(name)s: %(message)s", handlers=[_Stderr()])
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # where there is no home it says so, at length
    try:
        _check_working_folder()
        code = int(importlib.import_module(program.verbs[args.verb][0]).main(args))
        if sys.stdout is not None:
            sys.stdout.flush()
        streams.fault_of(sys.stderr)
        return code
    except GnnError as error:
        if refused := _refused_by_system(error):
            named = refused.filename or (refused.strerror or "") not in str(error)
            _say(args, program, refused, _text_of(refused) if named else f"{error}{_hint(refused)}")
            return 1
        _say(args, program, error, str(error))
        if args.verbose:
            for note in getattr(error, "__notes__", []):
                print(note, file=sys.stderr)
        return error.exit_code
    except UnicodeEncodeError as error:
        before, behind = error.object[: error.start], error.object[error.start :]
        name = re.split(r"[\s<>\"']", before)[-1] + re.split(r"[\s<>\"']", behind)[0]
        _say(args, program, error, f"{name!a}: a name that is not UTF-8: rename it")
        return 2
    except MemoryError as error:
        advice = "siafu plan says what a run needs, siafu prepare --memory 2GiB keeps to a limit"
        _say(args, program, error, f"{': '.join(filter(None, ['out of memory', str(error)]))}: {advice}")
        return 1
    except BrokenPipeError:  # the reader of our output has seen enough
        streams.fault_of(sys.stdout)
        return 1
    except OSError as error:  # a full disk, a folder that may not be written
        if args.verbose:
            raise
        why = "" if error.filename else streams.fault_of(sys.stdout)
        _say(args, program, error, f"stdout: {why}" if why else _text_of(error))
        return 1


def _refused_by_system(error: BaseException | None) -> OSError | None:
    """Returns the OSError in the chain of causes by which the system refused a resource; None if there is none."""
    while error is not None and not (isinstance(error, OSError) and error.errno in SYSTEMS):
        error = error.__cause__ or error.__context__
    return error


def _text_of(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}{_hint(error)}"


def _hint(error: OSError) -> str:
    hints = {errno.EFBIG: "; ulimit -f says how large a file may be"}
    hints |= dict.fromkeys((errno.EMFILE, errno.ENFILE), "; ulimit -n 4096 allows more")
    return hints.get(error.errno or 0, "")


def _check_working_folder() -> None:
    try:
        os.getcwd()
    except FileNotFoundError:
        raise ConfigError("the working folder was deleted: cd to one that exists") from None


class _Stderr(logging.StreamHandler):  # type: ignore[type-arg]  # Python 3.10's takes no [Any]
    """Writes to the current sys.stderr: a live panel that has replaced it moves out of the way."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stderr

    @stream.setter
    def stream(self, value: Any) -> None:
        pass


def _say(args: argparse.Namespace, program: Program, error: Exception, text: str) -> None:
    if getattr(args, "json", False):
        with contextlib.suppress(OSError):
            print(json.dumps({"error": text, "type": type(error).__name__}), flush=True)
        streams.fault_of(sys.stdout)
    print(f"{program.name} {args.verb}: {text}", file=sys.stderr)


def parsers(program: Program, whole: Collection[str]) -> tuple[Parser, dict[str, Parser]]:
    """Returns the parser of the command line, and those of its verbs. Verbs in ``whole`` get all their flags, for which
    their modules are imported."""
    name = program.name
    parser = Parser(
        prog=name, usage=f"{name} VERB [--help] ...", epilog=program.epilog, description=program.description
    )
    parser.add_argument("--version", action="version", version=f"siafu {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs", prog=name)
    found = {}
    for word, (module, what) in program.verbs.items():
        found[word] = verb = verbs.add_parser(word, help=what)
        if word in whole:
            importlib.import_module(module).add_arguments(verb)
        verb.add_argument("-v", "--verbose", action="store_true", help="print the log and remote tracebacks on stderr")
        verb.shorten()
    return parser, found


def _parse(argv: list[str], program: Program) -> argparse.Namespace:
    name = program.name
    if argv[:1] == ["help"]:
        argv = [*argv[1:2], "--help"]
    chosen = [word for word in argv if not word.startswith("-")][:1]
    parser, verbs = parsers(program, chosen)
    if chosen and chosen[0] not in program.verbs:
        every = f": must be one of {', '.join(program.verbs)}"
        parser.error(f"{chosen[0]}: no such verb{meant_verb(chosen[0], program.verbs, OTHER_VERBS) or every}")
    args, unknown = parser.parse_known_args(argv)
    if args.verb is None:
        parser.print_help(sys.stderr)
        parser.exit(2)
    verb = verbs[args.verb]
    if program.name == SIAFU.name and (flag := empty_argument(argv, verb)) is not None:
        verb.error(f"{flag or 'an argument'} is empty: a shell variable that is not set?")
    # At the first word argparse takes every optional positional as missing; words after a flag are left over.
    for action in verb._actions:
        missing = action.nargs == "?" and not action.option_strings and getattr(args, action.dest) == action.default
        if missing and unknown and not unknown[0].startswith("-"):
            setattr(args, action.dest, unknown.pop(0))
    if unknown:
        flag = unknown[0].partition("=")[0]
        if not flag.startswith("-"):
            verb.error(f"unknown argument {unknown[0]}{meant_word(unknown[0], verb._actions)}")
        known = [flag for action in verb._actions for flag in action.option_strings]
        if flag not in known and (other := _verb_with(flag, program)):
            verb.error(f"unknown argument {unknown[0]} (a flag of {name} {other})")
        verb.error(f"unknown argument {unknown[0]}{meant_flag(flag, known)}")
    return args


def _verb_with(flag: str, program: Program) -> str:
    """Returns the first of the verbs prepare and train that takes a flag; "" if neither does."""
    for word in ("prepare", "train"):
        if word in program.verbs:
            parser = Parser(add_help=False)
            importlib.import_module(program.verbs[word][0]).add_arguments(parser)
            if flag in parser._option_string_actions:
                return word
    return ""


def entry(program: Program = SIAFU) -> NoReturn:
    """The console script."""
    streams.settle()
    closed = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL else []  # nohup ignores it
    for number in (signal.SIGINT, signal.SIGTERM, *closed):
        signal.signal(number, _stop)
    sys.exit(main(program=program))


class _Stopped(KeyboardInterrupt):
    """A stop by Ctrl-C, SIGTERM or the end of a terminal. Not a plain KeyboardInterrupt: once that has passed through
    ``exec`` of a string, as dataclasses use it, Python takes it for unhandled and exits as if killed.
    """

    def __init__(self, number: int):
        super().__init__()
        self.signal = number


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise _Stopped(number)


if __name__ == "__main__":
    entry()
