"""MLflow: one experiment with one run in the file store RUN/mlruns; no server, and no telemetry."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would phone home from its first import on
os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # else it wants a database; its tools import file stores

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag


class MLflow:
    """``MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri RUN/mlruns``, or ``mlflow migrate-filestore``"""

    def __init__(self, run_dir: Path, settings: Mapping[str, Any]):
        self._client = MlflowClient(tracking_uri=(run_dir / "mlruns").resolve().as_uri())
        known = self._client.get_experiment_by_name("siafu")
        before = self._client.search_runs([known.experiment_id], max_results=1) if known else []  # the newest first
        if before:  # of a run that goes on
            self._id = before[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return  # its parameters stay: MLflow takes no other values for them
        experiment = known.experiment_id if known else self._client.create_experiment("siafu")
        self._id = self._client.create_run(experiment, run_name=run_dir.name).info.run_id
        shown = [Param(key, str(value)) for key, value in settings.items()]
        self._client.log_batch(self._id, params=shown, tags=[RunTag("siafu.run_dir", str(run_dir))])

    def log(self, step: int, values: Mapping[str, float]) -> None:
        now_ms = int(time.time() * 1000)
        self._client.log_batch(self._id, metrics=[Metric(name, value, now_ms, step) for name, value in values.items()])

    def close(self) -> None:
        self._client.set_terminated(self._id)
