"""A memory that is cut is one whose newest steps ended their episodes, by truncation if need be."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.training.storages import HindsightReplay, PrioritizedReplay, Replay
from jaxenvs.training.types import Transition

UNROLL, NUM_ENVS, UNROLLS = 4, 3, 7


def unrolls():
    rng = np.random.default_rng(0)
    shape = (UNROLLS, UNROLL, NUM_ENVS)
    at = rng.normal(size=(*shape, 2)).astype(np.float32)
    return Transition(
        observation={"observation": at, "achieved_goal": at, "desired_goal": at + 1},
        action=rng.integers(0, 3, shape).astype(np.int32),
        reward=rng.normal(size=shape).astype(np.float32),
        terminated=rng.random(shape) < 0.2,
        truncated=rng.random(shape) < 0.1,
        next_observation={"observation": -at, "achieved_goal": -at, "desired_goal": at + 1},
    )


def reward(achieved, desired):
    return -jnp.abs(achieved - desired).sum()


def is_reached(achieved, desired):
    return (achieved == desired).all()


@pytest.mark.parametrize(
    "storage",
    [
        Replay(capacity=36, n_step=3),
        PrioritizedReplay(capacity=36, n_step=3),
        HindsightReplay(36, compute_reward=reward, compute_terminated=is_reached),
    ],
    ids=lambda storage: type(storage).__name__,
)
@pytest.mark.parametrize("after", [0, 2, 5])  # none; before and after the ring has closed
def test_truncate_marks_only_the_newest_steps_as_truncated(storage, after):
    steps = unrolls()
    by_hand = jax.tree.map(np.copy, steps)
    if after:
        by_hand.truncated[after - 1, -1] |= ~by_hand.terminated[after - 1, -1]
        assert (by_hand.truncated != steps.truncated).any()

    @jax.jit
    def fill(steps, cut_after):
        state = storage.init(jax.tree.map(lambda x: x[0], steps))
        for i in range(UNROLLS):
            cut = storage.truncate(state)
            state = jax.tree.map(lambda x, y, i=i: jnp.where(i == cut_after, x, y), cut, state)
            state = storage.add(state, jax.tree.map(lambda x, i=i: x[i], steps))
        return state

    chex.assert_trees_all_equal(fill(steps, after), fill(by_hand, -1))
