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
    """The parameters of one invocation's worker. Durations are in seconds, endpoints in ZeroMQ's form
    (``tcp://host:port``)."""

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
    core: float  # share of a core to compute with; 1: no limit, as on Lambda, which limits it itself
    keep_bytes: int  # bytes of constant rows to keep
    proxy: str
    wait_s: float  # the longest wait for an answer
    keys: Ring | None = None

    def to_event(self) -> dict[str, Any]:
        """Returns the assignment in JSON's types: an invocation's payload."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {
            **fields,
            "run_id": self.run_id.hex(),
            "spec": dataclasses.asdict(self.spec),
            "keys": self.keys and self.keys.dump(),
        }

    @classmethod
    def from_event(cls, event: dict[str, Any]) -> Assignment:
        """Parses an invocation's payload. Raises: ConfigError if a field is missing or invalid."""
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
