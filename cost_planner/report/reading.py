"""Reads run directories for a report: what judges them (``cost_planner.value.trained``), and what else they hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cost_planner.value import trained
from cost_planner.value.names import names_apart
from run_coordinator.task_spans import TraceLine
from siafu import run_files
from siafu.baseline import BaselineConfig
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.run_files import Epoch, Manifest, Record, Result


@dataclass(frozen=True)
class Run:
    contender: trained.Contender  # with the name that it has among the others
    records: Sequence[Record]  # of metrics.jsonl
    result: Result | None  # None while a run is under way, or if it failed
    manifest: Manifest

    @property
    def name(self) -> str:
        return self.contender.name

    @property
    def config(self) -> Config:
        return self.contender.config

    @property
    def is_baseline(self) -> bool:
        return isinstance(self.config, BaselineConfig)

    @property
    def has_gpu(self) -> bool:
        """Whether the run is priced as a machine with a GPU."""
        return self.is_baseline or self.config.servers.backend == "gpu"

    @property
    def parts(self) -> int:
        """Number of graph servers, or of a baseline's ranks."""
        return self.config.baseline.ranks if isinstance(self.config, BaselineConfig) else self.config.data.parts

    @cached_property
    def epochs(self) -> Sequence[Epoch]:
        return [record for record in self.records if record["event"] == "epoch"]

    @cached_property
    def traces(self) -> Mapping[int, Sequence[TraceLine]]:
        """Trace lines by graph server, in order of time; empty without ``--trace``."""
        found = {}
        for file in sorted(Path(self.contender.where).glob("trace-*.jsonl")):
            number = file.stem.removeprefix("trace-")
            if number.isdecimal():
                found[int(number)] = list(run_files.json_lines(file))
        return {server: found[server] for server in sorted(found) if found[server]}


def read(folders: Sequence[Path]) -> list[Run]:
    """Reads the finished runs. ``folders``: of runs, and of trials. ConfigError if one is no run directory, has an
    unreadable file, was never evaluated, or is of another graph."""
    folders = [run for folder in folders for run in trained.runs_in(folder)]
    if not folders:
        raise ConfigError("nothing to report: none of these runs is finished")
    contenders = [trained.read(folder) for folder in folders]
    graphs = trained.graphs(contenders)
    if len(graphs) > 1:
        raise ConfigError(f"runs of {len(graphs)} graphs ({', '.join(graphs[:3])}): a report is of one")
    names = names_apart([one.config for one in contenders])
    return [
        Run(
            dataclasses.replace(one, name=name),
            run_files.records(folder),
            run_files.result(folder),
            run_files.manifest(folder),
        )
        for one, name, folder in zip(contenders, names, folders, strict=True)
    ]
