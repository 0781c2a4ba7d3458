"""A process that is killed at every named instant of saving: ``python -m tests.siafu.killed_saving FOLDER``.

It imports siafu once, then forks for each instant, so that all of them take a second. Prints how each child ended.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np

from siafu.checkpoints import Store, TrainingState
from siafu.faultpoints import POINTS, VARIABLE
from siafu.models import ModelSpec, build

SPEC = ModelSpec("gcn", 5, 3, 10, widths=(4,), seed=1)
NEW = 42
#: What lies there before version 42 is saved over it, of which one is kept: version -> which state of it.
BEFORE: dict[str, dict[int, int]] = {"first": {}, "later": {41: 0}, "again": {NEW: 1}, "taken back": {50: 0}}


def state(version: int, draw: int = 0) -> TrainingState:
    """A state like a run's: other bits for every version and draw."""
    rng = np.random.default_rng([version, draw])
    names = build(SPEC).init()

    def like() -> dict[str, np.ndarray]:
        return {name: rng.standard_normal(W.shape).astype(W.dtype) for name, W in names.items()}

    moments = {f"{moment}/{name}": value for moment in "mv" for name, value in like().items()}
    return TrainingState(
        version,
        {version: like(), 3: like(), version - 1: like()},
        {"steps": np.array(version, np.int64), **moments},
        {"losses": [float(loss) for loss in rng.random(version)], "draw": draw},
    )


def store(folder: Path, keep: int = 1) -> Store:
    return Store(folder, SPEC, "a digest", {"edges": "1"}, keep)


def folder_of(root: Path, case: str, point: str) -> Path:
    return root / case / point.replace("/", " ")


def main(root: Path) -> None:
    ends = {}
    for case, before in BEFORE.items():
        for point in POINTS:
            mine = store(folder_of(root, case, point))
            for version, draw in before.items():
                mine.save(state(version, draw))
            if not (pid := os.fork()):
                os.environ[VARIABLE] = point
                mine.save(state(NEW))
                os._exit(0)
            ends[f"{case}: {point}"] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(json.dumps(ends))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
