"""Every message on the wire, and the only code that encodes and decodes them. This text is the specification.

    frame 0    b"SIAF", version (1 byte), tag (1 byte), run id (8 bytes), number of the message on its link (8 bytes;
               0: not numbered, siafu.message_numbers), crc32 of all of that and of frame 1 (4 bytes); integers
               little-endian
    frame 1    UTF-8 JSON object, at most 1 MiB: every field of the message; for a tensor its descriptor; a float may
               be NaN or Infinity (a loss that diverged)
    frame 2..  one raw little-endian C-order buffer per tensor (three for sparse rows: indptr, indices, data; two for
               rows of edges: indptr, values; a third where edges share values: index), in order

A dense tensor's descriptor is ``{"d": dtype, "s": [shape], "c": crc32}``. Sparse rows are
``{"w": width, "t": [three dense descriptors]}``, rows of edges ``{"e": [two or three dense descriptors]}``. A
``Tensors`` field is an object name -> descriptor, its buffers in the object's order. Dtypes are those of ``DTYPES``; a
tensor has at most 4 dimensions and MAX_TENSOR_BYTES bytes. Integers fit 64 bits. A lane is "train" or "eval". The run
id keeps a message of another run, or of an earlier attempt of this one, out.

``decode`` returns a message or raises RemoteProtocolError; a fuzz test proves that there is no third outcome. No
contiguous buffer is copied in either direction.

A change of layout raises VERSION and changes tests/golden in the same commit.
"""

from __future__ import annotations

import dataclasses
import json
import struct
import typing
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from siafu.errors import LocalProtocolError, RemoteProtocolError
from siafu.processor import UNKNOWN
from siafu.sparse import Array, EdgeRows, Rows, SparseRows, TaskRows
from siafu.tasks import Lane, TaskId

MAGIC, VERSION = b"SIAF", 14
RUN_ID_BYTES = 8
_LEAD = struct.Struct(f"<4sBB{RUN_ID_BYTES}sQ")  # of frame 0; the crc32 follows
_CRC = struct.Struct("<I")
MAX_HEADER_BYTES = 1 << 20
MAX_TENSOR_BYTES = 1 << 34
MAX_DIMENSIONS = 4
MAX_WIDTH = 1 << 31  # of sparse rows: their column indices are i4
DTYPES = {code: np.dtype("<" + code) for code in ("f2", "f4", "f8", "i4", "i8", "u2")} | {
    "u1": np.dtype("u1"),
    "b1": np.dtype("?"),
}
_to_json = json.JSONEncoder(separators=(",", ":")).encode
_CODES = {dtype: code for code, dtype in DTYPES.items()}
_LANES = tuple(lane.value for lane in Lane)

Tensor = Array
Tensors = dict[str, TaskRows]
LaneName = str  # the value of a Lane
#: A subset of an interval's rows: "" (all), "training" (vertices), "feeding" (rows that the loss's gather reads),
#: "judged" (vertices), "feeding judged" (rows that the evaluation's last gather reads).
Subset = str
TENSOR, TENSORS, LANE = "Tensor", "Tensors", "LaneName"  # their names in annotations
Frame = bytes | bytearray | memoryview
Checksum = Callable[[Frame], int]
Buffer = tuple[memoryview, Checksum]  # a frame, and its checksum function
#: Prefix of totals in a ``usage`` that are of one link: bytes of rows to that graph server.
BYTES_TO = "bytes_to_"


#: Roles that may send a message (``Message.by``).
BY_COORDINATOR = frozenset({"coordinator"})
BY_SERVERS = BY_COORDINATOR | {"graph_server", "param_server"}
BY_ANYBODY = BY_SERVERS | {"worker"}


class Message:
    """Base class of all messages. Each kind has its own tag."""

    tag: ClassVar[int]
    by: ClassVar[frozenset[str]]  # roles that may send it; from others it is dropped (``siafu.sockets``)


MESSAGES: dict[int, type[Message]] = {}  # tag -> class
_C = TypeVar("_C")
_M = TypeVar("_M", bound=Message)

if typing.TYPE_CHECKING:
    from typing import dataclass_transform  # Python 3.11; only type checkers need it
else:

    def dataclass_transform(**_: bool) -> Callable[[_C], _C]:
        return lambda decorator: decorator


@dataclass_transform(frozen_default=True, eq_default=False)
def message(tag: int, by: frozenset[str] = BY_SERVERS) -> Callable[[type[_M]], type[_M]]:
    """Class decorator: makes a frozen dataclass with this tag, which these roles may send."""

    def register(cls: type[_M]) -> type[_M]:
        assert tag not in MESSAGES, f"tag {tag} is taken"
        cls.tag, cls.by = tag, by
        MESSAGES[tag] = dataclass(frozen=True, eq=False)(cls)
        return cls

    return register


# --- everybody ----------------------------------------------------------------------------------------------------


@message(1, BY_ANYBODY)
class Hello(Message):
    """The first message on every link. ``address``: the sender's mailbox, empty for a worker."""

    role: str  # "graph_server", "param_server" or "worker"
    index: int
    config_digest: str
    address: str


@message(2)
class Welcome(Message):
    """The answer to a Hello with the right config."""

    role: str
    index: int


@message(3)
class Refused(Message):
    """The answer to a Hello with another config; the sender of the Hello gives up."""

    reason: str


@message(4, BY_ANYBODY)
class Heartbeat(Message):
    role: str
    index: int


@message(5)
class Failed(Message):
    """A role gives up; ``text`` is for the user, ``trace`` for the log."""

    role: str
    index: int
    error: str
    text: str
    trace: str


# --- coordinator and servers --------------------------------------------------------------------------------------


@message(10, BY_COORDINATOR)
class Roster(Message):
    """Coordinator to servers: the addresses of all servers' mailboxes, by index."""

    graph_servers: tuple[str, ...]
    param_servers: tuple[str, ...]


@message(11)
class Ready(Message):
    """Server to coordinator: all its links stand."""

    role: str
    index: int


@message(12, BY_COORDINATOR)
class Start(Message):
    """Coordinator to servers: training may begin with ``epoch``. ``judged``: the last epoch whose evaluation is done;
    -1: none."""

    epoch: int = 0
    judged: int = -1


@message(13)
class EpochReport(Message):
    """Graph server to coordinator: its intervals are through a training epoch."""

    server: int
    epoch: int
    loss: Tensor  # f8 [intervals]: each one's share of the mean loss
    ghost_bytes: int  # rows sent to peers in this epoch's training
    staleness: Tensor  # i8 [b]: gathers by how many epochs old their oldest row was (0, 1, ...)
    usage: str  # JSON object: totals of the server and of its tensor backend so far


@message(14)
class EvalReport(Message):
    """Graph server to coordinator: counts of its vertices under the weights after an epoch."""

    server: int
    epoch: int
    counts: Tensor  # the tally of the target's metric: siafu.metrics


@message(15, BY_COORDINATOR)
class Judged(Message):
    """Coordinator to servers: the evaluation after ``epoch`` is done. ``best``: keep its weights. ``stop``: training
    ends."""

    epoch: int
    best: bool
    stop: bool


@message(16, BY_COORDINATOR)
class GetModel(Message):
    """Coordinator to parameter server. ``which``: "best", "final" or "latest"."""

    which: str


@message(17)
class ModelWeights(Message):
    """The answer to GetModel."""

    which: str
    version: int
    tensors: Tensors
    stash_peak: int


@message(18, BY_COORDINATOR)
class Stop(Message):
    """Coordinator to servers: leave now."""

    reason: str


@message(19)
class Usage(Message):
    """Graph server to coordinator, regularly, as its heartbeat: numbers for the progress line."""

    server: int
    tasks_in_flight: int
    workers: int
    usage: str  # JSON object: totals of the server and of its tensor backend so far


@message(20)
class Stopped(Message):
    """A server's last message; ``usage`` as in EpochReport, with the whole bill."""

    role: str
    index: int
    usage: str


@message(21, BY_COORDINATOR)
class GetState(Message):
    """Coordinator to parameter server: send your state now."""


@message(22)
class ParamState(Message):
    """The state from which a parameter server can resume after ``version`` steps. It sends it if the coordinator asks
    or a checkpoint is due; when a run resumes, the coordinator sends it before ``Start``.

    ``weights``: "VERSION/NAME" of the latest version, the best one and those still to be evaluated; ``optimiser``:
    ``Optimiser.state``; ``best``: the version judged best, -1: none; in a resumed run it may be a version still to
    come; ``judged``: the last epoch whose evaluation is done, -1: none.
    """

    server: int
    version: int
    best: int
    judged: int
    weights: Tensors
    optimiser: Tensors


@message(23)
class Skipped(Message):
    """Parameter server to coordinator: the step of ``epoch`` is left out (``run.on_nan``). ``where``: the source of the
    values that are not finite."""

    server: int
    epoch: int
    where: str


# --- graph servers among themselves ---------------------------------------------------------------------------------


@message(30)
class GhostMap(Message):
    """Once per interval, direction and link: the vertices whose rows of an interval will be sent. ``backward``: rows of
    gradients.

    ``wants_features``: the sender has yet to aggregate layer 0, and needs the features of its ghosts from the receiver.
    """

    server: int
    backward: bool
    interval: int  # global number
    wants_features: bool
    vertices: Tensor  # i8 [n]
    roles: Tensor  # u1 [n]: roles of the vertices (siafu.graph). Steps of the loss send rows of those that count alone


@message(31)
class PublishedRows(Message):
    """The rows of an interval that the receiver has as ghosts, in the order of its GhostMap."""

    lane: LaneName
    epoch: int
    pc: int
    interval: int
    values: Tensor  # [n, F]


@message(32)
class ConstantRows(Message):
    """Once per interval and peer, before the first epoch: the features of the vertices of the forward GhostMap."""

    server: int
    interval: int
    rows: Tensors  # {"features": [n, F]}


# --- tensor tasks -----------------------------------------------------------------------------------------------------


@message(40, BY_ANYBODY)
class Pull(Message):
    """Worker to graph server: the worker can take ``credits`` more tasks. ``processor``: ``siafu.processor.kind``."""

    worker: str
    credits: int
    processor: str = UNKNOWN


@dataclass(frozen=True, eq=False)
class OfTask(Message):
    """The first fields of all messages about one attempt at a tensor task. Not sent itself."""

    lane: LaneName
    epoch: int
    interval: int
    pc: int
    attempt: int

    @property
    def id(self) -> TaskId:
        return TaskId(Lane(self.lane), self.epoch, self.interval, self.pc)


@message(41)
class Task(OfTask):
    """Graph server to worker: part 0 of a tensor task.

    ``constants``: slots whose rows never change. Rows that come with a part are to be kept; others were sent before,
    and a worker that no longer has them sends ``RowsMissing``. If ``on_request``, a worker also sends ``RowsMissing``
    for each part after the first: it has memory for one at a time. ``subset``: the subset of the interval's rows in
    the task and its result; constants are kept separately for each subset.
    """

    param_server: int
    num_parts: int
    constants: tuple[str, ...]
    rows: Tensors
    on_request: bool = False
    subset: Subset = ""


@message(42)
class TaskPart(OfTask):
    """Graph server to worker: the rows of a further part."""

    part: int
    rows: Tensors


@message(43, BY_ANYBODY)
class TaskResult(OfTask):
    """Worker to graph server: a task's result, sent after the parameter server has acknowledged the gradients."""

    worker: str
    loss: float
    compute_s: float
    rows: Tensors


@message(44, BY_ANYBODY)
class TaskFailed(OfTask):
    """Worker to graph server: the task raised; ``trace`` is the remote traceback."""

    worker: str
    trace: str


@message(45, BY_ANYBODY)
class Bye(Message):
    """Worker to graph server: the worker leaves (idle, told to, or near its deadline)."""

    worker: str


@message(46)
class Leave(Message):
    """Graph server to worker: there is nothing more to do."""


@message(47, BY_ANYBODY)
class RowsMissing(OfTask):
    """Worker to graph server: send all rows of this part again (``TaskPart``)."""

    worker: str
    part: int


# --- parameter servers ------------------------------------------------------------------------------------------------


@message(50, BY_ANYBODY)
class FetchWeights(Message):
    """Asks for parameters of layers. The first request of (interval, epoch) fixes the version for all later ones."""

    lane: LaneName
    epoch: int
    interval: int
    layers: tuple[int, ...]
    attempt: int
    have: tuple[int, ...]  # versions that the sender still holds of all these layers


@message(51)
class Weights(Message):
    """The answer to FetchWeights. ``tensors`` is empty if its sender has ``version`` already."""

    lane: LaneName
    epoch: int
    interval: int
    layers: tuple[int, ...]
    attempt: int
    version: int
    tensors: Tensors


@message(52, BY_ANYBODY)
class Gradient(Message):
    """The gradients of one interval's layer; the first of (epoch, interval, layer) counts."""

    epoch: int
    interval: int
    layer: int
    attempt: int
    tensors: Tensors


@message(53)
class GradientAck(Message):
    epoch: int
    interval: int
    layer: int
    attempt: int


@message(54)
class IntervalDone(Message):
    """Graph server to parameter server: WU of an interval; its stash can be freed."""

    epoch: int
    interval: int


@message(55)
class EpochDone(Message):
    """Graph server to every parameter server: all its intervals are through the epoch; ``intervals``: the number that
    used the receiver."""

    server: int
    epoch: int
    intervals: int


@message(56)
class PartialSums(Message):
    """Parameter server to its peers: its part of an epoch's gradient, as complete subtrees of the summation tree."""

    server: int
    epoch: int
    layer: int
    nodes: tuple[str, ...]  # "level:index" of each subtree
    tensors: Tensors  # "node/parameter"
    last: bool  # no further layer follows


@message(57)
class WeightsReady(Message):
    """Parameter server to graph servers: it has taken a step, and its latest weights have ``version`` steps.

    ``load``: the stashes that it now holds for intervals of graph servers other than the receiver."""

    server: int
    version: int
    load: int


def by_version(weights: Tensors) -> dict[int, dict[str, TaskRows]]:
    """Splits ``ParamState.weights`` by version. Raises: RemoteProtocolError for a name that is not VERSION/NAME."""
    versions: dict[int, dict[str, TaskRows]] = {}
    for key, W in weights.items():
        version, _, name = key.partition("/")
        if not (version.isdecimal() and name):
            raise RemoteProtocolError(f"ParamState.weights: {key[:40]!r} is not VERSION/NAME")
        versions.setdefault(int(version), {})[name] = W
    return versions


# --- codec ----------------------------------------------------------------------------------------------------------


def encode(msg: Message, run_id: bytes, checksum: Checksum = zlib.crc32, number: int = 0) -> list[Frame]:
    """Encodes a message into frames, without copying tensors. ``checksum``: a function equal to ``zlib.crc32``, maybe
    faster; ``number``: of the message on its link.

    Raises: LocalProtocolError for a message that the protocol does not allow.
    """
    cls = type(msg)
    if MESSAGES.get(getattr(cls, "tag", -1)) != cls:
        raise LocalProtocolError(f"{cls.__name__} is not a message of this protocol")
    head: dict[str, Any] = {}
    buffers: list[Frame] = []
    for field in _layout(msg.tag):
        value = getattr(msg, field.name)
        if field.kind == TENSOR:
            head[field.name] = _describe_dense(value, buffers, field.where, checksum)
        elif field.kind == TENSORS:
            head[field.name] = {
                key: _describe(rows, buffers, f"{field.where}.{key}", checksum) for key, rows in value.items()
            }
        else:
            head[field.name] = _plain(value, field)
    text = _to_json(head).encode()
    if len(text) > MAX_HEADER_BYTES:
        raise LocalProtocolError(f"{cls.__name__}: header of {len(text)} bytes, at most {MAX_HEADER_BYTES}")
    return [_seal(_LEAD.pack(MAGIC, VERSION, cls.tag, run_id, number), text), text, *buffers]


def decode(frames: Sequence[Frame], run_id: bytes, checksum: Checksum = zlib.crc32) -> Message:
    """Decodes the message in the frames; its tensors are views of them. ``checksum`` as for ``encode``.

    Raises: RemoteProtocolError for anything else.
    """
    try:
        return _decode([memoryview(frame) for frame in frames], run_id, checksum)
    except RemoteProtocolError:
        raise
    except (ValueError, KeyError, IndexError, TypeError, RecursionError, OverflowError) as error:
        raise RemoteProtocolError(f"malformed message: {type(error).__name__}: {error}") from error


def number_of(frames: Sequence[Frame]) -> int:
    """Returns the number of a message that ``decode`` has accepted."""
    number: int = _LEAD.unpack_from(frames[0])[-1]
    return number


def nbytes(msg: Message) -> int:
    """Returns the bytes of the message's tensors."""
    total = 0
    for field in _layout(msg.tag):
        value = getattr(msg, field.name)
        if field.kind == TENSOR:
            total += value.nbytes
        elif field.kind == TENSORS:
            total += sum(rows.nbytes for rows in value.values())
    return total


class _Field(NamedTuple):
    """One field of a message."""

    name: str
    where: str  # for an error message: "Task.epoch"
    kind: Any  # TENSOR, TENSORS, LANE, or a type; for a tuple the type of its items
    is_tuple: bool


@cache
def _layout(tag: int) -> tuple[_Field, ...]:
    cls: type = MESSAGES[tag]
    # Annotations are strings here; our own three kinds stay strings, the rest are resolved to types.
    hints = typing.get_type_hints(cls)
    made = []
    for f in dataclasses.fields(cls):
        kind = f.type if f.type in (TENSOR, TENSORS, LANE) else hints[f.name]
        is_tuple = typing.get_origin(kind) is tuple
        item = typing.get_args(kind)[0] if is_tuple else kind
        made.append(_Field(f.name, f"{cls.__name__}.{f.name}", item, is_tuple))
    return tuple(made)


@cache
def _names(tag: int) -> frozenset[str]:
    return frozenset(field.name for field in _layout(tag))


def _plain(value: Any, field: _Field) -> Any:
    try:
        return _parse(list(value) if isinstance(value, tuple) else value, field, iter(()))
    except RemoteProtocolError as error:
        raise LocalProtocolError(str(error)) from None


def _describe(rows: TaskRows, buffers: list[Frame], where: str, checksum: Checksum) -> dict[str, Any]:
    if isinstance(rows, SparseRows):
        parts = (rows.indptr, rows.indices, rows.data)
        return {"w": rows.width, "t": [_describe_dense(part, buffers, where, checksum) for part in parts]}
    if isinstance(rows, EdgeRows):
        edges = (rows.indptr, rows.values, *(() if rows.index is None else (rows.index,)))
        return {"e": [_describe_dense(part, buffers, where, checksum) for part in edges]}
    return _describe_dense(rows, buffers, where, checksum)


def _describe_dense(rows: Rows, buffers: list[Frame], where: str, checksum: Checksum) -> dict[str, Any]:
    if not isinstance(rows, np.ndarray):
        raise LocalProtocolError(f"{where}: {type(rows).__name__}, must be a dense array")
    if rows.ndim > MAX_DIMENSIONS or rows.nbytes > MAX_TENSOR_BYTES:
        raise LocalProtocolError(f"{where}: shape {list(rows.shape)} is not allowed")
    code = _CODES.get(rows.dtype)
    if code is None:
        raise LocalProtocolError(f"{where}: dtype {rows.dtype} is not one of {', '.join(DTYPES)}")
    data = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
    buffers.append(data)
    return {"d": code, "s": list(rows.shape), "c": checksum(data)}


def _seal(lead: bytes, text: Frame) -> bytes:
    """Returns frame 0: the lead and the crc32."""
    return lead + _CRC.pack(zlib.crc32(text, zlib.crc32(lead)))


def _decode(frames: list[memoryview], run_id: bytes, checksum: Checksum) -> Message:
    if len(frames) < 2:
        raise RemoteProtocolError(f"{len(frames)} frames, at least 2")
    lead, text = bytes(frames[0]), frames[1]
    if lead[:4] != MAGIC or len(lead) < 5:
        raise RemoteProtocolError("not a message of siafu")
    if lead[4] != VERSION:  # its frame 0 may be of another length
        raise RemoteProtocolError(f"protocol version {lead[4]}, this is version {VERSION}")
    if len(lead) != _LEAD.size + _CRC.size:
        raise RemoteProtocolError("not a message of siafu")
    _, _, tag, its_run, _ = _LEAD.unpack_from(lead)
    cls = MESSAGES.get(tag)
    if cls is None:
        raise RemoteProtocolError(f"unknown tag {tag}")
    if its_run != run_id:
        raise RemoteProtocolError(f"a {cls.__name__} of another run")
    if text.nbytes > MAX_HEADER_BYTES:
        raise RemoteProtocolError(f"{cls.__name__}: header of {text.nbytes} bytes, at most {MAX_HEADER_BYTES}")
    if lead != _seal(lead[: _LEAD.size], text):
        raise RemoteProtocolError(f"{cls.__name__}: checksum of the header differs, it was corrupted on its way")
    head = json.loads(str(text, "utf-8"))
    layout = _layout(tag)
    if not isinstance(head, dict) or head.keys() != _names(tag):
        raise RemoteProtocolError(f"{cls.__name__}: must have the fields {', '.join(field.name for field in layout)}")
    buffers = ((frame, checksum) for frame in frames[2:])
    values = {field.name: _parse(head[field.name], field, buffers) for field in layout}
    if next(buffers, None) is not None:
        raise RemoteProtocolError(f"{cls.__name__}: more frames than tensors")
    return cls(**values)


def _parse(value: Any, field: _Field, buffers: Iterator[Buffer]) -> Any:
    where, kind = field.where, field.kind
    if kind == TENSOR:
        rows = _rows(where, value, buffers)
        if not isinstance(rows, np.ndarray):
            raise RemoteProtocolError(f"{where}: not a plain tensor, must be dense")
        return rows
    if kind == TENSORS:
        descriptors = _expect(where, value, dict).items()
        return {key: _rows(f"{where}.{key}", descriptor, buffers) for key, descriptor in descriptors}
    if kind == LANE:
        if value not in _LANES:
            raise RemoteProtocolError(f"{where}: {str(value)[:40]!r} is not one of {', '.join(_LANES)}")
        return value
    if field.is_tuple:
        return tuple(_scalar(where, v, kind) for v in _expect(where, value, list))
    return _scalar(where, value, kind)


def _scalar(where: str, value: Any, kind: type) -> Any:
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        _expect(where, value, kind)
    if kind is int and not -(2**63) <= value < 2**63:
        raise RemoteProtocolError(f"{where}: {str(value)[:40]} does not fit 64 bits")
    return value


def _expect(where: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise RemoteProtocolError(f"{where}: {str(value)[:40]!r} is not of type {kind.__name__}")
    return value


def _rows(where: str, descriptor: Any, buffers: Iterator[Buffer]) -> TaskRows:
    if isinstance(descriptor, dict) and set(descriptor) == {"e"}:
        return _edge_rows(where, descriptor["e"], buffers)
    if not isinstance(descriptor, dict) or set(descriptor) != {"w", "t"}:
        return _dense(where, descriptor, buffers)
    indptr, indices, data = (_dense(where, part, buffers) for part in _expect(where, descriptor["t"], list))
    width = _scalar(where, descriptor["w"], int)
    dtypes = (indptr.dtype, indices.dtype)
    if dtypes != (DTYPES["i8"], DTYPES["i4"]) or not indptr.ndim == indices.ndim == data.ndim == 1:
        raise RemoteProtocolError(f"{where}: sparse rows need i8 indptr, i4 indices and data, each of one dimension")
    if not 0 <= width <= MAX_WIDTH:
        raise RemoteProtocolError(f"{where}: sparse rows of width {width}, must be in 0..{MAX_WIDTH}")
    if not len(indptr) or indptr[0] != 0 or indptr[-1] != len(indices) or len(indices) != len(data):
        raise RemoteProtocolError(f"{where}: sparse rows whose lengths disagree")
    # Compared, not subtracted: a difference of two hostile integers may wrap around.
    if (indptr[1:] < indptr[:-1]).any() or (len(indices) and not 0 <= indices.min() <= indices.max() < width):
        raise RemoteProtocolError(f"{where}: sparse rows with an index outside of [0, {width})")
    return SparseRows(indptr, indices, data, width)


def _edge_rows(where: str, parts: Any, buffers: Iterator[Buffer]) -> EdgeRows:
    indptr, values, *more = (_dense(where, part, buffers) for part in _expect(where, parts, list))
    if indptr.dtype != DTYPES["i8"] or indptr.ndim != 1 or values.ndim != 2:
        raise RemoteProtocolError(f"{where}: rows of edges need i8 indptr of one dimension and values of two")
    edges = more[0] if more else values
    if len(more) > 1 or (more and (edges.dtype != DTYPES["i4"] or edges.ndim != 1)):
        raise RemoteProtocolError(f"{where}: rows of edges that share values need one i4 index of one dimension")
    if not len(indptr) or indptr[0] != 0 or indptr[-1] != len(edges) or (indptr[1:] < indptr[:-1]).any():
        raise RemoteProtocolError(f"{where}: rows of edges whose lengths disagree")
    if more and len(edges) and not 0 <= edges.min() <= edges.max() < len(values):
        raise RemoteProtocolError(f"{where}: rows of edges with an index outside of [0, {len(values)})")
    return EdgeRows(indptr, values, edges if more else None)


def _dense(where: str, descriptor: Any, buffers: Iterator[Buffer]) -> Array:
    if not isinstance(descriptor, dict) or set(descriptor) != {"d", "s", "c"}:
        raise RemoteProtocolError(f"{where}: not a tensor's descriptor")
    dtype = DTYPES.get(_expect(where, descriptor["d"], str))
    if dtype is None:
        raise RemoteProtocolError(f"{where}: dtype {descriptor['d']!r} is not one of {', '.join(DTYPES)}")
    shape = [_scalar(where, size, int) for size in _expect(where, descriptor["s"], list)]
    size = limited = dtype.itemsize
    for dimension in shape:
        size *= dimension
        limited *= max(1, dimension)  # refuses [0, 2**62] too: a reader may allocate by the width alone
        if dimension < 0 or limited > MAX_TENSOR_BYTES or len(shape) > MAX_DIMENSIONS:
            raise RemoteProtocolError(f"{where}: shape {str(shape)[:80]} is not allowed")
    buffer, checksum = next(buffers, (None, zlib.crc32))
    if buffer is None or buffer.nbytes != size:
        raise RemoteProtocolError(f"{where}: {'no' if buffer is None else buffer.nbytes} bytes, must be {size}")
    if checksum(buffer) != descriptor["c"]:
        raise RemoteProtocolError(f"{where}: checksum differs, the frame was corrupted on its way")
    if dtype.kind == "b" and size and np.frombuffer(buffer, np.uint8).max() > 1:
        raise RemoteProtocolError(f"{where}: a boolean that is neither 0 nor 1")
    return np.frombuffer(buffer, dtype).reshape(shape)
