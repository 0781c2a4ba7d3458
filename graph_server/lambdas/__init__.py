"""The Lambda controller: which worker gets which task, how many workers, what failed and why. ``launchers/`` invoke."""
