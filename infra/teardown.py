"""``siafu destroy``: removes a deployment in any state, and checks that nothing is left.

Stacks are deleted in the order of ``infra.deployment``, by decisions of ``infra.reaper``, as in the watchdog, without
the CDK. Then resources that no stack lists are found and removed (``infra.leftovers``). Each step asks for the state
anew, so a second call, or one after a crash of the first, continues from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from botocore.exceptions import ClientError

from infra import cdk, deployment, leftovers, reaper
from infra.cloud import Cloud, is_denied, speaking_plainly
from infra.deployment import DATA, NETWORK, TAG
from infra.leftovers import Left
from siafu.errors import GnnError

#: Between two looks at stacks that are going.
POLL_S = 5.0
#: A function's network interfaces alone take up to 20 minutes.
LIMIT_S = 45 * 60.0
#: What was just deleted may be listed a little longer; network interfaces and instances take a minute to go.
SWEEPS, SWEEP_S = 12, 10.0

Say = Callable[[str], None]
Sleep = Callable[[float], None]


@dataclass(frozen=True)
class Gone:
    """The result of a teardown."""

    stacks: list[str]  # that were there
    left: list[Left]


def destroy(cloud: Cloud, say: Say = lambda text: None, sleep: Sleep = time.sleep) -> Gone:
    """Removes everything. GnnError if stacks are not deleted in time; ConfigError without credentials."""
    with speaking_plainly(f"deployment {cloud.name} in {cloud.region}"):
        stacks = _remove_stacks(cloud, say, sleep)
        left = leftovers.find(cloud)
        for _ in range(SWEEPS):
            known = [f"{one.kind} {one.id}" for one in left if one.id]
            if not known:
                break
            say(f"no stack has {', '.join(known[:5])}{' ...' * (len(known) > 5)}: removing")
            left = leftovers.sweep(cloud)
            if left:
                sleep(SWEEP_S)
    return Gone(stacks, left)


def _remove_stacks(cloud: Cloud, say: Say, sleep: Sleep) -> list[str]:
    """Deletes all stacks; returns the names of those that existed."""
    api, levels = cloud.client("cloudformation"), deployment.levels(cloud.name)
    names = [name for level in levels for name in level]
    seen: dict[str, str] = {}
    waited_s = 0.0
    while states := reaper.states_of(api, names):
        for name, state in states.items():
            if seen.get(name) != state and state != "DELETE_IN_PROGRESS":
                say(f"{name}: {state.lower().replace('_', ' ')}{_why(cloud, name, state)}")
            seen[name] = state
        if waited_s > LIMIT_S:
            raise GnnError(
                f"{', '.join(states)} not gone after {LIMIT_S / 60:.0f} minutes: siafu destroy goes on with them"
            )
        for name in reaper.due(levels, states):
            if name == deployment.stack(cloud.name, DATA):
                count = reaper.empty(cloud.client("s3"), deployment.bucket(cloud.name, cloud.account, cloud.region))
                say(f"{name}: {count} objects deleted")
            why = reaper.delete(api, name)
            if why and "_IN_PROGRESS" not in f"{states[name]} {why}":  # else it is waited for
                raise GnnError(f"{name}: {why}{_hint(cloud, why)}")
            if not why:
                say(f"{name}: deleting")
        sleep(POLL_S)
        waited_s += POLL_S
    for name in seen:
        say(f"{name}: gone")
    return [name for name in names if name in seen]


def _hint(cloud: Cloud, why: str) -> str:
    """Advice, as the end of a sentence, if CloudFormation cannot delete an idle stack.

    It works with the role that made the stack, and that goes with the bootstrap's stack (CloudFormation user guide,
    "Service role": it cannot be taken off a stack). A new bootstrap makes one of the same name.
    """
    if "cannot be assumed" not in why:
        return ""
    return f": the CDK's bootstrap is gone; npx {cdk.CLI} bootstrap aws://{cloud.account}/{cloud.region} brings it back"


def _why(cloud: Cloud, name: str, state: str) -> str:
    """The reason why a stack cannot be deleted yet."""
    if state != "DELETE_FAILED":
        return ""
    (stack,) = cloud.client("cloudformation").describe_stacks(StackName=name)["Stacks"]
    held = _held(cloud) if name == deployment.stack(cloud.name, NETWORK) else ""
    return f" ({stack.get('StackStatusReason', 'no reason given')[:200]}); trying again{held}"


def _held(cloud: Cloud) -> str:
    """Network interfaces that remain. The function's own disappear by themselves. An endpoint of GuardDuty's Runtime
    Monitoring does not, and no stack or tag of ours lists it."""
    ec2 = cloud.client("ec2")
    try:
        vpcs = ec2.describe_vpcs(Filters=[{"Name": f"tag:{TAG}", "Values": [cloud.name]}])["Vpcs"]
        in_them = [{"Name": "vpc-id", "Values": [vpc["VpcId"] for vpc in vpcs]}]
        found = ec2.describe_network_interfaces(Filters=in_them)["NetworkInterfaces"] if vpcs else []
    except ClientError as error:
        if not is_denied(error):
            raise
        found = []
    names = ", ".join(sorted({one.get("Description") or one["NetworkInterfaceId"] for one in found})[:5])
    return f", Lambda's network interfaces take up to 20 minutes{names and f'; there are: {names}'}"
