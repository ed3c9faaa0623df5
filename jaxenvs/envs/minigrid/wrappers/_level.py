"""The base class of wrappers that look into a level."""

from collections.abc import Mapping
from typing import Any

from jaxenvs import spaces
from jaxenvs.core import Environment, Wrapper
from jaxenvs.envs.minigrid.level import MiniGrid, MiniGridState
from jaxenvs.errors import WrapperError


class LevelWrapper(Wrapper[Any]):
    """A wrapper that has access to the level and its state."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.unwrapped, MiniGrid):
            raise WrapperError(
                f"{type(self).__name__} got {self.env!r}; it needs an environment of MiniGrid, or a"
                " wrapper around one."
            )
        self._check_space("observation_space")

    @property
    def minigrid(self) -> MiniGrid:
        minigrid = self.unwrapped
        assert isinstance(minigrid, MiniGrid)
        return minigrid

    def level_state(self, state: Any) -> MiniGridState:
        """Returns the state of the level inside the state of this wrapper."""
        env: Environment = self
        while isinstance(env, Wrapper):
            env, state = env.env, env.inner(state)
        return state

    def parts(self, *names: str) -> Mapping[str, spaces.Space]:
        """Returns the spaces of the parts of the wrapped observations.

        Raises:
            WrapperError: observations are not dicts with these parts.
        """
        space = self.env.observation_space
        if not isinstance(space, spaces.Dict) or not set(names) <= set(space):
            raise WrapperError(
                f"{type(self).__name__} needs observations that are dicts with"
                f" {' and '.join(names)}, got {space}.  Apply it first."
            )
        return space.spaces
