import pytest


@pytest.fixture
def archives(real_data):
    """Files of the field as they are downloaded."""
    if not (real_data / "archives").is_dir():
        pytest.skip(f"needs the field's archives: no folder archives in {real_data} (set SIAFU_DATA)")
    return real_data / "archives"
