"""A LocalStack for all tests of this folder: that of LOCALSTACK_ENDPOINT where it is set
(with Docker, say), else our own."""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra import function_setup, package, service
from infra.localstack.fit import package_for
from infra.localstack.stack import Stack
from tests.integration.processes import Training

pytestmark = pytest.mark.aws
ROOT = Path(__file__).parents[2]
ENDPOINT = "LOCALSTACK_ENDPOINT"  # no AWS_ENDPOINT_URL of the caller's comes so far: tests/surroundings.py
#: What functions of the tests' own are made of, beside the package.
HANDLERS = (
    "tests/__init__.py",
    "tests/integration/__init__.py",
    "tests/integration/handlers.py",
    "tests/lambda_funcs/__init__.py",
    "tests/lambda_funcs/handlers.py",
    "tests/localstack/__init__.py",
    "tests/localstack/handlers.py",
)


@dataclass(frozen=True)
class Place:
    """Where functions run. ``callback_host``: what they dial to get here; "" where
    they are processes of this machine."""

    endpoint: str
    callback_host: str

    @property
    def is_ours(self) -> bool:
        return not os.environ.get(ENDPOINT)

    def client(self, name: str):
        return service.client(name, service.LOCAL_REGION, self.endpoint)

    @property
    def callback(self) -> list[str]:
        """Arguments of ``siafu train`` by which functions reach its servers."""
        if not self.callback_host:
            return []
        return ["--set", f"lambda.callback_host={self.callback_host}", "--set", "servers.listen=0.0.0.0"]

    def arguments(self, function_name: str) -> list[str]:
        """Of ``siafu train``, for a function that is deployed."""
        settings = (f"lambda.endpoint={self.endpoint}", f"lambda.function={function_name}")
        return ["--lambda-on", "localstack", *(word for one in settings for word in ("--set", one)), *self.callback]


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if endpoint := os.environ.get(ENDPOINT):
        yield Place(endpoint, os.environ.get("LOCALSTACK_CALLBACK_HOST", "host.docker.internal"))
        return
    with Stack(tmp_path_factory.mktemp("localstack") / "localstack.log") as stack:
        yield Place(stack.endpoint, "")


@pytest.fixture(scope="session")
def zipped(place: Place, tmp_path_factory: pytest.TempPathFactory) -> package.Package:
    """The function's package, with the tests' handlers in it."""
    built = package_for(place.endpoint)
    copy = shutil.copy(built.path, tmp_path_factory.mktemp("package"))
    built = dataclasses.replace(built, path=Path(copy))
    with zipfile.ZipFile(built.path, "a") as archive:
        for name in HANDLERS:
            archive.write(ROOT / name, name)
    return built


Deploy = Callable[..., str]


@pytest.fixture
def deploy(place: Place, zipped: package.Package) -> Iterator[Deploy]:
    """Makes a function of a handler; returns its name. It is removed after the test."""
    names: list[str] = []

    def deploy(handler: str, *, memory_mb: int = 192, timeout_s: float = 60, reserved: int | None = None) -> str:
        name = f"siafu-test-{os.getpid()}-{next(_numbers)}"
        names.append(name)
        definition = function_setup.Definition(
            name, zipped.path, handler, zipped.runtime, zipped.arch, memory_mb, timeout_s, reserved
        )
        function_setup.deploy(definition, place.endpoint)
        return name

    yield deploy
    for name in names:
        function_setup.remove(name, place.endpoint)


_numbers = itertools.count()


def has_ended(pid: int) -> bool:
    """Whether it is dead, or a zombie that nobody has collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture(scope="session")
def local_digest(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """The weights that the ``local`` launcher ends with, for arguments of ``siafu train``."""
    known: dict[tuple[str, ...], str] = {}

    def digest(*arguments: str) -> str:
        if arguments not in known:
            with Training(tmp_path_factory.mktemp("local") / "run", *arguments, "--lambda-on", "local") as training:
                assert training.wait(120) == 0, training.errors
                known[arguments] = training.result["weights_digest"]
        return known[arguments]

    return digest
