"""What a plan takes for granted, in sentences for whoever reads it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from cost_planner.plan import cards, cores, epochs
from cost_planner.plan.asked import CONCURRENCY, Asked
from cost_planner.plan.calibration import Calibration
from cost_planner.plan.graphs import Graph
from cost_planner.plan.options import START_S, USABLE
from cost_planner.plan.ranking import Predicted
from cost_planner.scale import AWS, SETTINGS
from cost_planner.value import break_even
from siafu.models import operators
from siafu.pricing import prices

#: Servers of the largest setting of docs/scale.md.
MOST_LOOKED_AT = max(setting.servers for setting in SETTINGS)


def of(asked: Asked, calibration: Calibration, shown: Sequence[Predicted], today: date) -> list[str]:
    graph, config, needs = asked.graph, asked.config, asked.epochs
    slower = {cores.family(one.option.machine): cores.cores_of(one.option.machine) for one in shown}
    speeds = ", ".join(f"{name} {found.speed:g}" for name, found in sorted(slower.items()))
    sparse = graph.shards is not None and graph.shards.sparse_features
    evaluated = config.train.eval_every
    most = max(one.option.in_pipe.servers for one in shown)
    as_of = min((one.cost.as_of for one in shown), default="")
    ratios = ", ".join(f"s={s} {epochs.ratio('async', s):.2f}" for s in epochs.PAPER)
    return [
        (
            f"Epochs: {needs.source}, {needs.of_pipe:g} of pipe. No model says how soon a graph is learnt: what a "
            "target takes must be told (--epochs, or --like RUN). async needs more epochs than pipe by Dorylus' "
            f"ratios: {ratios}; no-pipe as many."
        ),
        _of_cut(graph),
        (
            f"Speeds were measured on {calibration.machine} on {calibration.measured}, to within "
            f"{calibration.error:.0%}. Nobody has measured EC2 or Lambda: nothing here is a measurement of them."
        ),
        (
            f"Cores beside the calibrated one: {speeds}, within {cores.SPEED_ERROR:.0%} or so: makers' words, "
            "cost_planner/plan/cores.csv. Two vCPUs of Intel are one core, one vCPU of Graviton and of AMD is. Cores "
            "of a machine share its memory as two do here."
        ),
        (
            f"Links: the burst of prices.csv for {cores.BURST_S:.0f} s, then its baseline; {AWS.flow_gbps:g} "
            "Gbps a connection; one zone."
        ),
        (
            f"Lambda ({config.cloud.arch}): {AWS.lambda_bytes_per_s / 1e6:.0f} MB/s each way, a calibrated core at "
            "1,769 MB, all environments there from beginning to end. Their number is held fixed; lambda.count = 0 "
            "finds one while training."
        ),
        f"A run uses up to {USABLE:.0%} of a machine's memory, takes {START_S:.0f} s to start and "
        f"{AWS.s3_bytes_per_s / 1e6:.0f} MB/s from S3; the deployment stands no longer than the run.",
        "Evaluation: "
        + (f"every {'epoch' if evaluated == 1 else f'{evaluated} epochs'}." if evaluated else "none while training."),
        (
            f"Prices of {config.lambdas.region}, {'spot' if config.cloud.spot else 'on demand'}, "
            f"{as_of}{prices.age(as_of, today)}."
        ),
        *(
            [f"More than {MOST_LOOKED_AT} servers are beyond what docs/scale.md looks at, and {most} are among these."]
            if most > MOST_LOOKED_AT
            else []
        ),
        *_of_cards(asked, shown),
        *(
            [
                (
                    "Attention and typed edges count as plain sums over edges with the host: as gcn's, on which it was "
                    "calibrated, and so too fast."
                )
            ]
            if operators(config.model.name) - {"linear"}
            else []
        ),
        *(["Sparse features count as dense ones in what travels to Lambdas."] if sparse else []),
    ]


def _of_cut(graph: Graph) -> str:
    if graph.cut_parts:
        return (
            f"Cut: {graph.cut:.3g} of the edges cross between {graph.cut_parts} parts ({graph.cut_source}), between "
            f"other numbers P in proportion to log P. Ghosts are {graph.shared:.2g} times fewer than random ends of "
            "crossing edges would be, as there."
        )
    return (
        f"Cut: {graph.cut:.3g} of the edges cross between many servers ({graph.cut_source}). Ghosts are "
        f"{graph.shared:.2g} times fewer than random ends of crossing edges would be, as in eleven real graphs."
    )


def _of_cards(asked: Asked, shown: Sequence[Predicted]) -> list[str]:
    """Of options with a GPU, if there are any."""
    used = {one.option.card.figures: one.option.card for one in shown if one.option.card}
    if not used:
        return []
    kinds = {one.option.backend for one in shown if one.option.card}
    return [
        (
            "GPUs (*): assumed, not measured. Makers' figures (cost_planner/plan/cards.csv): "
            f"{'; '.join(sorted(used))}. {cards.OF_PEAK:.0%} of these is taken, {cards.PAGEABLE_BYTES_PER_S / 1e9:g} "
            f"GB/s for copies between ordinary memory and a card, {cards.ORDER_S * 1000:g} ms for whatever the host "
            f"orders, {cards.START_S:.0f} s more to start. Their times may be half as long or twice: the ranges say so."
        ),
        (
            "Sums over edges are counted without caches on GPUs; CPUs' were measured on a graph that is partly in "
            "theirs. Of large graphs that flatters CPUs."
        ),
        *(
            [
                (
                    "gpu: a card in each graph server, copies as graph_server/backends/gpu.py makes them. siafu deploy "
                    "gives graph servers no driver of a GPU and no torch: their image must be prepared by hand."
                )
            ]
            if "gpu" in kinds
            else []
        ),
        *(
            [
                (
                    "vanilla: siafu baseline vanilla on all GPUs of one machine, everything on the cards; no "
                    "overlap of halo rows and sums."
                )
            ]
            if "vanilla" in kinds
            else []
        ),
    ]


def of_gpus(asked: Asked, best: Predicted, memory_gib: float) -> list[dict[str, Any]]:
    """What a machine with one GPU would have to do to be worth as much as the best option, whatever its speed is taken
    to be. Cheapest first; ``fits``: what its card would hold, with all of the graph on it, beside the card's memory."""
    found = [one for one in prices.instances(asked.config.lambdas.region) if one.gpu.startswith("1x")]
    return [
        {
            "instance": one.name,
            "gpu": one.gpu,
            "usd_per_hour": one.usd_per_hour,
            "gpu_mem_gib": one.gpu_mem_gib,
            "memory_gib": memory_gib,
            "fits": memory_gib <= USABLE * (one.gpu_mem_gib or 0.0),
            "break_even_seconds": (seconds := break_even(best.seconds, best.cost.usd, one.usd_per_hour / 3600)),
            "break_even_epoch_s": seconds / asked.epochs.of("pipe", 0),
        }
        for one in sorted(found, key=lambda one: one.usd_per_hour)
    ]


def quota_note() -> str:
    return (
        "Quotas: vCPUs are all servers', of the account's own limits (EC2: standard types L-1216C47A, spot "
        "L-34B43A08; G L-DB2E81BA and P L-417A185B, spot L-3819A6DF, L-7212CCBC and, P5, L-C4BD4855: a new account "
        f"has none of these); Lambda environments at once are {CONCURRENCY:,} in a region unless more were asked for."
    )
