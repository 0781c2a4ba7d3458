"""What is predicted grows with what it should grow with; whether it is right is measured by
``python -m benchmarks measure memory``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cost_planner import reach
from cost_planner.memory import (
    GRAPH_SERVERS,
    LAMBDAS,
    LAUNCHER,
    PARAM_SERVERS,
    WORDS_IN_COMMON,
    Prediction,
    _sparse_product_bytes,
    aggregate_entries,
    predict,
    slot_bytes,
)
from cost_planner.plan.work import Counts
from siafu import models
from siafu.config import Config
from siafu.models import ModelSpec
from siafu.shards import FileEntry, Manifest, PartitionEntry, SplitSizes
from siafu.tasks import Lane


def manifest(n: int = 100_000, m: int = 5_000_000, features: int = 600, *, parts: int = 1, sparse: int = 0) -> Manifest:
    """``parts`` equal partitions, an eighth of whose rows are ghosts of each other; ``sparse``: words of a vertex."""
    mine, ghosts = n // parts, n // parts // 8 if parts > 1 else 0
    files = {"in_indices.npy": 4 * m // parts, "in_indptr.npy": 8 * mine}
    if sparse:
        files |= {"features_indices.npy": 4 * sparse * mine, "features_data.npy": sparse * mine}
    else:
        files["features.npy"] = 4 * features * mine
    entries = {name: FileEntry(nbytes, "", 0) for name, nbytes in files.items()}
    part = PartitionEntry(mine, m // parts, m // parts, 0, ghosts, ghosts, entries)
    return Manifest(
        siafu="0",
        name="made up",
        num_vertices=n,
        num_edges=m,
        num_features=features,
        num_classes=40,
        multilabel=False,
        directed=False,
        weighted=False,
        sparse_features=bool(sparse),
        feature_norm="none",
        partitioner="metis",
        order="given",
        seed=0,
        num_partitions=parts,
        splits=(SplitSizes(n // 2, 0, 0),),
        cut_edges=0,
        partitions=(part,) * parts,
    )


def config(**changes: Any) -> Config:
    settings = {"servers.backend": "cpu", "model.hidden": "128", "train.mode": "pipe", "train.intervals": 16}
    return Config().replace(settings | {key.replace("__", "."): value for key, value in changes.items()})


def part(prediction: Prediction, role: str, name: str) -> int:
    return sum(part.nbytes for part in prediction.parts if (part.role, part.name) == (role, name))


def test_roles_add_up_and_only_those_that_a_run_has_are_there():
    cpu = predict(config(), manifest(), cores=2)
    assert list(cpu.by_role) == [GRAPH_SERVERS, PARAM_SERVERS, LAUNCHER]
    assert sum(cpu.by_role.values()) == cpu.nbytes == sum(part.nbytes for part in cpu.parts)
    assert LAMBDAS in predict(config(servers__backend="lambda"), manifest(), cores=2).by_role


def test_layer_zero_and_the_shard_are_counted_in_full():
    found = predict(config(), manifest(), cores=2)
    assert part(found, GRAPH_SERVERS, "layer 0's aggregate") == 100_000 * 600 * 4
    assert part(found, GRAPH_SERVERS, "shard, mapped") == 4 * 5_000_000 + 8 * 100_000


@pytest.mark.parametrize(("name", "copies"), [("gcn", 1), ("sage", 2), ("gat", 0)])
def test_constants_of_rows_that_the_loss_reads_are_held_twice_where_they_are_few(name: str, copies: int):
    """sage reads its own features as well; gat's layer 0 is not the one before the loss. Evaluation has its own."""
    few = replace(manifest(), splits=(SplitSizes(200, 60, 40),))
    found = predict(config(model__name=name), few, cores=2)
    shares = [reach.share_that_feeds(counted, 50) for counted in (0.002, 0.003)]
    assert 0.05 < shares[0] < shares[1] < 0.2
    held = sum(copies * share * 100_000 * 600 * 4 for share in shares)
    assert part(found, GRAPH_SERVERS, "rows that feed the loss") == pytest.approx(held, abs=2)
    assert not part(predict(config(model__name=name), manifest(), cores=2), GRAPH_SERVERS, "rows that feed the loss")


def test_features_stay_mapped_only_where_the_model_reads_own_rows():
    gcn, sage = (predict(config(model__name=name), manifest(), cores=2) for name in ("gcn", "sage"))
    mapped = [part(found, GRAPH_SERVERS, "shard, mapped") for found in (gcn, sage)]
    assert mapped[1] - mapped[0] == 4 * 600 * 100_000


def test_an_aggregate_that_was_kept_need_not_be_made():
    first, again = (predict(config(), manifest(), aggregated=kept, cores=2) for kept in (False, True))
    assert first.nbytes > again.nbytes


@pytest.mark.parametrize("aggregated", [False, True])
def test_each_lane_of_an_inductive_run_has_an_aggregate_and_training_edges_of_its_own(aggregated: bool):
    """No run keeps such an aggregate: it is made each time."""
    types = {"edge_types": "inductive", "type_counts": (2_000_000, 3_000_000)}
    one, two = (predict(config(), m, cores=2) for m in (manifest(), replace(manifest(), **types)))
    again = predict(config(), replace(manifest(), **types), aggregated=aggregated, cores=2)
    aggregates = [part(found, GRAPH_SERVERS, "layer 0's aggregate") for found in (one, two)]
    trains = manifest().splits[0].train
    assert trains == 50_000  # of 100,000: training holds their rows alone (docs/adr/0043)
    assert aggregates == [100_000 * 600 * 4, (100_000 + trains) * 600 * 4]
    edges = [part(found, GRAPH_SERVERS, "edges that training gathers along") for found in (one, two)]
    assert edges == [0, 4 * 2_000_000 + 8 * trains]
    assert again.nbytes == two.nbytes


def test_an_aggregate_along_training_edges_has_few_words():
    """A tenth of the vertices train, and have two edges among them each. Others are not in it."""
    made = manifest(m=2_000_000, features=8000, sparse=30)
    types = {"edge_types": "inductive", "type_counts": (20_000, 1_980_000), "inductive_split": 0}
    few = replace(made, splits=(SplitSizes(10_000, 10_000, 80_000),), **types)
    train, judged = (aggregate_entries(few, few.partitions[0], lane) for lane in (Lane.TRAIN, Lane.EVAL))
    assert train is not None
    assert judged == aggregate_entries(made, made.partitions[0], Lane.EVAL)
    share = 30 / 8000
    among = WORDS_IN_COMMON * (1 - (1 - share) ** 3) * 8000 * 10_000
    assert train == pytest.approx(among, rel=1e-3)
    found = part(predict(config(), few, cores=2), GRAPH_SERVERS, "layer 0's aggregate")
    assert found == 8 * train  # evaluations transform words before they gather
    first = part(predict(config(model__narrow=False), few, cores=2), GRAPH_SERVERS, "layer 0's aggregate")
    assert first == 8 * (train + judged)
    counts = Counts.of(few)
    shares = train / (10_000 * 8000), judged / (100_000 * 8000)
    assert [counts.filled_of(lane) for lane in (Lane.TRAIN, Lane.EVAL)] == pytest.approx(shares)


@pytest.mark.parametrize(("ghosts", "copies"), [(50_000 // 8, 1), (400_000, 3)])
def test_features_of_ghosts_are_held_as_they_are_stored(ghosts: int, copies: int):
    """Three times before layer 0 is gathered, once beside the block that it is gathered from: the larger counts."""
    files = {"features.npy": FileEntry(600 * 50_000, "", 0)}  # uint8
    made = manifest(parts=2)
    exact = replace(made, partitions=tuple(replace(e, ghosts_in=ghosts) for e in made.partitions))
    small = replace(exact, partitions=tuple(replace(e, files={**e.files, **files}) for e in exact.partitions))
    found = [part(predict(config(), m, cores=2), GRAPH_SERVERS, "rows between steps") for m in (exact, small)]
    assert found[0] - found[1] == 2 * copies * ghosts * 600 * (4 - 1)


def test_bfloat16_rows_take_half():
    wide, narrow = (predict(config(model__rows=rows), manifest(), cores=2) for rows in ("exact", "bfloat16"))
    aggregates = (part(found, GRAPH_SERVERS, "layer 0's aggregate") for found in (wide, narrow))
    assert next(aggregates) == 2 * next(aggregates)
    # 40 columns: three cache lines against two, in each of three tables
    tables = [part(found, GRAPH_SERVERS, "published rows") for found in (wide, narrow)]
    assert tables == [3 * 100_000 * 3 * 64, 3 * 100_000 * 2 * 64]


def test_rows_are_counted_as_tables_lay_them_out(monkeypatch: pytest.MonkeyPatch):
    """80 columns take two tiles of four cache lines, or three of two in a table that is large for a cache; 40 three."""
    lines = []
    for cache_bytes in (1 << 30, 1 << 20):
        monkeypatch.setattr("siafu.kernels.rows.TABLE_BYTES", cache_bytes)
        found = predict(config(model__name="sage", model__hidden="80", model__layers="3"), manifest(), cores=2)
        lines.append(part(found, GRAPH_SERVERS, "published rows") / (100_000 * 64))
    hidden, classes = 3, 3  # tables
    assert lines == [hidden * 8 + classes * 3, hidden * 6 + classes * 3]


def test_the_sparse_product_that_a_dense_aggregate_is_made_of_is_counted():
    few, many = (predict(config(), manifest(features=8000, sparse=words), cores=2) for words in (200, 400))
    values = 100_000 * 8000
    assert part(few, GRAPH_SERVERS, "layer 0's aggregate") == 4 * values
    making = [part(found, GRAPH_SERVERS, "rows between steps") for found in (few, many)]
    assert 8 * 0.25 * values < making[0] < making[1] < 8 * values


def test_a_sparse_aggregate_is_made_once_beside_its_words_and_edges():
    """The product is written where it stays: only the factors stand beside it, and of words that no server has for its
    ghosts only their values in another dtype."""
    few, many, two = (manifest(features=8000, sparse=w, m=1_000_000, parts=p) for w, p in ((30, 1), (400, 1), (30, 2)))
    edges = 8 * (1_000_000 + 100_000)
    assert _sparse_product_bytes(few, few.partitions[0], 4) == 4 * 100_000 * 30 + edges
    assert _sparse_product_bytes(two, two.partitions[0], 4) == 8 * 50_000 * 30 * 9 // 8 + edges // 2
    product = _sparse_product_bytes(many, many.partitions[0], 4) - 4 * 100_000 * 400 - edges
    assert 8 * 0.25 * 100_000 * 8000 < product < 8 * 100_000 * 8000


def test_a_bag_of_words_stays_sparse_until_it_fills_a_quarter():
    few, many = (predict(config(), manifest(features=8000, sparse=words), cores=2) for words in (30, 400))
    assert part(few, GRAPH_SERVERS, "layer 0's aggregate") < 100_000 * 8000 * 4 / 4
    assert part(many, GRAPH_SERVERS, "layer 0's aggregate") == 100_000 * 8000 * 4


def links(*, eval_negatives: int = 100, parts: int = 1) -> Manifest:
    """Of a million undirected edges, of which nine in ten train; five false ones for each."""
    trains, held = 900_000, 50_000
    counts = 2 * trains, 2 * trains, 10 * trains, held, eval_negatives * 20_000, held, eval_negatives * 20_000
    made = manifest(m=sum(counts), parts=parts)
    types = {"edge_types": "links", "type_counts": counts, "num_edge_types": 7, "directed": True}
    return replace(made, num_edges=sum(counts), **types)


def of_links(**changes: Any) -> Config:
    return config(data__task="link", **changes)


def test_pairs_and_message_edges_are_held_beside_the_shard():
    made = links()
    found = predict(of_links(), made, cores=2)
    scored = sum(made.type_counts[1:])
    assert part(found, GRAPH_SERVERS, "pairs") == pytest.approx(5 * scored + 2 * 8 * 2 * 100_000, abs=9)
    along = 2 * (4 * made.type_counts[0] + 8 * 100_000)
    assert part(found, GRAPH_SERVERS, "edges that training gathers along") == pytest.approx(along, abs=9)


def test_evaluations_rank_all_held_out_pairs():
    """Their scores and tallies grow with the pairs; the rows that they share do not."""
    few, many = (
        part(predict(of_links(), links(eval_negatives=n), cores=2), GRAPH_SERVERS, "rows and scores of pairs")
        for n in (1000, 1100)
    )
    assert many - few == pytest.approx(100 * 40_000 * (28 + 4 * 2 / 16), rel=0.02)


def test_all_intervals_of_a_run_with_lambdas_hold_rows_of_pairs_at_a_time():
    """A server's threads take one interval each."""
    cpu, remote = (
        part(predict(of_links(servers__backend=name), links(eval_negatives=1), cores=2), GRAPH_SERVERS, name_of_part)
        for name, name_of_part in (("cpu", "rows and scores of pairs"), ("lambda", "rows and scores of pairs"))
    )
    assert remote > 2 * cpu
    wide = predict(of_links(model__hidden="256"), links(eval_negatives=1), cores=2)
    assert part(wide, GRAPH_SERVERS, "rows and scores of pairs") > 1.5 * cpu
    assert not part(predict(config(), manifest(), cores=2), GRAPH_SERVERS, "rows and scores of pairs")


def test_words_are_gathered_along_message_edges_not_along_pairs():
    few = manifest(m=1_000_000, features=8000, sparse=30)
    counts = 1_000_000, 1_000_000, 8_000_000, 50_000, 1_000_000, 100_000, 2_000_000
    entry = replace(few.partitions[0], in_edges=sum(counts))
    types = {"edge_types": "links", "type_counts": counts, "num_edges": sum(counts)}
    links = replace(few, partitions=(entry,), **types)
    entries = [aggregate_entries(m, m.partitions[0], Lane.TRAIN) for m in (few, links)]
    assert entries[0] == pytest.approx(entries[1])
    assert entries[0] is not None


def test_slots_are_those_of_the_widest_moment_of_the_program():
    spec = ModelSpec("gcn", 600, 40, 1, widths=(128,), rematerialise=False)
    model = models.build(spec)
    # H1 is kept for backward; beside it stand in turn T1, the narrow layer's rows, Z1, dZ1 and dT1, as wide as it.
    assert slot_bytes(model, model.program(Lane.TRAIN), 10, 4) == (128 + 40) * 10 * 4


def test_a_model_that_transforms_features_first_has_no_aggregate():
    gat = predict(config(model__name="gat"), manifest(), cores=2)
    assert part(gat, GRAPH_SERVERS, "layer 0's aggregate") == 0
    assert part(gat, GRAPH_SERVERS, "shard, mapped") > 100_000 * 600 * 4  # features stay


def test_slots_of_edges_are_as_long_as_the_edges():
    model = models.build(ModelSpec("gat", 600, 40, 1, widths=(), out_heads=2, apply_edge="lambda"))
    dense = slot_bytes(model, model.program(Lane.TRAIN), 10, 4, degree=1000)
    # The products and coefficients of two heads, beside them T0 and dZ0 at the most, and a few scores.
    assert 2 * 1000 * 10 * 4 < dense < (2 * 2 * 1000 + 10 * 80) * 10 * 4


def test_ghosts_and_servers_cost_what_they_hold():
    alone, two = predict(config(), manifest(), cores=2), predict(config(data__parts=2), manifest(parts=2), cores=2)
    grown = part(two, GRAPH_SERVERS, "published rows") / part(alone, GRAPH_SERVERS, "published rows")
    assert grown == pytest.approx(1 + 1 / 8, rel=0.01)
    assert part(two, GRAPH_SERVERS, "interpreters") == 2 * part(alone, GRAPH_SERVERS, "interpreters")


def test_lambdas_keep_what_never_changes_within_their_limit():
    lambdas = config(servers__backend="lambda", lambda__count=4, lambda__memory_mb=192)
    assert part(predict(lambdas, manifest(), cores=2), LAMBDAS, "rows that never change") == 4 * (192 << 20) // 4
    few = predict(lambdas, manifest(n=1000), cores=2)
    assert part(few, LAMBDAS, "rows that never change") == 2 * 1000 * 600 * 4
    none = predict(lambdas.replace({"lambda.keep_constants": False}), manifest(), cores=2)
    assert part(none, LAMBDAS, "rows that never change") == 0


def test_an_interval_has_no_more_homes_than_its_server_has_environments():
    one, two = (config(servers__backend="lambda", lambda__count=count, data__parts=2) for count in (1, 2))
    few = manifest(n=1000, parts=2)
    kept = [part(predict(c, few, cores=2), LAMBDAS, "rows that never change") for c in (one, two)]
    assert kept == [1000 * 600 * 4, 2 * 1000 * 600 * 4]


def test_environments_hold_no_more_tasks_than_there_are_intervals():
    """Four environments could hold twelve; of eight intervals each has one task at a time, of half the rows."""
    made = [config(servers__backend="lambda", lambda__count=4, train__intervals=number) for number in (4, 8, 16)]
    tasks = [part(predict(c, manifest(), cores=2), LAMBDAS, "tasks at hand") for c in made]
    assert tasks[0] == tasks[1] == pytest.approx(16 / 12 * tasks[2], rel=0.01)


def test_environments_hold_gradients_of_the_largest_stage_and_what_their_products_need():
    lambdas = config(servers__backend="lambda", lambda__count=4, model__hidden="256")
    found, words = (predict(lambdas, m, cores=2) for m in (manifest(), manifest(features=8000, sparse=30)))
    assert part(found, LAMBDAS, "gradients") == 4 * 5 * 4 * (
        600 * 256 + 256 + 256 * 40
    )  # narrow: both are of one stage
    assert part(found, LAMBDAS, "buffers of products") == 4 * 4 * (4 * 600 * 256)  # 6250 rows: four ranges
    assert part(words, LAMBDAS, "buffers of products") == 4 * 4 * (4 * 256 * 40)  # the second layer's


def test_optimiser_and_summation_tree_show_in_the_parameter_servers():
    adam, sgd = (predict(config(train__optimizer=name), manifest(), cores=2) for name in ("adam", "sgd"))
    weights = 4 * (600 * 128 + 128 + 128 * 40 + 40)
    assert adam.by_role[PARAM_SERVERS] - sgd.by_role[PARAM_SERVERS] == weights
    deep = predict(config(train__intervals=256), manifest(), cores=2)
    assert deep.by_role[PARAM_SERVERS] > adam.by_role[PARAM_SERVERS]


def test_the_same_config_and_manifest_give_the_same_prediction():
    made = manifest(parts=2)
    assert predict(config(data__parts=2), made, cores=4) == predict(config(data__parts=2), replace(made), cores=4)
