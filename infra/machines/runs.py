"""The runs of a deployment, as its bucket records them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.machines import remote
from infra.machines.agent_state import Order
from infra.machines.host import Report
from infra.machines.mailbox import RUNS, Mailbox, checked_run, order_key, report_key, run_key
from siafu.address import COORDINATOR
from siafu.errors import ConfigError, RemoteProtocolError

#: Runs that a listing shows.
SHOWN = 10


@dataclass(frozen=True)
class Asked:
    """A run and its request."""

    run: str
    request: Mapping[str, Any]

    @property
    def order(self) -> Order:
        """The order that its coordinator was given."""
        return Order.of(
            {key: self.request.get(key, "") for key in ("data",)}
            | {"id": self.request.get("order", ""), "do": "start", "run": self.run}
        )


def newest(mailbox: Mailbox, count: int = SHOWN) -> list[Asked]:
    """Runs, the newest first."""
    asked = []
    for name in mailbox.folders(RUNS):
        if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name) and (
            letter := mailbox.read(run_key(name, "request.json"))
        ):
            asked.append(Asked(name, letter.value))
    return sorted(asked, key=lambda run: str(run.request.get("asked")), reverse=True)[:count]


def named(mailbox: Mailbox, name: str) -> Asked:
    """The run of that name; empty: the newest. ConfigError if there is none."""
    if not name:
        found = newest(mailbox, 1)
        if not found:
            raise ConfigError(f"bucket {mailbox.bucket} has no runs yet")
        return found[0]
    try:
        letter = mailbox.read(run_key(checked_run(name), "request.json"))
    except RemoteProtocolError as error:
        raise ConfigError(str(error)) from None
    if letter is None:
        raise ConfigError(f"{name}: no such run in bucket {mailbox.bucket}; siafu status lists them")
    return Asked(name, letter.value)


def end_of(mailbox: Mailbox, run: str) -> dict[str, Any] | None:
    """``code`` and ``last_line`` of the run's coordinator; None while it runs, or if nobody could report them."""
    letter = mailbox.read(run_key(run, "end.json"))
    return letter.value if letter else None


def coordinator(mailbox: Mailbox) -> Report | None:
    """The report of the coordinator's agent; None without one."""
    letter = mailbox.read(report_key(COORDINATOR))
    return Report(letter.value, letter.age_s) if letter else None


def under_way(report: Report | None) -> str:
    """The run that the coordinator works on, as far as its machine reports; empty if none. A run whose process has
    ended counts until its last files and its end are in the bucket."""
    if report is None or report.silent:
        return ""
    if report.value.get("state") in ("fetching", "running", "ending"):
        return str(report.value.get("run") or "")
    ended = report.value.get("ended")
    return str(ended.get("run") or "") if isinstance(ended, dict) and not ended.get("kept") else ""


def alive(mailbox: Mailbox, asked: Asked, report: Report | None) -> bool:
    """Whether the run's coordinator works, or is about to, as far as its machine reports."""
    if under_way(report) == asked.run:
        return True
    return remote.untaken(mailbox.read(order_key(COORDINATOR)), report) == asked.run


def told(mailbox: Mailbox, report: Report | None) -> list[dict[str, Any]]:
    """Runs, the newest first, each with its progress or its end."""
    result = []
    for asked in newest(mailbox):
        request = asked.request
        line = {key: request.get(key) for key in ("graph", "epochs", "asked")} | {"run": asked.run}
        end = end_of(mailbox, asked.run)
        if end is not None:
            code = end.get("code")
            line |= {
                "state": "done" if code == 0 else "stopped" if code == 130 else "failed",
                "last_line": end.get("last_line"),
            }
        elif report is not None and alive(mailbox, asked, report):
            status = remote.status_of(report.value if under_way(report) == asked.run else {})  # else another run's
            line |= {
                "state": "running",
                "phase": status.phase,
                "epoch": status.epoch,
                "usd": status.usd,
                "loss": None if math.isnan(status.loss) else status.loss,
            }
        else:
            line |= {"state": "lost"}
        result.append(line)
    return result


def of_bucket(bucket: str, region: str) -> list[dict[str, Any]]:
    """``told`` of a bucket. Makes a single attempt: a listing does not wait for the network."""
    mailbox = Mailbox(bucket, region=region, attempts=1)
    return told(mailbox, coordinator(mailbox))
