"""The model's parameters by stage (``step.layer`` of their tensor steps), and a check of arrays received for them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from siafu.errors import RemoteProtocolError
from siafu.models import Model
from siafu.sparse import Array, TaskRows
from siafu.tasks import TENSOR_KINDS, Lane


class Parameters:
    """The names, shapes and dtypes of parameters, taken from the first weights."""

    def __init__(self, model: Model, weights: Mapping[str, Array]):
        self.layers: dict[int, dict[str, Array]] = {}  # stages without parameters are not in it
        for name, array in weights.items():
            self.layers.setdefault(model.stage(name), {})[name] = array
        steps = model.program(Lane.TRAIN).steps
        self.num_stages = 1 + max(step.layer for step in steps if step.kind in TENSOR_KINDS)

    def of(self, layer: int, where: str) -> Mapping[str, Array]:
        """Returns the stage's first weights. Raises: RemoteProtocolError if there is no such stage."""
        if not 0 <= layer < self.num_stages:
            raise RemoteProtocolError(f"{where}: layer {layer}, must be in 0..{self.num_stages - 1}")
        return self.layers.get(layer, {})

    def check(self, layer: int, values: Mapping[str, TaskRows], where: str) -> dict[str, Array]:
        """Returns the values in the order of the parameters. Raises: RemoteProtocolError for other names, shapes or
        dtypes."""
        return self._checked(self.of(layer, where), values, where)

    def check_all(self, values: Mapping[str, TaskRows], where: str) -> dict[str, Array]:
        """Checks the parameters of all stages at once, as ``check`` does for one stage."""
        return self._checked({name: W for stage in self.layers.values() for name, W in stage.items()}, values, where)

    @staticmethod
    def _checked(known: Mapping[str, Array], values: Mapping[str, TaskRows], where: str) -> dict[str, Array]:
        if set(values) != set(known):
            raise RemoteProtocolError(f"{where}: values for {sorted(values)}, must be for {sorted(known)}")
        checked = {}
        for name, parameter in known.items():
            value = values[name]
            if not isinstance(value, np.ndarray) or (value.shape, value.dtype) != (parameter.shape, parameter.dtype):
                raise RemoteProtocolError(
                    f"{where}: {name} is {type(value).__name__} {value.dtype} {list(value.shape)}, "
                    f"must be dense {parameter.dtype} {list(parameter.shape)}"
                )
            checked[name] = value
        return checked
