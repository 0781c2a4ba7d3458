"""``siafu.config.load`` and ``Config.replace``: a TOML file and what stands on the command line."""

from __future__ import annotations

import random
from collections.abc import Iterator

from siafu import config
from siafu.config import Config
from tests.fuzz.inputs import Input
from tests.fuzz.mutations import JSON_VALUES
from tests.fuzz.targets import Folder, Target, replaced

FILE, ASSIGNMENTS = "config.toml", "set"


class Toml(Target):
    name = "config"
    modules = ("siafu.config", "tomllib._parser", "tomllib._re")
    tokens = (
        *(f"[{section}]\n".encode() for section in Config().to_dict()),
        *(f"{section}.{key}=".encode() for section, keys in Config().to_dict().items() for key in keys),
        b'"""',
        b"'''",
        b"\\u0000",
        b"\\",
        b"inf",
        b"nan",
        b"-nan",
        b"0x",
        b"1_000",
        b"1979-05-27T07:32:00Z",
        b"07:32:00",
        b"[[",
        b"]]",
        b"{a=1}",
        b"[1,[2]]",
        b"\r\n",
        b"\xff",
        b"true",
        b"false",
        b"1e400",
        b"= \n",
        b"#",
        b"a.b.c = 1\n",
        b"\xef\xbb\xbf",
    )

    constant_bytes = 600_000  # every section as a dict, several times

    def __init__(self) -> None:
        self._folder = Folder()

    def examples(self) -> Iterator[Input]:
        whole = config.dump(Config()).encode()
        yield ((FILE, whole), (ASSIGNMENTS, b"train.epochs=5"))
        yield (
            (FILE, b'[model]\nhidden = [16, 8]\nlayers = 3\n[data]\nsource = "digits"\n'),
            (ASSIGNMENTS, b"model.hidden=[3 4]"),
        )
        yield (
            (FILE, b"lambda = {count = 3}\n"),
            (ASSIGNMENTS, b"run.loggers=a,b\ntrain.lr=1e-3\nservers.ports=7000-7099"),
        )
        for section in whole.split(b"\n\n"):
            yield ((FILE, section),)

    def run(self, given: Input) -> None:
        found = config.load(self._folder.put(given) / FILE)
        lines = dict(given).get(ASSIGNMENTS, b"").decode("utf-8", "replace").splitlines()
        assignments = dict(line.split("=", 1) for line in lines if "=" in line)
        changed = found.replace(assignments)
        for key, value in assignments.items():
            config.parsed(key, value)
        again = type(changed).from_dict(changed.to_dict())
        assert again == changed
        assert again.digest == changed.digest
        config.dump(changed).encode()

    def edited(self, given: Input, rng: random.Random) -> Input | None:
        """A key of its section with some value, as TOML or as an assignment."""
        section, keys = rng.choice(list(Config().to_dict().items()))
        key, value = rng.choice(list(keys)), rng.choice((*JSON_VALUES, *keys.values()))
        text = repr(value).lower() if not isinstance(value, str) else f'"{value}"'
        parts = dict(given)
        if rng.random() < 0.5 and FILE in parts:
            return replaced(given, FILE, f"[{section}]\n{key} = {text}\n".encode("utf-8", "replace"))
        line = f"{section}.{key}={text}\n".encode("utf-8", "replace")
        return replaced(given, ASSIGNMENTS, line + parts.get(ASSIGNMENTS, b"")[:200])
