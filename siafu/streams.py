"""Makes every terminal accept every character, and every file UTF-8, whatever the machine's locale is.

With a locale that is not UTF-8, Python decodes names of files and the text of files by that locale: a config with an é
would not be valid TOML. Python's UTF-8 mode prevents this, but must be chosen at the start of a process: so the process
starts itself again.
"""

from __future__ import annotations

import codecs
import io
import locale
import os
import sys
from typing import Any

#: Our characters -> replacements on terminals that lack them. Characters of names are escaped as in Python: é is \\xe9.
PLAIN = dict(zip("·–—×→←²█▉▊▋▌▍▎▏━…▁▂▃▄▅▆▇", "|--x><2#####   -._.-=+*%", strict=True)) | {"±": "+/-"}


def settle() -> None:
    """Sets up UTF-8 and the standard streams. A process started by the user must call it before it reads a name."""
    is_utf8 = codecs.lookup(locale.getpreferredencoding(False)).name == "utf-8"
    if not is_utf8 and os.environ.get("PYTHONUTF8") != "1":
        shown = {"PYTHONIOENCODING": sys.stdout.encoding} if sys.stdout else {}  # the terminal keeps its encoding
        os.execve(sys.executable, sys.orig_argv, {**shown, **os.environ, "PYTHONUTF8": "1"})  # noqa: S606 (ourselves)
    codecs.register_error("siafu", _plain)
    raw = getattr(sys.stdout, "buffer", None)
    if isinstance(raw, io.RawIOBase):
        # Without a buffer (PYTHONUNBUFFERED) a later flush could not tell whether stdout made a print fail.
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), sys.stdout.encoding, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="siafu")


def say(line: str) -> None:
    """Prints a line on stderr at once: a command's progress and findings."""
    print(line, file=sys.stderr, flush=True)


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    """Error handler of ``codecs``: returns the replacement of one character, and the position after it."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    if "\udc80" <= character <= "\udcff":  # a byte of a file's name that is not UTF-8
        return bytes([ord(character) - 0xDC00]), error.start + 1
    if character in PLAIN:
        return PLAIN[character], error.start + 1
    return codecs.backslashreplace_errors(error)


def fault_of(stream: Any) -> str:
    """Flushes stdout or stderr. Returns the reason if that fails, else "". After a failure all further output is
    dropped: otherwise Python would exit with 120."""
    try:
        if stream is not None:
            stream.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return error.strerror or str(error)
    return ""
