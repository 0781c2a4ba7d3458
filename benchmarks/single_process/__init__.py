"""One process, the whole graph: how fast the same mathematics can be where nothing is distributed."""
