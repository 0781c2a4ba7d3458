"""What may not stand in our sources, read from their syntax trees: ways in which what
somebody else wrote becomes code of ours.

A name is resolved as far as its imports say: ``from pickle import loads`` is seen as well as ``pickle.loads``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from infra.imports import ROOT, files
from tests.test_imports import ROOMS

#: Modules whose formats carry code, or that have no other use than to run it.
CODE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml", "code", "codeop"}
#: Calls that run text, a shell, or names that somebody else has chosen.
CODE_CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "input",
    "os.system",
    "os.popen",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "tempfile.mktemp",
}
#: Readers that unpickle unless told otherwise: what they must be told, as it stands there.
READERS = {"torch.load": ("weights_only", True), "numpy.load": ("allow_pickle", False)}

SOURCES = [path for room in ROOMS for path in files(f"{room}/**/*.py")]


def names(tree: ast.AST) -> dict[str, str]:
    """What a name of the file stands for: ``np`` for numpy, ``loads`` for pickle.loads."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {
                alias.asname or alias.name.split(".")[0]: alias.name if alias.asname else alias.name.split(".")[0]
                for alias in node.names
            }
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return known


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Dotted name and call, of calls by name."""
    known = names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            parts, function = [], node.func
            while isinstance(function, ast.Attribute):
                parts.append(function.attr)
                function = function.value
            if isinstance(function, ast.Name):
                yield ".".join([known.get(function.id, function.id), *reversed(parts)]), node


def offences(tree: ast.AST) -> list[str]:
    found = [name for name in names(tree).values() if name.split(".")[0] in CODE_MODULES]
    for name, call in calls(tree):
        keywords = {word.arg: word.value for word in call.keywords}
        if name in CODE_CALLS:
            found.append(f"{name}()")
        if name in READERS:
            word, wanted = READERS[name]
            value = keywords.get(word)
            # numpy's default is the safe one, torch's was not always
            if not (isinstance(value, ast.Constant) and value.value is wanted) and (
                value is not None or name == "torch.load"
            ):
                found.append(f"{name} without {word}={wanted}")
        shell = keywords.get("shell")
        if (
            name.startswith(("subprocess.", "asyncio."))
            and shell is not None
            and not (isinstance(shell, ast.Constant) and shell.value is False)
        ):
            found.append(f"{name} with a shell")
    return found


def test_nothing_that_comes_in_becomes_code() -> None:
    assert len(SOURCES) > 400
    found = {
        path.relative_to(ROOT).as_posix(): offences(ast.parse(path.read_text(encoding="utf-8"))) for path in SOURCES
    }
    assert {path: wrong for path, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "def f():\n    import yaml",
        "eval('1')",
        "exec(x)",
        "__import__(name)",
        "import os\nos.system('ls')",
        "from os import system\nsystem('ls')",
        "import subprocess as s\ns.run('ls', shell=True)",
        "import subprocess\nsubprocess.Popen(x, shell=wanted)",
        "import numpy as np\nnp.load(f, allow_pickle=True)",
        "import torch\ntorch.load(f)",
        "import torch\ntorch.load(f, weights_only=False)",
        "compile(text, 'x', 'exec')",
    ],
)
def test_the_reader_sees(text: str) -> None:
    assert offences(ast.parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "import re\nre.compile('x')",
        "model.eval()",
        "import numpy as np\nnp.load(f)",
        "import torch\ntorch.load(f, weights_only=True)",
        "import subprocess\nsubprocess.run(['ls'])",
        "con.exec_('x')",
        "import numpy as np\nnp.load(f, allow_pickle=False)",
    ],
)
def test_the_reader_passes(text: str) -> None:
    assert not offences(ast.parse(text))
