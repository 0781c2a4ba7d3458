"""Continues runs: after a failure, after the death of their launcher, from a checkpoint."""
