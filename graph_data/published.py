"""The graphs that ``siafu get`` fetches: addresses of their files, licences, and digests of their bytes.

``published.csv`` has a line per file. Every address names a commit. ``git_sha1`` is the file's name in git's tree of
that commit; ``sha256`` and ``nbytes`` stand only where the bytes were at hand when the line was written.
"""

from __future__ import annotations

import csv
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

TABLE = Path(__file__).with_suffix(".csv")
#: Fetched by the package ``ogb``, and read as ogb:NAME.
OGB = ("ogbn-arxiv", "ogbn-products")


@dataclass(frozen=True)
class PublishedFile:
    url: str
    nbytes: int  # 0: not known
    sha256: str  # "": not known
    git_sha1: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    def is_right(self, path: Path) -> bool:
        """Whether the file at ``path`` has the published bytes: by SHA-256, else by git's SHA-1."""
        data = path.read_bytes()
        if self.sha256:
            return hashlib.sha256(data).hexdigest() == self.sha256
        blob = b"blob %d\0" % len(data) + data
        return hashlib.sha1(blob, usedforsecurity=False).hexdigest() == self.git_sha1


@dataclass(frozen=True)
class PublishedGraph:
    name: str
    licence: str  # of the repository that holds the files
    files: tuple[PublishedFile, ...]

    @property
    def repository(self) -> str:
        """The repository of the files: OWNER/NAME."""
        return "/".join(urlsplit(self.files[0].url).path.split("/")[1:3])

    @property
    def nbytes(self) -> int:
        """Bytes of all files; 0 if the size of one is not known."""
        sizes = [file.nbytes for file in self.files]
        return sum(sizes) if all(sizes) else 0

    @property
    def verified_by(self) -> str:
        return "SHA-256" if all(file.sha256 for file in self.files) else "git's SHA-1"


def graphs() -> dict[str, PublishedGraph]:
    """Published graphs by name, in the order of the table."""
    return _read(TABLE)


@lru_cache
def _read(table: Path) -> dict[str, PublishedGraph]:
    found: dict[str, list[dict[str, str]]] = {}
    with table.open(newline="") as lines:
        for row in csv.DictReader(lines):
            found.setdefault(row["graph"], []).append(row)
    return {name: PublishedGraph(name, rows[0]["licence"], tuple(map(_file, rows))) for name, rows in found.items()}


def _file(row: dict[str, str]) -> PublishedFile:
    return PublishedFile(row["url"], int(row["nbytes"] or 0), row["sha256"], row["git_sha1"])
