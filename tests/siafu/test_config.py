"""The configuration: every field documented, every bad value refused in one line that names it, TOML there and back."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path
from typing import get_args

import pytest

from siafu import config
from siafu.config import Config, Servers, Train, cache_folder
from siafu.errors import ConfigError
from siafu.places import UNIX
from siafu.setting import types_of

FIELDS = [f"{section}.{key}" for section, values in Config().to_dict().items() for key in values]


def loaded(tmp_path, text: str) -> Config:
    path = tmp_path / "run.toml"
    path.write_text(text, encoding="utf-8")
    return config.load(path)


# --- there and back ---------------------------------------------------------------------------------------------------


def test_defaults_survive_toml(tmp_path):
    assert loaded(tmp_path, config.dump(Config())) == Config()


def test_an_empty_file_gives_the_defaults(tmp_path):
    assert loaded(tmp_path, "") == Config()


def test_values_of_every_type_survive_toml(tmp_path):
    changed = Config().replace(
        {
            "data.source": 'C:\\data\\"μ"\n🐜.npz',
            "data.directed": True,
            "model.layers": 4,
            "model.hidden": (64, 32, 16),
            "model.dtype": "float64",
            "train.lr": 1e-05,
            "train.epochs": 10**15,
            "lambda.margin_s": 0.0,
        }
    )
    assert loaded(tmp_path, config.dump(changed)) == changed
    assert changed.data.source == 'C:\\data\\"μ"\n🐜.npz'


def test_a_file_overrides_defaults_and_assignments_override_the_file(tmp_path):
    from_file = loaded(tmp_path, "[train]\nepochs = 7\nlr = 0.5\n\n[lambda]\nmemory_mb = 512\n")
    assert (from_file.train.epochs, from_file.train.lr, from_file.lambdas.memory_mb) == (7, 0.5, 512)
    assert from_file.train.optimizer == Config().train.optimizer
    assert from_file.replace({"train.lr": "0.25"}).train == dataclasses.replace(from_file.train, lr=0.25)


def test_the_dump_lists_every_field():
    assert re.findall(r"^(\w+) = ", config.dump(Config()), re.M) == [field.split(".")[1] for field in FIELDS]
    assert re.findall(r"^\[(\w+)\]$", config.dump(Config()), re.M) == list(Config().to_dict())


def test_sections_are_those_of_the_documentation():
    assert list(Config().to_dict()) == ["data", "model", "train", "servers", "lambda", "run", "cloud"]


# --- digest -----------------------------------------------------------------------------------------------------------


def test_equal_configs_have_equal_digests(tmp_path):
    digest = Config().digest
    assert re.fullmatch("[0-9a-f]{16}", digest)
    assert loaded(tmp_path, config.dump(Config())).digest == digest


@pytest.mark.parametrize(
    ("key", "value"), [("train.lr", 0.02), ("model.hidden", [17]), ("run.trace", True), ("data.source", "x")]
)
def test_any_other_value_changes_the_digest(key, value):
    assert Config().replace({key: value}).digest != Config().digest


# --- help -------------------------------------------------------------------------------------------------------------


def test_every_field_has_a_help_text():
    said = config.settings()
    assert list(said) == FIELDS
    assert [field for field in FIELDS if not said[field].text.strip()] == []


# --- strings from the command line ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("train.epochs", "12", 12),
        ("train.epochs", 12.0, 12),
        ("train.lr", "1e-3", 0.001),
        ("train.lr", 1, 1.0),
        ("run.trace", "true", True),
        ("run.trace", "False", False),
        ("train.mode", "pipe", "pipe"),
        ("data.source", "12", "12"),
        ("model.hidden", "32", (32,)),
        ("model.hidden", 32, (32,)),
        ("model.hidden", [32], (32,)),
        ("model.hidden", "[32]", (32,)),
        ("lambda.count", "8", 8),
    ],
)
def test_strings_are_parsed_as_the_field_asks(key, text, value):
    section, _, name = key.partition(".")
    found = Config().replace({key: text}).to_dict()[section][name]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", ["64,32", "64, 32", "[64, 32]", "64 32"])
def test_widths_may_be_separated_by_commas_or_blanks(text):
    assert Config().replace({"model.layers": 3, "model.hidden": text}).model.widths == (64, 32)


@pytest.mark.parametrize(
    ("layers", "hidden", "widths"),
    [(1, (16,), ()), (2, (16,), (16,)), (4, (16,), (16, 16, 16)), (3, (32, 8), (32, 8)), (2, (5,), (5,))],
)
def test_one_width_serves_every_hidden_layer(layers, hidden, widths):
    assert config.Model(layers=layers, hidden=hidden).widths == widths


# --- what is refused --------------------------------------------------------------------------------------------------


def names(section: type, key: str) -> str:
    """Of a table's lines, one more of which changes nothing here."""
    return ", ".join(get_args(types_of(section)[key]))


BAD = [
    # key                      value          message
    ("data.parts", 0, "data.parts = 0: must be >= 1"),
    ("data.split", -1, "data.split = -1: must be >= 0"),
    ("data.seed", -1, "data.seed = -1: must be >= 0"),
    ("data.train_per_class", 0, "data.train_per_class = 0: must be >= 1"),
    ("data.val_per_class", -1, "data.val_per_class = -1: must be >= 0"),
    ("data.feature_norm", "l2", "data.feature_norm = 'l2': must be one of none, row, standard"),
    ("data.directed", "yes", "data.directed = 'yes': must be true or false"),
    ("data.directed", 1, "data.directed = 1: must be true or false"),
    ("data.source", 3, "data.source = 3: must be a string"),
    ("model.layers", 0, "model.layers = 0: must be >= 1"),
    ("model.layers", "two", "model.layers = 'two': must be an integer"),
    ("model.layers", 2.5, "model.layers = 2.5: must be an integer"),
    ("model.layers", True, "model.layers = True: must be an integer"),
    ("model.layers", None, "model.layers = None: must be an integer"),
    ("model.hidden", [], "model.hidden = []: widths must be >= 1"),
    ("model.hidden", [0], "model.hidden = [0]: widths must be >= 1"),
    ("model.hidden", "a", "model.hidden = 'a': must be an integer"),
    ("model.hidden", [16, 8], "model.hidden = [16, 8]: must be one width or model.layers - 1 = 1"),
    ("model.activation", "gelu", "model.activation = 'gelu': must be one of relu, tanh, elu"),
    ("model.dropout", 1, "model.dropout = 1.0: must be >= 0 and < 1"),
    ("model.dropout", -0.1, "model.dropout = -0.1: must be >= 0 and < 1"),
    ("model.norm", "batch", "model.norm = 'batch': must be one of none, layer"),
    ("model.init", "zeros", "model.init = 'zeros': must be one of xavier, he"),
    ("model.dtype", "float16", "model.dtype = 'float16': must be one of float32, float64"),
    ("train.epochs", -1, "train.epochs = -1: must be >= 0"),
    ("train.lr", -1, "train.lr = -1.0: must be >= 0"),
    ("train.lr", "fast", "train.lr = 'fast': must be a finite number"),
    ("train.lr", "nan", "train.lr = 'nan': must be a finite number"),
    ("train.lr", float("inf"), "train.lr = inf: must be a finite number"),
    ("train.lr", True, "train.lr = True: must be a finite number"),
    ("train.lr", [0.1], "train.lr = [0.1]: must be a finite number"),
    ("train.optimizer", "lamb", f"train.optimizer = 'lamb': must be one of {names(Train, 'optimizer')}"),
    ("train.momentum", -0.1, "train.momentum = -0.1: must be >= 0"),
    ("train.momentum", 1.5, "train.momentum = 1.5: must be <= 1"),
    ("train.weight_decay", -1, "train.weight_decay = -1.0: must be >= 0"),
    ("train.schedule", "linear", "train.schedule = 'linear': must be one of constant, cosine, step"),
    ("train.step_epochs", 0, "train.step_epochs = 0: must be >= 1"),
    ("train.step_factor", -1, "train.step_factor = -1.0: must be >= 0"),
    ("train.seed", -1, "train.seed = -1: must be >= 0"),
    ("train.mode", "sync", "train.mode = 'sync': must be one of no-pipe, pipe, async"),
    ("train.staleness", -1, "train.staleness = -1: must be >= 0"),
    ("train.intervals", -1, "train.intervals = -1: must be >= 0"),
    ("train.ahead", -0.1, "train.ahead = -0.1: must be >= 0"),
    ("train.ahead", 1.1, "train.ahead = 1.1: must be <= 1"),
    ("train.freshness", 1.1, "train.freshness = 1.1: must be <= 1"),
    ("train.warmup_epochs", -1, "train.warmup_epochs = -1: must be >= 0"),
    ("train.eval_every", -2, "train.eval_every = -2: must be >= -1"),
    ("train.target_acc", 95, "train.target_acc = 95.0: must be <= 1"),
    ("train.patience", -1, "train.patience = -1: must be >= 0"),
    ("servers.param_servers", 0, "servers.param_servers = 0: must be >= 1"),
    ("servers.backend", "tpu", f"servers.backend = 'tpu': must be one of {names(Servers, 'backend')}"),
    ("servers.threads", -1, "servers.threads = -1: must be >= 0"),
    ("servers.heartbeat_s", 0, "servers.heartbeat_s = 0.0: must be >= 0.01"),
    ("servers.heartbeat_s", 30, "servers.heartbeat_s = 30.0: must be < servers.silence_s = 30.0"),
    ("servers.silence_s", 0, "servers.silence_s = 0.0: must be >= 0.1"),
    ("lambda.count", -1, "lambda.count = -1: must be >= 0"),
    ("lambda.memory_mb", 64, "lambda.memory_mb = 64: must be >= 128"),
    ("lambda.memory_mb", 20_000, "lambda.memory_mb = 20000: Lambda's limit is 10240"),
    ("lambda.timeout_s", 901, "lambda.timeout_s = 901.0: Lambda's limit is 900"),
    ("lambda.margin_s", 900, "lambda.margin_s = 900.0: must be < lambda.timeout_s = 900.0"),
    ("lambda.task_timeout_s", 0, "lambda.task_timeout_s = 0.0: must be >= 0.01"),
    ("lambda.relaunches", -1, "lambda.relaunches = -1: must be >= 0"),
    ("lambda.prefetch", -1, "lambda.prefetch = -1: must be >= 0"),
    ("run.trace", "on", "run.trace = 'on': must be true or false"),
]


@pytest.mark.parametrize(("key", "value", "message"), BAD, ids=[f"{key}={value!r}" for key, value, _ in BAD])
def test_a_bad_value_is_refused_in_one_line(key, value, message):
    with pytest.raises(ConfigError) as caught:
        Config().replace({key: value})
    assert str(caught.value) == message
    assert caught.value.exit_code == 2


def test_an_integer_too_large_for_a_float_is_not_a_finite_number():
    """``float(10**400)`` raises OverflowError, which once went through to the user."""
    with pytest.raises(ConfigError, match=r"^train.lr = 10+: must be a finite number$"):
        Config().replace({"train.lr": 10**400})


def test_widths_must_fit_the_number_of_layers():
    """Two widths with one layer once made a model of three layers."""
    with pytest.raises(ConfigError, match=r"^model.hidden = \[16, 8\]: must be one width or model.layers - 1 = 0$"):
        config.Model(layers=1, hidden=(16, 8))


def test_staleness_needs_the_asynchronous_mode():
    with pytest.raises(ConfigError, match=r"^train.staleness = 1 needs train.mode = async, not pipe$"):
        Config().replace({"train.mode": "pipe", "train.staleness": 1})


def test_limits_hold_for_sections_made_in_python_too():
    with pytest.raises(ConfigError, match=r"^train.epochs = -1: must be >= 0$"):
        config.Train(epochs=-1)
    with pytest.raises(ConfigError, match=r"^lambda.prefetch = -1: must be >= 0$"):
        config.Lambda(prefetch=-1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[train]\nepoch = 3", "train.epoch: unknown key; did you mean train.epochs?"),
        ("[train]\nstalenes = 3", "train.stalenes: unknown key; did you mean train.staleness?"),
        ("[model]\nxyzzy_plugh_quux = 3", "model.xyzzy_plugh_quux: unknown key"),
        (
            "[trian]\nepochs = 3",
            "[trian]: unknown section, must be one of data, model, train, servers, lambda, run, cloud; did you mean "
            "train?",
        ),
        (
            "[lambdas]\ncount = 3",
            "[lambdas]: unknown section, must be one of data, model, train, servers, lambda, run, cloud; did you mean "
            "lambda?",
        ),
        ("train = 3", "train = 3: must be a section"),
        ("[train]\nlr = 1979-05-27", "train.lr = datetime.date(1979, 5, 27): must be a finite number"),
    ],
)
def test_a_file_with_an_unknown_key_is_refused_with_a_suggestion(tmp_path, text, message):
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("train.epoch", "train.epoch: unknown key; did you mean train.epochs?"),
        ("lambdas.count", "lambdas.count: unknown key; did you mean lambda.count?"),
        ("epochs", "epochs: unknown key; did you mean train.epochs?"),
        ("", ": unknown key"),
    ],
)
def test_an_assignment_to_an_unknown_key_is_refused_with_a_suggestion(key, message):
    with pytest.raises(ConfigError) as caught:
        Config().replace({key: 1})
    assert str(caught.value) == message


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    for path, reason in ((tmp_path / "none.toml", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError) as caught:
            config.load(path)
        assert str(caught.value) == f"{path}: {reason}"


@pytest.mark.parametrize("content", [b"[train\n", b"lr = = 3", b"[train]\nlr = 1\nlr = 2", b"\xff\xfe"])
def test_a_file_that_is_not_toml_is_named_with_the_place(tmp_path, content):
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"^{re.escape(str(path))}: ") as caught:
        config.load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        ({"lambda.proxy": "127.0.0.1:1080"}, True),
        ({"lambda.on": "aws"}, True),
        ({"servers.backend": "cpu", "lambda.rematerialise": "always"}, False),
        ({"lambda.rematerialise": "always"}, True),
        ({"lambda.on": "aws", "lambda.rematerialise": "never"}, False),
    ],
)
def test_activations_are_computed_again_where_fetching_them_takes_longer(settings, expected):
    assert Config().replace({"servers.backend": "lambda", **settings}).rematerialises == expected


@pytest.mark.skipif(sys.platform != "linux", reason="Unix sockets without files are Linux's")
@pytest.mark.parametrize(
    ("settings", "listen"),
    [
        ({}, UNIX),
        ({"servers.security": "curve"}, UNIX),
        ({"servers.backend": "lambda"}, UNIX),
        ({"servers.backend": "lambda", "lambda.proxy": "127.0.0.1:1080"}, "127.0.0.1"),
        ({"servers.backend": "lambda", "lambda.on": "localstack"}, "127.0.0.1"),
        ({"servers.backend": "lambda", "lambda.callback_host": "host"}, "127.0.0.1"),
        ({"servers.ports": "7000-7099"}, "127.0.0.1"),
        ({"servers.listen": "127.0.0.2"}, "127.0.0.2"),
        ({"run.on": "ray"}, "127.0.0.1"),
    ],
)
def test_members_of_one_machine_listen_on_unix_sockets_if_nobody_wants_a_port(settings, listen) -> None:
    assert Config().replace(settings).listen == listen


def test_a_cache_without_a_home_folder_names_the_settings_that_move_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container whose user is a number without an entry in /etc/passwd."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # finds no home
    with pytest.raises(ConfigError, match=r"no such home directory: .*; set data\.cache_dir, or XDG_CACHE_HOME"):
        cache_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert cache_folder() == Path("/var/cache/siafu")


def test_a_path_is_text_where_text_is_asked(tmp_path: Path) -> None:
    assert Config().replace({"run.dir": tmp_path}).run.dir == str(tmp_path)
    with pytest.raises(ConfigError, match=r"run.dir = 3: must be a string"):
        Config().replace({"run.dir": 3})
