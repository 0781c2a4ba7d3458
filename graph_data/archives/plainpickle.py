"""Pickles of arrays, sparse matrices and plain containers, read without running them.

A pickle is a program. Here it is one of the instructions that make numbers, texts, lists, tuples and dicts,
and what it may call is ``BUILDERS`` alone: functions and classes of this file that stand for those of numpy
and SciPy and check what they are given. Everything else is refused by its name. Memory: all that is made is as
long as the bytes that it is made of.

The instructions are read by Python's own unpickler, the one that is written in Python: the other takes the memory that
an index asks for.
"""

from __future__ import annotations

import io
import math
import pickle
import re
import struct
import warnings
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
#: What the unpickler and the stand-ins raise for a pickle that is none.
_BROKEN = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, MemoryError, RecursionError),
    *(pickle.UnpicklingError, EOFError, struct.error),
)
_PYTHONS: Any = pickle._Unpickler
#: Instructions that are read as Python reads them: what begins and ends, and moves on the stack; numbers; texts;
#: containers; the memo; names of builders.
KEPT = b"\x80.(012N\x88\x89IJKML\x8a\x8bFGSTUBC\x8eVX\x8c\x8d]lae)t\x85\x86\x87}ghjpqr\x94c\x93"


class _Refused(Exception):
    """What a pickle asks for and does not get."""


def read(path: Path) -> Any:
    """What the pickle holds: numbers, texts, lists, tuples, dicts, ``array`` and ``matrix`` for theirs.

    Raises: DatasetError if there is no such file, it is broken, or it asks for anything else.
    """
    try:
        return loads(path.read_bytes(), str(path))
    except OSError as error:
        raise DatasetError(f"{path}: not readable ({error.strerror})") from None


def loads(content: bytes, name: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of an escape in a text that is none
            return _Reader(content).load()
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
    """copy_reg's: an instance whose state comes after."""
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


class _Instructions(dict[int, Any]):
    def __missing__(self, code: int) -> None:
        raise ValueError(f"instruction {bytes([code])!r}")


class _Reader(_PYTHONS):  # type: ignore[misc]
    """Calls BUILDERS alone, sets the state of what they made alone, and knows no other instruction."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="latin1")  # Python 2's bytes are texts of latin1
        self.unspent = COPIES * len(content) + 1024  # bytes and items that calls and states may still copy

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        if (module, name) not in BUILDERS:
            raise _Refused(f"{module[:60]}.{name[:60]}")
        return BUILDERS[module, name]

    def call(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if type(arguments) is not tuple or not any(function is builder for builder in BUILDERS.values()):
            raise ValueError("a call of no function")
        self.spend(arguments)
        self.append(function(*arguments))

    def build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], STAND_INS):
            raise ValueError("a state of nothing that has one")
        self.spend(state if type(state) is tuple else ())
        self.stack[-1].__setstate__(state)

    def spend(self, values: tuple[Any, ...]) -> None:
        """Counts what a stand-in copies: a memo names one value any number of times, in two bytes each."""
        self.unspent -= sum(len(value) for value in values if isinstance(value, (str, bytes, list, tuple, dict)))
        if self.unspent < 0:
            raise ValueError(f"it makes more than {COPIES} times what it holds")

    def items(self) -> None:
        self.put(self.pop_mark())

    def item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.put([key, value])

    def mapping(self) -> None:
        found = self.pop_mark()
        self.append({})
        self.put(found)

    def put(self, items: Sequence[Any]) -> None:
        for key, value in zip(items[::2], items[1::2], strict=True):
            _put(self.stack[-1], key, value)

    dispatch = _Instructions(
        {code: _PYTHONS.dispatch[code] for code in KEPT}
        | {
            pickle.FRAME[0]: lambda self: self.read(8),
            pickle.BYTEARRAY8[0]: _PYTHONS.dispatch[pickle.BINBYTES8[0]],  # its own asks for as much as it says
            pickle.REDUCE[0]: call,
            pickle.NEWOBJ[0]: call,
            pickle.BUILD[0]: build,
            pickle.DICT[0]: mapping,
            pickle.SETITEM[0]: item,
            pickle.SETITEMS[0]: items,
        }
    )
