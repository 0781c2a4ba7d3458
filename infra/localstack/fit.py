"""What functions must be made of at an endpoint: in our LocalStack they run on this machine, in others' in Lambda's images."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any

from infra import package
from infra.package import Package
from infra.wheels import Target
from infra.wheels import Target

#: Where our executor says who it is.
WHO = "/_siafu/executor"
PATIENCE_S = 10.0


def executor_at(endpoint: str) -> dict[str, Any] | None:
    """What our executor says of itself; None if functions run elsewhere there. Its Lambda service must have been called."""
    try:
        with urllib.request.urlopen(f"{endpoint}{WHO}", timeout=PATIENCE_S) as answer:
            found = json.loads(answer.read())
    except (OSError, urllib.error.URLError, http.client.HTTPException, ValueError):
        return None
    return found if isinstance(found, dict) and "runtime" in found else None


def package_for(endpoint: str) -> Package:
    """The function's package that an endpoint's functions can be made of, for this machine's architecture."""
    ours = executor_at(endpoint)
    if ours is not None:
        return package.build_here(runtime=ours["runtime"])
    return package.build(Target.here().arch)
