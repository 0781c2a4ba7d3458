"""Makes every terminal accept every character, and every file UTF-8, whatever the machine's locale is.

A locale that is not UTF-8 decides how Python decodes names of files and what ``open`` reads and writes: a
config with an é in it would be no TOML. Python's UTF-8 mode changes that, and can be chosen at the start of a
process alone: so it starts again.
"""

from __future__ import annotations

import codecs
import io
import locale
import os
import sys
from typing import Any

#: What is shown instead where a terminal lacks a character of ours; those of names are shown as
#: Python writes them (é is \\xe9).
PLAIN = dict(zip("·–—×→←²█▉▊▋▌▍▎▏━…▁▂▃▄▅▆▇", "|--x><2#####   -._.-=+*%", strict=True)) | {"±": "+/-"}


def settle() -> None:
    """Of a process that the user has started, before it reads a name."""
    is_utf8 = codecs.lookup(locale.getpreferredencoding(False)).name == "utf-8"
    if not is_utf8 and os.environ.get("PYTHONUTF8") != "1":
        shown = {"PYTHONIOENCODING": sys.stdout.encoding} if sys.stdout else {}  # the terminal is what it is
        os.execve(sys.executable, sys.orig_argv, {**shown, **os.environ, "PYTHONUTF8": "1"})  # noqa: S606 (ourselves)
    codecs.register_error("siafu", _plain)
    raw = getattr(sys.stdout, "buffer", None)
    if isinstance(raw, io.RawIOBase):
        # Without a buffer (PYTHONUNBUFFERED) nobody could ask stdout later whether it was what a print failed at.
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), sys.stdout.encoding, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="siafu")


def say(line: str) -> None:
    """On stderr, at once: what a command does, and what it has found."""
    print(line, file=sys.stderr, flush=True)


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    """For ``codecs``: what stands for one character, and where the rest begins."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    if "\udc80" <= character <= "\udcff":  # a byte of a file's name that is not UTF-8
        return bytes([ord(character) - 0xDC00]), error.start + 1
    if character in PLAIN:
        return PLAIN[character], error.start + 1
    return codecs.backslashreplace_errors(error)


def fault_of(stream: Any) -> str:
    """Why stdout or stderr does not take what was printed; "" if it does. The rest is
    dropped: Python would exit with 120."""
    try:
        if stream is not None:
            stream.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return error.strerror or str(error)
    return ""
