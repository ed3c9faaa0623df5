"""Environments without a task, for tests of code that runs environments."""

import dataclasses
from typing import Literal

import chex
import jax
import jax.numpy as jnp

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep

CONTINUE, TERMINATE, TRUNCATE, BOTH = range(4)


@chex.dataclass(frozen=True)
class CountingState:
    count: jax.Array  # int32[], steps since reset
    length: jax.Array  # int32[], length of this episode
    key: chex.ArrayTree  # a typed key if `has_key`, else ()


class CountingEnv(Environment[CountingState]):
    """An environment that counts the steps of an episode, up to its length.

    Observation: the count and uniform random numbers drawn from the key of the step; by `layout`
        "array"  float32[2], the count and one number
        "dict"   {"count": int32[], "draw": float32[2]}
        "tuple"  (int32[], float32[2])
    Action: int32[], 0 or 1, without effect
    Reward: the count, so an episode of length L has the return L (L + 1) / 2
    Start: count 0; the length is drawn from `lengths`
    Ends: when the count reaches the length, by truncation if `truncates`, else by termination

    With `has_key`, the state contains a typed key, which is used instead of the key of the step.
    This tests that code that copies and selects states also handles keys.
    """

    lengths: tuple[int, ...] = struct.static((3, 1, 4, 1, 5))
    layout: Literal["array", "dict", "tuple"] = struct.static("array")
    has_key: bool = struct.static(False)
    truncates: bool = False

    @property
    def observation_space(self) -> spaces.Space:
        longest = max(self.lengths)
        if self.layout == "array":
            return spaces.Box([0.0, 0.0], [longest, 1.0])
        count, draw = spaces.Discrete(longest + 1), spaces.Box(0.0, 1.0, (2,))
        if self.layout == "dict":
            return spaces.Dict({"count": count, "draw": draw})
        return spaces.Tuple((count, draw))

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(2)

    def reset(self, key: chex.PRNGKey) -> tuple[CountingState, TimeStep]:
        length_key, draw_key, state_key = jax.random.split(key, 3)
        length = jax.random.choice(length_key, jnp.array(self.lengths, jnp.int32))
        state_key = state_key if self.has_key else ()
        state = CountingState(count=jnp.int32(0), length=length, key=state_key)
        return state, TimeStep.first(self._observe(state, draw_key))

    def step(
        self, state: CountingState, action: jax.Array, key: chex.PRNGKey
    ) -> tuple[CountingState, TimeStep]:
        del action  # it has no effect
        state_key = state.key
        if self.has_key:
            state_key, key = jax.random.split(state_key)
        state = CountingState(count=state.count + 1, length=state.length, key=state_key)
        is_over = state.count >= state.length
        return state, TimeStep.transition(
            self._observe(state, key),
            reward=state.count,
            terminated=is_over & jnp.logical_not(self.truncates),
            truncated=is_over & self.truncates,
        )

    def _observe(self, state: CountingState, key: chex.PRNGKey) -> chex.ArrayTree:
        draw = jax.random.uniform(key, (2,), jnp.float32)
        if self.layout == "array":
            return jnp.stack([state.count.astype(jnp.float32), draw[0]])
        if self.layout == "dict":
            return {"count": state.count, "draw": draw}
        return (state.count, draw)


@chex.dataclass(frozen=True)
class ScriptedState:
    count: jax.Array  # int32[], steps since reset
    start: jax.Array  # uint32[], drawn by reset: identifies the episode


class ScriptedEnv(Environment[ScriptedState]):
    """An environment whose actions determine when and how episodes end.

    Observation: uint32[2], the episode's random number and its number of steps so far
    Action: int32[], 0 continues, 1 terminates, 2 truncates, 3 does both
    Reward: the action, as float32
    Start: a random number drawn from the key, and count 0
    Info: "count", int32[], the episode's number of steps so far
    """

    @property
    def observation_space(self) -> spaces.Box:
        top = jnp.iinfo(jnp.uint32).max
        return spaces.Box([0, 0], [top, top], dtype=jnp.uint32)

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(4)

    def reset(self, key: chex.PRNGKey) -> tuple[ScriptedState, TimeStep]:
        state = ScriptedState(count=jnp.int32(0), start=jax.random.bits(key, (), jnp.uint32))
        return state, TimeStep.first(self._observe(state), info={"count": state.count})

    def step(
        self, state: ScriptedState, action: jax.Array, key: chex.PRNGKey
    ) -> tuple[ScriptedState, TimeStep]:
        del key  # the action determines everything
        state = dataclasses.replace(state, count=state.count + 1)
        return state, TimeStep.transition(
            self._observe(state),
            reward=action,
            terminated=(action == TERMINATE) | (action == BOTH),
            truncated=(action == TRUNCATE) | (action == BOTH),
            info={"count": state.count},
        )

    def _observe(self, state: ScriptedState) -> jax.Array:
        return jnp.stack([state.start, state.count.astype(jnp.uint32)])
