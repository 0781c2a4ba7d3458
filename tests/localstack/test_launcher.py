"""The launcher `localstack` keeps the contract of all launchers: its tests, on functions that are deployed there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.contracts import test_launchers as contract
from tests.contracts.test_launchers import *  # noqa: F403 (its tests and fixtures)
from tests.localstack.conftest import Deploy, Place

pytestmark = pytest.mark.aws

# Limits that no function of Lambda's can be deployed with: 0.2 s and 64 MB.
# tests/localstack/test_function.py has others.
del globals()["test_deadline_ends_the_invocation_and_the_environment"]
del globals()["test_memory_above_the_limit_ends_the_environment"]


@pytest.fixture
def launcher() -> str:
    return "localstack"


@pytest.fixture
def start(place: Place, deploy: Deploy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[contract.Start]:
    def localstack(
        stack: ExitStack,
        outcomes: contract.Outcomes,
        handler: str,
        log_dir: Path,
        max_environments: int,
        memory_mb: int = 192,
        timeout_s: float = 60.0,
    ) -> Any:
        name = deploy(handler, memory_mb=memory_mb, timeout_s=timeout_s)
        return stack.enter_context(
            contract.caller(place.endpoint, name, outcomes, log_dir, max_environments, timeout_s)
        )

    monkeypatch.setitem(contract.LAUNCHERS, "localstack", localstack)
    with ExitStack() as stack:
        yield lambda handler, **limits: contract.Driver(stack, "localstack", handler, tmp_path, **limits)
