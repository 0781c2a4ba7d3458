"""Memory, disk and time: known before, kept to, and loading takes none of them."""

import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from benchmarks.measure.synthesize import edge_block, write
from graph_data import estimate as estimate_module
from graph_data import memory as memory_module
from graph_data.prepare import estimate, prepare
from siafu.errors import ConfigError, DatasetError
from siafu.shards import ShardSet
from siafu.verified import CLOCK_STEP_S
from tests.graph_data.graphs import random_graph

LIMIT = 192 << 20

MEASURED = """
import re, sys
from graph_data.prepare import prepare
shards = prepare(sys.argv[1], sys.argv[2], memory=int(sys.argv[3]), parts=3, partitioner="fennel:1", order="given")
peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())  # ru_maxrss would count the parent's pages too
print(shards.manifest.num_edges, int(peak[1]) * 1024)
"""


@pytest.fixture(scope="module")
def edges(tmp_path_factory):
    """A million edges, 16 MB as numbers."""
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("edges")
    assert list(write(folder, 50_000, 2_000_000, seed=0))[-1] == 2_000_000
    return f"{folder}?features=random:32"


@pytest.mark.long
def test_the_limit_holds_where_memory_would_not_do(edges, tmp_path):
    assert estimate(str(edges), memory=LIMIT).on_disk
    command = [sys.executable, "-c", MEASURED, str(edges), str(tmp_path / "out"), str(LIMIT)]
    num_edges, peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert int(num_edges) > 3_000_000
    assert int(peak) < 1.1 * LIMIT


def test_more_memory_goes_through_memory(edges):
    guess = estimate(str(edges), memory="8GiB")
    assert not guess.on_disk
    assert (guess.num_edges, guess.num_vertices) == (2_000_000, 50_000)


def test_a_limit_that_cannot_do_is_one_line(edges, tmp_path):
    with pytest.raises(ConfigError, match=r"^memory limit 9\.5 MiB: .* are taken by the program itself, must be >= "):
        prepare(str(edges), tmp_path / "out", memory="10MB", order="given")


def test_the_estimate_is_said_first(tmp_path):
    said = []
    prepare(random_graph(), tmp_path / "out", say=said.append)
    assert said[0].startswith("estimate: 150 edges, about 40 vertices: in memory, 1 s, ")


def test_a_full_disk_is_noticed_before_anything_is_written(edges, tmp_path, monkeypatch):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(estimate_module.shutil, "disk_usage", lambda path: usage(1 << 20))
    with pytest.raises(DatasetError, match=r": 1\.0 MiB of disk are free, this needs about \d+"):
        prepare(str(edges), tmp_path / "out", memory=LIMIT, order="given")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["digits", "synthetic:amazon?scale=0.01", "cora"])
def test_sources_are_measured_without_loading_them(name, real_data):
    guess = estimate(name)
    assert guess.num_edges > 1000
    assert guess.seconds < 60


def test_a_synthetic_block_depends_on_its_number_alone():
    assert all(
        np.array_equal(*pair) for pair in zip(edge_block(5, 1000, 999, 0), edge_block(5, 1000, 999, 0), strict=True)
    )
    src, dst = edge_block(0, 100_000, 3001, 0)
    degree = np.bincount(np.concatenate([src, dst]), minlength=3001)
    assert src.min() >= 0
    assert max(src.max(), dst.max()) < 3001
    assert degree.max() > 5 * degree.mean()


def bytes_read():
    """Bytes that system calls of this thread have read so far; what a mapping brings in is not among them."""
    return int(Path("/proc/thread-self/io").read_text().split()[1])


def test_opening_shards_again_maps_arrays_and_reads_little_more_than_the_manifest(tmp_path):
    graph = random_graph(n=200_000, edges=1_000_000)
    path = prepare(graph, tmp_path / "out", order="given").path
    time.sleep(CLOCK_STEP_S)  # of files that are older than the clock's step, all that was compared is remembered
    ShardSet.open(path).partition(0)  # once, all of it is read and compared
    before = bytes_read()
    shard = ShardSet.open(path).partition(0)
    read = bytes_read() - before
    arrays = [shard.vertices, shard.in_edges.indptr, shard.in_edges.indices, shard.degree, shard.features, shard.labels]
    assert all(isinstance(array, np.memmap) for array in arrays)
    assert read < 100_000 < sum(array.nbytes for array in arrays) / 50


def test_our_own_limit_is_no_reason_to_refuse_metis(monkeypatch):
    for module in (estimate_module, memory_module):
        monkeypatch.setattr(module, "available", lambda: 1000)
    graph = random_graph()
    assert estimate(graph, partitioner="hash", parts=2, order="given").on_disk
    monkeypatch.setattr(estimate_module, "available", lambda: 10**9)
    assert estimate(graph, partitioner="hash", parts=2, order="given").on_disk
    assert not estimate(graph, partitioner="metis", parts=2).on_disk
