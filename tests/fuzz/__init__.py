"""A coverage-guided fuzzer of everything that siafu parses: ``python -m tests.fuzz TARGET --minutes 10``.

It exists because no fuzzing engine for Python installs with pip alone on every machine that tests run on, and what is
needed of one is little: which lines of our files an input reaches, inputs that reached new ones, and changes to them.

The promise under test: whatever the bytes, a parser returns or raises a GnnError of one line; within a second; within
memory that is a constant plus a factor of the input; and without a warning. Everything else is a finding.

    inputs.py      an input: named parts, as bytes on disk
    coverage.py    which edges between lines a call takes
    mutations.py   changes to bytes, seeded
    engine.py      the loop: pick, change, run, keep
    watch.py       the process that the loop runs in, and the one that sees it crash or hang
    targets/       one file per parser: its files, seeds, dictionary, structure
    corpus/        inputs that together take every edge found so far; in ``mended/`` those that were findings once
"""
