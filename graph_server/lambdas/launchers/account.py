"""Asks the service about the function before a run: whether it matches the config, and how often it may run.

A graph server's credentials need these rights of Lambda: GetFunctionConfiguration, GetFunctionConcurrency and
InvokeFunction on the function, and GetAccountSettings, which has no resource.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from graph_server.lambdas.invoke_errors import Next, judge
from siafu.config import Config
from siafu.errors import ConfigError, WorkerError


def environments(client: Any, config: Config) -> int:
    """Returns how many environments one graph server may have at a time: its share of the function's.

    Raises: ConfigError if the function does not exist, differs from the config or may not run, naming both values;
    WorkerError if the service does not answer.
    """
    name = config.lambdas.function
    _check_function(_asked(client.get_function_configuration, FunctionName=name), config)
    reserved = _asked(client.get_function_concurrency, FunctionName=name).get("ReservedConcurrentExecutions")
    if reserved == 0:
        raise ConfigError(
            f"lambda.function = {name}: its reserved concurrency is 0, the kill switch: raise it to run anything"
        )
    account = _asked(client.get_account_settings)["AccountLimit"]
    left = int(account["UnreservedConcurrentExecutions"])
    # Unreserved concurrency is shared with other functions, also the one that removes the deployment: leave some.
    limit = left - max(1, left // 10) if reserved is None else int(reserved)
    if limit < config.data.parts:
        whose = "the account leaves it" if reserved is None else "it has reserved"
        raise ConfigError(
            f"lambda.function = {name}: {whose} {limit} environments at a time, "
            f"data.parts = {config.data.parts} graph servers need at least one each"
        )
    return limit // config.data.parts


def _check_function(deployed: dict[str, Any], config: Config) -> None:
    lambdas = config.lambdas
    if deployed.get("State") == "Failed":
        raise ConfigError(f"lambda.function = {lambdas.function}: it failed to deploy: {deployed.get('StateReason')}")
    wanted = {"memory_mb": ("MemorySize", lambdas.memory_mb), "timeout_s": ("Timeout", math.ceil(lambdas.timeout_s))}
    for key, (name, value) in wanted.items():
        if value and deployed[name] != value:
            raise ConfigError(
                f"lambda.{key} = {value}: {lambdas.function} was deployed with {deployed[name]}; "
                "deploy again, or set it so"
            )


def _asked(call: Callable[..., dict[str, Any]], **arguments: str) -> dict[str, Any]:
    """Calls the service and returns its answer; converts its errors to ours."""
    try:
        return call(**arguments)
    except ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
        raise _converted(code, f"{error.operation_name}: {message}") from error
    except BotoCoreError as error:
        raise _converted(type(error).__name__, str(error)) from error


def _converted(code: str, reason: str) -> ConfigError | WorkerError:
    verdict = judge(code, reason)
    return (ConfigError if verdict.next is Next.FAIL else WorkerError)(f"Lambda: {verdict.why}")
