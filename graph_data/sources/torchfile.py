"""Reads what ``torch.save`` wrote, with ``weights_only``: no code in the file runs."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from siafu import extras
from siafu.errors import ConfigError, DatasetError

_UNKNOWN = re.compile(r"GLOBAL ([\w.]+)")


def read(path: Path, known: Sequence[Any], why: Callable[[str], str]) -> Any:
    """known: classes and functions besides torch's own, as for ``torch.serialization.safe_globals``. why: gives the
    message about an unknown class, by its name, or about a file that torch did not write, "".

    Raises: DatasetError for such a file; ConfigError without torch.
    """
    try:
        torch = import_module("torch")
    except ImportError as error:
        how = extras.advice(error, f"{extras.pip()} install torch")
        raise ConfigError(f"{path}: .pt files need torch: {how}") from None
    try:
        with torch.serialization.safe_globals(list(known)), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's, on how another program wrote the file
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever a damaged archive or a pickled class leads to
        unknown = _UNKNOWN.search(str(error))
        raise DatasetError(f"{path}: {why(unknown[1] if unknown else '')}") from None
