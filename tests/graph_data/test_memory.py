import pytest

from graph_data import memory
from graph_data.memory import LEAST_WORKING, RESERVED, Budget, parse_bytes, show_bytes
from siafu.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("6GiB", 6 << 30), ("500MB", 500_000_000), ("1.5G", 1_500_000_000), ("64 mib", 64 << 20), ("4096", 4096)],
)
def test_sizes_are_written_as_people_write_them(text, nbytes):
    assert parse_bytes(text) == nbytes


@pytest.mark.parametrize("text", ["", "much", "-1GB", "0", "6 GiBs", "1e9"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ConfigError, match=r"^memory limit '.*' is no size: write 6GiB, 500MB or a number of bytes$"):
        parse_bytes(text)


def test_a_budget_counts_what_the_program_itself_takes():
    assert Budget(limit=500 << 20, taken=100 << 20).working == (400 << 20) - RESERVED


def test_a_limit_below_the_program_itself_says_what_would_do():
    with pytest.raises(ConfigError, match=r"^memory limit 100 MiB: 80\.0 MiB are taken .* must be >= 144 MiB$"):
        _ = Budget(limit=100 << 20, taken=80 << 20).working


def test_vertices_that_do_not_fit_say_what_would_do():
    budget = Budget(limit=LEAST_WORKING * 2 + RESERVED, taken=0)
    with pytest.raises(ConfigError, match=r"9 vertices take 95\.4 MiB, must be >= \d+ MiB"):
        budget.beside(100_000_000, "9 vertices")


def test_without_a_limit_a_share_of_what_is_free_may_be_taken(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 1000 << 20)
    budget = Budget.of(None)
    assert budget.limit - budget.taken == pytest.approx(600 << 20)


def test_memory_of_this_process_and_machine_is_known():
    assert 0 < memory.resident() < memory.available() + (64 << 30)


def test_sizes_are_shown_with_three_digits_or_so():
    assert [show_bytes(n) for n in (2048, 3 << 20, 150 << 20, 6 << 30)] == ["2 KiB", "3.0 MiB", "150 MiB", "6.0 GiB"]
