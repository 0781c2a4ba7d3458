"""Servers and Lambdas on a Ray cluster of three nodes: the bits of local processes, and an end
with words when a node is lost."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from graph_data.prepare import prepare
from infra.ray import host as ray_host
from infra.ray import member as ray_member
from infra.ray import nodes as ray_nodes
from infra.ray.member import Member, Order, graph_of, read_piece, reader
from infra.ray.nodes import Node, bundles, mismatch
from siafu import config as configs
from siafu import ray_cluster as clusters
from siafu.address import Address, graph_server, param_server
from siafu.config import Config
from siafu.errors import ConfigError, DatasetError, PeerLost
from siafu.shards import MANIFEST, ShardSet, folder_of
from tests.integration.processes import Training
from tests.simulated_ray import CPUS, NODES, SimulatedRay
from tests.toy_graphs import random_graph

DIGITS = ("digits", "--mode", "pipe", "--parts", "2", "--param-servers", "1", "--intervals", "4")
SHORT = (*DIGITS, "--epochs", "10")
ENDLESS = (*DIGITS, "--epochs", "1000000", "--backend", "cpu", "--restarts", "0")
SERVERS = ("graph_server", "param_server")
ENVIRONMENT = "awslambdaric"


def on(cluster: SimulatedRay) -> tuple[str, ...]:
    return "--on", "ray", "--set", f"cloud.ray_address={cluster.address}"


@lru_cache
def local_run(backend: str, tmp_path: Path) -> dict[str, Any]:
    with Training(tmp_path / f"local-{backend}", *SHORT, "--backend", backend) as training:
        return training.result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("local")


@pytest.fixture
def damaged(ray_cluster: SimulatedRay) -> Iterator[SimulatedRay]:
    """The cluster for a test that loses a node; it is put back."""
    before = dict(ray_cluster.nodes)
    yield ray_cluster
    for host in before.keys() - ray_cluster.nodes.keys():
        ray_cluster.add(host)


def all_gone(cluster: SimulatedRay, timeout_s: float = 30.0) -> bool:
    """Whether no server and no environment of a run is left on the cluster."""
    deadline = time.monotonic() + timeout_s
    while cluster.members(*SERVERS, ENVIRONMENT):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


# --- whole runs -------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("backend", "lambda_on"),
    [("cpu", "local"), ("lambda", "ray"), pytest.param("lambda", "local", marks=pytest.mark.slow)],
)
def test_pipe_on_three_nodes_has_the_bits_of_local_processes(
    ray_cluster: SimulatedRay, tmp_path: Path, folder: Path, backend: str, lambda_on: str
) -> None:
    expected = local_run(backend, folder)
    arguments = (*SHORT, "--backend", backend, "--lambda-on", lambda_on, "--trace", *on(ray_cluster))
    with Training(tmp_path / "run", *arguments) as training:
        result = training.result  # all of stdout: Ray has put nothing beside it
        assert training.wait() == 0, training.errors
        assert training.all_gone(20)
    assert all_gone(ray_cluster)
    assert result["weights_digest"] == expected["weights_digest"]
    assert result["loss_history"] == expected["loss_history"]
    assert (result["lambda"]["invocations"] > 0) == (backend == "lambda")
    written = {path.name for path in (tmp_path / "run").rglob("*.*l*")}
    assert {
        "graph_server-0.log",
        "graph_server-1.log",
        "param_server-0.log",
        "trace-0.jsonl",
        "trace-1.jsonl",
    } <= written
    assert any(name.startswith("env-") for name in written) == (backend == "lambda")


@pytest.mark.slow
def test_servers_of_this_machine_may_have_their_lambdas_on_the_cluster(
    ray_cluster: SimulatedRay, tmp_path: Path, folder: Path
) -> None:
    address = ("--set", f"cloud.ray_address={ray_cluster.address}")
    with Training(tmp_path / "run", *SHORT, "--lambda-on", "ray", *address) as training:
        assert training.result["weights_digest"] == local_run("lambda", folder)["weights_digest"]
    assert all_gone(ray_cluster)


@pytest.mark.long
def test_each_server_has_a_node_of_its_own_and_a_node_killed_in_mid_run_ends_it_with_both_names(
    damaged: SimulatedRay, tmp_path: Path
) -> None:
    with Training(tmp_path / "run", *ENDLESS, *on(damaged)) as training:
        training.until(lambda: training.epochs() >= 2, "two epochs")
        where = damaged.members(*SERVERS)
        assert sorted(where.values()) == sorted(damaged.nodes)
        lost = next(host for host in where.values() if host != damaged.head)
        damaged.kill(lost)
        assert training.wait(60) == 1
        last = training.errors.splitlines()[-1]
        assert "_server " in last
        assert f"died: killed by SIGKILL; node {lost} (" in last
        assert "Traceback" not in training.errors
        assert len(training.errors.splitlines()) < 10
    assert all_gone(damaged)


@pytest.mark.slow
def test_a_node_that_falls_silent_ends_the_run_with_its_name(damaged: SimulatedRay, tmp_path: Path) -> None:
    patience = ("--set", "servers.silence_s=5", "--set", "servers.heartbeat_s=0.5")
    with Training(tmp_path / "run", *ENDLESS, *on(damaged), *patience) as training:
        training.until(lambda: training.epochs() >= 2, "two epochs")
        lost = next(host for host in damaged.members("graph_server").values() if host != damaged.head)
        damaged.freeze(lost)
        assert training.wait(60) == 1
        damaged.kill(lost)
        assert f"node {lost} (" in training.errors.splitlines()[-1]
    assert all_gone(damaged)


@pytest.mark.long
@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, *(pytest.param(polite, marks=pytest.mark.slow) for polite in (signal.SIGINT, signal.SIGTERM))],
)
def test_stopped_run_leaves_nothing_on_the_cluster(
    ray_cluster: SimulatedRay, tmp_path: Path, number: signal.Signals
) -> None:
    with Training(tmp_path / "run", *ENDLESS, *on(ray_cluster)) as training:
        training.until(lambda: training.epochs() >= 1, "an epoch")
        training.process.send_signal(number)
        code = training.wait(10)
        assert code == (-number if number == signal.SIGKILL else 128 + number)
        assert "Traceback" not in training.errors
    assert all_gone(ray_cluster)


@pytest.mark.slow
def test_error_of_a_member_is_the_runs(ray_cluster: SimulatedRay, tmp_path: Path) -> None:
    arguments = (*DIGITS, "--epochs", "5", "--set", "lambda.handler=no_such_module.handler", "--lambda-on", "ray")
    with Training(tmp_path / "run", *arguments, *on(ray_cluster)) as training:
        assert training.wait(60) == 1
        assert "Unable to import module 'no_such_module'" in training.errors.splitlines()[-1]
    assert all_gone(ray_cluster)


# --- what cannot be ---------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_more_servers_than_processors_are_refused_with_both_numbers(ray_cluster: SimulatedRay, tmp_path: Path) -> None:
    too_many = str(NODES * CPUS)
    arguments = ("digits", "--parts", "2", "--param-servers", too_many, *on(ray_cluster))
    with Training(tmp_path / "run", *arguments) as training:
        assert training.wait(60) == 2
        assert training.errors.splitlines()[-1].endswith(
            "run.on = ray: 8 servers need 3 nodes with 3, 3, 2 free processors; "
            "3 nodes are alive, with 6 processors, 6 of them free"
        )


@pytest.mark.long
def test_node_with_another_siafu_is_refused_by_name(
    ray_cluster: SimulatedRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config.from_dict({"cloud": {"ray_address": ray_cluster.address}})
    monkeypatch.setattr(ray_nodes, "__version__", "99.0")
    with pytest.raises(ConfigError, match=r"run.on = ray: node .* has siafu .*, not 99\.0 as this machine"):
        ray_host.RayHost.make(config, tmp_path, tmp_path, b"")
    ray = clusters.load()
    assert not ray.is_initialized()


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1:9", "no Ray cluster answers there: Connection refused"),
        ("ray://127.0.0.1:10001", "must be host:port; run siafu on a machine of the cluster"),
        ("nonsense", "must be auto or host:port"),
    ],
)
def test_address_without_a_cluster_is_refused_in_one_line(address: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as found:
        clusters.connect(address)
    assert "\n" not in str(found.value)
    assert address in str(found.value)


def test_what_answers_but_is_no_cluster_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            link, _ = server.accept()
            with link:
                link.recv(100)
                link.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ConfigError, match="what answers there is no Ray cluster"):
            clusters.connect(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()


def test_auto_is_what_ray_is_told_by_its_own_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert clusters.find("auto") == "10.0.0.1:6379"
    assert clusters.find("10.0.0.2:6379") == "10.0.0.2:6379"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("one line", "one line"),
        (
            (
                "The actor died unexpectedly before finishing this task.\n"
                "\tpid: 7\n"
                "The actor is dead because its owner has died. Owner Id: 01ff"
            ),
            "its owner has died.",
        ),
        (
            "The actor died because of an error raised in its creation task, ray::Member.__init__()\n  File x\n"
            "ModuleNotFoundError: No module named 'infra'\n",
            "ModuleNotFoundError: No module named 'infra'",
        ),
        ("x" * 1000, "x" * 297 + "..."),
    ],
)
def test_errors_of_rays_are_cut_to_the_line_that_matters(said: str, shown: str) -> None:
    assert clusters.text_of(RuntimeError(said)) == shown


def test_error_inside_a_task_is_what_is_shown_of_it() -> None:
    error = RuntimeError("a page")
    error.cause = DatasetError("features.npy: missing")  # type: ignore[attr-defined]
    assert clusters.text_of(error) == "features.npy: missing"


# --- who gets which node ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph_servers", "param_servers", "nodes", "expected"),
    [
        (2, 1, 3, [0, 1, 2]),
        (2, 1, 9, [0, 1, 2]),
        (2, 1, 2, [0, 1, 0]),
        (3, 3, 4, [0, 1, 2, 3, 0, 1]),
        (4, 1, 2, [0, 1, 0, 1, 0]),  # with a warning
    ],
)
def test_graph_servers_get_a_node_each_as_long_as_there_are_any(
    graph_servers: int, param_servers: int, nodes: int, expected: list[int]
) -> None:
    members = [*map(graph_server, range(graph_servers)), *map(param_server, range(param_servers))]
    assert list(bundles(members, nodes).values()) == expected


@pytest.mark.parametrize(
    ("theirs", "why"),
    [
        ({"Python": "3.11", "ray": "2.60.0", "siafu": "1.0"}, ""),
        (
            {"Python": "3.11", "ray": "2.60.0", "siafu": "0.9"},
            "node h (0123abcd) has siafu 0.9, not 1.0 as this machine",
        ),
        ({"Python": "3.12", "ray": "2.61.0", "siafu": "1.0"}, "has Python 3.12, not 3.11, ray 2.61.0, not 2.60.0"),
        ({"error": "No module named 'siafu'"}, "cannot load siafu: No module named 'siafu'; install siafu 1.0 there"),
    ],
)
def test_versions_must_be_the_same(theirs: dict[str, str], why: str) -> None:
    ours = {"Python": "3.11", "ray": "2.60.0", "siafu": "1.0"}
    said = mismatch(Node("0123abcdef", "h", 1, 2.0), theirs, ours)
    assert why in said
    assert bool(why) == bool(said)


# --- the graph on its way ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> ShardSet:
    return prepare(random_graph(1, 60), tmp_path_factory.mktemp("shards") / "toy", parts=2)


def order(shards: ShardSet, member: Address, place: str = "") -> Order:
    manifest = (shards.path / MANIFEST).read_text()
    return Order(
        member, "nowhere", b"", configs.dump(Config()), place or str(shards.path), manifest, "127.0.0.1", "", ""
    )


def counted(shards: ShardSet, reads: list[str]) -> ray_member.Read:
    """Reads what the driver has under the name /elsewhere."""

    def read(path: str, offset: int) -> bytes:
        reads.append(path)
        return read_piece(path.replace("/elsewhere", str(shards.path)), offset)

    return read


def test_graph_that_lies_at_the_same_path_is_not_copied(shards: ShardSet, tmp_path: Path) -> None:
    reads: list[str] = []
    assert graph_of(order(shards, graph_server(0)), tmp_path, counted(shards, reads)) == shards.path
    assert reads == []
    assert list(tmp_path.iterdir()) == []


def test_a_graph_server_is_brought_its_own_partition_once_and_a_parameter_server_none(
    shards: ShardSet, tmp_path: Path
) -> None:
    reads: list[str] = []
    for _ in range(2):
        graph = graph_of(order(shards, graph_server(1), "/elsewhere"), tmp_path, counted(shards, reads))
    assert {Path(path).parent.name for path in reads} == {folder_of(1)}
    assert len(reads) == len(set(reads)) == len(shards.manifest.partitions[1].files)
    ShardSet.open(graph, (1,))
    assert graph_of(order(shards, param_server(0), "/elsewhere"), tmp_path, counted(shards, reads)) == graph
    with pytest.raises(DatasetError, match="missing"):
        ShardSet.open(graph, (0,))


def test_large_files_come_in_pieces(shards: ShardSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_member, "PIECE_BYTES", 100)
    reads: list[str] = []
    graph = graph_of(order(shards, graph_server(0), "/elsewhere"), tmp_path, counted(shards, reads))
    assert len(reads) > 2 * len(set(reads))
    for name in shards.manifest.partitions[0].files:
        there = (shards.path / folder_of(0) / name).read_bytes()
        assert (graph / folder_of(0) / name).read_bytes() == there


def test_what_was_changed_on_its_way_is_refused_and_not_kept(shards: ShardSet, tmp_path: Path) -> None:
    def read(path: str, offset: int) -> bytes:
        piece = read_piece(path.replace("/elsewhere", str(shards.path)), offset)
        return piece[:-1] + bytes([piece[-1] ^ 1])

    with pytest.raises(DatasetError, match=r"sha256 .* have come, must be"):
        graph_of(order(shards, graph_server(0), "/elsewhere"), tmp_path, read)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_graph_on_its_way_is_given_up_with_the_run(shards: ShardSet, tmp_path: Path) -> None:
    with pytest.raises(PeerLost, match="the run ended while"):
        graph_of(order(shards, graph_server(0), "/elsewhere"), tmp_path, counted(shards, []), lambda: True)


@pytest.mark.long
def test_files_come_through_the_object_store(
    ray_cluster: SimulatedRay, shards: ShardSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = clusters.connect(ray_cluster.address)
    try:
        node = next(node for node in ray_nodes.alive() if node.host != ray_cluster.head)
        read = reader(node.id)
        real = shards.path / folder_of(0) / "features.npy"
        assert read(str(real), 0) == real.read_bytes()
        assert read(str(real), 100) == real.read_bytes()[100:]
    finally:
        cluster.close()


# --- a member on its node ---------------------------------------------------------------------------------------------


@pytest.mark.long
def test_workers_do_not_import_from_the_drivers_working_folder(
    ray_cluster: SimulatedRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def paths() -> list[str]:
        import sys

        return sys.path

    monkeypatch.chdir(tmp_path)
    cluster = clusters.connect(ray_cluster.address)
    try:
        ray = clusters.load()
        found = ray.get(ray.remote(paths).remote())
    finally:
        cluster.close()
    assert found
    assert str(tmp_path) not in found


def test_member_killed_before_it_has_started_never_starts(shards: ShardSet) -> None:
    member = Member(order(shards, graph_server(0)))
    member.kill()
    member.run()
    pulse = member.pulse(0, 0.1)
    assert (pulse.code, pulse.last_line) == (-signal.SIGKILL, "it was killed before it had started")
    member.close()


def test_member_tells_its_end_and_its_log_and_leaves_nothing(shards: ShardSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "restored afterwards")
    member = Member(order(shards, graph_server(0)))
    assert member.pulse(0, 0.01).code is None  # it has not begun
    member.run()  # with a coordinator whom nobody can dial
    pulse = member.pulse(0, 20)
    assert pulse.code == 1
    assert pulse.last_line in pulse.log.decode()
    assert member.outputs().keys() == {"logs/graph_server-0.log"}
    assert member.piece("logs/graph_server-0.log", 0) == pulse.log
    home = member._home
    member.close()
    assert not home.exists()
    assert os.environ["RAY_ADDRESS"] == ""
