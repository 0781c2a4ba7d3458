"""A run that goes on: after a failure, after its launcher died, from a checkpoint."""
