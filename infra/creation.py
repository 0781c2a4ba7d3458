"""Makes a deployment on AWS (``siafu deploy``), or goes on with one that was not finished.

1. Templates are made first, without an account: impossible settings show before anything costs money.
2. Limits of the account or the region are checked before anything is made: environments, vCPUs, a zone with everything.
3. The watchdog comes first: if the laptop is lost from there on, the deployment still removes itself.
4. Then come the bucket and the network. The function's package and the servers' wheels are uploaded to the bucket,
   since the next stacks need them.
5. CloudFormation does the work and knows how far it is: a second deploy changes the differences and makes what is
   missing. During a run it only resets the watchdog's clock: otherwise a newer system image would replace the run's
   machines.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from infra import cdk, deployment, limits, package, reaper, wheelhouse, zones
from infra.cloud import Cloud, speaking_plainly
from infra.deployment import DATA, FIRST, PARTS, SECOND, Made
from infra.machines import runs
from infra.machines.mailbox import Mailbox
from siafu.config import Config
from siafu.errors import ConfigError, GnnError, PriceUnknown
from siafu.pricing import cost
from siafu.pricing.cost import Cost

#: What the open LocalStack really makes; of the rest it only says so.
LOCAL_PARTS = ("data", "network", "function")
BOOTSTRAP_STACK = "CDKToolkit"
POLL_S, SETTLE_S = 5.0, 30 * 60.0
#: State of a stack that cannot be changed -> its meaning, and advice.
STUCK = {
    "DELETE_FAILED": "half removed (delete failed); siafu destroy removes the rest first",
    "UPDATE_ROLLBACK_FAILED": (
        "neither its change nor the way back succeeded (update rollback failed): continue the rollback in the "
        "CloudFormation console, or siafu destroy"
    ),
}

Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """The resources and prices of a deployment before it is made."""

    stacks: dict[str, dict[str, int]]  # stack -> resources of each type
    usd_per_hour: dict[str, float]  # by part, while nothing runs
    unknown: str  # why a price is missing; empty if none is
    lambda_usd_per_hour: float  # on top, while all environments that may be are at work
    as_of: str = ""  # the oldest price; empty if one is missing

    @property
    def total(self) -> float | None:
        return None if self.unknown else sum(self.usd_per_hour.values())


def plan(config: Config, made: Made, assembly: Path, parts: Sequence[str] = PARTS) -> Plan:
    """Makes the templates in ``assembly``. Makes no request. ConfigError if they cannot be made."""
    cdk.check()
    from infra import app

    made_of = app.synthesize(config, made, assembly, parts)
    stacks = {name: made_of[name] for name in deployment.stacks(config.cloud.name) if name in made_of}
    standing, unknown = Cost(), ""
    try:
        standing = cost.standing(config)
    except PriceUnknown as error:
        unknown = str(error)
    try:
        environments = cost.lambda_per_hour(config, config.cloud.reserved)
    except PriceUnknown:
        environments = 0.0
    return Plan(stacks, dict(standing.parts), unknown, environments, standing.as_of)


def deploy(config: Config, cloud: Cloud, parts: Sequence[str] = PARTS, say: Say = lambda text: None) -> Made:
    """Makes these parts, or updates them to the config. A stack that another one uses must exist or be among them."""
    cdk.check()
    cdk.check_cli()
    where = f"deployment {cloud.name} in {cloud.region}"
    with speaking_plainly(where), tempfile.TemporaryDirectory() as folder:
        assembly = Path(folder, "cdk.out")
        if set(FIRST) <= set(parts) and (run := _run_that_goes_on(cloud)):
            say(f"run {run} goes on: only the clock is set anew; deploy again when it is over to change anything else")
            made = Made(_expiry(config), "", "", "")
            plan(config, made, assembly, FIRST)
            _deploy(cloud, assembly, deployment.stacks(cloud.name, FIRST), say)
            return made
        limits.check(config, cloud, parts, say)
        config = zones.settle(config, cloud)
        say("building the function's package, for minutes if its kernels are new, and what servers install")
        config, made, files = _build(config, cloud, parts)
        stacks = list(plan(config, made, assembly, parts).stacks)
        _bootstrap(cloud, say)
        _settle(cloud, deployment.stacks(cloud.name), say)
        rest = [one for one in PARTS if one not in (*FIRST, *SECOND)]
        with _begun(), speaking_plainly(where):
            _deploy(cloud, assembly, _among(stacks, cloud.name, FIRST), say)
            _deploy(cloud, assembly, _among(stacks, cloud.name, SECOND), say)
            _upload(cloud, files, say)
            _deploy(cloud, assembly, _among(stacks, cloud.name, rest), say)
    return made


@contextmanager
def _begun() -> Iterator[None]:
    """Adds advice to errors in this block: a failed deploy leaves resources that cost money, even if the user is at
    fault."""
    try:
        yield
    except GnnError as error:
        error.args = (f"{error}; siafu deploy goes on from here, siafu destroy removes what there is",)
        raise


def _among(stacks: Sequence[str], name: str, parts: Sequence[str]) -> list[str]:
    return [one for one in deployment.stacks(name, parts) if one in stacks]


def _run_that_goes_on(cloud: Cloud) -> str:
    """Name of the run under way; empty if the deployment has none, or does not exist."""
    data = deployment.stack(cloud.name, DATA)
    if not reaper.states_of(cloud.client("cloudformation"), [data]):
        return ""
    bucket = deployment.bucket(cloud.name, cloud.account, cloud.region)
    try:
        return runs.under_way(runs.coordinator(Mailbox(bucket, endpoint=cloud.endpoint, region=cloud.region)))
    except ConfigError:  # the stack has no bucket yet
        return ""


def _expiry(config: Config) -> datetime:
    return datetime.now(timezone.utc) + timedelta(hours=config.cloud.ttl_hours)


def _build(config: Config, cloud: Cloud, parts: Sequence[str]) -> tuple[Config, Made, dict[str, Path]]:
    """The config with values that are decided now, and the files that the bucket must have, by key."""
    if cloud.endpoint:  # LocalStack's functions run on this machine
        from infra.localstack import fit

        zipped = fit.package_for(cloud.endpoint)
        config = config.replace({"cloud.arch": zipped.arch})
    else:
        zipped = package.build(config.cloud.arch)
    files = {f"packages/{zipped.sha256}.zip": zipped.path}
    digest = hashlib.sha256()
    if "servers" in parts:
        from infra.stacks.servers import architecture

        houses = [
            wheelhouse.build(arch)
            for arch in sorted({architecture(config.cloud.graph_instance), architecture(config.cloud.param_instance)})
        ]
        for house in houses:
            digest.update(house.digest.encode())
        folder = f"wheels/{digest.hexdigest()[:16]}"
        files |= {f"{folder}/{house.arch}/{file.name}": file for house in houses for file in house.files}
    wheels, python = f"wheels/{digest.hexdigest()[:16]}", wheelhouse.python()
    return config, Made(_expiry(config), f"packages/{zipped.sha256}.zip", zipped.runtime, wheels, python), files


def _bootstrap(cloud: Cloud, say: Say) -> None:
    states = reaper.states_of(cloud.client("cloudformation"), [BOOTSTRAP_STACK])
    if states.get(BOOTSTRAP_STACK, "").endswith("_COMPLETE") and "ROLLBACK" not in states[BOOTSTRAP_STACK]:
        return
    say("bootstrapping the CDK: a bucket for templates and its roles, once per account and region; it stays")
    cdk.bootstrap(cloud.account, cloud.region, cloud.endpoint)


def _settle(cloud: Cloud, stacks: Sequence[str], say: Say) -> None:
    """Waits until CloudFormation has finished the work of a deploy that was stopped. GnnError if it does not finish, or
    ends in a state from which the CDK cannot continue: the CDK repeats failed creations, but asks somebody about a
    failed rollback."""
    api, waited_s, said = cloud.client("cloudformation"), 0.0, ""
    while busy := _busy(states := reaper.states_of(api, list(stacks))):
        text = ", ".join(f"{name} ({state})" for name, state in busy.items())
        if text != said:
            say(f"CloudFormation is still at work on {text}")
            said = text
        if waited_s > SETTLE_S:
            raise GnnError(f"CloudFormation is still at work on {text} after {SETTLE_S / 60:.0f} minutes")
        time.sleep(POLL_S)
        waited_s += POLL_S
    for name, state in states.items():
        if what := STUCK.get(state):
            raise GnnError(f"{name}: {what}")


def _busy(states: Mapping[str, str]) -> dict[str, str]:
    return {
        name: state
        for name, state in states.items()
        if state.endswith("_IN_PROGRESS") and state != "REVIEW_IN_PROGRESS"
    }


def _deploy(cloud: Cloud, assembly: Path, stacks: Sequence[str], say: Say) -> None:
    if stacks:
        say(f"making {', '.join(stacks)}")
        cdk.deploy(assembly, stacks, cloud.region, cloud.endpoint)


def _upload(cloud: Cloud, files: dict[str, Path], say: Say) -> None:
    """Uploads files. Skips existing ones: keys contain digests."""
    s3, bucket = cloud.client("s3"), deployment.bucket(cloud.name, cloud.account, cloud.region)
    missing = {key: file for key, file in files.items() if not _lies(s3, bucket, key, file.stat().st_size)}
    total = sum(file.stat().st_size for file in missing.values())
    if missing:
        say(f"uploading {len(missing)} files, {total / 1e6:.0f} MB, to {bucket}")
    for key, file in missing.items():
        s3.upload_file(str(file), bucket, key)


def _lies(s3: object, bucket: str, key: str, nbytes: int) -> bool:
    try:
        found = s3.head_object(Bucket=bucket, Key=key)["ContentLength"]  # type: ignore[attr-defined]
    except ClientError as error:
        if error.response["Error"]["Code"] in ("404", "NoSuchKey", "NotFound"):
            return False
        raise
    return bool(found == nbytes)


def there(config: Config, cloud: Cloud) -> str:
    """Stacks and their states, for the last message of a deploy that was stopped."""
    try:
        states = reaper.states_of(cloud.client("cloudformation"), deployment.stacks(cloud.name))
        return ", ".join(f"{name} ({state.lower()})" for name, state in states.items()) or "nothing"
    except (BotoCoreError, ClientError) as error:  # we are leaving, and this only informs
        return f"unknown ({error})"
