"""Tianshou's vector environment, of which the batch stays a batch."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from jaxenvs.core import Environment, VectorEnv
from jaxenvs.errors import missing_extra
from jaxenvs.faces._adapter import gym_batch
from jaxenvs.faces.gym import GymVectorEnv

try:
    from tianshou.env import BaseVectorEnv
except ImportError as error:
    raise missing_extra(__name__, "tianshou", "tianshou") from error


class JaxVectorEnv(BaseVectorEnv):
    """N native instances as a `tianshou.env.BaseVectorEnv`, for Tianshou's `Collector`.

    An instance that finished stays as it is until it is reset, which is what a collector does. All
    instances step together: one that `step` leaves out has to be reset before it steps again, as
    collectors do too.

    Args:
        env: an id, an `Environment`, or what
            `make_gym(id, num_envs, autoreset_mode="disabled")` returned.
        num_envs: N, for an id or an `Environment`.
        **options: of `make_gym`.

    Raises:
        ParameterError: no `num_envs`, or options where `env` is made already, or such an
            environment resets by itself.

    Example:
        >>> from jaxenvs.faces.tianshou import JaxVectorEnv
        >>> envs = JaxVectorEnv("CartPole-v1", num_envs=16)
        >>> observations, infos = envs.reset()
        >>> observations.shape, infos[3]
        ((16, 4), {'env_id': 3})
    """

    def __init__(
        self,
        env: str | Environment | GymVectorEnv,
        num_envs: int | None = None,
        **options: Any,
    ) -> None:
        # Not the base's own: that would make a worker, and an environment, for each instance.
        self._envs = gym_batch("JaxVectorEnv", "disabled", env, num_envs, options)
        self.env_num = self.wait_num = self._envs.num_envs
        self.ready_id, self.waiting_id, self.waiting_conn = [*range(self.env_num)], [], []
        self.is_async, self.is_closed, self.timeout, self.workers = False, False, None, []
        self._seeds: list[int | None] | None = None
        self._left_out = np.zeros(self.env_num, bool)

    @property
    def env(self) -> VectorEnv:
        """The native environment, with its present parameters."""
        return self._envs.env

    def reset(
        self, env_id: int | Sequence[int] | np.ndarray | None = None, **kwargs: Any
    ) -> tuple[Any, np.ndarray]:
        """Starts an episode in the instances `env_id`, or in all.

        Returns:
            Their observations and infos, one row each.
        """
        rows, mask = self._rows(env_id), np.zeros(self.env_num, bool)
        mask[rows] = True
        if self._seeds is not None:
            kwargs = {"seed": self._seeds, **kwargs}
            self._seeds = None
        options = {**kwargs.pop("options", {})}
        if not mask.all():
            options["reset_mask"] = mask
        observations, infos = self._envs.reset(options=options, **kwargs)
        self._left_out &= ~mask
        return _take(observations, rows), self._infos(infos, rows)

    def step(
        self, action: Any, id: int | Sequence[int] | np.ndarray | None = None
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Takes one action in the instances `id`, or in all.

        Returns:
            Observations, rewards, terminations, truncations and infos of these, one row each.

        Raises:
            ActionError: the actions do not fit.
            ResetNeeded: an instance was left out of a step, and not reset since.
        """
        rows = self._rows(id)
        if not isinstance(rows, slice):
            self._check_left_out(rows)
            given, left_out = np.asarray(action), np.ones(self.env_num, bool)
            action = np.broadcast_to(given[:1], (self.env_num, *given.shape[1:])).copy()
            action[rows], left_out[rows] = given, False
            self._left_out |= left_out
        elif self._left_out.any():
            self._check_left_out(np.arange(self.env_num))
        *parts, infos = self._envs.step(action)
        observations, rewards, terminated, truncated = (_take(part, rows) for part in parts)
        return observations, rewards, terminated, truncated, self._infos(infos, rows)

    def seed(self, seed: int | Sequence[int | None] | None = None) -> list[Any]:
        """Sets the seeds of the next `reset`: `seed + i` for instance i, or one each."""
        if seed is None or isinstance(seed, int):
            self._seeds = [None if seed is None else seed + i for i in range(self.env_num)]
        else:
            self._seeds = [*seed]
        return [[one] for one in self._seeds]

    def render(self, **kwargs: Any) -> list[Any]:
        """Frames of all instances, uint8[H, W, 3] each."""
        return [*self._envs._draw()]

    def close(self) -> None:
        """Drops the state and the window."""
        self._envs.close()
        self.is_closed = True

    def get_env_attr(self, key: str, id: Any = None) -> list[Any]:
        """A parameter, or another attribute, of the instances `id`, or of all."""
        if key in ("action_space", "observation_space"):
            key = f"single_{key}"
        if key in self.env.parameters:
            values: Any = self._envs.get_attr(key)
        else:
            values = (getattr(self._envs, key, None),) * self.env_num
        return [values[row] for row in self._ids(id)]

    def set_env_attr(self, key: str, value: Any, id: Any = None) -> None:
        """Sets a parameter to `value`, in the instances `id`, or in all.

        Raises:
            UnknownParameterError: there is no parameter of that name.
        """
        values = [*self._envs.get_attr(key)]
        for row in self._ids(id):
            values[row] = value
        self._envs.set_attr(key, values)

    def _check_left_out(self, ids: np.ndarray) -> None:
        if (stale := ids[self._left_out[ids]]).size:
            raise gymnasium.error.ResetNeeded(
                f"step was called for the instances {stale.tolist()}, which an earlier step left"
                " out.  Reset them first: reset(env_id=...)."
            )

    def _rows(self, id: Any) -> Any:
        """An index of the instances `id`: a slice where they are all, in order."""
        every = np.arange(self.env_num)
        return slice(None) if id is None or np.array_equal(id, every) else np.atleast_1d(id)

    def _ids(self, id: Any) -> list[int]:
        return np.arange(self.env_num)[self._rows(id)].tolist()

    def _infos(self, infos: dict[str, Any], rows: Any) -> np.ndarray:
        names = [name for name in infos if f"_{name}" in infos]
        ids = np.arange(self.env_num)[rows].tolist()
        each = [{"env_id": i, **{name: infos[name][i] for name in names}} for i in ids]
        return np.array(each, dtype=object)


def _take(part: Any, rows: Any) -> Any:
    if isinstance(part, dict):
        return {name: _take(value, rows) for name, value in part.items()}
    return part[rows]
