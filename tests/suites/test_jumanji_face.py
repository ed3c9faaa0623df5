"""Our environments with the interface of jumanji, beside themselves and under its own code."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs import spaces
from jaxenvs.errors import ParameterError, SpaceError
from jaxenvs.testing import CountingEnv, ScriptedEnv, check_env
from jaxenvs.testing.dummy import BOTH, CONTINUE, TERMINATE, TRUNCATE
from jaxenvs.wrappers import TransformAction, TransformObservation
from tests.rounding import assert_agree
from tests.suites.combinations import SCRIPT, check_endings

jumanji = pytest.importorskip("jumanji")

from jumanji import specs, wrappers  # noqa: E402
from jumanji.testing.env_not_smoke import (  # noqa: E402
    check_env_does_not_smoke,
    check_env_specs_does_not_smoke,
)

from jaxenvs.faces.jumanji import make_jumanji  # noqa: E402
from jaxenvs.suites.jumanji import from_jumanji  # noqa: E402

pytestmark = pytest.mark.interop

ENVS = {
    "box": lambda: jaxenvs.make("CartPole-v1", time_limit=12),
    "continuous": lambda: jaxenvs.make("Pendulum-v1", time_limit=9),
    "tuple": lambda: jaxenvs.make("Blackjack-v1"),
    "dict": lambda: CountingEnv(layout="dict"),
    "image": lambda: jaxenvs.make("MinAtar/Breakout-v1", time_limit=30),
    "info": lambda: jaxenvs.make("Taxi-v3", time_limit=10),
}
each_env = pytest.mark.parametrize("env", [pytest.param(m, id=name) for name, m in ENVS.items()])


def as_tuples(tree):
    """Returns a tree with tuples in place of named tuples, and of dicts, which have sorted keys."""
    if isinstance(tree, dict):
        return tuple(as_tuples(tree[name]) for name in sorted(tree))
    return tuple(map(as_tuples, tree)) if isinstance(tree, tuple) else tree


@each_env
def test_every_step_is_that_of_the_native_environment(env):
    native = env()
    env = make_jumanji(native)
    step, native_step = jax.jit(env.step), jax.jit(native.step)
    endings = 0
    for seed in range(5):
        state, timestep = jax.jit(env.reset)(jax.random.PRNGKey(seed))
        key, next_key = jax.random.split(jax.random.key(seed))
        native_state, expected = jax.jit(native.reset)(key)
        assert timestep.first()
        for t in range(40):
            assert_agree(as_tuples(timestep.observation), as_tuples(expected.observation))
            assert_agree((timestep.reward, timestep.extras), (expected.reward, expected.info))
            assert_agree(state.native, native_state)
            assert bool(timestep.last()) == bool(expected.done)
            assert float(timestep.discount) == float(not expected.terminated)
            if expected.done:
                break
            action = native.action_space.sample(jax.random.key(t))
            state, timestep = step(state, action)
            key, next_key = jax.random.split(next_key)
            native_state, expected = native_step(native_state, action, key)
        endings += int(expected.done)
    assert endings == 5


@each_env
def test_specs_are_valid_and_those_of_the_spaces(env):
    native = env()
    env = make_jumanji(native)
    check_env_does_not_smoke(env)
    check_env_specs_does_not_smoke(env)
    _, timestep = env.reset(jax.random.PRNGKey(0))
    env.observation_spec.validate(timestep.observation)
    env.reward_spec.validate(timestep.reward)
    env.discount_spec.validate(timestep.discount)
    example = env.observation_spec.generate_value()
    chex.assert_trees_all_equal_structs(example, timestep.observation)
    chex.assert_trees_all_equal_shapes_and_dtypes(example, timestep.observation)
    if not isinstance(native.observation_space, spaces.Tuple):
        back = from_jumanji(env)
        assert back.observation_space == native.observation_space
        assert back.action_space == native.action_space


def test_shifted_integers_and_unbounded_boxes_have_specs():
    inner = CountingEnv()
    env = TransformAction(inner, lambda action: action + 1, spaces.Discrete(2, start=-1))
    spec = make_jumanji(env).action_spec
    assert type(spec) is specs.BoundedArray and (int(spec.minimum), int(spec.maximum)) == (-1, 0)
    env = TransformAction(inner, lambda action: action[0], spaces.MultiDiscrete([2, 3]))
    assert make_jumanji(env).action_spec == specs.MultiDiscreteArray(
        jnp.array([2, 3]), name="action"
    )
    unbounded = spaces.Box(-np.inf, np.inf, (2,))
    env = TransformObservation(inner, lambda observation: observation, unbounded)
    assert type(make_jumanji(env).observation_spec) is specs.Array


def test_make_jumanji_keeps_episode_endings_and_discounts():
    env = make_jumanji(ScriptedEnv())
    for action, is_last, discount in (
        (CONTINUE, False, 1),
        (TERMINATE, True, 0),
        (TRUNCATE, True, 1),
        (BOTH, True, 0),
    ):
        state, _ = env.reset(jax.random.key(0))  # a typed key
        _, timestep = jax.jit(env.step)(state, jnp.int32(action))
        assert (bool(timestep.last()), bool(timestep.mid())) == (is_last, not is_last)
        assert float(timestep.discount) == discount and float(timestep.reward) == action


def test_jumanji_auto_reset_keeps_the_last_observation():
    env = wrappers.VmapAutoResetWrapper(make_jumanji(ScriptedEnv()), next_obs_in_extras=True)
    state, timestep = env.reset(jax.random.split(jax.random.PRNGKey(0), 3))
    step = jax.jit(env.step)
    start, count = np.asarray(timestep.observation[:, 0]), 0
    for action in SCRIPT:
        state, timestep = step(state, jnp.full(3, action, jnp.int32))
        count += 1
        last = np.stack([start, np.full(3, count)], axis=1)
        np.testing.assert_array_equal(timestep.extras["next_obs"], last)
        assert timestep.last().tolist() == [action != CONTINUE] * 3
        if action != CONTINUE:
            assert (np.asarray(timestep.observation[:, 0]) != start).all()
            start, count = np.asarray(timestep.observation[:, 0]), 0
        np.testing.assert_array_equal(timestep.observation[:, 1], count)


def test_a_round_trip_keeps_endings_and_the_last_observation():
    native = from_jumanji(make_jumanji(CountingEnv(layout="dict", truncates=True)))
    check_env(native, num_steps=16, num_envs=4)
    check_endings(from_jumanji(make_jumanji(ScriptedEnv())))


def balance(observation, key=None):
    """A policy for CartPole that falls after about 40 steps."""
    return (observation[..., 2] > 0).astype(jnp.int32)


def test_returns_in_a_jumanji_loop_match_evaluate():
    num_envs, num_steps = 256, 100
    native = jaxenvs.make("CartPole-v1", time_limit=45)
    env = wrappers.VmapWrapper(wrappers.AutoResetWrapper(make_jumanji(native)))

    @jax.jit
    def play(key):
        def step(carry, _):
            state, timestep, total, first = carry
            state, timestep = env.step(state, balance(timestep.observation))
            total = total + timestep.reward
            done = timestep.last()
            first = jnp.where(done & jnp.isnan(first), total, first)
            return (state, timestep, jnp.where(done, 0.0, total), first), done

        state, timestep = env.reset(jax.random.split(key, num_envs))
        start = (state, timestep, jnp.zeros(num_envs), jnp.full(num_envs, jnp.nan))
        (*_, first), dones = jax.lax.scan(step, start, None, num_steps)
        return first, dones.sum(axis=0)

    returns, episodes = play(jax.random.PRNGKey(0))
    assert (episodes >= 2).all() and np.isfinite(returns).all()
    result = jaxenvs.evaluate(jaxenvs.vectorize(native, num_envs), balance, 1, jax.random.key(1))
    theirs, ours = np.asarray(returns), np.asarray(result.episode_return)
    assert theirs.std() > 1 and theirs.max() == 45  # some episodes reach the limit
    error = np.sqrt(theirs.var() / theirs.size + ours.var() / ours.size)
    assert abs(theirs.mean() - ours.mean()) < 4 * error


def test_jumanji_a2c_agent_learns_to_balance():
    """jumanji's A2C and its evaluator, as in its `setup_train`, with a network for vectors."""
    hk = pytest.importorskip("haiku")
    optax = pytest.importorskip("optax")
    pytest.importorskip("rlax")
    from jumanji.training.agents.a2c import A2CAgent
    from jumanji.training.evaluator import Evaluator
    from jumanji.training.networks.actor_critic import ActorCriticNetworks
    from jumanji.training.networks.base import FeedForwardNetwork
    from jumanji.training.networks.parametric_distribution import CategoricalParametricDistribution
    from jumanji.training.types import ActingState, TrainingState

    raw_env = make_jumanji("CartPole-v1")
    env = wrappers.VmapAutoResetWrapper(raw_env)
    num_envs, num_actions = 64, int(env.action_spec.num_values)

    def network(num_outputs):
        def apply(observation):
            out = hk.nets.MLP([64, num_outputs], activation=jnp.tanh)(observation)
            return out if num_outputs > 1 else out[..., 0]

        return FeedForwardNetwork(*hk.without_apply_rng(hk.transform(apply)))

    agent = A2CAgent(
        env=env,
        n_steps=16,
        total_batch_size=num_envs,
        actor_critic_networks=ActorCriticNetworks(
            policy_network=network(num_actions),
            value_network=network(1),
            parametric_action_distribution=CategoricalParametricDistribution(num_actions),
        ),
        optimizer=optax.adam(1e-2),
        normalize_advantage=True,
        discount_factor=0.99,
        bootstrapping_factor=0.95,
        l_pg=1.0,
        l_td=0.5,
        l_en=0.01,
    )
    num_devices = jax.local_device_count()
    params_key, reset_key, acting_key, eval_key = jax.random.split(jax.random.PRNGKey(0), 4)
    batch = num_envs // num_devices
    state, timestep = jax.pmap(env.reset)(jax.random.split(reset_key, (num_devices, batch)))
    keys, zeros = jax.random.split(acting_key, num_devices), jnp.zeros(num_devices, jnp.float32)
    params = agent.init_params(params_key)
    training = TrainingState(
        params_state=jax.tree.map(lambda leaf: jnp.stack([leaf] * num_devices), params),
        acting_state=ActingState(state, timestep, keys, zeros, zeros),
    )
    evaluator = Evaluator(raw_env, agent, total_batch_size=num_envs, stochastic=False)

    def evaluate(training):
        metrics = evaluator.run_evaluation(training.params_state, eval_key)
        assert float(metrics["episode_return"][0]) == float(metrics["episode_length"][0])
        return float(metrics["episode_return"][0])

    def train(training):
        return jax.lax.scan(lambda state, _: agent.run_epoch(state), training, None, 600)[0]

    train = jax.pmap(train, axis_name="devices")
    before, after = evaluate(training), evaluate(train(training))
    assert before < 30 and after > 100, (before, after)


def test_make_jumanji_errors_say_what_is_expected():
    with pytest.raises(ParameterError, match="make_jumanji got"):
        make_jumanji("gymnasium/CartPole-v1")
    pair = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)])
    with pytest.raises(SpaceError, match="arrays"):
        make_jumanji(TransformAction(CountingEnv(), lambda action: action[0], pair))
    for name in ("class", "a b", "name"):
        named = spaces.Dict({name: CountingEnv().observation_space})
        env = TransformObservation(CountingEnv(), lambda obs, name=name: {name: obs}, named)
        with pytest.raises(SpaceError, match="TransformObservation"):
            make_jumanji(env)
