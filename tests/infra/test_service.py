"""Clients of endpoints: keys that AWS gives stay with AWS."""

from __future__ import annotations

import pytest

from infra.service import stand_in_keys


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"AWS_ACCESS_KEY_ID": "AKIA0123456789", "AWS_SECRET_ACCESS_KEY": "secret"},
        {"AWS_ACCESS_KEY_ID": "mine", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "token"},
    ],
)
def test_no_key_of_aws_goes_to_what_stands_in_for_it(environment):
    assert stand_in_keys(environment) == ("test", "test")


def test_a_key_that_means_nothing_to_aws_is_the_users_choice():
    assert stand_in_keys({"AWS_ACCESS_KEY_ID": "000000000002"}) == ("000000000002", "test")
