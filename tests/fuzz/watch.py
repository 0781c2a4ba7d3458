"""The process that the loop runs in, and the one that watches it: what kills or hangs a parser is a finding too.

Before each run the child leaves the input in a file that both have mapped; the parent reads it when the child is gone,
or when its count of runs has stood still for too long.
"""

from __future__ import annotations

import json
import logging
import mmap
import multiprocessing
import random
import resource
import signal
import struct
import tempfile
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from tests.fuzz.engine import Finding, Fuzzer, cover
from tests.fuzz.inputs import Input, pack, unpack
from tests.fuzz.targets import target_of

# of addresses, above what the child has when its corpus has run: a hostile length is a MemoryError
MORE_MEMORY = 512 << 20
HANGS_S = 20.0  # without a run: a parser that takes no CPU, or never comes back from a library
NOTE_BYTES = 1 << 22
HEAD = struct.Struct("<QI")  # runs so far, length of the input


@dataclass
class Result:
    """What fuzzing one target came to."""

    target: str
    seed: int
    seconds: float
    executions: int
    edges: int
    inputs: int
    findings: list[Finding]
    corpus: list[Input]

    def to_json(self) -> str:
        found = [{"what": finding.what, "detail": finding.detail} for finding in self.findings]
        kept: dict[str, Any] = {key: value for key, value in vars(self).items() if key not in ("findings", "corpus")}
        return json.dumps({**kept, "seconds": round(self.seconds, 1), "findings": found})


def fuzz(target: str, seconds: float, seed: int) -> Result:
    """Fuzzes for so long, in a process of its own; in another one, with another seed, whenever that is lost."""
    context = multiprocessing.get_context("spawn")
    result = Result(target, seed, 0.0, 0, 0, 0, [], [])
    started = time.monotonic()
    with tempfile.NamedTemporaryFile(prefix="siafu-fuzz-") as file:
        file.truncate(NOTE_BYTES)
        with mmap.mmap(file.fileno(), NOTE_BYTES) as note:
            attempt = 0
            while (left := seconds - (time.monotonic() - started)) > 0 or not attempt:
                HEAD.pack_into(note, 0, 0, 0)
                ours, theirs = context.Pipe(duplex=False)
                child = context.Process(target=_child, args=(target, left, seed + 1000 * attempt, file.name, theirs))
                child.start()
                theirs.close()
                lost = _follow(child, ours, note, result)
                attempt += 1
                if lost is None:
                    break
                result.findings.append(lost)
    result.seconds = time.monotonic() - started
    return result


def _follow(child: Any, ours: Connection, note: mmap.mmap, result: Result) -> Finding | None:
    """Waits for the child's result and adds it; what it was at when it was lost, if it was."""
    seen, since = -1, time.monotonic()
    while not ours.poll(0.5):
        runs = HEAD.unpack_from(note)[0]
        if runs != seen:
            seen, since = runs, time.monotonic()
        elif runs and child.is_alive() and time.monotonic() - since > HANGS_S:  # before the first it prepares examples
            child.kill()
    try:
        told = ours.recv()
    except EOFError:
        child.join()
        _, length = HEAD.unpack_from(note)
        given = unpack(note[HEAD.size : HEAD.size + length])
        hung = child.exitcode == -signal.SIGKILL and time.monotonic() - since > HANGS_S
        what = "hangs" if hung else f"dies of {_ending(child.exitcode)}"
        return Finding(what, f"after {seen} runs", given)
    child.join()
    if isinstance(told, str):
        raise RuntimeError(f"the fuzzer of {result.target} failed\n{told}")
    executions, edges, inputs, findings, corpus = told
    result.executions += executions
    result.edges, result.inputs, result.corpus = edges, inputs, corpus
    known = {finding.what for finding in result.findings}
    result.findings += [finding for finding in findings if finding.what not in known]
    return None


def _ending(exitcode: int | None) -> str:
    return signal.Signals(-exitcode).name if exitcode is not None and exitcode < 0 else f"exit code {exitcode}"


def _child(target: str, seconds: float, seed: int, file: str, theirs: Connection) -> None:
    try:
        theirs.send(_fuzz(target, seconds, seed, file))
    except Exception:  # the edge of the process: a mistake of the fuzzer's own
        theirs.send(traceback.format_exc())


def _fuzz(target: str, seconds: float, seed: int, file: str) -> tuple[int, int, int, list[Finding], list[Input]]:
    deadline = time.monotonic() + seconds
    logging.disable()  # thousands of warnings, all of them right
    with open(file, "r+b") as stream, mmap.mmap(stream.fileno(), NOTE_BYTES) as note:

        def before_run(given: Input) -> None:
            data = pack(given)[: NOTE_BYTES - HEAD.size]
            note[HEAD.size : HEAD.size + len(data)] = data
            HEAD.pack_into(note, 0, fuzzer.executions, len(data))

        fuzzer = Fuzzer(target_of(target), random.Random(seed), before_run)
        fuzzer.begin()
        limit = _addresses() + MORE_MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        while time.monotonic() < deadline:
            fuzzer.step()
        kept = [entry.given for entry in cover(fuzzer.entries)]
        found = list(fuzzer.findings.values())
        return fuzzer.executions, len(fuzzer.edges), len(fuzzer.entries), found, kept


def _addresses() -> int:
    """Bytes of addresses that this process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
