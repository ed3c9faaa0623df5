"""The result of a reset or a step, on the host."""

from collections.abc import Callable
from typing import Any, NamedTuple


class HostTimeStep(NamedTuple):
    """A batch of timesteps as NumPy arrays that belong to the caller.

    With several agents, the observation, the reward and the flags are dicts keyed by agent.
    """

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
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
