"""Rules that the certificates of equality with bsuite do not cover, or only in long runs."""

import gzip

import jax
import numpy as np
import pytest

import jaxenvs
from jaxenvs.envs.bsuite import (
    Bandit,
    BsuiteCartPole,
    BsuiteCartPoleState,
    BsuiteMountainCar,
    CartPoleSwingup,
    DeepSea,
    DiscountingChain,
    Mnist,
    UmbrellaChain,
)
from jaxenvs.envs.bsuite.mnist import FOLDER, read_images
from jaxenvs.errors import ParameterError

KEY = jax.random.key(0)


@jax.jit
def run(env, actions, key):
    def step(state, inputs):
        return env.step(state, *inputs)

    keys = jax.random.split(key, len(actions))
    return jax.lax.scan(step, env.reset(key)[0], (actions, keys))[1]


def play(env, actions):
    """Returns the timesteps of a sequence of actions after reset."""
    return jax.device_get(run(env, np.asarray(actions, np.int32), KEY))


@pytest.mark.parametrize(("max_time", "length"), [(10.0, 1_001), (1.0, 100)])
def test_the_clock_of_the_cart_pole_counts_bsuites_steps(max_time, length):
    timesteps = play(CartPoleSwingup(max_time=max_time), [1] * (length + 1))
    assert timesteps.terminated.argmax() == length - 1
    assert timesteps.observation[length - 1, 0, 5] == pytest.approx(length / max_time / 100)
    assert not timesteps.truncated.any()


@pytest.mark.parametrize("clock", [{"timescale": 0.0}, {"max_time": -1.0}, {"max_time": np.inf}])
def test_clocks_that_do_not_end_are_rejected(clock):
    with pytest.raises(ParameterError, match="timescale must be positive"):
        BsuiteCartPole(**clock)


def test_an_upright_pole_pays_1_and_a_push_costs():
    compiled = jax.jit(CartPoleSwingup().step)

    def step(action, **changes):
        values = {"x": 0.0, "x_dot": 0.0, "theta": 0.1, "theta_dot": 0.0, **changes}
        leaves = {name: np.float32(value) for name, value in values.items()}
        state = BsuiteCartPoleState(**leaves, elapsed=np.int32(0))
        _, timestep = compiled(state, np.int32(action), KEY)
        return float(timestep.reward), bool(timestep.info["is_upright"])

    assert step(1) == (1, True)
    assert step(0) == step(2) == (pytest.approx(0.9), True)
    assert step(1, x=1.1) == step(1, theta=1.1) == step(1, theta_dot=1.1) == (0, False)


def test_the_clock_of_the_mountain_car_terminates():
    timesteps = play(BsuiteMountainCar(max_steps=20), [1] * 20)
    assert timesteps.terminated.tolist() == [False] * 19 + [True]
    np.testing.assert_allclose(timesteps.observation[:, 0, 2], np.arange(1, 21) / 20, rtol=2e-7)
    assert (timesteps.reward == -1).all() and not timesteps.truncated.any()


@pytest.mark.parametrize("env", [DeepSea(size=8), DeepSea(size=5, randomize_actions=False)])
def test_only_the_path_along_the_diagonal_leads_to_the_treasure(env):
    right = np.diag(env.mapping).astype(int)
    timesteps = play(env, right)
    assert timesteps.reward.sum() == pytest.approx(0.99)
    assert timesteps.info["denoised_reward"].tolist() == [0] * (env.size - 1) + [1]
    assert not timesteps.info["bad_episode"].any() and timesteps.terminated[-1]
    assert not timesteps.observation[-1].any()
    right[2] = 1 - right[2]
    timesteps = play(env, right)
    assert timesteps.reward.sum() < 0 and not timesteps.info["denoised_reward"].any()
    assert timesteps.info["bad_episode"].tolist() == [False] * 2 + [True] * (env.size - 2)


def test_wind_and_noise_of_the_deep_sea():
    env = DeepSea(size=4, deterministic=False)
    right = np.diag(env.mapping).astype(np.int32)
    keys = jax.random.split(KEY, 4_000)
    timesteps = jax.device_get(jax.vmap(run, (None, None, 0))(env, right, keys))
    assert timesteps.info["denoised_reward"].sum() / 4_000 == pytest.approx(0.75**3, abs=0.04)
    noise = timesteps.reward[:, -1] - timesteps.info["denoised_reward"][:, -1]
    noise = noise[timesteps.info["denoised_reward"][:, -1] == 1]
    assert abs(noise.mean()) < 0.15 and noise.std() == pytest.approx(1, abs=0.1)


def test_mappings_are_leaves_that_can_differ_between_instances():
    env = Bandit(rewards=np.stack([Bandit(mapping_seed=i).mapping for i in range(3)]))
    env = jaxenvs.vectorize(env, 3, batched=("rewards",))
    state, _ = jax.jit(env.reset)(KEY)
    _, timestep = jax.jit(env.step)(state, np.zeros(3, np.int32), KEY)
    assert timestep.reward.tolist() == [Bandit(mapping_seed=i).mapping[0] for i in range(3)]


@pytest.mark.parametrize("make", [Bandit, DeepSea])
@pytest.mark.parametrize("seed", [-1, 2**32, 0.5])
def test_seeds_that_numpy_does_not_take_are_rejected(make, seed):
    with pytest.raises(ParameterError, match="mapping_seed"):
        make(mapping_seed=seed)


@pytest.mark.parametrize("chain", range(5))
def test_each_chain_pays_once(chain):
    timesteps = play(DiscountingChain(mapping_seed=7), [chain] + [0] * 99)
    assert np.flatnonzero(timesteps.reward) == [1, 3, 10, 30, 100][chain] - 1
    assert timesteps.reward.sum() == pytest.approx(1.1 if chain == 2 else 1)
    assert timesteps.terminated.tolist() == [False] * 99 + [True]


def test_only_the_first_action_decides_about_the_umbrella():
    env = UmbrellaChain(chain_length=4, n_distractor=3)
    _, start = jax.device_get(jax.jit(env.reset)(KEY))
    need = int(start.observation[0, 0])
    for first, reward in ((need, 1), (1 - need, -1)):
        timesteps = play(env, [first, 1 - first, 1 - first, 1 - first])
        assert timesteps.reward[-1] == reward and (abs(timesteps.reward) == 1).all()
        assert (timesteps.observation[:, 0, 1] == first).all()
        assert timesteps.observation[:, 0, 2].tolist() == [0.75, 0.5, 0.25, 0]


def test_umbrella_chains_of_different_lengths_in_one_batch():
    env = UmbrellaChain(chain_length=np.array([1, 3], np.int32))
    env = jaxenvs.vectorize(env, 2, batched=("chain_length",), autoreset_mode="disabled")
    state, _ = jax.jit(env.reset)(KEY)
    _, timestep = jax.jit(env.step)(state, np.zeros(2, np.int32), KEY)
    assert timestep.terminated.tolist() == [True, False]


def test_images_come_from_a_folder_or_are_passed(tmp_path):
    images, labels = read_images("tests/mnist")
    assert images.shape == (40, 28, 28) and set(labels) == set(range(10))
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"):
        with gzip.open(f"tests/mnist/{name}.gz") as file:
            (tmp_path / name).write_bytes(file.read())
    np.testing.assert_array_equal(Mnist(data_dir=str(tmp_path)).images, images)
    env = Mnist(images=images[:2], labels=labels[:2], signed_pixels=False)
    state, timestep = jax.device_get(jax.jit(env.reset)(KEY))
    np.testing.assert_allclose(timestep.observation, images[state.index] / 255, rtol=1e-6)
    _, timestep = jax.device_get(jax.jit(env.step)(state, np.int32(labels[state.index]), KEY))
    assert timestep.reward == 1 and not timestep.observation.any()


def test_bright_pixels_are_negative_as_in_bsuite():
    _, timestep = jax.device_get(jax.jit(Mnist().reset)(KEY))
    assert timestep.observation.min() < 0 and timestep.observation in Mnist().observation_space


def test_missing_images_are_named(tmp_path, monkeypatch):
    with pytest.raises(ParameterError, match="does not contain train-images"):
        Mnist(data_dir=str(tmp_path))
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"<html>")
    with pytest.raises(ParameterError, match="not a file of MNIST"):
        Mnist(data_dir=str(tmp_path))
    monkeypatch.delenv(FOLDER)
    env = jaxenvs.make("bsuite/mnist-v0")
    with pytest.raises(ParameterError, match=f"got no images.*{FOLDER}"):
        env.reset(KEY)


@pytest.mark.parametrize("options", [{"fraction": 0.0}, {"fraction": 0.01}, {"images": np.ones(1)}])
def test_wrong_selections_of_images_are_rejected(options):
    with pytest.raises(ParameterError, match="Mnist got"):
        Mnist(**options)
