"""siafu evaluate: scikit-learn's report is the oracle, and a run's own test score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import classification_report, log_loss, roc_auc_score

import siafu
from run_coordinator.evaluate import Evaluation, of, picture
from run_coordinator.evaluate import cli as evaluate_cli
from run_coordinator.evaluate.scores import BINS, calibrated, error_of
from run_coordinator.predict.predictions import Predictions
from run_coordinator.run import Run
from siafu.__main__ import main
from siafu.errors import ConfigError

RNG = np.random.default_rng(0)
N, C = 300, 4


def predictions(what: str, values: Any, classes: Any, true: Any, split: Any = None, **more: Any) -> Predictions:
    result = {"run_dir": "run", "graph": "graph", "what": what, "scores": None}
    every = np.full(len(values), 3, np.uint8) if split is None else split
    return Predictions(np.arange(len(values)), values, classes, result, true, every, **more)


def of_classes(**more: Any) -> Predictions:
    """Right more often than not; class 3 is never true nor predicted, class 2 never predicted."""
    true = RNG.integers(0, 3, N)
    logits = RNG.normal(size=(N, C)) + 2 * np.eye(C)[true]
    logits[:, 2:] = -50 + RNG.normal(size=(N, 2))
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return predictions("probabilities", p, p.argmax(1), true, **more)


def test_each_class_is_scored_as_scikit_learn_does() -> None:
    given = of_classes(class_names=("a", "b", "c", "d"))
    found = of(given, "test")
    assert given.true is not None
    report: Any = classification_report(given.true, given.classes, labels=range(C), output_dict=True, zero_division=0)
    for number, one in enumerate(found.found.classes):
        theirs = report[str(number)]
        ours = [one["precision"], one["recall"], one["f1"], one["support"]]
        assert ours == pytest.approx([theirs["precision"], theirs["recall"], theirs["f1-score"], theirs["support"]])
    assert found.scores["accuracy"] == pytest.approx((given.true == given.classes).mean())
    assert found.scores["f1_weighted"] == pytest.approx(report["weighted avg"]["f1-score"])
    assert found.scores["f1_macro"] == pytest.approx(np.mean([report[str(i)]["f1-score"] for i in range(3)]))
    assert found.scores["log_loss"] == pytest.approx(log_loss(given.true, given.values, labels=range(C)))
    assert found.found.classes[0]["auc"] == pytest.approx(roc_auc_score(given.true == 0, given.values[:, 0]))
    assert found.found.classes[3]["auc"] is None
    assert [one["name"] for one in found.found.classes] == ["a", "b", "c", "d"]


def test_what_is_taken_for_what_is_counted_and_named() -> None:
    found = of(of_classes(class_names=("a", "b", "c", "d")), "test")
    assert found.found.confusion is not None
    assert found.found.confusion.sum() == N
    assert found.found.confusion.diagonal().sum() == round(N * (found.scores["accuracy"] or 0))
    assert not found.found.confusion[:, 2:].any()
    pairs = found.confused()
    assert {true for true, _, _ in pairs[:2]} == {"c"}
    assert [count for *_, count in pairs] == sorted((count for *_, count in pairs), reverse=True)
    assert sum(count for *_, count in pairs) == N - found.found.confusion.diagonal().sum()


def test_only_labelled_vertices_of_the_split_count() -> None:
    true = np.array([0, 1, -1, 0, 1])
    p = np.array([[0.9, 0.1]] * 5)
    given = predictions("probabilities", p, p.argmax(1), true, np.array([3, 3, 3, 1, 0], np.uint8))
    assert (of(given, "test").count, of(given, "test").scores["accuracy"]) == (2, 0.5)
    assert (of(given, "train").count, of(given, "train").scores["accuracy"]) == (1, 1.0)
    assert (of(given, "all").count, of(given, "all").scores["accuracy"]) == (4, 0.5)
    with pytest.raises(ConfigError, match="graph: no val vertex has a label"):
        of(given, "val")
    with pytest.raises(ConfigError, match="graph: no vertex has a label"):
        of(predictions("probabilities", p, p.argmax(1), None), "all")


def test_calibration_error_is_that_of_the_paper() -> None:
    bins = calibrated(np.array([0.95, 0.95, 0.05, 1.0]), np.array([True, False, False, True]))
    assert [(one["count"], one["accuracy"]) for one in bins] == [(1, 0.0), (3, pytest.approx(2 / 3))]
    assert error_of(bins) == pytest.approx(0.25 * 0.05 + 0.75 * abs(2 / 3 - 2.9 / 3))
    assert bins[-1]["high"] == 1.0
    sure = RNG.random(20_000)
    assert error_of(calibrated(sure, RNG.random(20_000) < sure)) < 0.02
    assert len(calibrated(sure, sure > 0)) == BINS


def test_several_labels_are_scored_one_by_one() -> None:
    true = RNG.random((N, C)) < 0.4
    p = np.clip(0.5 * true + 0.6 * RNG.random((N, C)), 0, 1)
    found = of(predictions("labels", p, p > 0.5, true.astype(np.int8)), "test")
    report: Any = classification_report(true, p > 0.5, output_dict=True, zero_division=0)
    assert [one["f1"] for one in found.found.classes] == pytest.approx([report[str(i)]["f1-score"] for i in range(C)])
    assert found.scores["f1_micro"] == pytest.approx(report["micro avg"]["f1-score"])
    assert found.scores["all_labels_right"] == pytest.approx((true == (p > 0.5)).all(1).mean())
    assert found.found.confusion is None
    assert found.confused() == []


def test_numbers_have_their_errors_by_column() -> None:
    true = RNG.normal(size=(N, 2)).astype(np.float32)
    true[0] = np.nan  # no label
    values = true + np.array([0.5, 0.0], np.float32)
    found = of(predictions("numbers", values, None, true, class_names=("height", "weight")), "test")
    height, weight = found.found.columns
    assert (height["name"], found.count) == ("height", N - 1)
    assert (height["rmse"], height["mae"]) == pytest.approx((0.5, 0.5), rel=1e-6)
    assert weight == {"name": "weight", "r2": 1.0, "rmse": 0.0, "mae": 0.0}
    with pytest.raises(ConfigError, match="numbers have no classes to draw"):
        found.plot()


def test_predicted_edges_are_scored_elsewhere() -> None:
    with pytest.raises(ConfigError, match=r"it predicts edges: their MRR and AUC are in result\.json"):
        of(predictions("embedding", np.zeros((3, 2)), None, None), "test")


@pytest.mark.parametrize("count", [2, 12, 60])
def test_a_picture_is_drawn_of_few_and_of_many_classes(count: int, tmp_path: Path) -> None:
    true = RNG.integers(0, count, N)
    p = RNG.dirichlet(np.ones(count), N)
    names = tuple(f"class {'x' * 30} {i}" for i in range(count))
    found = of(predictions("probabilities", p, p.argmax(1), true, class_names=names), "test")
    dots = [dot for axes in found.plot().axes for dot in axes.collections if type(dot).__name__ == "PathCollection"]
    assert [dot.get_clip_on() for dot in dots] == [False]  # a dot on the axis is whole
    picture.save(found.plot(), str(tmp_path / "it.png"))
    assert (tmp_path / "it.png").stat().st_size > 10_000


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return siafu.train("digits", epochs=20, backend="cpu", run_dir=str(tmp_path_factory.mktemp("runs") / "run"))


def test_a_real_run_is_evaluated_as_it_evaluated_itself(run: Run) -> None:
    found: Evaluation = siafu.evaluate(run)
    assert found.scores["accuracy"] == pytest.approx(run.test_acc)
    assert run.result["scores"] is not None
    theirs = run.result["scores"]["test"]
    assert theirs is not None
    assert found.scores["f1_macro"] == pytest.approx(theirs["f1_macro"])
    assert found.scores["balanced_accuracy"] == pytest.approx(theirs["balanced_acc"])


def test_several_labels_that_are_not_known_are_not_none(tmp_path: Path) -> None:
    """A vertex whose labels are unknown is no vertex with none of the labels."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, (40, 3)).astype(np.int8)
    labels[30:], labels[29, 0] = -1, -1
    graph = siafu.from_arrays(rng.integers(0, 40, (2, 160)), rng.normal(size=(40, 4)), labels)
    siafu.prepare(graph, tmp_path / "shards", parts=2)
    run = siafu.train(str(tmp_path / "shards"), epochs=1, backend="cpu", run_dir=tmp_path / "run")
    found = siafu.predict(run)
    assert found.true is not None
    np.testing.assert_array_equal(found.true, labels)
    assert siafu.evaluate(run, split="all").count == 29


def test_the_command_prints_a_table_or_all_of_it(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run.dir), "--split", "val", "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert "is / taken for" in shown
    assert "calibration error" in shown
    assert main(["evaluate", str(run.dir), "--json", "--quiet"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (len(told["classes"]), np.sum(told["confusion"])) == (10, told["vertices"])
    assert main(["evaluate", str(run.dir), "--split", "tests", "--quiet"]) == 2
    assert "split = 'tests': must be one of train, val, test, all" in capsys.readouterr().err


def test_it_is_a_row_for_each_class() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    found = of(of_classes(class_names=("a", "<b>", "c", "d")), "test")
    frame = found.to_pandas()
    assert list(frame) == ["name", "precision", "recall", "f1", "support", "auc"]
    assert (frame["name"].tolist(), frame["support"].sum()) == (["a", "<b>", "c", "d"], N)
    assert repr(found).startswith(f"Evaluation(graph, test: {N} vertices, accuracy 0.")
    shown = found._repr_html_()
    assert f"<td>&lt;b&gt;</td><td>{frame['precision'][1]:.4f}</td>" in shown
    assert "<td>d</td><td>0.0000</td><td>0.0000</td><td>0.0000</td><td>0</td><td></td>" in shown


def test_names_in_brackets_are_shown_as_they_are(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("a[old]", "[/b]", "c", "d")
    monkeypatch.setattr(evaluate_cli, "evaluate", lambda *_, **__: of(of_classes(class_names=names), "test"))
    assert main(["evaluate", str(run.dir), "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert all(shown.count(name) == 3 for name in names[:2])  # as a class, as a row and as a column
