"""A native environment as a Gymnasium environment."""

from typing import Any, Literal

import gymnasium
import jax

from jaxenvs.core import Environment, VectorEnv
from jaxenvs.faces._pickling import EzPickleMixin
from jaxenvs.faces._reset_options import parse_options
from jaxenvs.faces._single import info_row, only_row, step_single
from jaxenvs.faces.gym_vector_env import RENDER_FPS, RENDER_MODES, GymVectorEnv, with_limit_of


class GymEnv(EzPickleMixin, gymnasium.Env):
    """One native instance as a `gymnasium.Env`. `make_gym` makes it if `num_envs` is omitted.

    `reset(seed=s)` starts the same trajectory as in an instance of a `GymVectorEnv` with seed s. A
    copied or unpickled environment is a new one with the same parameters, which has to be reset
    first.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": RENDER_FPS}  # noqa: RUF012

    def __init__(
        self,
        env: VectorEnv,
        *,
        seed: int | None = None,
        render_mode: str | None = None,
        output: Literal["numpy", "torch"] = "numpy",
        validate: bool = True,
        device: jax.Device | None = None,
        spec: Any = None,
    ) -> None:
        self._batch = GymVectorEnv(
            env, render_mode=render_mode, output=output, validate=validate, device=device
        )
        self.observation_space = self._batch.single_observation_space
        self.action_space = self._batch.single_action_space
        self.render_mode = render_mode
        self.spec = spec
        self._initial_seed = seed

    @property
    def env(self) -> VectorEnv:
        """The native environment, a batch of one."""
        return self._batch.env

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode.

        Args:
            seed: makes this episode and all later ones reproducible; None continues with the random
                numbers of the last seed.
            options: in classic control, Gymnasium's bounds of the first state: `low` and `high`, in
                Pendulum `x_init` and `y_init`.

        Returns:
            The observation and the info.

        Raises:
            SeedError: the seed is invalid.
            ParameterError: there is no such option, or it is not a number.
        """
        parse_options(self.env, options)  # refuses those of batches
        seed = self._initial_seed if seed is None else seed
        if seed is not None:
            (seed,) = self._batch.runner.parse_seeds([seed])
        seeds = None if seed is None else [seed]
        observations, infos = self._batch.reset(seed=seeds, options=options)
        self._initial_seed = None
        super().reset(seed=seed)  # seeds `env.np_random`
        return only_row(self.observation_space, observations), info_row(infos, 0)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes one action.

        Returns:
            The observation, the reward, whether the task terminated, whether the episode was
            truncated, and the info.

        Raises:
            ActionError: the action does not fit.
        """
        observations, rewards, terminated, truncated, infos = step_single(
            self._batch.step, self.action_space, action
        )
        return (
            only_row(self.observation_space, observations),
            float(rewards[0]),
            bool(terminated[0]),
            bool(truncated[0]),
            info_row(infos, 0),
        )

    def render(self) -> Any:
        """Returns a frame, uint8[H, W, 3]; under "rgb_array_list", those since the last call."""
        frames = self._batch.render()
        return None if frames is None else frames[0]

    def close(self) -> None:
        """Drops the state and the window."""
        self._batch.close()

    def has_wrapper_attr(self, name: str) -> bool:
        """Returns whether there is such a parameter, or such an attribute of this object."""
        return name in self.env.parameters or super().has_wrapper_attr(name)

    def get_wrapper_attr(self, name: str) -> Any:
        """Returns a parameter of the environment, or an attribute of this object."""
        if name in self.env.parameters:
            return self._batch.get_attr(name)[0]
        return super().get_wrapper_attr(name)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Sets a parameter of the environment, or an attribute of this object.

        A parameter takes effect in the next step. Spaces that depend on it change too.
        """
        if name not in self.env.parameters:
            return super().set_wrapper_attr(name, value, force=force)
        self._batch.set_attr(name, [value])
        if name == "time_limit":
            self.spec = with_limit_of(self.env, self.spec)
        self.observation_space = self._batch.single_observation_space
        self.action_space = self._batch.single_action_space
        return True


def innermost(env: VectorEnv) -> Environment:
    """Returns the task of each instance, without wrappers."""
    part: Any = env
    while not isinstance(part, Environment):
        part = part.env
    return part.unwrapped
