"""Predicts what a run will take, before money is spent."""
