"""Runs on deployed machines: the agents there, the bucket between them and the laptop, the laptop's side of a run."""
