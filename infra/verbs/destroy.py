"""``siafu destroy``: removes a deployment, whatever state it is in, and says what is left: nothing.

Stacks go in the order of ``infra.deployment``, decided by ``infra.reaper``, as the watchdog does it, without the CDK.
Then whatever no stack remembers is looked for and removed (``infra.leftovers``). Each step asks for the state anew, so
a second call, or one after a crash of the first, goes on from there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from infra import deployment, leftovers, reaper
from infra.cloud import Cloud, speaking_plainly
from infra.deployment import DATA
from infra.leftovers import Left
from infra.verbs import arguments, consent
from run_coordinator.past_runs.deployments import forget
from siafu.errors import ConfigError, GnnError

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
    """What a teardown came to."""

    stacks: list[str]  # that were there
    left: list[Left]


def destroy(cloud: Cloud, say: Say = lambda text: None, sleep: Sleep = time.sleep) -> Gone:
    """Removes everything. GnnError if stacks do not go in time; ConfigError without credentials."""
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
    """Those that were there."""
    api, levels = cloud.client("cloudformation"), deployment.levels(cloud.name)
    names = [name for level in levels for name in level]
    seen: dict[str, str] = {}
    waited_s = 0.0
    while states := reaper.states_of(api, names):
        for name, state in states.items():
            if seen.get(name) != state and state != "DELETE_IN_PROGRESS":
                say(f"{name}: {state.lower().replace('_', ' ')}{_why(api, name, state)}")
            seen[name] = state
        if waited_s > LIMIT_S:
            raise GnnError(
                f"{', '.join(states)} not gone after {LIMIT_S / 60:.0f} minutes: siafu destroy goes on with them"
            )
        for name in reaper.due(levels, states):
            if name == deployment.stack(cloud.name, DATA):
                count = reaper.empty(cloud.client("s3"), deployment.bucket(cloud.name, cloud.account, cloud.region))
                say(f"{name}: {count} objects deleted")
            if reaper.delete(api, name):
                say(f"{name}: deleting")
        sleep(POLL_S)
        waited_s += POLL_S
    for name in seen:
        say(f"{name}: gone")
    return [name for name in names if name in seen]


def _why(api: object, name: str, state: str) -> str:
    """What a stack that cannot go is waiting for."""
    if state != "DELETE_FAILED":
        return ""
    (stack,) = api.describe_stacks(StackName=name)["Stacks"]  # type: ignore[attr-defined]
    return (
        f" ({stack.get('StackStatusReason', 'no reason given')[:200]}); trying again, network "
        "interfaces take up to 20 minutes"
    )


# --- the verb ---------------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu destroy [--name NAME] [--yes] [--json]"
    parser.description = (
        "Remove a deployment from AWS with its data, whatever its state; then list what is left: nothing."
    )
    parser.epilog = "examples:\n  siafu destroy\n  siafu destroy --name my-run --yes --json\n"
    arguments.add_config(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object: stacks that were there, what is left"
    )


def main(args: argparse.Namespace) -> int:
    """0 when nothing is left, 1 if something is."""
    cloud = Cloud.of(arguments.config_of(args))
    where = f"deployment {cloud.name} in account {cloud.account}, {cloud.region}"
    if not args.yes:
        consent.ask(f"Remove {where}, with all its runs and graphs?")
    gone = destroy(cloud, say=lambda text: print(text, file=sys.stderr, flush=True))
    with contextlib.suppress(OSError, ConfigError):  # only a listing would ask for it
        forget(cloud.name, cloud.region)
    if args.json:
        print(json.dumps({"name": cloud.name, "stacks": gone.stacks, "left": [str(one) for one in gone.left]}))
    elif gone.left:
        print(f"left of {where}:", *(f"  {one}" for one in gone.left), sep="\n")
    else:
        print(f"{where}: nothing is left" if gone.stacks else f"{where}: there was nothing")
    return 1 if gone.left else 0
