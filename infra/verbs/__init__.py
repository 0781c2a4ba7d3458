"""siafu's verbs about deployments: one module each."""
