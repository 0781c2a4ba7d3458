"""What a run of the tests, and every process that it starts, has around it: the same whoever starts it, and from where.

``tests/conftest.py`` calls ``settle`` before anything imports numpy, which reads variables when it is loaded,
and ``end`` at the end of the run. ``VARIABLES`` is the list of what is done to which variable, and why;
signals, the umask and HOME have a function each. ``tests/test_surroundings.py`` starts runs in hostile
surroundings and looks at what they see.

A run whose Python drops ``assert`` (PYTHONOPTIMIZE, -O) cannot be mended from inside: pytest refuses it, by a warning
that is an error here. ``make test`` begins without that variable.

What stays, on purpose: PATH, the loader's and the certificates' variables, CUDA_VISIBLE_DEVICES and PIP_* (how
this machine finds programs, GPUs and packages); OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE (``KEPT``); CI,
PYTEST_* and PY_COLORS (pytest's own).
"""

from __future__ import annotations

import contextlib
import locale
import os
import signal
import site
import tempfile
import threading
import time
from fnmatch import fnmatchcase
from pathlib import Path

with contextlib.suppress(ImportError):
    import readline  # noqa: F401 (it sets COLUMNS and LINES for children when it is loaded, and never again)

ROOT = Path(__file__).resolve().parents[1]
UMASK = 0o022
NOTHING = os.devnull
#: Names the HOME that a run has made. A process that finds it equal to HOME was started by
#: that run, and shares the folder.
MARK = "SIAFU_TESTS_HOME"

#: Not touched, although a line of ``VARIABLES`` would match.
KEPT = {
    "OPENBLAS_CORETYPE": "decides which bits a machine makes: CI runs the tests under several, on purpose",
    "OPENBLAS_L2_SIZE": "likewise",
    "SIAFU_DATA": "where the graphs lie that are too large for the repository",
    MARK: "says that a run has made this HOME",
}

#: Names (with * for any rest), the value that they get (None: they are removed), and why. From top to bottom.
VARIABLES: tuple[tuple[str, str | None, str], ...] = (
    # --- Python
    ("PYTHON*", None, "optimisation, warnings, buffering, encodings, hash seeds: children are plain interpreters"),
    ("PYTHONPATH", str(ROOT), "children import this tree, wherever they start and whatever is installed"),
    # --- language, time, terminal
    ("LC_*", None, "messages, sorting and encodings of the machine's language"),
    ("LANGUAGE", None, "likewise"),
    ("LC_ALL", "C.UTF-8", "no language, and every character"),
    ("LANG", "C.UTF-8", "likewise, for what reads this one alone"),
    ("TZ", "UTC", "local times are the same everywhere"),
    ("COLUMNS", None, "how wide lines are printed"),
    ("LINES", None, "how high a page is"),
    ("TERM", "xterm", "what a terminal can do: none at all for some starters of tests"),
    ("COLORTERM", None, "how many colours it has"),
    ("NO_COLOR", None, "would take colours away where a test looks for them"),
    ("FORCE_COLOR", None, "would put colours into what a test reads"),
    ("CLICOLOR*", None, "both of it"),
    ("TTY_*", None, "rich's: whether there is a terminal"),
    # --- folders
    ("XDG_*", None, "folders of the user's, which are below HOME without them"),
    ("TMPDIR", None, "may be too long for sockets; PYTEST_DEBUG_TEMPROOT moves the folders of pytest's tmp_path"),
    ("TEMP", None, "likewise"),
    ("TMP", None, "likewise"),
    # --- the network
    *(
        (name, None, "requests to servers on this machine would go to a proxy")
        for lower in ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
        for name in (lower, lower.upper())
    ),
    # --- numbers, and on how many threads
    ("OPENBLAS_*", None, "threads; but for what KEPT says"),
    ("GOTO_NUM_THREADS", None, "OpenBLAS reads it too"),
    ("OMP_*", None, "threads"),
    ("GOMP_*", None, "threads"),
    ("KMP_*", None, "threads"),
    ("MKL_*", None, "threads, and which bits torch's products have"),
    ("NUMEXPR_*", None, "threads"),
    ("NPY_*", None, "which instructions numpy may use, and how it promotes types"),
    # --- AWS: nobody's account is asked
    (
        "AWS_*",
        None,
        "credentials, profiles, regions, endpoints; LOCALSTACK_ENDPOINT names a LocalStack to test against",
    ),
    ("AWS_CONFIG_FILE", NOTHING, "no profiles"),
    ("AWS_SHARED_CREDENTIALS_FILE", NOTHING, "no credentials"),
    ("AWS_EC2_METADATA_DISABLED", "true", "no credentials of the machine's role, and no seconds of waiting for them"),
    ("BOTO_CONFIG", NOTHING, "botocore reads credentials there too, else in /etc/boto.cfg"),
    ("CDK_*", None, "the account and the region that the CDK takes where a stack names none"),
    ("MOTO_*", None, "what the played AWS begins with"),
    ("SLURM_*", None, "how many cores and how much memory a job has"),
    # --- programs that tests start, and libraries that they import
    ("MAKE*", None, "flags and level of the make that runs the tests: one below it says which folder it enters"),
    ("MFLAGS", None, "likewise"),
    ("GNUMAKEFLAGS", None, "likewise"),
    ("RAY_*", None, "a cluster that is there already: tests start their own"),
    ("SIAFU_*", None, "a fault point, a guard; but for what KEPT says"),
    *(
        (name, None, "torchrun's, which a rank of a baseline reads")
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    ),
    ("MLFLOW_*", None, "the user's server of runs"),
    ("WANDB_*", None, "likewise, and the key to it"),
    ("DGLBACKEND", None, "what DGL computes with"),
    ("MPL*", None, "what matplotlib draws with, and the folder of its settings"),
)

#: Python begins with these ignored, and gives them back to the processes that ``subprocess`` starts.
IGNORED_BY_PYTHON = {getattr(signal, name) for name in ("SIGPIPE", "SIGXFZ", "SIGXFSZ") if hasattr(signal, name)}
NOBODYS = {signal.SIGKILL, signal.SIGSTOP}  # nobody may set these

#: In the cache of siafu: installed or downloaded once, and named after versions. The HOME of a run has links to what
#: there is of it. Folders without a * are made if they are missing, so that the next run finds what this one downloads.
#: Prepared graphs and calibrations are not in the list: a run makes its own.
MADE_ONCE = ("localstack-*", "peers-*", "wheelhouse", "package/wheels", "package/kernels")

# All mutable state:
_home: tempfile.TemporaryDirectory[str] | None = None  # of this process's making
_maker = 0  # the process that made it: one that it forks has the variable above too


def settle() -> None:
    """Once in each process of a run: the one that was started, and every worker of pytest-xdist."""
    global _home, _maker
    settle_signals()
    os.umask(UMASK)
    given = Path(os.path.expanduser("~"))
    kept = {} if inherited() else variables_of_caches(given)
    cache = xdg("CACHE", given / ".cache") / "siafu"
    settle_variables()
    with contextlib.suppress(locale.Error):
        locale.setlocale(locale.LC_CTYPE, "")  # what open() decodes with follows it
    time.tzset()
    tempfile.tempdir = None  # pytest has asked for it already, and with the TMPDIR that was
    if not inherited():
        _home, _maker = tempfile.TemporaryDirectory(prefix="siafu-tests-home-", ignore_cleanup_errors=True), os.getpid()
        os.environ.update({**kept, "HOME": _home.name, MARK: _home.name})
        link_what_is_made_once(cache, Path(_home.name), may_make=os.access(given, os.W_OK))


def end() -> None:
    """Removes the HOME that this process has made, if it has made one; never one that a variable names."""
    if _home is not None and _maker == os.getpid():
        _home.cleanup()


def inherited() -> bool:
    """Whether HOME is that of a run which has started this process."""
    made = os.environ.get(MARK, "")
    return made == os.environ.get("HOME") and os.path.isdir(made)


def settle_signals() -> None:
    """Nothing is blocked, and nothing ignored but by Python itself. A shell without job control starts what
    it puts into the background with SIGINT and SIGQUIT ignored, nohup with SIGHUP; every child inherits
    that, and Ctrl-C does not end it."""
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread may, and pytest runs in it
    for number in signal.valid_signals() - NOBODYS - IGNORED_BY_PYTHON:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    for number in IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def settle_variables() -> None:
    users_packages = site.getuserbase() if site.ENABLE_USER_SITE else None
    for pattern, value, _ in VARIABLES:
        for name in [name for name in os.environ if fnmatchcase(name, pattern) and name not in KEPT]:
            del os.environ[name]
        if value is None:
            os.unsetenv(pattern)  # one that os.environ knows nothing of: readline sets COLUMNS and LINES for children
        else:
            os.environ[pattern] = value
    if users_packages:
        os.environ["PYTHONUSERBASE"] = users_packages  # else children would look for them below the new HOME


def variables_of_caches(home: Path) -> dict[str, str]:
    """Variables by which programs find, under another HOME, what they have below ``home``;
    not those that are set already."""
    config, cache = xdg("CONFIG", home / ".config"), xdg("CACHE", home / ".cache")
    found = {
        "PIP_CONFIG_FILE": config / "pip" / "pip.conf",  # which index packages come from
        "NPM_CONFIG_USERCONFIG": home / ".npmrc",  # likewise
        "PYENV_ROOT": home / ".pyenv",  # LocalStack's Python 3.11 may be there
    }
    filled = {  # by the programs: they may be missing yet
        "PIP_CACHE_DIR": cache / "pip",
        "NPM_CONFIG_CACHE": home / ".npm",  # npx keeps the CDK's command line there
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": cache / "aws" / "jsii" / "package-cache",  # the CDK's library, unpacked
    }
    places = {name: place for name, place in found.items() if place.exists()}
    places |= {name: place for name, place in filled.items() if place.exists() or os.access(home, os.W_OK)}
    return {name: str(place) for name, place in places.items() if name not in os.environ}


def xdg(kind: str, default: Path) -> Path:
    """The XDG base directory specification has relative paths ignored."""
    said = Path(os.environ.get(f"XDG_{kind}_HOME", ""))
    return said if said.is_absolute() else default


def link_what_is_made_once(cache: Path, home: Path, may_make: bool) -> None:
    """``cache``: siafu's own of the user; ``may_make``: whether folders may be made in it."""
    for pattern in MADE_ONCE:
        if may_make and "*" not in pattern:
            with contextlib.suppress(OSError):
                (cache / pattern).mkdir(parents=True, exist_ok=True)
        for found in filter(Path.is_dir, cache.glob(pattern)):
            link = home / ".cache" / "siafu" / found.relative_to(cache)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(found.resolve())
