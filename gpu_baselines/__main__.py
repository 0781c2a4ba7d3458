"""``python -m gpu_baselines``: one rank."""

from siafu import start

start.without_working_folder()

import logging
import os
import sys
import time

BEGUN = time.monotonic()  # importing torch is most of a rank's start-up

# For how long torch's threads (libgomp's) try again before they sleep, while they wait for each other. By default that
# is milliseconds, on a core that whoever they wait for may need: with one other busy process on two cores, an epoch of
# GraphSAGE on cora took 149 ms instead of 5 (medians of three), with this 17. Without any (OMP_WAIT_POLICY=PASSIVE) a
# quiet machine is slower, 8 ms.
if not os.environ.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
    os.environ["GOMP_SPINCOUNT"] = "10000"

from gpu_baselines.rank import main

if __name__ == "__main__":
    code = main(begun=BEGUN)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: we have seen a rank be "killed by SIGABRT" once, and suspect the interpreter's end, where Gloo's
    # threads and ours still wait for ranks that have left already. There is nothing left to tidy up.
    os._exit(code)
