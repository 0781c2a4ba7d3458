"""GNNPipe: each stage of a pipeline holds some layers of the whole graph, and chunks of the graph flow through.

parts      of the graph: see ``gpu_baselines.halos.held``
rows       a stage's last activations go to the next stage's rank of the same share, their gradients come back; GCNII's
           first representation goes along
step       once an epoch; every stage steps its own layers, and an epoch sends no weights. The whole net is gathered
           where it is wanted: in ``tally`` and ``state``, which every rank calls before anybody looks at ``net``
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpu_baselines import net as nets
from gpu_baselines.chunks import Chunk
from gpu_baselines.collapse import Setting, Watch, constant_loss
from gpu_baselines.halos.held import Held
from gpu_baselines.learner import Learner, loss_of
from gpu_baselines.masks import Masks
from gpu_baselines.net import Layer, Net
from gpu_baselines.part import Part
from gpu_baselines.run import Run, as_array
from gpu_baselines.schedule import bubble, tasks_of
from gpu_baselines.stages import Links, Place, empty
from siafu.metrics import METRICS
from siafu.sparse import Array
from siafu.tasks import Lane

Flow = tuple[list[Tensor], list[Tensor]]  # of a chunk in a stage: what came in, and what gradients begin at


class GNNPipe:
    def __init__(self, run: Run):
        self._run, self._place = run, (place := Place(run))
        self.net: Net = nets.build(run.spec, run.device)
        layers: list[Any] = list(self.net.layers)
        self._stages = [Net(run.spec, layers[mine.start : mine.stop]) for mine in place.layers]
        self._layers: list[Layer] = layers[place.layers[place.stage].start : place.layers[place.stage].stop]
        self._learner = Learner(run, self._stages[place.stage])
        self._masks = Masks(run.spec.dropout, run.spec.seed, run.device, run.dtype)
        self._held = Held(run, place, Lane.TRAIN, self._masks)
        inductive = run.shards.manifest.edge_types == "inductive"
        self._whole = Held(run, place, Lane.EVAL, self._masks) if inductive else self._held
        self._links = Links(run, place)
        self._watch = Watch(_constant(run, self._held.part) if run.baseline.recover else 0.0)
        # All that changes, beside weights and what is above:
        self._setting = Setting(run.baseline.freeze, self._held.num_parts)
        self._memory, self._chunks = self._held.chunks(self._setting.chunks)
        self._recoveries: list[dict[str, object]] = []
        self._begun: dict[str, Tensor] = {}  # weights and optimiser when the window of the watch began
        self._good: dict[str, Tensor] = {}  # when the best window began

    def epoch(self, epoch: int) -> float:
        if not self._good:
            self._begun = self._good = self._copied()
        loss, gradient, norm = self._pipelined(epoch)
        while self._recovered(epoch, loss):
            loss, gradient, norm = self._pipelined(epoch)
        self._learner.apply(epoch, gradient, norm)
        if not self._watch.losses:
            self._begun = self._copied()
        return loss

    # --- the pipeline -------------------------------------------------------------------------------------------------

    def _pipelined(self, epoch: int) -> tuple[float, Tensor, Tensor | None]:
        """The loss of the whole graph; this stage's gradient, in the order of ``Net.named``; and the norm of the net's
        gradient, if clipped."""
        run, place, links, count = self._run, self._place, self._links, len(self._chunks)
        self._learner.optimiser.zero_grad(set_to_none=True)
        self._remember()
        order = self._order(epoch)
        self._memory.begin(epoch, order, refresh=(epoch + 1) % self._setting.freeze == 0)
        sizes = [self._chunks[number].num_inner for number in order]
        loss = torch.zeros((), dtype=run.dtype, device=run.device)
        flows: dict[int, Flow] = {}
        for way, tasks in groupby(tasks_of(place.stage, place.num_stages, count), key=lambda task: task.way):
            if way == "forward" and not place.first:
                links.expect(way, sizes)
            if way == "backward" and not place.last:
                links.expect(way, sizes[::-1])
            for task in tasks:
                if way == "forward":
                    flows[task.place] = self._forward(self._chunks[order[task.place]])
                    loss += flows[task.place][1][0].detach() if place.last else 0
                else:
                    self._backward(*flows.pop(task.place))
        links.settle()
        self._memory.end()
        return self._summed(loss)

    def _forward(self, chunk: Chunk) -> Flow:
        place, state = self._place, dict[str, Tensor]()
        came = [] if place.first else [tensor.requires_grad_() for tensor in self._links.receive()]
        H: Any = chunk.features if place.first else came[0]
        if len(came) > 1:
            state["R"] = came[1]
        for layer in self._layers:
            H = layer(chunk, H, state)
        if place.last:
            part, rows = chunk.part, chunk.part.train
            return came, [loss_of(self._run.spec, H[rows], part.labels[rows]) / part.num_train]
        roots = [H, state["R"]] if place.copies > 1 else [H]
        self._links.send("forward", [tensor.detach() for tensor in roots])
        return came, roots

    def _backward(self, came: list[Tensor], roots: list[Tensor]) -> None:
        gradients = None if self._place.last else self._links.receive()
        torch.autograd.backward(roots, gradients)
        if came:
            self._links.send("backward", [torch.zeros_like(X) if X.grad is None else X.grad for X in came])

    def _summed(self, loss: Tensor) -> tuple[float, Tensor, Tensor | None]:
        run, place = self._run, self._place
        parameters = [W for _, W in self._stages[place.stage].named()]
        gradient = torch.cat(
            [torch.zeros_like(W).flatten() if W.grad is None else W.grad.flatten() for W in parameters]
        )
        with run.clock("reduce"):
            place.group.all_reduce(gradient)
            clipped = bool(run.config.train.clip_norm)
            square = gradient @ gradient if clipped and place.member == 0 else torch.zeros_like(loss)
            both = torch.stack([loss, square])
            run.group.all_reduce(both)
        return float(both[0]), gradient, both[1].sqrt() if clipped else None

    def _order(self, epoch: int) -> list[int]:
        """The order of chunks in an epoch; equal on all ranks."""
        count = len(self._chunks)
        if not self._run.baseline.shuffle:
            return list(range(count))
        rng = np.random.default_rng([self._run.spec.seed, epoch])
        return [int(number) for number in rng.permutation(count)]

    def _remember(self) -> None:
        """Fills the history of epoch 0 with the present weights' rows of the whole graph. This is set-up: its traffic
        belongs to no epoch."""
        if self._memory.remembers or len(self._chunks) == 1:
            return
        self._held.seen.rows = {}
        self._inferred(self._held, "setup")
        self._memory.history, self._memory.remembers, self._held.seen.rows = self._held.seen.rows, True, None

    # --- collapse -----------------------------------------------------------------------------------------------------

    def _recovered(self, epoch: int, loss: float) -> bool:
        """Whether training has collapsed and now starts over from good weights: the epoch must then be repeated."""
        given_up = bool(self._recoveries) and self._recoveries[-1]["chunks"] is None
        if not self._run.baseline.recover or given_up:
            return False
        verdict = self._watch.saw(loss)
        if verdict.best:
            self._good = self._begun
        if not verdict.collapsed:
            return False
        milder = self._setting.milder()
        freeze, chunks = milder or (None, None)
        self._recoveries.append({"epoch": epoch, "why": verdict.collapsed, "freeze": freeze, "chunks": chunks})
        if milder is None:
            return False
        self._put_back(self._good)
        self._begun = self._good  # the next window begins with these, and not with those of the one that collapsed
        self._watch.recovered()
        self._setting = milder
        self._memory, self._chunks = self._held.chunks(milder.chunks)
        return True

    def _copied(self) -> dict[str, Tensor]:
        if not self._run.baseline.recover:
            return {"": torch.zeros(0)}
        weights = {f"weights.{name}": W.detach().clone() for name, W in self._stages[self._place.stage].named()}
        return {**weights, **self._learner.state()}

    def _put_back(self, copied: dict[str, Tensor]) -> None:
        mine = self._stages[self._place.stage]
        with torch.no_grad():
            for name, W in mine.named():
                W.copy_(copied[f"weights.{name}"])
        self._learner = Learner(self._run, mine)
        self._learner.restore({name: tensor.clone() for name, tensor in copied.items()})  # steps are in place

    # --- evaluation ---------------------------------------------------------------------------------------------------

    def tally(self) -> Array:
        run, part = self._run, self._whole.part
        logits = as_array(self._inferred(self._whole, "evaluation"))
        self._gather()
        count = part.num_inner if self._place.last else 0
        if not self._place.last:
            logits = np.zeros((0, run.spec.num_classes), logits.dtype)
        return METRICS[run.spec.target].tally(logits, as_array(part.labels)[:count], part.split[:count])

    def _inferred(self, held: Held, kind: str) -> Tensor:
        """This stage's exact output on the whole graph; one stage after the other."""
        run, place, graph, state = self._run, self._place, held.graph, dict[str, Tensor]()
        H: Any = graph.features
        if not place.first:
            came = empty(run, place.copies, graph.num_inner, place.width_in)
            for tensor in came if graph.num_inner else ():
                run.group.receive(tensor, place.before)
            H, state = came[0], {"R": came[-1]}
        with torch.no_grad():
            for layer in self._layers:
                H = layer(graph, H, state)
        if not place.last and graph.num_inner:
            for tensor in [H, state["R"]] if place.copies > 1 else [H]:
                run.group.send(tensor, place.after, kind)
        return H

    def _gather(self) -> None:
        """Broadcasts every stage's weights to all ranks."""
        for stage, net in enumerate(self._stages if self._place.num_stages > 1 else ()):
            parameters = [W for _, W in net.named()]
            flat = torch.cat([W.detach().flatten() for W in parameters])
            self._run.group.broadcast(flat, stage * self._place.groups, "weights")
            with torch.no_grad():
                for W, part in zip(parameters, flat.split([W.numel() for W in parameters]), strict=True):
                    W.copy_(part.view_as(W))

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        self._gather()
        found = {
            **self._learner.state(),
            "setting": torch.tensor(self._setting),
            "watch": torch.tensor(self._watch.numbers(), dtype=torch.float64),
            "recoveries": torch.frombuffer(bytearray(json.dumps(self._recoveries).encode()), dtype=torch.uint8),
        }
        kept = {"history": {str(layer): rows for layer, rows in self._memory.history.items()}, "begun": self._begun}
        for where, tensors in {**kept, "good": self._good}.items():
            found |= {f"{where}:{name}": tensor.clone() for name, tensor in tensors.items()}
        return found

    def restore(self, state: dict[str, Tensor]) -> None:
        self._learner.restore(state)
        self._setting = Setting(*(int(value) for value in state["setting"]))
        self._memory, self._chunks = self._held.chunks(self._setting.chunks)
        self._watch.resume(state["watch"].tolist())
        self._recoveries = json.loads(bytes(state["recoveries"].numpy()).decode())
        found: dict[str, dict[str, Tensor]] = {"history": {}, "begun": {}, "good": {}}
        for key, tensor in state.items():
            where, colon, name = key.partition(":")
            if colon:
                found[where][name] = tensor if name.endswith("/step") else tensor.to(self._run.device)
        self._begun, self._good = found["begun"], found["good"]
        self._memory.history = {int(layer): rows for layer, rows in found["history"].items()}
        self._memory.remembers = True

    def facts(self) -> dict[str, object]:
        place = self._place
        return {
            "stages": place.num_stages,
            "groups": place.groups,
            "chunks": self._setting.chunks,
            "freeze": self._setting.freeze,
            "bubble": bubble(place.num_stages, self._setting.chunks),
            "layers_of_stages": [len(layers) for layers in place.layers],
            "recoveries": self._recoveries,
        }

    def close(self) -> None:
        self._links.close()


def _constant(run: Run, part: Part) -> float:
    """The loss of the best prediction that ignores the vertex. Collective."""
    spec, labels = run.spec, as_array(part.labels)[part.train.cpu().numpy()]
    if spec.target == "classes":
        sums = np.bincount(labels, minlength=spec.num_classes).astype(np.float64)
        squares = sums
    else:
        values = labels.reshape(len(labels), -1).astype(np.float64)
        sums, squares = values.sum(0), (values**2).sum(0)
    told = run.group.share([len(labels), sums.tolist(), squares.tolist()])[: run.baseline.groups]
    count = sum(one[0] for one in told)
    both = [np.sum([one[i] for one in told], axis=0).tolist() for i in (1, 2)]
    return constant_loss(spec.target, count, both[0], both[1], spec.label_smoothing)
