"""``python -m gpu_baselines``: one rank."""

from siafu import start

start.without_working_folder()

import logging
import os
import sys
import time

BEGUN = time.monotonic()  # importing torch is most of a rank's start-up

from gpu_baselines.rank import main

if __name__ == "__main__":
    code = main(begun=BEGUN)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: we have seen a rank be "killed by SIGABRT" once, and suspect the interpreter's end, where Gloo's
    # threads and ours still wait for ranks that have left already. There is nothing left to tidy up.
    os._exit(code)
