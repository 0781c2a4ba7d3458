"""Work in threads, results in order: NumPy releases the interpreter's lock while it sorts, reads and writes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ahead(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """``map``, with up to ``threads`` items in work while the caller handles a result: up to ``threads`` + 1 results
    exist at once.

    ``items`` are read on the caller's thread. An exception of ``function`` is raised in its item's turn.
    """
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
