"""Eight devices of one CPU that learn together."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

import jaxenvs
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import TrainingError
from jaxenvs.training import (
    A2C,
    DQN,
    PPO,
    PQN,
    SAC,
    ActorCritic,
    PrioritizedReplay,
    QNetwork,
    make_train,
    restore,
    save,
    shard,
)
from jaxenvs.training.algorithms._on_policy import Batch
from jaxenvs.wrappers import NormalizeReward
from tests.opaque import OpaqueVectorEnv

KEY = jax.random.key(0)
SMALL = ActorCritic(hidden_sizes=(8,))
NORMALIZED = {"normalize_observations": True, "normalize_rewards": True}


def mesh(size=4):
    explicit = (jax.sharding.AxisType.Explicit,)  # not the default of jax 0.8
    return jax.make_mesh((size,), ("devices",), explicit, devices=jax.devices()[:size])


def test_gradients_of_shares_are_those_of_the_whole_batch():
    """Also where advantages are normalized: by what all devices have, not by each one's."""
    train = make_train(
        "CartPole-v1", PPO(), actor=SMALL, num_envs=16, unroll_length=8, total_steps=128
    )
    weights = jax.jit(train.init)(KEY).weights
    rows = np.random.default_rng(0).normal(size=(6, 64, 4)).astype(np.float32)
    features = train.networks.features(rows[0])
    batch = Batch(
        features=features,
        action=np.arange(64, dtype=np.int32) % 2,
        log_prob=-0.7 + 0.1 * rows[1, :, 0],
        value=rows[2, :, 0],
        advantage=3 * rows[3, :, 0]
        + np.linspace(0, 5, 64, dtype=np.float32),  # the shares' means differ
        target=rows[4, :, 0],
    )
    gradients = jax.jit(lambda batch: train.algorithm.gradients(train.context, weights, batch, KEY))
    alone, losses, _ = gradients(batch)
    part = shard(train, mesh()).train

    def on_device(batch):
        gradients, losses, _ = part.algorithm.gradients(part.context, weights, batch, KEY)
        return jax.lax.pmean((gradients, losses), "devices")

    spec = jax.sharding.PartitionSpec("devices")
    program = jax.shard_map(
        on_device,
        mesh=mesh(),
        in_specs=spec,
        out_specs=jax.sharding.PartitionSpec(),
        check_vma=False,
    )
    laid_out = jax.device_put(batch, jax.NamedSharding(mesh(), spec))
    together, same_losses = jax.jit(program)(laid_out)
    chex.assert_trees_all_close(together, alone, rtol=1e-5, atol=1e-6)
    chex.assert_trees_all_close(same_losses, losses, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("algorithm", [PPO(), DQN(), SAC()], ids=["PPO", "DQN", "SAC"])
def test_training_traces_in_a_users_shard_map(algorithm):
    id = "Pendulum-v1" if isinstance(algorithm, SAC) else "CartPole-v1"
    length = {"num_envs": 2, "unroll_length": 4, "total_steps": 2_000, "evaluate_every": 1_000}
    train = make_train(id, algorithm, **length)

    def on_device(keys):
        return jax.tree.map(lambda leaf: leaf[None], train(keys[0]))

    over = jax.sharding.PartitionSpec("devices")
    program = jax.shard_map(on_device, mesh=mesh(), in_specs=over, out_specs=over)
    keys = jax.device_put(jax.random.split(KEY, 4), jax.NamedSharding(mesh(), over))
    metrics = jax.eval_shape(program, keys).metrics
    assert metrics["episode_return"].shape == (4, 250)


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm",
    [
        PPO(learning_rate=1e-3, epochs=8, **NORMALIZED),
        PQN(learning_rate=1e-3, gae_lambda=0.95, epochs=8, exploration_steps=30_000, **NORMALIZED),
    ],
    ids=["PPO", "PQN"],
)
def test_sharded_training_has_the_same_weights_everywhere(algorithm):
    train = make_train("CartPole-v1", algorithm, num_envs=32, unroll_length=64, total_steps=60_000)
    result = jax.jit(shard(train, mesh()))(KEY)
    curve = np.asarray(result.metrics["episode_return"])
    assert curve[0] < 40 and np.nanmean(curve[-5:]) > 150
    assert result.metrics["steps"][-1] == 61_440
    for leaf in jax.tree.leaves((result.learner_state.params, result.learner_state.key)):
        shards = [
            np.asarray(jax.random.key_data(s.data) if s.data.dtype == KEY.dtype else s.data)
            for s in leaf.addressable_shards
        ]
        assert len(shards) == 4
        for other in shards[1:]:
            np.testing.assert_array_equal(shards[0], other)
    # Each device has its own instances, in states of their own.
    positions = np.asarray(result.learner_state.collector.observation)
    assert positions.shape == (4, 8, 4) and len(np.unique(positions[:, :, 0])) == 32
    assert result.learner_state.observation_statistics.count == 61_440


@pytest.mark.slow
def test_a_sharded_memory_holds_what_its_device_collected():
    train = make_train(
        "CartPole-v1",
        DQN(batch_size=32, learning_starts=0, replay_ratio=1 / 16),
        actor=QNetwork(hidden_sizes=(8,)),
        storage=PrioritizedReplay(256),
        num_envs=8,
        unroll_length=4,
        total_steps=320,
    )
    sharded = shard(train, mesh())
    assert sharded.train.algorithm.batch_size == 8
    result = jax.jit(sharded)(KEY)
    assert np.isfinite(result.metrics["q_loss"]).all()
    storage = jax.device_get(result.learner_state.storage)
    for device in range(4):
        assert train.storage.size(jax.tree.map(lambda x, d=device: x[d], storage)) == 80


def test_each_device_has_its_own_rows_of_batched_parameters():
    env = jaxenvs.vectorize(Level(reward=jnp.arange(8.0)), 8, batched=("reward",))
    train = make_train(env, A2C(), actor=SMALL, unroll_length=8, total_steps=128)
    result = jax.jit(shard(train, mesh()))(KEY)
    state = result.learner_state
    shown = np.asarray(state.collector.observation).ravel()
    np.testing.assert_array_equal(shown, np.arange(8.0))
    returns = np.asarray(state.collector.episodes.episode_return).ravel()
    np.testing.assert_array_equal(returns, 16 * np.arange(8.0))
    goes_on = jax.jit(shard(train, mesh()).update, donate_argnums=0)
    state, metrics = goes_on(state)
    assert metrics["steps"] == 192


@pytest.mark.slow
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=lambda kind: kind.name)
def test_a_checkpoint_is_restored_from_shapes_alone(kind, tmp_path):
    devices = jax.make_mesh((4,), ("devices",), axis_types=(kind,), devices=jax.devices()[:4])
    train = make_train(
        "CartPole-v1", PPO(), actor=SMALL, num_envs=8, unroll_length=8, total_steps=64
    )
    sharded = shard(train, devices)
    update, state = jax.jit(sharded.update), jax.jit(sharded.init)(KEY)
    save(tmp_path / "saved", state)
    restored = restore(tmp_path / "saved", jax.eval_shape(sharded.init, KEY))
    chex.assert_trees_all_equal(
        jax.device_get(update(restored)[0].params), jax.device_get(update(state)[0].params)
    )


class Level(Environment):
    """Shows and pays its parameter, for ever."""

    reward: float

    @property
    def observation_space(self):
        return jaxenvs.spaces.Box(0.0, 10.0, (1,))

    @property
    def action_space(self):
        return jaxenvs.spaces.Discrete(2)

    def reset(self, key):
        return jnp.int32(0), TimeStep.first(self.observation)

    def step(self, state, action, key):
        return state, TimeStep.transition(self.observation, reward=self.reward, terminated=False)

    @property
    def observation(self):
        return jnp.float32(self.reward)[None]


def test_a_sharded_training_is_evaluated_and_reported_once():
    calls = []
    train = make_train(
        "CartPole-v1",
        A2C(),
        actor=SMALL,
        num_envs=8,
        unroll_length=8,
        total_steps=128,
        evaluate_every=128,
        evaluation_episodes=3,
        on_update=lambda updates, _: calls.append(int(updates)),
    )
    metrics = jax.jit(shard(train, mesh(2)))(KEY).metrics
    jax.effects_barrier()
    assert sorted(calls) == [1, 2]  # not of each device
    np.testing.assert_array_equal(np.isnan(metrics["evaluation_return"]), [True, False])
    np.testing.assert_array_equal(metrics["evaluation_return"], metrics["evaluation_length"])


def test_instances_over_an_explicit_mesh_are_refused():
    env = jaxenvs.make_vec("CartPole-v1", 8, mesh=mesh(2))
    with pytest.raises(TrainingError, match=r"shard\(train, mesh\)"):
        make_train(env.wrap(NormalizeReward), unroll_length=8, total_steps=128)


@pytest.mark.parametrize(
    ("train", "word"),
    [
        (
            lambda: make_train("CartPole-v1", num_envs=6, unroll_length=8, total_steps=48),
            "num_envs=6",
        ),
        (
            lambda: make_train(
                "CartPole-v1", DQN(batch_size=30), num_envs=8, unroll_length=8, total_steps=64
            ),
            "batch_size=30",
        ),
        (
            lambda: make_train(
                OpaqueVectorEnv(jaxenvs.make_vec("CartPole-v1", 8)),
                unroll_length=8,
                total_steps=64,
            ),
            "native",
        ),
        (
            lambda: make_train(
                "CartPole-v1", PPO(minibatches=16), num_envs=4, unroll_length=4, total_steps=64
            ),
            "16 equal minibatches",
        ),
    ],
    ids=["instances", "batch", "host", "minibatches"],
)
def test_training_that_cannot_be_sharded_is_refused(train, word):
    with pytest.raises(TrainingError, match=word):
        shard(train(), mesh())
