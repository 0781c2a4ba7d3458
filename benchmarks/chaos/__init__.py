"""Chaos: a small graph is trained again and again on real processes that are killed,
stopped and misled by a seeded schedule.

``schedule`` says what goes wrong and when, ``trial`` lets one run suffer it, ``cli`` is ``python -m benchmarks chaos``.
Members run as ``member``, which puts a hub between that loses, doubles and corrupts messages, and dial through
``proxy``. Nothing of it is in a run that ``siafu train`` starts.
"""
