"""Options of `reset`: the range of first states in classic control, and masks."""

import gymnasium
import numpy as np
import pytest

import jaxenvs
from jaxenvs.errors import ParameterError

N = 200
BOUNDS = {"low": -0.5, "high": -0.3}
CASES = [
    ("CartPole-v1", BOUNDS),
    ("CartPole-v1", {"low": -0.5}),
    ("Acrobot-v1", BOUNDS),
    ("MountainCar-v0", BOUNDS),
    ("MountainCar-v0", {"high": np.float64(-0.3)}),
    ("MountainCarContinuous-v0", BOUNDS),
    ("Pendulum-v1", {"x_init": 0.5, "y_init": 0.25}),
    ("Pendulum-v1", {"y_init": 3}),
]


@pytest.mark.parametrize(("id", "options"), CASES, ids=str)
def test_first_states_have_the_range_of_gymnasium(id, options):
    env = gymnasium.make(id)
    theirs = np.stack([env.reset(seed=seed, options=options)[0] for seed in range(N)])
    envs = jaxenvs.make_gym(id, N)
    ours, _ = envs.reset(seed=0, options=options)
    spread = theirs.std(axis=0).max()
    np.testing.assert_allclose(ours.mean(axis=0), theirs.mean(axis=0), atol=0.3 * spread)
    np.testing.assert_allclose(ours.std(axis=0), theirs.std(axis=0), atol=0.15 * spread)
    assert np.all(np.abs(ours.min(axis=0) - theirs.min(axis=0)) < 0.2 * spread)
    assert np.all(np.abs(ours.max(axis=0) - theirs.max(axis=0)) < 0.2 * spread)

    usual, _ = envs.reset(seed=0)
    assert not np.allclose(np.sort(usual, axis=0), np.sort(ours, axis=0), atol=0.05)
    mask = np.arange(N) < 3
    again, _ = envs.reset(seed=0, options={"reset_mask": mask, **options})
    np.testing.assert_array_equal(again[:3], ours[:3])
    np.testing.assert_array_equal(again[3:], usual[3:])
    one, _ = jaxenvs.make_gym(id).reset(seed=0, options=options)
    np.testing.assert_allclose(one, ours[0], atol=1e-6)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"low": 0.1}, r"between 0\.1.* and 0\.05"),
        ({"low": "x"}, r"options\['low'\] got 'x'; expected a finite number"),
        ({"high": None}, "expected a finite number"),
        ({"high": float("nan")}, "expected a finite number"),
        ({"lo": 0.1}, r'the options of.*: low, high.*Close: "low"'),
        ({"x_init": 0.1}, "the options of.*: low, high"),
        (3, "expected a dict"),
    ],
    ids=str,
)
@pytest.mark.parametrize("num_envs", [None, 2])
def test_wrong_options_are_refused(num_envs, options, expected):
    env = jaxenvs.make_gym("CartPole-v1", num_envs)
    with pytest.raises(ParameterError, match=expected):
        env.reset(seed=0, options=options)


def test_options_of_batches_alone_are_named():
    with pytest.raises(ParameterError, match=r'low, high, reset_mask.*Close: "reset_mask"'):
        jaxenvs.make_gym("CartPole-v1", 2).reset(options={"reset_maks": np.array([True, False])})
    with pytest.raises(ParameterError, match=r"FrozenLake.*: none"):
        jaxenvs.make_gym("FrozenLake-v1").reset(options={"reset_mask": np.array([True])})


def test_bounds_can_be_batched_parameters():
    low = np.array([-0.1, 0.0, 0.1])
    envs = jaxenvs.make_gym("CartPole-v1", 3, start_low=low, start_high=0.2, batched=["start_low"])
    first, _ = envs.reset(seed=0, options={"high": 0.11})
    assert np.all(first >= low[:, None]) and np.all(first <= 0.11) and first[2].min() >= 0.1
    first, _ = envs.reset(seed=0, options={"low": 0.15})
    assert np.all((first >= 0.15) & (first <= 0.2))
