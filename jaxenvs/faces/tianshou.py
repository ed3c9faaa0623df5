"""A native batch as a Tianshou vector environment."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from jaxenvs.core import Environment, VectorEnv
from jaxenvs.errors import missing_extra
from jaxenvs.faces._single import info_row, take_rows
from jaxenvs.faces._third_party import make_batch_for
from jaxenvs.faces.gym_vector_env import GymVectorEnv

try:
    from tianshou.env import BaseVectorEnv
except ImportError as error:
    raise missing_extra(__name__, "tianshou", "tianshou") from error


class JaxVectorEnv(BaseVectorEnv):
    """N native instances as a `tianshou.env.BaseVectorEnv`, for Tianshou's `Collector`.

    A finished instance keeps its state until it is reset, which a collector does. All instances
    step together. An instance that is not in the `id` of a step has to be reset before its next
    step; collectors do that too.

    Args:
        env: an id, an `Environment`, or a batch from
            `make_gym(id, num_envs, autoreset_mode="disabled")`.
        num_envs: N; required for an id or an `Environment`.
        **options: options of `make_gym`.

    Raises:
        ParameterError: `num_envs` is missing; or `env` is an existing batch, and there are options,
            or it resets automatically.

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
        # Does not call the base class, which would make a worker for each instance.
        self._envs = make_batch_for("JaxVectorEnv", "disabled", env, num_envs, options)
        self.env_num = self.wait_num = self._envs.num_envs
        self.ready_id, self.waiting_id, self.waiting_conn = [*range(self.env_num)], [], []
        self.is_async, self.is_closed, self.timeout, self.workers = False, False, None, []
        self._seeds: list[int | None] | None = None
        self._is_stale = np.zeros(self.env_num, bool)  # omitted in a step, and not reset since

    @property
    def env(self) -> VectorEnv:
        """The native environment, with its current parameters."""
        return self._envs.env

    def reset(
        self, env_id: int | Sequence[int] | np.ndarray | None = None, **kwargs: Any
    ) -> tuple[Any, np.ndarray]:
        """Starts an episode in the instances `env_id`, or in all.

        Returns:
            The observations and infos of these instances, one row each.
        """
        rows, mask = self._to_index(env_id), np.zeros(self.env_num, bool)
        mask[rows] = True
        if self._seeds is not None:
            kwargs = {"seed": self._seeds, **kwargs}
            self._seeds = None
        options = {**kwargs.pop("options", {})}
        if not mask.all():
            options["reset_mask"] = mask
        observations, infos = self._envs.reset(options=options, **kwargs)
        self._is_stale &= ~mask
        return take_rows(observations, rows), self._to_rows(infos, rows)

    def step(
        self, action: Any, id: int | Sequence[int] | np.ndarray | None = None
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Takes one action in the instances `id`, or in all.

        Returns:
            The observations, rewards, terminations, truncations and infos of these instances, one
            row each.

        Raises:
            ActionError: the actions do not fit.
            ResetNeeded: an instance was omitted from an earlier step and has not been reset since.
        """
        rows = self._to_index(id)
        if not isinstance(rows, slice):
            self._check_not_stale(rows)
            given, omitted = np.asarray(action), np.ones(self.env_num, bool)
            action = np.broadcast_to(given[:1], (self.env_num, *given.shape[1:])).copy()
            action[rows], omitted[rows] = given, False
            self._is_stale |= omitted
        elif self._is_stale.any():
            self._check_not_stale(np.arange(self.env_num))
        *parts, infos = self._envs.step(action)
        observations, rewards, terminated, truncated = (take_rows(part, rows) for part in parts)
        return observations, rewards, terminated, truncated, self._to_rows(infos, rows)

    def seed(self, seed: int | Sequence[int | None] | None = None) -> list[Any]:
        """Sets the seeds of the next `reset`: `seed + i` for instance i, or one per instance."""
        if seed is None or isinstance(seed, int):
            self._seeds = [None if seed is None else seed + i for i in range(self.env_num)]
        else:
            self._seeds = [*seed]
        return [[each] for each in self._seeds]

    def render(self) -> list[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns frames of all instances, uint8[H, W, 3] each."""
        return [*self._envs.runner.render()]

    def close(self) -> None:
        """Drops the state and the window."""
        self._envs.close()
        self.is_closed = True

    def get_env_attr(self, key: str, id: Any = None) -> list[Any]:
        """Returns a parameter or another attribute of the instances `id`, or of all."""
        if key in ("action_space", "observation_space"):
            key = f"single_{key}"
        if key in self.env.parameters:
            values: Any = self._envs.get_attr(key)
        else:
            values = (getattr(self._envs, key, None),) * self.env_num
        return [values[row] for row in self._to_ids(id)]

    def set_env_attr(self, key: str, value: Any, id: Any = None) -> None:
        """Sets a parameter to `value` in the instances `id`, or in all.

        Raises:
            UnknownParameterError: there is no such parameter.
        """
        values = [*self._envs.get_attr(key)]
        for row in self._to_ids(id):
            values[row] = value
        self._envs.set_attr(key, values)

    def _check_not_stale(self, ids: np.ndarray) -> None:
        if (stale := ids[self._is_stale[ids]]).size:
            raise gymnasium.error.ResetNeeded(
                f"step was called for the instances {stale.tolist()}, which an earlier step"
                " omitted.  Reset them first: reset(env_id=...)."
            )

    def _to_index(self, id: Any) -> Any:
        """Returns an index of the instances `id`; a slice if they are all, in order."""
        if id is None or np.array_equal(id, np.arange(self.env_num)):
            return slice(None)
        return np.atleast_1d(id)

    def _to_ids(self, id: Any) -> list[int]:
        return np.arange(self.env_num)[self._to_index(id)].tolist()

    def _to_rows(self, infos: dict[str, Any], rows: Any) -> np.ndarray:
        """Turns infos of [N, ...] arrays into one dict for each of `rows`."""
        ids = np.arange(self.env_num)[rows].tolist()
        dicts = [{"env_id": i, **info_row(infos, i)} for i in ids]
        return np.array(dicts, dtype=object)
