"""The arrays of a pool, inputs and answers, as views of one block of memory."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, get_args

import gymnasium
import numpy as np

from jaxenvs.bridge.memory.layout import BUFFERS, Field, Fields, Leaf, leaves_of

AutoresetMode = Literal["same_step", "next_step", "disabled"]
MODES: tuple[AutoresetMode, ...] = get_args(AutoresetMode)
INFO_ROOM = 1024  # bytes for the info of an instance; a longer one stays with its worker


@dataclasses.dataclass(frozen=True)
class Answer:
    """One of the two sets of arrays for the results of steps, each with a leading [N]."""

    observation: Any  # a list of leaves
    final_observation: Any  # likewise where autoreset is or may become same-step; else empty
    reward: Any  # float64
    terminated: Any  # bool
    truncated: Any  # bool
    fields: Any  # the info_fields
    final_fields: Any  # the same of the step that ended an episode; as final_observation
    info_size: Any  # int32, bytes; 0 for an empty info, -1 for one that stayed with its worker
    info: Any  # uint8[N, INFO_ROOM], pickled


@dataclasses.dataclass(frozen=True)
class Plan:
    """The layout of the arrays; pickled to workers, which make the same views."""

    num_envs: int
    observation_space: gymnasium.Space
    action_space: gymnasium.Space
    info_fields: Mapping[str, gymnasium.Space]
    answers: tuple[Answer, ...]  # of Fields
    actions: list[Field]
    elapsed: Field  # int32[N], steps of the episode
    restarted: Field  # bool[N], the environment was constructed again
    seeds: Field  # int64[N], -1 for none
    mode: Field  # uint8[1], the place in MODES
    size: int

    @property
    def observation_leaves(self) -> list[Leaf]:
        return leaves_of(self.observation_space)

    @property
    def action_leaves(self) -> list[Leaf]:
        return leaves_of(self.action_space)


def plan(
    num_envs: int,
    observation_space: gymnasium.Space,
    action_space: gymnasium.Space,
    info_fields: Mapping[str, gymnasium.Space],
    has_finals: bool,
    start: int = 0,
) -> Plan:
    """Lays out the arrays of `num_envs` instances, starting at byte `start`."""
    fields = Fields(start)

    def batch(leaves: list[Leaf]) -> list[Field]:
        return [fields.add((num_envs, *leaf.shape), leaf.dtype) for leaf in leaves]

    observation = leaves_of(observation_space)
    infos = [leaf for space in info_fields.values() for leaf in leaves_of(space)]
    answers = tuple(
        Answer(
            observation=batch(observation),
            final_observation=batch(observation if has_finals else []),
            reward=fields.add((num_envs,), np.float64),
            terminated=fields.add((num_envs,), np.bool_),
            truncated=fields.add((num_envs,), np.bool_),
            fields=batch(infos),
            final_fields=batch(infos if has_finals else []),
            info_size=fields.add((num_envs,), np.int32),
            info=fields.add((num_envs, INFO_ROOM), np.uint8),
        )
        for _ in range(BUFFERS)
    )
    return Plan(
        num_envs=num_envs,
        observation_space=observation_space,
        action_space=action_space,
        info_fields=dict(info_fields),
        answers=answers,
        actions=batch(leaves_of(action_space)),
        elapsed=fields.add((num_envs,), np.int32),
        restarted=fields.add((num_envs,), np.bool_),
        seeds=fields.add((num_envs,), np.int64),
        mode=fields.add((1,), np.uint8),
        size=fields.size,
    )


@dataclasses.dataclass(frozen=True)
class Arrays:
    """The views of one process."""

    answers: tuple[Answer, ...]
    actions: list[np.ndarray]
    elapsed: np.ndarray
    restarted: np.ndarray
    seeds: np.ndarray
    mode: np.ndarray

    @property
    def autoreset_mode(self) -> AutoresetMode:
        """The autoreset mode."""
        return MODES[self.mode[0]]

    @classmethod
    def over(cls, plan: Plan, memory: Any) -> "Arrays":
        """Returns views of `memory`, a buffer of at least `plan.size` bytes."""
        names = [field.name for field in dataclasses.fields(Answer)]
        answers = tuple(
            Answer(**{name: _view(getattr(answer, name), memory) for name in names})
            for answer in plan.answers
        )
        names = "actions", "elapsed", "restarted", "seeds", "mode"
        return cls(answers, *(_view(getattr(plan, name), memory) for name in names))


def _view(found: Any, memory: Any) -> Any:
    # Not a nested function: its reference cycle would keep the memory until garbage collection.
    return (
        [_view(each, memory) for each in found] if isinstance(found, list) else found.view(memory)
    )
