"""The CDK's own command line, pinned: deploys a cloud assembly through CloudFormation and shows the progress."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra import service
from siafu import extras
from siafu.errors import ConfigError, GnnError
from siafu.leash import Leash

#: npm's newest 3.0.0 is too old for our aws-cdk-lib.
CLI = "aws-cdk@2.1148.1"


def check() -> None:
    """Raises ConfigError, saying what to install, unless templates can be made here."""
    if shutil.which("node") is None:
        raise ConfigError("node is not installed: the CDK needs it, 20 or newer (https://nodejs.org)")
    os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "18,20")  # a box of ten lines
    try:
        import aws_cdk  # noqa: F401
        import cdk_nag  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed: {extras.install('infra')}") from None


def check_cli() -> None:
    if shutil.which("npx") is None:
        raise ConfigError("npx is not installed: it comes with npm, which comes with node (https://nodejs.org)")


def bootstrap(account: str, region: str, endpoint: str = "") -> None:
    """Makes the resources that the CDK needs once per account and region: a bucket for templates, roles. They stay."""
    _run(["bootstrap", f"aws://{account}/{region}"], region, endpoint)


def deploy(assembly: Path, stacks: Sequence[str], region: str, endpoint: str = "") -> None:
    """Makes these stacks, or changes them; the stacks that they use must exist or be among them. GnnError if one
    fails."""
    _run(
        [
            "deploy",
            *stacks,
            "--app",
            str(assembly),
            "--exclusively",
            "--require-approval",
            "never",
            "--concurrency",
            "4",
            "--progress",
            "events",
        ],
        region,
        endpoint,
    )


def _run(arguments: list[str], region: str, endpoint: str) -> None:
    """Runs a CDK command, with its output on stderr. The command ends when this process ends, for whatever reason:
    otherwise it would go on making stacks."""
    check_cli()
    command = ["npx", "--yes", CLI, *arguments, "--ci", "--no-notices", "--no-color"]
    leash = Leash()
    said: list[str] = []
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=_environment(os.environ, region, endpoint),
        start_new_session=True,
        pass_fds=(leash.fd,),
    )
    try:
        leash.tie(process.pid)
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                if shown := _shown(line):
                    said.append(shown)
                    print(shown, file=sys.stderr, flush=True)
        code = process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        leash.close()
        process.wait()
    if code:
        failed = [line for line in said if "FAILED" in line or "rror" in line] or said or [f"exit code {code}"]
        raise GnnError(f"cdk {arguments[0]}: {failed[0].strip()[:500]}")


def _environment(ours: Mapping[str, str], region: str, endpoint: str) -> dict[str, str]:
    found = {
        **ours,
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "CDK_DISABLE_VERSION_CHECK": "1",
        "CDK_DISABLE_CLI_TELEMETRY": "true",  # on by default (CDK guide, "CLI telemetry")
        "NODE_NO_WARNINGS": "1",
    }
    if endpoint:
        key, secret = service.stand_in_keys(ours)
        found |= {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ENDPOINT_URL_S3": endpoint,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
        }
        found.pop("AWS_SESSION_TOKEN", None)
    return found


#: Beginnings of lines that say nothing: node's age, what is behind names, that templates are on their way.
_IDLE = (
    "!!",
    "[Warning",
    "npm warn",
    "(node:",
    "Stack ARN:",
    "arn:",
    "Outputs:",
    "Trusted accounts",
    "Using default execution",
    "✨",
    "Acknowledge with",
)


def _shown(line: str) -> str:
    """The line as shown to the user; "" if it is not worth showing."""
    text = re.sub(r"\s+", " ", line).strip()
    idle = text.startswith(_IDLE) or "ExportsOutput" in text or re.search(r": (start|success): |^[\w-]+$", text)
    return "" if idle else text
