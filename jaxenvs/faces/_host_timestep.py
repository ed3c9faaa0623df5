"""The result of a reset or a step, on the host."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class HostTimeStep(NamedTuple):
    """A batch of timesteps as NumPy arrays that belong to the caller."""

    observation: Any
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    any_done: bool  # whether an episode ended in any instance
    read: Callable[[str], Any]  # returns one of the fields below, which are rarely needed

    @property
    def final_observation(self) -> Any:
        """The observation that the step led to, in every instance, before any autoreset."""
        return self.read("final_observation")

    @property
    def info(self) -> Any:
        """The info that belongs to `observation`."""
        return self.read("info")

    @property
    def final_info(self) -> Any:
        """The info that belongs to `final_observation`."""
        return self.read("final_info")
