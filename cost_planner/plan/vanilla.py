"""The baseline vanilla (``siafu baseline vanilla``) on one machine's GPUs, as a run for the simulator: each card is a
server with one interval and one thread, which waits for the others wherever rows are exchanged.

1. Everything is on the cards: an epoch copies nothing from or to the host. Steps are those of siafu's own program, with
   a card's times (``cost_planner.plan.cards``); a backward step computes its forward again, which autograd would not.
2. Halo rows use the machine's own links between cards. They are not hidden behind sums of inner edges, though they may
   be in real runs.
3. Attention reads a row for every edge, forward and backward, as sums do (``gpu_baselines.kernels.attention``).
4. Gradients are summed over a ring of all cards once in an epoch. There is no parameter server.
"""

from __future__ import annotations

import numpy as np

from cost_planner import reach
from cost_planner.plan.cards import OF_PEAK, ORDER_S, Card
from cost_planner.plan.parts import LinkRate
from cost_planner.plan.products import products_of
from cost_planner.plan.simulated_run import Plan, StepWork
from cost_planner.plan.work import Counts
from siafu import models
from siafu.baseline import BASELINE_MODELS
from siafu.config import Config
from siafu.models import Model, ModelSpec
from siafu.tasks import TENSOR_KINDS, Kind, Lane

#: What a layer launches, forward or backward, beside its products: activations, masks, losses, autograd's own.
ORDERS = 6
#: Between two cards.
LATENCY_S = 2e-5


def plan_of(config: Config, spec: ModelSpec, counts: Counts, card: Card) -> Plan:
    """The plan of a baseline's run. ``counts``: of one rank."""
    model = models.kept(spec)
    weights = sum(array.nbytes for array in models.shapes(model.spec).values())
    rate, ranks = OF_PEAK * card.peer_bytes_per_s, counts.parts
    ring = 2 * (ranks - 1) * (weights / ranks / rate + LATENCY_S)
    return Plan(
        model.program(Lane.TRAIN),
        _work(config, model, counts, card, Lane.TRAIN),
        eval_program=model.program(Lane.EVAL),
        eval_work=_work(config, model, counts, card, Lane.EVAL),
        eval_every=config.train.eval_every,
        servers=ranks,
        threads=1,
        intervals=1,
        mode="pipe",
        environments=None,
        link=LinkRate(rate),
        latency_s=LATENCY_S,
        exchange_s=0.0,
        update_s=ORDER_S + ring,
    )


def suits(config: Config) -> bool:
    """Whether the baselines have the model's layers."""
    return config.model.name in BASELINE_MODELS and config.model.jump == "none"


def _work(config: Config, model: Model, counts: Counts, card: Card, lane: Lane) -> list[StepWork]:
    program, item, n = model.program(lane), np.dtype(config.model.dtype).itemsize, counts.vertices
    others, ghosts = max(1, counts.parts - 1), counts.ghosts
    if counts.among is not None and lane is Lane.TRAIN:  # ghosts without an edge are left out (gpu_baselines.part)
        train = model.spec.num_train / (counts.parts * counts.vertices)
        ghosts *= reach.share_of_ghosts_among(train, counts.among, counts.crossing)
    found = []
    for step, products in zip(program.steps, products_of(model, lane), strict=True):
        if step.kind in TENSOR_KINDS:
            operands = n * item * products.columns
            seconds = card.product_s(n * products.flops, operands, orders=ORDERS + products.calls)
            found.append(StepWork(card=seconds))
        elif step.publishes:
            nbytes = ghosts * model.width(step.publishes) * item
            found.append(StepWork(card=card.product_s(0, 4 * nbytes, orders=2), peers=nbytes / others))
        elif step.kind is Kind.WU or step.gathers not in program.publisher:
            found.append(StepWork())
        else:
            found.append(
                StepWork(card=card.gather_s(counts.gathered(lane) * counts.edges, n, item * model.width(step.gathers)))
            )
    return found
