"""Who may import whom, read from the syntax trees of every file that exists: ARCHITECTURE.md's rules, enforced."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from infra.imports import ROOT, files, imports, needed_by, shipped_to_lambda, source_of
from infra.localstack.stack import ROOMS as ROOMS_OF_LOCALSTACK

#: Room -> the other rooms that it may import.
ROOMS = {
    "siafu": set(),
    "graph_data": {"siafu"},
    "graph_server": {"siafu", "lambda_funcs"},  # lambda_funcs only to launch the local pool
    "param_server": {"siafu"},
    "lambda_funcs": {"siafu"},
    "gpu_baselines": {"siafu"},
    # The coordinator starts the roles as processes. Preparing a graph is no role: it is a function from a source to
    # files, which ``siafu train`` calls before there is anything to start, and whose errors it shows as its own.
    "run_coordinator": {"siafu", "graph_data", "lambda_funcs"},
    # A plan runs the real scheduler and autotuner in simulated time.
    "cost_planner": {"siafu", "graph_data", "graph_server", "run_coordinator"},
    # Machines that infra starts keep the contract of the coordinator's hosts.
    "infra": {"siafu", "graph_data", "lambda_funcs", "run_coordinator", "cost_planner"},
    # Not in the wheel. It reads the names, settings and parsers of siafu, which load the other rooms, and draws
    # simulated runs.
    "website": {"siafu", "run_coordinator", "cost_planner"},
    # Not in the wheel. Benchmarks of parts run them in their own process.
    "benchmarks": {
        "siafu",
        "graph_data",
        "graph_server",
        "param_server",
        "lambda_funcs",
        "gpu_baselines",
        "run_coordinator",
        "cost_planner",
        "infra",
    },
}
#: Third-party package -> the only files (or rooms, with a slash at their end) that may import it.
ONLY_IN = {
    # A benchmark stands beside plain sockets, faults come between the hub and them, an
    # intruder keeps to no rules of ours.
    "zmq": (
        "siafu/sockets.py",
        "benchmarks/measure/echo.py",
        "benchmarks/chaos/hub.py",
        "benchmarks/acceptance/intruder.py",
    ),
    "boto3": ("graph_server/lambdas/launchers/", "infra/"),
    "botocore": ("graph_server/lambdas/launchers/", "infra/"),
    "ray": ("siafu/ray_cluster.py",),  # where hosts and launchers come in
    # What exports are made of: read as text, and run in processes of their own. And what Gloo sends is measured.
    "torch": (
        "gpu_baselines/",
        "graph_server/backends/gpu.py",
        "run_coordinator/export/modules/",
        "benchmarks/acceptance/baselines/gloo.py",
    ),
    "triton": ("gpu_baselines/kernels/",),
    "torch_geometric": ("run_coordinator/export/modules/geometric.py",),
    "dgl": ("run_coordinator/export/modules/dgl_nn.py",),
    "onnxruntime": ("run_coordinator/export/modules/at_work.py",),
    "tensorboard": ("run_coordinator/loggers/tensorboard.py",),
    "mlflow": ("run_coordinator/loggers/mlflow.py",),
    "wandb": ("run_coordinator/loggers/wandb.py",),
    "aws_cdk": ("infra/",),
    "cdk_nag": ("infra/",),
    "constructs": ("infra/",),
    "localstack": ("infra/",),
    "localstack_client": ("infra/",),
    "pymetis": ("graph_data/",),
    "sklearn": ("graph_data/", "run_coordinator/evaluate/"),
    "rich": (
        "siafu/progress.py",
        "graph_data/get.py",
        "graph_data/inspection/show.py",
        "run_coordinator/",
        "cost_planner/",
        "benchmarks/",
    ),
    "shtab": ("siafu/completion.py",),
    "safetensors": ("siafu/model_file.py", "run_coordinator/", "cost_planner/", "benchmarks/", "gpu_baselines/"),
    "scipy": (
        "graph_data/",
        "graph_server/",
        "run_coordinator/",
        "cost_planner/",
        "benchmarks/",
        "gpu_baselines/",
    ),
    "matplotlib": (
        "graph_data/inspection/plot.py",
        "run_coordinator/curves.py",
        "cost_planner/report/",
        "cost_planner/plan/figure.py",
        "website/svg.py",
    ),
    "jinja2": ("cost_planner/report/page.py",),
    "markupsafe": ("cost_planner/report/page.py",),
    "pyarrow": ("graph_data/",),
}

#: All that is installed there. tomli stands in for tomllib on Python 3.10, which Lambda no longer offers.
LAMBDA_PACKAGES = {"numpy", "zmq", "tomli"}

#: These decide; the clock and the random generator are arguments, and no byte leaves them.
PURE = (
    "siafu/tasks.py",
    "siafu/wire.py",
    "siafu/ops.py",
    "siafu/sparse.py",
    "siafu/aws_identity.py",
    "siafu/errors.py",
    "siafu/table.py",
    "siafu/models/*.py",
    "siafu/tensor_task.py",
    "siafu/address.py",
    "siafu/message_numbers.py",
    "siafu/keys.py",
    "siafu/gate.py",
    "siafu/evaluation.py",
    "graph_server/scheduler.py",
    "graph_server/pool.py",
    "graph_server/interval_rows.py",
    "graph_server/lane_view.py",
    "graph_server/param_servers.py",
    "graph_server/arrivals.py",
    "graph_server/evaluation.py",
    "graph_server/ledger.py",
    "graph_server/lambdas/autotune.py",
    "graph_server/lambdas/dispatch.py",
    "graph_server/lambdas/waiting.py",
    "graph_server/lambdas/invoke_errors.py",
    "graph_server/lambdas/task_timeouts.py",
    "graph_server/lambdas/prefetch.py",
    "graph_server/lambdas/throttle.py",
    "graph_server/lambdas/out_of_memory.py",
    "graph_server/lambdas/shipping.py",
    "graph_server/lambdas/workforce.py",
    "graph_server/lambdas/step_times.py",
    "graph_server/lambdas/lambda_usage.py",
    "run_coordinator/task_spans.py",
    "param_server/stash.py",
    "param_server/summation.py",
    "param_server/optimisers.py",
    "siafu/schedules.py",
    "param_server/replica.py",
    "param_server/epoch.py",
    "param_server/parameters.py",
    "siafu/pricing/cost.py",
    "run_coordinator/recovery/supervisor.py",
    "run_coordinator/conditions.py",
    "run_coordinator/meter.py",
    "run_coordinator/epoch_totals.py",
    "run_coordinator/actions.py",
    "run_coordinator/coordinator.py",
    "run_coordinator/states.py",
    "run_coordinator/usage.py",
    "cost_planner/plan/bounds.py",
    "cost_planner/plan/memory_traffic.py",
    "cost_planner/plan/pairs.py",
    "cost_planner/plan/parts.py",
    "cost_planner/plan/products.py",
    "cost_planner/plan/simulator.py",
    "cost_planner/memory.py",
    "cost_planner/reach.py",
    "cost_planner/value/pairs.py",
    "cost_planner/value/judge.py",
    "cost_planner/value/rows.py",
    "cost_planner/value/finding.py",
    "run_coordinator/intervals.py",
    "siafu/stopping.py",
    "siafu/baseline.py",
    "gpu_baselines/halos/quantise.py",
    "gpu_baselines/halos/assigner.py",
    "gpu_baselines/schedule.py",
    "gpu_baselines/batches.py",
    "gpu_baselines/collapse.py",
    "gpu_baselines/halos/smoothing.py",
    "gpu_baselines/work_pool.py",
)
IMPURE_MODULES = {
    "zmq",
    "threading",
    "time",
    "random",
    "socket",
    "selectors",
    "select",
    "queue",
    "concurrent",
    "multiprocessing",
    "subprocess",
    "asyncio",
    "datetime",
}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


#: Files that name rooms above them in strings, loaded when called: the doors, and tables
#: that a room above has a line in.
TABLES = {
    "siafu/__init__.py": "the public names",
    "siafu/__main__.py": "the verbs",
    "siafu/config.py": "lambda.handler: the function that a new environment calls",
    "siafu/places.py": "PLACES: their launchers",
    "siafu/checkpoints.py": "MIRRORS: where checkpoints are copied to",
    "run_coordinator/api.py": "a run on a deployment, which one of its machines coordinates",
    "run_coordinator/doctor.py": "whether LocalStack is installed",
    "run_coordinator/hosts/__init__.py": "HOSTS",
    "run_coordinator/past_runs/deployments.py": "runs of a deployment",
    "run_coordinator/lambda_emulator.py": "LocalStack for a run",
}

SOURCES = [path for room in ROOMS for path in files(f"{room}/**/*.py")]


# --- the rules --------------------------------------------------------------------------------------------------------


def tops(path: Path) -> set[str]:
    """The top-level packages that a file imports."""
    return {module.split(".")[0] for module in imports(path)}


def named(path: Path, *, tables: bool = True) -> set[str]:
    """Modules of ours in a file's strings, as ``"room.module"``, ``"room.module.name"`` or, in ``tables``,
    ``"room.module:Class"``."""
    found: set[str] = set()
    text = path.read_text()
    if not re.search(rf"""["']({"|".join(ROOMS)})\.""", text):  # spares a second for all files
        return found
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            match = re.fullmatch(r"([a-z_]+(?:\.\w+)+)(:\w+)?", node.value)
            if match and (tables or not match[2]):
                longest = match[1] if source_of(match[1]) else match[1].rpartition(".")[0]
                if "." in longest and source_of(longest):
                    found.add(longest)
    return found


def test_rooms_import_only_the_rooms_they_may():
    """In strings and for type checkers as well; what is shipped does not import the tests."""
    wrong = {}
    for path in SOURCES:
        room = path.relative_to(ROOT).parts[0]
        modules = imports(path, checking=True) | (set() if name(path) in TABLES else named(path))
        others = {module.split(".")[0] for module in modules} & {*ROOMS, "tests"}
        if more := others - ROOMS[room] - {room} - ({"tests"} if room == "benchmarks" else set()):
            wrong[name(path)] = more
    assert wrong == {}


def test_each_table_still_names_a_room_above():
    for table in TABLES:
        room = table.split("/")[0]
        assert {module.split(".")[0] for module in named(ROOT / table)} - ROOMS[room] - {room} - {"tests"}, table


def test_packages_stay_in_the_files_that_convert_their_errors():
    wrong = {}
    for path in SOURCES:
        for package in tops(path) & ONLY_IN.keys():
            if not name(path).startswith(ONLY_IN[package]):
                wrong[name(path)] = f"{package} belongs in {', '.join(ONLY_IN[package])}"
    assert wrong == {}


def test_pure_files_have_no_clock_thread_socket_or_generator():
    assert all(files(pattern) for pattern in PURE), "a pattern that names no file"
    wrong = {name(path): found for path in files(*PURE) if (found := tops(path) & IMPURE_MODULES)}
    assert wrong == {}


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
    assert {"siafu/arithmetic.py", "siafu/kernels/library.py", "siafu/kernels/dense.py"} <= found
    assert not found & {"siafu/model_file.py", "siafu/progress.py", "siafu/metrics.py", "siafu/__main__.py"}


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
    """By module: imports inside functions, for type checkers and by name included; a package's
    ``__init__`` counts where it is itself imported. A table's line, which names a class, leads to those
    who keep the contract that stands beside it.
    """
    graph = {}
    for path in SOURCES:
        modules = imports(path, checking=True) | (set() if name(path) in TABLES else named(path, tables=False))
        graph[name(path)] = {name(s) for m in modules if (s := source_of(m))} - {name(path)}
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
    assert imports(path, checking=True) == expected | {"boto3"}
    path.write_text("T = {'a': 'infra.cdk:run'}\nimport_module('infra.cloud')\n'no.such'\n'infra.app.main', 'infra.x'")
    assert named(path) == {"infra.cdk", "infra.cloud", "infra.app"}
    assert named(path, tables=False) == {"infra.cloud", "infra.app"}
