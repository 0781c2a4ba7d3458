"""``python -m param_server``: one parameter server of a run."""

import sys

from param_server.server import serve
from siafu.member import main

if __name__ == "__main__":
    sys.exit(main("param_server", serve))
