"""Reads the reports of members: totals of their backends, and failures. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from siafu import errors, peak_memory
from siafu.address import Address, graph_server
from siafu.config import Config
from siafu.errors import GnnError, RemoteProtocolError, UnknownError
from siafu.metrics import LEAST_LOSS
from siafu.processor import NUMPY, PROCESSOR
from siafu.run_files import CpuShare, Lanes
from siafu.tasks import Kind, Lane
from siafu.wire import BYTES_TO, EpochReport, EvalReport, Failed, Message, Stopped, Usage

#: A total that is as large is none.
MOST = 1 << 63
#: What a server needs, not what it used: the most of any.
NEEDS = ("split_in", peak_memory.NAME)
#: What a server has, which is no more after another attempt: how both make one number.
HAS: dict[str, Callable[[float, float], float]] = {
    "environments_wanted": lambda before, now: now,
    "environments_wanted_peak": max,
}


def total(usage: dict[int, dict[str, float]]) -> dict[str, float]:
    """The totals of every graph server, added up in the order of the servers, except those that name a link (``links``)
    or a processor (``processors``)."""
    names = {
        name: None for server in sorted(usage) for name in usage[server] if not name.startswith((BYTES_TO, PROCESSOR))
    }
    found = {name: [usage[server].get(name, 0) for server in sorted(usage)] for name in names}
    return {name: max(values) if name in NEEDS else sum(values) for name, values in found.items()}


def added(before: dict[str, float], totals: dict[str, float]) -> dict[str, float]:
    """Totals of one graph server, plus those of its earlier attempts."""
    if not before:
        return totals
    both = {name: before.get(name, 0) + totals.get(name, 0) for name in {**before, **totals}}
    as_one: dict[str, Callable[[float, float], float]] = {**dict.fromkeys(NEEDS, max), **HAS}
    return {
        **both,
        **{name: of(before.get(name, 0), totals.get(name, 0)) for name, of in as_one.items() if name in both},
    }


def links(usage: dict[int, dict[str, float]], parts: int, epochs: int) -> list[list[int]]:
    """Bytes of rows in a training epoch from each graph server (a row) to each."""
    return [
        [int(usage.get(a, {}).get(f"{BYTES_TO}{b}", 0)) // max(1, epochs) for b in range(parts)] for a in range(parts)
    ]


def processors(usage: dict[int, dict[str, float]]) -> list[str]:
    """Kinds of processors that graph servers and workers computed on, in this attempt and those before."""
    found = {name.removeprefix(PROCESSOR) for totals in usage.values() for name in totals if name.startswith(PROCESSOR)}
    return sorted(found)


def arithmetic(config: Config, kinds: list[str]) -> str:
    """The class of machines that give these weights bit for bit: "as everywhere", "numpy" if some ``kinds`` had no
    compiled kernels, "bfloat16" rows, of which some processors multiply pairs, "gpu"."""
    if config.servers.backend == "gpu":
        return "gpu"
    if any(kind.endswith(NUMPY) for kind in kinds):
        return "numpy"
    return "bfloat16" if config.model.rows == "bfloat16" else "as everywhere"


def lambda_cpu_share(config: Config) -> CpuShare | None:
    """The share of a core that environments outside AWS had: "real", the share that Lambda gives for their memory, or
    "free", no limit. None without such environments."""
    if config.servers.backend != "lambda" or config.lambdas.place.billed:
        return None
    return "real" if config.lambdas.cpu_share == "real" else "free"


def lanes(usage: Mapping[str, float]) -> Lanes:
    """Totals of training and of evaluation: tensor tasks, bytes of rows sent, seconds of computing, over all servers
    and workers."""
    seconds = {Lane.TRAIN: sum(usage.get(f"{kind.name}_s", 0.0) for kind in Kind), Lane.EVAL: usage.get("eval_s", 0.0)}
    return {
        lane.value: {
            "tensor_tasks": usage.get(f"{lane.value}_tasks", 0),
            "ghost_bytes": usage.get(f"{lane.value}_ghost_bytes", 0),
            "compute_s": seconds[lane],
        }
        for lane in Lane
    }


def of_lambda(usage: dict[str, float]) -> dict[str, float]:
    """The result's summary of Lambda usage: the rest stays in its "usage"."""
    wanted = ("invocations", "billed_ms", "gb_s", "relaunches", "duplicates")
    return {name: usage.get(name, 0) for name in wanted}


def check(sender: Address, message: Message) -> None:
    """Raises RemoteProtocolError, naming the sender, for a report about another server or with impossible numbers. A
    NaN or infinite loss is allowed: training diverged, and ``run.on_nan`` decides."""
    what = f"{type(message).__name__} of {sender}"
    match message:
        case EpochReport() | EvalReport() | Usage():
            claimed = graph_server(message.server)
        case Stopped():
            claimed = Address("param_server" if message.role == "param_server" else "graph_server", str(message.index))
        case _:
            return
    if sender != claimed:
        raise RemoteProtocolError(f"{what}: it names {claimed}")
    if isinstance(message, EpochReport):
        loss, staleness = message.loss, message.staleness
        if loss.ndim != 1 or loss.dtype.kind != "f" or bool((loss < LEAST_LOSS).any()):
            raise RemoteProtocolError(
                f"{what}: loss {loss.dtype} {list(loss.shape)}, must be one number, not negative, of each interval"
            )
        if staleness.ndim != 1 or staleness.dtype.kind != "i" or message.ghost_bytes < 0 or bool((staleness < 0).any()):
            raise RemoteProtocolError(
                f"{what}: {message.ghost_bytes} ghost bytes, staleness {staleness.tolist()[:8]}: must be counts"
            )
    if isinstance(message, Usage) and min(message.tasks_in_flight, message.workers) < 0:
        raise RemoteProtocolError(f"{what}: {message.tasks_in_flight} tasks, {message.workers} workers, must be counts")


def totals_of(message: EpochReport | Usage | Stopped) -> dict[str, float]:
    """The totals in a message. Raises RemoteProtocolError unless they are a JSON object of finite, non-negative
    numbers."""
    sender = f"{message.role} {message.index}" if isinstance(message, Stopped) else graph_server(message.server)
    what = f"{type(message).__name__}.usage of {sender}"
    try:
        totals = json.loads(message.usage)
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"{what}: {message.usage[:40]!r}: {error}") from error
    if not isinstance(totals, dict) or not all(type(value) in (int, float) for value in totals.values()):
        raise RemoteProtocolError(f"{what}: {message.usage[:40]!r}: not an object of numbers")
    if wrong := [f"{name[:40]} = {value}" for name, value in totals.items() if not 0 <= value < MOST]:
        raise RemoteProtocolError(f"{what}: {wrong[0][:80]}, must be finite and not negative")
    return totals


def error_of(message: Failed) -> GnnError:
    """A member's failure, as the error that it raised there; UnknownError, a PeerLost, for an error that is not
    ours."""
    cls, text = getattr(errors, message.error, None), message.text
    if not (isinstance(cls, type) and issubclass(cls, GnnError)):
        where = re.findall(r'File "([^"]+)", line (\d+), in', message.trace)
        at = f" ({where[-1][0]}:{where[-1][1]})" if where else ""
        cls, text = UnknownError, f"{message.text}{at}"
    error = cls(f"{message.role} {message.index}: {text}")
    if isinstance(error, UnknownError):
        error.what = text
    if hasattr(error, "add_note"):  # Python 3.11
        error.add_note(message.trace)
    return error


def outlasts(message: Failed) -> bool:
    """Whether the member stays alive and can be asked for its state: a parameter server that has lost a peer, or a
    message."""
    return (message.role, message.error) == ("param_server", "PeerLost")
