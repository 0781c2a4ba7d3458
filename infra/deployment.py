"""The parts of a deployment: its stacks in their order, and the names of everything in them. Pure.

The watchdog is made first and deleted last: from the first minute on, whatever happens to the laptop, the cloud itself
removes the deployment when its time is over.

    expiry    the watchdog: a schedule and a small function (``infra.reaper``) that remove every stack, their own last
    data      the bucket: graphs, runs, and what servers install
    network   VPC, one subnet, endpoints, security groups
    function  the Lambda
    servers   graph and parameter servers
    watch     flow logs, alarms, dashboard, budget
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from siafu.config import Config

EXPIRY, DATA, NETWORK, FUNCTION, SERVERS, WATCH = PARTS = "expiry", "data", "network", "function", "servers", "watch"
#: Made one after the other: the watchdog before anything that it must remove; and before the bucket is filled, from
#: which servers and the function are made, what holds it.
FIRST, SECOND = (EXPIRY,), (DATA, NETWORK)
#: Whoever removes stacks goes from left to right: those of one group do not use each other.
LEVELS = ((WATCH, SERVERS, FUNCTION), (NETWORK,), (DATA,), (EXPIRY,))
#: Tag of every resource; its value is the deployment's name. Roles are of all regions at
#: once: a second tag says of which.
TAG, REGION_TAG = "siafu:deployment", "siafu:region"
#: Tags of a server that its agent reads from the instance metadata.
ROLE_TAG, INDEX_TAG = "siafu:role", "siafu:index"
#: What servers call, beside S3. Each interface endpoint costs about $0.01 an hour.
SERVICES = ("lambda",)
#: Where secrets of runs lie (``infra.machines.secret_store``), and what Session Manager needs besides: not
#: ec2messages, since its agent is 3.3.40 or newer, which takes ssmmessages wherever it may (Systems
#: Manager user guide, on VPC endpoints).
SECRET_SERVICES, SHELL_SERVICES = ("ssm",), ("ssm", "ssmmessages")
#: Ports that roles bind where the config leaves them open: security groups admit no other.
PORTS = "7000-7099"


@dataclass(frozen=True)
class Made:
    """Values that are decided when a deployment is made, beside its config."""

    expires: datetime  # UTC
    package: str  # the function's zip: its key in the bucket
    runtime: str  # the function's Python
    wheels: str  # what servers install: a prefix in the bucket
    python: str = "python3.11"  # the servers'


def stack(name: str, part: str) -> str:
    return f"{name}-{part}"


def stacks(name: str, parts: Sequence[str] = PARTS) -> list[str]:
    """Names of stacks, in the order of creation."""
    return [stack(name, part) for part in parts]


def levels(name: str) -> list[list[str]]:
    """Names of stacks in the order of deletion; stacks of one level may be deleted together."""
    return [stacks(name, level) for level in LEVELS]


def services(config: Config) -> tuple[str, ...]:
    """Services with an interface endpoint."""
    secret = SECRET_SERVICES if config.servers.security != "none" else ()
    return (*SERVICES, *(SHELL_SERVICES if config.cloud.shell else secret))


def bucket(name: str, account: str, region: str) -> str:
    """The bucket's name. It is known beforehand, so that a bucket is found again even if no stack lists it."""
    return f"{name}-{account}-{region}"


def function(name: str) -> str:
    return f"{name}-worker"


def group(name: str, role: str, index: int) -> str:
    """Name of the Auto Scaling group of one machine. The name is fixed, so that alarms do not depend on the stack that
    makes the group."""
    return f"{name}-{role.replace('_', '-')}-{index}"


def log_groups(name: str) -> dict[str, str]:
    """Names of the log groups, by part."""
    return {
        "function": f"/aws/lambda/{function(name)}",
        "reaper": f"/aws/lambda/{reaper(name)}",
        "flows": f"/siafu/{name}/flows",
    }


def reaper(name: str) -> str:
    return f"{name}-reaper"


# Names that the whole account shares: a deployment of the same name in another region has others.


def budget(name: str, region: str) -> str:
    return f"{name}-{region}-monthly"


def dashboard(name: str, region: str) -> str:
    return f"{name}-{region}"


def profile(name: str, region: str, role: str) -> str:
    """Name of the instance profile of a role's machines. CloudFormation gives it no tag: only its name shows its
    deployment."""
    return f"{name}-{region}-{role.replace('_', '-')}"
