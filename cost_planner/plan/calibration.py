"""A measured machine: the constants of the model behind ``siafu plan``, and the model's error with them.

A calibration is a JSON file in the user's cache, one per machine; without one, the measurements of the developers'
machine count.
"""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from cost_planner.plan.memory_traffic import Bandwidth
from cost_planner.plan.speeds import Speeds
from siafu.config import cache_folder
from siafu.errors import ConfigError

#: Of the machine's memory: what ``machine_rates`` measures and a calibration keeps.
OF_MEMORY = ("memory_gb_per_s", "random_gb_per_s", "cache_mib", "core_cache_mib")


def own_path() -> Path:
    """The path of this machine's calibration: several machines may share a home directory."""
    return cache_folder() / f"calibration-{platform.node() or 'this'}.json"


@dataclass(frozen=True)
class Calibration:
    speeds: Speeds = field(default_factory=Speeds)
    error: float = 0.14  # of predicted epoch times, relative: nine in ten are closer
    machine: str = "2 cores of an AMD EPYC"
    measured: str = "2026-11-28"  # ISO date
    # Of the machine's memory: copies, and rows at random; its last-level cache, and each core's. None: not measured.
    memory_gb_per_s: float | None = None
    random_gb_per_s: float | None = None
    cache_mib: float | None = None
    core_cache_mib: float | None = None

    @property
    def memory(self) -> Bandwidth:
        if self.memory_gb_per_s is None or self.random_gb_per_s is None or self.cache_mib is None:
            return Bandwidth()
        random = min(1.0, self.random_gb_per_s / self.memory_gb_per_s)
        found = Bandwidth(self.memory_gb_per_s * 1e9, self.cache_mib * 2**20, random)
        return found if self.core_cache_mib is None else replace(found, core_cache_bytes=self.core_cache_mib * 2**20)

    @classmethod
    def load(cls, path: Path | None = None) -> Calibration:
        """Loads a calibration. None: the last one of this machine, or else the built-in one. ConfigError for an invalid
        file."""
        if path is None:
            try:
                path = own_path()
            except ConfigError:  # no home, so that nothing was kept
                return cls()
            if not path.is_file():
                return cls()
        try:
            found = json.loads(path.read_text())
            measured = {name: float(found[name]) for name in OF_MEMORY if found.get(name) is not None}
            speeds = {name: float(value) for name, value in found["speeds"].items()}
            if odd := speeds.keys() ^ asdict(Speeds()).keys():  # built-in ones would not fit those that it has
                raise ConfigError(
                    f"{path}: a calibration by another version of siafu ({', '.join(sorted(odd))}): repeat siafu plan "
                    "--calibrate, or delete it"
                )
            return cls(**{**found, **measured, "speeds": Speeds(**speeds)})
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError(f"{path}: no calibration: {error}") from None

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")
