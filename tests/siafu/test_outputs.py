"""Where results will be written is tried before the work, and left as it was."""

import errno
import tempfile

import pytest

from siafu import outputs
from siafu.errors import ConfigError


def test_what_can_be_made_is_not_made(tmp_path):
    (tmp_path / "old.csv").write_text("1")
    for name in ("new.csv", "deep/er/new.csv", "old.csv"):
        outputs.check_file(tmp_path / name, "--out")
    for name in (".", "new", "deep/er/new"):
        outputs.check_folder(tmp_path / name, "--out")
    assert [path.name for path in tmp_path.rglob("*")] == ["old.csv"]


def test_a_file_in_the_way_of_a_folder(tmp_path):
    (tmp_path / "old.csv").touch()
    for check, name in ((outputs.check_file, "old.csv/new"), (outputs.check_folder, "old.csv")):
        with pytest.raises(ConfigError, match=r"^--out x: cannot be written: Not a directory$"):
            check(tmp_path / name, "--out x")


def test_a_file_system_that_takes_none(tmp_path, monkeypatch):
    """Permissions would not tell: tests may run as root."""

    def refuses(dir):
        raise OSError(errno.EROFS, "Read-only file system", str(dir))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuses)
    with pytest.raises(ConfigError, match=r"^--out x: cannot be written: Read-only file system$"):
        outputs.check_file(tmp_path / "new" / "x", "--out x")


def test_a_file_that_may_not_be_changed(tmp_path, monkeypatch):
    (tmp_path / "old.csv").touch()
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(ConfigError, match=r"^--out x: cannot be written: Permission denied$"):
        outputs.check_file(tmp_path / "old.csv", "--out x")
