"""Exchange of halo rows and their gradients between ranks: exact, late (PipeGCN), quantised (AdaQP)."""
