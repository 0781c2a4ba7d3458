"""The deployment's data bucket, through which laptop, coordinator and machines exchange files.

Nobody can dial a machine from outside: orders, reports, graphs and run directories are
objects here, read again and again.

    orders/<role>-<index>.json        what a machine shall do next for that role (``infra.machines.agent_state.Order``):
                                      the newest alone. The laptop writes the coordinator's, which writes the servers'
    machines/<role>-<index>.json      what the machine says of itself and of that order (``Duty.report``), every few
                                      seconds
    shards/<digest>/part-000/*.npy    a prepared graph by its digest: the same one is sent once
    shards/<digest>/manifest.json     written last: with it, the graph is whole
    runs/<run>/config.toml            what a run is, as its config says
    runs/<run>/request.json           its graph, title and number of epochs; with it, the run is asked for
    runs/<run>/coordinator.json       the coordinator's sign of life: machines that miss it end their part of the run
    runs/<run>/end.json               how it ended
    runs/<run>/files/<path>/<offset>  its run directory: a growing file (logs, metrics) in pieces, another in one

Ages are by the service's own clock: an object's time against that of the answer. Nobody else's clock counts.
"""

from __future__ import annotations

import contextlib
import email.utils
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config as Settings
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    FlexibleChecksumError,
    NoCredentialsError,
    PartialCredentialsError,
)

from infra import service
from siafu.address import Address
from siafu.errors import ConfigError, PeerLost, RemoteProtocolError

MAX_LETTER_BYTES = 1 << 20
#: A file of a run directory, and one piece of a growing file.
MAX_FILE_BYTES, MAX_PIECE_BYTES = 8 << 30, 8 << 20
#: A sender is lost when its object is older than so many of its intervals, and than the least that
#: dates in whole seconds can tell.
MISSED_BEATS, LEAST_SILENCE_S = 6.0, 10.0
#: Connections of one large file; several travel at a time.
_PARTS = TransferConfig(max_concurrency=4)
_OFFSET_DIGITS = 15
_ATTEMPTS = 4
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_REFUSED = {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "NoSuchBucket", "403"}


Fetched = TypeVar("Fetched")


# --- names ------------------------------------------------------------------------------------------------------------


def order_key(member: Address) -> str:
    return f"orders/{member.role}-{member.name}.json"


def report_key(member: Address) -> str:
    return f"machines/{member.role}-{member.name}.json"


REPORTS, RUNS = "machines/", "runs/"


def member_of(key: str) -> Address | None:
    """The member whose report has this key; None for other keys."""
    match = re.fullmatch(r"machines/(coordinator|graph_server|param_server)-(\d{1,6})\.json", key)
    return Address(match[1], match[2]) if match else None  # type: ignore[arg-type]


def shards_key(digest: str, path: str = "") -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise RemoteProtocolError(f"{digest[:80]!r} is not the digest of a graph")
    return f"shards/{digest}/{path and checked_path(path)}"


def run_key(run: str, name: str = "") -> str:
    return f"runs/{checked_run(run)}/{name}"


def piece_key(run: str, path: str, offset: int = 0) -> str:
    """Key of a run file's bytes from ``offset`` on."""
    return run_key(run, f"files/{checked_path(path)}/{offset:0{_OFFSET_DIGITS}}")


def piece_of(run: str, key: str) -> tuple[str, int]:
    """Path and offset in the run directory. RemoteProtocolError for a key of no piece, or that leads elsewhere."""
    path, _, offset = key.removeprefix(run_key(run, "files/")).rpartition("/")
    if not re.fullmatch(rf"\d{{{_OFFSET_DIGITS}}}", offset):
        raise RemoteProtocolError(f"{key[:200]!r} is no piece of a run's file")
    return checked_path(path), int(offset)


def checked_run(run: object) -> str:
    """The name of a run. RemoteProtocolError if it is invalid."""
    if not isinstance(run, str) or not _NAME.fullmatch(run):
        raise RemoteProtocolError(
            f"{str(run)[:80]!r} is not the name of a run: 1 to 128 of A-Z, a-z, 0-9, '.', '_', '-'"
        )
    return run


def checked_path(path: str) -> str:
    """A path below a folder of ours, in plain names that do not begin with a dot. RemoteProtocolError for any other."""
    if len(path) > 512 or not all(_NAME.fullmatch(part) for part in path.split("/")):
        raise RemoteProtocolError(f"{path[:200]!r} is not a path inside a run directory")
    return path


# --- the bucket -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Letter:
    """A JSON object as read from the bucket."""

    value: dict[str, Any]
    etag: str
    age_s: float

    @property
    def silent(self) -> bool:
        """Whether its sender, which rewrites it every ``every_s``, has missed too many times."""
        return silent(self.age_s, self.value.get("every_s"))


def silent(age_s: float, every_s: object) -> bool:
    every = float(every_s) if isinstance(every_s, (int, float)) else 0.0
    return age_s > max(MISSED_BEATS * every, LEAST_SILENCE_S)


@dataclass(frozen=True)
class Entry:
    """An object in a listing."""

    key: str
    nbytes: int
    etag: str
    age_s: float


class Mailbox:
    """One bucket. Any thread may use it. A refusal by the service is a ConfigError, a failure of the service a
    PeerLost."""

    def __init__(self, bucket: str, *, endpoint: str = "", region: str = "", attempts: int = _ATTEMPTS):
        """``endpoint``: URL of a stand-in for S3; empty: from boto3's environment, or AWS. ``attempts``: tries of each
        request, including the first."""
        self.bucket, self.endpoint, self.region = bucket, endpoint, region
        options: dict[str, Any] = {"region_name": region or None, "endpoint_url": endpoint or None}
        session = service.session()
        if endpoint and session.get_credentials() is None:  # a stand-in asks for some, and takes any
            options |= {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        settings = Settings(
            retries={"mode": "standard", "total_max_attempts": attempts},
            max_pool_connections=64,
            s3={"addressing_style": "path"},
        )
        try:
            # Files with botocore's own limits, 60 s: urllib3 lets a send stand still for as long as it may connect, and
            # of 32 parts on a laptop's uplink one does for more than 5 s.
            self._files = session.client("s3", config=settings, **options)
            settings = settings.merge(Settings(connect_timeout=5, read_timeout=20))
            self._s3 = session.client("s3", config=settings, **options)
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(f"bucket {bucket}: {error}") from error

    def read(self, key: str) -> Letter | None:
        """The JSON object at a key; None without one. RemoteProtocolError if it is not a JSON object of at most 1
        MiB."""
        found = self._object(key, MAX_LETTER_BYTES)
        if found is None:
            return None
        data, answer = found
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise RemoteProtocolError(f"{key}: not a JSON object")
        return Letter(value, answer["ETag"], _age_s(answer["LastModified"], answer))

    def write(self, key: str, value: dict[str, Any]) -> None:
        self.put(key, json.dumps(value).encode())

    def replace(self, key: str, value: dict[str, Any], before: Letter | None) -> bool:
        """Writes if the key still has ``before`` (None: nothing); returns whether it did."""
        condition = {"IfMatch": before.etag} if before else {"IfNoneMatch": "*"}
        try:
            self._s3.put_object(Bucket=self.bucket, Key=key, Body=json.dumps(value).encode(), **condition)
        except (BotoCoreError, ClientError) as error:
            if _code(error) not in ("PreconditionFailed", "ConditionalRequestConflict", "412", "409", "NoSuchKey"):
                self._fail(error, key)
            found = self.read(key)  # an attempt that was taken for failed may have written it
            return found is not None and found.value == value
        return True

    def get(self, key: str, limit: int = MAX_PIECE_BYTES) -> bytes | None:
        """The bytes at a key; None without any. RemoteProtocolError beyond ``limit`` bytes."""
        found = self._object(key, limit)
        return None if found is None else found[0]

    def put(self, key: str, data: bytes) -> None:
        try:
            self._s3.put_object(Bucket=self.bucket, Key=key, Body=data)
        except (BotoCoreError, ClientError) as error:
            self._fail(error, key)

    def entries(self, prefix: str, after: str = "") -> Iterator[Entry]:
        """Objects whose key has this prefix, in the order of their keys, after the key ``after``."""
        try:
            pages = self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=prefix, **({"StartAfter": after} if after else {})
            )
            for page in pages:
                for item in page.get("Contents", ()):
                    yield Entry(item["Key"], item["Size"], item["ETag"], _age_s(item["LastModified"], page))
        except (BotoCoreError, ClientError) as error:
            self._fail(error, prefix)

    def folders(self, prefix: str) -> list[str]:
        """Names of the folders directly below, in order."""
        try:
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix, Delimiter="/")
            found = [item["Prefix"] for page in pages for item in page.get("CommonPrefixes", ())]
        except (BotoCoreError, ClientError) as error:
            self._fail(error, prefix)
        return [name[len(prefix) : -1] for name in found]

    def upload(self, file: Path, key: str) -> None:
        """Uploads a file; a large one in parts."""
        try:
            self._files.upload_file(str(file), self.bucket, key, Config=_PARTS)
        except (BotoCoreError, ClientError, boto3.exceptions.Boto3Error) as error:
            self._fail(error, key)
        except OSError as error:
            raise ConfigError(f"{file}: {error.strerror}") from error

    def download(self, key: str, file: Path, on_bytes: Callable[[int], object] | None = None) -> None:
        """Downloads a file. ``on_bytes`` gets the number of new bytes, from several threads; negative if some must come
        again."""
        come: list[int] = []

        def count(more: int) -> None:
            come.append(more)
            if on_bytes is not None:
                on_bytes(more)

        def fetch() -> None:
            if come:
                count(-sum(come))  # of an attempt whose checksum was wrong
            self._s3.download_file(self.bucket, key, str(file), Config=_PARTS, Callback=count)

        try:
            _intact(fetch)
        except (BotoCoreError, ClientError, boto3.exceptions.Boto3Error) as error:
            self._fail(error, key)
        except OSError as error:
            raise PeerLost(f"{file}: cannot be written: {error.strerror}") from error

    def remove(self, keys: Iterable[str]) -> None:
        """Removes objects; missing ones are no error."""
        for key in keys:  # few at a time: an answer to many would tell of each that failed
            try:
                self._s3.delete_object(Bucket=self.bucket, Key=key)
            except (BotoCoreError, ClientError) as error:
                self._fail(error, key)

    def _object(self, key: str, limit: int) -> tuple[bytes, dict[str, Any]] | None:
        """The object's bytes and the service's answer; None without an object. RemoteProtocolError beyond ``limit``
        bytes."""

        def come() -> tuple[bytes, dict[str, Any]]:
            answer = self._s3.get_object(Bucket=self.bucket, Key=key)
            if answer["ContentLength"] > limit:
                raise RemoteProtocolError(f"{key}: {answer['ContentLength']} bytes, limit {limit}")
            return answer["Body"].read(), answer

        try:
            return _intact(come)
        except (BotoCoreError, ClientError) as error:
            if _code(error) in ("NoSuchKey", "404"):
                return None
            self._fail(error, key)

    def _fail(self, error: Exception, key: str) -> NoReturn:
        where = f"bucket {self.bucket}{f' at {self.endpoint}' if self.endpoint else ''}, {key}"
        if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
            raise ConfigError(f"no AWS credentials: {error}") from None
        if _code(error) in _REFUSED:
            raise ConfigError(f"{where}: {_code(error)}: {error}") from None
        raise PeerLost(f"{where}: {error}") from None


def _intact(fetch: Callable[[], Fetched]) -> Fetched:
    """The result of ``fetch``, repeated if a checksum is wrong: boto3 does not repeat those requests."""
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(FlexibleChecksumError):
            return fetch()
    return fetch()


def _code(error: Exception) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def _age_s(modified: datetime, answer: dict[str, Any]) -> float:
    """The age of an object when the service answered, by the service's clock."""
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
    try:
        now = email.utils.parsedate_to_datetime(date)
    except (ValueError, TypeError):
        now = datetime.now(timezone.utc)
    return max(0.0, (now - modified).total_seconds())
