"""Pickles are read without running them."""

import builtins
import collections
import os
import pickle
import struct
import subprocess
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from graph_data.archives import plainpickle
from siafu.errors import DatasetError

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


class Calls:
    def __init__(self, function, *arguments):
        self.said = function, arguments

    def __reduce__(self):
        return self.said


def refusal(content):
    with pytest.raises(DatasetError) as error:
        plainpickle.loads(content, "FILE")
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pickle_that_calls_a_function_is_refused_by_its_name_and_runs_nothing(protocol, tmp_path):
    ran = tmp_path / "ran"
    for function, name in (
        (os.system, f"{os.system.__module__}.system"),
        (subprocess.Popen, "subprocess.Popen" if protocol > 2 else "commands.Popen"),  # as Python 2 calls it
        (builtins.eval, "builtins.eval" if protocol > 2 else "__builtin__.eval"),
        (np.load, "numpy.load"),
    ):
        assert refusal(pickle.dumps(Calls(function, f"touch {ran}"), protocol)) == (
            f"FILE: a pickle that asks for {name}; only arrays, scipy.sparse matrices, lists and dicts are read"
        )
    assert not ran.exists()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("dtype", ["bool", "int8", "<i4", ">i8", "float32", ">f8", "<U3", "S4"])
def test_arrays_come_back(protocol, dtype):
    values = np.array([[1, 0, 1], [0, 0, 1]]).astype(dtype)
    for given in (values, np.asfortranarray(values), values[:0]):
        back = plainpickle.array(plainpickle.loads(pickle.dumps(given, protocol), "FILE"), "FILE")
        assert back.dtype == given.dtype.newbyteorder("=")
        np.testing.assert_array_equal(back, given)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["csr_matrix", "csc_matrix", "coo_matrix", "csr_array", "csc_array", "coo_array"])
def test_matrices_come_back(protocol, kind):
    dense = np.array([[0, 2, 0], [1, 0, 3]], np.float32)
    given = getattr(scipy.sparse, kind)(dense)
    back = plainpickle.matrix(plainpickle.loads(pickle.dumps(given, protocol), "FILE"), "FILE")
    np.testing.assert_array_equal(back.toarray(), dense)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_plain_containers_and_scalars_come_back(protocol):
    lists = collections.defaultdict(list, {0: [1, 2], 3: []})
    given = {
        "a": lists,
        "b": collections.OrderedDict(x=1, y=(2.5, None, True)),
        "c": np.int64(7),
        "d": b"\xff",
        "e": "\xe9",
    }
    back = plainpickle.loads(pickle.dumps(given, protocol), "FILE")
    assert back == given
    assert type(back["a"]) is dict


def test_what_python_2_wrote_is_read():
    """copy_reg's instances of protocol 0, and texts that are bytes."""
    indices, data = (pickle.dumps(values, 0)[:-1] for values in (np.array([1], np.int32), np.array([5.0])))
    indptr = pickle.dumps(np.array([0, 1], np.int32), 0)[:-1]
    content = (
        b"ccopy_reg\n_reconstructor\n(cscipy.sparse.csr\ncsr_matrix\nc__builtin__\nobject\nNtR(dS'_shape'\n(I1\nI2\ntsS'indices'\n"
        + indices
        + b"sS'data'\n"
        + data
        + b"sS'indptr'\n"
        + indptr
        + b"sb."
    )
    assert plainpickle.matrix(plainpickle.loads(content, "FILE"), "FILE").toarray().tolist() == [[0, 5]]
    assert plainpickle.loads(b"ccollections\ndefaultdict\n(c__builtin__\nlist\ntR(I0\n(lI1\naI1\n(lu.", "FILE") == {
        0: [1],
        1: [],
    }


def test_a_state_is_set_on_what_has_one_alone():
    builder = b"cnumpy.core.multiarray\n_reconstruct\n"
    for content in (builder + b"(dS'x'\nI1\nsb.", b"c__builtin__\nlist\n(dS'append'\nI1\nsb.", b"(l(dS'x'\nI1\nsb."):
        assert refusal(content) == "FILE: not a readable pickle (ValueError: 'a state of nothing that has one')"
    assert not hasattr(plainpickle._array, "x")


def test_only_builders_are_called():
    assert refusal(b"I7\n)R.") == "FILE: not a readable pickle (ValueError: 'a call of no function')"
    assert refusal(b"(l)\x81.") == "FILE: not a readable pickle (ValueError: 'a call of no function')"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"N",
        b"Pid\n.",  # a persistent id
        b"\x82\x01.",  # an extension
        b"\x96" + b"\xff" * 8 + b".",  # a bytearray of 2**64 bytes
        b"\x8e" + b"\xff" * 8 + b".",
        b"(" * 5000 + b".",
        b"}))s.",  # a tuple as a key
    ],
)
def test_what_is_broken_or_not_known_is_one_line(content):
    assert refusal(content).startswith("FILE: not a readable pickle (")


def test_a_memo_index_takes_no_memory():
    """The unpickler in C makes a table as long as the largest index: 32 GiB."""
    assert plainpickle.loads(b"Nr\xff\xff\xff\x7f.", "FILE") is None


def test_an_array_is_as_long_as_its_bytes():
    content = pickle.dumps(np.arange(3, dtype=np.int8), 2)
    longer = content.replace(b"K\x03\x85", b"J\xff\xff\xff\x7f\x85")
    assert longer != content
    assert refusal(longer) == "FILE: not a readable pickle (ValueError: 'an array that is not as long as its shape')"


def test_records_are_refused():
    assert refusal(pickle.dumps(np.zeros(2, [("a", "i4")]))) == (
        "FILE: a pickle that asks for an array of 'V4'; only arrays, scipy.sparse matrices, lists and dicts are read"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indices": np.array([0, 9])}, "an index is not in 0..1"),
        ({"indptr": np.array([0, 5, 2])}, "indptr does not lead through 2 rows of 2 values"),
        ({"indptr": np.array([0, 2])}, "indptr does not lead through 2 rows of 2 values"),
        ({"data": None}, "indices, indptr or data is no array of numbers"),
        ({"_shape": (2,)}, "its shape is no pair of sizes"),
        ({"_shape": (2, 10**15)}, f"its shape is [2, {10**15}], of so few values at most {(1 << 20) + 36}"),
    ],
)
def test_a_matrix_is_checked(change, message):
    given = scipy.sparse.csr_matrix(np.eye(2))
    given.__dict__.update(change)
    with pytest.raises(DatasetError) as error:
        plainpickle.matrix(plainpickle.loads(pickle.dumps(given), "FILE"), "FILE")
    assert str(error.value) == f"FILE: not a sparse matrix that can be read ({message})"


def test_coordinates_that_are_none_are_refused():
    given = scipy.sparse.coo_matrix(np.eye(2))
    for state in ({"_shape": (2, 2), "coords": 5}, {"_shape": (2, 2), "coords": (given.data, 5), "data": given.data}):
        given.__dict__.clear()
        given.__dict__.update(state)
        with pytest.raises(DatasetError) as error:
            plainpickle.matrix(plainpickle.loads(pickle.dumps(given), "FILE"), "FILE")
        assert (
            str(error.value) == "FILE: not a sparse matrix that can be read (row, col or data is no array of numbers)"
        )


def test_what_is_something_else_is_named():
    for value, read, message in (
        ([1], plainpickle.array, "FILE: holds a list, must be a numpy array"),
        (np.ones(1), plainpickle.matrix, "FILE: holds an array, must be a scipy.sparse matrix"),
    ):
        with pytest.raises(DatasetError) as error:
            read(plainpickle.loads(pickle.dumps(value), "FILE"), "FILE")
        assert str(error.value) == message


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(DatasetError, match=r"none: not readable \(No such file or directory\)$"):
        plainpickle.read(Path(tmp_path / "none"))


def test_what_is_nested_a_hundred_thousand_deep_or_doubled_a_hundred_times_is_refused_at_once():
    """The hash of nested tuples is taken without a limit of depth, and a text of what is doubled has no end."""
    deep = b")" + b"\x85" * 100_000
    for content in (b"}" + deep + b"Ns.", b"U\x05numpy" + deep + b"\x93.", b"cnumpy\ndtype\n" + deep + b"R."):
        assert refusal(content).startswith("FILE: ")
    doubled = b"]" + b"2\x86" * 100
    assert refusal(b"cnumpy\ndtype\n" + doubled + b"\x85R.") == (
        "FILE: a pickle that asks for an array of a tuple; only arrays, scipy.sparse matrices, lists and dicts are read"
    )


def _again(arguments: bytes, call: bytes) -> bytes:
    """A pickle that gives one value of 60 KB to one function 20,000 times: 100 KB that would make 1.2 GB."""
    return b"\x80\x02" + arguments + b"q\x000" + call + b"q\x010(" + b"h\x01h\x00\x85R" * 20_000 + b"l."


@pytest.mark.parametrize(
    ("arguments", "call"),
    [
        (b"X" + struct.pack("<I", 60_000) + b"a" * 60_000, b"c_codecs\nencode\n"),
        (b"](" + b"N" * 60_000 + b"e", b"cbuiltins\nlist\n"),
    ],
)
def test_a_value_that_is_named_many_times_takes_no_gigabytes(arguments, call):
    content = _again(arguments, call)
    tracemalloc.start()
    assert "it makes more than 4 times what it holds" in refusal(content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60 * len(content)
