"""Whether wider hidden layers would make Lambdas faster than CPU servers alone: what ``siafu plan`` predicts for the
runs' own config and shards, on the machine that they are priced as. Nothing of it is measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cost_planner.plan import graphs
from cost_planner.plan.asked import Asked
from cost_planner.plan.calibration import Calibration
from cost_planner.plan.epochs import Epochs
from cost_planner.plan.finding import widths
from cost_planner.plan.lambdas import lambdas_on
from cost_planner.plan.options import Catalogue
from cost_planner.plan.ranking import Limits, Ranking
from cost_planner.value.judge import StandIn
from cost_planner.value.rows import PredictedWidths, Row, reached
from cost_planner.value.trained import Contender
from siafu import run_files
from siafu.errors import GnnError
from siafu.shards import ShardSet


def predicted(runs: Sequence[Contender], rows: Sequence[Row], stand_in: StandIn) -> PredictedWidths | None:
    """Of the best Lambdas, where Lambdas and CPU servers alone have both reached the target. None elsewhere, and where
    nothing can be predicted: the shards are gone, or the machine does not hold them."""
    kinds = {row["kind"] for row in reached(rows)}
    best = max((row for row in reached(rows) if row["kind"] == "lambda"), key=lambda row: row["value"], default=None)
    if best is None or "cpu" not in kinds:
        return None
    run = next(run for run in runs if run.name == best["name"])
    try:
        return _of(run, round(best["epochs"]), stand_in)
    except GnnError:
        return None


def _of(run: Contender, epochs: int, stand_in: StandIn) -> PredictedWidths | None:
    config, manifest = stand_in.priced(run.config), run_files.manifest(Path(run.where))
    calibration = Calibration.load()
    asked = Asked(
        config,
        graphs.of_manifest(ShardSet.open(Path(manifest["shards"])).manifest),
        Epochs(epochs),
        calibration.speeds,
        instances=[config.cloud.graph_instance],
        servers=[config.data.parts],
        backends=("cpu", "lambda"),
        modes=(("pipe", 0),),
        random_share=calibration.memory.random_share,
    )
    catalogue = Catalogue(asked)
    options = [option for option in catalogue.options if option.backend == "cpu"]
    if not options:
        return None
    found = lambdas_on(asked, Ranking(options, calibration.error, Limits(), top=1).predicted)
    if found is None or not found.by_width:
        return None
    words = widths({width: pair.faster > 1 for width, pair in found.by_width.items()})
    return {
        "instance": config.cloud.graph_instance,
        "servers": config.data.parts,
        "by_hidden": {width: {"faster": p.faster, "relative_value": p.worth} for width, p in found.by_width.items()},
        "text": (
            f"Predicted by siafu plan, not measured: on {config.data.parts} x {config.cloud.graph_instance}, Lambdas "
            f"are faster {words}."
        ),
    }
