"""The loss, and the step of the weights: the same in all full-graph methods."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from gpu_baselines.net import Net
from gpu_baselines.run import Run
from siafu import models
from siafu.models import ModelSpec
from siafu.schedules import learning_rate


def loss_of(spec: ModelSpec, logits: Tensor, labels: Tensor) -> Tensor:
    """The loss summed over rows, as in ``ModelSpec.loss``. labels int64 [n], or [n, C] of 0 and 1, or numbers [n] or
    [n, C]."""
    if spec.target == "numbers":
        return (
            functional.mse_loss(logits, labels.reshape(logits.shape).to(logits.dtype), reduction="sum")
            / logits.shape[1]
        )
    if spec.multilabel:
        both = functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="sum")
        return both / logits.shape[1]
    return functional.cross_entropy(logits, labels, reduction="sum", label_smoothing=spec.label_smoothing)


class Learner:
    """An optimiser over the gradients of all ranks."""

    def __init__(self, run: Run, net: Net):
        self._run, self.net = run, net
        train, rest = run.config.train, models.build(run.spec).rest
        apart = train.weight_decay_rest >= 0
        groups = [
            {"params": [W], "weight_decay": train.weight_decay_rest if apart and rest(name) else train.weight_decay}
            for name, W in net.named()
        ]
        self.optimiser: torch.optim.Optimizer = (
            torch.optim.Adam(groups, lr=train.lr)
            if train.optimizer == "adam"
            else torch.optim.SGD(groups, lr=train.lr, momentum=train.momentum)
        )

    def step(self, epoch: int, loss: Tensor) -> float:
        """Sums gradients and loss over all ranks (one vector, one all-reduce) and steps; returns the loss of all
        ranks."""
        parameters = [W for _, W in self.net.named()]
        flat = torch.cat(
            [torch.zeros_like(W).flatten() if W.grad is None else W.grad.flatten() for W in parameters]
            + [loss.detach().reshape(1).to(parameters[0].dtype)]
        )
        with self._run.clock("reduce"):
            self._run.group.all_reduce(flat)
        self.apply(epoch, flat[:-1])
        return float(flat[-1])

    def apply(self, epoch: int, gradient: Tensor, norm: Tensor | None = None) -> None:
        """Steps with a gradient of all parameters, concatenated in the order of ``Net.named``.

        norm: of the whole net's gradient, if this one is of some layers only; None: it is of all.
        """
        train, parameters = self._run.config.train, [W for _, W in self.net.named()]
        for W, part in zip(parameters, gradient.split([W.numel() for W in parameters]), strict=True):
            W.grad = part.view_as(W).clone()
        if train.clip_norm:
            whole = torch.linalg.vector_norm(gradient) if norm is None else norm
            torch.nn.utils.clip_grads_with_norm_(parameters, train.clip_norm, whole)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(epoch, train)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        """The optimiser's state, by parameter: "optimiser.<parameter>.<what>"."""
        found = {}
        for name, W in self.net.named():
            for what, value in self.optimiser.state.get(W, {}).items():
                if isinstance(value, Tensor):
                    found[f"optimiser.{name}/{what}"] = value.detach().clone()
        return found

    def restore(self, state: dict[str, Tensor]) -> None:
        for name, W in self.net.named():
            mine = {
                key.partition("/")[2]: value for key, value in state.items() if key.startswith(f"optimiser.{name}/")
            }
            if mine:
                self.optimiser.state[W] = {
                    what: value if what == "step" else value.to(W.device, W.dtype) for what, value in mine.items()
                }
