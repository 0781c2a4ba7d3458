"""siafu get: from a server on loopback to a graph that trains."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from graph_data import published
from graph_data.sources.names import resolve
from siafu.__main__ import main
from siafu.errors import DatasetError
from tests.graph_data.file_server import FileServer, serving

NAME = "amazon_computers"


def archive(folder: Path) -> bytes:
    """A ring of 60 vertices as gnn-benchmark packs a graph."""
    ids = np.arange(60)
    ring = scipy.sparse.csr_matrix((np.ones(60, np.float32), (ids, np.roll(ids, 1))))
    rows = scipy.sparse.csr_matrix(np.eye(60, 4, dtype=np.float32)[ids % 4 * 15 + ids // 4])
    arrays = {f"adj_{key}": getattr(ring, key) for key in ("data", "indices", "indptr", "shape")}
    arrays |= {f"attr_{key}": getattr(rows, key) for key in ("data", "indices", "indptr", "shape")}
    np.savez(folder / "published.npz", labels=ids % 3, **arrays)
    return (folder / "published.npz").read_bytes()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """The one published graph; the working folder is empty, and no data folder is named."""
    data = archive(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.delenv("SIAFU_DATA", raising=False)
    with serving(data) as found:
        table = tmp_path / "published.csv"
        sha256 = hashlib.sha256(data).hexdigest()
        lines = ["graph,url,nbytes,sha256,git_sha1,licence", f"{NAME},{found.url},{len(data)},{sha256},,MIT"]
        table.write_text("\n".join(lines) + "\n")
        monkeypatch.setattr(published, "TABLE", table)
        yield found


def test_a_graph_that_was_fetched_is_found_by_its_name(server: FileServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["get", NAME]) == 0
    said = capsys.readouterr()
    assert said.out == f"data/{NAME}.npz\n"
    first, last = said.err.splitlines()
    assert "1 files" not in first
    assert f"{NAME}: 1 file, " in first
    assert "licence MIT" in first
    assert last.endswith("verified by SHA-256")
    assert [path.name for path in Path("data").iterdir()] == [f"{NAME}.npz"]
    graph = resolve(NAME).load()
    assert (graph.name, graph.num_vertices, graph.num_classes) == (NAME, 60, 3)

    assert main(["get", NAME, "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == {"name": NAME, "source": f"data/{NAME}.npz", "fetched": False}
    assert len(server.asked) == 1


def test_the_folder_that_the_variable_names_is_the_target(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIAFU_DATA", str(tmp_path / "mine"))
    assert main(["get", NAME]) == 0
    assert (tmp_path / "mine" / f"{NAME}.npz").is_file()
    assert not Path("data").exists()


def test_a_download_that_was_stopped_goes_on(server: FileServer) -> None:
    part = Path("data", f".get-{NAME}", "published.npz.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(server.data[:500])
    assert main(["get", NAME]) == 0
    assert server.asked == ["bytes=500-"]


def test_a_wrong_byte_leaves_no_graph(server: FileServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.data = server.data[:-1] + b"!"
    assert main(["get", NAME]) == 1
    (_, line) = capsys.readouterr().err.splitlines()
    assert "sent other bytes than were published" in line
    assert not Path("data", f"{NAME}.npz").exists()


def test_offline_one_line_names_the_data_folder(server: FileServer, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(b"") as gone:
        port = gone.port
    published.TABLE.write_text(published.TABLE.read_text().replace(f":{server.port}/", f":{port}/"))
    published._read.cache_clear()
    assert main(["get", NAME]) == 1
    (_, line) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"siafu get: 127.0.0.1:{port} cannot be reached (Connection refused): ")
    assert "$SIAFU_DATA names (now data)" in line


def test_a_name_that_is_not_on_the_disk_says_how_to_get_it(server: FileServer) -> None:
    with pytest.raises(DatasetError, match=rf"no {NAME}\.npz in a data folder: siafu get {NAME} fetches it$"):
        resolve(NAME)
    with pytest.raises(DatasetError, match=r"siafu get ogbn-arxiv fetches it, as ogb:ogbn-arxiv$"):
        resolve("ogbn-arxiv")


def test_without_a_name_all_are_listed(server: FileServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["get"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["graph", NAME, *published.OGB]
    assert main(["get", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["graphs"][0]
    assert (first["name"], first["licence"], first["there"]) == (NAME, "MIT", False)


def test_a_name_that_nobody_publishes_is_the_users_mistake(
    server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["get", "amazon-computers"]) == 2
    assert "did you mean amazon_computers?" in capsys.readouterr().err
    assert main(["get", "zzz"]) == 2
    assert "there are amazon_computers, ogbn-arxiv, ogbn-products" in capsys.readouterr().err


def test_ogbs_graphs_are_fetched_by_its_package(
    server: FileServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", None)
    assert main(["get", "ogbn-arxiv"]) == 2
    assert capsys.readouterr().err.rstrip().endswith(" install ogb")

    def dataset(name: str, root: str) -> None:
        (Path(root) / name.replace("-", "_") / "raw").mkdir(parents=True)

    package = types.SimpleNamespace(NodePropPredDataset=dataset)
    monkeypatch.setitem(sys.modules, "ogb", types.ModuleType("ogb"))
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", package)
    assert main(["get", "ogbn-arxiv"]) == 0
    assert capsys.readouterr().out == "ogb:ogbn-arxiv\n"
    assert main(["get", "ogbn-arxiv"]) == 0
    assert "is there already" in capsys.readouterr().err


def test_two_at_once_fetch_it_once(server: FileServer) -> None:
    code = (
        "import sys; from graph_data import published; from pathlib import Path; "
        "published.TABLE = Path(sys.argv[1]); from siafu.__main__ import main; sys.exit(main(['get', sys.argv[2]]))"
    )
    root = str(Path(published.__file__).parents[1])
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(published.TABLE), NAME],
            env={**os.environ, "PYTHONPATH": root},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = [one.communicate() for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    assert len(server.asked) == 1
    assert [path.name for path in Path("data").iterdir()] == [f"{NAME}.npz"]


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_file_is_of_a_commit_and_known_by_its_bytes() -> None:
    graphs = published.graphs()
    assert list(graphs) == [
        "cora", "citeseer", "pubmed", "amazon_computers", "amazon_photo", "coauthor_cs", "coauthor_physics",
    ]  # fmt: skip
    for graph in graphs.values():
        for file in graph.files:
            assert len(file.url.split("/")[5]) == 40  # a commit, not a branch
            assert len(file.git_sha1) == 40
            assert len(file.sha256) in (0, 64)
            assert bool(file.sha256) == bool(file.nbytes)


def test_the_files_of_cora_are_those_that_are_published(archives: Path, tmp_path: Path) -> None:
    for file in published.graphs()["cora"].files:
        here = archives / "planetoid" / file.name
        assert here.stat().st_size == file.nbytes
        assert file.is_right(here)
        bare = published.PublishedFile(file.url, 0, "", file.git_sha1)
        assert bare.is_right(here)
        damaged = tmp_path / file.name
        damaged.write_bytes(here.read_bytes()[:-1] + b"!")
        assert not file.is_right(damaged)
        assert not bare.is_right(damaged)


def test_cora_as_it_is_published_is_the_cora_of_the_tests(
    archives: Path, real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Converted from files that a download has left there."""
    draft = tmp_path / "data" / ".get-cora"
    draft.mkdir(parents=True)
    for file in published.graphs()["cora"].files:
        (draft / file.name).write_bytes((archives / "planetoid" / file.name).read_bytes())
    monkeypatch.setenv("SIAFU_DATA", str(tmp_path / "data"))
    assert main(["get", "cora"]) == 0
    got, expected = resolve("cora").load(), resolve(str(real_data / "cora.npz")).load()
    for name in ("labels", "split"):
        assert np.array_equal(getattr(got, name), getattr(expected, name)), name
    edges = [sorted(zip(graph.src.tolist(), graph.dst.tolist(), strict=True)) for graph in (got, expected)]
    assert edges[0] == edges[1]
    for name in ("indptr", "indices", "data"):
        assert np.array_equal(getattr(got.features, name), getattr(expected.features, name)), name
