from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import wrappers as gym
from gymnasium.wrappers import vector as gym_vector
from gymnasium.wrappers.utils import RunningMeanStd

import jaxenvs
from jaxenvs.errors import WrapperError
from jaxenvs.testing import CountingEnv
from jaxenvs.training.checkpoint import restore, save
from jaxenvs.wrappers import NormalizeObservation, NormalizeReward, RepeatAction, StickyAction
from tests.opaque import OpaqueVectorEnv
from tests.rounding import assert_agree
from tests.wrappers._batches import MODES, Echo, GymEcho, play

KEY = jax.random.key(0)
N = 4
EPSILON = 1e-4  # keeps the first, tiny variances from mattering in float32 against float64


def both(env):
    return env.wrap(NormalizeReward, epsilon=EPSILON).wrap(NormalizeObservation, EPSILON)


@partial(jax.jit, static_argnums=1)
def begun(env, num_steps):
    """Returns the state and the timestep after several steps with the same action."""
    act = jnp.ones((N, 2))
    return jax.lax.fori_loop(
        0, num_steps, lambda _, carry: env.step(carry[0], act, KEY), env.reset(KEY)
    )


def recorded(mode, wrap=both, num_steps=24):
    """Returns the raw and the wrapped timesteps of a batch."""
    vector_env = jaxenvs.vectorize(Echo(), N, autoreset_mode=mode, reset_chunk=N)
    raw = play(vector_env, num_steps)[1]
    wrapped, hidden = (
        play(wrap(env), num_steps)[1] for env in (vector_env, OpaqueVectorEnv(vector_env))
    )
    chex.assert_trees_all_equal(wrapped, hidden)
    return jax.tree.map(np.asarray, (raw, wrapped))


@pytest.mark.parametrize("mode", MODES)
def test_batch_shares_statistics_and_counts_values_once(mode):
    raw, wrapped = recorded(mode)
    observations, returns = RunningMeanStd(shape=(3,)), RunningMeanStd()
    discounted, was_done, ends = np.zeros(N), np.zeros(N, bool), 0
    for t in range(len(raw.reward)):
        row, ours = (jax.tree.map(lambda leaf, t=t: leaf[t], tree) for tree in (raw, wrapped))
        shown = ~was_done if mode == "disabled" else np.ones(N, bool)
        if shown.any():
            observations.update(row.observation[shown].astype(float))
        scale = np.sqrt(observations.var + EPSILON)
        for name in ("observation", "final_observation"):
            expected = (row[name] - observations.mean) / scale
            np.testing.assert_allclose(ours[name][shown], expected[shown], rtol=1e-3, atol=1e-4)
            if mode == "disabled":  # frozen observations do not change
                np.testing.assert_array_equal(ours[name][~shown], wrapped[name][t - 1][~shown])
        if t > 0:
            acted = np.ones(N, bool) if mode == "same_step" else ~was_done
            discounted = 0.99 * discounted + row.reward
            if acted.any():
                returns.update(discounted[acted])
            expected = row.reward / np.sqrt(returns.var + EPSILON)
            np.testing.assert_allclose(ours.reward, expected, rtol=1e-3, atol=1e-5)
            discounted[row.done | ~acted] = 0
        was_done = row.done
        ends += row.done.sum()
    assert ends >= N


def test_single_environment_matches_gymnasium_within_an_episode():
    env, reference = both(Echo()), GymEcho([5])
    key = next(k for k in map(jax.random.key, range(99)) if Echo().reset(k)[0].length == 5)
    reference = gym.NormalizeObservation(gym.NormalizeReward(reference, epsilon=EPSILON), EPSILON)
    state, timestep = jax.jit(env.reset)(key)
    observation, _ = reference.reset()
    np.testing.assert_allclose(timestep.observation, observation, atol=1e-4)
    step = jax.jit(env.step)
    for action in np.random.default_rng(0).uniform(-1, 1, (4, 2)).astype(np.float32):
        state, timestep = step(state, action, key)
        observation, reward, *_ = reference.step(action)
        np.testing.assert_allclose(timestep.observation, observation, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(timestep.reward, reward, rtol=1e-3)


def test_batch_matches_gymnasiums_vector_wrapper():
    """Gymnasium's vector wrapper supports only "next_step". The run covers several episodes."""
    import gymnasium

    raw, wrapped = recorded("next_step", lambda env: env.wrap(NormalizeObservation, EPSILON))

    class Tape(gymnasium.vector.VectorEnv):
        metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012
        num_envs, row = N, 0
        single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,))
        observation_space = gymnasium.vector.utils.batch_space(single_observation_space, N)

        def reset(self, *, seed=None, options=None):
            return raw.observation[0], {}

        def step(self, actions):
            self.row += 1
            flags = (raw.terminated[self.row], raw.truncated[self.row])
            return raw.observation[self.row], raw.reward[self.row], *flags, {}

    reference = gym_vector.NormalizeObservation(Tape(), EPSILON)
    rows = [reference.reset()[0]] + [reference.step(None)[0] for _ in range(24)]
    np.testing.assert_allclose(wrapped.observation, rows, rtol=1e-3, atol=1e-3)


def test_partial_resets_keep_the_statistics():
    env = both(jaxenvs.vectorize(Echo(), N, autoreset_mode="disabled"))
    state, timestep = begun(env, 5)
    mask = np.array([True, False, True, False])
    again, fresh = jax.jit(env.reset_where)(mask, state, timestep, KEY)
    np.testing.assert_allclose(again.statistics.count, state.statistics.count + 2)
    chex.assert_trees_all_equal(again.inner.statistics, state.inner.statistics)
    np.testing.assert_array_equal(fresh.done, ~mask)
    np.testing.assert_array_equal(fresh.observation[~mask], timestep.observation[~mask])
    np.testing.assert_array_equal(again.inner.memory[mask], 0.0)
    chex.assert_trees_all_equal_shapes_and_dtypes((state, timestep), (again, fresh))


def test_frozen_and_given_statistics():
    vector_env = jaxenvs.vectorize(Echo(), N)
    env = vector_env.wrap(NormalizeObservation)
    state, _ = begun(env, 1)
    evaluation = env.replace(statistics=state.statistics, update_running_mean=False)
    later, timestep = begun(evaluation, 1)
    chex.assert_trees_all_equal(later.statistics, state.statistics)
    raw = begun(vector_env, 1)[1]
    expected = state.statistics.normalize(raw.observation, limit=None)
    chex.assert_trees_all_close(timestep.observation, expected, rtol=1e-5)
    resumed, _ = begun(env.replace(statistics=state.statistics), 0)
    np.testing.assert_allclose(resumed.statistics.count, state.statistics.count + N)


def test_statistics_with_the_wrong_shape_are_rejected():
    env = both(jaxenvs.vectorize(Echo(), N))
    state, _ = begun(env, 1)
    with pytest.raises(WrapperError, match=r"NormalizeObservation got statistics .* shape \(\)"):
        env.replace(statistics=state.inner.statistics).reset(KEY)


def test_statistics_of_two_runs_can_be_merged():
    env = jaxenvs.vectorize(Echo(), N).wrap(NormalizeObservation)
    short, long = (begun(env, num_steps)[0].statistics for num_steps in (1, 3))
    resumed, _ = begun(env.replace(statistics=short.merge(long)), 0)
    np.testing.assert_allclose(resumed.statistics.count, (2 + 4 + 1) * N, rtol=1e-4)


def test_resuming_from_a_checkpoint_gives_the_same_bits(tmp_path):
    env = both(jaxenvs.make_vec("Pendulum-v1", N))

    @jax.jit
    def run(state, key):
        def step(state, key):
            return env.step(state, env.action_space.sample(key), key)

        return jax.lax.scan(step, state, jax.random.split(key, 5))

    state, _ = run(jax.jit(env.reset)(KEY)[0], KEY)
    save(tmp_path / "state", state)
    restored = restore(tmp_path / "state", jax.eval_shape(lambda: state))
    chex.assert_trees_all_equal(run(restored, KEY), run(state, KEY))


def test_statistics_are_the_same_on_a_mesh():
    def run(mesh):
        env = both(jaxenvs.make_vec("CartPole-v1", 32, mesh=mesh))

        def step(carry, key):
            state, timestep = carry
            action = (timestep.observation[:, 2] > 0).astype(jnp.int32)
            state, timestep = env.step(state, action, key)
            return (state, timestep), (timestep, state.statistics, state.inner.statistics)

        keys = jax.random.split(KEY, 30)
        return jax.device_get(jax.jit(lambda: jax.lax.scan(step, env.reset(KEY), keys)[1])())

    assert_agree(run(jax.make_mesh((8,), ("env",))), run(None))


def test_gradients_pass_through_the_normalization():
    env = both(jaxenvs.vectorize(Echo(), N))

    def shown(action):
        state, _ = env.reset(KEY)
        return env.step(state, action, KEY)[1].observation[:, :2]

    action = np.random.default_rng(0).uniform(size=(N, 2)).astype(np.float32)
    gradient = np.asarray(jax.jit(jax.jacobian(shown))(action))
    assert np.isfinite(gradient).all()
    # Raising one instance raises its own normalized observation and lowers those of the others.
    assert gradient[0, 0, 0, 0] > 0 > gradient[0, 0, 1, 0]


def test_normalization_can_be_wrapped_in_further_transforms():
    inside = OpaqueVectorEnv(jaxenvs.vectorize(Echo(), N)).wrap(StickyAction, 0.5)
    env = inside.wrap(NormalizeObservation).wrap(StickyAction, 0.5)
    assert repr(env).startswith("StickyAction(NormalizeObservation(StickyAction(OpaqueVectorEnv")
    state, timestep = jax.jit(env.reset)(KEY)
    keys = jax.random.split(KEY, N)
    stepped = jax.jit(env.step)(state, np.ones((N, 2), np.float32), keys)[1]
    chex.assert_shape(stepped.observation, (N, 3))
    assert env.render is not None and timestep.observation.dtype == jnp.float32
    with pytest.raises(WrapperError, match="before it is vectorized"):
        env.wrap(RepeatAction, 2)


@pytest.mark.parametrize("wrap", [NormalizeObservation, NormalizeReward])
def test_batches_are_wrapped_as_a_whole(wrap):
    vector_env = jaxenvs.vectorize(Echo(), N).wrap(wrap)
    assert repr(vector_env) == f"{wrap.__name__}(VectorizedEnv(Echo(), 4))"
    assert vector_env.single_observation_space == wrap(Echo()).observation_space
    assert vector_env.action_space.shape == (N, 2)


def test_instances_can_be_rendered_through_normalization():
    vector_env = jaxenvs.make_vec("CartPole-v1", 2)
    env = vector_env.wrap(NormalizeReward)
    state, _ = jax.jit(env.reset)(KEY)
    frame = jax.jit(lambda env, state: env.render(state, 1))
    np.testing.assert_array_equal(frame(env, state), frame(vector_env, state.inner))


def test_nested_observations_are_rejected():
    with pytest.raises(WrapperError, match="Box"):
        NormalizeObservation(CountingEnv(layout="dict"))
