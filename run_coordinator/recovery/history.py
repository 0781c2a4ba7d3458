"""metrics.jsonl of a run that goes on: what it has of epochs that will be run again goes."""

from __future__ import annotations

from pathlib import Path

from siafu.errors import ConfigError, DatasetError
from siafu.run_files import read_object, write_whole


def rewind(path: Path, version: int, judged: int) -> None:
    """Keeps epochs before ``version`` and evaluations up to ``judged``, and all that is neither; a torn last line goes.

    Whole or not at all. Raises: DatasetError if it cannot be written; ConfigError for a record without event or epoch.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        kept = [line for number, line in enumerate(lines, 1) if _stays(line, f"{path}: line {number}", version, judged)]
        write_whole(path, "".join(f"{line}\n" for line in kept).encode())
    except OSError as error:
        raise DatasetError(f"{path}: cannot be written: {error.strerror}") from error


def _stays(line: str, where: str, version: int, judged: int) -> bool:
    try:
        record = read_object(line, where)
    except ConfigError:
        return False
    last = {"epoch": version, "skipped": version, "evaluation": judged + 1}  # records count epochs from 1
    return record["event"] not in last or record["epoch"] <= last[record["event"]]
