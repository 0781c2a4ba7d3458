"""Checks that a command can write its files and folders, before it computes for an hour."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

from siafu import extras
from siafu.errors import ConfigError

PICTURES = (".png", ".svg", ".pdf")


def check_file(name: str, path: str | Path) -> None:
    """Raises: ConfigError, which says ``name = path``, if it is clear beforehand that the file cannot be written. The
    file may exist; its folder must."""
    check_no_tilde(name, path)
    _no_folder(name, path)
    folder = Path(path).parent
    if not folder.is_dir():
        raise ConfigError(f"{name} = {path}: there is no folder {folder}")
    _check(name, path, folder)


def check_file_in_folder(name: str, path: str | Path) -> None:
    """Raises: ConfigError as ``check_file`` does, for a file whose folder and parent folders will be made if they are
    missing."""
    _no_folder(name, path)
    _check_made(name, path, Path(path).parent)


def check_folder(name: str, path: str | Path) -> None:
    """Raises: ConfigError as ``check_file`` does, for a folder that will be made, with its parents, if missing."""
    _check_made(name, path, Path(path))


def check_no_tilde(name: str, path: str | os.PathLike[str]) -> None:
    """Raises: ConfigError for a path below ~. Only shells replace it: here it would become a folder named ~."""
    if (meant := os.path.expanduser(path)) != os.fspath(path):
        raise ConfigError(f"{name} = {path}: ~ is not replaced here: give {meant}")


def check_picture(path: str) -> None:
    """Raises: ConfigError if no plot can be written to this path, or matplotlib is not installed."""
    if not path.endswith(PICTURES):
        raise ConfigError(f"plot {path!r} must end in {', '.join(PICTURES)}")
    check_file("plot", path)
    _matplotlib()


def _matplotlib() -> None:
    try:
        import_module("matplotlib")
    except ImportError as error:
        raise ConfigError(f"plots need matplotlib: {extras.advice(error, extras.install('plot'))}") from None


def _no_folder(name: str, path: str | Path) -> None:
    if Path(path).is_dir():
        raise ConfigError(f"{name} = {path}: is a folder")


def _check_made(name: str, path: str | Path, made: Path) -> None:
    check_no_tilde(name, path)
    for folder in (made, *made.absolute().parents):
        if folder.is_dir():
            return _check(name, path, folder)
        if folder.exists() or folder.is_symlink():
            raise ConfigError(f"{name} = {path}: {folder} is no folder")


def _check(name: str, path: str | Path, folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{name} = {path}: you may not write into {folder.absolute()}")
