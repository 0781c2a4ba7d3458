"""Checkpoints of a run in a bucket of S3, below ``run.checkpoint_to`` and the run's name.

s3://BUCKET/PREFIX/RUN/epoch-0042/model.safetensors      and the other files, as on disk (siafu.training_state)
s3://BUCKET/PREFIX/RUN/epoch-0042/manifest.json          written last, removed first: with it, the copy is whole
"""

from __future__ import annotations

import re
from pathlib import Path

from infra.machines.mailbox import Mailbox
from siafu.checkpoints import name_of
from siafu.errors import DatasetError
from siafu.training_state import FILES, MANIFEST


class BucketMirror:
    """A ``siafu.checkpoints.Mirror``. A refusal by the service is a ConfigError, a failure of the service a
    PeerLost."""

    def __init__(self, url: str, run: str, *, endpoint: str = "", region: str = ""):
        """Checks that the bucket exists. ``endpoint``, ``region``: as for ``Mailbox``."""
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        self.url = "/".join(filter(None, (f"s3://{bucket}", prefix.strip("/"), run)))
        self._below = "".join(f"{part}/" for part in (prefix.strip("/"), run) if part)
        self._bucket = Mailbox(bucket, endpoint=endpoint, region=region)
        self.versions()

    def versions(self) -> list[int]:
        """Versions of the complete copies, ascending."""
        manifest = re.compile(rf"{re.escape(self._below)}epoch-(\d{{4,9}})/{re.escape(MANIFEST)}")
        matches = (manifest.fullmatch(entry.key) for entry in self._bucket.entries(f"{self._below}epoch-"))
        return sorted(int(match[1]) for match in matches if match)

    def upload(self, folder: Path, version: int) -> None:
        """Uploads a checkpoint. A copy of an earlier attempt is incomplete while it is replaced."""
        self._bucket.remove([self._key(version, MANIFEST)])
        for name in (*FILES, MANIFEST):
            self._bucket.upload(folder / name, self._key(version, name))

    def fetch(self, version: int, folder: Path) -> None:
        """Fetches a checkpoint. Raises: DatasetError if one of its files is missing."""
        there = {entry.key for entry in self._bucket.entries(self._key(version))}
        for name in (*FILES, MANIFEST):
            if self._key(version, name) not in there:
                raise DatasetError(f"{self.url}/{name_of(version)}/{name}: missing")
            self._bucket.download(self._key(version, name), folder / name)
            (folder / name).chmod(0o600)

    def remove(self, version: int) -> None:
        """Removes a copy, its manifest first."""
        self._bucket.remove([self._key(version, MANIFEST)])
        self._bucket.remove([self._key(version, name) for name in FILES])

    def _key(self, version: int, name: str = "") -> str:
        return f"{self._below}{name_of(version)}/{name}"
