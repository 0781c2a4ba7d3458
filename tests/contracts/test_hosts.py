"""What every host promises the coordinator, whatever starts the servers and wherever they live.

The test plays the coordinator; the members are real servers, of a graph of two partitions. To add a host: a fixture
that gives a ``Make``, and its line in ``HOSTS``.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from graph_data.prepare import prepare
from infra.machines import graph_store
from infra.machines.address_exchange import Place
from infra.machines.host import MachineHost
from infra.machines.mailbox import Mailbox, run_key
from infra.machines.secret_store import parameter
from run_coordinator import hosts
from run_coordinator.hosts import Host
from siafu import config as configs
from siafu import ray_cluster
from siafu.address import COORDINATOR, Address, graph_server, param_server
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.keys import SECRET_BYTES, Keys
from siafu.shards import ShardSet
from siafu.sockets import Hub, public_key
from siafu.table import loaded
from siafu.wire import RUN_ID_BYTES, Hello, Refused, Stop
from tests.infra.deployment import POLL_S, Deployment, bucket
from tests.toy_graphs import random_graph

#: A cluster takes long to start.
HOSTS = [pytest.param(name, marks=[pytest.mark.long] * (name == "ray")) for name in hosts.HOSTS]
PATIENCE_S = 120.0
G0, G1, Q0 = graph_server(0), graph_server(1), param_server(0)


@dataclass
class Run:
    """A host and what the coordinator has of the run."""

    host: Host
    hub: Hub
    run_dir: Path
    run_id: bytes
    config: Config

    def start(self, *members: Address) -> None:
        for member in members:
            self.host.start(member, self.hub.endpoint)

    def hellos(self, *members: Address) -> dict[Address, Hello]:
        """What the members say first."""
        said: dict[Address, Hello] = {}
        deadline = time.monotonic() + PATIENCE_S
        while set(said) < set(members):
            assert time.monotonic() < deadline, f"no hello of {set(members) - set(said)}; {self.host.dead()}"
            said |= {sender: message for sender, message in self.hub.poll(0.05) if isinstance(message, Hello)}
        return said

    def until(self, happened: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not happened():
            assert time.monotonic() < deadline, f"no {what} within {PATIENCE_S:g} s"
            self.hub.poll(0.02)

    def pids(self, member: Address | None = None) -> list[int]:
        """Processes of this run, on whatever machine: all are this one. ``member``: its alone."""
        return sorted(pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._is_of(pid, member))

    def _is_of(self, pid: int, member: Address | None) -> bool:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if self.run_id.hex() not in words or state == "Z":
            return False
        return member is None or (member.role in words and words[words.index("--index") + 1] == member.name)


#: Run directory -> a host that is not entered yet, and the run's id.
Make = Callable[[Config, Path, bytes], Host]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> ShardSet:
    return prepare(random_graph(1, 60), tmp_path_factory.mktemp("shards") / "toy", parts=2)


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest, shards: ShardSet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """A place of the kind that the test is for, with room for two graph servers and a parameter server."""
    with ExitStack() as stack:
        if request.param == "ray":  # as long as we are in a cluster, "auto" is that one
            stack.callback(ray_cluster.connect(request.getfixturevalue("ray_cluster").address).close)
        yield stack.enter_context(PLACES[request.param](shards, tmp_path_factory.mktemp(request.param)))


def made(config: Config, run_dir: Path, shards: Path, run_id: bytes) -> Host:
    host: Host = loaded(hosts.HOSTS[config.run.on]).make(config, run_dir, shards, run_id)
    return host


@contextmanager
def local(shards: ShardSet, folder: Path) -> Iterator[Make]:
    yield lambda config, run_dir, run_id: made(config, run_dir, shards.path, run_id)


@contextmanager
def aws(shards: ShardSet, folder: Path) -> Iterator[Make]:
    """Agents as processes of this machine, and moto's bucket between."""
    with bucket() as mailbox, Deployment(mailbox, folder):
        graph_store.send(mailbox, shards)
        yield lambda config, run_dir, run_id: _on_machines(mailbox, shards, config, run_dir, run_id)


def _on_machines(mailbox: Mailbox, shards: ShardSet, config: Config, run_dir: Path, run_id: bytes) -> Host:
    run = f"run-{run_id.hex()}"
    mailbox.put(run_key(run, "config.toml"), configs.dump(config).encode())
    Place(mailbox.bucket, run, shards.manifest.digest, "127.0.0.1", endpoint=mailbox.endpoint, poll_s=POLL_S).write(
        run_dir
    )
    return made(config, run_dir, shards.path, run_id)


PLACES: dict[str, Callable[[ShardSet, Path], AbstractContextManager[Make]]] = {"local": local, "aws": aws, "ray": local}


@pytest.fixture
def run(request: pytest.FixtureRequest, place: Make, tmp_path: Path) -> Iterator[Run]:
    """A run that has not started anybody."""
    name = request.node.callspec.params["place"]
    config = Config.from_dict({"data": {"parts": 2}, "servers": {"backend": "cpu"}, "run": {"on": name}})
    run_id, run_dir = secrets.token_bytes(RUN_ID_BYTES), tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "config.toml").write_text(configs.dump(config))
    with ExitStack() as stack:
        host = stack.enter_context(place(config, run_dir, run_id))
        hub = stack.enter_context(Hub(COORDINATOR, run_id, listen=host.listen))
        yield Run(host, hub, run_dir, run_id, config)


every_host = pytest.mark.parametrize("place", HOSTS, indirect=True)


# --- the promises -----------------------------------------------------------------------------------------------------


@pytest.mark.long
@every_host
def test_members_dial_the_coordinator_with_the_config_of_the_run(run: Run) -> None:
    run.start(G0, G1, Q0)
    for member, hello in run.hellos(G0, G1, Q0).items():
        assert (hello.role, hello.index, hello.config_digest) == (member.role, member.index, run.config.digest)
        assert hello.address.startswith(("tcp://", "ipc://@siafu-"))
    assert run.host.dead() is None
    assert run.host.num_alive == 3


@every_host
def test_a_killed_process_is_found_dead_by_its_name_and_signal(run: Run) -> None:
    run.start(G0, Q0)
    run.hellos(G0, Q0)
    os.kill(run.pids(G0)[0], signal.SIGKILL)
    run.until(run.host.dead, "death")
    death = run.host.dead()
    assert death is not None
    assert (death.member, death.code) == (G0, -signal.SIGKILL)
    assert str(death).startswith("graph_server 0 died: killed by SIGKILL")
    run.until(lambda: run.host.num_alive == 1, "one that is left")


@every_host
def test_a_member_that_gives_up_is_found_with_the_last_line_of_its_log(run: Run) -> None:
    run.start(G0)
    run.hellos(G0)
    run.hub.send(G0, Refused("not today"))
    run.until(run.host.dead, "death")
    death = run.host.dead()
    assert death is not None
    assert (death.member, death.code) == (G0, 1)
    assert "refused by the coordinator: not today" in death.last_line


@pytest.mark.long
@every_host
def test_one_that_was_killed_goes_before_one_that_gave_up(run: Run) -> None:
    run.start(G0, G1)
    run.hellos(G0, G1)
    run.hub.send(G0, Refused("not today"))
    os.kill(run.pids(G1)[0], signal.SIGKILL)
    run.until(lambda: run.host.num_alive == 0, "end of both")
    death = run.host.dead()
    assert death is not None
    assert (death.member, death.code) == (G1, -signal.SIGKILL)


@pytest.mark.long
@every_host
def test_kill_ends_one_member_and_takes_the_same_or_an_unknown_one_again(run: Run) -> None:
    run.host.kill(G0)
    run.start(G0, G1)
    run.hellos(G0, G1)
    for _ in range(2):
        run.host.kill(G0)
    run.until(lambda: not run.pids(G0), "end")
    run.until(lambda: run.host.num_alive == 1, "one that is left")
    run.host.kill(G0)
    assert run.pids(G1)


@pytest.mark.long
@every_host
def test_wait_tells_whether_all_have_ended(run: Run) -> None:
    run.start(G0, Q0)
    run.hellos(G0, Q0)
    assert not run.host.wait(0.2)
    for member in (G0, Q0):
        run.hub.send(member, Stop("done"))
    assert run.host.wait(PATIENCE_S)
    assert run.host.num_alive == 0


@pytest.mark.long
@every_host
def test_collect_ends_who_is_left_and_brings_every_log_home(run: Run) -> None:
    run.start(G0, Q0)
    run.hellos(G0, Q0)
    run.hub.send(G0, Refused("not today"))
    run.until(run.host.dead, "death")
    run.host.collect()
    run.until(lambda: not run.pids(), "end of all")
    assert "not today" in (run.run_dir / "logs" / "graph_server-0.log").read_text()
    assert (run.run_dir / "logs" / "param_server-0.log").is_file()
    run.host.collect()


@every_host
def test_no_call_but_wait_and_collect_takes_long(run: Run) -> None:
    for call in (lambda: run.start(G0), run.host.dead, lambda: run.host.num_alive, lambda: run.host.kill(G0)):
        begun = time.monotonic()
        call()
        assert time.monotonic() - begun < 20  # a member that it waited for would run on


@pytest.mark.long
@pytest.mark.parametrize("place", HOSTS, indirect=True)
def test_members_have_keys_that_nothing_but_they_has(
    place: Make, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    on = request.node.callspec.params["place"]
    config = Config.from_dict({"data": {"parts": 2}, "servers": {"security": "curve"}, "run": {"on": on}})
    (tmp_path / "config.toml").write_text(configs.dump(config))
    run_id, keys = secrets.token_bytes(RUN_ID_BYTES), Keys(secrets.token_bytes(SECRET_BYTES), 2, 1, public_key)
    with (
        place(config, tmp_path, run_id) as host,
        Hub(COORDINATOR, run_id, listen=host.listen, ring=keys.ring(COORDINATOR)) as hub,
    ):
        run = Run(host, hub, tmp_path, run_id, config)
        for member in (G0, G1, Q0):
            host.start(member, hub.endpoint, keys)
        run.hellos(G0, G1, Q0)
        seen = b"".join(
            Path(f"/proc/{pid}/{name}").read_bytes() for pid in run.pids() for name in ("cmdline", "environ")
        )
        host.collect()
    seen += b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    if isinstance(host, MachineHost):
        mailbox = host._mailbox
        seen += b"".join(mailbox.get(entry.key) or b"" for entry in mailbox.entries("") if "shards" not in entry.key)
        for role in ("graph_server", "param_server"):
            with pytest.raises(ConfigError, match="ParameterNotFound"):
                host._vault.get(parameter(config.cloud.name, role, run_id))
    for secret in (keys.role_secret("graph_server"), *(keys.ring(member).secret for member in (G0, G1, Q0))):
        assert secret not in seen
        assert secret.hex().encode() not in seen


@pytest.mark.long
@pytest.mark.parametrize("place", HOSTS, indirect=True)
def test_leaving_the_block_leaves_nobody(place: Make, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    config = Config.from_dict({"data": {"parts": 2}, "run": {"on": request.node.callspec.params["place"]}})
    (tmp_path / "config.toml").write_text(configs.dump(config))
    run_id = secrets.token_bytes(RUN_ID_BYTES)
    with place(config, tmp_path, run_id) as host, Hub(COORDINATOR, run_id, listen=host.listen) as hub:
        run = Run(host, hub, tmp_path, run_id, config)
        run.start(G0, G1, Q0)
        run.hellos(G0, Q0)
    assert run.pids() == []
