"""A native batch as a Stable-Baselines3 vector environment."""

import time
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from jaxenvs.core import Environment, VectorEnv, Wrapper
from jaxenvs.errors import ParameterError, missing_extra
from jaxenvs.faces._host_timestep import HostTimeStep
from jaxenvs.faces._reset_options import parse_options
from jaxenvs.faces._single import info_row, take_rows
from jaxenvs.faces._third_party import make_batch_for
from jaxenvs.faces.gym_vector_env import GymVectorEnv

try:
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as error:
    raise missing_extra(__name__, "stable-baselines3", "sb3") from error


class JaxVecEnv(VecEnv):
    """N native instances as a `stable_baselines3.common.vec_env.VecEnv`.

    Finished instances restart within the step. At the end of an episode, `infos[i]` contains
    `terminal_observation`, `TimeLimit.truncated` (truncated and not terminated) and `episode`,
    the record that `Monitor` would add, so no `Monitor` is needed. Infos of the environment itself
    are present in every step.

    Args:
        env: an id, an `Environment`, or a batch from `make_gym(id, num_envs)`.
        num_envs: N; required for an id or an `Environment`.
        **options: options of `make_gym`: `seed`, `render_mode`, `wrappers`, parameters such as
            `gravity=3.7`, and so on.

    Raises:
        ParameterError: `num_envs` is missing; or `env` is an existing batch, and there are options,
            or it does not restart finished instances within the step.

    Example:
        >>> from jaxenvs.faces.stable_baselines3 import JaxVecEnv
        >>> envs = JaxVecEnv("CartPole-v1", num_envs=16)
        >>> envs.reset().shape
        (16, 4)
    """

    def __init__(
        self,
        env: str | Environment | GymVectorEnv,
        num_envs: int | None = None,
        **options: Any,
    ) -> None:
        self._envs = make_batch_for("JaxVecEnv", "same_step", env, num_envs, options)
        self._runner = self._envs.runner
        n = self._envs.num_envs
        self._returns = np.zeros(n)
        self._first_steps = np.zeros(n, np.int64)  # the value of _steps at each episode's start
        self._steps = 0
        self._creation_time = time.time()
        # Returned where there are no infos, in a new list in each step, because making 1,024 dicts
        # would take longer than the step itself. Replaced once a caller has written to one.
        self._empty_infos: list[dict[str, Any]] = [{} for _ in range(n)]
        super().__init__(n, self._envs.single_observation_space, self._envs.single_action_space)

    @property
    def env(self) -> VectorEnv:
        """The native environment, with its current parameters."""
        return self._envs.env

    def reset(self) -> Any:
        """Starts an episode in every instance, with the seeds and options that were set.

        Returns:
            The observations, [N, ...].

        Raises:
            ParameterError: there is no such option, or the options of the instances differ.
        """
        first = self._options[0]
        if any(options != first for options in self._options):
            raise ParameterError(
                f"set_options got different options, {self._options!r:.80}; the instances reset"
                " together, with the same options.  Pass one dict."
            )
        parse_options(self.env, first)  # refuses those of batches
        seeds = [seed for seed in self._seeds if seed is not None]
        seeds = [seed % 2**32 for seed in seeds] or None
        observations, infos = self._envs.reset(seed=seeds, options=first)
        self.reset_infos = [info_row(infos, i) for i in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        self._returns[:], self._first_steps[:] = 0, self._steps
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        """Starts a step, and returns before a long one ends."""
        self._runner.send(actions, "step_async")

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Waits for the step in flight.

        Returns:
            Observations [N, ...], rewards float32[N], dones bool[N] and N infos.
        """
        timestep = self._runner.receive()
        if self.render_mode == "human":
            self._envs.render()
        self._steps += 1
        self._returns += timestep.reward
        dones = timestep.terminated | timestep.truncated
        infos = self._to_rows(timestep.final_info)
        if timestep.any_done:
            self._add_episode_infos(infos, timestep, np.flatnonzero(dones))
        return timestep.observation, timestep.reward, dones, infos

    def __reduce__(self) -> Any:
        return type(self), (self._envs,)

    def close(self) -> None:
        """Drops the state and the window."""
        self._envs.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Returns frames of all instances, uint8[H, W, 3] each."""
        return [*self._runner.render()]

    def get_attr(self, attr_name: str, indices: None | int | Iterable[int] = None) -> list[Any]:
        """Returns a parameter or another attribute of all instances, or of `indices`.

        Raises:
            AttributeError: there is no such attribute.
        """
        if attr_name not in self.env.parameters and hasattr(self._envs, attr_name):
            values: Any = (getattr(self._envs, attr_name),) * self.num_envs
        else:
            try:
                values = self._envs.get_attr(attr_name)
            except TypeError as error:
                raise AttributeError(str(error)) from error
        return [values[i] for i in self._get_indices(indices)]

    def set_attr(
        self, attr_name: str, value: Any, indices: None | int | Iterable[int] = None
    ) -> None:
        """Sets a parameter to `value` in all instances, or in `indices`.

        Raises:
            UnknownParameterError: there is no such parameter.
        """
        if indices is not None and attr_name in self.env.parameters:
            values = [*self._envs.get_attr(attr_name)]
            for i in self._get_indices(indices):
                values[i] = value
            value = values
        self._envs.set_attr(attr_name, value)

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: None | int | Iterable[int] = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """Calls a method of the environment.

        Returns:
            One result per instance of `indices`, or of all instances.

        Raises:
            UnknownParameterError: there is no such method.
        """
        if method_name == "render" and self.render_mode == "human":
            self._envs.render()
            return []
        results = self._envs.call(method_name, *method_args, **method_kwargs)
        return [results[i] for i in self._get_indices(indices)]

    def env_is_wrapped(
        self, wrapper_class: type[Any], indices: None | int | Iterable[int] = None
    ) -> list[bool]:
        """Returns whether a wrapper from `jaxenvs.wrappers` is around each instance.

        It is true for `Monitor`, because `infos` contain the same records.
        """
        is_wrapped = issubclass(wrapper_class, Monitor) or _has_wrapper(self.env, wrapper_class)
        return [is_wrapped for _ in self._get_indices(indices)]

    def _to_rows(self, columns: Any) -> list[dict[str, Any]]:
        """Turns infos of [N, ...] arrays into N dicts."""
        if columns:
            leaves, treedef = jax.tree.flatten(columns)
            rows = zip(*leaves, strict=True)
            return [jax.tree.unflatten(treedef, row) for row in rows]
        if any(self._empty_infos):
            self._empty_infos = [{} for _ in range(self.num_envs)]
        return self._empty_infos.copy()

    def _add_episode_infos(
        self, infos: list[dict[str, Any]], timestep: HostTimeStep, rows: np.ndarray
    ) -> None:
        """Replaces the infos of `rows`, the instances whose episode ended."""
        elapsed = round(time.time() - self._creation_time, 6)
        leaves, treedef = jax.tree.flatten(timestep.final_observation)
        observations = zip(*(leaf[rows] for leaf in leaves), strict=True)
        returns = self._returns[rows].round(6).tolist()
        lengths = (self._steps - self._first_steps[rows]).tolist()
        truncated = (timestep.truncated & ~timestep.terminated)[rows].tolist()
        for i, observation, episode_return, length, is_truncated in zip(
            rows.tolist(), observations, returns, lengths, truncated, strict=True
        ):
            self.reset_infos[i] = take_rows(timestep.info, i)
            infos[i] = {
                **infos[i],
                "terminal_observation": jax.tree.unflatten(treedef, observation),
                "TimeLimit.truncated": is_truncated,
                "episode": {"r": episode_return, "l": length, "t": elapsed},
            }
        self._returns[rows], self._first_steps[rows] = 0, self._steps


def _has_wrapper(env: Any, wrapper_class: type[Any]) -> bool:
    while env is not None:
        if isinstance(env, wrapper_class):
            return True
        env = getattr(env, "env", None) if isinstance(env, (VectorEnv, Wrapper)) else None
    return False
