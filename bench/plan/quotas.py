"""What an option needs of an AWS account's quotas, and of other limits. Pure.

1. EC2 counts vCPUs of all standard families together, those of G and VT, and those of P, each on demand and on spot; what an
   account may have depends on its age: only it can say. Of G, VT and P a new one may have none.
2. Lambda: environments at once, 1,000 in a region unless more were asked for; ten requests a second for each of those; a
   thousand new environments of a function every ten seconds.
3. Lambda's network interfaces are one for each pair of subnet and security group, however many environments there are.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from bench import cost, prices, scale
from bench.plan.options import CONCURRENCY, Option
from bench.prices import Instance
from bench.scale import AWS

STANDARD = "Standard (A, C, D, H, I, M, R, T, Z)"
#: Class of instance types -> what EC2 calls it, and the codes of its quotas in Service Quotas, on demand and on spot.
CLASSES = {
    "standard": (STANDARD, "L-1216C47A", "L-34B43A08"), "g": ("G and VT", "L-DB2E81BA", "L-3819A6DF"),
    "p": ("P", "L-417A185B", "L-7212CCBC"),
}  # fmt: skip


def class_of(machine: Instance) -> str:
    """By the letters that a type begins with: g6e.xlarge is a G, gr6.4xlarge too; p5en.48xlarge a P."""
    letters = machine.name[: next((i for i, c in enumerate(machine.name) if c.isdigit()), 0)]
    return {"g": "g", "gr": "g", "vt": "g", "p": "p"}.get(letters, "standard")


def quota(name: str, *, spot: bool) -> dict[str, str]:
    """Of a class of instance types: name and code in Service Quotas."""
    types, on_demand, on_spot = CLASSES[name]
    if spot:
        return {"name": f"All {types} Spot Instance Requests", "code": on_spot}
    return {"name": f"Running On-Demand {types} instances", "code": on_demand}


def needed(option: Option) -> dict[str, Any]:
    """JSON. ``raise``: what is beyond the defaults, in words. ``vcpus_quota`` is that of graph servers, and of ranks;
    ``vcpus_by_quota`` has parameter servers' too."""
    config, lambdas = option.config, option.config.lambdas
    param = prices.instance(config.cloud.param_instance, lambdas.region)
    servers, param_servers = option.machines, config.servers.param_servers
    vcpus = Counter({class_of(option.machine): servers * option.machine.vcpu})
    volumes = config.cloud.volume_gib * (servers + param_servers)
    if option.backend == "vanilla":
        param_servers, volumes = 0, cost.volume_gib(config, "gpu")
    vcpus[class_of(param)] += param_servers * param.vcpu
    each = -(-option.environments // servers)
    files = scale.MEASURED.fds_of_graph_server + 2 * each + 3 * (servers - 1) + 2 * param_servers
    found: dict[str, Any] = {
        "vcpus": vcpus.total(),
        "vcpus_quota": quota(class_of(option.machine), spot=config.cloud.spot),
        "vcpus_by_quota": [
            quota(name, spot=config.cloud.spot) | {"needed": count} for name, count in vcpus.items() if count
        ],
        "endpoints": cost.num_endpoints(config),
        "volumes_gib": volumes,
        "open_files_of_graph_server": {"needed": files, "default": AWS.server_fds},
    }  # fmt: skip
    beyond = [f"{files:,} open files of a graph server (ulimit -n)"] if files > AWS.server_fds else []
    beyond += [
        f"{count} vCPUs of {CLASSES[name][0]} instances: a new account has none"
        for name, count in vcpus.items() if name != "standard"
    ]  # fmt: skip
    if option.environments:
        found |= {
            "lambda_concurrency": {"needed": option.environments, "default": CONCURRENCY},
            "lambda_requests_per_s": {
                "needed": option.environments / (lambdas.timeout_s - lambdas.margin_s),
                "allowed": float(AWS.requests_per_s_per_environment * max(CONCURRENCY, option.environments)),
            },
            "seconds_until_all_environments": 10 * option.environments / AWS.new_environments_per_10_s,
            "lambda_network_interfaces": 1,
        }  # fmt: skip
        if option.environments > CONCURRENCY:
            beyond.append(f"{option.environments:,} Lambda environments at once")
    return {**found, "raise": beyond}
