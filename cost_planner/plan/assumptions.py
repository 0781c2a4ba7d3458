"""The assumptions of a plan, as sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from typing import Any

from cost_planner.plan import cards, cores, energy, epochs, interruptions
from cost_planner.plan.asked import CONCURRENCY, Asked
from cost_planner.plan.calibration import Calibration
from cost_planner.plan.graphs import TRAINS, VALIDATES, Graph
from cost_planner.plan.options import S3_BYTES_PER_S, START_S, USABLE
from cost_planner.plan.ranking import Predicted
from cost_planner.plan.simulated_run import Environments
from cost_planner.value import break_even
from siafu.config import Cloud, Config
from siafu.models import operators
from siafu.places import CORE_MB
from siafu.pricing import prices

#: Graph servers up to which docs/scale.md looks at connections, open files and quotas.
EXAMINED_SERVERS = 32


def of(asked: Asked, calibration: Calibration, shown: Sequence[Predicted], today: date) -> list[str]:
    graph, config, needs = asked.graph, asked.config, asked.epochs
    slower = {cores.family(one.option.machine): cores.cores_of(one.option.machine) for one in shown}
    speeds = ", ".join(f"{name} {found.speed:g}" for name, found in sorted(slower.items()))
    evaluated = config.train.eval_every
    ratios = ", ".join(f"s={s} {epochs.ratio('async', s):.2f}" for s in epochs.PAPER)
    return [
        (
            f"Epochs: {needs.source}, {needs.of_pipe:g} in pipe. siafu cannot predict the epochs to a target: give "
            f"--epochs, or --like RUN. no-pipe needs as many; async needs more, by Dorylus' ratios: {ratios}."
        ),
        _of_cut(graph),
        *_of_training_vertices(graph),
        (
            f"Speeds were measured on {calibration.machine} on {calibration.measured}, to within "
            f"{calibration.error:.0%}. siafu has not been measured on EC2 or Lambda yet."
        ),
        (
            f"Cores, relative to the calibrated one: {speeds}, to within about {cores.SPEED_ERROR:.0%}, from "
            "data sheets (cost_planner/plan/cores.csv). A core is two vCPUs on Intel, one on Graviton and AMD."
        ),
        *_of_chips(asked, calibration, shown),
        (
            f"Links: the burst bandwidth of prices.csv for {cores.BURST_S:.0f} s, then the baseline; at most "
            f"{cores.FLOW_GBPS:g} Gbps per connection; one zone."
        ),
        (
            f"Lambda ({config.cloud.arch}): {Environments().link.bytes_per_s / 1e6:.0f} MB/s each way; at "
            f"{CORE_MB:,} MB, {cores.of_lambda(config.cloud.arch).speed:g} of the calibrated core (cores.csv). The "
            "number of environments is constant; in training, lambda.count = 0 adapts it."
        ),
        f"A run uses up to {USABLE:.0%} of a machine's memory, takes {START_S:.0f} s to start, and reads "
        f"{S3_BYTES_PER_S / 1e6:.0f} MB/s from S3; the deployment lasts as long as the run.",
        "Evaluation: "
        + (f"every {'epoch' if evaluated == 1 else f'{evaluated} epochs'}." if evaluated else "none while training."),
        _of_prices(config, shown, today),
        *_of_spot(shown),
        *_of_own_types(asked),
        *_of_many_servers(shown),
        *_of_cards(asked, shown),
        _of_energy(shown),
        *_of_typed_edges(config),
    ]


def caveats(asked: Asked, calibration: Calibration, shown: Sequence[Predicted], today: date) -> list[str]:
    """The assumptions that may change the reader's decision."""
    return [
        f"Speeds are those of {calibration.machine}: siafu has not been measured on EC2 or Lambda yet.",
        _of_prices(asked.config, shown, today),
        *_of_own_types(asked),
        *_of_many_servers(shown),
        *_of_driver(shown),
        *_of_typed_edges(asked.config),
    ]


def _of_prices(config: Config, shown: Sequence[Predicted], today: date) -> str:
    as_of = min((one.cost.as_of for one in shown), default="")
    bought = "spot" if config.cloud.spot else "on demand"
    return f"Prices of {config.lambdas.region}, {bought}, {as_of}{prices.age(as_of, today)}."


def _of_spot(shown: Sequence[Predicted]) -> list[str]:
    """Sentences on spot machines; none without any."""
    spot = [one for one in shown if one.option.config.cloud.spot]
    if not spot:
        return []
    machines = {machine for one in spot for machine in interruptions.machines(one.option)}
    shares = {one.name: one.spot_interrupted for one in machines if one.spot_interrupted is not None}
    told = ", ".join(f"{name} {share:.0%}" for name, share in sorted(shares.items()))
    dates = {one.spot_as_of or one.as_of for one in machines if one.name in shares}
    unknown = sorted({name for one in spot for name in interruptions.unknown(one.option)})
    best = spot[0].interruptions
    return [
        *(
            [
                (
                    f"Spot: AWS takes back at most this share of machines a month (Spot Advisor, {min(dates)}): "
                    f"{told}. An interruption costs half the time between checkpoints, a boot "
                    f"({interruptions.BOOT_S:g} s to the first login, {interruptions.BOOT_SOURCE}) and the start of a "
                    f"run. The first option expects "
                    f"{best.expected:.2g} interruptions and {best.seconds:.2g} s for them. Not counted: the time until "
                    "you run siafu resume, and what siafu installs on a new machine."
                )
            ]
            if told
            else []
        ),
        *([f"How often AWS takes these back is not known, so not counted: {', '.join(unknown)}."] if unknown else []),
    ]


def _of_energy(shown: Sequence[Predicted]) -> str:
    found = energy.watt_hours(shown[0])
    if found is None:
        return "Energy of the first option: not known, for lack of published watts of its processors or GPUs."
    return (
        f"Energy of the first option: {found:,.3g} Wh, an estimate: every vCPU at full load, at published watts "
        "(Cloud Carbon Footprint, cost_planner/plan/chips.csv), without memory, disks, network and cooling."
    )


def _of_own_types(asked: Asked) -> list[str]:
    """Says that the plan also compares other types than the one that a file or ``--set`` names."""
    named = asked.config.cloud.graph_instance
    if asked.instances or named == Cloud().graph_instance:
        return []
    return [f"cloud.graph_instance is {named}; this plan compares all types. That one alone: --instance {named}"]


def _of_many_servers(shown: Sequence[Predicted]) -> list[str]:
    most = max(one.option.in_pipe.servers for one in shown)
    if most <= EXAMINED_SERVERS:
        return []
    return [f"docs/scale.md covers up to {EXAMINED_SERVERS} servers; this plan has options with {most}."]


def _of_typed_edges(config: Config) -> list[str]:
    if "typed" not in operators(config.model.name):
        return []
    return ["Typed edges are planned like gcn's sums over edges, so times of this model are too short."]


def _of_driver(shown: Sequence[Predicted]) -> list[str]:
    if all(one.option.backend != "gpu" for one in shown):
        return []
    return ["gpu: siafu deploy installs no GPU driver and no torch: prepare the image yourself."]


def _of_chips(asked: Asked, calibration: Calibration, shown: Sequence[Predicted]) -> list[str]:
    """Memory bandwidth and peak flop/s of the machines without a GPU."""
    machines = {one.option.machine.name: one.option.machine for one in shown if not one.option.card}
    known = {name: (cores.memory_of(one), cores.cores_of(one).chip) for name, one in sorted(machines.items())}
    told = ", ".join(
        f"{name} {memory.bytes_per_s / 1e9:.0f} GB/s"
        + (f" and {chip.flops / 1e9:g} GFLOP/s a core" if chip.flops < math.inf else "")
        for name, (memory, chip) in known.items()
        if chip
    )
    unknown = [name for name, (_, chip) in known.items() if not chip]
    return [
        *(
            [
                (
                    f"Memory bandwidth and peak flop/s as published (cost_planner/plan/chips.csv): {told}. Assumed: a "
                    "machine has its vCPUs' share of its socket's bandwidth; neighbours' rows lie anywhere in memory. "
                    + (
                        f"Such rows get {asked.random_share:.2f} of it, as measured on the calibrated machine."
                        if calibration.random_gb_per_s
                        else "What such rows get of it is not measured: all. Real rates are below these."
                    )
                )
            ]
            if told
            else []
        ),
        *([f"Memory bandwidth is not known, so it does not limit: {', '.join(unknown)}."] if unknown else []),
    ]


def _of_cut(graph: Graph) -> str:
    if graph.cut_parts:
        return (
            f"Cut: {graph.cut:.3g} of the edges connect two of {graph.cut_parts} parts ({graph.cut_source}); with P "
            f"parts, the share grows with log P. Ghosts are {graph.shared:.2g} times fewer than random remote "
            "vertices, as there."
        )
    return (
        f"Cut: with many servers, {graph.cut:.3g} of the edges connect two servers ({graph.cut_source}). Ghosts are "
        f"{graph.shared:.2g} times fewer than random remote vertices, as in eleven real graphs."
    )


def _of_training_vertices(graph: Graph) -> list[str]:
    """Assumed shares of training vertices and edges; none if shards have the numbers."""
    if graph.shards:
        return []
    told = [
        f"Assumed: {TRAINS:.0%} of the vertices train and {VALIDATES:.0%} validate, as in Reddit, and features are "
        "dense and have 4 bytes; shards say it (siafu prepare)."
    ]
    if graph.inductive:
        told.append(f"Assumed: {TRAINS**2:.0%} of the edges are between training vertices, as if these lay anywhere.")
    return told


def _of_cards(asked: Asked, shown: Sequence[Predicted]) -> list[str]:
    """Sentences on options with a GPU; none without any."""
    used = {one.option.card.figures: one.option.card for one in shown if one.option.card}
    if not used:
        return []
    kinds = {one.option.backend for one in shown if one.option.card}
    return [
        (
            "GPUs (*): data sheets (cost_planner/plan/cards.csv): "
            f"{'; '.join(sorted(used))}. The plan takes {cards.OF_PEAK:.0%} of these, "
            f"{cards.PAGEABLE_BYTES_PER_S / 1e9:g} GB/s for copies between host and GPU, "
            f"{cards.ORDER_S * 1000:g} ms per operation, and {cards.START_S:.0f} s more to start. Times may be "
            "half as long or twice as long; measured on one H200, GCN and GraphSAGE took 0.65 and 0.72 of it."
        ),
        *(
            ["gpu: a GPU in each graph server, with the copies of graph_server/backends/gpu.py."]
            if "gpu" in kinds
            else []
        ),
        *_of_driver(shown),
        "Sums over edges assume no caches on GPUs; on CPUs, that the last-level cache holds its share of the rows.",
        *(
            [
                (
                    "vanilla: siafu baseline vanilla on all GPUs of one machine, with all data on the GPUs, and "
                    "without overlap of halo rows and sums."
                )
            ]
            if "vanilla" in kinds
            else []
        ),
    ]


def of_gpus(asked: Asked, best: Predicted, memory_gib: float) -> list[dict[str, Any]]:
    """Machines with one GPU, cheapest first, and the epoch time at which each has the best option's value, without
    assuming its speed. ``fits``: whether the whole graph fits on its card."""
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
        "Quotas: vCPUs count all servers. The account's limits are, on EC2, L-1216C47A for standard types (spot "
        "L-34B43A08), and, zero in a new account, L-DB2E81BA for G and L-417A185B for P types (spot L-3819A6DF, "
        f"L-7212CCBC, P5 L-C4BD4855); on Lambda, {CONCURRENCY:,} concurrent environments in a region by default."
    )
