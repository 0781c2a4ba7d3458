"""What an option needs of an AWS account's quotas, and of other limits. Pure.

1. EC2 counts vCPUs of all standard families together, those of G and VT, and those of P, each on demand and on
   spot, where P5 counts by itself; what an account may have depends on its age: only it can say. Of G, VT and P a new
   one may have none.
2. Lambda: environments at once, 1,000 in a region unless more were asked for; ten requests a second for each of those;
   a thousand new environments of a function every ten seconds.
3. Lambda's network interfaces are one for each pair of subnet and security group, however many environments there are.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from cost_planner.plan.asked import CONCURRENCY
from cost_planner.plan.options import Option
from siafu.pricing import cost

#: The soft limit that a process gets unless it asks for more.
SERVER_FILES = 1024
STANDARD = "Standard (A, C, D, H, I, M, R, T, Z)"
#: How names of its types begin. X, HPC, Inf and others have quotas of their own, of which we know no codes.
STANDARD_LETTERS = ("a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z")
#: Class of instance types -> its quotas in Service Quotas, on demand and on spot: what EC2
#: calls the types there, and a code.
CLASSES = {
    "standard": ((STANDARD, "L-1216C47A"), (STANDARD, "L-34B43A08")),
    "g": (("G and VT", "L-DB2E81BA"), ("G and VT", "L-3819A6DF")),
    "p": (("P", "L-417A185B"), ("P4, P3 and P2", "L-7212CCBC")),
    "p5": (("P", "L-417A185B"), ("P5", "L-C4BD4855")),
    "other": (("other", ""), ("other", "")),
}


def class_of(name: str) -> str:
    """The class of a type, by the start of its name: g6e.xlarge is a G, gr6.4xlarge too; p4d.24xlarge a P,
    p5en.48xlarge a P5, x2gd.large another."""
    letters, digit = re.match(r"([a-z]*)(\d?)", name).groups()  # type: ignore[union-attr]
    if letters == "p":
        return "p5" if digit == "5" else "p"
    return {"g": "g", "gr": "g", "vt": "g"}.get(letters, "standard" if letters in STANDARD_LETTERS else "other")


def quota(name: str, *, spot: bool) -> dict[str, str]:
    """The quota of a class of instance types: name and code in Service Quotas; no code for other types."""
    types, code = CLASSES[name][spot]
    called = f"All {types} Spot Instance Requests" if spot else f"Running On-Demand {types} instances"
    return {"name": called, "code": code}


def open_files(option: Option, alive: int) -> dict[str, int]:
    """Open files of one member of each role, as counted in /proc of running members. ``alive``: environments in the
    run, including those about to leave."""
    servers, q = option.machines, option.param_servers
    return {
        "graph server": 36 + 2 * -(-alive // servers) + 3 * (servers - 1) + 2 * q,
        "parameter server": 15 + alive + servers + 3 * (q - 1),
        "worker": 16 + 2 * q,
    }


def needed(option: Option) -> dict[str, Any]:
    """Quotas that an option needs, as JSON. ``raise``: needs above the defaults, in words. ``vcpus_quota`` is for graph
    servers, and for ranks; ``vcpus_by_quota`` includes parameter servers."""
    config, lambdas = option.config, option.config.lambdas
    servers, param_servers = option.machines, option.param_servers
    vcpus: Counter[str] = Counter()
    for name, count in option.vcpus_by_type.items():
        vcpus[class_of(name)] += count
    volumes = config.cloud.volume_gib * (servers + param_servers)
    if option.backend == "vanilla":
        volumes = cost.gpu_volume_gib(config)
    files = open_files(option, option.environments)["graph server"]
    found: dict[str, Any] = {
        "vcpus": option.vcpus,
        "vcpus_quota": quota(class_of(option.machine.name), spot=config.cloud.spot),
        "vcpus_by_quota": [
            quota(name, spot=config.cloud.spot) | {"needed": count} for name, count in vcpus.items() if count
        ],
        "endpoints": cost.num_endpoints(config),
        "volumes_gib": volumes,
        "open_files_of_graph_server": {"needed": files, "default": SERVER_FILES},
    }
    beyond = [f"{files:,} open files of a graph server (ulimit -n)"] if files > SERVER_FILES else []
    beyond += [
        f"{count} vCPUs of {CLASSES[name][config.cloud.spot][0]} instances: a new account has none"
        for name, count in vcpus.items()
        if name != "standard"
    ]
    if option.environments:
        found |= {
            "lambda_concurrency": {"needed": option.environments, "default": CONCURRENCY},
            "lambda_requests_per_s": {
                "needed": option.environments / (lambdas.timeout_s - lambdas.margin_s),
                "allowed": float(10 * max(CONCURRENCY, option.environments)),
            },
            "seconds_until_all_environments": option.environments / 100,
            "lambda_network_interfaces": 1,
        }
        if option.environments > CONCURRENCY:
            beyond.append(f"{option.environments:,} Lambda environments at once")
    return {**found, "raise": beyond}
