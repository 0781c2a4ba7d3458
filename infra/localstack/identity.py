"""The names by which LocalStack and siafu know our executor. LocalStack's own Python reads this file too, so it
imports nothing.
"""

from __future__ import annotations

#: Name of the executor in ``plugin/pyproject.toml``.
EXECUTOR = "siafu"
#: Where it says who it is.
WHO = "/_siafu/executor"
