"""Starts every Python process of siafu, so that it imports what this process imports, and nothing from the working
folder.

``python -m`` puts the working folder first on the path, which Python 3.10 cannot prevent: a numpy.py in a folder of
data would run. If this file is run by its path, its own folder is first instead, and it removes that before it imports
anything:

    python .../siafu/start.py MODULE ARGUMENTS
"""

import os
import sys

FILE = os.path.abspath(__file__)
PACKAGES = ("site-packages", "dist-packages")
ROOT = os.path.dirname(os.path.dirname(FILE))  # holds siafu and the other rooms


def command(*words: str) -> list[str]:
    """Returns the command for ``python -m MODULE ARGUMENTS`` without the working folder on the path."""
    return [sys.executable, FILE, *words]


def environment() -> dict[str, str]:
    """Returns our variables, with a PYTHONPATH by which a child has our import path, even if it was changed."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths())}


def paths() -> list[str]:
    """Returns ``sys.path`` without the working folder and the folder of the main script, which may hold a
    graph_server.py. A folder stays if PYTHONPATH names it, or packages are installed there, or siafu lies there. This
    siafu comes before any other."""
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
    """Removes the working folder from our own path. Modules that users run by ``python -m`` call it first."""
    sys.path[:] = paths()


if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if path != os.path.dirname(os.path.realpath(__file__))]
    without_working_folder()
    import runpy

    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
