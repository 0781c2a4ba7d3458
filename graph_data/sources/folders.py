"""The folders where graphs are looked for by their bare names."""

from __future__ import annotations

import os
from pathlib import Path

DATA_VARIABLE = "SIAFU_DATA"  # the folder where bare names are looked up first
DATA_FOLDERS = ("data", "../shared/data")


def data_folders() -> list[Path]:
    return [Path(folder) for folder in (os.environ.get(DATA_VARIABLE, ""), *DATA_FOLDERS) if folder]
