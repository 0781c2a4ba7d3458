"""Every error that siafu raises on purpose. The type says whose fault it is; the message shows the value and the
limit.
"""

from collections.abc import Iterable, Sequence

SHOWN = 8
LONGEST = 2000  # characters of a message


def listed(names: Sequence[str]) -> str:
    """Lists the first ``SHOWN`` names, for a message."""
    return ", ".join([*map(repr, names[:SHOWN]), *(["…"] if len(names) > SHOWN else [])])


def counted(number: int, what: str) -> str:
    """Formats a number of things for a message: "1 row", "2,000 rows"."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def one_of(said: object, names: Iterable[str]) -> str:
    """Returns the end of an error message: the names allowed, and the one that was probably meant."""
    import difflib  # only errors need it

    known, word = [str(name) for name in names], str(said).lower()
    # sync is not async, gelu not elu, float16 not float64: a slip leaves the first letter, and no digit changes.
    alike = [name for name in known if name[:1].lower() == word[:1] and _digits(name) == _digits(word)]
    close = difflib.get_close_matches(word, [name.lower() for name in alike], 1, 0.75)
    meant = next((name for name in alike if close and name.lower() == close[0]), "")
    longer = [name for name in known if len(name) > 3 and (word.startswith(name) or word.endswith(name))]
    if not meant and len(longer) == 1 and _digits(longer[0]) == _digits(word):  # graphsage, sageconv; not gelu
        meant = longer[0]
    return f"must be one of {', '.join(known)}" + (f"; did you mean {meant}?" if meant else "")


def _digits(word: str) -> str:
    return "".join(filter(str.isdigit, word))


class GnnError(Exception):
    """Base class of siafu's errors. ``exit_code``: the command line's exit code for it."""

    exit_code = 1


class _OneLine(GnnError):
    """Shows its message as one line without control characters, at most about ``LONGEST`` long: it may quote any text
    from files and libraries."""

    def __str__(self) -> str:
        text = super().__str__()
        if len(text) > LONGEST:  # keep both ends: the place comes first, the requirement last
            text = f"{text[: LONGEST // 2]} … {text[-LONGEST // 4 :]}"
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class ConfigError(_OneLine):
    """The user asked for something that cannot be (unknown key, value out of range)."""

    exit_code = 2


class DatasetError(_OneLine):
    """A source or a shard is malformed, truncated, or does not fit the request."""

    exit_code = 2


class DownloadError(_OneLine):
    """A published file could not be fetched, or differs from the published one."""


class ProtocolError(GnnError):
    """A message broke the rules of ``siafu.wire``."""


class LocalProtocolError(ProtocolError):
    """This process tried to send a message that the protocol does not allow: a bug in siafu."""


class RemoteProtocolError(ProtocolError):
    """A peer sent a message that the protocol does not allow."""


class PeerLost(GnnError):
    """A role of the run died, hung up, or stayed silent for too long."""


class UnknownError(PeerLost):
    """An exception that is not one of siafu's has ended a role of the run. ``what``: its type, text and place, without
    the role."""

    what = ""


class WorkerError(GnnError):
    """A tensor worker reported an exception; the message carries its traceback."""


class WorkerTimeout(WorkerError):
    """A tensor task was relaunched as often as the config allows and never finished."""


class Diverged(GnnError):
    """The loss or a gradient is NaN or infinite: a learning rate may cause it, a machine does not."""


class StaleWeights(GnnError):
    """The parameter server no longer holds the weight version asked for."""


class PriceUnknown(GnnError):
    """The price table has no row for this machine, which the user named."""

    exit_code = 2


def nan_advice(epoch: int) -> str:
    """Returns advice for a gradient or a loss of this epoch that is NaN or infinite. Before the first step, a learning
    rate cannot be the cause."""
    if epoch > 0:
        return "a smaller learning rate may help"
    return "no step was taken yet, so edge weights or features are too large: divide them by a constant"
