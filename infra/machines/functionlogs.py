"""What the function wrote during a run, from CloudWatch into the run directory: one file for each environment."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import IO

from botocore.exceptions import BotoCoreError, ClientError

from infra import service

logger = logging.getLogger(__name__)

#: Lines that are brought home; beyond, CloudWatch has them for as long as the deployment stands.
MAX_LINES = 200_000


def bring(function: str, region: str, since_s: float, folder: Path) -> int:
    """Writes what ``function`` logged since then (seconds of the epoch) into ``folder``; how many lines.

    A warning where that is not allowed: a run is whole without it.
    """
    count = 0
    files: dict[str, IO[str]] = {}
    try:
        pages = service.client("logs", region).get_paginator("filter_log_events").paginate(
            logGroupName=f"/aws/lambda/{function}", startTime=int(1000 * since_s)
        )  # fmt: skip
        for event in (event for page in pages for event in page["events"]):
            name = re.sub(r"[^0-9A-Za-z.-]+", "-", event["logStreamName"]).strip("-.")[-120:] or "stream"
            if name not in files:
                folder.mkdir(parents=True, exist_ok=True)
                files[name] = open(folder / f"{name}.log", "w", encoding="utf-8")  # noqa: SIM115 (closed below)
            files[name].write(f"{event['message'].rstrip()}\n")
            count += 1
            if count == MAX_LINES:
                logger.warning("function %s: its first %d lines are enough; CloudWatch has the rest", function, count)
                break
    except (BotoCoreError, ClientError) as error:
        logger.warning("function %s: its logs stay in CloudWatch: %s", function, error)
    finally:
        for file in files.values():
            file.close()
    return count
