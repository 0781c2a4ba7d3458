"""Launchers: the places where Lambdas run. A launcher invokes the function and reports how each invocation ended; it
decides nothing.

To add one: a class that keeps the contract of ``Launcher``, and its row in ``siafu.places.PLACES``, which also says
what follows from where it is. ``tests/contracts/test_launchers.py`` holds every launcher to the contract.
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
    """One graph server's. ``make`` may ask the service, and raises ConfigError or WorkerError for what cannot be."""

    #: Environments that this graph server may have at a time, by the service's own word.
    limit: int
    #: Whether ``close`` can do no more than hang up: what is in flight runs on at the
    #: service, and only that knows its bill.
    hangs_up: bool

    @classmethod
    def make(cls, config: Config, index: int, max_environments: int, on_done: OnDone, log_dir: Path) -> Launcher:
        """Of graph server ``index``, for at most ``max_environments`` at a time."""

    def invoke(self, payload: dict[str, Any], request_id: str) -> None:
        """Asks for an invocation and returns at once. ``on_done`` tells how it ended, exactly once for each ``invoke``
        that did not raise: also when the service refused it (``error`` is its code, ``billed_ms`` 0)."""

    def close(self) -> None:
        """Within 2 s: what is in flight is given up and reported as ended. May be called again."""


def build(config: Config, index: int, max_environments: int, on_done: OnDone, log_dir: Path) -> Launcher:
    """The launcher that the config names, for graph server ``index``. ConfigError if what it needs is not installed."""
    place = config.lambdas.place
    try:
        found = loaded(place.launcher)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"lambda.on = {config.lambdas.on}: {error.name} is not installed: {extras.install(place.extra)}"
        ) from error
    launcher: Launcher = found.make(config, index, max_environments, on_done, log_dir)
    return launcher
