"""Training with halo rows in bits: what is counted is what the formula says, losses stay
near, and runs repeat and resume."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu_baselines.group import Group
from gpu_baselines.halos import assignment, message_cost
from gpu_baselines.halos.assignment import squared_coefficients
from gpu_baselines.halos.codec import Stream
from gpu_baselines.halos.message_cost import LinkCosts
from gpu_baselines.halos.quantise import PARAMETER_BYTES, row_bytes
from gpu_baselines.halos.quantised import Quantised
from gpu_baselines.methods.halo import HaloTraining
from gpu_baselines.part import Part
from gpu_baselines.run import Run
from siafu.baseline import BaselineConfig
from siafu.errors import GnnError
from siafu.models import ModelSpec
from siafu.shards import ShardSet
from siafu.sparse import Array
from tests.gpu_baselines.ranks import on_ranks
from tests.gpu_baselines.training import Trained, config_of, differs_by, prepared, train
from tests.toy_graphs import random_graph

RANKS, EPOCHS, HIDDEN = 3, 8, 16
GRAPH = replace(random_graph(2, num_vertices=60, num_edges=400), name="sixty")
MODEL: dict[str, Any] = {"model__hidden": HIDDEN, "model__layers": 3, "model__dropout": 0.3}
SCHEMES: dict[str, dict[str, Any]] = {
    "fixed, 8": {"scheme": "fixed", "bits": 8},
    "fixed, 4": {"scheme": "fixed", "bits": 4},
    "fixed, 2": {"scheme": "fixed", "bits": 2},
    "uniform": {"scheme": "uniform", "period": 3},
    "adaptive": {"period": 4, "group_size": 4},
    "adaptive, feedback": {"period": 4, "group_size": 4, "feedback": True},
    "2 bits, feedback": {"scheme": "fixed", "bits": 2, "feedback": True},
    "adaptive, late, feedback, smoothed": {"period": 2, "group_size": 4, "feedback": True, "depth": 1, "smooth": "FG"},
}
STREAMS = [Stream("forward", 1), Stream("forward", 2), Stream("backward", 1), Stream("backward", 2)]
# measured: no two runs alike
UNEVEN = LinkCosts(np.array([[0, 1, 3], [1, 0, 1], [1, 1, 0]]) * 1e-9, np.full((3, 3), 1e-5))


@pytest.fixture(autouse=True)
def costs_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_cost, "measured", lambda group, device, clock: UNEVEN)


@pytest.fixture
def shards(tmp_path: Path) -> ShardSet:
    return prepared(GRAPH, tmp_path, RANKS)


def settings(name: str) -> dict[str, Any]:
    return {**MODEL, **{f"baseline__{key}": value for key, value in SCHEMES[name].items()}}


def on_each(config: BaselineConfig, shards: ShardSet, work: Callable[[HaloTraining, Run], Any]) -> list[Any]:
    def one(group: Group) -> Any:
        torch.set_num_threads(1)
        run = Run(config, shards, group, ModelSpec.of(config, shards.manifest), torch.device("cpu"))
        method = HaloTraining(run)
        try:
            return work(method, run)
        finally:
            method.close()

    return on_ranks(RANKS, one)


def codec(method: HaloTraining) -> Quantised:
    halo: Any = method.halo
    found = (halo.routes if hasattr(halo, "routes") else halo._routes).codec
    assert isinstance(found, Quantised)
    return found


def halo_rows(shards: ShardSet) -> int:
    return sum(len(shards.partition(rank).ghosts_in) for rank in range(RANKS))


# --- training ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(config_of("vanilla", RANKS, **MODEL), prepared(GRAPH, tmp_path_factory.mktemp("exact"), RANKS), EPOCHS)


@pytest.mark.long
@pytest.mark.parametrize("name", SCHEMES)
def test_losses_stay_near_those_of_exact_rows_and_are_equal_in_every_run(
    name: str, exact: Trained, shards: ShardSet
) -> None:
    config = config_of("adaqp", RANKS, **settings(name))
    near, again = (train(config, shards, EPOCHS) for _ in range(2))
    assert near.losses == again.losses
    assert all(np.array_equal(near.weights[key], W) for key, W in again.weights.items())
    assert near.losses != exact.losses
    late = "late" in name  # whose first rows are zeros
    assert differs_by(near.losses, exact.losses) < (0.15 if late else 0.06 if "2" in name else 0.02)
    assert near.losses[-1] < near.losses[0]


def test_float32_rows_are_quantised_too(shards: ShardSet) -> None:
    exact, near = (
        train(config_of(method, RANKS, model__dtype="float32", **changes), shards, 4)
        for method, changes in (("vanilla", MODEL), ("adaqp", settings("fixed, 8")))
    )
    assert differs_by(near.losses, exact.losses) < 0.002


def test_more_ranks_than_rows_need(tmp_path: Path) -> None:
    """Parts of a vertex or two: empty messages, one rank with no halo at all."""
    graph = replace(random_graph(4, num_vertices=7, num_edges=5), name="tiny")
    shards = prepared(graph, tmp_path, RANKS)
    for name in ("fixed, 2", "uniform", "adaptive"):
        assert np.isfinite(train(config_of("adaqp", RANKS, **settings(name)), shards, 5).losses).all()


def test_gat_and_features_that_travel_every_epoch(shards: ShardSet) -> None:
    changes = {**settings("fixed, 8"), "model__name": "gat", "model__heads": 2, "baseline__preaggregate": False}
    exact = train(
        config_of("vanilla", RANKS, **{k: v for k, v in changes.items() if "scheme" not in k and "bits" not in k}),
        shards,
        3,
    )
    near = train(config_of("adaqp", RANKS, **changes), shards, 3)
    assert differs_by(near.losses, exact.losses) < 0.02
    assert near.bytes["halo"] < exact.bytes["halo"] / 4


# --- bytes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_bytes_are_those_of_the_formula(bits: int, shards: ShardSet) -> None:
    """Each halo row, in two layers and both directions: 4 bytes of Z and S, and ceil(F b
    / 8) of codes. float64 has 8 F."""
    trained = train(config_of("adaqp", RANKS, **settings(f"fixed, {bits}")), shards, EPOCHS)
    wanted = EPOCHS * 2 * halo_rows(shards) * (PARAMETER_BYTES + row_bytes(HIDDEN, bits))
    assert trained.bytes["halo"] == trained.bytes["gradient"] == wanted


def test_adaptive_rows_are_counted_by_their_widths_and_what_agreeing_on_them_takes(shards: ShardSet) -> None:
    config = config_of("adaqp", RANKS, **{**settings("adaptive"), "baseline__period": 2})
    rows = halo_rows(shards)

    def work(method: HaloTraining, run: Run) -> tuple[dict[str, int], dict[Stream, list[Array]]]:
        for epoch in range(4):
            method.epoch(epoch)
        return run.group.traffic.by_kind(), {s: codec(method)._streams[s].sent for s in STREAMS}

    found = on_each(config, shards, work)
    assert sum(kinds["widths"] for kinds, _ in found) == 4 * rows  # a byte for each row of each stream, once
    first = 2 * 2 * rows * (PARAMETER_BYTES + row_bytes(HIDDEN, 8))  # of one direction, in two layers and epochs
    for way, kind in (("forward", "halo"), ("backward", "gradient")):
        widths = np.concatenate([one for _, sent in found for s in STREAMS if s.way == way for one in sent[s]])
        assert set(widths) <= {2, 4, 8}
        assert len(set(widths)) > 1
        later = sum(PARAMETER_BYTES + row_bytes(HIDDEN, int(bits)) for bits in widths)
        assert sum(kinds[kind] for kinds, _ in found) == first + 2 * later


def test_both_sides_know_the_same_widths_in_every_epoch(shards: ShardSet) -> None:
    early = {"baseline__warmup": 1}
    for name, more, when in (("uniform", {}, [3, 6]), ("adaptive", {}, [4]), ("adaptive", early, [1, 5])):

        def work(method: HaloTraining, run: Run) -> list[Any]:
            seen = []
            for epoch in range(8):
                method.epoch(epoch)
                streams = codec(method)._streams
                seen.append({s: ([*streams[s].sent], [*streams[s].came]) for s in STREAMS})
            return seen

        found = on_each(config_of("adaqp", RANKS, **settings(name), **more), shards, work)
        history = [[b for s in STREAMS for b in np.concatenate(found[0][epoch][s][0]).tolist()] for epoch in range(8)]
        for epoch in range(8):
            for s in STREAMS:
                for a in range(RANKS):
                    for b in range(RANKS):
                        assert np.array_equal(found[a][epoch][s][0][b], found[b][epoch][s][1][a])
        changed = [epoch for epoch in range(1, 8) if history[epoch] != history[epoch - 1]]
        assert changed == when  # after every whole period, as published; or after so many epochs as are asked for
        if name == "adaptive":
            assert set(history[0]) == {8}


def test_uniform_widths_are_drawn_for_each_row(tmp_path: Path) -> None:
    """Not for groups of rows: neighbouring rows of a message have the same one in a third of all cases."""
    many = prepared(replace(random_graph(2, num_vertices=900, num_edges=9000), name="many"), tmp_path, RANKS)

    def work(method: HaloTraining, run: Run) -> list[Array]:
        method.epoch(0)
        return [one for one in codec(method)._streams[STREAMS[0]].sent if len(one)]

    sent = on_each(config_of("adaqp", RANKS, **settings("uniform")), many, work)
    messages = [one for rank in sent for one in rank]
    shares = np.bincount(np.concatenate(messages), minlength=9)[[2, 4, 8]] / sum(map(len, messages))
    assert np.abs(shares - 1 / 3).max() < 0.05
    alike = np.concatenate([one[1:] == one[:-1] for one in messages]).mean()
    assert abs(alike - 1 / 3) < 0.05


# --- what widths are chosen from --------------------------------------------------------------------------------------


def test_coefficients_are_the_squares_of_the_adjacency(shards: ShardSet) -> None:
    """Against the dense matrix of what each rank sums of others' rows."""

    def work(method: HaloTraining, run: Run) -> tuple[Part, list[Array], Array]:
        part = method.part
        dense = part.outer(torch.eye(part.num_halo, dtype=torch.float64)).numpy()  # [n, h]
        return part, squared_coefficients(part, run.group, run.device), (dense**2).sum(0)

    found = on_each(config_of("adaqp", RANKS, **settings("fixed, 2")), shards, work)
    for rank, (part, coefficients, _) in enumerate(found):
        for peer, (theirs, _, sums) in enumerate(found):
            for row, coefficient in zip(part.given[peer].tolist(), coefficients[peer], strict=True):
                vertex = part.vertices[row]
                assert rank != peer
                assert coefficient == pytest.approx(float(sums[np.flatnonzero(theirs.halo == vertex)[0]]), abs=1e-12)


def test_what_is_traced_is_what_rows_ranged_over(shards: ShardSet) -> None:
    rows = torch.tensor(np.random.default_rng(0).uniform(-1, 1, (60, HIDDEN)))

    def work(method: HaloTraining, run: Run) -> None:
        own, peer = codec(method), (run.group.rank + 1) % RANKS
        sent = rows[: len(method.part.given[peer])]
        own.begin(0)
        for _ in range(2):
            own.pack(Stream("forward", 1), peer, sent)
        exact = 2 * (sent.amax(1) - sent.amin(1)).square().numpy()
        traced = own._streams[Stream("forward", 1)].ranges[peer].numpy()
        assert np.all(traced >= exact)  # Z and S are rounded outwards
        assert np.all(traced <= exact * 1.04)

    on_each(config_of("adaqp", RANKS, **settings("adaptive")), shards, work)


def test_a_slower_link_gets_fewer_bits(shards: ShardSet, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = LinkCosts(np.where(np.arange(3)[:, None] == 0, 1e-8, 1e-9) * np.ones((3, 3)), np.zeros((3, 3)))
    monkeypatch.setattr(message_cost, "measured", lambda group, device, clock: slow)

    def work(method: HaloTraining, run: Run) -> float:
        for epoch in range(5):  # the first assignment is before the last one
            method.epoch(epoch)
        return float(np.mean(np.concatenate([one for s in STREAMS for one in codec(method)._streams[s].sent])))

    bits = on_each(config_of("adaqp", RANKS, **settings("adaptive")), shards, work)
    assert bits[0] + 1 < min(bits[1:])


# --- error feedback ---------------------------------------------------------------------------------------------------


def test_feedback_makes_up_for_what_was_lost(shards: ShardSet) -> None:
    """Of one row, sent again and again, the sum of what arrives is never off by more than one message is."""
    rows = torch.tensor(np.random.default_rng(3).uniform(-1, 1, (60, HIDDEN)))

    def work(method: HaloTraining, run: Run) -> tuple[float, float]:
        own, peer, stream = codec(method), (run.group.rank + 1) % RANKS, Stream("forward", 1)
        sent = rows[: len(method.part.given[peer])]
        off = torch.zeros_like(sent)
        for epoch in range(30):
            own.begin(epoch)
            message = own.pack(stream, peer, sent)
            came = torch.empty(sent.shape)
            own._packing(stream, peer, "sent").unpack(message, came)
            off += came - sent
        return float(off.abs().max()), float((own._residuals[stream, peer] + off).abs().max())

    for most, difference in on_each(config_of("adaqp", RANKS, **settings("2 bits, feedback")), shards, work):
        assert most < 2.1  # S = 2 / 3 of rows alone, at most thrice with what is added
        assert difference < 1e-4  # what is still owed is what is kept


# --- errors and checkpoints -------------------------------------------------------------------------------------------


def test_a_row_that_is_no_number_is_named(shards: ShardSet) -> None:
    def work(method: HaloTraining, run: Run) -> None:
        peer = (run.group.rank + 1) % RANKS
        rows = torch.full((len(method.part.given[peer]), HIDDEN), torch.nan)
        with pytest.raises(
            GnnError, match=rf"layer 1, forward: a row for rank {peer} has a value that is no number or is beyond"
        ):
            codec(method).pack(Stream("forward", 1), peer, rows)

    on_each(config_of("adaqp", RANKS, **settings("fixed, 4")), shards, work)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name", ["uniform", "2 bits, feedback", "adaptive, feedback", "adaptive, late, feedback, smoothed"]
)
def test_a_run_goes_on_from_a_checkpoint_with_the_same_bits(name: str, shards: ShardSet) -> None:
    """Between two assignments: with ranges traced, residuals, and widths that were agreed on before."""
    config = config_of("adaqp", RANKS, **settings(name))
    saved: list[dict[str, Any]] = [{} for _ in range(RANKS)]

    def whole(method: HaloTraining, run: Run) -> list[float]:
        losses = []
        for epoch in range(7):
            if epoch == 4:
                saved[run.group.rank] = {"state": {**method.state()}, "weights": method.net.weights()}
            losses.append(method.epoch(epoch))
        return losses

    def resumed(method: HaloTraining, run: Run) -> list[float]:
        found = saved[run.group.rank]
        method.net.load(found["weights"])
        method.restore(found["state"])
        return [method.epoch(epoch) for epoch in range(4, 7)]

    losses = on_each(config, shards, whole)
    assert on_each(config, shards, resumed) == [one[4:] for one in losses]


def test_the_result_says_what_was_sent(shards: ShardSet) -> None:
    trained: Trained = train(config_of("adaqp", RANKS, **settings("adaptive")), shards, 9)
    facts: Any = trained.facts
    assert facts["assignments"] == 2
    assert facts["links_alike"] is False
    assert np.array(facts["link_us_per_kb"]).shape == (RANKS, RANKS)
    assert set(facts["sent_rows_by_bits"]) == {"forward.1", "forward.2", "backward.1", "backward.2"}


def test_links_are_measured_and_coefficients_exchanged_only_where_they_are_used(
    shards: ShardSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> Iterator[None]:
        raise AssertionError

    monkeypatch.setattr(message_cost, "measured", never)
    monkeypatch.setattr(assignment, "squared_coefficients", never)
    assert train(config_of("adaqp", RANKS, **settings("uniform")), shards, 1).losses
