"""``python -m benchmarks``: what siafu is measured by, from a checkout. Not in the wheel."""

from __future__ import annotations

from collections.abc import Sequence

from siafu import __main__ as command_line

PROGRAM = command_line.Program(
    "python -m benchmarks",
    "Measure siafu: parts of it beside their peers, and whole runs under faults.",
    """first try:
  python -m benchmarks measure gather --graph 'synthetic:reddit-small?scale=0.05'
  python -m benchmarks VERB --help    every flag, with examples
""",
    {
        "measure": ("benchmarks.measure.cli", "measure one part of siafu beside its peers and this machine's limits"),
        "chaos": ("benchmarks.chaos.cli", "train while servers are killed and links broken, and check the results"),
    },
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; exit codes as of ``siafu``."""
    return command_line.main(argv, PROGRAM)


if __name__ == "__main__":
    command_line.entry(PROGRAM)
