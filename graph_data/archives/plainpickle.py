"""Pickles of arrays, sparse matrices and plain containers, read without running them.

A pickle is a program. This one runs only instructions that make numbers, texts, lists, tuples and dicts, and calls only
``BUILDERS``: functions and classes of this file that stand for those of numpy and SciPy and check their arguments.
Everything else is refused by its name. Memory: every object is as long as the bytes that it is made from.

Python's own unpickler is not used: it is limited only by a list of names, and it takes as much memory as an index asks
for.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from graph_data.archives.sparsematrix import csr
from siafu.errors import DatasetError
from siafu.sparse import Array

_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|[SU][1-9][0-9]{0,5}|O8|O)")
COPIES = 4  # a text becomes bytes, and these an array
_KEYS = (int, str, bytes)  # the hash of nested tuples is taken as deep as they go
#: What ``_Machine`` and the stand-ins raise for a pickle that is none.
_BROKEN = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, MemoryError, RecursionError)


class _Refused(Exception):
    """Raised for anything that a pickle asks for and does not get."""


def read(path: Path) -> Any:
    """The content of the pickle: numbers, texts, lists, tuples, dicts; pass its arrays and matrices to ``array`` and
    ``matrix``.

    Raises: DatasetError if there is no such file, it is broken, or it asks for anything else.
    """
    try:
        return loads(path.read_bytes(), str(path))
    except OSError as error:
        raise DatasetError(f"{path}: not readable ({error.strerror})") from None


def loads(content: bytes, name: str) -> Any:
    try:
        return _Machine(content).run()
    except _Refused as refused:
        raise DatasetError(
            f"{name}: a pickle that asks for {refused}; only arrays, scipy.sparse matrices, lists and dicts are read"
        ) from None
    except _BROKEN as error:
        raise DatasetError(f"{name}: not a readable pickle ({type(error).__name__}: {str(error)[:80]!r})") from None


def is_array(value: Any) -> bool:
    return isinstance(value, _Array)


def array(value: Any, name: str) -> Array:
    """The numbers or texts of an array, or of a list of numbers. Raises: DatasetError for anything else."""
    if isinstance(value, _Array) and value.values is not None:
        return value.values
    raise DatasetError(f"{name}: holds {_kind(value)}, must be a numpy array")


def matrix(value: Any, name: str) -> Any:
    """A ``scipy.sparse.csr_matrix`` without duplicates; its indices are checked. Raises:
    DatasetError for anything else."""
    if not isinstance(value, _Matrix) or not value.state:
        raise DatasetError(f"{name}: holds {_kind(value)}, must be a scipy.sparse matrix")
    try:
        return csr(value.format, {key: _plain(part) for key, part in value.state.items()})
    except ValueError as error:
        raise DatasetError(f"{name}: not a sparse matrix that can be read ({error})") from None


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):  # coords
        return tuple(part.values if isinstance(part, _Array) else part for part in value)
    return value.values if isinstance(value, _Array) else value


def _kind(value: Any) -> str:
    return {_Array: "an array", _Matrix: "a sparse matrix"}.get(type(value), f"a {type(value).__name__}")


# --- what stands for the classes and functions that a pickle names ----------------------------------------------------


class _Dtype:
    def __init__(self, text: Any = None, *_: Any) -> None:
        if not isinstance(text, str) or not _DTYPE.fullmatch(text):
            raise _Refused(f"an array of {repr(text[:40]) if isinstance(text, str) else _kind(text)}")
        self.dtype = np.dtype(text)

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 5 or any(part is not None for part in state[2:5]):
            raise _Refused("an array of records")
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    values: Array | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        self.values = _values(raw, dtype, shape, bool(fortran))


def _values(raw: Any, dtype: Any, shape: Any, fortran: bool) -> Array:
    if not isinstance(dtype, _Dtype) or not isinstance(shape, tuple):
        raise ValueError("an array without a dtype or a shape")
    if len(shape) > 8 or not all(type(size) is int and 0 <= size < 1 << 62 for size in shape):
        raise ValueError("an array of an impossible shape")
    order = "F" if fortran else "C"
    if dtype.dtype.hasobject:
        if not isinstance(raw, list) or len(raw) != math.prod(shape):
            raise ValueError("an array of objects that is not as long as its shape")
        held = np.empty(len(raw), object)
        for at, value in enumerate(raw):
            held[at] = value
        return held.reshape(shape, order=order)  # type: ignore[call-overload, no-any-return]
    content = raw.encode("latin1") if isinstance(raw, str) else raw
    if not isinstance(content, bytes) or len(content) != math.prod(shape) * dtype.dtype.itemsize:
        raise ValueError("an array that is not as long as its shape")
    values: Array = np.frombuffer(content, dtype.dtype).reshape(shape, order=order)  # type: ignore[call-overload]
    return values.astype(values.dtype.newbyteorder("="))


class _Matrix:
    format: ClassVar[str]
    state: dict[str, Any] | None = None

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, dict):
            raise ValueError("a sparse matrix without a state")
        self.state = state


class _Csr(_Matrix):
    format = "csr"


class _Csc(_Matrix):
    format = "csc"


class _Coo(_Matrix):
    format = "coo"


class _Object:
    """``object``, which Python 2 names when it makes an instance."""


def _array(*_: Any) -> _Array:
    return _Array()


def _from_buffer(raw: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    made = _Array()
    made.values = _values(raw, dtype, shape, order == "F")
    return made


def _scalar(dtype: Any, raw: Any) -> Any:
    return _values(raw, dtype, (1,), False)[0].item()


def _bytes(text: Any = "", encoding: Any = "latin1") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise ValueError("bytes that are no text of latin1")
    return text.encode("latin1")


def _list(values: Any = ()) -> list[Any]:
    if not isinstance(values, (list, tuple)):
        raise ValueError("a list of no list")
    return list(values)


def _dict(pairs: Any = ()) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    for key, value in _list(pairs):
        _put(made, key, value)
    return made


def _defaultdict(*_: Any) -> dict[Any, Any]:
    return {}


def _instance(cls: Any, *_: Any) -> Any:
    """Stands in for copy_reg's reconstructor: an instance that gets its state later."""
    if cls not in (_Csr, _Csc, _Coo):
        raise ValueError("an instance of no class that is known")
    return cls()


def _put(into: Any, key: Any, value: Any) -> None:
    if type(into) is not dict or type(key) not in _KEYS:
        raise ValueError(f"a dict by {type(key).__name__}")
    into[key] = value


STAND_INS = (_Dtype, _Array, _Matrix)  # what alone has a state that a pickle may set

_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
BUILDERS: dict[tuple[str, str], Callable[..., Any]] = {
    **{(module, "_reconstruct"): _array for module in _MULTIARRAY},
    **{(module, "scalar"): _scalar for module in _MULTIARRAY},
    **{(module, "_frombuffer"): _from_buffer for module in ("numpy.core.numeric", "numpy._core.numeric")},
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    **{
        (module.format(kind), f"{kind}_{noun}"): cls
        for kind, cls in (("csr", _Csr), ("csc", _Csc), ("coo", _Coo))
        for module in ("scipy.sparse.{}", "scipy.sparse._{}")
        for noun in ("matrix", "array")
    },
    **{(module, "list"): _list for module in ("__builtin__", "builtins")},
    **{(module, "dict"): _dict for module in ("__builtin__", "builtins")},
    **{(module, "object"): _Object for module in ("__builtin__", "builtins")},
    **{(module, "_reconstructor"): _instance for module in ("copy_reg", "copyreg")},
    ("collections", "defaultdict"): _defaultdict,
    ("collections", "OrderedDict"): _dict,
    ("_codecs", "encode"): _bytes,
    **{(module, "bytes"): _bytes for module in ("__builtin__", "builtins")},  # of none
}


class _Machine:
    """Runs a pickle: calls only BUILDERS, sets only the state of objects that these made, and knows no other
    instruction."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []  # heights of the stack
        self.memo: dict[int, Any] = {}
        self.unspent = COPIES * len(content) + 1024  # bytes and items that calls and states may still copy

    def run(self) -> Any:
        while (instruction := self.take(1)) != STOP:
            if instruction not in INSTRUCTIONS:
                raise ValueError(f"instruction {instruction!r}")
            INSTRUCTIONS[instruction](self)
        return self.pop()

    # --- the bytes

    def take(self, count: int) -> bytes:
        taken = self._content[self._at : self._at + count]
        if len(taken) < count:
            raise ValueError("it is cut short")
        self._at += count
        return taken

    def line(self) -> bytes:
        end = self._content.index(b"\n", self._at)
        return self.take(end + 1 - self._at)[:-1]

    def number(self, width: int, signed: bool = False) -> int:
        return int.from_bytes(self.take(width), "little", signed=signed)

    def counted(self, width: int) -> bytes:
        return self.take(self.number(width))

    # --- the stack

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def top(self) -> Any:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise ValueError("nothing is on its stack")
        return self.stack[-1]

    def pop(self) -> Any:
        self.top()
        return self.stack.pop()

    def popped(self, count: int) -> tuple[Any, ...]:
        return tuple(reversed([self.pop() for _ in range(count)]))

    def marked(self) -> list[Any]:
        """Pops the items above the last mark off the stack."""
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def drop(self) -> None:
        if self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
        else:
            self.pop()

    # --- what is made

    def extend(self, values: list[Any]) -> None:
        if type(self.top()) is not list:
            raise ValueError("an item of no list")
        self.top().extend(values)

    def put(self, items: Sequence[Any]) -> None:
        for key, value in zip(items[::2], items[1::2], strict=True):
            _put(self.top(), key, value)

    def find(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise ValueError("a name that is no text")
        if (module, name) not in BUILDERS:
            raise _Refused(f"{module[:60]}.{name[:60]}")
        self.push(BUILDERS[module, name])

    def call(self) -> None:
        arguments, function = self.pop(), self.pop()
        if type(arguments) is not tuple or not any(function is builder for builder in BUILDERS.values()):
            raise ValueError("a call of no function")
        self.spend(arguments)
        self.push(function(*arguments))

    def build(self) -> None:
        state = self.pop()
        if not isinstance(self.top(), STAND_INS):
            raise ValueError("a state of nothing that has one")
        self.spend(state if type(state) is tuple else ())
        self.top().__setstate__(state)

    def spend(self, values: tuple[Any, ...]) -> None:
        """Counts the values that a stand-in copies: a memo can name one value any number of times, in two bytes
        each."""
        self.unspent -= sum(len(value) for value in values if isinstance(value, (str, bytes, list, tuple, dict)))
        if self.unspent < 0:
            raise ValueError(f"it makes more than {COPIES} times what it holds")


def _integer(line: bytes) -> int:
    return {b"00": False, b"01": True}[line] if line in (b"00", b"01") else int(line)


def _quoted(line: bytes) -> str:
    """The text in a Python 2 repr of bytes, each byte as the character with its number."""
    if len(line) < 2 or line[0] != line[-1] or line[:1] not in (b"'", b'"'):
        raise ValueError("a text without quotes")
    return re.sub(rb"\\(x[0-9a-fA-F]{2}|.|$)", _unescaped, line[1:-1]).decode("latin1")


def _unescaped(match: re.Match[bytes]) -> bytes:
    said = match[1]
    if len(said) == 3:
        return bytes([int(said[1:], 16)])
    return {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"\\": b"\\", b"'": b"'", b'"': b'"'}[said]


def _found(machine: _Machine) -> None:
    module, name = (machine.line().decode() for _ in range(2))
    machine.find(module, name)


def _remember(machine: _Machine, place: int) -> None:
    machine.memo[place] = machine.top()


def _mapping(machine: _Machine) -> None:
    items = machine.marked()
    machine.push({})
    machine.put(items)


STOP = b"."
INSTRUCTIONS: dict[bytes, Callable[[_Machine], Any]] = {  # as the module pickletools describes them
    b"\x80": lambda m: m.take(1),  # the protocol
    b"\x95": lambda m: m.take(8),  # a frame
    b"(": lambda m: m.marks.append(len(m.stack)),
    b"0": _Machine.drop,
    b"1": _Machine.marked,
    b"2": lambda m: m.push(m.top()),
    # numbers
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"I": lambda m: m.push(_integer(m.line())),
    b"J": lambda m: m.push(m.number(4, signed=True)),
    b"K": lambda m: m.push(m.number(1)),
    b"M": lambda m: m.push(m.number(2)),
    b"L": lambda m: m.push(int(m.line().removesuffix(b"L"))),
    b"\x8a": lambda m: m.push(m.number(m.number(1), signed=True)),
    b"\x8b": lambda m: m.push(m.number(m.number(4), signed=True)),
    b"F": lambda m: m.push(float(m.line())),
    b"G": lambda m: m.push(struct.unpack(">d", m.take(8))[0]),
    # texts; Python 2's bytes are texts of latin1
    b"S": lambda m: m.push(_quoted(m.line())),
    b"T": lambda m: m.push(m.counted(4).decode("latin1")),
    b"U": lambda m: m.push(m.counted(1).decode("latin1")),
    b"B": lambda m: m.push(m.counted(4)),
    b"C": lambda m: m.push(m.counted(1)),
    b"\x8e": lambda m: m.push(m.counted(8)),
    b"\x96": lambda m: m.push(m.counted(8)),  # a bytearray
    b"V": lambda m: m.push(m.line().decode("raw-unicode-escape")),
    b"X": lambda m: m.push(m.counted(4).decode("utf-8", "surrogatepass")),
    b"\x8c": lambda m: m.push(m.counted(1).decode("utf-8", "surrogatepass")),
    b"\x8d": lambda m: m.push(m.counted(8).decode("utf-8", "surrogatepass")),
    # containers
    b"]": lambda m: m.push([]),
    b"l": lambda m: m.push(m.marked()),
    b"a": lambda m: m.extend([m.pop()]),
    b"e": lambda m: m.extend(m.marked()),
    b")": lambda m: m.push(()),
    b"t": lambda m: m.push(tuple(m.marked())),
    b"\x85": lambda m: m.push(m.popped(1)),
    b"\x86": lambda m: m.push(m.popped(2)),
    b"\x87": lambda m: m.push(m.popped(3)),
    b"}": lambda m: m.push({}),
    b"d": _mapping,
    b"s": lambda m: m.put(m.popped(2)),
    b"u": lambda m: m.put(m.marked()),
    # the memo
    b"g": lambda m: m.push(m.memo[int(m.line())]),
    b"h": lambda m: m.push(m.memo[m.number(1)]),
    b"j": lambda m: m.push(m.memo[m.number(4)]),
    b"p": lambda m: _remember(m, int(m.line())),
    b"q": lambda m: _remember(m, m.number(1)),
    b"r": lambda m: _remember(m, m.number(4)),
    b"\x94": lambda m: _remember(m, len(m.memo)),
    # builders
    b"c": _found,
    b"\x93": lambda m: m.find(*m.popped(2)),
    b"R": _Machine.call,
    b"\x81": _Machine.call,
    b"b": _Machine.build,
}
