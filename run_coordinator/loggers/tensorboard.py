"""TensorBoard: event files in RUN/tensorboard, written by its own package, without TensorFlow or torch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import summary_v2
from tensorboard.summary.writer.event_file_writer import EventFileWriter


class TensorBoard:
    """``tensorboard --logdir RUN/tensorboard``"""

    def __init__(self, run_dir: Path, settings: Mapping[str, Any]):
        self._writer = EventFileWriter(str(run_dir / "tensorboard"))
        shown = {
            key: value if isinstance(value, int | float | bool | str) else str(value) for key, value in settings.items()
        }
        self._add(summary=summary_v2.hparams_pb(shown, trial_id=run_dir.name))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        found = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(step=step, summary=Summary(value=found))

    def close(self) -> None:
        self._writer.close()

    def _add(self, **fields: Any) -> None:
        self._writer.add_event(Event(wall_time=time.time(), **fields))
