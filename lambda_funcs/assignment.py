"""The assignment of one invocation's worker, and its encoding as the invocation's payload. Pure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from siafu.errors import ConfigError
from siafu.keys import Ring
from siafu.models import ModelSpec


@dataclass(frozen=True)
class Assignment:
    """Durations in seconds, endpoints as ZeroMQ names them (``tcp://host:port``)."""

    worker: str
    graph_server: str
    index: int  # of the graph server
    param_servers: tuple[str, ...]
    run_id: bytes
    config_digest: str
    spec: ModelSpec
    idle_s: float
    margin_s: float
    prefetch: int
    core: float  # share of a core to compute with; 1: what there is, as where Lambda itself sees to it
    keep_bytes: int  # of rows that never change
    proxy: str
    wait_s: float  # for an answer, at most
    keys: Ring | None = None

    def to_event(self) -> dict[str, Any]:
        """The same in JSON's types: an invocation's payload."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {
            **fields,
            "run_id": self.run_id.hex(),
            "spec": dataclasses.asdict(self.spec),
            "keys": self.keys and self.keys.dump(),
        }

    @classmethod
    def from_event(cls, event: dict[str, Any]) -> Assignment:
        """Raises ConfigError if the event does not name what a worker needs."""
        try:
            spec = {**event["spec"], "widths": tuple(event["spec"]["widths"])}
            return cls(
                **{
                    **event,
                    "run_id": bytes.fromhex(event["run_id"]),
                    "param_servers": tuple(event["param_servers"]),
                    "spec": ModelSpec(**spec),
                    "keys": Ring.load(keys) if (keys := event.get("keys")) is not None else None,
                }
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"not the event of an invocation: {error!r}") from error
