"""Weight stashing: which versions of the weights a parameter server holds, and for whom (Dorylus OSDI'21, §5.1).

S1  The first request of a key (epoch, interval) fixes the latest version for it; all its later requests get that.
S2  A version is stored once however many keys refer to it, and dropped when it is no longer needed. Needed are the
    latest version, those of stashed keys, those pinned for an evaluation, and the best one.
S3  Releasing a key frees its stash; releasing one that has none changes nothing (duplicates are normal).
S4  Versions are published in order, each once.
S5  ``peak`` is the most versions ever held at once as latest or stashed: at most staleness + 2, if intervals are
    never more than ``staleness`` epochs apart. Pinned and best versions are counted apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from siafu.errors import StaleWeights
from siafu.sparse import Array

Key = tuple[int, int]  # (epoch, interval)
WeightsByName = Mapping[str, Array]


class Stash:
    """The versions that one parameter server holds. The first weights are its latest version at the start."""

    def __init__(self, version: int, weights: WeightsByName):
        # Everything that changes:
        self.latest = version
        self.best: int | None = None
        self.peak = 1
        self._weights: dict[int, WeightsByName] = {version: weights}
        self._stashed: dict[Key, int] = {}
        self._references: Counter[int] = Counter()  # stashed keys by version, no zeros
        self._pinned: set[int] = set()

    @property
    def versions(self) -> tuple[int, ...]:
        """All versions held, for whatever reason."""
        return tuple(sorted(self._weights))

    @property
    def pinned(self) -> tuple[int, ...]:
        return tuple(sorted(self._pinned))

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys that have a version stashed."""
        return tuple(self._stashed)

    @property
    def references(self) -> dict[int, int]:
        """The number of stashed keys by version."""
        return dict(self._references)

    def weights(self, version: int) -> WeightsByName:
        """Returns the weights of a version. Raises: StaleWeights if it is not held."""
        if version not in self._weights:
            raise StaleWeights(
                f"weights of version {version}: not held, there are {', '.join(map(str, self.versions))}"
            )
        return self._weights[version]

    def acquire(self, key: Key) -> int:
        """Returns the version of the key; the first call fixes it (S1)."""
        if key not in self._stashed:
            self._stashed[key] = self.latest
            self._references[self.latest] += 1
        return self._stashed[key]

    def holds(self, key: Key) -> bool:
        """Whether the key has a version: it was acquired, and is not released."""
        return key in self._stashed

    def release(self, key: Key) -> None:
        """Frees the key's stash, if it has one (S3)."""
        version = self._stashed.pop(key, None)
        if version is None:
            return
        self._references[version] -= 1
        if not self._references[version]:
            del self._references[version]
        self._drop_if_unneeded(version)

    def publish(self, version: int, weights: WeightsByName) -> None:
        """Makes this the latest version (S4)."""
        assert version == self.latest + 1, f"version {version} after {self.latest}"
        previous, self.latest = self.latest, version
        self._weights[version] = weights
        self._drop_if_unneeded(previous)
        self.peak = max(self.peak, len({self.latest, *self._references}))

    def adopt(self, version: int, weights: WeightsByName) -> None:
        """Takes an earlier version from the run that is resumed. The caller then pins it or keeps it as the best."""
        assert version < self.latest, f"version {version} of {self.latest}"
        self._weights[version] = weights

    def pin(self, version: int) -> None:
        """Keeps a version until ``unpin``. Raises StaleWeights if it is not held."""
        self.weights(version)
        self._pinned.add(version)

    def unpin(self, version: int) -> None:
        self._pinned.discard(version)
        self._drop_if_unneeded(version)

    def keep_best(self, version: int) -> None:
        """Keeps this version as the best one instead of the one before. Raises StaleWeights if it is not held."""
        self.weights(version)
        previous, self.best = self.best, version
        if previous is not None:
            self._drop_if_unneeded(previous)

    def _drop_if_unneeded(self, version: int) -> None:
        if version not in (self.latest, self.best) and version not in self._references and version not in self._pinned:
            self._weights.pop(version, None)
