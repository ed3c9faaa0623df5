"""What a pool returns, whatever steps its environments."""

import gymnasium
import numpy as np
import pytest

import jaxenvs
from tests.bridge.envs import Counter

BACKENDS = ("serial", "process")


def counters(n, **kwargs):
    return [lambda i=i: Counter(number=i, **kwargs) for i in range(n)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_a_pool_is_gymnasiums_own_step_for_step(backend, mode):
    n = 5
    theirs = gymnasium.make_vec(
        "CartPole-v1",
        n,
        vectorization_mode="sync",
        vector_kwargs={
            "autoreset_mode": getattr(gymnasium.vector.AutoresetMode, mode.upper()),
        },
    )
    with jaxenvs.make_pool("CartPole-v1", n, backend=backend, autoreset_mode=mode) as pool:
        expected, _ = theirs.reset(seed=7)
        found, _ = pool.reset(seed=7)
        np.testing.assert_array_equal(found, expected)
        rng = np.random.default_rng(0)
        for _ in range(300):
            actions = rng.integers(0, 2, n)
            expected, found = theirs.step(actions), pool.step(actions)
            for mine, their in zip(found[:4], expected[:4], strict=True):
                np.testing.assert_array_equal(mine, their)
            assert ("final_obs" in found[4]) == ("final_obs" in expected[4])
            if "final_obs" in found[4]:
                np.testing.assert_array_equal(found[4]["_final_obs"], expected[4]["_final_obs"])
                for mine, their in zip(
                    found[4]["final_obs"], expected[4]["final_obs"], strict=True
                ):
                    np.testing.assert_array_equal(mine, their)
