"""Files that are read once, and again when they changed; values that are held to their limits, block by block."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from siafu import verified
from siafu.errors import DatasetError
from siafu.sparse import Array
from siafu.verified import MEMORY, Look, Verified, between, columns, compare, finite, rising

# --- what is remembered -----------------------------------------------------------------------------------------------


class Folder:
    """A folder with files, and how often each was read."""

    def __init__(self, path: Path) -> None:
        self.path, self.reads = path, list[str]()
        path.mkdir()
        for name in "ab":
            (path / name).write_text(name)

    def check(self, against: str = "digest") -> list[str]:
        """The names of the files that were read."""
        self.reads.clear()
        Verified(self.path, against).check({name: self._read(name) for name in "ab"})
        return list(self.reads)

    def _read(self, name: str) -> Callable[[], None]:
        return lambda: self.reads.append(name)

    def settle(self) -> None:
        """Until the clock has moved since the files were written."""
        deadline = time.monotonic() + 10
        while self.check():
            assert time.monotonic() < deadline


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "folder")


def test_each_file_is_read_once(folder: Folder):
    assert folder.check() == ["a", "b"]
    folder.settle()
    assert folder.check() == []


def rewrite(file: Path) -> None:
    file.write_text("c")


def rewrite_and_set_its_time_back(file: Path) -> None:
    before = file.stat()
    file.write_text("c")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def put_another_in_its_place(file: Path) -> None:
    other = file.with_suffix(".other")
    shutil.copy2(file, other)
    other.replace(file)


@pytest.mark.parametrize("change", [rewrite, rewrite_and_set_its_time_back, put_another_in_its_place])
def test_a_file_that_changed_is_read_again_and_no_other(folder: Folder, change):
    folder.settle()
    change(folder.path / "b")
    assert folder.check() == ["b"]


def test_a_copied_folder_is_read_again(folder: Folder, tmp_path: Path):
    folder.settle()
    shutil.copytree(folder.path, tmp_path / "copy")
    folder.path = tmp_path / "copy"
    assert folder.check() == ["a", "b"]


def test_what_was_compared_with_something_else_is_read_again(folder: Folder):
    folder.settle()
    assert folder.check("another manifest") == ["a", "b"]


def test_a_change_within_one_step_of_the_clock_is_not_missed(folder: Folder, monkeypatch: pytest.MonkeyPatch):
    """A file system that counts in seconds gives a file that changes twice within one the same times."""
    stopped = (folder.path / "a").stat().st_ctime_ns
    monkeypatch.setattr(Verified, "_clock", lambda self: stopped)
    assert folder.check() == folder.check() == ["a", "b"]


def test_a_file_that_is_not_good_is_not_remembered_nor_those_before_it(folder: Folder):
    def fail() -> None:
        raise DatasetError("altered")

    time.sleep(verified.CLOCK_STEP_S)
    with pytest.raises(DatasetError, match="altered"):
        Verified(folder.path, "digest").check({"a": lambda: None, "b": fail})
    assert folder.check() == ["a", "b"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "\xff", '{"version": 1, "against": "digest", "files": {"a": [1]}}', "[" * 99999]
)
def test_a_memory_that_is_none_is_forgotten(folder: Folder, text: str):
    folder.settle()
    (folder.path / MEMORY).write_text(text)
    assert folder.check() == ["a", "b"]


def test_files_that_are_gone_are_forgotten(folder: Folder):
    folder.settle()
    Verified(folder.path, "digest").remember("a")
    (folder.path / "b").unlink()
    Verified(folder.path, "digest").remember("a")
    assert list(json.loads((folder.path / MEMORY).read_text())["files"]) == ["a"]


def test_a_file_behind_a_link_to_another_file_system_is_read_each_time(tmp_path: Path):
    """Its times are of another clock."""
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is one file system alone")
    there = shared / f"siafu-{os.getpid()}"
    there.write_text("a")
    try:
        folder = Folder(tmp_path / "folder")
        (folder.path / "a").unlink()
        (folder.path / "a").symlink_to(there)
        time.sleep(verified.CLOCK_STEP_S)
        assert folder.check() == ["a", "b"]
        assert folder.check() == ["a"]
    finally:
        there.unlink()


def test_a_file_that_was_just_written_is_remembered(folder: Folder):
    (folder.path / "a").write_text("new")
    Verified(folder.path, "digest").remember("a")
    assert folder.check() == ["b"]


def test_an_unreadable_file_is_named(tmp_path: Path):
    with pytest.raises(DatasetError, match=r"none\.npy: cannot be read: .*No such file"):
        compare(tmp_path / "none.npy", 0)


# --- values: the same answer in blocks of any size as from all of them at once ----------------------------------------


def says(look: Callable[[], Look], values: Array, size: int) -> str | None:
    """What is found in blocks of so many values."""
    fresh = look()
    for place in range(0, len(values), size):
        if (wrong := fresh(place, values[place : place + size])) is not None:
            return wrong
    return None


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_value_that_is_wrong_is_found_wherever_blocks_end(size: int):
    values = np.arange(20)
    assert says(lambda: between(0, 19), values, size) is None
    assert says(lambda: rising(0, 19), values, size) is None
    assert says(lambda: finite, values / 1, size) is None
    for at in range(20):
        low, fallen, odd = values.copy(), values.copy(), values / 1
        low[at], odd[at] = -1, np.inf
        assert says(lambda: between(0, 19), low, size) == f"value {at} is -1, must be in 0..19"
        assert says(lambda: finite, odd, size) == f"value {at} is inf, must be finite"
        if at > 1:
            fallen[at] = 0
            assert says(lambda: rising(0, 19), fallen, size) == f"value {at} is 0 after {at - 1}, must not fall"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_columns_fall_where_a_row_begins_and_nowhere_else(size: int):
    """Of random rows, some of them empty: as a loop over rows says."""
    rng = np.random.default_rng(size)
    found = set()
    for _ in range(300):
        indptr = np.concatenate([[0], np.cumsum(rng.integers(0, 4, 6))])
        indices = rng.integers(0, 5, indptr[-1]).astype(np.int32)
        rows = [indices[start:stop] for start, stop in pairwise(indptr)]
        for row in rows if rng.random() < 0.7 else []:
            row.sort()
        good = all((np.diff(row) >= 0).all() for row in rows)
        assert (says(lambda: columns(indptr, 5), indices, size) is None) == good  # noqa: B023
        found.add(good)
    assert found == {True, False}


def test_the_place_of_a_fallen_column_is_said():
    look = columns(np.array([0, 2, 5]), 9)
    assert look(0, np.array([3, 7, 1, 8, 2], np.int32)) == "value 4 is 2 after 8, must not fall within a row"
