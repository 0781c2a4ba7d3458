"""Places where Lambdas can run (``lambda.on``), and what each means for threads, memory, prices and plans. Pure.

A new place is a launcher (``graph_server.lambdas.launchers``), its row here, and its name in ``Where``. The name is
asked for where something is done for that place alone (LocalStack is started, AWS is signed in to); all else asks these
facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Lambda memory that comes with one core, MB (AWS Lambda's documentation); less has a share of it.
CORE_MB = 1769
#: Of a Lambda's link each way, in bytes a second: an assumption, AWS publishes no figure.
LINK_BYTES_PER_S = 75e6
#: From an invocation to a new environment's first words: an assumption.
COLD_START_S = 0.4
#: What members listen on instead of an address where all of them are processes of one Linux machine: Unix sockets.
UNIX = "unix"

Where = Literal["local", "localstack", "aws", "ray"]


@dataclass(frozen=True)
class Place:
    launcher: str  # "module:Class": what invokes the function there
    # environments share their graph server's cores and memory; else each has a core and a link of its own
    same_machine: bool
    billed: bool  # by AWS; else the bill says what Lambda would charge
    from_deployment: bool  # machines of siafu deploy reach it
    extra: str = ""  # of pyproject.toml: what brings the client; empty: nothing more is needed


PLACES: dict[Where, Place] = {
    "local": Place(
        "lambda_funcs.local_pool:LocalPool",
        same_machine=True,
        billed=False,
        from_deployment=True,
    ),
    "localstack": Place(
        "graph_server.lambdas.launchers.endpoint:EndpointLauncher",
        same_machine=True,
        billed=False,
        from_deployment=False,
        extra="aws",
    ),
    "aws": Place(
        "graph_server.lambdas.launchers.endpoint:EndpointLauncher",
        same_machine=False,
        billed=True,
        from_deployment=True,
        extra="aws",
    ),
    "ray": Place(
        "graph_server.lambdas.launchers.ray:RayLauncher",
        same_machine=False,
        billed=False,
        from_deployment=False,
        extra="ray",
    ),
}
