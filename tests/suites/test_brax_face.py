"""Our environments with the interface of brax, beside themselves and under brax's own code."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs import keys, spaces
from jaxenvs.errors import ParameterError, SpaceError
from jaxenvs.suites import adapt
from jaxenvs.testing import CountingEnv, ScriptedEnv, check_env
from jaxenvs.testing.dummy import CONTINUE, TERMINATE, TRUNCATE
from jaxenvs.wrappers import TransformAction, TransformObservation
from tests.rounding import assert_agree
from tests.suites.combinations import SCRIPT, check_endings

pytest.importorskip("brax")

from brax import envs
from brax.training import acting
from brax.training.agents.ppo import networks as ppo_networks
from brax.training.agents.ppo import train as ppo
from brax.training.agents.sac import train as sac

from jaxenvs.faces.brax import make_brax, wrap_for_training

pytestmark = pytest.mark.interop


@pytest.fixture
def _replication(monkeypatch):
    """The function that JAX 0.10 removed and that brax's training still calls."""

    def device_put_replicated(tree, devices):
        return jax.tree.map(lambda leaf: jnp.stack([leaf] * len(devices)), tree)

    if not hasattr(jax, "device_put_replicated"):
        monkeypatch.setattr(jax, "device_put_replicated", device_put_replicated, raising=False)


def with_box(env, low, high, shape=(1,), func=lambda action: jnp.rint(action[0]).astype(jnp.int32)):
    return TransformAction(env, func, spaces.Box(low, high, shape))


def scripted():
    return with_box(ScriptedEnv(), 0.0, 3.0)


def press(action):
    """The brax action for an action of `scripted`."""
    return jnp.float32([action / 1.5 - 1])


ENVS = {
    "pendulum": (lambda: jaxenvs.make("Pendulum-v1", time_limit=7), lambda action: 2 * action),
    "car": (lambda: jaxenvs.make("MountainCarContinuous-v0", time_limit=7), lambda action: action),
    "dict": (
        lambda: with_box(CountingEnv(layout="dict", has_key=True), 0.0, 1.0, (), lambda _: 0),
        lambda action: action[0] / 2 + 0.5,
    ),
    "asymmetric": (lambda: with_box(ScriptedEnv(), 0.0, 3.0), lambda action: 1.5 * action + 1.5),
}


@pytest.mark.parametrize("name", ENVS)
def test_every_step_is_that_of_the_native_environment(name):
    native, to_native = ENVS[name][0](), ENVS[name][1]
    if name == "dict":  # networks of brax need vectors
        native = TransformObservation(
            native,
            lambda obs: {**obs, "count": obs["count"][None]},
            spaces.Dict(
                {"count": spaces.Box(0, 5, (1,), np.int32), "draw": spaces.Box(0, 1, (2,))}
            ),
        )
    env = make_brax(native)
    step, native_step = jax.jit(env.step), jax.jit(native.step)
    for seed in range(4):
        state = jax.jit(env.reset)(jax.random.PRNGKey(seed))
        key, next_key = jax.random.split(jax.random.key(seed))
        native_state, expected = jax.jit(native.reset)(key)
        for t in range(30):
            assert_agree(state.pipeline_state, native_state)
            assert_agree((state.obs, state.reward), (expected.observation, expected.reward))
            assert_agree(state.metrics, {k: jnp.float32(v) for k, v in expected.info.items()})
            assert state.done.dtype == jnp.float32 and float(state.done) == float(expected.done)
            truncated = bool(expected.truncated and not expected.terminated)
            assert float(state.info["truncation"]) == float(state.info["time_out"]) == truncated
            if expected.done:
                break
            action = jax.random.uniform(jax.random.key(t), (env.action_size,), minval=-1)
            state = step(state, action)
            key, next_key = jax.random.split(next_key)
            native_state, expected = native_step(native_state, to_native(action), key)
        assert expected.done
    size = jax.tree.map(lambda leaf: leaf.shape, state.obs)
    assert env.observation_size == (size if name == "dict" else size[0])


def test_actions_out_of_range_are_clipped():
    env = make_brax("Pendulum-v1")
    state = env.reset(jax.random.key(0))
    assert_agree(env.step(state, jnp.float32([7])), env.step(state, jnp.float32([1])))


def batch_reference(native, rngs, actions, to_native):
    """Plays actions [T, N, ...] as `wrap_for_training` should. Returns the results by step."""

    def begin(key):
        key, next_key = jax.random.split(key)
        return native.reset(key)[0], native.reset(key)[1].observation, next_key

    def step(carry, action):
        state, _, next_key = carry
        key, next_key = jax.random.split(next_key)
        state, timestep = native.step(state, to_native(action), key)
        fresh = begin(keys.autoreset_key(next_key))
        old = (state, timestep.observation, next_key)
        carry = jax.tree.map(lambda new, kept: jnp.where(timestep.done, new, kept), fresh, old)
        flags = (timestep.done, timestep.truncated & ~timestep.terminated)
        return carry, (carry[1], timestep.reward, flags)

    def play(key, actions):
        return jax.lax.scan(step, begin(key), actions)[1]

    keys_ = jax.random.wrap_key_data(rngs)
    return jax.jit(jax.vmap(play, in_axes=(0, 1), out_axes=1))(keys_, actions)


@pytest.mark.parametrize("num_envs", [5, 200])
def test_batch_episodes_restart_and_mark_truncations(num_envs):
    native = scripted()
    env = wrap_for_training(make_brax(native), episode_length=1_000)
    rngs = jax.random.split(jax.random.PRNGKey(0), num_envs)
    choice = jax.random.randint(jax.random.key(1), (40, num_envs), 0, 8)
    actions = jnp.where(choice < 4, choice, 0)[..., None] / 1.5 - 1

    def step(state, action):
        state = env.step(state, action)
        return state, (state.obs, state.reward, (state.done == 1, state.info["truncation"] == 1))

    _, found = jax.jit(lambda rngs: jax.lax.scan(step, env.reset(rngs), actions))(rngs)
    expected = batch_reference(native, rngs, actions, lambda action: 1.5 * action + 1.5)
    assert_agree(found, expected)
    done, truncated = expected[2]
    assert done.any(axis=0).all() and truncated.any() and (done & ~truncated).any()
    starts = np.concatenate([env.reset(rngs).obs[None], found[0]])[..., 0]
    assert len(np.unique(starts)) == num_envs + int(done.sum())


def test_the_limit_of_brax_truncates_and_counts_again():
    env = wrap_for_training(make_brax(scripted()), episode_length=3)
    state = env.reset(jax.random.split(jax.random.PRNGKey(0), 2))
    step = jax.jit(env.step)
    for t in range(1, 8):
        state = step(state, jnp.stack([press(CONTINUE), press(TERMINATE if t == 2 else CONTINUE)]))
        due = [t % 3 == 0, t in (2, 5)]
        assert (state.done == 1).tolist() == due
        assert (state.info["truncation"] == 1).tolist() == [t % 3 == 0, t == 5]


def test_parameters_can_differ_between_instances():
    env = make_brax("Pendulum-v1", time_limit=4)
    masses = jnp.linspace(0.5, 2.0, 6)

    def randomize(sys):
        many = sys.replace(mass=masses)
        return many, jax.tree.map(lambda leaf: 0 if jnp.ndim(leaf) else None, many)

    batch = wrap_for_training(env, episode_length=100, randomization_fn=randomize)
    rngs = jax.random.split(jax.random.PRNGKey(0), 6)
    state, step = batch.reset(rngs), jax.jit(batch.step)
    first = state.obs
    alone = [make_brax("Pendulum-v1", time_limit=4, mass=float(mass)) for mass in masses]
    for t in range(6):
        before = jax.tree.map(lambda leaf: leaf[3], state)
        state = step(state, jnp.full((6, 1), 0.5))
        expected = alone[3].step(before, jnp.float32([0.5]))
        assert_agree(state.reward[3], expected.reward)
        if t != 3:  # where an episode begins
            assert_agree(state.obs[3], expected.obs)
    assert np.asarray(state.obs != first).any()
    assert len(np.unique(state.reward)) == 6


def test_brax_wrappers_run_and_return_to_the_first_state():
    env = envs.training.wrap(make_brax(scripted()), episode_length=100)
    state = env.reset(jax.random.split(jax.random.PRNGKey(0), 2))
    first, step = state.obs, jax.jit(env.step)
    for action in SCRIPT:
        state = step(state, jnp.stack([press(action)] * 2))
        assert (state.done == (action != CONTINUE)).all()
        assert (state.info["time_out"] == (action == TRUNCATE)).all()
        if action != CONTINUE:
            assert_agree(state.obs, first)
    assert state.info["episode_metrics"]["count"].tolist() == [1, 1]


def play_natively(native, policy, rngs, num_steps):
    """Returns the returns of the first episodes, with the keys of `make_brax`."""

    def play(key):
        key, next_key = jax.random.split(key)
        state, first = native.reset(key)

        def step(carry, _):
            state, observation, next_key, is_active = carry
            key, next_key = jax.random.split(next_key)
            state, timestep = native.step(state, 2 * policy(observation, key)[0], key)
            reward = jnp.where(is_active, timestep.reward, 0)
            return (state, timestep.observation, next_key, is_active & ~timestep.done), reward

        start = (state, first.observation, next_key, True)
        return jax.lax.scan(step, start, None, num_steps)[1].sum()

    return jax.jit(jax.vmap(play))(jax.random.wrap_key_data(rngs))


@pytest.mark.usefixtures("_replication")
def test_brax_ppo_learns_and_its_evaluator_has_native_returns():
    env, returns = make_brax("Pendulum-v1"), []
    make_policy, params, metrics = ppo.train(
        environment=env,
        wrap_env_fn=wrap_for_training,
        num_timesteps=80_000,
        episode_length=1_000,  # the environment has its own limit of 200
        max_devices_per_host=1,
        num_envs=32,
        batch_size=32,
        num_minibatches=8,
        num_updates_per_batch=8,
        unroll_length=5,
        num_eval_envs=32,
        num_evals=2,
        learning_rate=1e-3,
        entropy_cost=1e-2,
        discounting=0.95,
        reward_scaling=0.1,
        normalize_observations=True,
        network_factory=functools.partial(
            ppo_networks.make_ppo_networks, value_hidden_layer_sizes=(64, 64)
        ),
        progress_fn=lambda _, metrics: returns.append(float(metrics["eval/episode_reward"])),
    )
    assert float(metrics["eval/avg_episode_length"]) == 200
    assert returns[0] < -900 and returns[-1] > -500, returns

    policy, key = make_policy(params, deterministic=True), jax.random.PRNGKey(7)
    evaluator = acting.Evaluator(
        wrap_for_training(env, episode_length=200),
        functools.partial(make_policy, deterministic=True),
        num_eval_envs=32,
        episode_length=200,
        action_repeat=1,
        key=key,
    )
    metrics = evaluator.run_evaluation(params, {})
    rngs = jax.random.split(jax.random.split(key)[1], 32)
    ours = np.asarray(play_natively(jaxenvs.make("Pendulum-v1"), policy, rngs, 200))
    np.testing.assert_allclose(metrics["eval/episode_reward"], ours.mean(), rtol=1e-3)
    np.testing.assert_allclose(metrics["eval/episode_reward_std"], ours.std(), rtol=1e-3)


@pytest.mark.usefixtures("_replication")
@pytest.mark.parametrize("wrap", [wrap_for_training, None])
def test_brax_sac_runs(wrap):
    _, _, metrics = sac.train(
        environment=make_brax("MountainCarContinuous-v0", time_limit=20),
        wrap_env_fn=wrap,
        num_timesteps=1_000,
        episode_length=50,
        max_devices_per_host=1,
        num_envs=8,
        num_eval_envs=8,
        num_evals=2,
        min_replay_size=64,
        batch_size=32,
    )
    assert float(metrics["eval/avg_episode_length"]) == 20
    assert -2 <= float(metrics["eval/episode_reward"]) <= 0
    assert np.isfinite(metrics["training/critic_loss"])


def test_a_round_trip_keeps_endings_and_the_last_observation():
    check_env(adapt(make_brax("Pendulum-v1", time_limit=5)), num_steps=16, num_envs=4)
    check_endings(adapt(make_brax(scripted())), press)


def test_make_brax_errors_say_what_is_expected():
    with pytest.raises(ParameterError, match="make_brax got"):
        make_brax("gymnasium/CartPole-v1")
    for env in (
        jaxenvs.make("CartPole-v1"),
        with_box(CountingEnv(), 0.0, np.inf),
        TransformAction(CountingEnv(), lambda action: action[0], spaces.Box(0, 1, (1,), np.int32)),
    ):
        with pytest.raises(SpaceError, match="finite"):
            make_brax(env)
    for layout in ("dict", "tuple"):  # whose counts are scalars
        with pytest.raises(SpaceError, match="FlattenObservation"):
            make_brax(with_box(CountingEnv(layout=layout), 0.0, 1.0))
    with pytest.raises(ParameterError, match="RepeatAction"):
        wrap_for_training(make_brax("Pendulum-v1"), action_repeat=2)
