"""Clients of endpoints: keys that AWS gives stay with AWS."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, UnauthorizedSSOTokenError

from infra import service
from infra.cloud import speaking_plainly
from infra.machines.mailbox import Mailbox
from infra.machines.secret_store import Vault
from infra.service import stand_in_keys
from siafu.errors import ConfigError, GnnError


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


@pytest.mark.parametrize("text", ["", "[profile broken"])
@pytest.mark.parametrize(
    "make",
    [lambda: service.check_region("us-east-1"), lambda: Mailbox("bucket", region="us-east-1"), Vault],
    ids=["region", "bucket", "secrets"],
)
def test_a_profile_that_cannot_be_had_is_the_users_to_mend(make, text, monkeypatch, tmp_path):
    file = tmp_path / "config"
    file.write_text(text)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(file))
    monkeypatch.setenv("AWS_PROFILE", "nope")
    with pytest.raises(ConfigError, match=str(file) if text else r"profile \(nope\) could not be found"):
        make()


def client_error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "GetCallerIdentity")


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (client_error("InvalidClientTokenId"), "has this region enabled"),
        (client_error("OptInRequired"), "has this region enabled"),
        (client_error("RequestExpired"), "clock"),
        (client_error("ExpiredToken"), "log in again"),
        (UnauthorizedSSOTokenError(), "log in again"),
        (NoCredentialsError(), "set AWS_PROFILE"),
    ],
)
def test_credentials_that_do_not_do_are_told_with_what_to_do(error, advice):
    with pytest.raises(ConfigError, match=f"^region x: .*{advice}"), speaking_plainly("region x"):
        raise error


@pytest.mark.parametrize("error", [client_error("Throttling"), EndpointConnectionError(endpoint_url="https://x")])
def test_what_is_no_matter_of_credentials_is_no_fault_of_the_users(error):
    with pytest.raises(GnnError) as told, speaking_plainly("region x"):
        raise error
    assert not isinstance(told.value, ConfigError)


def test_files_may_stand_still_on_their_way_for_longer_than_connecting_takes(monkeypatch):
    """urllib3 has one limit for connecting and for every send."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    mailbox = Mailbox("bucket", region="us-east-1")
    patience = [client.meta.config.connect_timeout for client in (mailbox._files, service.client("s3", "us-east-1"))]
    assert patience == [60, 60]
    assert mailbox._files.meta.config.max_pool_connections == 64
    assert [mailbox._s3.meta.config.connect_timeout, mailbox._s3.meta.config.read_timeout] == [5, 20]
