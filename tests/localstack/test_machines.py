"""``siafu train --on aws`` with everything but the machines from LocalStack: bucket,
function, logs. Agents are processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.machines.mailbox import Mailbox
from infra.service import LOCAL_REGION
from run_coordinator import api
from tests.infra.deployment import BUCKET, Deployment
from tests.localstack.conftest import Deploy, Place

pytestmark = pytest.mark.aws


def test_a_run_on_machines_with_functions_of_the_cloud_ends_with_the_local_weights(
    place: Place, deploy: Deploy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not place.is_ours:
        pytest.skip("agents on this machine are not what functions in containers can dial")
    for name, value in (("ENDPOINT_URL", place.endpoint), ("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test")):
        monkeypatch.setenv(f"AWS_{name}", value)
    box = Mailbox(BUCKET, endpoint=place.endpoint, region=LOCAL_REGION)
    place.client("s3").create_bucket(Bucket=BUCKET)
    common = {
        "train.intervals": 4,
        "train.mode": "pipe",
        "model.dropout": 0.5,
        "lambda.count": 2,
        "lambda.timeout_s": 60,
    }
    there = {"run.on": "aws", "cloud.bucket": BUCKET, "lambda.function": deploy("lambda_funcs.handler.handler")}
    near = api.train("digits", parts=2, epochs=5, run_dir=str(tmp_path / "near"), settings=common)
    with Deployment(box, tmp_path / "deployment") as deployment:
        far = api.train("digits", parts=2, epochs=5, run_dir=str(tmp_path / "far"), settings={**common, **there})
        deployment.until_idle()
    assert far.result["weights_digest"] == near.result["weights_digest"]
    assert far.result["lambda"]["invocations"] >= 2
    assert far.result["cost"]["parts"].keys() >= {"lambda", "graph_servers", "param_servers"}
    logs = "".join(file.read_text() for file in (far.dir / "logs" / "lambda-aws").glob("*.log"))
    assert logs.count("REPORT RequestId: ") == far.result["lambda"]["invocations"]
