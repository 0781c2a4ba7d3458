"""Runs on a Ray cluster: servers as actors."""
