"""What PPO, A2C, VPG and partly PQN share: minibatches, early ends, and memories."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs import spaces
from jaxenvs.errors import TrainingError
from jaxenvs.training import A2C, PPO, VPG, ActorCritic, make_train
from jaxenvs.training.algorithms._on_policy import minibatch
from jaxenvs.training.algorithms.algorithm import BehaviorPolicy

KEY = jax.random.key(0)
SIZES = {"num_envs": 4, "unroll_length": 6, "total_steps": 240}
SMALL = ActorCritic(hidden_sizes=(8,))
MEMORY = ActorCritic(hidden_sizes=(8,), memory=nn.GRUCell(8))


def judged(train):
    @jax.jit
    def run():
        state = train.init(KEY)
        _, unroll = train.collect(BehaviorPolicy.of(state), state.collector, KEY)
        return state, unroll, train.algorithm.estimate(train.context, state, unroll)[1]

    return run()


@pytest.mark.parametrize(("shuffle", "taken"), [("instances", (6, 2)), ("time", (3, 4))])
def test_minibatch_holds_whole_instances_or_whole_time_steps(shuffle, taken):
    ppo = PPO(minibatches=2, shuffle=shuffle)
    _, _, batch = judged(make_train("CartPole-v1", ppo, actor=SMALL, **SIZES))
    drawn = jnp.array([1, 3]) if shuffle == "instances" else jnp.array([5, 0, 2])
    value = np.asarray(batch.value)
    rows = value[:, drawn] if shuffle == "instances" else value[drawn]
    assert rows.shape == taken
    taken_batch = jax.jit(minibatch, static_argnums=2)(batch, drawn, shuffle)
    np.testing.assert_array_equal(taken_batch.value, rows.ravel())
    assert taken_batch.features.inputs.shape == (rows.size, 4)


def test_recurrent_log_probs_of_sequences_match_single_steps():
    """Log-probabilities of sequences are those of the steps, across the ends of episodes too."""
    env = jaxenvs.make_vec("CartPole-v1", 4, time_limit=4)
    train = make_train(env, PPO(), actor=MEMORY, unroll_length=6, total_steps=24)
    state, unroll, batch = judged(train)
    networks, steps = train.networks, unroll.transition

    @jax.jit
    def step_by_step(params, carry, steps):
        def step(carry, steps):
            features = networks.features(steps.observation)
            value = networks.value_after(params, carry, features)
            carry, outputs = networks._act(params, carry, features)
            log_prob, _ = networks.distribution.log_prob_and_entropy(outputs, None, steps.action)
            after = networks.value_after(params, carry, networks.features(steps.next_observation))
            carry = jaxenvs.struct.select(steps.done, networks.initial_carry(4), carry)
            return carry, (value, log_prob, steps.reward + 0.99 * after - value)

        return jax.lax.scan(step, carry, steps)[1]

    value, log_prob, one_step = step_by_step(state.params, unroll.carry, steps)
    np.testing.assert_allclose(batch.value, value, atol=1e-6)
    np.testing.assert_allclose(unroll.log_prob, log_prob, atol=1e-6)
    cut = np.asarray(steps.truncated) & ~np.asarray(steps.terminated)
    # A cut ends the sum: there the advantage is what one step says.
    np.testing.assert_allclose(batch.advantage[cut], one_step[cut], atol=1e-5)
    assert cut.any()


class Count(nn.RNNCellBase):
    """Remembers how many steps it has seen, and shows how many those were before, up to three."""

    @nn.compact
    def __call__(self, carry, inputs):
        del inputs
        return carry + 1, 50.0 * jax.nn.one_hot(carry, 4)

    def initialize_carry(self, rng, input_shape):
        return jnp.zeros(input_shape[:-1], jnp.int32)

    @property
    def num_feature_axes(self):
        return 1


def test_recurrent_actor_resets_its_memory_where_episodes_end():
    """Episodes of three steps, and an actor that goes right in the second step of each alone."""
    env = jaxenvs.make_vec("CartPole-v1", 2, time_limit=3)
    actor = ActorCritic(hidden_sizes=(4,), memory=Count())
    train = make_train(env, A2C(), actor=actor, unroll_length=4, total_steps=40)
    state = jax.jit(train.init)(KEY)
    branch = state.params["actor"]
    head = {"kernel": np.float32([[1, -1], [-1, 1], [1, -1], [0, 0]])}
    assert branch["head"]["params"]["kernel"].shape == head["kernel"].shape
    branch["head"] = {"params": {"bias": np.zeros(2, np.float32), **head}}

    @jax.jit
    def collected(state, collector):
        collector, unroll = train.collect(BehaviorPolicy.of(state), collector, KEY)
        _, batch = train.algorithm.estimate(train.context, state, unroll)
        log_prob, _ = train.networks.log_prob_and_entropy(
            state.params, batch.features, batch.action, batch.memory
        )
        return collector, unroll, log_prob

    collector, actions = state.collector, []
    for _ in range(2):  # the second unroll begins in the midst of an episode
        collector, unroll, log_prob = collected(state, collector)
        actions.append(unroll.transition.action)
        np.testing.assert_allclose(unroll.log_prob, 0, atol=1e-6)
        np.testing.assert_allclose(log_prob, 0, atol=1e-6)
    expected = [[action] * 2 for action in (0, 1, 0, 0, 1, 0, 0, 1)]
    np.testing.assert_array_equal(np.concatenate(actions), expected)
    for greedy in (True, False):
        policy = train.policy(state, greedy=greedy)
        played = jaxenvs.rollout(env, policy, 8, KEY, policy_carry=policy.initial_carry(2))
        np.testing.assert_array_equal(played.trajectory.action, expected)


@pytest.mark.parametrize("memory", [None, nn.GRUCell(8)], ids=["none", "GRU"])
def test_action_mask_with_one_action_makes_it_certain(memory):
    space = spaces.Dict({"action_mask": spaces.MultiBinary(3), "seen": spaces.Box(-1.0, 1.0, (2,))})
    actor = ActorCritic(hidden_sizes=(8,), memory=memory)
    networks = actor.build(space, spaces.Discrete(3))
    allowed = np.array([[0, 2, 1, 1], [1, 1, 0, 2]], np.int32)

    @jax.jit
    def asked(allowed):
        observation = {
            "action_mask": jax.nn.one_hot(allowed, 3, dtype=jnp.int8),
            "seen": jnp.ones((2, 4, 2), jnp.float32),
        }
        features = jax.vmap(networks.features)(observation)
        if memory is None:
            features, allowed = jax.tree.map(
                lambda x: x.reshape((-1, *x.shape[2:])), (features, allowed)
            )
            one, memories = features, None
        else:
            one = jax.tree.map(lambda x: x[0], features)
            memories = networks.initial_carry(4), jnp.zeros((2, 4), bool)
        params = networks.init(KEY, one)
        same = networks.log_prob_and_entropy(params, features, allowed, memories)
        other, _ = networks.log_prob_and_entropy(params, features, (allowed + 1) % 3, memories)
        carry = networks.initial_carry(len(one.action_mask))
        done = networks.mode(params, carry, one)[1], networks.sample(params, carry, one, KEY)[1]
        return same, other, done

    (log_prob, entropy), other, done = asked(allowed)
    np.testing.assert_allclose(log_prob, 0, atol=1e-6)
    np.testing.assert_allclose(entropy, 0, atol=1e-6)
    assert (np.asarray(other) < -50).all()
    for actions in done:
        np.testing.assert_array_equal(actions, allowed.ravel() if memory is None else allowed[0])


def test_minibatch_of_instances_takes_their_memories():
    train = make_train("CartPole-v1", PPO(minibatches=2), actor=MEMORY, **SIZES)

    @jax.jit
    def taken_batch():
        state = train.init(KEY)
        carry = jax.tree.map(
            lambda x: x + jnp.arange(4.0).reshape((4,) + (1,) * (x.ndim - 1)), state.collector.carry
        )
        collector = state.collector.replace(carry=carry)
        _, unroll = train.collect(BehaviorPolicy.of(state), collector, KEY)
        _, batch = train.algorithm.estimate(train.context, state, unroll)
        return minibatch(batch, jnp.array([3, 1]), "instances")

    remembered, first = taken_batch().memory
    assert first.shape == (6, 2)
    for leaf in jax.tree.leaves(remembered):
        np.testing.assert_array_equal(leaf, np.broadcast_to([[3.0], [1.0]], leaf.shape))


@pytest.mark.slow
def test_target_kl_exceeded_skips_later_gradient_steps():
    def gradient_steps(target_kl):
        ppo = PPO(learning_rate=0.02, target_kl=target_kl, anneal=False)
        train = make_train("CartPole-v1", ppo, **SIZES)
        state, losses = jax.jit(train.update)(train.init(KEY))
        return int(state.weights.gradient_steps), losses

    assert gradient_steps(1e9)[0] == 16
    assert gradient_steps(1e-9)[0] == 2  # any change at all is too much
    some, losses = gradient_steps(0.003)
    assert 1 < some < 16 and np.isfinite(losses["policy_loss"])


def test_vpg_stops_at_target_kl_and_reports_approx_kl():
    train = make_train("CartPole-v1", VPG(epochs=3, target_kl=1e-9), actor=SMALL, **SIZES)
    state, losses = jax.jit(lambda: train.update(train.init(KEY)))()
    assert int(state.weights.gradient_steps) == 2 and losses["approx_kl"] > 0


def test_explained_variance_is_relative_to_target_variance():
    ppo = PPO(epochs=1, minibatches=1)
    train = make_train("CartPole-v1", ppo, actor=SMALL, **SIZES)
    state, unroll, batch = judged(train)
    value, target = np.asarray(batch.value, np.float64), np.asarray(batch.target, np.float64)
    _, losses = jax.jit(train.learn)(state, unroll, KEY)
    expected = 1 - (target - value).var() / target.var()
    np.testing.assert_allclose(losses["explained_variance"], expected, atol=1e-4)


@pytest.mark.slow
def test_normalized_rewards_and_observations_are_clipped():
    for clip, largest in ((0.5, 0.5), (10.0, 10.0), (None, 1e4)):
        # Without a discount a return is a reward, always 1 and of no variance; so is the target.
        algorithm = A2C(gamma=0.0, normalize_rewards=True, reward_clip=clip)
        _, _, batch = judged(make_train("CartPole-v1", algorithm, **SIZES))
        np.testing.assert_allclose(batch.target, largest, rtol=1e-3)

    algorithm = A2C(normalize_observations=True, observation_clip=0.01)
    train = make_train("CartPole-v1", algorithm, **SIZES)
    state, _, batch = judged(train)
    assert np.abs(batch.features.inputs).max() == np.float32(0.01)
    policy = train.policy(state)
    assert policy.observation_clip == 0.01
    seen = 0.005 * jnp.arange(8.0).reshape(2, 4)
    np.testing.assert_array_equal(policy(seen, KEY), policy(jnp.minimum(seen, 0.01), KEY))
    held = train.algorithm.normalize_features(
        train.networks.features(seen), state.observation_statistics
    )
    np.testing.assert_allclose(held.inputs, np.minimum(seen, 0.01), rtol=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "actor", "word"),
    [
        (PPO(shuffle="steps"), MEMORY, "recurrent"),
        (PPO(minibatches=3), MEMORY, "4 sequences"),
        (PPO(minibatches=4, shuffle="time"), None, "6 time steps"),
        (A2C(minibatches=7), None, "24 steps"),
    ],
)
def test_minibatches_that_cannot_be_formed_are_refused(algorithm, actor, word):
    with pytest.raises(TrainingError, match=word):
        make_train("CartPole-v1", algorithm, actor=actor, **SIZES)
