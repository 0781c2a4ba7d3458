"""Downloads a published file: continues after a broken connection, checks the bytes, leaves a whole file or none."""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from graph_data.published import PublishedFile
from siafu.errors import DownloadError

TIMEOUT_S = 20.0  # without a byte
BLOCK = 1 << 16
MAX_IDLE = 3  # connections in a row that brought no byte

#: Bytes that are there so far, and how many there will be (0: the server does not say).
OnBytes = Callable[[int, int], None]


class Unreachable(DownloadError):
    """Raised if the server cannot be reached."""


def download(file: PublishedFile, target: Path, on_bytes: OnBytes) -> None:
    """Fetches ``file`` to ``target``. What an earlier call left in ``target``.part is not fetched again.

    Raises: Unreachable; DownloadError if the server has no such file, cuts MAX_IDLE connections in a row before
    a byte came, or sends other bytes than were published: these are removed.
    """
    part = target.with_name(f"{target.name}.part")
    idle = 0
    while not _is_whole(file, part):
        before = _size(part)
        if _append(file, part, on_bytes):
            break
        idle = 0 if _size(part) > before else idle + 1
        if idle == MAX_IDLE:
            raise DownloadError(f"{file.url}: {MAX_IDLE} connections in a row were cut before a byte came")
    if not file.is_right(part):
        part.unlink()
        raise DownloadError(f"{file.url}: sent other bytes than were published; they are removed, try again")
    os.replace(part, target)


def _is_whole(file: PublishedFile, part: Path) -> bool:
    """Whether an earlier call has fetched the whole file."""
    size = _size(part)
    return size > 0 and (size == file.nbytes or (not file.nbytes and file.is_right(part)))


def _append(file: PublishedFile, part: Path, on_bytes: OnBytes) -> bool:
    """Continues ``part`` over one connection; False if it was cut before the end."""
    start = _size(part)
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={start}-"} if start else {})}
    request = urllib.request.Request(file.url, headers=headers)  # noqa: S310  # a line of published.csv
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_S)  # noqa: S310
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and start:
            part.unlink()  # longer than the file
            return False
        raise DownloadError(f"{file.url}: the server says {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        why = getattr(reason, "strerror", None) or reason
        raise Unreachable(f"{urlsplit(file.url).netloc} cannot be reached ({why})") from None
    with response:
        if not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            start = 0  # the whole file, whatever was asked
        length = response.headers.get("Content-Length")
        end = start + int(length) if length else 0
        try:
            with part.open("r+b" if start else "wb") as out:
                out.seek(start)
                _copy(response, out, start, file.nbytes or end, on_bytes)
        except (ConnectionError, TimeoutError, http.client.HTTPException):
            return False
    return not end or _size(part) >= end


def _copy(response: http.client.HTTPResponse, out: IO[bytes], start: int, total: int, on_bytes: OnBytes) -> None:
    """Copies all bytes that arrive, but at most one block beyond ``total``: more bytes mean another file."""
    size = start
    while (block := response.read(BLOCK)) and (not total or size <= total):
        out.write(block)
        size += len(block)
        on_bytes(size, total)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
