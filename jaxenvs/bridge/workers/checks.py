"""Checks that observations are in their space and not NaN."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import gymnasium
import numpy as np

from jaxenvs.bridge.memory.layout import getter, leaves_of
from jaxenvs.bridge.workers.views import brief, fitting

Validate = Literal["first", True, False]
Reporter = Callable[[int, str, str], None]  # (instance, operation, traceback)

_CHECKED_STEPS = 3  # of each instance, under validate="first"


class SpaceChecks:
    """Checks that observations are in their space, either all or the first few of each row.

    Args:
        space: the space of the observations.
        validate: see `make_pool`.
        instances: the instance of each row.
        report: called with a warning.
    """

    def __init__(
        self, space: gymnasium.Space, validate: Validate, instances: range, report: Reporter
    ) -> None:
        self._space, self._validate = space, validate
        self._instances, self._report = instances, report
        self.left = dict.fromkeys(range(len(instances)), _CHECKED_STEPS) if validate else {}

    def check(self, row: int, observation: Any) -> None:
        """Checks an observation, unless the row needs no more checks.

        Raises:
            ValueError: it does not fit its array, or `validate` is True and it is outside its
                space.
        """
        left = self.left.get(row, 0)
        if not left:
            return
        if self._validate == "first":
            if left == 1:
                del self.left[row]
            else:
                self.left[row] = left - 1
        for leaf in leaves_of(self._space):
            fitting(getter(leaf.path)(observation), leaf)
        if _contains(self._space, observation):
            return
        message = (
            f"environment {self._instances[row]} returned an observation outside its space:"
            f" {brief(observation)} is not in {self._space}"
        )
        if self._validate is True:
            raise ValueError(message)
        if not has_nan(observation):  # NaN has its own message
            self._report(self._instances[row], "warning", message)
            self.left.pop(row, None)


def _contains(space: gymnasium.Space, observation: Any) -> bool:
    """Returns whether an observation is in the space once converted to the space's dtype."""
    for leaf in leaves_of(space):
        sub = leaf.space_in(space)
        value = np.asarray(getter(leaf.path)(observation), leaf.dtype)
        if not sub.contains(value if isinstance(sub, gymnasium.spaces.Box) else value[()]):
            return False
    return True


def has_nan(tree: Any) -> bool:
    if isinstance(tree, Mapping):
        return any(map(has_nan, tree.values()))
    if isinstance(tree, (tuple, list)):
        return any(map(has_nan, tree))
    array = np.asarray(tree)
    return array.dtype.kind in "fc" and bool(np.isnan(array).any())
