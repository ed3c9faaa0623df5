"""A pool's arrays: actions, seeds, and results, as views of one block of memory.

The arrays have the layout of a batch: row i belongs to instance i. Results are double-buffered, so
that a batch stays valid while the next one is written.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

import gymnasium
import numpy as np

from jaxenvs.bridge.memory.layout import Leaf, leaves_of
from jaxenvs.bridge.memory.segment import Overflow

AutoresetMode = Literal["same_step", "next_step", "disabled"]
MODES: tuple[AutoresetMode, ...] = get_args(AutoresetMode)
INFO_ROOM = 1024  # bytes for the info of an instance; longer ones go to the overflow
_ALIGNMENT = 128  # two cache lines, which processors fetch in pairs


@dataclasses.dataclass(frozen=True)
class Plan:
    """The sizes and spaces that determine the arrays. Workers receive it pickled."""

    num_envs: int
    observation_space: gymnasium.Space
    action_space: gymnasium.Space
    info_fields: Mapping[str, gymnasium.Space]
    has_finals: bool  # whether autoreset is same-step, or may become so
    start: int = 0  # the first byte

    @property
    def observation_leaves(self) -> list[Leaf]:
        return leaves_of(self.observation_space)

    @property
    def action_leaves(self) -> list[Leaf]:
        return leaves_of(self.action_space)

    @property
    def size(self) -> int:
        """The end of the last array, in bytes."""
        return _laid_out(self, None)[1]


@dataclasses.dataclass(frozen=True)
class Answer:
    """One of the two buffers for results. Every array has a leading [N]."""

    observation: Any  # a list of leaves
    final_observation: Any  # the same, if `Plan.has_finals`; otherwise empty
    reward: Any  # float64
    terminated: Any  # bool
    truncated: Any  # bool
    fields: Any  # the info_fields
    final_fields: Any  # of the step that ended an episode; empty like final_observation
    info_size: Any  # int32, bytes; 0 if info is empty, -1 if the `View` keeps it unpickled
    info: Any  # uint8[N, INFO_ROOM], pickled
    number: int  # of the buffer
    overflow: Overflow | None  # None if infos are not pickled

    def place(self, instance: int) -> int:
        """Returns the place of an instance's info in the overflow."""
        return 2 * instance + self.number


@dataclasses.dataclass(frozen=True)
class Arrays:
    """One process's views of the arrays."""

    answers: tuple[Answer, ...]
    actions: list[np.ndarray]
    elapsed: np.ndarray  # int32[N], the steps of the current episode
    restarted: np.ndarray  # bool[N], whether the environment was constructed again
    seeds: np.ndarray  # int64[N], -1 for none
    mode: np.ndarray  # uint8[1], the index in MODES

    @property
    def autoreset_mode(self) -> AutoresetMode:
        """The autoreset mode."""
        return MODES[self.mode[0]]

    @classmethod
    def over(cls, plan: Plan, memory: Any, overflow: Overflow | None = None) -> "Arrays":
        """Returns views of `memory`, a buffer of at least `plan.size` bytes."""
        return _laid_out(plan, memory, overflow)[0]


def _laid_out(plan: Plan, memory: Any, overflow: Overflow | None = None) -> tuple[Arrays, int]:
    """Returns views of `memory` (None only counts bytes), and where the last one ends."""
    block, n = _Block(memory, plan.start), plan.num_envs
    observation = plan.observation_leaves
    infos = [leaf for space in plan.info_fields.values() for leaf in leaves_of(space)]
    answers = tuple(
        Answer(
            observation=block.batch(n, observation),
            final_observation=block.batch(n, observation if plan.has_finals else []),
            reward=block.array((n,), np.float64),
            terminated=block.array((n,), np.bool_),
            truncated=block.array((n,), np.bool_),
            fields=block.batch(n, infos),
            final_fields=block.batch(n, infos if plan.has_finals else []),
            info_size=block.array((n,), np.int32),
            info=block.array((n, INFO_ROOM), np.uint8),
            number=number,
            overflow=overflow,
        )
        for number in range(2)
    )
    arrays = Arrays(
        answers,
        actions=block.batch(n, plan.action_leaves),
        elapsed=block.array((n,), np.int32),
        restarted=block.array((n,), np.bool_),
        seeds=block.array((n,), np.int64),
        mode=block.array((1,), np.uint8),
    )
    return arrays, block.end


class _Block:
    """Places arrays in memory one after another; without memory it only counts bytes."""

    def __init__(self, memory: Any, start: int) -> None:
        self._memory, self.end = memory, start

    def array(self, shape: tuple[int, ...], dtype: Any) -> Any:
        start, num_bytes = self.end, math.prod(shape) * np.dtype(dtype).itemsize
        self.end += -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
        return None if self._memory is None else np.ndarray(shape, dtype, self._memory, start)

    def batch(self, num_envs: int, leaves: list[Leaf]) -> list[Any]:
        return [self.array((num_envs, *leaf.shape), leaf.dtype) for leaf in leaves]
