"""``python -m infra.localstack``: install it, keep one running, or be the place of one run's Lambdas
(``run_coordinator/lambda_emulator.py``)."""

from siafu import start

start.without_working_folder()

import argparse
import json
import logging
import os
import secrets
import select
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from infra import function_setup
from infra.localstack import install
from infra.localstack.fit import package_for
from infra.localstack.stack import Stack
from siafu import config as configs
from siafu.config import Config
from siafu.errors import GnnError

EPILOG = """for example:
  python -m infra.localstack install                 once: 510 MB below ~/.cache/siafu, Python 3.11 needed
  siafu train cora --lambda-on localstack            starts one for the run
  python -m infra.localstack serve                   one that stays until Ctrl-C
  AWS_ENDPOINT_URL=http://localhost:4566 siafu train cora --lambda-on localstack
                                                     another's, with Docker: see lambda.callback_host
"""


BEAT_S = 0.5  # between two looks at whether LocalStack is still there


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m infra.localstack",
        description=__doc__,
        epilog=EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "verb", nargs="?", choices=("install", "serve"), help="without one: the place of a run's Lambdas"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="resolved config of the run")
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="where logs go")
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    try:
        if args.verb == "install":
            print(install.install())
        elif args.verb == "serve":
            serve()
        elif args.config is None or args.run_dir is None:
            parser.error("a verb, or --config and --run-dir, is needed")
        else:
            place(configs.load(args.config), args.run_dir)
    except GnnError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


def place(config: Config, run_dir: Path) -> None:
    """Deploys the run's function, prints where, and serves until stdin ends; then writes its logs to the run directory.
    stdin may have the number of invocations.

    An endpoint that the user's environment names (``AWS_ENDPOINT_URL``) is used instead of one of our own.
    """
    lambdas, name = config.lambdas, config.lambdas.function
    ours: Stack | None = None
    with ExitStack() as stack:
        if endpoint := os.environ.get("AWS_ENDPOINT_URL", "").strip():
            built = package_for(endpoint)
            name = f"{name}-{secrets.token_hex(4)}"  # others may use it
            stack.callback(function_setup.remove, name, endpoint, lambdas.region)
        else:
            ours = stack.enter_context(Stack(run_dir / "logs" / "localstack-service.log"))
            endpoint = ours.endpoint
            built = package_for(endpoint)
        definition = function_setup.Definition(
            name, built.path, lambdas.handler, built.runtime, built.arch, lambdas.memory_mb, lambdas.timeout_s
        )
        function_setup.deploy(definition, endpoint, lambdas.region)
        print(json.dumps({"endpoint": endpoint, "function": name, "callback_host": lambdas.callback_host}), flush=True)
        while not select.select([sys.stdin], [], [], BEAT_S)[0]:  # it is readable at its end: nobody writes
            if ours is not None:
                ours.check()
        invocations = int(sys.stdin.read() or 0)
        folder = run_dir / "logs" / "lambda-localstack"
        function_setup.collect_logs(name, folder, endpoint, lambdas.region, invocations)


def serve() -> None:
    """Runs a LocalStack until interrupted; prints the variables for boto3, the AWS CLI and localstack-client."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.getsignal(signal.SIGINT))
    log = Path(tempfile.gettempdir()) / f"localstack-{os.getpid()}.log"
    with Stack(log) as stack:
        print(f"export AWS_ENDPOINT_URL={stack.endpoint} AWS_REGION=us-east-1", end=" ")
        print("AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test", flush=True)
        print(
            f"LocalStack: functions run in {install.RUNTIME}; log {log}; Ctrl-C ends it and all in it", file=sys.stderr
        )
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
