"""Pixel-by-pixel comparison of the classic control images with Gymnasium's."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.envs.classic_control import (
    AcrobotState,
    CartPoleState,
    MountainCarState,
    PendulumState,
)

# Gymnasium rounds corners to whole pixels and draws hard edges; ours are smooth. So this share of
# the pixels, all of them on edges, may differ visibly, and a smaller share by more than half.
VISIBLE, SHARE_VISIBLE = 32, 0.004
STRONG, SHARE_STRONG = 128, 0.001

CASES = {
    "CartPole-v1": (CartPoleState, [(0, 0, 0, 0), (1.3, 0, 0.15, 0), (-2.2, 0, -0.4, 0)]),
    "MountainCar-v0": (MountainCarState, [(-0.5, 0), (-1.2, 0), (0.5, 0.03)]),
    "MountainCarContinuous-v0": (MountainCarState, [(-0.9, 0), (0.1, 0), (0.45, 0)]),
    "Acrobot-v1": (AcrobotState, [(0, 0, 0, 0), (1, -0.7, 0, 0), (2.9, 0.8, 0, 0)]),
    "Pendulum-v1": (PendulumState, [(0, 0, 0), (1, 0, 1.5), (3, 0, -2), (-2, 0, 0.8)]),
}


def frames_of_both(id):
    state_type, rows = CASES[id]
    reference = gymnasium.make(id, render_mode="rgb_array", disable_env_checker=True)
    reference.reset(seed=0)
    theirs = []
    for row in rows:
        if state_type is PendulumState:
            reference.unwrapped.last_u = row[2] or None
            row = row[:2]
        reference.unwrapped.state = np.array(row, np.float64)
        theirs.append(reference.render())
    reference.close()
    columns = jnp.array(rows, jnp.float32).T
    names = state_type.__dataclass_fields__
    states = state_type(**dict(zip(names, columns, strict=True)))
    ours = jax.jit(jax.vmap(jaxenvs.make(id).unwrapped.render))(states)
    return np.asarray(ours), np.stack(theirs)


@pytest.mark.parametrize("id", CASES)
def test_frames_match_gymnasium(id):
    pytest.importorskip("pygame")
    ours, theirs = frames_of_both(id)
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    difference = np.abs(ours.astype(int) - theirs).max(-1)
    assert (difference > VISIBLE).mean(axis=(1, 2)).max() < SHARE_VISIBLE
    assert (difference > STRONG).mean(axis=(1, 2)).max() < SHARE_STRONG

    # The bounds are tight enough to distinguish these states.
    shuffled = np.abs(np.roll(ours, 1, axis=0).astype(int) - theirs).max(-1)
    assert (shuffled > STRONG).mean(axis=(1, 2)).min() > SHARE_STRONG
