"""graph_data.download against a server that cuts connections, ignores ranges and sends wrong bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from graph_data.download import MAX_IDLE, Unreachable, download
from graph_data.published import PublishedFile
from siafu.errors import DownloadError
from tests.graph_data.file_server import FileServer, serving

DATA = bytes(range(256)) * 1000


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving(DATA) as found:
        yield found


def file_of(server: FileServer, *, known: bool = True) -> PublishedFile:
    """As published: with its SHA-256 and its size, or with git's SHA-1 alone."""
    git = hashlib.sha1(b"blob %d\0" % len(DATA) + DATA, usedforsecurity=False).hexdigest()
    return PublishedFile(server.url, len(DATA) * known, hashlib.sha256(DATA).hexdigest() if known else "", git)


def nothing(size: int, total: int) -> None:
    pass


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("says_length", [True, False])
def test_a_file_is_fetched_with_its_progress(
    server: FileServer, tmp_path: Path, known: bool, says_length: bool
) -> None:
    server.says_length = says_length
    steps: list[tuple[int, int]] = []
    download(file_of(server, known=known), tmp_path / "file", lambda *step: steps.append(step))
    assert (tmp_path / "file").read_bytes() == DATA
    assert steps[-1] == (len(DATA), len(DATA) if known or says_length else 0)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("known", [True, False])
def test_what_was_cut_goes_on_where_it_was(server: FileServer, tmp_path: Path, known: bool) -> None:
    server.cut_after = 100_000
    download(file_of(server, known=known), tmp_path / "file", nothing)
    assert (tmp_path / "file").read_bytes() == DATA
    assert server.asked == ["", "bytes=100000-", "bytes=200000-"]


def test_a_later_call_goes_on_as_well(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(DATA[:255_000])
    download(file_of(server), tmp_path / "file", nothing)
    assert (tmp_path / "file").read_bytes() == DATA
    assert server.asked == ["bytes=255000-"]


@pytest.mark.parametrize("known", [True, False])
def test_what_is_whole_is_not_asked_for(server: FileServer, tmp_path: Path, known: bool) -> None:
    (tmp_path / "file.part").write_bytes(DATA)
    download(file_of(server, known=known), tmp_path / "file", nothing)
    assert server.asked == []


def test_a_server_that_knows_no_ranges_sends_all_again(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(b"x" * 1000)
    server.takes_ranges = False
    download(file_of(server), tmp_path / "file", nothing)
    assert (tmp_path / "file").read_bytes() == DATA


def test_more_than_there_is_begins_anew(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(DATA + b"more")
    download(file_of(server), tmp_path / "file", nothing)
    assert (tmp_path / "file").read_bytes() == DATA
    assert server.asked == [f"bytes={len(DATA) + 4}-", ""]


def test_connections_that_bring_nothing_end_it(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(DATA[:10])
    server.cut_after = 0
    with pytest.raises(DownloadError, match=f"{MAX_IDLE} connections in a row were cut before a byte came"):
        download(file_of(server), tmp_path / "file", nothing)
    assert (tmp_path / "file.part").read_bytes() == DATA[:10]
    assert len(server.asked) == MAX_IDLE


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("sent", [DATA[:-1] + b"!", DATA + b"!", DATA[:-1]], ids=["other", "longer", "shorter"])
def test_other_bytes_are_removed(server: FileServer, tmp_path: Path, known: bool, sent: bytes) -> None:
    server.data = sent
    with pytest.raises(DownloadError, match="sent other bytes than were published"):
        download(file_of(server, known=known), tmp_path / "file", nothing)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_there_is_said(server: FileServer, tmp_path: Path) -> None:
    server.status = 404
    with pytest.raises(DownloadError, match=r"published\.npz: the server says 404 Not Found$"):
        download(file_of(server), tmp_path / "file", nothing)


def test_a_server_that_is_not_there_is_said(server: FileServer, tmp_path: Path) -> None:
    file = file_of(server)
    with serving(DATA) as gone:
        file = file_of(gone)
    with pytest.raises(Unreachable, match=r"^127\.0\.0\.1:\d+ cannot be reached \(Connection refused\)$"):
        download(file, tmp_path / "file", nothing)
