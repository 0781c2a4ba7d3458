"""Places where Lambdas can run (``lambda.on``), and what each means for threads, memory, prices and plans. Pure.

A new place needs a launcher (``graph_server.lambdas.launchers``), its row here, and its name in ``Where``. Code
compares the name only for work that this place alone needs (start LocalStack, sign in to AWS); all other code reads
these properties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Lambda memory that comes with one core, MB (AWS Lambda's documentation); less has a share of it.
CORE_MB = 1769
#: Rate of a Lambda's link each way, in bytes a second: an assumption, AWS publishes no figure.
LINK_BYTES_PER_S = 75e6
#: Time from an invocation to a new environment's first message: an assumption.
COLD_START_S = 0.4
#: In place of an address to listen on: Unix sockets, if all members are processes of one Linux machine.
UNIX = "unix"

Where = Literal["local", "localstack", "aws", "ray"]


@dataclass(frozen=True)
class Place:
    launcher: str  # "module:Class" that invokes the function there
    # environments share their graph server's cores and memory; else each has a core and a link of its own
    same_machine: bool
    billed: bool  # whether AWS bills it; else the bill estimates Lambda's charge
    from_deployment: bool  # machines of siafu deploy reach it
    extra: str = ""  # of pyproject.toml, with the client's packages; empty: none is needed


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
