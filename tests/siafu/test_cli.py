"""The command line: a mistake gives one line and exit code 2, ``--json`` one object, help answers for every verb."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import siafu
from run_coordinator import run_config
from run_coordinator.predict.plan import plan_of
from siafu import config as configs
from siafu import model_file
from siafu.__main__ import SIAFU, VERBS, entry, main, parsers
from siafu.baseline import BaselineConfig
from siafu.config import settings
from siafu.errors import ConfigError

QUICK = ("--backend", "cpu", "--epochs", "5", "--intervals", "2", "--quiet")
ISSUE_FLAGS = """
    --model --layers --hidden --epochs --lr --dropout --weight-decay --seed --parts --intervals --param-servers
    --backend --lambdas --lambda-memory --mode --staleness --partitioner --directed --feature-norm --target-acc --split
    --lambda-on --checkpoint-every --config --set --run-dir --json
"""
ISSUE_FIELDS = {
    "test_acc",
    "val_acc",
    "epochs",
    "train_seconds",
    "epoch_seconds_median",
    "loss_history",
    "lambda",
    "ghost_bytes_per_epoch",
    "lanes",
    "stash_peak_versions",
    "weights_digest",
    "run_dir",
}


def arrays(**changes):
    """A path of six vertices with two classes, as the npz format has it; a change to None leaves an array out."""
    first = np.arange(6) < 2
    made = {
        "edge_index": np.array([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]]),
        "num_nodes": 6,
        "num_features": 2,
        "num_classes": 2,
        "x": np.linspace(0, 1, 12, dtype=np.float32).reshape(6, 2),
        "y": np.array([0, 1, 0, 1, 0, 1]),
        "train_mask": first,
        "val_mask": np.roll(first, 2),
        "test_mask": np.roll(first, 4),
    }
    return {name: value for name, value in {**made, **changes}.items() if value is not None}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """The digits, prepared once."""
    folder = tmp_path_factory.mktemp("shards") / "digits"
    siafu.prepare("digits", folder, parts=2)
    return str(folder)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Runs, caches and relative paths stay in the test's own folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


# --- help -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_has_examples_and_fits_a_terminal(verb, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([verb, "--help"]) == 0
    said = capsys.readouterr().out
    assert f"usage: siafu {verb}" in said
    assert f"\n  siafu {verb}" in said[said.index("examples:") :]
    options = said[: said.index("examples:")].partition("sources:")[0]
    assert max(map(len, options.splitlines())) <= 110


def test_help_lists_every_verb_and_needs_no_numpy():
    code = "import sys; from siafu.__main__ import main; main(['--help']); sys.exit('numpy' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(f"\n    {verb} " in ended.stdout for verb in VERBS)


def test_train_has_every_flag_that_others_script_against(capsys):
    main(["train", "--help-all"])
    assert set(ISSUE_FLAGS.split()) <= set(capsys.readouterr().out.replace(",", " ").split())


def test_every_setting_has_a_help_text():
    assert [key for key, said in settings(BaselineConfig).items() if not said.text] == []


def test_without_a_verb_the_help_is_shown(capsys):
    assert main([]) == 2
    assert "siafu train" in capsys.readouterr().err


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"siafu {siafu.__version__}\n"


# --- the user's mistakes ----------------------------------------------------------------------------------------------

MISTAKES = [
    ("trian", "trian: no such verb, did you mean train?"),
    ("train nosuch", "source 'nosuch': must be a .npz, .parquet or .csv file, or one of archive, bsnap, dgl, digits"),
    ("train Digit", "source 'Digit': no such file or graph, did you mean digits?"),
    ("train .", "source '.': a folder without shards, tables or a graph in a format that siafu knows"),
    ("train nosuch.npz", "nosuch.npz: "),
    # What is wrong whatever the graph is is known before the graph is read.
    ("train nosuch.npz --model GCN", "model 'GCN': unknown, must be one of gcn, "),
    ("train nosuch.npz --model graphsage", "did you mean sage?"),
    ("train nosuch.npz --logger nope", "run.loggers: 'nope' is unknown"),
    ("train nosuch.npz --warm-start nowhere", "nowhere: not a model of siafu: no such file"),
    ("train digits more", "unknown argument more"),
    ("train synthetic:moon", "'moon' is not one of reddit-small"),
    ("train synthetic:amazon?size=3", "no option 'size'"),
    ("train --features x.csv", "--features is for graphs that are read, and 'digits' is made"),
    ("train --train-per-class 3", "unknown argument --train-per-class (a flag of siafu prepare)"),
    ("predict run --labels x.csv --graph", "argument --graph: expected one argument"),
    ("predict run --lr=0.1", "unknown argument --lr=0.1 (a flag of siafu train)"),
    ("search digits --lr 0.1 --grid lr=0.2,0.3", "search over lr: train.lr is also given one value; leave one of "),
    ("train --epohcs 3", "unknown argument --epohcs, did you mean --epochs?"),
    ("train --epoch 3", "unknown argument --epoch, did you mean --epochs?"),
    ("train --epochs", "argument --epochs: expected one argument"),
    ("train --epochs two", "train.epochs = 'two': must be an integer"),
    ("train --epochs -1", "train.epochs = -1: must be >= 0"),
    ("train --lr -0.1", "train.lr = -0.1: must be >= 0"),
    ("train --lr nan", "train.lr = 'nan': must be a finite number"),
    ("train --hidden -4", "model.hidden = [-4]: widths must be >= 1"),
    ("train --hidden 8,8", "model.hidden = [8, 8]: must be one width or model.layers - 1 = 1"),
    ("train --dropout 1", "model.dropout = 1.0: must be >= 0 and < 1"),
    ("train --parts 0", "data.parts = 0: must be >= 1"),
    ("train --lambdas -1", "lambda.count = -1: must be >= 0"),
    ("train --lambda-memory 64", "lambda.memory_mb = 64: must be >= 128"),
    ("train --checkpoint-every -1", "run.checkpoint_every = -1: must be >= 0"),
    ("train --guard --runs 2", "--guard: is for one run; with --runs, repeat the command to continue"),
    ("train --mode soon", "train.mode = 'soon': must be one of no-pipe, pipe, async"),
    ("train --mode pipe --staleness 1", "train.staleness = 1 needs train.mode = async, not pipe"),
    ("train --set =3", "--set =3: must be SECTION.KEY=VALUE"),
    ("clean --folder nosuch", "--folder nosuch: no such folder"),
    ("train --set epochs", "--set epochs: must be SECTION.KEY=VALUE"),
    ("train --set train.epoch=3", "train.epoch: unknown key; did you mean train.epochs?"),
    ("train --config nosuch.toml", "nosuch.toml: No such file"),
    ("train --json --epochs -1", "train.epochs = -1: must be >= 0"),
    ("baseline vanilla --ranks 2 nosuch", "source 'nosuch': must be"),  # a word after a flag is still the source
    ("baseline vanilla --ranks 2 digits more", "unknown argument more"),
    ("baseline vanilla digits --ranks 100000", "baseline.ranks = 100000: this machine has"),
    ("plan digits --within-usd -3", "--within-usd -3: must be >= 0"),
    ("plan digits --within-usd nan", "--within-usd nan: must be >= 0"),
    ("plan digits --set cloud.graph_instance=c9x.huge --set run.budget_usd=1", "c9x.huge in us-east-1: not among"),
    ("value", "nothing to compare"),
    ("prepare digits", "--out DIR is missing"),
    ("prepare digits --out d --parts two", "argument --parts: must be an integer, not 'two'"),
    ("prepare nosuch --out d", "source 'nosuch': must be"),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("line", "words"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_gives_one_line_and_exit_code_2(line, words, capsys):
    assert main([*line.split(), *(["--quiet"] if line.startswith("train") else [])]) == 2
    assert_one_line(capsys, words)


BAD_GRAPHS = {
    "has no array 'edge_index'": arrays(edge_index=None),
    "edge 4 has target vertex 9, must be in 0..5": arrays(edge_index=np.array([[0, 1, 2, 3, 4], [1, 2, 3, 4, 9]])),
    "label 7, must be in -1..1": arrays(y=np.array([0, 1, 0, 1, 0, 7])),
    "feature 0 of vertex 0 is nan, must be finite": arrays(x=np.full((6, 2), np.nan, np.float32)),
    "4 feature rows, must be 6": arrays(x=np.zeros((4, 2), np.float32)),
    "it has no training vertex": arrays(train_mask=np.zeros(6, bool)),
}


@pytest.mark.parametrize("words", BAD_GRAPHS)
def test_a_malformed_graph_gives_one_line_and_exit_code_2(words, capsys):
    np.savez("graph.npz", **BAD_GRAPHS[words])
    assert main(["train", "graph.npz", *QUICK]) == 2
    assert_one_line(capsys, words)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut off"])
def test_a_file_that_is_no_archive_gives_one_line(content, capsys, tmp_path):
    (tmp_path / "graph.npz").write_bytes(content)
    assert main(["train", "graph.npz", *QUICK]) == 2
    assert_one_line(capsys, "not a readable npz archive")


def test_more_parts_than_vertices(capsys):
    np.savez("graph.npz", **arrays())
    assert main(["train", "graph.npz", *QUICK, "--parts", "7"]) == 2
    assert_one_line(capsys, "7 partitions, must be in 1..6")


def test_parts_that_the_shards_do_not_have(shards, capsys):
    assert main(["train", shards, *QUICK, "--parts", "3"]) == 2
    assert_one_line(capsys, "data.parts = 3", "was prepared with 2")


def test_a_split_that_the_graph_does_not_have(shards, capsys):
    assert main(["train", shards, *QUICK, "--split", "1"]) == 2
    assert_one_line(capsys, "data.split = 1: the graph has 1 split(s)")


def test_a_model_that_does_not_exist_costs_no_run_directory(shards, capsys, tmp_path):
    assert main(["train", shards, *QUICK, "--model", "gcm"]) == 2
    assert_one_line(capsys, "model 'gcm': unknown, must be one of gcn, sage")
    assert not (tmp_path / "runs").exists()


def test_a_run_directory_that_cannot_be(shards, capsys, tmp_path):
    (tmp_path / "file").touch()
    for run_dir in ("file", "file/below"):
        assert main(["train", shards, *QUICK, "--run-dir", run_dir]) == 2
        assert_one_line(capsys, f"run.dir = {run_dir}: ", "file is no folder")


#: Flags that name what a verb writes -> command lines whose result has a file in its way. It is refused before work.
OUTPUTS = ("--out", "--plot", "--run-dir")
IN_THE_WAY = (
    *("train digits --run-dir file", "train digits --run-dir file/below", "train digits --runs 2 --run-dir file/below"),
    "baseline vanilla digits --run-dir file/below",
    "search digits --grid lr=0.1,0.2 --run-dir file/below",
    "value digits --contenders cpu --target 0.9 --run-dir file/below",
    "prepare digits --out file/below",
    *("convert digits --to npz --out file", "convert digits --to npz --out file/below"),
    "plan digits --plot file/below.png",
    *("predict run --out file/below.csv", "export run --to torch --out file/below", "evaluate run --plot file/p.png"),
    "report run --out file/below.html",
)
#: Others: of a run that is there, or made before anything is fetched.
ELSEWHERE = {"resume": ("--run-dir",), "attach": ("--run-dir",)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("line", IN_THE_WAY)
def test_where_nothing_can_be_written_costs_no_work(line, capsys, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    if " run " in line:
        siafu.train("digits", epochs=1, backend="cpu", mode="pipe", run_dir="run")
    # convert first: imported after prepare was changed, it would keep that function beyond this test
    monkeypatch.setattr("graph_data.convert.found_in", lambda source: pytest.fail("the graph was read"))
    monkeypatch.setattr("graph_data.prepare.found_in", lambda source: pytest.fail("the graph was read"))
    monkeypatch.setattr("run_coordinator.prepared.cached", lambda *args, **options: pytest.fail("it was prepared"))
    before = sorted(path.name for path in tmp_path.glob("[!.]*"))  # matplotlib and the cache begin with a dot
    assert main(line.split()) == 2
    said = capsys.readouterr().err.splitlines()
    assert len([one for one in said if not one.startswith("siafu value: a graph server")]) == 1
    assert "file" in said[-1]
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == before


def test_every_flag_of_a_result_has_such_a_line():
    _, verbs = parsers(SIAFU, VERBS)
    flags = {(verb, flag) for verb, of in verbs.items() for flag in OUTPUTS if flag in of._option_string_actions}
    shown = {(line.split()[0], flag) for line in IN_THE_WAY for flag in OUTPUTS if f" {flag} " in line}
    assert flags - {(verb, flag) for verb, several in ELSEWHERE.items() for flag in several} == shown


NO_FILE = (
    *("train no.csv", "train no.npz", "train e.csv --features no.npy", "train e.csv --labels no.csv#c"),
    *("train no.csv --runs 2", "baseline vanilla no.csv", "search no.csv --grid lr=0.1,0.2"),
    *("prepare no.csv --out o", "prepare no.npz --out o", "prepare no.pt --out o"),
    *("prepare e.csv --split no.npy --out o", "convert no.csv --to npz --out o"),
)


@pytest.mark.parametrize("line", NO_FILE)
def test_a_missing_file_is_told_before_anything_begins(line, capsys, tmp_path):
    (tmp_path / "e.csv").write_text("a,b\n1,2\n")
    assert main(line.split()) == 2
    assert re.fullmatch(r"siafu \w+: no\.\w+: no such file\n", capsys.readouterr().err)


def test_shards_do_not_replace_what_is_no_prepared_graph(capsys, tmp_path):
    (tmp_path / "thesis.txt").touch()
    assert main(["prepare", "digits", "--out", str(tmp_path)]) == 2
    assert_one_line(capsys, "exists and is not a prepared graph")


def assert_one_line(capsys, *words):
    """On stderr one line with the words, besides what says that work has begun; on
    stdout nothing, or the error as JSON."""
    said = capsys.readouterr()
    (line,) = [line for line in said.err.splitlines() if not line.startswith("preparing ")]
    assert line.startswith("siafu")
    assert [word for word in words if word not in line] == []
    if said.out:
        assert json.loads(said.out)["error"] in line


# --- runs -------------------------------------------------------------------------------------------------------------


def test_json_is_one_object_with_the_promised_fields(shards, capsys, tmp_path):
    run_dir = tmp_path / "run"
    assert main(["train", shards, *QUICK, "--json", "--checkpoint-every", "2", "--run-dir", str(run_dir)]) == 0
    said = capsys.readouterr()
    result = json.loads(said.out)
    assert said.err == ""
    assert result.keys() >= ISSUE_FIELDS
    assert result["lambda"].keys() >= {"invocations", "billed_ms", "gb_s", "relaunches", "duplicates"}
    assert result["lambda_cpu_share"] is None  # servers computed all
    assert (result["epochs"], len(result["loss_history"]), result["run_dir"]) == (5, 5, str(run_dir))
    files = {path.name for path in run_dir.iterdir()}
    assert files >= {"config.toml", "manifest.json", "metrics.jsonl", "model.safetensors", "result.json", "checkpoints"}


@pytest.mark.long
def test_checkpoints_are_the_weights_after_their_epoch(shards, tmp_path):
    """A run of two epochs ends where a longer one with the same settings passes."""
    common = {"backend": "cpu", "mode": "pipe", "intervals": 2, "seed": 3, "param_servers": 2}
    long = siafu.train(shards, **common, epochs=5, checkpoint_every=2, run_dir=str(tmp_path / "long"))
    short = siafu.train(shards, **common, epochs=2, run_dir=str(tmp_path / "short"))
    assert sorted(p.name for p in (long.dir / "checkpoints").iterdir()) == ["epoch-0002", "epoch-0004", "epoch-0005"]
    weights, spec = model_file.load_model(long.dir / "checkpoints" / "epoch-0002" / "model.safetensors")
    assert model_file.digest(weights) == short.result["weights_digest"]
    assert spec == model_file.load_model(short.dir / "model.safetensors")[1]


@pytest.mark.long
def test_a_run_is_repeated_from_its_own_config(shards, capsys, tmp_path):
    first = siafu.train(shards, mode="pipe", epochs=3, backend="cpu", hidden=8, run_dir=str(tmp_path / "first"))
    again = [
        "train",
        "--config",
        str(first.dir / "config.toml"),
        "--run-dir",
        str(tmp_path / "again"),
        "--json",
        "--quiet",
    ]
    assert main(again) == 0
    assert json.loads(capsys.readouterr().out)["weights_digest"] == first.result["weights_digest"]


def test_a_file_does_not_choose_what_code_lambdas_run(shards, capsys, tmp_path, monkeypatch):
    run = siafu.train(shards, mode="pipe", epochs=1, backend="cpu", hidden=8, run_dir=str(tmp_path / "run")).dir
    theirs = configs.load(run / "config.toml").replace({"lambda.handler": "trap.handler", "servers.backend": "lambda"})
    (run / "config.toml").write_text(configs.dump(theirs))
    (tmp_path / "trap.py").write_text("import pathlib; pathlib.Path(__file__).with_name('sprung').touch()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for line in (["train", "--config", str(run / "config.toml")], ["resume", str(run), "--epochs", "2"]):
        assert main([*line, "--quiet"]) == 2
        assert_one_line(
            capsys, "config.toml: lambda.handler = trap.handler: a file cannot choose what code Lambdas run"
        )
    assert plan_of(run, settings={}).config.lambdas.handler == configs.Lambda.handler  # of siafu predict
    assert not (tmp_path / "sprung").exists()
    said = run_config.settings_of(run_config.code_of(theirs)[1:])
    run_config.check_code(run / "config.toml", said)  # on the command line it may be said
    assert said == {"lambda.handler": "trap.handler"}


def test_a_run_directory_holds_one_run(shards, capsys):
    assert main(["train", shards, *QUICK, "--run-dir", "run"]) == 0
    assert "saved in    run\n" in capsys.readouterr().out
    assert main(["train", shards, *QUICK, "--run-dir", "run"]) == 2
    assert_one_line(capsys, "holds a run already")


def test_a_failed_run_gives_exit_code_1(shards, capsys):
    run = ["train", shards, *QUICK, "--run-dir", "runs/nan"]
    assert main([*run, "--lr", "1e300", "--json"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["type"] == "Diverged"
    assert "holds NaN or infinity" in said.err
    assert main(["runs", "--json"]) == 0
    assert [one["state"] for one in json.loads(capsys.readouterr().out)["runs"]] == ["diverged"]


def test_a_script_needs_no_main_guard(shards, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        import siafu
        run = siafu.train({shards!r}, epochs=3, backend="cpu", hidden=8)
        print(run.result["epochs"], sorted(run.weights()), len(run.metrics()))
        """)
    )
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "3 ['0.bias', '0.weight', '1.bias', '1.weight'] 7\n"


def test_python_names_an_argument_that_does_not_exist():
    with pytest.raises(ConfigError, match="epoch: unknown argument, must be one of"):
        siafu.train("digits", epoch=3)


def test_prepare_says_what_it_made(capsys, tmp_path):
    np.savez("graph.npz", **arrays())
    assert main(["prepare", "graph.npz", "--parts", "2", "--out", "shards", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["num_vertices"], made["num_edges"], made["num_partitions"]) == (6, 10, 2)
    assert main(["prepare", "graph.npz", "--out", "shards"]) == 0
    assert "graph: 6 vertices, 10 edges, 2 features, 2 classes; 1 partition(s)" in capsys.readouterr().out


def test_doctor_finds_that_this_machine_can_train(capsys):
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [check["what"] for check in report["checks"] if check["ok"]] == [
        "dense products",
        "arithmetic",
        "loopback",
        "local Lambda",
        "free disk",
    ]
    assert None not in report["packages"].values()


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (["train", ""], "an argument"),  # trained on the digits
        (["train", "--json", ""], "an argument"),
        (["predict", "run", "--graph", ""], "--graph"),  # predicted the run's own graph
        (["predict", "run", "--graph="], "--graph"),
        (["train", "digits", "--warm-start", ""], "--warm-start"),  # trained from random weights
        (["compare", "runs/a", ""], "an argument"),
        (["prepare", "e.csv", "--labels=", "--out", "x"], "--labels"),
    ],
)
def test_an_empty_argument_is_a_variable_that_is_not_set(argv, what, capsys):
    """The default was taken, without a word."""
    line = f"siafu {argv[0]}: {what} is empty: a shell variable that is not set?; see siafu {argv[0]} --help\n"
    assert (main(argv), capsys.readouterr().err) == (2, line)


def test_an_empty_value_of_a_setting_is_no_empty_argument(capsys):
    assert main(["train", "digits", "--set", "run.dir=", "--set", "train.lr=x"]) == 2
    assert "train.lr" in capsys.readouterr().err


@pytest.mark.parametrize(("before", "end"), [(signal.SIG_DFL, KeyboardInterrupt), (signal.SIG_IGN, SystemExit)])
def test_a_terminal_that_is_closed_stops_a_command_as_ctrl_c_does_but_for_nohup(monkeypatch, before, end):
    """Without it a run would lose what it has learnt since its last checkpoint."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setattr("siafu.__main__.streams.settle", lambda: None)
    monkeypatch.setattr("siafu.__main__.main", lambda program: signal.raise_signal(signal.SIGHUP) or 0)
    try:
        signal.signal(signal.SIGHUP, before)
        with pytest.raises(end):
            entry()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
