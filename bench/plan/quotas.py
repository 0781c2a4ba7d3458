"""What an option needs of an AWS account's quotas, and of other limits. Pure.

1. EC2 counts vCPUs of all standard families together; what an account may have depends on its age: only it can say.
2. Lambda: environments at once, 1,000 in a region unless more were asked for; ten requests a second for each of those; a
   thousand new environments of a function every ten seconds.
3. Lambda's network interfaces are one for each pair of subnet and security group, however many environments there are.
"""

from __future__ import annotations

from typing import Any

from bench import cost, prices, scale
from bench.plan.options import CONCURRENCY, Option
from bench.scale import AWS

STANDARD = "Standard (A, C, D, H, I, M, R, T, Z) instances"
#: Names and codes of EC2's quotas in Service Quotas.
ON_DEMAND, SPOT = (f"Running On-Demand {STANDARD}", "L-1216C47A"), (f"All {STANDARD} Spot Requests", "L-34B43A08")


def needed(option: Option) -> dict[str, Any]:
    """JSON. ``raise``: what is beyond the defaults, in words."""
    config, lambdas = option.config, option.config.lambdas
    name, code = SPOT if config.cloud.spot else ON_DEMAND
    param = prices.instance(config.cloud.param_instance, lambdas.region)
    servers, param_servers = option.in_pipe.servers, config.servers.param_servers
    each = -(-option.environments // servers)
    files = scale.MEASURED.fds_of_graph_server + 2 * each + 3 * (servers - 1) + 2 * param_servers
    found: dict[str, Any] = {
        "vcpus": servers * option.machine.vcpu + param_servers * param.vcpu,
        "vcpus_quota": {"name": name, "code": code},
        "endpoints": cost.num_endpoints(config),
        "volumes_gib": config.cloud.volume_gib * (servers + param_servers),
        "open_files_of_graph_server": {"needed": files, "default": AWS.server_fds},
    }
    beyond = [f"{files:,} open files of a graph server (ulimit -n)"] if files > AWS.server_fds else []
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
