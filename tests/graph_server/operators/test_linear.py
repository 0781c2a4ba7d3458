"""How rows of weighted sums lie: as the edges that will be gathered along want them."""

from __future__ import annotations

import pytest

from graph_server.buffers import TableStore
from siafu import models
from siafu.models import ModelSpec
from siafu.tasks import Lane
from tests.graph_server.graph_steps import GraphSteps
from tests.toy_graphs import random_graph

VERTICES, WIDTH = 60, 64


@pytest.mark.parametrize(("num_edges", "tile"), [(3_000, 16), (600, 32)])
def test_tiles_are_one_line_where_there_are_many_edges(monkeypatch: pytest.MonkeyPatch, num_edges: int, tile: int):
    """Of a cache of which half holds one line of each row, but not two."""
    monkeypatch.setattr("siafu.kernels.rows.TABLE_BYTES", 3 * VERTICES * 64)
    graph = random_graph(4, VERTICES, num_edges=num_edges, num_classes=WIDTH)
    model = models.build(ModelSpec("gcn", 7, WIDTH, 1, (2 * WIDTH,)))
    for lane in (Lane.TRAIN, Lane.EVAL):
        stores = [slot.store for slot in GraphSteps(graph, model, lane, (0, VERTICES)).published.values()]
        tables = [store.table for store in stores if isinstance(store, TableStore)]
        assert {table.tile for table in tables if table.width == WIDTH} == {tile}
