"""The laptop's side of ``siafu train --on aws``: sends the graph, orders the run, shows its progress, fetches its
files.

Once requested, the run does not need the laptop: ``siafu attach RUN`` reconnects after a loss. Ctrl-C ends the run.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from infra.machines import found, functionlogs, graph_store
from infra.machines.agent_state import Order
from infra.machines.found import until
from infra.machines.host import BOOT_S, Report, Reports, share
from infra.machines.mailbox import Letter, Mailbox, order_key, piece_key, report_key, run_key
from infra.machines.runfiles import Receiver, pace_s
from run_coordinator import live_status
from run_coordinator.actions import Status
from run_coordinator.hosts import Death
from run_coordinator.past_runs.deployments import REMOTE
from siafu import config as configs
from siafu import errors, run_files
from siafu.address import COORDINATOR, Address, graph_server, param_server
from siafu.config import Config
from siafu.errors import ConfigError, GnnError, PeerLost, RemoteProtocolError, counted
from siafu.features import STANDARD
from siafu.places import PLACES
from siafu.run_files import CONFIG, RESULT, Trained
from siafu.shards import NAMES, ShardSet

logger = logging.getLogger(__name__)

OnStatus = Callable[[Status], None]

#: Between the order to start and the machine that takes it.
TAKEN_S = 30.0
#: How long a run that was asked to end may take for it, before we go without its files.
END_S = 30.0
#: With less than this until it removes itself, a deployment warns of that.
SOON_S = 3600.0
#: How far a laptop's clock may be ahead of the cloud's.
CLOCKS_S = 60.0
#: How long the bucket may be out of reach: a laptop changes networks.
UNREACHABLE_S = 120.0


def carry_out(config: Config, shards: ShardSet, run_dir: Path, on_status: OnStatus) -> Trained:
    """Trains on the deployment that the config names; returns the result, with all files in ``run_dir``.

    Raises the error that ended the run there. KeyboardInterrupt ends the run first, and is then raised again.
    """
    there = found.find(config)
    config = _settled(config, there)
    mind_the_end(config, there, datetime.now(timezone.utc), on_status)
    mailbox = Mailbox(there.bucket, region=config.lambdas.region)
    _await_machine(mailbox, config, on_status)
    _check_members(mailbox, config, on_status)
    _send(mailbox, shards, on_status)
    run, order = ask(mailbox, config, shards, run_dir)
    return follow(mailbox, run, order, run_dir, on_status)


def _settled(config: Config, there: found.Found) -> Config:
    """The config with the values that the deployment fixes. ConfigError for Lambdas, ports or copies that are
    impossible there."""
    lambdas = config.lambdas
    changes: dict[str, Any] = {}
    if config.servers.backend == "lambda":
        if not lambdas.place.from_deployment:
            usable = " or ".join(name for name, place in PLACES.items() if place.from_deployment)
            raise ConfigError(f"lambda.on = {lambdas.on}: on deployed machines it must be {usable}")
        if lambdas.on == "aws" and there.function:
            changes["lambda.function"] = there.function
    if config.run.checkpoint_to:
        raise ConfigError(
            f"run.checkpoint_to = {config.run.checkpoint_to}: deployed machines reach no bucket but their own; "
            "checkpoints come home with the run's files"
        )
    if there.ports and not config.servers.ports:
        changes["servers.ports"] = there.ports
    opened, asked = config.replace({"servers.ports": there.ports}).servers.port_range, config.servers.port_range
    if opened and asked and not opened[0] <= asked[0] <= asked[1] <= opened[1]:
        raise ConfigError(
            f"servers.ports = {config.servers.ports}: the deployment's machines admit {there.ports} alone; "
            f"siafu deploy --set servers.ports={config.servers.ports} changes that"
        )
    return config.replace(changes)


def mind_the_end(config: Config, there: found.Found, now: datetime, on_status: OnStatus) -> None:
    """Shows when the deployment removes itself. Warns if a run may last until then, by its time limit or, without one,
    by ``SOON_S``."""
    if there.expires is None:
        return
    said = f"deployment {config.cloud.name} removes itself {until(there.expires, now)}"
    on_status(Status(phase=said))
    limit_s = config.run.max_seconds or SOON_S
    if (there.expires - now).total_seconds() < limit_s:
        logger.warning(
            "%s, and a run that is not over with it (run.max_seconds = %g); siafu deploy sets its clock anew",
            said,
            config.run.max_seconds,
        )


def _await_machine(mailbox: Mailbox, config: Config, on_status: OnStatus) -> None:
    """Waits until the coordinator's machine is up. ConfigError if it is not up in time."""
    deadline = time.monotonic() + BOOT_S
    while True:
        report = _report(mailbox)
        if report is not None and not report.silent:
            return
        if time.monotonic() > deadline:
            said = f"has said nothing for {report.age_s:.0f} s" if report else "is not up"
            raise ConfigError(
                f"deployment {config.cloud.name}: the machine of param_server 0 {said}, waited {BOOT_S:g} s"
                f"{_refusal(config, param_server(0))}; see siafu status"
            )
        on_status(Status(phase="waiting for machines"))
        time.sleep(1.0)


def _check_members(mailbox: Mailbox, config: Config, on_status: OnStatus) -> None:
    """Raises ConfigError if the deployment has fewer servers than the run asks for, before a graph is uploaded in
    vain."""
    asked = {"graph_server": config.data.parts, "param_server": config.servers.param_servers}
    deadline = time.monotonic() + config.servers.start_timeout_s
    while True:
        instances = _instances(config)
        there = instances | {member for member, report in Reports(mailbox).read().items() if not report.silent}
        members = [
            *map(graph_server, range(config.data.parts)),
            *map(param_server, range(config.servers.param_servers)),
        ]
        missing = next((member for member in members if member not in there), None)
        if missing is None:
            return
        if instances or time.monotonic() > deadline:  # without instances we know of those alone that have booted
            has = {role: sum(member.role == role for member in there) for role in asked}
            key = {"graph_server": "data.parts", "param_server": "servers.param_servers"}[missing.role]
            raise ConfigError(
                f"deployment {config.cloud.name} has {_servers(has)}, the run asks for {_servers(asked)}"
                f"{_refusal(config, missing)}: siafu deploy --set {key}={asked[missing.role]}"
            )
        on_status(Status(phase="waiting for machines"))
        time.sleep(min(1.0, config.servers.start_timeout_s))


def _instances(config: Config) -> set[Address]:
    """Roles that have an instance, booted or not; empty if the cloud does not say, or did not make the bucket."""
    if config.cloud.bucket:
        return set()
    try:
        instances = found.instances_of(config.cloud.name, config.lambdas.region)
    except (BotoCoreError, ClientError):
        return set()
    return {member for member, instance in instances.items() if instance["state"] in ("pending", "running")}


def _refusal(config: Config, member: Address) -> str:
    """The reason why EC2 gives the member no machine, as the end of a sentence; empty if there is none."""
    if config.cloud.bucket:
        return ""
    try:
        why = found.refusal(config.cloud.name, config.lambdas.region, member)
    except (BotoCoreError, ClientError):
        return ""
    return why and f" ({member}: {why})"


def _servers(counts: Mapping[str, int]) -> str:
    graph, param = counts["graph_server"], counts["param_server"]
    return f"{counted(graph, 'graph server')} and {counted(param, 'parameter server')}"


def _send(mailbox: Mailbox, shards: ShardSet, on_status: OnStatus) -> None:
    def say(sent: int, total: int) -> None:
        on_status(Status(phase=f"sending the graph, {share(sent, total)}"))

    graph_store.send(mailbox, shards, say)


def ask(mailbox: Mailbox, config: Config, shards: ShardSet, run_dir: Path) -> tuple[str, Order]:
    """Requests the run; returns its name and its coordinator's order. ConfigError if the deployment is busy."""
    run = f"{re.sub(r'[^A-Za-z0-9.-]+', '-', run_dir.name).strip('-.')[:100] or 'run'}-{secrets.token_hex(3)}"
    order = Order(secrets.token_hex(8), "start", run, shards.manifest.digest)
    before, report = mailbox.read(order_key(COORDINATOR)), _report(mailbox)
    _check_free(before, report, config.cloud.name)
    text = configs.dump(config)
    (run_dir / CONFIG).write_text(text)
    (run_dir / REMOTE).write_text(json.dumps({"bucket": mailbox.bucket, "run": run}) + "\n")
    mailbox.put(run_key(run, CONFIG), text.encode())
    for name in (NAMES, STANDARD):  # no machine has them: followers of the run get them from here
        if (run_dir / name).is_file():
            mailbox.upload(run_dir / name, piece_key(run, name))
    request = {
        "order": order.id,
        "data": order.data,
        "graph": shards.manifest.name,
        "epochs": config.train.epochs,
        "asked": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
    }
    mailbox.write(run_key(run, "request.json"), request)
    try:
        taken = mailbox.replace(order_key(COORDINATOR), order.value, before)
    except KeyboardInterrupt:
        stop(mailbox, run)  # it may be there already
        raise
    if not taken:
        raise ConfigError(f"deployment {config.cloud.name}: another run has just been started; see siafu status")
    return run, order


def _check_free(before: Letter | None, report: Report | None, name: str) -> None:
    """Raises ConfigError unless the machines have no run, or one that lost its coordinator with its machine."""
    if before is None or report is None or report.silent:
        return
    at_work = report.value.get("state") in ("fetching", "running", "ending")
    if run := untaken(before, report) or (at_work and report.value.get("run")):
        raise ConfigError(
            f"deployment {name} is busy with run {run}: wait for its end, or siafu attach {run} and end it by Ctrl-C"
        )


def untaken(order: Letter | None, report: Report | None) -> str:
    """The run that the coordinator's machine was ordered to start and has not seen yet, which takes seconds; empty if
    none. ``order``: its present order in the bucket."""
    if order is None or report is None or report.silent or order.age_s >= TAKEN_S:
        return ""
    try:
        asked = Order.of(order.value)
    except RemoteProtocolError:  # nobody will carry it out
        return ""
    return asked.run if asked.do == "start" and report.value.get("order") != asked.id else ""


def follow(mailbox: Mailbox, run: str, order: Order, run_dir: Path, on_status: OnStatus) -> Trained:
    """Shows a run until its end, and brings its files to ``run_dir`` meanwhile; returns the result.

    Raises the error that ended it; PeerLost if its machine falls silent. KeyboardInterrupt ends the run.
    """
    receiver = Receiver(mailbox, run, run_dir)
    try:
        end = _until_end(mailbox, run, order, receiver, on_status)
        _bring_function_logs(mailbox, run, run_dir)
    except KeyboardInterrupt:
        if mailbox.read(run_key(run, "end.json")) is None:
            stop(mailbox, run)
            _until_end(mailbox, run, order, receiver, on_status, END_S)
        raise
    if end.get("code") == 0:
        if (found := run_files.result(run_dir)) is None:
            raise GnnError(f"run {run}: it has ended and left no {RESULT}")
        return found
    raise _error(end, run, run_dir)


def stop(mailbox: Mailbox, run: str) -> None:
    """Asks the run to end if it is the last that the machines were ordered to start; the machines stay."""
    before = mailbox.read(order_key(COORDINATOR))
    if before is not None and (before.value.get("do"), before.value.get("run")) == ("start", run):
        mailbox.replace(order_key(COORDINATOR), Order(secrets.token_hex(8), "stop", run).value, before)


def _bring_function_logs(mailbox: Mailbox, run: str, run_dir: Path) -> None:
    """Fetches the function's logs, if there are any. Raises nothing: the run's own end matters more."""
    file = run_dir / CONFIG
    try:
        if not file.is_file():  # the coordinator writes it, unless it fails early
            file.write_bytes(mailbox.get(run_key(run, CONFIG)) or b"")
        config, request = configs.load(file), mailbox.read(run_key(run, "request.json"))
        asked = datetime.fromisoformat(str(request.value.get("asked") if request else "")).timestamp()
    except (GnnError, OSError, ValueError):
        return
    if config.servers.backend != "lambda" or not config.lambdas.place.billed:
        return
    lambdas = config.lambdas
    functionlogs.bring(lambdas.function, lambdas.region, asked - CLOCKS_S, run_dir / "logs" / "lambda-aws")


def _until_end(
    mailbox: Mailbox, run: str, order: Order, receiver: Receiver, on_status: OnStatus, limit_s: float = float("inf")
) -> dict[str, Any]:
    """Waits for the end of the run and all its files. PeerLost after ``limit_s``, or if nobody remains to report it."""
    begun = reached = ours = files_due = time.monotonic()
    while True:
        pause_s = 1.0
        try:
            if (end := mailbox.read(run_key(run, "end.json"))) is not None:
                receiver.update()
                return end.value
            report = _report(mailbox)
            if time.monotonic() >= files_due:
                receiver.update(whole=False)
                files_due = time.monotonic() + pace_s(time.monotonic() - begun, pause_s)  # nobody sends more often
            reached = time.monotonic()
        except ConfigError as error:  # credentials that have expired, say
            raise ConfigError(f"{error}; the run may go on: siafu attach {run}") from None
        except PeerLost as error:
            if time.monotonic() - reached > UNREACHABLE_S:
                raise PeerLost(f"{error}; the run may go on: siafu attach {run}") from None
            report, ours = None, time.monotonic()  # nobody knows
        if report is not None:
            pause_s = _heed(report, run, order, on_status)
            if _at_it(report, order):
                ours = time.monotonic()
        gone = _gone(report, run, time.monotonic() - ours)
        if gone and mailbox.read(run_key(run, "end.json")) is None:
            stop(mailbox, run)  # or it begins when nobody waits for it
            raise PeerLost(f"run {run} {gone}; see siafu status")
        if time.monotonic() - begun > limit_s:
            raise PeerLost(f"run {run} has not ended within {limit_s:g} s; see siafu status")
        time.sleep(pause_s)


def _heed(report: Report, run: str, order: Order, on_status: OnStatus) -> float:
    """Shows the status in a report; returns how long to wait for the next. PeerLost if its sender is gone."""
    if report.silent:
        raise PeerLost(f"coordinator is lost: {report.machine} has said nothing for {report.age_s:.0f} s; run {run}")
    if report.value.get("order") == order.id:
        on_status(status_of(report.value))
    every_s = report.value.get("every_s")
    return min(1.0, max(0.05, float(every_s) / 5)) if isinstance(every_s, (int, float)) else 1.0


def _at_it(report: Report, order: Order) -> bool:
    """Whether the machine has the order, or still sends the last files of the run before."""
    ended = report.value.get("ended")
    return report.value.get("order") == order.id or (isinstance(ended, dict) and not ended.get("kept"))


def _gone(report: Report | None, run: str, missed_s: float) -> str:
    """The reason why no end of the run will arrive, unless it just has; empty if one still may. ``missed_s``: time
    since the machine got its order."""
    ended = report.value.get("ended") if report is not None else None
    if isinstance(ended, dict) and ended.get("run") == run and ended.get("kept"):
        return f"is over, and there is no word how: {str(ended.get('last_line'))[:400]}"
    return f"is on no machine: waited {missed_s:.0f} s" if missed_s > TAKEN_S else ""


def status_of(report: Mapping[str, Any]) -> Status:
    """The status of the run in a report."""
    told = report.get("status")
    return live_status.status_of(told) if isinstance(told, dict) and told else Status(phase="starting the coordinator")


def _error(end: Mapping[str, Any], run: str, run_dir: Path) -> GnnError:
    """The error that ended the run, as it was raised there."""
    code, line = end.get("code"), str(end.get("last_line", ""))
    if code == 130:
        return PeerLost(f"run {run} was stopped")
    try:
        said = json.loads((run_dir / "error.json").read_text())
        kind, text = getattr(errors, str(said["type"]), None), str(said["text"])
    except (OSError, ValueError, KeyError, TypeError):
        kind, text = None, ""
    if isinstance(kind, type) and issubclass(kind, GnnError):
        return kind(text)
    return PeerLost(str(Death(COORDINATOR, code if isinstance(code, int) else 1, line)))


def _report(mailbox: Mailbox) -> Report | None:
    letter = mailbox.read(report_key(COORDINATOR))
    return Report(letter.value, letter.age_s) if letter else None
