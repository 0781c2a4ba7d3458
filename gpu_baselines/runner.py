"""The loop around a method: epochs, evaluations, early stopping, metrics, checkpoints; the same for all methods.

Every rank runs it; rank 0 writes. What ends up in ``metrics.jsonl`` and in the result has the names of
``siafu train``'s, so that one judge reads both, and besides:

    bytes         sent by all ranks, by kind: halo, gradient, reduce, ... (of epochs, not of set-up and evaluation)
    seconds       of an epoch, by phase: compute, communicate, reduce, quantise; the mean over ranks
    evaluation_s  seconds of evaluations so far: training stands still meanwhile, and so does its clock (``time_s``)
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from gpu_baselines import rank_checkpoints
from gpu_baselines.clock import PHASES
from gpu_baselines.rank_checkpoints import Progress
from gpu_baselines.run import Method, Run
from siafu import __version__, model_file, run_files
from siafu.baseline import METHODS
from siafu.errors import Diverged, GnnError, nan_advice
from siafu.evaluation import is_checkpoint, is_evaluated, outcome
from siafu.metrics import METRICS
from siafu.run_files import Epoch, Evaluation, Record
from siafu.stopping import Stopping
from siafu.table import loaded

UNCOUNTED = frozenset({"setup", "evaluation"})  # kinds of traffic that are no epoch's


def made(run: Run) -> Method:
    """The method that the config names. Raises: ConfigError for a config that the method does not support."""
    found: Method = loaded(f"gpu_baselines.methods.{METHODS[run.baseline.method].program}")(run)
    return found


def train(run: Run, run_dir: Path, *, resume: bool, begun: float | None = None) -> dict[str, Any]:
    """Trains to the end; returns the result, equal on every rank. ``begun``: start of the process, by
    ``time.monotonic``; None: now."""
    return Runner(run, run_dir, resume=resume, begun=time.monotonic() if begun is None else begun).result()


class Runner:
    def __init__(self, run: Run, run_dir: Path, *, resume: bool, begun: float):
        self.run, self.dir = run, run_dir
        self.metric = METRICS[run.spec.target]
        self.method = made(run)
        self.progress = Progress()
        self._stopping = Stopping(run.config.train.stop_on)
        self._best_weights: dict[str, Any] = {}
        self._settled = False  # whether the first epoch is through: set-up ends in it
        if resume:
            self._resume()
        now = time.monotonic()
        self.progress.setup_s += now - begun
        self._started = now - self.progress.time_s - self.progress.evaluation_s

    def result(self) -> dict[str, Any]:
        train, progress = self.run.config.train, self.progress
        method, ranks = self.run.baseline.method, self.run.group.size
        self._record(
            {
                "event": "start",
                "siafu": __version__,
                "metric": self.metric.name,
                "method": method,
                "ranks": ranks,
                "setup_s": progress.setup_s,
            }
        )
        try:
            while not progress.stopped:
                if train.epochs:
                    self._epoch()
                if is_evaluated(progress.epoch - bool(train.epochs), train):
                    progress.stopped = self._evaluation()
                elif progress.epoch >= train.epochs:
                    progress.stopped = "epochs"
                if is_checkpoint(progress.epoch - 1, self.run.config.run):
                    self._save()
            progress.time_s = self._time_s()
            return self._result()
        finally:
            self.method.close()

    def _time_s(self) -> float:
        """Seconds of training so far, over all sessions."""
        return time.monotonic() - self._started - self.progress.evaluation_s

    # --- one epoch ----------------------------------------------------------------------------------------------------

    def _epoch(self) -> None:
        run, progress = self.run, self.progress
        run.clock.take()
        before = run.group.traffic.by_link(run.group.size)
        begin = time.monotonic()
        loss = self.method.epoch(progress.epoch)
        run.clock.synchronise()
        epoch_s = time.monotonic() - begin
        spent = run.clock.take()
        spent["compute"] = epoch_s - sum(spent.values())
        sent = self._sent_since(before)
        told = run.group.share([epoch_s, spent, sent])
        if not self._settled:
            self._settled = True
            run.group.settled()
        if not math.isfinite(loss):
            raise Diverged(f"epoch {progress.epoch}: the loss is {loss}; {nan_advice(progress.epoch)}")
        seconds = {phase: float(np.mean([one[1].get(phase, 0.0) for one in told])) for phase in PHASES}
        kinds = sorted({kind for one in told for kind in one[2]})
        total = {kind: sum(sum(one[2].get(kind, ())) for one in told) for kind in kinds}
        slowest = max(one[0] for one in told)
        for phase, value in seconds.items():
            progress.seconds[phase] += value
        for kind, nbytes in total.items():
            progress.bytes[kind] = progress.bytes.get(kind, 0) + nbytes
        links = np.array(progress.links or np.zeros((len(told), len(told)), int))
        for rank, (_, _, by_kind) in enumerate(told):
            for kind, row in by_kind.items():
                links[rank] += 0 if kind == "reduce" else np.array(row)  # that goes round in a ring
        progress.links = links.tolist()
        progress.losses.append(loss)
        progress.epoch_seconds.append(slowest)
        record: Epoch = {
            "event": "epoch",
            "epoch": progress.epoch + 1,
            "loss": loss,
            "time_s": self._time_s(),
            "evaluation_s": progress.evaluation_s,
            "epoch_s": slowest,
            "ghost_bytes": total.get("halo", 0) + total.get("gradient", 0),
            "bytes": total,
            "seconds": seconds,
            "usd": 0.0,
        }
        progress.epoch += 1
        self._record(record)

    def _sent_since(self, before: dict[str, list[int]]) -> dict[str, list[int]]:
        """Bytes that this rank has sent since ``before``, by kind and receiver."""
        group = self.run.group
        return {
            kind: [n - old for n, old in zip(row, before.get(kind, [0] * group.size), strict=True)]
            for kind, row in group.traffic.by_link(group.size).items()
            if kind not in UNCOUNTED
        }

    def _evaluation(self) -> str:
        """Evaluates; returns the reason to stop after it, or ""."""
        train, progress, run = self.run.config.train, self.progress, self.run
        trained_s, begin = self._time_s(), time.monotonic()
        tallies = [np.asarray(one) for one in run.group.share(self.method.tally().tolist())]
        tally = self.metric.merge(tallies)
        scores = self.metric.scores(tally)
        progress.evaluation_s += time.monotonic() - begin
        record: Evaluation = {
            "event": "evaluation",
            "epoch": progress.epoch,
            "time_s": trained_s,
            "evaluation_s": progress.evaluation_s,
            **scores,
        }
        progress.final = record
        val = scores["val"]
        if val is None or self._stopping.judge(val["acc"], val["loss"]):
            progress.best, self._best_weights = record, self.method.net.weights()
        self._record(record)
        run.clock.take()
        if progress.epoch >= train.epochs:
            return "epochs"
        if train.target_acc > 0 and val is not None and val["acc"] >= train.target_acc:
            return "target"
        return "patience" if train.patience > 0 and self._stopping.waited >= train.patience else ""

    def _record(self, record: Record) -> None:
        if self.run.group.rank:
            return
        with open(self.dir / run_files.METRICS, "a") as file:
            file.write(json.dumps(record) + "\n")

    # --- the end ------------------------------------------------------------------------------------------------------

    def _result(self) -> dict[str, Any]:
        run, progress, train = self.run, self.progress, self.run.config.train
        weights = self.method.net.weights()
        digests = set(run.group.share(model_file.digest(weights)))
        if len(digests) != 1:
            raise GnnError(f"ranks disagree on the final weights: {sorted(digests)}")
        epochs, later = progress.epoch, progress.epoch_seconds[1:] or progress.epoch_seconds
        if not run.group.rank:
            for name, kept in (("model", self._best_weights or weights), ("final", weights)):
                model_file.save_model(self.dir / f"{name}.safetensors", kept, run.spec, {"epoch": epochs})
        per_epoch, links = max(1, epochs), progress.links or [[0] * run.group.size] * run.group.size
        nbytes = {kind: total // per_epoch for kind, total in progress.bytes.items()}
        return {
            "method": run.baseline.method,
            "ranks": run.group.size,
            **outcome(progress.best, progress.final, train),
            "epochs": epochs,
            "stopped": progress.stopped,
            "train_seconds": progress.time_s,
            "evaluation_seconds": progress.evaluation_s,
            "epoch_seconds_median": float(np.median(later)) if later else 0.0,
            "seconds_per_epoch": {phase: total / per_epoch for phase, total in progress.seconds.items()},
            "bytes_per_epoch": nbytes,
            "bytes_per_link": [[n // per_epoch for n in row] for row in links],
            "ghost_bytes_per_epoch": nbytes.get("halo", 0) + nbytes.get("gradient", 0),
            "loss_history": progress.losses,
            "weights_digest": digests.pop(),
            "metric": self.metric.name,
            **self.method.facts(),
        }

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def _save(self) -> None:
        self.progress.time_s = self._time_s()
        rank_checkpoints.save(self.dir, self.run.group, self.method, self.progress, self._stopping, self._best_weights)

    def _resume(self) -> None:
        found = rank_checkpoints.load(self.dir, self.run.group, self.method)
        if found is not None:  # else it begins anew
            saved, self._best_weights = found
            self.progress = Progress(**saved["progress"])
            vars(self._stopping).update(saved["stopping"])
        if not self.run.group.rank:
            _cut_metrics(self.dir / run_files.METRICS, self.progress.epoch)


def _cut_metrics(file: Path, epoch: int) -> None:
    """Drops the lines of epochs that are trained again, and a line that was cut off. A new file replaces the old one,
    so that a reader sees all old lines or only the remaining ones."""
    text = file.read_text() if file.is_file() else ""
    lines = text[: text.rfind("\n") + 1].splitlines()
    kept = [line for line in lines if json.loads(line).get("epoch", 0) <= epoch]
    run_files.write_whole(file, "".join(f"{line}\n" for line in kept).encode())
