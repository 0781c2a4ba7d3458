from __future__ import annotations

import pytest

from param_server.parameters import Parameters
from siafu import models
from siafu.errors import RemoteProtocolError
from siafu.models import ModelSpec


@pytest.mark.parametrize(("name", "last"), [("gcn", 1), ("gcnii", 2), ("sgc", 1), ("appnp", 1)])
def test_stages_are_those_of_the_models_tensor_steps_and_no_others(name: str, last: int):
    model = models.build(ModelSpec(name, in_features=5, num_classes=3, num_train=10, widths=(4,)))
    weights = model.init()
    parameters = Parameters(model, weights)
    assert {key for stage in range(last + 1) for key in parameters.of(stage, "")} == set(weights)
    for beyond in (-1, last + 1):
        with pytest.raises(RemoteProtocolError, match=rf"a fetch: layer {beyond}, must be in 0\.\.{last}"):
            parameters.of(beyond, "a fetch")
