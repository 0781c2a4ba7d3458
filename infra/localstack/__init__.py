"""LocalStack on this machine, without Docker: installed in an environment of its own,
started for a run, gone after it."""
