from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from run_coordinator import intervals
from siafu.config import Config
from siafu.shards import FileEntry, Manifest, PartitionEntry, SplitSizes


def shards(vertices: int, features: int, stored: int = 0, parts: int = 2) -> Manifest:
    """``stored``: entries of a sparse row."""
    files = {"features_indices.npy": FileEntry(4 * vertices * stored, "", 0)}
    part = PartitionEntry(vertices, 10 * vertices, 10 * vertices, 0, 0, 0, files)
    return Manifest(
        siafu="0",
        name="made up",
        num_vertices=parts * vertices,
        num_edges=20 * vertices,
        num_features=features,
        num_classes=7,
        multilabel=False,
        directed=False,
        weighted=False,
        sparse_features=bool(stored),
        feature_norm="none",
        partitioner="metis",
        order="given",
        seed=0,
        num_partitions=parts,
        splits=(SplitSizes(vertices, 0, 0),),
        cut_edges=0,
        partitions=(part,) * parts,
    )


def found(manifest: Manifest, **settings: Any) -> int:
    config = Config().replace({"servers.backend": "cpu", **{k.replace("__", "."): v for k, v in settings.items()}})
    return intervals.of(config, manifest)


def test_small_tasks_are_not_cut_and_large_ones_are():
    assert found(shards(1354, 1433, stored=18)) == 1
    assert found(shards(58_241, 602), model__hidden="128") == 6  # 58,241 x (602 + 128) / 2 values of 2^22 each
    assert found(shards(2_000_000, 100)) == intervals.MOST


def test_environments_here_get_a_few_each_where_their_tasks_are_large_enough():
    local = {"servers__backend": "lambda", "lambda__on": "local"}
    assert found(shards(1354, 1433, stored=18), **local) == 1
    assert found(shards(6876, 767), model__hidden="64", **local) == 3  # 6876 x (767 + 64) / 2 values of 2^20 each
    assert found(shards(20_000, 767), model__hidden="64", **local) == intervals.IN_ENVIRONMENTS
    assert found(shards(58_241, 602), model__hidden="128", **local) == 6  # as on threads


def test_a_deep_model_of_narrow_layers_has_small_tasks():
    assert found(shards(40_000, 1000), model__layers=2, model__hidden="64") == 6
    assert found(shards(40_000, 1000), model__layers=32, model__hidden="64") == 1


def test_the_largest_partition_counts_and_the_smallest_bounds():
    manifest = shards(40_000, 1000)
    least = replace(manifest.partitions[0], vertices=3)
    assert found(replace(manifest, partitions=(manifest.partitions[0], least))) == 3


def test_a_sparse_row_has_no_more_values_than_columns():
    assert found(shards(20_000, 1000, stored=900)) == found(shards(20_000, 1000))


def test_words_count_as_the_lane_reads_them_that_reads_most():
    """All rows of the sum, which has the words of all neighbours, are read where many vertices train, by models of one
    layer and of three; else evaluations read the words themselves."""
    manifest = shards(20_000, 1000, stored=80)
    few = replace(manifest, splits=(SplitSizes(400, 0, 0),))
    assert found(manifest) == found(few, model__narrow=False) == 3
    assert found(few, model__layers=1) == 5
    assert found(few, model__layers=3, model__hidden="16") == 2
    assert found(few) == 1


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"lambda.on": "aws"}, intervals.MOST),
        ({"lambda.on": "ray"}, intervals.MOST),
        ({"lambda.on": "local"}, 1),
        ({"lambda.on": "aws", "train.intervals": 40}, 40),
        ({"train.intervals": 5000}, 1354),
    ],
)
def test_lambdas_elsewhere_are_many_and_a_number_is_obeyed(settings: dict[str, Any], wanted: int):
    assert intervals.of(Config().replace({"servers.backend": "lambda", **settings}), shards(1354, 16)) == wanted
