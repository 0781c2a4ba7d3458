"""The Lambda controller: gives tasks to workers, sets the number of workers, classifies failures. ``launchers/``
invoke.
"""
