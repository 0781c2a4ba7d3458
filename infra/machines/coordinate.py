"""Runs the coordinator of a run on a machine of the deployment, where its members can connect to it.

python -m infra.machines.coordinate --shards DIR --run-dir DIR; the agent of parameter server 0 starts it.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from infra.machines.address_exchange import Place
from infra.machines.host import await_agents, share
from infra.machines.mailbox import Mailbox
from run_coordinator import api, live_status, run_directory
from run_coordinator.actions import Status
from run_coordinator.coordinator import Coordinator
from siafu import config as configs
from siafu import run_files
from siafu.address import Address
from siafu.errors import GnnError
from siafu.shards import ShardSet


def main(argv: Sequence[str] | None = None) -> int:
    """Coordinates a run. Returns 0; the exit code of the error that ended the run, which is then in ``error.json``; or
    130 if asked to end."""
    parser = argparse.ArgumentParser(prog="python -m infra.machines.coordinate", description=__doc__)
    for name in ("--shards", "--run-dir"):
        parser.add_argument(name, required=True, type=Path)
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have us begin without one
    try:
        coordinate(args.shards, args.run_dir)
    except GnnError as error:
        said = {"type": type(error).__name__, "text": str(error)}
        (args.run_dir / "error.json").write_text(json.dumps(said) + "\n")
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 128 + signal.SIGINT
    return 0


def coordinate(shards_path: Path, run_dir: Path) -> None:
    """Waits for the machines and trains. All files go to ``run_dir``, which has the run's config.toml."""
    config, place = configs.load(run_dir / run_files.CONFIG), Place.read(run_dir)
    shards = ShardSet.open(shards_path, ())
    with run_directory.alone(run_dir), live_status.kept(run_dir, lambda status: None) as on_status:
        _carry_out(config, place, shards, run_dir, on_status)


def _carry_out(
    config: configs.Config, place: Place, shards: ShardSet, run_dir: Path, on_status: Callable[[Status], None]
) -> None:
    def say(come: int, total: int, boots: list[Address]) -> None:
        phase = f"machines fetch the graph, {share(come, total)}" if total else "waiting for machines"
        if boots:
            others = f" and {len(boots) - 1} more" if len(boots) > 1 else ""
            phase = f"waiting for the machine of {boots[0]}{others}: it boots"
        on_status(Status(phase=phase))

    mailbox = Mailbox(place.bucket, endpoint=place.endpoint, region=place.region)
    members = Coordinator(config).members
    await_agents(mailbox, place, members, config.servers.start_timeout_s, say)
    result = api.carry_out(config, shards, run_dir, on_status)
    run_files.write_result(run_dir, result)


if __name__ == "__main__":
    sys.exit(main())
