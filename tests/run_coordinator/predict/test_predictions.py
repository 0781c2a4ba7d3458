"""``siafu.Predictions`` as a table, and in a notebook."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import siafu
from run_coordinator.predict.files import Block, Sheet
from run_coordinator.predict.predictions import Predictions

pa = pytest.importorskip("pyarrow")

LOGITS = np.array([[2.0, 0], [0, 3], [1, 0]], np.float32)
RESULT = {"scores": {"train": {"acc": 0.5, "loss": 1.0}, "val": None}}


def made(names: tuple[str, ...] = ("cook", "<smith>"), ids: object = None) -> Predictions:
    blocks = [
        Block.of("logits", pa.array(["ü", "b"]), LOGITS[:2], np.array([1, -1]), np.array([1, 0], np.uint8)),
        Block.of("logits", pa.array(["c"]), LOGITS[2:], np.array([0]), np.array([3], np.uint8)),
    ]
    return Predictions.of(Sheet("logits", 2, names), blocks, RESULT)


def test_a_table_has_the_columns_of_the_file() -> None:
    assert made().to_arrow().to_pydict() == {
        "id": ["ü", "b", "c"],
        "class": ["cook", "<smith>", "cook"],
        "true": ["<smith>", None, "cook"],
        "split": ["train", None, "test"],
        "logit_cook": [2, 0, 1],
        "logit_<smith>": [0, 3, 0],
    }
    assert made(()).to_arrow().column("true").to_pylist() == [1, None, 0]


def test_a_dataframe_too() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = made().to_pandas()
    assert list(frame) == ["id", "class", "true", "split", "logit_cook", "logit_<smith>"]
    assert frame["class"].tolist() == ["cook", "<smith>", "cook"]
    assert made(()).to_pandas()["true"].tolist() == [1, pandas.NA, 0]


def test_without_pandas_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(siafu.errors.ConfigError, match=r"^to_pandas needs pandas: pip install pandas$"):
        made().to_pandas()


def test_a_notebook_shows_the_first_rows_and_names_are_escaped() -> None:
    shown = made()._repr_html_()
    assert "<th>id</th><th>class</th><th>true</th><th>split</th><th>logit_cook</th>" in shown
    assert "<td>b</td><td>&lt;smith&gt;</td><td></td><td></td><td>0</td><td>3</td>" in shown
    assert "<smith>" not in shown
    assert repr(made()) == "Predictions(3 vertices, 2 columns of logits, train 0.5000)"


def test_a_wide_table_is_cut() -> None:
    rows = np.zeros((9, 40), np.float32)
    found = Predictions.of(Sheet("embedding", 0), [Block.of("embedding", np.arange(9), rows)], {"scores": None})
    assert "<p>4 more rows and 29 more columns</p>" in found._repr_html_()
    assert found.to_arrow().column_names == ["id", *(f"h_{i}" for i in range(40))]


def test_tables_in_memory_are_trained_on_and_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    users = {"user": [f"u{i:02d}" for i in range(30)], "age": [float(i % 3) for i in range(30)]}
    users |= {"brand": ["a", "b", "c"] * 10, "job": ["cook", "smith"] * 15}
    sales = {"buyer": users["user"], "seller": users["user"][3:] + users["user"][:3]}
    columns = {"features": ["age", "brand:onehot"], "id": "user", "label": "job"}
    graph = siafu.from_pandas(pa.table(sales), pa.table(users), **columns)
    run = siafu.train(graph, epochs=2, run_dir="run", settings={"data.train_per_class": 5, "data.val_per_class": 5})
    own = siafu.predict(run)
    assert own.to_arrow().column("true").to_pylist() == users["job"]
    users["brand"] = ["new"] * 30
    columns.pop("label")
    with pytest.warns(UserWarning, match="unknown to .* 'brand=new' in 30 rows"):
        other = siafu.predict(run, graph=siafu.from_pandas(pa.table(sales), pa.table(users), **columns))
    assert (other.true, other.split, other.class_names) == (None, None, ("cook", "smith"))
    assert other.to_arrow().column("id").to_pylist() == users["user"]
    assert not np.allclose(other.values, own.values)
