"""The watchdog's function alone, as it runs in Lambda: step by step, until the deployment and itself are gone."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError

from infra import deployment, leftovers, reaper
from infra.deployment import LEVELS, PARTS
from tests.infra.made import account, make, stacks_of


@pytest.fixture
def cloud(monkeypatch):
    with account(monkeypatch) as cloud:
        monkeypatch.setenv("AWS_DEFAULT_REGION", cloud.region)
        monkeypatch.setenv("LEVELS", json.dumps(deployment.levels("siafu")))
        monkeypatch.setenv("DATA", "siafu-data")
        monkeypatch.setenv("BUCKET", deployment.bucket("siafu", cloud.account, cloud.region))
        yield cloud


DONE = "CREATE_COMPLETE"
LEVELS_OF_3 = [["watch", "servers"], ["network"], ["expiry"]]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({"watch": DONE, "servers": DONE, "network": DONE, "expiry": DONE}, ["watch", "servers"]),
        ({"servers": DONE, "network": DONE, "expiry": DONE}, ["servers"]),
        ({"servers": "DELETE_IN_PROGRESS", "network": DONE}, []),
        ({"servers": "DELETE_FAILED", "network": DONE}, ["servers"]),
        ({"network": "REVIEW_IN_PROGRESS", "expiry": DONE}, ["network"]),
        ({"network": "ROLLBACK_COMPLETE", "expiry": DONE}, ["network"]),
        ({"expiry": DONE}, ["expiry"]),
        ({}, []),
    ],
)
def test_stack_goes_when_no_other_uses_it(states, expected):
    assert reaper.due(LEVELS_OF_3, states) == expected


def test_every_part_has_its_level_and_the_watchdog_goes_last():
    assert sorted(part for level in LEVELS for part in level) == sorted(PARTS)
    assert LEVELS[-1] == ("expiry",)
    assert PARTS[0] == "expiry"


def test_calls_remove_everything_the_watchdog_last(cloud):
    make(cloud, PARTS)
    asked = []
    while stacks_of(cloud):
        asked.append(sorted(reaper.handler({}, None)))
    names = [sorted(level) for level in deployment.levels("siafu")]
    assert asked == names
    assert leftovers.find(cloud) == []
    assert reaper.handler({}, None) == []


def test_half_made_deployment_is_removed_as_well(cloud):
    make(cloud, ["expiry", "data"])
    assert reaper.handler({}, None) == ["siafu-data"]
    assert reaper.handler({}, None) == ["siafu-expiry"]
    assert stacks_of(cloud) == []


@pytest.mark.parametrize("state", ["CREATE_COMPLETE", "UPDATE_IN_PROGRESS"])
def test_step_that_cloudformation_refuses_fails_unless_it_is_only_too_early(cloud, monkeypatch, state):
    make(cloud, ["expiry"])
    error = ClientError({"Error": {"Code": "ValidationError", "Message": "Role r cannot be assumed"}}, "DeleteStack")
    api = SimpleNamespace(
        describe_stacks=lambda StackName: {"Stacks": [{"StackName": StackName, "StackStatus": state}]},
        delete_stack=Mock(side_effect=error),
    )
    monkeypatch.setattr(reaper.boto3, "client", lambda name: api)
    if state == "CREATE_COMPLETE":
        with pytest.raises(RuntimeError, match=r"siafu-watch.*Role r cannot be assumed"):
            reaper.handler({}, None)
    else:
        assert reaper.handler({}, None) == []


def test_its_file_is_all_of_its_code():
    source = Path(reaper.__file__).read_text()
    assert len(source) <= 4096
    imported = {
        alias.name if isinstance(node, ast.Import) else str(node.module)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names | {"boto3", "botocore"}
