"""Predicts whether wider hidden layers would make Lambdas faster than CPU servers alone: ``siafu plan``'s prediction
for the runs' own config and shards, on the machine that they are priced as. Nothing of it is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cost_planner.plan import graphs
from cost_planner.plan.asked import Asked
from cost_planner.plan.calibration import Calibration
from cost_planner.plan.epochs import Epochs
from cost_planner.plan.finding import widths
from cost_planner.plan.lambdas import Pair, lambdas_on
from cost_planner.plan.options import Catalogue
from cost_planner.plan.ranking import Limits, Ranking
from cost_planner.value.judge import StandIn
from cost_planner.value.rows import PredictedWidths, Row, reached
from cost_planner.value.trained import Contender
from siafu import run_files
from siafu.config import Config
from siafu.errors import ConfigError, GnnError
from siafu.shards import ShardSet


def predicted(runs: Sequence[Contender], rows: Sequence[Row], stand_in: StandIn) -> PredictedWidths | None:
    """Predicts other widths for the best contender with Lambdas; None unless both Lambdas and CPU servers alone have
    reached the target. If prediction fails (shards are gone, or do not fit the machine), the text says so."""
    kinds = {row["kind"] for row in reached(rows)}
    best = max((row for row in reached(rows) if row["kind"] == "lambda"), key=lambda row: row["value"], default=None)
    if best is None or "cpu" not in kinds:
        return None
    run = next(run for run in runs if run.name == best["name"])
    config = stand_in.priced(run.config)
    machines = f"{config.data.parts} x {config.cloud.graph_instance}"
    by_width: Mapping[int, Pair] = {}
    try:
        by_width = _by_width(run, config, round(best["epochs"]))
        words = widths({width: pair.faster > 1 for width, pair in by_width.items()})
        text = f"Predicted by siafu plan, not measured: on {machines}, Lambdas are faster {words}."
    except GnnError as error:
        text = f"siafu plan cannot predict at which hidden widths Lambdas are faster on {machines}: {error}."
    return {
        "instance": config.cloud.graph_instance,
        "servers": config.data.parts,
        "by_hidden": {width: {"faster": p.faster, "relative_value": p.worth} for width, p in by_width.items()},
        "text": text,
    }


def _by_width(run: Contender, config: Config, epochs: int) -> Mapping[int, Pair]:
    manifest = run_files.manifest(Path(run.where))
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
    found = lambdas_on(asked, Ranking(options, calibration.error, Limits(), top=1).predicted) if options else None
    if found is None:
        raise ConfigError("these machines do not hold the graph")
    if not found.by_width:
        raise ConfigError("the model has no hidden layer")
    return found.by_width
