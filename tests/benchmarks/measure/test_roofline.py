"""Steps beside limits: what is counted, and that no step is left out."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.measure import roofline
from benchmarks.measure.roofline import Limits
from graph_data.prepare import cached
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.models import ModelSpec, build
from siafu.shards import ShardSet
from siafu.tasks import Kind, Lane

SOURCE = "synthetic:reddit-small?scale=0.002"


@pytest.fixture(scope="module")
def graph() -> roofline.Measured:
    return roofline.Measured(ShardSet.open(cached(SOURCE, parts=1, partitioner="chunk", order="given")))


def line(event: str, step: str, time_s: float, *, epoch: int = 3, lane: Lane = Lane.TRAIN, **more: float) -> str:
    return json.dumps({"event": event, "step": step, "time_s": time_s, "epoch": epoch, "lane": lane.value, **more})


def test_a_graph_task_takes_from_its_thread_to_its_end_and_a_tensor_task_its_computation(tmp_path: Path) -> None:
    trace = tmp_path / "trace-0.jsonl"
    lines = [
        line("start", "GA1", 0.0, epoch=2),  # a first epoch makes buffers
        line("begin", "GA1", 0.0, epoch=2),
        line("done", "GA1", 9.0, epoch=2),
        line("start", "GA1", 9.0),
        line("begin", "GA1", 10.0),
        line("done", "GA1", 10.5),
        line("begin", "AV1", 11.0),
        line("answered", "AV1", 13.0, compute_s=1.25),
        line("done", "AV1", 14.0),
        line("begin", "GA1", 15.0, lane=Lane.EVAL),
        line("done", "GA1", 19.0, lane=Lane.EVAL),
        line("begin", "GA1", 20.0, epoch=4),
        line("done", "GA1", 20.25, epoch=4),
    ]
    trace.write_text("\n".join(lines))
    assert roofline.step_seconds(trace) == {"GA1": [0.5, 0.25], "AV1": [1.25]}


@pytest.mark.parametrize("name", ["gcn", "gat", "rgcn", "appnp"])
def test_every_step_has_a_limit_and_the_largest_is_told(
    graph: roofline.Measured, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roofline, "rows_s", lambda *_: 1e-3)
    config = Config().replace({"data.source": SOURCE, "model.name": name, "model.hidden": 16, "train.intervals": 1})
    model = build(ModelSpec.of(config, graph.shards.manifest))
    program = model.program(Lane.TRAIN)
    runs = [step for step in program.steps if step.kind is not Kind.WU]
    steps = [step for step in runs if step.gathers is None or step.gathers in program.publisher]  # not of features
    seconds = {step.name: 1.0 for step in steps}
    *rows, total = roofline.rows_of(config, graph, seconds, Limits(flops=1e30, bytes_per_s=1e9), threads=1)
    assert [row["step"] for row in rows] == [step.name for step in steps]
    for row, step in zip(rows, steps, strict=True):
        assert row["limited by"] == ("rows" if step.gathers else "memory"), step.name
        assert row["limit ms"] > 0, step.name
        assert row["share"] == pytest.approx(row["limit ms"] / 1e3)
    assert total["ms"] == 1e3 * len(rows)
    assert total["limit ms"] == pytest.approx(sum(row["limit ms"] for row in rows))
    slow = roofline.rows_of(config, graph, seconds, Limits(flops=1.0, bytes_per_s=1e30), threads=1)
    products = [row for row in slow[:-1] if row["GFLOP"]]
    assert products
    assert {row["limited by"] for row in products} == {"compute"}


def test_products_are_counted_by_hand(graph: roofline.Measured) -> None:
    config = Config().replace({"data.source": SOURCE, "model.name": "sage", "model.hidden": 16, "train.intervals": 1})
    first, _ = roofline.rows_of(config, graph, {"AV0": 1.0}, Limits(1e12, 1e9), threads=1)
    assert first["GFLOP"] == pytest.approx(
        2e-9 * graph.num_vertices * 2 * 602 * 16
    )  # W of a vertex, W of its neighbours


def test_rows_are_read_along_the_steps_own_edges(graph: roofline.Measured) -> None:
    config = Config().replace({"data.source": SOURCE, "model.hidden": 16, "train.intervals": 1})
    model = build(ModelSpec.of(config, graph.shards.manifest))
    step = SimpleNamespace(backward=False, gathers="H1")
    assert roofline.rows_s(graph, model, step, "exact", 1) > 0  # type: ignore[arg-type]


@pytest.mark.long
def test_a_model_is_trained_and_every_step_of_it_is_told() -> None:
    parser = argparse.ArgumentParser()
    roofline.add_arguments(parser)
    args = parser.parse_args(["--graph", SOURCE, "--models", "gcn", "--hidden", "16", "--epochs", "1", "--rounds", "1"])
    found = roofline.measure(args)
    assert [row["step"] for row in found.rows] == ["AV0", "SC0", "GA1", "AV1", "SC'1", "GA'1", "AV'0", "all"]
    assert all(row["ms"] > 0 for row in found.rows)
    assert found.summary["GFLOP/s"] > 0


@pytest.mark.parametrize(("model", "has_hidden"), [("gcn", True), ("sgc", False)])
def test_a_model_without_hidden_layers_is_asked_for_none(
    model: str, has_hidden: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **how: object) -> SimpleNamespace:
        asked.append(command)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(roofline.subprocess, "run", run)
    args = argparse.Namespace(graph=SOURCE, hidden=16, epochs=1, order="given", threads=1)
    roofline._train(args, model, tmp_path)
    assert ("--hidden" in asked[0]) == has_hidden


def test_an_unknown_model_is_named() -> None:
    args = argparse.Namespace(models="gcn,resnet", epochs=1)
    with pytest.raises(ConfigError, match=r"--models gcn,resnet: must be of gcn, "):
        roofline.measure(args)
