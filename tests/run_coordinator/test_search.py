"""A search ranks its points by validation score, goes on where it was, and never looks at the test vertices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_data.prepare import prepare
from run_coordinator import api
from run_coordinator.run import Run
from run_coordinator.search import Search, name_of, search
from siafu import run_files
from siafu.__main__ import main
from siafu.config import Config
from siafu.errors import ConfigError, Diverged
from siafu.graph import VAL
from tests.toy_graphs import random_graph

VALIDATION = {0.1: 0.6, 0.2: 0.8, 0.3: 0.7}  # by learning rate


@pytest.fixture
def shards(tmp_path: Path) -> str:
    prepare(random_graph(1), tmp_path / "shards", directed=True)
    return str(tmp_path / "shards")


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[float, int]]:
    """(learning rate, seed) of the runs that were trained, by a trainer that only leaves their results."""
    told: list[tuple[float, int]] = []

    def train(config: Config, on_status: Any = None, on_epoch: Any = None) -> Run:
        rate, folder = config.train.lr, Path(config.run.dir)
        told.append((rate, config.train.seed))
        folder.mkdir(parents=True)
        if rate not in VALIDATION:
            run_files.write_divergence(folder, error := Diverged("epoch 2: the loss is nan"))
            raise error
        validation = VALIDATION[rate] + 0.01 * config.train.seed
        found = {
            "val_acc": validation,
            "test_acc": 1 - validation,
            "best_epoch": 2,
            "epochs": 3,
            "train_seconds": 1.0,
            "stopped": "epochs",
            "weights_digest": "0",
            "metric": "accuracy",
            "cost": {"usd": 0.25},
            "run_dir": str(folder),
        }
        (folder / "result.json").write_text(json.dumps(found))
        return Run(folder, found)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api, "train", train)
    return told


def test_points_are_ranked_by_their_mean_validation_score(trained: list[tuple[float, int]], shards: str):
    found = search(shards, {"lr": list(VALIDATION)}, runs=2)
    assert [point.settings["train.lr"] for point in found.points] == [0.2, 0.3, 0.1]
    assert (found.best_settings, found.best.val_acc) == ({"train.lr": 0.2}, pytest.approx(0.805))
    assert trained == [(rate, seed) for rate in VALIDATION for seed in (0, 1)]
    assert found.complete
    assert json.loads((found.dir / "search.json").read_text()) == json.loads(json.dumps(found.to_dict()))
    lines = [json.loads(line) for line in (found.dir / "search.jsonl").read_text().splitlines()]
    assert [(line["settings"]["train.lr"], line["seed"]) for line in lines] == trained


def test_a_point_that_diverges_is_last(trained: list[tuple[float, int]], shards: str):
    found = search(shards, {"lr": [9.0, 0.1]})
    assert [point.diverged for point in found.points] == ["", "epoch 2: the loss is nan"]
    none = search(shards, {"lr": [9.0]})
    assert none.to_dict()["best"] is None
    with pytest.raises(ConfigError, match=r": all points diverged: there is no best one$"):
        print(none.best_settings)


def test_settings_of_the_data_are_tried_on_a_graph_in_memory_too(trained: list[tuple[float, int]], tmp_path: Path):
    graph, cache = random_graph(3), {"data.cache_dir": str(tmp_path / "cache")}
    found = search(graph, {"feature_norm": ["none", "row"], "parts": [1, 2]}, lr=0.1, settings=cache)
    assert found.complete
    assert len({run.dir for point in found.points for run in point.runs}) == 4
    assert search(graph, {"feature_norm": ["none", "row"], "parts": [1, 2]}, lr=0.1, settings=cache).dir == found.dir
    assert len(trained) == 4


def test_a_search_without_a_point_has_no_best_one(tmp_path: Path):
    pytest.importorskip("pandas", reason="pandas is not installed")
    assert Search(tmp_path, (), 2, "accuracy").to_pandas().sort_values("val_acc").empty
    with pytest.raises(ConfigError, match=r": no point has finished: there is no best one$"):
        print(Search(tmp_path, (), 2, "accuracy").best)


def test_the_same_search_goes_on_and_knows_what_diverged(trained: list[tuple[float, int]], shards: str):
    assert not search(shards, {"lr": [0.1, 9.0, 0.2, 0.3]}, budget=0.3).complete
    before = list(trained)
    assert search(shards, {"lr": [0.1, 9.0, 0.2, 0.3]}).complete
    assert trained[: len(before)] == before
    assert sorted(trained) == [(0.1, 0), (0.2, 0), (0.3, 0), (9.0, 0)]


@pytest.mark.parametrize(
    ("over", "complaint"),
    [
        ({"hidden": [4, 0]}, r"^search at model\.hidden=0: model\.hidden = \[0\]: widths must be >= 1$"),
        ({"model": ["gcn", "gnc"]}, r"^search at model\.name=gnc: model 'gnc': unknown"),
        ({"split": [0, 7]}, r"^search at data\.split=7: data\.split = 7: the graph has 2 split\(s\)$"),
    ],
)
def test_a_point_that_cannot_be_is_refused_before_anything_is_trained(
    trained: list[tuple[float, int]], shards: str, over: dict[str, Any], complaint: str
):
    with pytest.raises(ConfigError, match=complaint):
        search(shards, over)
    assert trained == []


def test_without_validation_vertices_there_is_nothing_to_choose_by(trained: list[tuple[float, int]], tmp_path: Path):
    graph = random_graph(1)
    graph.split[graph.split == VAL] = 0
    prepare(graph, tmp_path / "shards", directed=True)
    with pytest.raises(
        ConfigError, match=r"^data.split = 0: no vertex of .* is held out for validation, by which a search chooses$"
    ):
        search(str(tmp_path / "shards"), {"lr": [0.1]})


def test_names_of_directories_are_readable_short_and_differ():
    assert name_of({"train.lr": 0.01, "model.hidden": (64, 32)}) == "train.lr=0.01,model.hidden=64,32"
    long = [name_of({f"section.key{i}": i * np.pi for i in range(n)}) for n in (20, 21)]
    assert all(len(name) < 100 for name in long)
    assert long[0] != long[1]


def test_the_command_line_shows_a_table_and_how_to_train_so(
    trained: list[tuple[float, int]], shards: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["search", shards, "--grid", "lr=0.1,0.2,9", "--runs", "2"]) == 0
    said = capsys.readouterr()
    assert [" ".join(line.split()) for line in said.out.splitlines()[:4]] == [
        "train.lr validation accuracy test epochs seconds",
        "0.2 0.8050 ± 0.0071 0.1950 ± 0.0071 3 1.0",
        "0.1 0.6050 ± 0.0071 0.3950 ± 0.0071 3 1.0",
        "9.0 diverged",
    ]
    assert "best        --set 'train.lr=0.2'" in said.out
    assert "train.lr=9.0,seed-0  diverged" in said.err
    assert main(["search", shards, "--grid", "lr=0.1", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["best"] == {"train.lr": 0.1}


def test_a_dataframe_has_a_row_for_each_point(trained: list[tuple[float, int]], shards: str):
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = search(shards, {"lr": [0.1, 0.2, 9.0]}, runs=2).to_pandas()
    assert frame["train.lr"].tolist() == [0.2, 0.1, 9.0]  # best first
    assert frame["val_acc"].tolist()[:2] == pytest.approx([0.805, 0.605])
    assert frame["val_acc_std"].tolist()[:2] == pytest.approx([0.0071, 0.0071], abs=1e-4)
    assert frame[["val_acc", "test_acc", "epochs"]].iloc[2].isna().all()
    assert frame["diverged"].tolist() == ["", "", "epoch 2: the loss is nan"]
    assert frame["runs"].tolist() == [2, 2, 0]


def test_a_notebook_shows_the_points(trained: list[tuple[float, int]], shards: str):
    found = search(shards, {"lr": [0.1, 0.2, 9.0]})
    assert repr(found) == f"Search(3 of 3 points, best train.lr=0.2: val 0.8000, {found.dir})"
    rows = found._repr_html_().splitlines()
    assert "<tr><td>0.2</td><td>0.8000</td><td>0.2000</td><td>3</td><td>1.0</td></tr>" in rows
    assert rows.index("<tr><td>9.0</td><td>diverged</td><td></td><td></td><td></td></tr>") == len(rows) - 2
    assert search(shards, {"lr": [9.0]})._repr_html_().startswith("<p>Search(1 of 1 points, ")


@pytest.mark.parametrize(
    ("grid", "complaint"),
    [
        (["lr"], "--grid lr: must be KEY=VALUES"),
        (["lr=1", "lr=2"], "--grid lr: is there twice, give all its values in one"),
    ],
)
def test_a_grid_that_cannot_be_read_is_one_line_and_exit_code_2(
    grid: list[str], complaint: str, shards: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["search", shards, *(word for text in grid for word in ("--grid", text))]) == 2
    assert capsys.readouterr().err == f"siafu search: {complaint}\n"
