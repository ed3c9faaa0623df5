"""Stable-Baselines3's vector environment, of which the batch stays a batch."""

import time
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from jaxenvs.core import Environment, VectorEnv, Wrapper
from jaxenvs.errors import missing_extra
from jaxenvs.faces._adapter import gym_batch
from jaxenvs.faces._programs import HostStep
from jaxenvs.faces._single import row
from jaxenvs.faces.gym import GymVectorEnv

try:
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as error:
    raise missing_extra(__name__, "stable-baselines3", "sb3") from error


class JaxVecEnv(VecEnv):
    """N native instances as a `stable_baselines3.common.vec_env.VecEnv`.

    Finished instances start again within the step. Where an episode ended, `infos[i]` has
    `terminal_observation`, `TimeLimit.truncated` (cut, and not terminated) and `episode`, which
    is what `Monitor` would record: so nothing has to be wrapped in one. What the environment
    itself says in its info is there on every step.

    Args:
        env: an id, an `Environment`, or what `make_gym(id, num_envs)` returned.
        num_envs: N, for an id or an `Environment`.
        **options: of `make_gym`: `seed`, `render_mode`, `wrappers`, parameters such as
            `gravity=3.7`, and so on.

    Raises:
        ParameterError: no `num_envs`, or options where `env` is made already, or such an
            environment does not start finished episodes again in the same step.

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
        self._envs = gym_batch("JaxVecEnv", "same_step", env, num_envs, options)
        self._engine = self._envs.engine
        n = self._envs.num_envs
        self._returns = np.zeros(n)
        self._begun = np.zeros(n, np.int64)  # the value of _steps when the episode began
        self._steps = 0
        self._made_at = time.time()
        # Handed out wherever there is nothing to say, in a new list each step: 1,024 new dicts
        # would cost more than the step itself. One that somebody wrote to is not used again.
        self._nothing: list[dict[str, Any]] = [{} for _ in range(n)]
        super().__init__(n, self._envs.single_observation_space, self._envs.single_action_space)

    @property
    def env(self) -> VectorEnv:
        """The native environment, with its present parameters."""
        return self._envs.env

    def reset(self) -> Any:
        """Starts an episode in every instance, from the seeds that `seed` set.

        Returns:
            The observations, [N, ...].
        """
        seeds = [seed for seed in self._seeds if seed is not None]
        step = self._envs._begin([s % 2**32 for s in seeds] if seeds else None, None)
        self.reset_infos = self._rows(step.info)
        self._reset_seeds()
        self._reset_options()
        self._returns[:], self._begun[:] = 0, self._steps
        return step.observation

    def step_async(self, actions: np.ndarray) -> None:
        """Starts a step and returns at once."""
        self._engine.send(actions, "step_async")

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Waits for the step under way.

        Returns:
            Observations [N, ...], rewards float32[N], dones bool[N] and N infos.
        """
        step = self._engine.receive()
        if self.render_mode == "human":
            self._envs.render()
        self._steps += 1
        self._returns += step.reward
        dones = step.terminated | step.truncated
        infos = self._rows(step.final_info)
        if step.any_done:
            self._add_endings(infos, step, np.flatnonzero(dones))
        return step.observation, step.reward, dones, infos

    def __reduce__(self) -> Any:
        return type(self), (self._envs,)

    def close(self) -> None:
        """Drops the state and the window."""
        self._envs.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Frames of all instances, uint8[H, W, 3] each."""
        return [*self._envs._draw()]

    def get_attr(self, attr_name: str, indices: None | int | Iterable[int] = None) -> list[Any]:
        """A parameter, or another attribute, of every instance or of `indices`.

        Raises:
            AttributeError: there is none of that name.
        """
        if attr_name in self.env.parameters:
            values: Any = self._envs.get_attr(attr_name)
        elif hasattr(self._envs, attr_name):
            values = (getattr(self._envs, attr_name),) * self.num_envs
        else:
            try:
                values = self._envs.get_attr(attr_name)
            except TypeError as error:
                raise AttributeError(str(error)) from error
        return [values[i] for i in self._get_indices(indices)]

    def set_attr(
        self, attr_name: str, value: Any, indices: None | int | Iterable[int] = None
    ) -> None:
        """Sets a parameter to `value`, in every instance or in `indices`.

        Raises:
            UnknownParameterError: there is no parameter of that name.
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
        """Calls a method of the environment, once for each instance.

        Raises:
            UnknownParameterError: there is none of that name.
        """
        if method_name == "render" and self.render_mode == "human":
            self._envs.render()
            return []
        results = self._envs.call(method_name, *method_args, **method_kwargs)
        return [results[i] for i in self._get_indices(indices)]

    def env_is_wrapped(
        self, wrapper_class: type[Any], indices: None | int | Iterable[int] = None
    ) -> list[bool]:
        """Whether a wrapper of `jaxenvs.wrappers` is around the instances.

        It says yes to `Monitor`, whose records `infos` have.
        """
        is_wrapped = issubclass(wrapper_class, Monitor) or _has_wrapper(self.env, wrapper_class)
        return [is_wrapped for _ in self._get_indices(indices)]

    def _rows(self, columns: Any) -> list[dict[str, Any]]:
        if columns:
            leaves, treedef = jax.tree.flatten(columns)
            rows = zip(*leaves, strict=True)
            return [jax.tree.unflatten(treedef, row) for row in rows]
        if any(self._nothing):
            self._nothing = [{} for _ in range(self.num_envs)]
        return self._nothing.copy()

    def _add_endings(self, infos: list[dict[str, Any]], step: HostStep, rows: np.ndarray) -> None:
        elapsed = round(time.time() - self._made_at, 6)
        leaves, treedef = jax.tree.flatten(step.final_observation)
        observations = zip(*(leaf[rows] for leaf in leaves), strict=True)
        returns = self._returns[rows].round(6).tolist()
        lengths = (self._steps - self._begun[rows]).tolist()
        is_cut = (step.truncated & ~step.terminated)[rows].tolist()
        for i, observation, episode_return, length, cut in zip(
            rows.tolist(), observations, returns, lengths, is_cut, strict=True
        ):
            self.reset_infos[i] = row(step.info, i)
            infos[i] = {
                **infos[i],
                "terminal_observation": jax.tree.unflatten(treedef, observation),
                "TimeLimit.truncated": cut,
                "episode": {"r": episode_return, "l": length, "t": elapsed},
            }
        self._returns[rows], self._begun[rows] = 0, self._steps


def _has_wrapper(env: Any, wrapper_class: type[Any]) -> bool:
    while env is not None:
        if isinstance(env, wrapper_class):
            return True
        env = getattr(env, "env", None) if isinstance(env, (VectorEnv, Wrapper)) else None
    return False
