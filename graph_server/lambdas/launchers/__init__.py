"""Launchers: the places where Lambdas run. A launcher invokes the function and reports how each invocation ended; it
decides nothing.

To add one: write a class that keeps the contract of ``Launcher``, and its row in ``siafu.places.PLACES``, which also
has the properties of the place. ``tests/contracts/test_launchers.py`` holds every launcher to the contract.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from lambda_funcs.invocation import Invocation
from siafu import extras
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.table import loaded

OnDone = Callable[[Invocation], None]  # called from a thread of the launcher's


class Launcher(Protocol):
    """The launcher of one graph server. ``make`` may ask the service, and raises ConfigError if the config cannot work,
    WorkerError if the service does not answer."""

    #: The most environments that this graph server may have at a time, by the service's own limits.
    limit: int
    #: Whether ``close`` can only hang up: invocations in flight go on at the service, which alone knows their bill.
    hangs_up: bool

    @classmethod
    def make(cls, config: Config, index: int, max_environments: int, on_done: OnDone, log_dir: Path) -> Launcher:
        """Makes the launcher of graph server ``index``, for at most ``max_environments`` at a time."""

    def invoke(self, payload: dict[str, Any], request_id: str) -> None:
        """Asks for an invocation and returns at once. ``on_done`` is called exactly once for each ``invoke`` that did
        not raise, with the outcome: also if the service refused it (``error`` is its code, ``billed_ms`` 0)."""

    def close(self) -> None:
        """Gives up invocations in flight and reports them as ended, within 2 s. May be called again."""


def build(config: Config, index: int, max_environments: int, on_done: OnDone, log_dir: Path) -> Launcher:
    """Makes the launcher that the config names, for graph server ``index``. Raises: ConfigError if a package that it
    needs is not installed."""
    place = config.lambdas.place
    try:
        found = loaded(place.launcher)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"lambda.on = {config.lambdas.on}: {error.name} is not installed: {extras.install(place.extra)}"
        ) from error
    launcher: Launcher = found.make(config, index, max_environments, on_done, log_dir)
    return launcher
