import dataclasses
import itertools
import re
import subprocess
import sys

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs import keys, spaces, struct
from jaxenvs._cpu import threefry
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import (
    MissingExtraError,
    TrainingError,
    UnknownEnvironmentError,
    UnknownParameterError,
)
from jaxenvs.training import (
    A2C,
    DQN,
    PPO,
    PQN,
    SAC,
    TD3,
    VPG,
    ActorCritic,
    ActorTwinQ,
    QNetwork,
    Train,
    evaluation,
    make_train,
    restore,
    save,
)
from jaxenvs.training.algorithms._on_policy import permutation
from jaxenvs.training.algorithms.algorithm import BehaviorPolicy
from jaxenvs.training.collection import add_episodes, no_recent_episodes
from jaxenvs.training.extractors import MLP
from jaxenvs.wrappers.episode_statistics import RecordEpisodeStatistics
from jaxenvs.wrappers.normalize import NormalizeObservation
from jaxenvs.wrappers.time_limit import TimeLimit
from tests.ids import every_nth
from tests.opaque import OpaqueVectorEnv

KEY = jax.random.key(0)


@chex.dataclass(frozen=True)
class WheelState:
    position: jax.Array  # int32[], 0 to 3


class Wheel(Environment[WheelState]):
    """Positions 0, 1, 2, 3, 0, ... whatever the action; each pays its own number, for ever.

    Observation: float32[4], the position as one of four
    Start: anywhere
    """

    @property
    def observation_space(self):
        return spaces.Box(0.0, 1.0, (4,))

    @property
    def action_space(self):
        return spaces.Discrete(2)

    def reset(self, key):
        state = WheelState(position=jax.random.randint(key, (), 0, 4))
        return state, TimeStep.first(self._observe(state))

    def step(self, state, action, key):
        turned = WheelState(position=(state.position + 1) % 4)
        reward = jnp.float32(state.position)
        return turned, TimeStep.transition(self._observe(turned), reward=reward, terminated=False)

    def _observe(self, state):
        return jax.nn.one_hot(state.position, 4, dtype=jnp.float32)


class Target(Environment[WheelState]):
    """One step; the reward is 1 less the distance between the action and what was shown."""

    kind: str = jaxenvs.struct.static("discrete")

    @property
    def observation_space(self):
        return spaces.Box(0.0, 1.0, (4,))

    @property
    def action_space(self):
        return {
            "discrete": spaces.Discrete(4, start=2),
            "multi_discrete": spaces.MultiDiscrete([2, 2]),
            "box": spaces.Box(-3.0, 9.0, (1,)),
        }[self.kind]

    def reset(self, key):
        state = WheelState(position=jax.random.randint(key, (), 0, 4))
        return state, TimeStep.first(jax.nn.one_hot(state.position, 4, dtype=jnp.float32))

    def step(self, state, action, key):
        shown = state.position
        miss = {
            "discrete": lambda: action != shown + 2,
            "multi_discrete": lambda: (action != jnp.stack([shown // 2, shown % 2])).mean(),
            "box": lambda: jnp.abs(action[0] - jnp.float32(2 * shown)),
        }[self.kind]()
        observation = jax.nn.one_hot(shown, 4, dtype=jnp.float32)
        reward = 1.0 - jnp.asarray(miss, jnp.float32)
        return state, TimeStep.transition(observation, reward=reward, terminated=True)


def small(env="CartPole-v1", ppo=None, **changes):
    config = {"num_envs": 4, "unroll_length": 16, "total_steps": 256, **changes}
    return make_train(env, ppo or PPO(), **{"actor": ActorCritic(hidden_sizes=(8,)), **config})


def critic(train, params, observation):
    """What is expected of observations, [..., F]."""
    flat = observation.reshape((-1, observation.shape[-1]))
    return train.networks.value(params, train.networks.features(flat)).reshape(
        observation.shape[:-1]
    )


def assert_same(left, right):
    """Equal bit for bit, keys included."""
    is_key = lambda x: jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)  # noqa: E731
    plain = lambda x: jax.random.key_data(x) if is_key(x) else x  # noqa: E731
    chex.assert_trees_all_equal(jax.tree.map(plain, left), jax.tree.map(plain, right))


@pytest.mark.slow
@pytest.mark.optimized
def test_cartpole_is_learned():
    ppo = PPO(learning_rate=1e-3, clip_value=False, epochs=10)
    train = make_train("CartPole-v1", ppo, num_envs=32, unroll_length=64, total_steps=80_000)
    metrics = jax.jit(jax.vmap(train))(jax.random.split(KEY, 8)).metrics
    curve = np.nanmean(metrics["episode_return"], axis=0)
    assert curve[0] < 40 and curve[-5:].mean() > 250  # about 350, and 90 from seed to seed


def test_time_limit_does_not_change_the_learned_value():
    """Cut every 3 steps, the wheel is still worth what it pays for ever.

    Taken for terminations, the cuts would make it worth at most 6; bootstrapped from the
    observation after the reset, every position would be worth about the same.
    """
    gamma = 0.8
    ppo = PPO(learning_rate=0.01, gamma=gamma, clip_value=False, epochs=8)
    env = TimeLimit(Wheel(), time_limit=3)
    actor = ActorCritic(hidden_sizes=(16,))
    train = make_train(env, ppo, actor=actor, num_envs=16, unroll_length=16, total_steps=60_000)

    @jax.jit
    def learn():
        return critic(train, train(KEY).learner_state.params, jnp.eye(4))

    turn = np.roll(np.eye(4), 1, axis=1)  # from position p to p + 1
    value = np.linalg.solve(np.eye(4) - gamma * turn, np.arange(4.0))
    np.testing.assert_allclose(learn(), value, rtol=0.03)


@jax.jit
def bootstrapped(time_limit):
    """The steps of an unroll, their truncation values, and what is expected everywhere."""
    train = small(TimeLimit(Wheel(), time_limit=time_limit))
    state = train.init(KEY)
    _, unroll = train.collect(BehaviorPolicy.of(state), state.collector, KEY)
    steps = unroll.transition
    values = train.algorithm.truncation_values(train.context, state, steps, ())
    return steps, values, critic(train, state.params, steps.next_observation)


@pytest.mark.parametrize("time_limit", [1, 2, 5, 100], ids="truncated every {}".format)
def test_only_truncated_steps_bootstrap_from_final_observation(time_limit):
    steps, values, everywhere = jax.device_get(bootstrapped(time_limit))
    assert steps.truncated.sum() == 4 * (16 // time_limit)
    expected = np.where(steps.truncated, everywhere, 0.0)
    np.testing.assert_allclose(values, expected, atol=1e-6)


def test_unroll_advantages_match_hand_computation():
    train = small(TimeLimit(Wheel(), time_limit=2), PPO(gamma=0.5, gae_lambda=0.0))

    @jax.jit
    def judged():
        state = train.init(KEY)
        _, unroll = train.collect(BehaviorPolicy.of(state), state.collector, KEY)
        _, batch = train.algorithm.estimate(train.context, state, unroll)
        return unroll.transition.observation, batch, critic(train, state.params, jnp.eye(4))

    observation, batch, value = judged()
    batch, value = jax.device_get((batch, value))
    position = np.asarray(observation.argmax(-1))
    # Nothing terminates, so every step is followed by the next position, cut or not.
    advantage = position + 0.5 * value[(position + 1) % 4] - value[position]
    np.testing.assert_allclose(batch.advantage, advantage, atol=1e-5)
    np.testing.assert_allclose(batch.target, advantage + value[position], atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "reached"),
    every_nth(3, [("discrete", 0.9), ("multi_discrete", 0.95), ("box", 0)]),
)
def test_the_right_action_is_learned_in_every_kind_of_space(kind, reached):
    ppo = PPO(learning_rate=0.01, entropy_coefficient=0.0)
    actor = ActorCritic(hidden_sizes=(32,))
    train = make_train(
        Target(kind), ppo, actor=actor, num_envs=32, unroll_length=16, total_steps=40_000
    )

    @jax.jit
    def learn():
        result = train(KEY)
        greedy = train.policy(result.learner_state)(jnp.eye(4), KEY)
        is_member = jax.vmap(train.env.single_action_space.contains)(greedy)
        shown = WheelState(position=jnp.arange(4))
        _, timestep = jax.vmap(Target(kind).step)(shown, greedy, jax.random.split(KEY, 4))
        return result.metrics["episode_return"], is_member, timestep.reward.mean()

    returns, is_member, reward = learn()
    assert returns[-1] > reached > returns[0]
    assert is_member.all() and reward > reached


@pytest.fixture(scope="module")
def told():
    """The metrics of a training whose episodes have 24 steps, and its calls of the host."""
    calls = []
    train = small(
        RecordEpisodeStatistics(TimeLimit(Wheel(), time_limit=24)),
        log_info=["episode_return", "episode_length"],
        on_update=lambda updates, metrics: calls.append((int(updates), metrics)),
    )
    metrics = jax.device_get(jax.jit(train)(KEY).metrics)
    jax.effects_barrier()
    return metrics, calls


def test_metrics_count_the_episodes_that_ended_and_no_others(told):
    metrics, _ = told
    # Unrolls of 16 steps: the limit of 24 ends no episode in the first and the last of them.
    np.testing.assert_array_equal(metrics["episode_count"], [0, 4, 4, 0])
    np.testing.assert_array_equal(metrics["episode_length"], [np.nan, 24, 24, 24])
    np.testing.assert_array_equal(metrics["episode_return"], [np.nan, 36, 36, 36])
    np.testing.assert_array_equal(metrics["steps"], [64, 128, 192, 256])


def test_returns_average_at_least_the_last_hundred_episodes():
    random = np.random.default_rng(0)
    count = random.choice([0, 0, 1, 7, 60, 250], 400).astype(np.float32)
    total = np.where(count, random.normal(size=400) * 9, 0).astype(np.float32)
    ended = jnp.stack([count, total, 2 * total, -total])

    def step(recent, column):
        return add_episodes(recent, column, ["x"])

    _, metrics = jax.jit(lambda ended: jax.lax.scan(step, no_recent_episodes(["x"]), ended.T))(
        ended
    )
    np.testing.assert_array_equal(metrics["episode_count"], count)
    for row in range(400):
        first = row  # the newest updates, until they hold 100 episodes
        while first > 0 and count[first : row + 1].sum() < 100:
            first -= 1
        with np.errstate(invalid="ignore"):
            expected = total[first : row + 1].sum() / count[first : row + 1].sum()
        found = [metrics[name][row] for name in ("episode_return", "episode_length", "info/x")]
        np.testing.assert_allclose(found, np.array([1, 2, -1]) * expected, rtol=2e-5, atol=1e-6)


@pytest.mark.slow
def test_rows_of_several_updates_and_seeds_have_returns():
    train = small(TimeLimit(Wheel(), time_limit=24), report_every=3)
    metrics = jax.jit(jax.vmap(train))(jax.random.split(KEY)).metrics
    np.testing.assert_array_equal(metrics["episode_count"], [[8, 0]] * 2)
    np.testing.assert_array_equal(metrics["episode_return"], [[36, 36]] * 2)


@pytest.mark.parametrize("normalized", every_nth(2, [False, True]))
def test_episodes_that_a_staggered_start_cut_are_not_counted(normalized):
    env = jaxenvs.vectorize(TimeLimit(Wheel(), time_limit=24), 4, stagger=True)
    assert env.is_staggered
    if normalized:
        env = env.wrap(NormalizeObservation)
    metrics = jax.jit(small(env, num_envs=None))(KEY).metrics
    # 64 steps of each: one whole episode or two after the rest of the first.
    assert 4 <= metrics["episode_count"].sum() <= 8 and metrics["episode_count"][0] == 0
    lengths = metrics["episode_length"]
    np.testing.assert_array_equal(lengths[~np.isnan(lengths)], 24)


@pytest.fixture(scope="module")
def alone():
    """A small training on CartPole from KEY, not mapped over anything."""
    return jax.jit(small())(KEY)


@pytest.mark.slow
@pytest.mark.bitwise
def test_seeds_are_mapped_and_each_is_the_training_alone(alone):
    keys = jnp.stack([jax.random.key(1), KEY, jax.random.key(2)])
    together = jax.jit(jax.vmap(small()))(keys)
    params = jax.tree.map(lambda x: x[1], together.learner_state.params)
    chex.assert_trees_all_close(params, alone.learner_state.params, rtol=1e-3, atol=1e-4)
    bias = together.learner_state.params["critic"]["head"]["params"]["bias"]
    assert len(np.unique(bias)) == 3


@pytest.mark.slow
@pytest.mark.bitwise
def test_hyper_parameters_are_mapped_without_compiling_again():
    def run(learning_rate):
        ppo = PPO(learning_rate=learning_rate, anneal=False)
        train = small(ppo=ppo)
        start = train.init(KEY).params
        return start["critic"], train(KEY).learner_state.params["critic"]

    traced_once = jax.jit(jax.vmap(chex.assert_max_traces(run, n=1)))
    start, end = traced_once(jnp.array([0.0, 1e-3, 1e-1]))
    moved = jax.tree.map(lambda a, b: jnp.abs(a - b).reshape(3, -1).max(1), start, end)
    largest = jnp.stack(jax.tree.leaves(moved)).max(0)
    assert largest[0] == 0 < largest[1] < largest[2]
    traced_once(jnp.array([0.5, 0.1, 0.2]))


def test_bounds_of_actions_are_mapped():
    def largest_action(max_torque):
        train = small(jaxenvs.make("Pendulum-v1", max_torque=max_torque))
        far = jnp.full((4, 1), 9.0)
        return train.networks.to_action(far).max()

    largest = jax.jit(jax.vmap(largest_action))(jnp.array([0.5, 2.0]))
    np.testing.assert_array_equal(largest, [0.5, 2.0])


def test_parameters_of_the_environment_are_mapped():
    def mean_length(force_mag):
        env = jaxenvs.make("CartPole-v1", force_mag=force_mag)
        return jnp.nanmean(small(env)(KEY).metrics["episode_length"])

    weak, usual, violent = jax.jit(jax.vmap(mean_length))(jnp.array([0.1, 10.0, 200.0]))
    assert weak > usual > violent


@pytest.mark.parametrize("algorithm", [PPO(), DQN(learning_starts=16, batch_size=8)])
@pytest.mark.slow
def test_the_quick_generator_changes_no_bit_of_a_training(algorithm, monkeypatch):
    train = make_train("CartPole-v1", algorithm, num_envs=4, unroll_length=4, total_steps=64)
    quick = jax.jit(lambda key: train(key).learner_state)(KEY)
    monkeypatch.setattr(threefry, "should_unroll", lambda: False)
    stock = jax.jit(lambda key: train(key).learner_state)(KEY)
    chex.assert_trees_all_equal(jax.random.key_data(quick.key), jax.random.key_data(stock.key))
    assert quick.key.dtype == stock.key.dtype == KEY.dtype
    chex.assert_trees_all_close(quick.params, stock.params, atol=1e-6)  # what XLA fuses differs


def test_weights_drawn_together_equal_those_drawn_separately():
    space, actions = spaces.Box(-1.0, 1.0, (3,)), spaces.Discrete(2)
    networks = ActorCritic(hidden_sizes=(8,), memory=nn.GRUCell(5)).build(space, actions)

    @jax.jit
    def draw():
        features = networks.features(jnp.ones((2, 3)))
        keys = jax.random.split(KEY)
        actor = networks.actor.init(keys[0], features.inputs)
        critic = networks.critic.init(keys[1], features.inputs)
        return networks.init(KEY, features), {"actor": actor, "critic": critic}

    together, separately = draw()
    for name in ("actor", "critic"):
        chex.assert_trees_all_close(together[name], separately[name], atol=1e-6)


def test_a_restored_training_goes_on_bit_for_bit(tmp_path):
    train = small(ppo=PPO(normalize_observations=True, normalize_rewards=True))
    two_updates = jax.jit(lambda state: train.resume(state, 2).learner_state)
    halfway = two_updates(jax.jit(train.init)(KEY))
    save(tmp_path / "halfway", halfway)
    restored = restore(tmp_path / "halfway", jax.eval_shape(train.init, KEY))
    assert_same(restored, halfway)
    assert_same(two_updates(restored), two_updates(halfway))
    uninterrupted = jax.jit(train)(KEY).learner_state
    assert uninterrupted.updates == 4
    chex.assert_trees_all_close(two_updates(restored).params, uninterrupted.params, rtol=1e-4)


class Shown(Environment):
    """Shows its whole state, which actions push about."""

    continuous: bool = struct.static()

    @property
    def action_space(self):
        return spaces.Box(-1.0, 1.0, (1,)) if self.continuous else spaces.Discrete(2)

    @property
    def observation_space(self):
        return spaces.Box(-10.0, 10.0, (2,))

    def reset(self, key):
        position = jax.random.uniform(key, (2,))
        return position, TimeStep.first(position)

    def step(self, state, action, key):
        state = jnp.clip(state + jnp.float32(action).sum(), -10.0, 10.0)
        return state, TimeStep.transition(state, reward=state.sum(), terminated=False)


@pytest.mark.parametrize(
    "algorithm",
    every_nth(4, [PPO, A2C, SAC, TD3, DQN, VPG, PQN], first=2),
    ids=lambda each: each.__name__,
)
def test_a_state_can_be_donated_as_init_made_it(algorithm):
    off_policy = {"learning_starts": 16, "batch_size": 8}
    env = Shown(continuous=algorithm in (SAC, TD3))
    actor = dataclasses.replace(algorithm().default_actor(), hidden_sizes=(8,))
    algorithm = algorithm(**(off_policy if algorithm in (DQN, SAC, TD3) else {}))
    train = make_train(env, algorithm, actor=actor, num_envs=4, unroll_length=4, total_steps=64)
    state = train.init(KEY)
    assert any(x is y for x, y in itertools.combinations(jax.tree.leaves(env.reset(KEY)), 2))
    update = jax.jit(train.update, donate_argnums=0)
    for _ in range(2):
        given = state
        state, metrics = update(given)
        assert all(x.is_deleted() for x in jax.tree.leaves((given.storage, given.params)))
    assert metrics["steps"] == 32


@pytest.mark.slow
def test_a_training_that_goes_on_past_its_end_goes_on_learning():
    state = jax.jit(small())(KEY).learner_state
    resume = jax.jit(Train.resume, static_argnums=2)
    beyond = resume(small(), state, 4)
    longer = resume(small(total_steps=512), state, 4)
    np.testing.assert_array_equal(beyond.metrics["learning_rate"], longer.metrics["learning_rate"])
    chex.assert_trees_all_close(beyond.learner_state.params, longer.learner_state.params, atol=1e-6)
    # As of a training run of eight updates: means over the gradient steps of the last four.
    np.testing.assert_allclose(
        beyond.metrics["learning_rate"],
        PPO().learning_rate * np.array([7, 5, 3, 1]) / 16,
        rtol=0.1,
    )


# --- evaluation ---


def evaluated(env="CartPole-v1", **changes):
    return small(env, **{"evaluate_every": 100, "evaluation_episodes": 3, **changes})


@pytest.mark.slow
def test_every_seed_is_evaluated_on_separate_instances():
    """Updates take 64 steps, so 100 of them are two updates."""
    seeds = jax.random.split(KEY)
    result = jax.jit(jax.vmap(evaluated()))(seeds)
    found = jax.device_get(result.metrics)
    for name in ("evaluation_return", "evaluation_std", "evaluation_length"):
        np.testing.assert_array_equal(np.isnan(found[name]), [[True, False] * 2] * 2)
    plain = jax.jit(jax.vmap(small()))(seeds).learner_state
    chex.assert_trees_all_close(plain.params, result.learner_state.params, atol=1e-5)
    env = jaxenvs.make_vec("CartPole-v1", 3)
    for seed in range(2):
        state = jax.tree.map(lambda x, seed=seed: x[seed], result.learner_state)
        policy, key = small().policy(state), keys.evaluation_key(state.key, 4)
        evaluation = jaxenvs.evaluate(env, policy, 1, key)
        for value, name in ((evaluation.mean, "return"), (evaluation.std, "std")):
            np.testing.assert_allclose(found[f"evaluation_{name}"][seed, -1], value, rtol=1e-5)
        np.testing.assert_allclose(found["evaluation_length"][seed, -1], evaluation.mean)


def test_last_report_is_evaluated_whatever_evaluate_every_is():
    env = TimeLimit(Wheel(), time_limit=5)
    train = evaluated(env, report_every=3, evaluate_every=10**6)
    metrics = jax.eval_shape(train, KEY).metrics
    assert metrics["evaluation_return"].shape == (2,)
    values = jax.jit(train)(KEY).metrics["evaluation_return"]
    np.testing.assert_array_equal(np.isnan(values), [True, False])


@pytest.mark.slow
def test_instances_to_evaluate_are_like_those_of_the_training(monkeypatch):
    monkeypatch.setattr(evaluation, "MAX_STEPS", 5)
    endless = evaluated(Wheel()).evaluation_env
    assert endless.num_envs == 3 and endless.env.time_limit == 5
    limits = jnp.array([4, 5, 6, 7])
    batched = jaxenvs.vectorize(
        TimeLimit(Wheel(), time_limit=limits), 4, batched=("time_limit",), stagger=8
    )
    found = jax.jit(evaluated(batched))(KEY).metrics["evaluation_length"]
    np.testing.assert_array_equal(found[-1], limits.mean())
    given = jaxenvs.vectorize(Wheel(), 2)
    assert evaluated(batched, evaluation_env=given).evaluation_env is given
    assert evaluated(batched, evaluation_env="CartPole-v1").evaluation_env.env.time_limit == 500


def test_invalid_evaluation_settings_are_refused():
    hidden = OpaqueVectorEnv(jaxenvs.make_vec("CartPole-v1", 4))
    normalized = jaxenvs.make_vec("CartPole-v1", 4).wrap(NormalizeObservation)
    for env in (hidden, normalized):
        with pytest.raises(TrainingError, match="evaluation_env="):
            evaluated(env, num_envs=None)
        assert evaluated(env, num_envs=None, evaluation_env="CartPole-v1").evaluate_every == 100
    with pytest.raises(TrainingError, match="evaluate_every=0"):
        evaluated(evaluate_every=0)
    with pytest.raises(TrainingError, match="evaluation_episodes=0"):
        evaluated(evaluation_episodes=0)


# --- what is told ---


def test_infos_at_episode_ends_are_logged_by_name(told):
    metrics, _ = told
    np.testing.assert_array_equal(metrics["info/episode_length"], metrics["episode_length"])
    np.testing.assert_array_equal(metrics["info/episode_return"], [np.nan, 36, 36, 36])
    env = RecordEpisodeStatistics(TimeLimit(Wheel(), time_limit=24))
    with pytest.raises(TrainingError, match=r"Close: .*episode_length"):
        small(env, log_info="episode_lenght")


def test_a_callback_is_called_once_for_all_seeds():
    calls = []
    listen = lambda updates, metrics: calls.append((int(updates), metrics))  # noqa: E731
    train = small(Wheel(), on_update=listen)
    metrics = jax.jit(jax.vmap(train))(jax.random.split(KEY, 3)).metrics
    jax.effects_barrier()
    assert sorted(updates for updates, _ in calls) == [1, 2, 3, 4]
    for updates, reported in calls:
        np.testing.assert_array_equal(reported["entropy"], metrics["entropy"][:, updates - 1])


@pytest.mark.slow
def test_a_bar_shows_progress(capsys, monkeypatch):
    pytest.importorskip("rich")
    calls = []
    train = small(progress=True, on_update=lambda updates, _: calls.append(int(updates)))
    result = jax.jit(train)(KEY)
    jax.effects_barrier()
    printed = capsys.readouterr().out
    assert "256 steps" in printed and f"{result.metrics['episode_return'][-1]:.1f}" in printed
    assert printed.count("steps ") == len(calls) == 4
    jax.jit(train.resume, static_argnums=1)(result.learner_state, 3)  # beyond the end
    jax.effects_barrier()
    printed = capsys.readouterr().out
    assert "448 steps" in printed and len(calls) == 7
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with pytest.raises(MissingExtraError, match=r"progress bar.*jaxenvs\[cli\]"):
        small(progress=True)


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    save(tmp_path / "saved", jax.jit(small().init)(KEY))
    wider = small(actor=ActorCritic(hidden_sizes=(16,)))
    with pytest.raises(TrainingError, match=r"params\.actor.*\[4, 8\].*\[4, 16\]"):
        restore(tmp_path / "saved", jax.eval_shape(wider.init, KEY))
    with pytest.raises(TrainingError, match="absent"):
        restore(tmp_path / "saved", {"other": jnp.zeros(3)})
    with pytest.raises(TrainingError, match="no checkpoint"):
        restore(tmp_path / "nowhere", jnp.zeros(3))


def test_weights_alone_are_restored_from_any_checkpoint(tmp_path):
    state = jax.jit(small().init)(KEY)
    save(tmp_path / "saved", state)
    other = jax.jit(small(num_envs=8).init)(jax.random.key(1))
    found = restore(tmp_path / "saved", {"weights": other.weights})
    assert_same(found["weights"], state.weights)
    with pytest.raises(TrainingError, match=r"collector.*\n.*jax.jit\(train.init\)"):
        restore(tmp_path / "saved", jax.eval_shape(lambda: other))
    with pytest.warns(UserWarning, match="episodes start again"):
        carried = restore(tmp_path / "saved", other)
    assert_same(carried.weights, state.weights)
    assert_same(carried.collector, other.collector)


def test_fields_of_a_training_program_are_replaced():
    train = small()
    run = jax.jit(chex.assert_max_traces(lambda train, key: train.init(key), n=1))
    run(train, KEY)
    run(train.replace(env=train.env.replace(gravity=3.7)), KEY)
    with pytest.raises(UnknownParameterError, match=r'"algoritm".*"algorithm"'):
        train.replace(algoritm=PPO())


def test_callback_reports_each_update_and_is_absent_if_unset(told):
    metrics, calls = told
    assert sorted(updates for updates, _ in calls) == [1, 2, 3, 4]
    reported = {updates: float(m["entropy"]) for updates, m in calls}
    np.testing.assert_allclose([reported[u] for u in (1, 2, 3, 4)], metrics["entropy"])
    assert "callback" in str(jax.make_jaxpr(small(Wheel(), on_update=print))(KEY))
    assert "callback" not in str(jax.make_jaxpr(small(Wheel()))(KEY))


def test_normalized_observations_use_statistics_of_past_unrolls():
    ppo = PPO(normalize_observations=True)
    train = small(ppo=ppo)
    update = jax.jit(train.update)
    first, _ = update(jax.jit(train.init)(KEY))
    assert first.observation_statistics.count == 64
    second, losses = update(first)
    assert second.observation_statistics.count == 128
    # Acting and learning saw the same features: the first ratios are 1, the later ones close.
    assert losses["approx_kl"] < 0.01


def test_normalized_rewards_make_value_loss_scale_invariant():
    class Paid(Wheel):
        scale: float

        def step(self, state, action, key):
            state, timestep = super().step(state, action, key)
            return state, timestep.replace(reward=self.scale * timestep.reward)

    def value_loss(scale):
        env = TimeLimit(Paid(scale), time_limit=5)
        return small(env, PPO(normalize_rewards=True))(KEY).metrics["value_loss"]

    little, much = jax.jit(jax.vmap(value_loss))(jnp.array([1.0, 1e4]))
    np.testing.assert_allclose(little, much, rtol=1e-3)


def test_a_permutation_holds_every_index_once_and_differs_by_key():
    keys = jax.random.split(KEY, 500)
    orders = np.asarray(jax.jit(jax.vmap(lambda key: permutation(key, 100)))(keys))
    np.testing.assert_array_equal(np.sort(orders, axis=1), np.tile(np.arange(100), (500, 1)))
    assert len(np.unique(orders, axis=0)) == 500
    first = np.bincount(orders[:, 0], minlength=100)
    assert ((first - 5.0) ** 2 / 5.0).sum() < 150  # chi-squared, 99 degrees: 1 in 1,000 above 148


def test_sampling_policy_explores_and_greedy_policy_does_not():
    train = small()

    @jax.jit
    def play():
        state, observation = train.init(KEY), jnp.zeros((64, 4))
        return [train.policy(state, greedy=greedy)(observation, KEY) for greedy in (False, True)]

    sampled, greedy = play()
    assert len(np.unique(sampled)) == 2
    assert len(np.unique(greedy)) == 1


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"num_envs": 3, "unroll_length": 3}, "minibatches"),
        ({"num_envs": None}, "num_envs"),
        ({"unroll_length": 0}, "unroll_length=0"),
        ({"total_steps": 0}, "total_steps=0"),
        ({"env": jaxenvs.vectorize(Wheel(), 8)}, "8 instances"),
        ({"env": jaxenvs.vectorize(Wheel(), 4, autoreset_mode="next_step")}, "same_step"),
        ({"env": Wheel}, "VectorEnv"),
        ({"actor": ActorCritic(activation="tahn")}, "tanh"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_invalid_training_arguments_are_refused(changes, word):
    with pytest.raises(TrainingError, match=word):
        small(**changes)


def test_an_unknown_id_names_the_closest():
    with pytest.raises(UnknownEnvironmentError, match="CartPole-v1"):
        small("CartPol-v1")


def test_vectorized_environment_determines_num_envs():
    train = small(jaxenvs.vectorize(Wheel(), 8), num_envs=None)
    assert isinstance(train, Train) and train.num_updates == 2


def test_total_steps_are_reached_by_completing_the_last_unroll():
    assert small(total_steps=65).num_updates == 2


def test_without_its_packages_training_names_the_extra():
    code = "import sys; sys.modules['optax'] = None; import jaxenvs.training"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert MissingExtraError.__name__ in done.stderr and "jaxenvs[train]" in done.stderr


@pytest.mark.parametrize(
    ("id", "algorithm", "actor"),
    every_nth(
        2,
        [
            ("CartPole-v1", PPO(), ActorCritic(hidden_sizes=(8, 8))),
            ("CartPole-v1", PPO(), ActorCritic(critic_extractor=MLP((8,)), hidden_sizes=(9,))),
            ("CartPole-v1", PPO(), ActorCritic(hidden_sizes=(8,), shared=True)),
            ("CartPole-v1", PPO(), ActorCritic(hidden_sizes=(8,), memory=nn.GRUCell(8))),
            ("CartPole-v1", DQN(learning_starts=0), QNetwork(extractor=MLP((8,)))),
            ("Pendulum-v1", SAC(initial_temperature=0.5), ActorTwinQ(extractor=MLP((8,)))),
        ],
    ),
    ids=["separate", "different", "shared", "memory", "DQN", "SAC"],
)
def test_weights_of_several_seeds_are_drawn_one_by_one(id, algorithm, actor):
    """Up to jax 0.10 matrices that are factorised together wait for each other for ever."""
    settings = {"actor": actor, "num_envs": 4, "unroll_length": 4, "total_steps": 16}
    train = make_train(id, algorithm, **settings)
    draw = lambda key: train.init(key).weights.params  # noqa: E731
    keys = jax.random.split(KEY, 3)
    lowered = jax.jit(jax.vmap(draw)).lower(keys)
    matrices = re.findall(r"@lapack_sgeqrf.*?tensor<((?:\d+x)+)f32>", lowered.as_text())
    assert matrices and all(shape.count("x") == 2 for shape in matrices)
    drawn = jax.device_get(lowered.compile()(keys))
    one = jax.jit(draw)
    for i, key in enumerate(keys):
        expected = jax.tree.map(lambda x, i=i: x[i], drawn)
        chex.assert_trees_all_close(expected, one(key), atol=1e-6)
    kernels = [x for x in jax.tree.leaves(drawn) if x.ndim > 2 and x.any()]
    assert not any(np.array_equal(x[0], x[1]) for x in kernels)
    rates = np.array([0.25, 0.5], np.float32)  # hyperparameters that differ between the seeds
    both = jax.jit(jax.vmap(lambda rate, key: rerated(train, rate).init(key).weights.params))
    swept = jax.device_get(both(rates, keys[:2]))
    if isinstance(algorithm, SAC):
        np.testing.assert_allclose(np.exp(swept.pop("log_temperature")), rates, rtol=1e-6)
        drawn.pop("log_temperature")
    chex.assert_trees_all_close(swept, jax.tree.map(lambda x: x[:2], drawn), atol=1e-6)


def rerated(train, rate):
    name = "initial_temperature" if isinstance(train.algorithm, SAC) else "learning_rate"
    return dataclasses.replace(train, algorithm=train.algorithm.replace(**{name: rate}))


def test_networks_of_equal_parts_are_built_once():
    def networks(size):
        actor = ActorCritic(hidden_sizes=(size,))
        sizes = {"num_envs": 2, "unroll_length": 2, "total_steps": 8}
        return make_train("CartPole-v1", A2C(), actor=actor, **sizes).networks

    assert networks(8) is networks(8) and networks(8) is not networks(4)
