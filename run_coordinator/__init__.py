"""A run from start to end: its API and command line, the processes, what is followed, recovered and kept."""
