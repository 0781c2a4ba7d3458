"""What is written is what is read back, whatever the file, the blocks and the kind of prediction."""

from __future__ import annotations

import csv
import json
import uuid
from pathlib import Path

import numpy as np
import pytest

from run_coordinator.predict.files import WRITERS, Block, Sheet, check, opened, softmax
from run_coordinator.predict.plan import Kind
from siafu.errors import ConfigError, DatasetError
from siafu.graph import Target
from siafu.kernels import functions
from siafu.sparse import Array

LOGITS = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
IDS = np.arange(100, 107)


TRUE: dict[str, Array] = {
    "classes": np.array([-1, -1, -1, -1, 2, 0, 1]),  # none in the first block
    "labels": np.array([[-1, -1, -1]] * 4 + [[0, 0, 0], [1, 0, 1], [0, 1, -1]], np.int8),
    "numbers": np.array([[np.nan] * 3] * 4 + [[0.5, 1, 2], [3, 4, 5], [6, 7, 8]], np.float32),
}
SPLIT = np.array([0, 1, 2, 3, 1, 1, 1], np.uint8)
TARGETS: dict[Kind, Target] = {"labels": "labels", "numbers": "numbers"}


def written(out: Path, kind: Kind, *, names: tuple[str, ...] = (), cut: int = 4) -> Sheet:
    sheet = Sheet(kind, 3, names, TARGETS.get(kind, "classes"))
    with opened(out) as write:
        for rows in (slice(0, cut), slice(cut, 7)):
            write(sheet, Block.of(kind, IDS[rows], LOGITS[rows], TRUE[sheet.target][rows], SPLIT[rows]))
    return sheet


def expected(kind: Kind) -> Array:
    if kind == "labels":
        return 1 / (1 + functions.exp(-LOGITS))
    return softmax(LOGITS) if kind == "probabilities" else LOGITS


def test_probabilities_are_the_softmax_of_large_logits_too() -> None:
    found = softmax(np.array([[1000.0, 1000.0, -1000.0]]))
    np.testing.assert_allclose(found, [[0.5, 0.5, 0]])


@pytest.mark.parametrize("kind", ["probabilities", "labels", "logits", "numbers", "embedding"])
class TestKinds:
    def test_csv(self, tmp_path: Path, kind: Kind) -> None:
        sheet = written(tmp_path / "p.csv", kind)
        with open(tmp_path / "p.csv", newline="") as file:
            head, *rows = csv.reader(file)
        values = np.array([row[-3:] for row in rows], np.float32)
        np.testing.assert_array_equal(values, expected(kind))  # digits that are the same number
        assert [int(row[0]) for row in rows] == IDS.tolist()
        assert head[1:-3] == [*(["class"] if sheet.classifies else []), "true", "split"]

    def test_npy(self, tmp_path: Path, kind: Kind) -> None:
        written(tmp_path / "p.npy", kind)
        np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), expected(kind))

    def test_parquet(self, tmp_path: Path, kind: Kind) -> None:
        parquet = pytest.importorskip("pyarrow.parquet")
        sheet = written(tmp_path / "p.parquet", kind)
        table = parquet.read_table(tmp_path / "p.parquet")
        assert table.column_names[0] == "id"
        assert table.column_names[1:-1] == [*(["class"] if sheet.classifies else []), "true", "split"]
        assert table.column("id").to_pylist() == IDS.tolist()
        np.testing.assert_array_equal(np.array(table.column(-1).to_pylist(), np.float32), expected(kind))


def test_a_class_is_decided_as_in_an_evaluation_and_called_as_the_source_calls_it(tmp_path: Path) -> None:
    written(tmp_path / "p.csv", "probabilities", names=("ant", "bee", "wasp"))
    with open(tmp_path / "p.csv", newline="") as file:
        found = [row["class"] for row in csv.DictReader(file)]
    assert found == [("ant", "bee", "wasp")[c] for c in LOGITS.argmax(1)]


@pytest.mark.parametrize("names", [(), ("ant", "bee", "wasp")])
def test_the_true_labels_and_the_split_stand_beside(tmp_path: Path, names: tuple[str, ...]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    called = names or (0, 1, 2)
    expected: dict[Kind, list[object]] = {
        "probabilities": [called[2], called[0], called[1]],
        "labels": [[], [called[0], called[2]], [called[1]]],
        "numbers": [[0.5, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0]],
    }
    for kind, known in expected.items():
        written(tmp_path / "p.csv", kind, names=names)
        written(tmp_path / "p.parquet", kind, names=names)
        table = parquet.read_table(tmp_path / "p.parquet")
        assert table.column("true").to_pylist() == [None] * 4 + known
        assert table.column("split").to_pylist() == [None, "train", "val", "test", "train", "train", "train"]
        with open(tmp_path / "p.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        texts = [json.dumps(one) if isinstance(one, list) else str(one) for one in known]
        assert [row["true"] for row in rows] == [""] * 4 + texts
        assert [row["split"] for row in rows] == ["", "train", "val", "test", "train", "train", "train"]


def test_columns_of_classes_have_their_names(tmp_path: Path) -> None:
    written(tmp_path / "p.csv", "probabilities", names=("ant", "bee", "wasp"))
    assert (tmp_path / "p.csv").read_text().startswith("id,class,true,split,p_ant,p_bee,p_wasp\n")


def test_of_several_labels_all_that_are_likelier_than_not_are_named(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    wanted = [np.flatnonzero(row > 0).tolist() for row in LOGITS]
    written(tmp_path / "p.csv", "labels")
    written(tmp_path / "p.parquet", "labels")
    with open(tmp_path / "p.csv", newline="") as file:
        assert [json.loads(row["class"]) for row in csv.DictReader(file)] == wanted
    assert parquet.read_table(tmp_path / "p.parquet").column("class").to_pylist() == wanted


def test_names_of_several_labels_that_have_blanks_can_be_told_apart(tmp_path: Path) -> None:
    names = ("green tea", "grüner", "tea")
    written(tmp_path / "p.csv", "labels", names=names)
    with open(tmp_path / "p.csv", newline="", encoding="utf-8") as file:
        found = [json.loads(row["class"]) for row in csv.DictReader(file)]
    assert found == [[names[i] for i in np.flatnonzero(row > 0)] for row in LOGITS]


def test_ids_keep_the_type_that_the_source_gave_them(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    block = Block.of("numbers", pa.array(["a", "ü", "c,d"]), LOGITS[:3])
    for name in ("p.parquet", "p.csv"):
        with opened(tmp_path / name) as write:
            write(Sheet("numbers", 0), block)
    assert parquet.read_table(tmp_path / "p.parquet").column("id").to_pylist() == ["a", "ü", "c,d"]
    with open(tmp_path / "p.csv", newline="", encoding="utf-8") as file:
        assert [row[0] for row in csv.reader(file)] == ["id", "a", "ü", "c,d"]


def test_ids_that_are_bytes_are_hexadecimal_in_text(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    ids = [uuid.UUID(int=v) for v in range(3)]
    with opened(tmp_path / "p.csv") as write:
        write(Sheet("numbers", 0), Block.of("numbers", pa.array([one.bytes for one in ids], pa.binary(16)), LOGITS[:3]))
    with open(tmp_path / "p.csv", newline="", encoding="utf-8") as file:
        assert [uuid.UUID(row["id"]) for row in csv.DictReader(file)] == ids


@pytest.mark.parametrize("ending", WRITERS)
def test_a_failure_leaves_what_was_there_before(tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"p{ending}"
    out.write_text("before")
    with pytest.raises(ZeroDivisionError), opened(out) as write:
        write(Sheet("numbers", 0), Block.of("numbers", IDS[:2], LOGITS[: 2 // 0]))
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    assert out.read_text() == "before"


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"p.npy: cannot be written: No such file"), opened(tmp_path / "x" / "p.npy"):
        pass


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("p.txt", "must end with one of .parquet, .csv, .npy"),
        ("nowhere/p.csv", "there is no folder nowhere"),
        ("taken.csv", "taken.csv: is a folder"),
    ],
)
def test_a_file_that_cannot_be_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.csv").mkdir()
    with pytest.raises(ConfigError, match=words):
        check(out)


def test_blocks_without_any_label_are_of_the_same_table(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for names in ((), ("ant", "bee", "wasp")):
        with opened(tmp_path / "p.parquet") as write:
            for block in (np.full((2, 3), -9, np.float32), np.full((2, 3), 9, np.float32)):
                write(Sheet("labels", 3, names), Block.of("labels", np.arange(2), block))
        found = parquet.read_table(tmp_path / "p.parquet").column("class").to_pylist()
        assert found == [[], []] + [list(names or range(3))] * 2


def test_the_columns_of_a_regression_are_called_as_in_its_table(tmp_path: Path) -> None:
    written(tmp_path / "p.csv", "numbers", names=("price", "size", "age"))
    head = (tmp_path / "p.csv").read_text().splitlines()[0]
    assert head == "id,true,split,y_price,y_size,y_age"


def test_the_name_of_a_file_may_be_as_long_as_the_system_allows(tmp_path: Path) -> None:
    out = tmp_path / ("p" * 251 + ".csv")
    written(out, "logits")
    assert len(out.read_text().splitlines()) == 8
