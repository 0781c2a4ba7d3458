"""Locks of files and folders, and what is done where there are none."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from graph_data.stream.work import Work
from run_coordinator import pinned, run_directory
from siafu import locks
from siafu.errors import ConfigError
from siafu.locks import LOCK, SHARED, lock_in, locked


def test_a_lock_keeps_others_out_until_its_file_is_closed(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    assert locked(first)
    assert not locked(second)
    assert not locked(second, SHARED)
    os.close(first)
    assert locked(second, wait=True)
    os.close(second)


def test_a_folder_is_one_process_s(tmp_path: Path) -> None:
    lock = lock_in(tmp_path / "new")
    assert lock is not None
    assert lock_in(tmp_path / "new") is None
    lock.close()
    again = lock_in(tmp_path / "new", wait=True)
    assert again is not None
    again.close()


@pytest.mark.parametrize("deleted", ["before its file is opened", "before its file is locked", "and made again before"])
def test_who_waits_for_a_folder_that_is_deleted_makes_it_anew(
    deleted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "draft"
    calls = []

    def once(*_: object) -> None:
        if not calls:
            shutil.rmtree(folder)
            if deleted.startswith("and"):
                folder.mkdir()
                (folder / LOCK).touch()
        calls.append(1)

    mkdir, lock = Path.mkdir, locks.locked

    def made(path: Path, **options: bool) -> None:
        mkdir(path, **options)
        once()

    def taken(file: object, **options: bool) -> bool:
        once()
        return lock(file, **options)  # type: ignore[arg-type]

    if deleted.endswith("opened"):
        monkeypatch.setattr(Path, "mkdir", made)
    else:
        monkeypatch.setattr(locks, "locked", taken)
    with lock_in(folder, wait=True) as held:  # type: ignore[union-attr]
        assert len(calls) == 2
        assert os.path.samestat(os.fstat(held.fileno()), (folder / LOCK).stat())


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EBADF], ids=errno.errorcode.get)
def test_a_file_system_without_locks_is_no_reason_to_stop(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: object, kind: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    with run_directory.alone(tmp_path), run_directory.reads(tmp_path):
        assert not run_directory.is_under_way(tmp_path)
        assert not run_directory.is_read(tmp_path)
    with Work(tmp_path / "work", "key", print), pinned.alone(tmp_path / "peers"):
        pass


def test_a_run_under_way_is_not_begun_again(tmp_path: Path) -> None:
    with run_directory.alone(tmp_path):
        assert run_directory.is_under_way(tmp_path)
        with pytest.raises(ConfigError, match=r": this run is under way$"), run_directory.alone(tmp_path):
            pass
    assert not run_directory.is_under_way(tmp_path)
