"""Deployments made from this machine, and their runs, for ``siafu runs``.

``siafu deploy`` leaves a note of each deployment in the cache folder, and ``siafu destroy`` removes it. A note expires
when the deployment has removed itself. Without notes no request is made: a listing of local runs needs no network.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from run_coordinator.past_runs import PastRun, date_of, money_of
from siafu import extras
from siafu.config import cache_folder
from siafu.errors import ConfigError, GnnError

#: Begins the notes' files; ``siafu clean`` leaves them.
NOTED = "deployment-"
#: In the directory of a run that a deployment was asked for: its bucket, and its name there.
REMOTE = "remote.json"


@dataclass(frozen=True)
class Deployment:
    name: str
    region: str
    bucket: str
    expires: str  # ISO 8601, UTC

    def __str__(self) -> str:
        return f"deployment {self.name} in {self.region}"


@dataclass(frozen=True)
class DeployedRun:
    """A run in a deployment's bucket."""

    run: str
    deployment: str
    told: Mapping[str, Any]  # as ``siafu status --json`` prints it
    local: PastRun | None = None  # its directory here

    @property
    def graph(self) -> str:
        return str(self.told["graph"])

    def cells(self, folder: Path) -> dict[str, str]:
        """The run's row in a table of the runs in ``folder``: its state is the deployment's, the rest the
        directory's."""
        local = self.local
        known = local.cells(folder) if local else dict.fromkeys(("model", "validation", "test", "time"), "–")
        is_running = self.told["state"] == "running"
        epochs = self.told["epoch"] if is_running else local.epochs if local else None
        return {
            **known,
            "run": str(local.dir.relative_to(folder)) if local else self.run,
            "date": local.cells(folder)["date"] if local else date_of(str(self.told["asked"] or "")),
            "where": "aws",
            "graph": self.graph,
            "state": "not fetched" if self.told["state"] == "done" else str(self.told["state"]),
            "epochs": "–" if epochs is None else str(epochs),
            "cost": money_of(self.told["usd"]) if is_running else known.get("cost", "–"),
        }

    def to_dict(self) -> dict[str, object]:
        """The run as ``siafu runs --json`` prints it."""
        return {"deployment": self.deployment, **self.told}


def note(deployment: Deployment) -> None:
    """Remembers the deployment. Raises: OSError, ConfigError without a cache folder."""
    file = _file(deployment.name, deployment.region)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(deployment)) + "\n")


def forget(name: str, region: str) -> None:
    _file(name, region).unlink(missing_ok=True)


def known(now: datetime) -> list[Deployment]:
    """Remembered deployments that have not removed themselves yet. Unreadable notes are skipped."""
    found = []
    for file in sorted(cache_folder().glob(f"{NOTED}*.json")):
        try:
            noted = Deployment(**json.loads(file.read_text()))
            is_there = datetime.fromisoformat(noted.expires) > now
        except (OSError, ValueError, TypeError):
            continue
        if is_there:
            found.append(noted)
    return found


def listed(now: datetime | None = None) -> tuple[list[DeployedRun], list[str]]:
    """Runs of the known deployments, the newest last, and a line for each deployment that cannot be reached."""
    found: list[DeployedRun] = []
    left_out = []
    for deployment in known(now or datetime.now(timezone.utc)):
        try:
            told = _ask(deployment)
        except GnnError as error:
            left_out.append(f"runs of {deployment} are not listed: {error}")
        else:
            found += [DeployedRun(one["run"], deployment.name, one) for one in reversed(told)]
    return found, left_out


def not_fetched(deployed: Sequence[DeployedRun], here: Iterable[PastRun]) -> list[DeployedRun]:
    """Deployed runs whose result is not in this folder, each with its directory here if it has one."""
    local = {_name_there(run): run for run in here if run.config.run.on == "aws"}
    fetched = {name for name, run in local.items() if run.result is not None}
    return [replace(one, local=local.get(one.run)) for one in deployed if one.run not in fetched]


def _name_there(run: PastRun) -> str:
    try:
        return str(json.loads((run.dir / REMOTE).read_text())["run"])
    except (OSError, ValueError, KeyError, TypeError):
        return run.dir.name  # siafu attach calls the directory so


def _ask(deployment: Deployment) -> list[dict[str, Any]]:
    """Asks a deployment for its runs. Imports by name: only users of AWS have boto3."""
    try:
        module = importlib.import_module("infra.machines.runs")
    except ModuleNotFoundError as error:
        raise ConfigError(f"it needs {error.name}: {extras.install('aws')}") from None
    told: list[dict[str, Any]] = module.of_bucket(deployment.bucket, deployment.region)
    return told


def _file(name: str, region: str) -> Path:
    return cache_folder() / f"{NOTED}{name}-{region}.json"
