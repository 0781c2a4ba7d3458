"""Copies the function's logs of a run from CloudWatch into the run directory: one file for each environment."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from infra import service

logger = logging.getLogger(__name__)

#: Lines that are brought home; beyond, CloudWatch has them for as long as the deployment stands.
MAX_LINES = 200_000


def bring(function: str, region: str, since_s: float, folder: Path) -> int:
    """Writes the logs of ``function`` since ``since_s`` (seconds of the epoch) into ``folder``; returns the number of
    lines.

    A warning where that is not allowed: a run is whole without it.
    """
    count = 0
    begun: set[str] = set()
    try:
        pages = (
            service.client("logs", region)
            .get_paginator("filter_log_events")
            .paginate(logGroupName=f"/aws/lambda/{function}", startTime=int(1000 * since_s))
        )
        for page in pages:
            events = page["events"][: MAX_LINES - count]
            for name, text in _by_stream(events).items():
                folder.mkdir(parents=True, exist_ok=True)
                # One at a time: a run has as many environments as a laptop may not have files open.
                with open(folder / f"{name}.log", "a" if name in begun else "w", encoding="utf-8") as file:
                    file.write(text)
                begun.add(name)
            count += len(events)
            if count == MAX_LINES:
                logger.warning("function %s: its first %d lines are enough; CloudWatch has the rest", function, count)
                break
    except (BotoCoreError, ClientError, OSError) as error:
        logger.warning("function %s: its logs stay in CloudWatch: %s", function, error)
    return count


def _by_stream(events: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Each environment's log, by file name."""
    texts: dict[str, list[str]] = {}
    for event in events:
        name = re.sub(r"[^0-9A-Za-z.-]+", "-", event["logStreamName"]).strip("-.")[-120:] or "stream"
        texts.setdefault(name, []).append(f"{event['message'].rstrip()}\n")
    return {name: "".join(lines) for name, lines in texts.items()}
