"""Removes from metrics.jsonl of a continued run the epochs that will be run again."""

from __future__ import annotations

from pathlib import Path

from siafu.errors import DatasetError
from siafu.run_files import read_record, whole_lines, write_whole


def rewind(path: Path, version: int, judged: int) -> None:
    """Keeps epochs before ``version``, evaluations up to ``judged``, and all other records. Drops a last line that was
    cut off. Atomic. Raises: DatasetError if it cannot be written; ConfigError for a line that is no record."""
    lines = enumerate(whole_lines(path) if path.exists() else [], 1)
    kept = [line for number, line in lines if _stays(line, f"{path}: line {number}", version, judged)]
    try:
        write_whole(path, "".join(f"{line}\n" for line in kept).encode())
    except OSError as error:
        raise DatasetError(f"{path}: cannot be written: {error.strerror}") from error


def _stays(line: str, where: str, version: int, judged: int) -> bool:
    record = read_record(line, where)
    if record["event"] == "evaluation":
        return record["epoch"] <= judged + 1  # records count epochs from 1
    return record["event"] not in ("epoch", "skipped") or record["epoch"] <= version
