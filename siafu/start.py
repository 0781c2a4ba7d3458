"""Starts every Python process of siafu, so that it imports what this process imports, and nothing from the working
folder.

``python -m`` puts the working folder first on the path, and Python 3.10 cannot be told not to: a
numpy.py in a folder of data would run. Run by its path, this file has its own folder there instead, and
takes it off before it imports anything:

    python .../siafu/start.py MODULE ARGUMENTS
"""

import os
import sys

FILE = os.path.abspath(__file__)
PACKAGES = ("site-packages", "dist-packages")
ROOT = os.path.dirname(os.path.dirname(FILE))  # holds siafu and the other rooms


def command(*words: str) -> list[str]:
    """What does ``python -m MODULE ARGUMENTS``, without the working folder."""
    return [sys.executable, FILE, *words]


def environment() -> dict[str, str]:
    """Our variables, and a PYTHONPATH by which a child imports what we import, also where our path was changed."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths())}


def paths() -> list[str]:
    """``sys.path`` without the working folder and the folder of the script that calls us, where a graph_server.py may
    lie, unless PYTHONPATH names it, packages are installed there, or siafu lies there; this siafu before any other."""
    try:
        here = os.getcwd()
    except OSError:  # deleted
        here = os.devnull
    named = {_at(here, entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry}
    scripts = {here, *_script_folders(here)} - named - {ROOT}
    kept = [path for path in (_at(here, entry) for entry in sys.path) if path not in scripts]
    first = next((path for path in kept if os.path.isfile(os.path.join(path, "siafu", "__init__.py"))), None)
    if first != ROOT:
        kept.insert(len(kept) if first is None else kept.index(first), ROOT)
    return kept


def _script_folders(here: str) -> set[str]:
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    folders = {os.path.dirname(path) for path in (_at(here, script), os.path.realpath(script))} if script else set()
    # ``python -m cProfile -m siafu``: the script is one of Python's own.
    packages = {os.path.dirname(os.path.realpath(os.__file__)), os.path.dirname(os.__file__)}
    return {folder for folder in folders if os.path.basename(folder) not in PACKAGES} - packages


def _at(here: str, entry: str) -> str:
    return os.path.normpath(os.path.join(here, entry))


def without_working_folder() -> None:
    """Takes it off our own path: the first thing that ``python -m`` of a user does with a module of ours."""
    sys.path[:] = paths()


if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if path != os.path.dirname(os.path.realpath(__file__))]
    without_working_folder()
    import runpy

    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
