"""What tests of deployments share."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest


@pytest.fixture(scope="session", autouse=True)
def service_models_are_read_once() -> Iterator[None]:
    """moto forgets boto3's session after every test, and with it megabytes of parsed
    JSON that describe the services."""
    session = pytest.importorskip("botocore.session", reason="needs the extra aws")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "create_loader", cache(session.create_loader))
        yield
