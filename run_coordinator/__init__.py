"""A run from start to end: API and command line, its processes, its progress, recovery, and results."""
