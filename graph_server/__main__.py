"""``python -m graph_server``: one graph server of a run."""

import sys

from graph_server.server import serve
from siafu.member import main

if __name__ == "__main__":
    sys.exit(main("graph_server", serve))
