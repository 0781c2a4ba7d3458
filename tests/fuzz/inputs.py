"""An input: named parts, such as the frames of a message or the files of a folder; and its form on disk."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path

Input = tuple[tuple[str, bytes], ...]  # (name, content) of each part; names are not mutated

CORPUS = Path(__file__).parent / "corpus"
FOUND = Path(__file__).parent / "found"
MENDED = "mended"


def size_of(given: Input) -> int:
    return sum(len(content) for _, content in given)


def name_of(given: Input) -> str:
    """Hash of the content: an input has one name wherever it lies."""
    return hashlib.sha256(pack(given)).hexdigest()[:16]


def pack(given: Input) -> bytes:
    """Each part: the length of its name and of its content (u32), then both."""
    return b"".join(
        struct.pack("<II", len(name.encode()), len(content)) + name.encode() + content for name, content in given
    )


def unpack(data: bytes) -> Input:
    parts, place = [], 0
    while place < len(data):
        named, filled = struct.unpack_from("<II", data, place)
        place += 8
        parts.append((data[place : place + named].decode(), data[place + named : place + named + filled]))
        place += named + filled
    return tuple(parts)


def stored(target: str) -> Iterator[tuple[Path, Input]]:
    """The corpus of a target, what was mended included, in the order of names."""
    for path in sorted((CORPUS / target).rglob("*")):
        if path.is_file():
            yield path, unpack(path.read_bytes())


def store(folder: Path, given: Input) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name_of(given)
    path.write_bytes(pack(given))
    return path
