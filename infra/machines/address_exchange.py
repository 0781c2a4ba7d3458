"""Address exchange between an agent and the coordinator that it starts: two small files in the run directory.

Their names begin with a dot: they stay on the machine.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from siafu.errors import ConfigError

_PLACE = ".place.json"


@dataclass(frozen=True)
class Place:
    """A deployed machine, as a run's coordinator finds it."""

    bucket: str
    run: str
    data: str  # digest of the graph
    listen: str  # address that members dial
    endpoint: str = ""  # of a stand-in for S3
    region: str = ""
    poll_s: float = 1.0  # how often agents look for orders

    def write(self, run_dir: Path) -> None:
        (run_dir / _PLACE).write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def read(cls, run_dir: Path) -> Place:
        """The place that the agent wrote. ConfigError without one: on a laptop, this process does not start servers on
        AWS."""
        try:
            return cls(**json.loads((run_dir / _PLACE).read_text()))
        except OSError:
            raise ConfigError("run.on = aws: only a deployed machine can coordinate such a run") from None
