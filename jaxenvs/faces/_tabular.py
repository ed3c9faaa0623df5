"""The faces of tabular tasks, with the attributes that Gymnasium's toy text environments have."""

from functools import cached_property
from typing import Any

import jax
import numpy as np

from jaxenvs.core import Environment
from jaxenvs.envs.toy_text import Taxi, taxi
from jaxenvs.errors import ParameterError
from jaxenvs.faces.gym_env import GymEnv, innermost

Transitions = dict[int, dict[int, list[tuple[float, int, float, bool]]]]


class TabularGymEnv(GymEnv):
    """A `GymEnv` of a task with a transition table."""

    @property
    def _task(self) -> Any:
        return innermost(self.env)

    @cached_property
    def P(self) -> Transitions:
        """All transitions: `P[s][action]` is a list of (probability, next s, reward, terminated).

        Transitions with probability 0 are left out.
        """
        table = jax.device_get(jax.jit(lambda task: task.table)(self._task))
        probability = table.probability.astype(float).round(7)  # the digits of a float32
        columns = probability, table.next_state, table.reward.astype(float), table.terminated
        rows = np.stack([column.astype(object) for column in columns], axis=-1).tolist()
        return {
            s: {
                action: [tuple(row) for row in outcomes if row[0] > 0]
                for action, outcomes in enumerate(actions)
            }
            for s, actions in enumerate(rows)
        }

    @property
    def s(self) -> int:
        """The index of the current state. You may set it."""
        return int(self._find("s"))

    @s.setter
    def s(self, value: int) -> None:
        if not 0 <= value < self._task.num_states:
            raise ParameterError(
                f"s was set to {value}; expected a state from 0 to {self._task.num_states - 1}."
            )

        def put(path: Any, leaf: Any) -> Any:
            return np.full_like(leaf, value) if _name(path) == "s" else leaf

        runner = self._batch.runner
        runner.write_state(jax.tree_util.tree_map_with_path(put, runner.read_state()))

    def _find(self, name: str) -> Any:
        """Returns the only instance's field of the task's state."""
        state = self._batch.runner.read_state()
        paths = jax.tree_util.tree_flatten_with_path(state)[0]
        return next(leaf for path, leaf in paths if _name(path) == name)[0]


class TaxiGymEnv(TabularGymEnv):
    """A `GymEnv` of `Taxi`."""

    locs = tuple(zip(taxi.ROWS.tolist(), taxi.COLUMNS.tolist(), strict=True))

    def encode(self, row: int, column: int, passenger: int, destination: int) -> int:
        """Returns the index of a state."""
        return taxi.encode(row, column, passenger, destination)  # pyright: ignore[reportArgumentType, reportReturnType]

    def decode(self, s: int) -> tuple[int, ...]:
        """Returns row, column, passenger, and destination of a state."""
        return tuple(map(int, taxi.decode(s)))  # pyright: ignore[reportArgumentType]

    def action_mask(self, s: int) -> np.ndarray:
        """Returns int8[6], 1 for each action that changes the state."""
        return np.asarray(taxi.action_mask(np.int32(s)))  # pyright: ignore[reportArgumentType]

    @property
    def fickle_step(self) -> bool:
        """Whether the passenger will change the destination."""
        return bool(self._find("is_fickle"))


def tabular_face(task: Environment) -> type[GymEnv]:
    """Returns the class of the face for one instance of a tabular task."""
    return TaxiGymEnv if isinstance(task, Taxi) else TabularGymEnv


def _name(path: Any) -> str:
    return getattr(path[-1], "name", "")
