"""Who holds the leash holds the child's life. That our own kill -9 lets go of it,
tests/integration/test_faults.py shows."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from siafu.leash import Leash

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there are no leashes elsewhere")

FOREVER = "import threading; print(flush=True); threading.Event().wait()"
WITH_GRANDCHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {FOREVER!r}])"


@pytest.mark.parametrize("code", [FOREVER, WITH_GRANDCHILD])
def test_group_dies_when_the_leash_is_closed_and_not_before(code: str) -> None:
    leash = Leash()
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True, pass_fds=(leash.fd,)
    )
    with child:
        leash.tie(child.pid)
        assert child.stdout is not None
        child.stdout.readline()
        assert child.poll() is None
        leash.close()
        assert child.stdout.read() == b""  # the last holder of the pipe is gone: grandchildren too
        assert child.wait(60) == -signal.SIGKILL


def test_leash_without_a_child_can_be_closed_twice() -> None:
    leash = Leash()
    leash.close()
    leash.close()
