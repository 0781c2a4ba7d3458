"""What LocalStack and we know our executor by. LocalStack's own Python reads this too: it imports nothing."""

from __future__ import annotations

#: Name of the executor in ``plugin/pyproject.toml``.
EXECUTOR = "siafu"
#: Where it says who it is.
WHO = "/_siafu/executor"
