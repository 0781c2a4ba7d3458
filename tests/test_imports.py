"""Who may import whom, read from the syntax trees of every file that exists: ARCHITECTURE.md's rules, enforced."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from infra.imports import ROOT, files, imports, needed_by, shipped_to_lambda, source_of
from infra.localstack.stack import ROOMS as ROOMS_OF_LOCALSTACK

#: Room -> the other rooms that it may import.
ROOMS = {
    "siafu": set(),
    "datasets": {"siafu"},
    "graph_server": {"siafu", "lambda_funcs"},  # lambda_funcs only to launch the local pool
    "param_server": {"siafu"},
    "lambda_funcs": {"siafu"},
    "gpu_baselines": {"siafu"},
    # Machines that infra starts keep the contract of bench's hosts; what it runs functions in are lambda_funcs' environments.
    "infra": {"siafu", "bench", "lambda_funcs"},
    # bench starts the roles as processes. Preparing a graph is no role: it is a function from a source to files, which
    # ``siafu train`` calls before there is anything to start, and whose errors it shows as its own.
    "bench": {"siafu", "datasets"},
}
#: Benchmarks of parts, and the single process that servers are measured against, run those parts in their own process.
#: A plan runs the real scheduler and autotuner in simulated time.
INSIDE = {
    "bench/measure/": {"graph_server", "param_server"}, "bench/single/": {"graph_server", "param_server"},
    "bench/plan/": {"graph_server"},
}  # fmt: skip

#: Third-party package -> the only files (or rooms, with a slash at their end) that may import it.
ONLY_IN = {
    # A benchmark stands beside plain sockets, faults come between the hub and them, an intruder keeps to no rules of ours.
    "zmq": ("siafu/sockets.py", "bench/measure/echo.py", "bench/chaos/hub.py", "bench/acceptance/intruder.py"),
    "boto3": ("graph_server/launchers/", "infra/"),
    "botocore": ("graph_server/launchers/", "infra/"),
    "ray": ("siafu/ray_cluster.py",),  # where hosts and launchers come in
    # What exports are made of: read as text, and run in processes of their own.
    "torch": ("gpu_baselines/", "graph_server/backends/gpu.py", "bench/export/modules/"),
    "triton": ("gpu_baselines/kernels/",),
    "torch_geometric": ("bench/export/modules/geometric.py",),
    "dgl": ("bench/export/modules/dgl_nn.py",),
    "onnxruntime": ("bench/export/modules/at_work.py",),
    "tensorboard": ("bench/loggers/tensorboard.py",),
    "mlflow": ("bench/loggers/mlflow.py",),
    "wandb": ("bench/loggers/wandb.py",),
    "aws_cdk": ("infra/",),
    "cdk_nag": ("infra/",),
    "constructs": ("infra/",),
    "localstack": ("infra/",),
    "localstack_client": ("infra/",),
    "pymetis": ("datasets/",),
    "sklearn": ("datasets/",),
    "rich": ("siafu/progress.py", "datasets/inspection/show.py", "bench/"),
    "safetensors": ("siafu/checkpoint.py", "bench/", "gpu_baselines/"),
    "scipy": (
        "datasets/",
        "graph_server/",
        "bench/",
        "gpu_baselines/",
        "siafu/kernels/fallback.py",
        "siafu/kernels/attention_numpy.py",
        "siafu/kernels/bags.py",
    ),
    "matplotlib": ("datasets/inspection/plot.py", "bench/curves.py", "bench/report/"),
    "jinja2": ("bench/report/page.py",),
    "markupsafe": ("bench/report/page.py",),
    "pyarrow": ("datasets/",),
}

#: All that is installed there. tomli stands in for tomllib on Python 3.10, which Lambda no longer offers.
LAMBDA_PACKAGES = {"numpy", "zmq", "tomli"}

#: These decide; the clock and the random generator are arguments, and no byte leaves them.
PURE = (
    "siafu/tasks.py", "siafu/wire.py", "siafu/ops.py", "siafu/sparse.py", "siafu/errors.py", "siafu/models/*.py",
    "siafu/tensor_task.py", "siafu/address.py", "siafu/links.py", "siafu/keys.py", "siafu/gate.py", "siafu/evaluation.py",
    "graph_server/scheduler.py", "graph_server/autotune.py", "graph_server/dispatch.py", "graph_server/waiting.py",
    "graph_server/verdicts.py", "graph_server/timing.py", "graph_server/sizing.py", "graph_server/holding.py", "graph_server/throttle.py", "graph_server/thrift.py",
    "graph_server/shipping.py", "graph_server/workforce.py", "graph_server/timesheet.py", "graph_server/bill.py", "graph_server/placement.py",
    "param_server/stash.py", "param_server/summation.py", "param_server/optimisers.py", "siafu/schedules.py",
    "param_server/replica.py", "param_server/epoch.py", "param_server/parameters.py",
    "bench/cost.py", "bench/supervisor.py", "bench/ledger.py", "bench/actions.py", "bench/coordinator.py", "bench/states.py", "bench/usage.py", "bench/plan/bounds.py", "bench/plan/parts.py", "bench/plan/simulator.py", "bench/memory.py", "bench/intervals.py", "siafu/stopping.py", "siafu/baseline.py",
    "gpu_baselines/quantise.py", "gpu_baselines/assigner.py", "gpu_baselines/schedule.py", "gpu_baselines/budget.py",
    "gpu_baselines/collapse.py",
    "gpu_baselines/smoothing.py", "gpu_baselines/pool.py",
)  # fmt: skip
IMPURE_MODULES = {
    "zmq", "threading", "time", "random", "socket", "selectors", "select", "queue", "concurrent", "multiprocessing",
    "subprocess", "asyncio", "datetime",
}  # fmt: skip


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


SOURCES = [path for room in ROOMS for path in files(f"{room}/**/*.py")]
every_file = pytest.mark.parametrize("path", SOURCES, ids=name)


# --- the rules ----------------------------------------------------------------------------------------------------------


@every_file
def test_rooms_import_only_the_rooms_they_may(path):
    room = path.relative_to(ROOT).parts[0]
    inside = next((rooms for folder, rooms in INSIDE.items() if name(path).startswith(folder)), set())
    allowed = ROOMS[room] | {room} | inside
    assert {module.split(".")[0] for module in imports(path)} & ROOMS.keys() <= allowed


@every_file
def test_packages_stay_in_the_files_that_convert_their_errors(path):
    for module in imports(path):
        homes = ONLY_IN.get(module.split(".")[0])
        assert homes is None or name(path).startswith(homes), f"{module} belongs in {', '.join(homes)}"


@pytest.mark.parametrize("path", files(*PURE), ids=name)
def test_pure_files_have_no_clock_thread_socket_or_generator(path):
    assert {module.split(".")[0] for module in imports(path)} & IMPURE_MODULES == set()


def test_lambda_needs_numpy_and_pyzmq_alone():
    found = {path: {module.split(".")[0] for module in imports(path)} for path in shipped_to_lambda()}
    foreign = {
        f"{name(path)}: {package}"
        for path, packages in found.items()
        for package in packages - sys.stdlib_module_names - ROOMS.keys() - LAMBDA_PACKAGES
    }
    assert foreign == set()


def test_lambda_gets_the_leaf_modules_of_siafu_and_nothing_of_the_servers():
    found = {name(path) for path in shipped_to_lambda()}
    assert {path.split("/")[0] for path in found} <= {"siafu", "lambda_funcs"}
    assert {"siafu/ops.py", "siafu/sparse.py", "siafu/tasks.py", "siafu/errors.py"} <= found
    assert not {path for path in found if path.startswith("siafu/kernels/")}
    assert not found & {"siafu/checkpoint.py", "siafu/progress.py", "siafu/metrics.py", "siafu/__main__.py"}


def test_localstack_reaches_all_that_its_executor_needs():
    """What it cannot import there, it leaves out without a word, and looks for Docker."""
    found = needed_by("infra/localstack/executor.py")
    assert {path.relative_to(ROOT).parts[0] for path in found} <= set(ROOMS_OF_LOCALSTACK)
    packages = {module.split(".")[0] for path in found for module in imports(path)}
    assert packages - sys.stdlib_module_names - ROOMS.keys() <= {"localstack", "tomli"}


@pytest.mark.parametrize("path", files("siafu/__init__.py", "siafu/__main__.py"), ids=name)
def test_the_door_names_the_other_rooms_in_strings_alone(path):
    """``siafu --help`` must answer without numpy: both load what they name when it is asked for."""
    modules = {module.split(".")[0] for module in imports(path)}
    assert modules <= sys.stdlib_module_names | {"siafu"}


def test_no_file_is_called_after_nothing():
    nothing = {"utils", "util", "helpers", "helper", "common", "manager", "context", "misc"}
    assert {path.stem for path in SOURCES} & nothing == set()


def test_imports_make_no_cycle():
    """By module, imports inside functions included; a package's ``__init__`` counts where it is itself imported."""
    graph = {name(path): {name(s) for m in imports(path) if (s := source_of(m))} - {name(path)} for path in SOURCES}
    finished: set[str] = set()

    def visit(file: str, trail: tuple[str, ...]) -> None:
        assert file not in trail, " -> ".join((*trail[trail.index(file) :], file))
        if file not in finished:
            for imported in sorted(graph.get(file, ())):
                visit(imported, (*trail, file))
            finished.add(file)

    for file in graph:
        visit(file, ())


def test_the_reader_of_imports_sees_what_it_should(tmp_path):
    path = tmp_path / "sample.py"
    path.write_text(
        "import os.path, zmq\n"
        "from siafu import ops, __version__\n"
        "from siafu.models import gcn\n"
        "def late():\n    import torch.nn\n"
        "if typing.TYPE_CHECKING:\n    import boto3\nelse:\n    import tomli\n"
    )
    expected = {"os.path", "zmq", "siafu.ops", "siafu", "siafu.models.gcn", "torch.nn", "tomli"}
    assert imports(path) == expected
