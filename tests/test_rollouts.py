import functools
import re
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxenvs
from jaxenvs import rollouts, spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import MissingExtraError, RolloutError
from jaxenvs.testing import CountingEnv, ScriptedEnv
from jaxenvs.wrappers import NormalizeObservation, NormalizeReward, TimeLimit
from tests.ids import every_nth
from tests.jitted import reset, step
from tests.opaque import OpaqueVectorEnv
from tests.rounding import assert_same

KEY = jax.random.key(7)
MODES = ["same_step", "next_step", "disabled"]
KEYS = ("count", "return_mean", "return_std", "length_mean", "length_std")


def counters(num_envs=5, **options):
    return jaxenvs.vectorize(CountingEnv(), num_envs, **options)


def parity(observation, key):
    """A policy that looks at what it sees and draws from its key."""
    drawn = jax.random.bernoulli(key, 0.5, observation.shape[:1])
    return (drawn ^ (observation[:, 0] % 2 == 1)).astype(jnp.int32)


def drift(weights, observation, key):
    del key
    return observation @ weights


def played_by_hand(env, act, num_steps, key):
    """What `rollout` says it does, as a loop: a dict of [T, N, ...] arrays, and the end."""
    reset_key, key = jax.random.split(key)
    state, timestep = reset(env, reset_key)
    act = jax.jit(act)
    rows = []
    for t in range(num_steps):
        action = act(timestep.observation, jax.random.fold_in(key, 2 * t))
        before = timestep.observation
        state, timestep = step(env, state, action, jax.random.fold_in(key, 2 * t + 1))
        rows.append(
            {
                "observation": before,
                "action": action,
                "reward": timestep.reward,
                "terminated": timestep.terminated,
                "truncated": timestep.truncated,
                "final_observation": timestep.final_observation,
                "info": timestep.final_info,
            }
        )
    return jax.tree.map(lambda *row: np.stack(row), *rows), state, timestep


def episodes_of(trajectory, mode):
    """[(return, length), ...] of the finished episodes of each instance, in NumPy."""
    rewards = np.asarray(trajectory.reward, np.float64)
    done = np.asarray(trajectory.terminated) | np.asarray(trajectory.truncated)
    found = []
    for i in range(rewards.shape[1]):
        episodes, running, length, skip = [], 0.0, 0, False
        for t in range(rewards.shape[0]):
            if skip:  # the step that only resets
                skip = False
                continue
            running, length = running + rewards[t, i], length + 1
            if done[t, i]:
                episodes.append((running, length))
                running, length, skip = 0.0, 0, mode == "next_step"
                if mode == "disabled":
                    break
        found.append(episodes)
    return found


def assert_statistics_are(statistics, episodes):
    episodes = np.array([episode for instance in episodes for episode in instance])
    assert set(statistics) == set(KEYS)
    assert int(statistics["count"]) == len(episodes)
    expected = (*episodes.mean(0), *episodes.std(0))
    names = ("return_mean", "length_mean", "return_std", "length_std")
    actual = [float(statistics[name]) for name in names]
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


# The trajectory


@pytest.mark.bitwise
@pytest.mark.parametrize("mode", every_nth(3, MODES))
def test_rollout_matches_a_loop_written_by_hand(mode):
    env = counters(autoreset_mode=mode)
    result = jaxenvs.rollout(env, parity, 40, KEY)
    rows, state, timestep = played_by_hand(env, parity, 40, KEY)
    assert_same(dict(result.trajectory.items()), rows)
    assert_same(result.state.env_state, state)
    assert_same(result.state.timestep, timestep.replace(final_observation=None, final_info=None))
    assert result.state.steps == 40

    episodes = episodes_of(result.trajectory, mode)
    assert sum(map(len, episodes)) >= 5
    assert_statistics_are(result.statistics, episodes)
    few = jaxenvs.rollout(env, parity, 40, KEY, outputs="statistics")
    assert few.trajectory is None
    chex.assert_trees_all_close(few.statistics, result.statistics, rtol=1e-6)
    assert_same(few.state.env_state, result.state.env_state)


def test_without_a_policy_actions_are_samples_of_the_space():
    env = jaxenvs.make_vec("Pendulum-v1", 3, time_limit=50)
    result = jaxenvs.rollout(env, None, 60, KEY)
    rows, _, _ = played_by_hand(env, lambda _, key: env.action_space.sample(key), 60, KEY)
    chex.assert_trees_all_close(dict(result.trajectory.items()), rows, rtol=1e-5, atol=1e-5)
    assert result.trajectory.action.shape == (60, 3, 1)
    assert abs(float(result.trajectory.action.mean())) < 0.3
    assert_statistics_are(result.statistics, episodes_of(result.trajectory, "same_step"))
    assert float(result.statistics["length_mean"]) == 50
    assert float(result.statistics["length_std"]) == 0


def test_trajectory_rows_have_final_observations_where_done():
    env = jaxenvs.make_vec("CartPole-v1", 6)
    result = jax.device_get(jaxenvs.rollout(env, None, 60, KEY))
    t = result.trajectory
    assert t.observation.shape == t.final_observation.shape == (60, 6, 4)
    assert t.reward.shape == t.terminated.shape == t.truncated.shape == (60, 6)
    assert t.action.shape == (60, 6) and t.action.dtype == env.action_space.dtype
    assert t.reward.dtype == jnp.float32 and t.terminated.dtype == t.truncated.dtype == bool

    done = np.asarray(t.terminated | t.truncated)
    then = np.concatenate([t.observation[1:], result.state.timestep.observation[None]])
    differs = (then != np.asarray(t.final_observation)).any(-1)
    assert done.any() and not done.all()
    np.testing.assert_array_equal(differs, done)


def end_after(lengths, observation, key):
    return (observation[:, 1] + 1 == lengths).astype(jnp.int32)


def scripted(lengths):
    """Plays six steps of two instances with episodes of these lengths."""
    policy = jax.tree_util.Partial(end_after, np.array(lengths, np.uint32))
    return jaxenvs.rollout(jaxenvs.vectorize(ScriptedEnv(), 2), policy, 6, KEY)


def test_info_belongs_to_the_step_and_has_time_first():
    info = scripted([2, 3]).trajectory.info
    np.testing.assert_array_equal(info["count"].T, [[1, 2, 1, 2, 1, 2], [1, 2, 3, 1, 2, 3]])


@pytest.mark.parametrize("layout", every_nth(2, ["dict", "tuple"]))
def test_observations_may_be_trees_and_states_may_hold_keys(layout):
    env = jaxenvs.vectorize(CountingEnv(layout=layout, has_key=True), 3)
    half = jaxenvs.rollout(env, None, 7, KEY)
    count = half.trajectory.observation[{"dict": "count", "tuple": 0}[layout]]
    assert count.shape == (7, 3) and count.dtype == jnp.int32
    whole = jaxenvs.rollout(env, None, 14, KEY)
    assert_same(jaxenvs.rollout(env, None, 7, state=half.state).state, whole.state)


@pytest.mark.slow
@pytest.mark.bitwise
def test_unroll_changes_no_bit():
    env = counters()
    plain, unrolled = (jaxenvs.rollout(env, parity, 30, KEY, unroll=u) for u in (1, 4))
    assert_same(plain.trajectory, unrolled.trajectory)
    assert_same(plain.state.env_state, unrolled.state.env_state)


# Going on


@pytest.mark.slow
@pytest.mark.bitwise
@settings(max_examples=5)
@given(
    split=st.sampled_from((1, 4, 8)),
    seed=st.integers(0, 2**32 - 1),
    mode=st.sampled_from(MODES[:2]),
)
def test_rollout_continued_from_its_state_equals_a_longer_one(split, seed, mode):
    env, key = counters(4, autoreset_mode=mode), jax.random.key(seed)
    whole = jaxenvs.rollout(env, parity, 9, key)
    first = jaxenvs.rollout(env, parity, split, key)
    second = jaxenvs.rollout(env, parity, 9 - split, state=first.state)
    joined = jax.tree.map(lambda *x: jnp.concatenate(x), first.trajectory, second.trajectory)
    assert_same(joined, whole.trajectory)
    assert_same(second.state, whole.state)
    chex.assert_trees_all_close(second.statistics, whole.statistics, rtol=1e-6)


def test_statistics_go_on_where_the_first_rollout_left_them():
    env = counters()
    first = jaxenvs.rollout(env, None, 20, KEY)
    second = jaxenvs.rollout(env, None, 20, state=first.state)
    whole = jax.tree.map(lambda *x: np.concatenate(x), first.trajectory, second.trajectory)
    assert int(second.statistics["count"]) > int(first.statistics["count"]) > 0
    assert_statistics_are(second.statistics, episodes_of(whole, "same_step"))


def test_rollout_of_no_steps_is_a_reset():
    env = counters()
    result = jaxenvs.rollout(env, None, 0, KEY)
    assert jax.tree.leaves(result.trajectory)[0].shape[:2] == (0, 5)
    assert result.statistics["count"] == 0 and result.state.steps == 0
    later = jaxenvs.rollout(env, None, 3, state=result.state).trajectory
    assert_same(later, jaxenvs.rollout(env, None, 3, KEY).trajectory)


def test_statistics_are_nan_where_nothing_finished():
    statistics = scripted([7, 7]).statistics
    assert int(statistics["count"]) == 0
    assert all(np.isnan(statistics[name]) for name in KEYS[1:])


STAGGERED = jaxenvs.vectorize(CountingEnv(lengths=(99,)).wrap(TimeLimit, 30), 4, stagger=True)


def test_the_episode_that_a_staggered_start_cuts_is_not_counted():
    env = STAGGERED
    statistics = jaxenvs.rollout(env, None, 65, KEY, outputs="statistics").statistics
    assert int(statistics["count"]) >= 4
    assert float(statistics["length_mean"]) == 30 and float(statistics["length_std"]) == 0
    evaluation = jaxenvs.evaluate(env, None, 1, KEY)
    np.testing.assert_array_equal(evaluation.episode_length, [[30] * 4])


@pytest.mark.bitwise
@pytest.mark.parametrize(
    "wrap", [NormalizeObservation, lambda env: OpaqueVectorEnv(env).wrap(NormalizeReward)]
)
def test_a_staggered_start_is_seen_through_wrappers(wrap):
    env = STAGGERED.wrap(wrap)
    evaluation = jax.jit(lambda key: jaxenvs.evaluate(env, None, 1, key))(KEY)
    np.testing.assert_array_equal(evaluation.episode_length, [[30] * 4])


class Recurrent:
    """A policy that knows how its memory begins."""

    def initial_carry(self, num_envs):
        return jnp.zeros(num_envs, jnp.int32)

    def __call__(self, carry, timestep, key):
        return carry + 1, carry % 2


def test_recurrent_policy_starts_with_its_initial_carry():
    env, policy = counters(), Recurrent()
    result = jaxenvs.rollout(env, policy, 3, KEY)
    np.testing.assert_array_equal(result.state.policy_carry, [3] * 5)
    np.testing.assert_array_equal(result.trajectory.action[:, 0], [0, 1, 0])
    assert jaxenvs.evaluate(env, policy, 1, KEY).finished.all()


@pytest.mark.parametrize("play", [jaxenvs.rollout, jaxenvs.evaluate])
@pytest.mark.parametrize(
    ("policy", "carry", "words"),
    [
        (lambda observation: observation, None, "policy(observation, key)"),
        (lambda carry, timestep, key: (carry, key), None, "policy_carry="),
        (lambda observation, key: key, 0, "policy(carry, timestep, key)"),
    ],
)
def test_a_policy_of_other_arguments_is_refused(play, policy, carry, words):
    with pytest.raises(RolloutError, match=re.escape(words)):
        play(counters(), policy, 2, KEY, policy_carry=carry)


def test_statistics_take_no_memory_that_grows_with_the_steps():
    num_steps = 977  # a prime: no other axis has it

    def shapes(jaxpr):
        for equation in jaxpr.eqns:
            yield from (getattr(v.aval, "shape", ()) for v in equation.outvars)
            for value in equation.params.values():
                for sub in value if isinstance(value, (tuple, list)) else [value]:
                    sub = getattr(sub, "jaxpr", sub)
                    if hasattr(sub, "eqns"):
                        yield from shapes(sub)

    def grows(outputs):
        run = functools.partial(jaxenvs.rollout, counters(), None, num_steps, outputs=outputs)
        return any(num_steps in shape for shape in shapes(jax.make_jaxpr(run)(KEY).jaxpr))

    assert grows("trajectory") and not grows("statistics")


# Policies


def test_recurrent_policy_carries_memory_and_sees_episode_ends():
    def remember(memory, timestep, key):
        memory = jnp.where(timestep.done, 0, memory) + 1
        return memory, memory % 2

    env = counters()
    zeros = jnp.zeros(5, jnp.int32)
    result = jaxenvs.rollout(env, remember, 30, KEY, policy_carry=zeros)
    # The memory counts the steps of the episode, which the environment does too.
    expected = (np.asarray(result.trajectory.observation[..., 0], np.int32) + 1) % 2
    np.testing.assert_array_equal(result.trajectory.action, expected)
    first = jaxenvs.rollout(env, remember, 13, KEY, policy_carry=zeros)
    second = jaxenvs.rollout(env, remember, 17, state=first.state)
    assert_same(second.state, result.state)


def test_a_policy_may_keep_a_key_in_its_memory():
    def draw(key, timestep, _):
        key, action_key = jax.random.split(key)
        return key, jax.random.randint(action_key, timestep.done.shape, 0, 2)

    run = functools.partial(jaxenvs.rollout, counters(), draw, 3)
    result = jax.eval_shape(lambda key: run(key, policy_carry=key), KEY)
    assert result.state.policy_carry.dtype == KEY.dtype


def test_a_policy_may_draw_anything_that_jax_draws():
    def poisson(observation, key):
        return jnp.minimum(jax.random.poisson(key, 0.5, observation.shape[:1]), 1)

    result = jaxenvs.rollout(counters(), poisson, 3, KEY)
    rows, _, _ = played_by_hand(counters(), poisson, 3, KEY)
    assert_same(result.trajectory.action, jnp.asarray(rows["action"]))


@struct.pytree_dataclass
class Linear:
    """A policy with weights that is a pytree itself."""

    weights: jax.Array
    traces: list = struct.static()

    def __call__(self, observation, key):
        return counted(self.traces, self.weights, observation, key)


def counted(traces, weights, observation, key):
    traces.append(1)
    return drift(weights, observation, key)


class Hashed(list):
    __hash__ = object.__hash__
    __eq__ = object.__eq__


@pytest.mark.parametrize("kind", ["partial", "pytree"])
def test_policy_with_new_weights_is_not_recompiled(kind):
    env, traces = jaxenvs.make_vec("Pendulum-v1", 2), Hashed()
    function = functools.partial(counted, traces)
    actions, counts = [], []
    for scale in (0.1, 0.2, 0.3):
        weights = jnp.full((3, 1), scale)
        partial = jax.tree_util.Partial(function, weights)
        policy = partial if kind == "partial" else Linear(weights, traces)
        actions.append(jaxenvs.rollout(env, policy, 4, KEY).trajectory.action[0])
        counts.append(len(traces))
        jaxenvs.evaluate(env, policy, 1, KEY, max_steps=2)
        counts.append(len(traces))
    chex.assert_trees_all_close(actions[1], 2 * actions[0])
    assert 0 < counts[0] < counts[1] == counts[-1]


def test_policy_is_compiled_once_for_all_env_parameters():
    traces = []

    def policy(observation, key):
        traces.append(1)
        return jnp.zeros((2, 1))

    env = jaxenvs.make_vec("Pendulum-v1", 2)
    env = env.replace(g=jnp.float32(10))
    results, counts = [], []
    for gravity in (10.0, 5.0, 1.0):
        env = env.replace(g=jnp.float32(gravity))
        results.append(jaxenvs.rollout(env, policy, 3, KEY).trajectory.observation[-1])
        counts.append(len(traces))
    assert 0 < counts[0] == counts[-1]
    assert not np.allclose(results[0], results[2])


@pytest.mark.parametrize("value", every_nth(3, [1, 1.0, True]))
def test_numbers_of_an_env_are_those_of_the_call(value):
    env = jaxenvs.make_vec("Pendulum-v1", 2)
    for gravity in (value, 10.0, jnp.float32(value)):
        changed = env.replace(g=gravity)
        _, timestep = changed.reset(jax.random.split(KEY)[0])
        played = jaxenvs.rollout(changed, lambda observation, _: observation[:, :1], 3, KEY)
        by_hand = jaxenvs.rollout(
            env.replace(g=jnp.float32(gravity)), lambda observation, _: observation[:, :1], 3, KEY
        )
        chex.assert_trees_all_close(played.trajectory.reward, by_hand.trajectory.reward, rtol=1e-5)
        np.testing.assert_array_equal(played.trajectory.observation[0], timestep.observation)


@pytest.mark.parametrize("num_steps", [0, 1, 5])
def test_statistics_end_in_the_state_of_the_trajectory(num_steps):
    env = jaxenvs.make_vec("CartPole-v1", 4)
    long, short = (
        jaxenvs.rollout(env, None, num_steps, KEY, outputs=outputs)
        for outputs in ("trajectory", "statistics")
    )
    chex.assert_trees_all_close(long.state.timestep, short.state.timestep, rtol=1e-5)
    chex.assert_trees_all_close(long.state.statistics, short.state.statistics, rtol=1e-5)
    assert short.state.steps == num_steps


def test_statistics_on_a_gpu_are_those_of_a_cpu(monkeypatch):
    env = counters()
    expected = rollouts.rollout(env, None, 13, KEY).statistics
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")  # its programs, run on the CPU
    found = rollouts.rollout(env, None, 13, KEY, outputs="statistics").statistics
    chex.assert_trees_all_equal(found, expected)
    assert found["count"] > 0


@pytest.mark.optimized
def test_random_statistics_observe_nothing_in_the_loop():
    env = jaxenvs.make_vec("MinAtar/Breakout-v1", 8)
    start = jaxenvs.rollout(env, None, 0, KEY).state
    loops = {}
    for outputs in ("trajectory", "statistics"):

        def run(state, outputs=outputs):
            return jaxenvs.rollout(env, None, 16, state=state, outputs=outputs)

        text = jax.jit(run).lower(start).compile().as_text()
        found = [line for line in text.splitlines() if " while(" in line and '"n":"1' in line]
        loops[outputs] = max(found, key=len)  # that of all steps
    has_observations = {outputs: "[8,10,10,4]" in line for outputs, line in loops.items()}
    assert has_observations == {"trajectory": True, "statistics": False}


# Transformations


@pytest.mark.bitwise
def test_rollouts_map_over_keys_inside_jit():
    env, keys = counters(), jax.random.split(KEY, 3)

    @jax.jit
    def many(keys):
        return jax.vmap(lambda key: jaxenvs.rollout(env, parity, 12, key))(keys)

    results = jax.device_get(many(keys))
    for i, key in enumerate(keys):
        alone = jaxenvs.rollout(env, parity, 12, key)
        rows = jax.tree.map(lambda leaf, i=i: leaf[i], (results.trajectory, results.statistics))
        assert_same(rows[0], alone.trajectory)
        chex.assert_trees_all_close(rows[1], jax.device_get(alone.statistics))


def test_return_gradients_match_finite_differences():
    env = jaxenvs.make_vec("Pendulum-v1", 4)

    def mean_return(weights):
        policy = jax.tree_util.Partial(drift, weights)
        return jaxenvs.rollout(env, policy, 12, KEY).trajectory.reward.sum(0).mean()

    weights = np.array([[0.1], [-0.2], [0.05]], np.float32)
    slope = np.asarray(jax.jit(jax.grad(mean_return))(weights))
    nudges = 1e-2 * np.eye(3, dtype=np.float32)[..., None]
    values = jax.jit(jax.vmap(mean_return))(np.concatenate([weights + nudges, weights - nudges]))
    differences = -np.diff(np.reshape(values, (2, 3)), axis=0)[0] / 2e-2
    np.testing.assert_allclose(slope[:, 0], differences, rtol=2e-2, atol=2e-3)
    assert abs(slope).max() > 0.1


@pytest.mark.slow
def test_derivatives_of_statistics_are_finite():
    env = jaxenvs.make_vec("Pendulum-v1", 2)

    def loss(weights, num_steps, name):
        policy = jax.tree_util.Partial(drift, weights)
        result = jaxenvs.rollout(env, policy, num_steps, KEY)
        value = result.statistics[name]
        return jnp.where(jnp.isnan(value), result.trajectory.reward.mean(), value)

    for num_steps, name in ((5, "return_mean"), (200, "return_mean")):
        slope = jax.grad(loss)(jnp.full((3, 1), 0.01), num_steps, name)
        assert np.isfinite(slope).all() and np.any(slope != 0)


@pytest.mark.bitwise
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES[:2])
def test_eight_devices_give_the_bits_of_one(mode):
    mesh = jax.make_mesh((8,), ("env",))
    alone, spread = (counters(16, autoreset_mode=mode, mesh=m) for m in (None, mesh))
    expected, actual = (jaxenvs.rollout(env, parity, 20, KEY) for env in (alone, spread))
    assert_same(actual.trajectory, expected.trajectory)
    assert_same(actual.state.env_state, expected.state.env_state)
    chex.assert_trees_all_close(actual.statistics, expected.statistics, rtol=1e-6)
    assert_same(
        jaxenvs.evaluate(spread, parity, 2, KEY).episode_return,
        jaxenvs.evaluate(alone, parity, 2, KEY).episode_return,
    )


def test_dtypes_stay_as_they_are_under_x64():
    def run(key):
        env = counters()
        return jaxenvs.rollout(env, None, 20, key), jaxenvs.evaluate(env, None, 1, key)

    expected = jax.eval_shape(run, KEY)
    with jax.enable_x64(True):
        actual = jax.eval_shape(run, KEY)
    chex.assert_trees_all_equal_shapes_and_dtypes(actual, expected)


# Progress


@pytest.mark.slow
@pytest.mark.bitwise
def test_a_bar_is_drawn_to_its_end_and_changes_no_bit(capsys):
    env = counters()
    quiet = jaxenvs.rollout(env, parity, 250, KEY)
    assert "100%" not in capsys.readouterr().out
    shown = jaxenvs.rollout(env, parity, 250, KEY, progress=True)
    assert "100%" in capsys.readouterr().out
    assert_same(shown.trajectory, quiet.trajectory)
    assert_same(shown.state, quiet.state)
    jaxenvs.rollout(env, parity, 250, state=shown.state, progress=True)
    assert "100%" in capsys.readouterr().out


@pytest.mark.parametrize("progress", [False, True])
def test_a_bar_that_is_off_leaves_no_trace_in_the_program(progress):
    run = functools.partial(jaxenvs.rollout, counters(), parity, 10, progress=progress)
    assert ("callback" in str(jax.make_jaxpr(run)(KEY))) == progress


def test_bars_of_two_rollouts_at_a_time_are_told_apart(monkeypatch):
    shown = {1: [], 2: []}
    monkeypatch.setattr(rollouts, "_bars", {bar: shown[bar].append for bar in shown})
    report = jax.jit(functools.partial(rollouts._report_progress, num_steps=9))
    for bar, steps in ((1, 3), (2, 4), (1, 9)):
        report(bar, jnp.int32(steps))
    jax.effects_barrier()
    assert shown == {1: [3, 9], 2: [4]}


def test_a_bar_without_rich_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with pytest.raises(MissingExtraError, match=r"rich.*jaxenvs\[cli\]"):
        jaxenvs.rollout(counters(), None, 3, KEY, progress=True)


# Evaluation


@pytest.mark.parametrize(("mode", "k"), [("same_step", 3), ("next_step", 3), ("disabled", 1)])
def test_evaluate_counts_only_first_episodes_of_each_instance(mode, k):
    env = counters(autoreset_mode=mode)
    evaluation = jax.device_get(jaxenvs.evaluate(env, parity, k, KEY))
    # The same key plays the same steps, so that a long rollout holds the answer.
    episodes = episodes_of(jaxenvs.rollout(env, parity, 40, KEY).trajectory, mode)
    expected = np.array([instance[:k] for instance in episodes]).transpose(2, 1, 0)
    assert expected.shape == (2, k, 5)
    np.testing.assert_array_equal(evaluation.episode_return, expected[0])
    np.testing.assert_array_equal(evaluation.episode_length, expected[1])
    assert evaluation.episode_return.dtype == jnp.float32
    assert evaluation.episode_length.dtype == jnp.int32
    assert np.all(evaluation.finished)
    np.testing.assert_allclose(evaluation.mean, expected[0].mean(), rtol=1e-6)
    np.testing.assert_allclose(evaluation.std, expected[0].std(), rtol=1e-6)


def test_episodes_cut_by_max_steps_are_not_finished():
    env = jaxenvs.vectorize(CountingEnv(lengths=(3, 4)), 16)
    cut = jax.device_get(jaxenvs.evaluate(env, None, 2, KEY, max_steps=6))
    whole = jax.device_get(jaxenvs.evaluate(env, None, 2, KEY))
    ends = np.cumsum(whole.episode_length, 0)
    finished = ends <= 6
    assert {6, 7} < {*ends.flat} and finished.any()  # one at the limit, and one just after it
    np.testing.assert_array_equal(cut.finished, finished)
    np.testing.assert_array_equal(
        cut.episode_return, np.where(finished, whole.episode_return, np.nan)
    )
    np.testing.assert_array_equal(cut.episode_length, np.where(finished, whole.episode_length, 0))
    np.testing.assert_allclose(cut.mean, whole.episode_return[finished].mean(), rtol=1e-6)


def test_a_recurrent_policy_is_evaluated_with_its_memory():
    def stop_at_third(memory, timestep, key):
        memory = jnp.where(timestep.done, 0, memory) + 1
        return memory, (memory == 3).astype(jnp.int32)

    env = jaxenvs.vectorize(ScriptedEnv(), 2)
    carry = jnp.zeros(2, jnp.int32)
    evaluation = jaxenvs.evaluate(env, stop_at_third, 2, KEY, policy_carry=carry)
    np.testing.assert_array_equal(evaluation.episode_length, [[3, 3], [3, 3]])
    np.testing.assert_array_equal(evaluation.episode_return, [[1, 1], [1, 1]])


@pytest.mark.bitwise
def test_an_evaluation_runs_inside_jit_and_maps_over_keys():
    env, keys = counters(3), jax.random.split(KEY, 2)
    mapped = jax.jit(jax.vmap(lambda key: jaxenvs.evaluate(env, None, 2, key).episode_return))(keys)
    for i, key in enumerate(keys):
        np.testing.assert_array_equal(mapped[i], jaxenvs.evaluate(env, None, 2, key).episode_return)


@chex.dataclass(frozen=True)
class LotteryState:
    left: jax.Array  # int32[], steps until the episode ends


class Lottery(Environment[LotteryState]):
    """Episodes of 1 or of 100 steps, as likely as each other; a reward of 1 a step."""

    @property
    def observation_space(self):
        return spaces.Box(0.0, 100.0, (1,))

    @property
    def action_space(self):
        return spaces.Discrete(2)

    def reset(self, key):
        state = LotteryState(left=jnp.where(jax.random.bernoulli(key), 1, 100).astype(jnp.int32))
        return state, TimeStep.first(self.observe(state))

    def step(self, state, action, key):
        del action, key
        state = LotteryState(left=state.left - 1)
        return state, TimeStep.transition(
            self.observe(state), reward=1.0, terminated=state.left <= 0
        )

    def observe(self, state):
        return state.left.astype(jnp.float32)[None]


def test_rollout_statistics_are_biased_and_evaluate_is_not():
    env, truth = jaxenvs.vectorize(Lottery(), 512), 0.5 * 1 + 0.5 * 100
    usual = jaxenvs.rollout(env, None, 120, KEY, outputs="statistics").statistics
    evaluation = jaxenvs.evaluate(env, None, 2, KEY)
    deviation = 49.5 / np.sqrt(1024)  # of a mean of so many episodes
    assert abs(float(evaluation.mean) - truth) < 4 * deviation
    assert int(usual["count"]) > 1000
    assert float(usual["return_mean"]) < truth - 8 * deviation


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_steps": -1}, "num_steps=-1; it must be an integer of at least 0"),
        ({"num_steps": 2.0}, r"num_steps=2\.0"),
        ({"num_steps": True}, "num_steps=True"),
        ({"unroll": 0}, "unroll=0; it must be an integer of at least 1"),
        ({"outputs": "all"}, r'outputs="all"; expected "trajectory".* or "statistics"'),
        ({"key": None}, "neither of key and state"),
        ({"env": CountingEnv()}, r"rollout got CountingEnv, expected a VectorEnv\..*vectorize"),
    ],
)
def test_rollout_with_invalid_arguments_is_refused(arguments, message):
    arguments = {"env": counters(), "policy": None, "num_steps": 3, "key": KEY, **arguments}
    with pytest.raises(RolloutError, match=message):
        jaxenvs.rollout(**arguments)


def test_rollout_with_both_key_and_state_is_refused():
    env = counters()
    state = jax.eval_shape(lambda key: jaxenvs.rollout(env, None, 3, key).state, KEY)
    with pytest.raises(RolloutError, match="both of key and state"):
        jaxenvs.rollout(env, None, 3, KEY, state=state)
    with pytest.raises(RolloutError, match="contains the policy's carry"):
        jaxenvs.rollout(env, None, 3, state=state, policy_carry=jnp.zeros(5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_episodes": 0}, "num_episodes=0; it must be an integer of at least 1"),
        ({"max_steps": 0}, "max_steps=0; it must be an integer of at least 1"),
        ({"env": CountingEnv()}, "evaluate got CountingEnv, expected a VectorEnv"),
        (
            {"env": counters(autoreset_mode="disabled")},
            'num_episodes=2 .* autoreset_mode="disabled"',
        ),
    ],
)
def test_evaluate_with_invalid_arguments_is_refused(arguments, message):
    arguments = {"env": counters(), "policy": None, "num_episodes": 2, "key": KEY, **arguments}
    with pytest.raises(RolloutError, match=message):
        jaxenvs.evaluate(**arguments)
