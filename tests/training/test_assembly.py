"""Parts that fit together, and the errors for those that do not."""

import dataclasses

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs import spaces
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import TrainingError
from jaxenvs.training import (
    A2C,
    DQN,
    GAE,
    PPO,
    PQN,
    SAC,
    TD3,
    VPG,
    ActorCritic,
    ActorTwinQ,
    HindsightReplay,
    QNetwork,
    Replay,
    make_train,
)
from tests.ids import every_nth

KEY = jax.random.key(0)
MEMORY = ActorCritic(memory=nn.GRUCell(8))


@chex.dataclass(frozen=True)
class CardsState:
    allowed: jax.Array  # bool[4]


class Cards(Environment[CardsState]):
    """Pays the number of the card that is played, of those that are allowed; others end it."""

    @property
    def observation_space(self):
        return spaces.Dict({"action_mask": spaces.MultiBinary(4), "table": spaces.Box(0, 1, (3,))})

    @property
    def action_space(self):
        return spaces.Discrete(4)

    def reset(self, key):
        state = CardsState(allowed=jax.random.bernoulli(key, 0.5, (4,)).at[0].set(True))
        return state, TimeStep.first(self._observe(state))

    def step(self, state, action, key):
        reward = jnp.where(state.allowed[action], jnp.float32(action), -100.0)
        new, _ = self.reset(key)
        return new, TimeStep.transition(self._observe(new), reward=reward, terminated=False)

    def _observe(self, state):
        mask = state.allowed.astype(jnp.int8)
        return {"action_mask": mask, "table": jnp.zeros(3, jnp.float32)}


@pytest.mark.parametrize(
    "algorithm",
    every_nth(
        3,
        [
            PPO(minibatches=1),
            DQN(batch_size=8, learning_starts=64),
            SAC(batch_size=8, learning_starts=64),
            PQN(minibatches=1, exploration_steps=128),
        ],
    ),
    ids=lambda algorithm: type(algorithm).__name__,
)
def test_actions_forbidden_by_the_mask_are_never_taken(algorithm):
    """Not at random, not to explore, not greedily."""
    actor = dataclasses.replace(algorithm.default_actor(), hidden_sizes=(8,))
    train = make_train(
        Cards(), algorithm, actor=actor, num_envs=4, unroll_length=8, total_steps=256
    )

    @jax.jit
    def learn():
        state = train(KEY).learner_state
        observation = {
            "action_mask": jnp.array([[1, 0, 0, 0], [1, 0, 1, 0]], jnp.int8),
            "table": jnp.zeros((2, 3)),
        }
        greedy = train.policy(state)(observation, KEY)
        return greedy, state.collector.episodes.episode_return.min()

    greedy, lowest = learn()
    assert greedy[0] == 0 and greedy[1] in (0, 2)
    assert lowest >= 0  # no step has paid -100


@pytest.mark.parametrize(
    "memory", every_nth(2, [nn.GRUCell(8), nn.OptimizedLSTMCell(8)]), ids=["GRU", "LSTM"]
)
def test_actors_with_any_memory_are_assembled_and_act(memory):
    actor = ActorCritic(hidden_sizes=(8,), memory=memory)
    train = make_train(
        "CartPole-v1", A2C(), actor=actor, num_envs=3, unroll_length=4, total_steps=24
    )

    @jax.jit
    def act():
        state, losses = train.update(train.init(KEY))
        policy = train.policy(state)
        timestep = TimeStep.transition(
            jnp.zeros((3, 4)), reward=jnp.zeros(3), terminated=jnp.zeros(3, bool)
        )
        return losses, *policy(policy.initial_carry(3), timestep, KEY)

    losses, carry, action = jax.device_get(act())
    assert np.isfinite(losses["value_loss"])
    assert action.shape == (3,)
    assert any(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(carry["actor"]))


def test_custom_flax_module_works_as_an_extractor():
    class Sines(nn.Module):
        @nn.compact
        def __call__(self, x):
            return jnp.sin(nn.Dense(5)(x))

    networks = ActorCritic(extractor=Sines(), shared=True).build(
        spaces.Box(-1, 1, (3,)), spaces.Discrete(2)
    )
    params = jax.eval_shape(networks.init, KEY, networks.features(jnp.zeros((1, 3))))
    assert "critic" not in params
    assert params["actor"]["extractor"]["params"]["Dense_0"]["kernel"].shape == (3, 5)
    features = networks.features(jnp.ones((7, 3)))
    assert jax.eval_shape(networks.value, params, features).shape == (7,)


def test_actions_spread_by_the_initial_std():
    networks = ActorCritic(initial_std=0.25).build(spaces.Box(-1, 1, (3,)), spaces.Box(-2, 2, (5,)))

    @jax.jit
    def draw():
        features = networks.features(jnp.zeros((2_000, 3)))
        return networks.sample(networks.init(KEY, features), (), features, KEY)[1]

    np.testing.assert_allclose(np.std(draw(), axis=0), 0.25, rtol=0.1)


def test_each_entry_of_a_dict_may_have_an_extractor_of_its_own():
    space = spaces.Dict({"near": spaces.Box(-1, 1, (3,)), "far": spaces.Box(-1, 1, (2,))})
    chosen = {"near": nn.Dense(4), "far": nn.Dense(6)}
    networks = ActorCritic(extractor=chosen).build(space, spaces.Discrete(2))
    observation = {"near": jnp.zeros((1, 3)), "far": jnp.zeros((1, 2))}
    params = jax.eval_shape(networks.init, KEY, networks.features(observation))
    assert params["actor"]["head"]["params"]["kernel"].shape == (10, 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"algorithm": DQN(), "storage": GAE()}, ["DQN", "GAE", "Replay"]),
        ({"algorithm": PPO(), "storage": Replay()}, ["PPO", "Replay", "GAE"]),
        ({"env": "Pendulum-v1", "algorithm": DQN()}, ["Box", "SAC"]),
        ({"env": "Pendulum-v1", "algorithm": PQN()}, ["Box", "SAC"]),
        ({"algorithm": PQN(), "storage": Replay()}, ["PQN", "Replay", "GAE"]),
        ({"algorithm": PQN(), "actor": MEMORY}, ["PQN", "ActorCritic", "QNetwork"]),
        ({"algorithm": TD3()}, ["deterministic", "Discrete", "DQN"]),
        ({"algorithm": DQN(), "actor": MEMORY}, ["DQN", "ActorCritic", "QNetwork"]),
        ({"algorithm": SAC(), "actor": MEMORY}, ["SAC", "ActorTwinQ"]),
        ({"algorithm": PPO(), "actor": QNetwork()}, ["PPO", "QNetworks", "ActorCritic"]),
        (
            {"env": "Pendulum-v1", "algorithm": TD3(), "actor": ActorTwinQ()},
            ["TD3", "stochastic", "SAC"],
        ),
        ({"algorithm": DQN(), "storage": HindsightReplay()}, ["compute_reward"]),
        ({"algorithm": PPO}, ["algorithm", "PPO()"]),
        ({"algorithm": PPO(), "actor": nn.Dense(3)}, ["actor", "Actor"]),
        ({"algorithm": PPO(), "storage": GAE}, ["storage", "GAE()"]),
        (
            {"algorithm": PPO(), "actor": ActorCritic(extractor={"picture": nn.Dense(3)})},
            ["picture", "entries"],
        ),
        (
            {"algorithm": PPO(), "actor": ActorCritic(shared=True, critic_extractor=nn.Dense(3))},
            ["shared=True", "critic_extractor"],
        ),
        ({"env": "BitFlipping-v0", "algorithm": PPO(normalize_observations=True)}, ["vectors"]),
    ],
    ids=lambda value: "" if isinstance(value, dict) else "-".join(value),
)
def test_incompatible_parts_are_refused_by_name(arguments, words):
    settings = {"env": "CartPole-v1", "num_envs": 4, "unroll_length": 4, "total_steps": 64}
    with pytest.raises(TrainingError) as caught:
        make_train(**{**settings, **arguments})
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("id", "actor", "expected"),
    [
        ("CartPole-v1", None, PPO()),
        ("Pendulum-v1", None, PPO.continuous(minibatches=2)),  # of 64 steps each
        ("Pendulum-v1", MEMORY, PPO.continuous(minibatches=4)),  # of one instance each
    ],
    ids=["discrete", "a Box", "a Box remembered"],
)
def test_training_without_algorithm_picks_one_for_its_actions(id, actor, expected):
    sizes = {"num_envs": 4, "unroll_length": 32, "total_steps": 1_280}
    train = make_train(id, actor=actor, **sizes)
    assert type(train.algorithm) is PPO and vars(train.algorithm) == vars(expected)


OFF_POLICY = {"learning_starts": 0, "batch_size": 8}


@pytest.mark.parametrize(
    ("algorithm", "id"),
    every_nth(
        3,
        [
            *((algorithm(), "CartPole-v1") for algorithm in (PPO, A2C, VPG)),
            *((algorithm(**OFF_POLICY), "Pendulum-v1") for algorithm in (SAC, TD3)),
            (DQN(**OFF_POLICY), "CartPole-v1"),
            (PQN(), "CartPole-v1"),
        ],
    ),
    ids=lambda part: type(part).__name__,
)
def test_update_accepts_a_donated_state_and_reports_metrics(algorithm, id):
    actor = dataclasses.replace(algorithm.default_actor(), hidden_sizes=(8,))
    train = make_train(id, algorithm, actor=actor, num_envs=4, unroll_length=4, total_steps=64)
    learner_state, metrics = jax.jit(train.update, donate_argnums=0)(jax.jit(train.init)(KEY))
    assert learner_state.updates == 1
    assert metrics["gradient_norm"] > 0
    rate = algorithm.learning_rate
    if isinstance(algorithm, PPO):  # which anneals, over 64 gradient steps
        rate *= 1 - 7.5 / 64
    if isinstance(algorithm, PQN):  # over 128
        rate *= 1 - 15.5 / 128
    np.testing.assert_allclose(metrics["learning_rate"], rate, rtol=1e-6)
    assert ("explained_variance" in metrics) == isinstance(algorithm, A2C | PPO | PQN | VPG)


def only_in_the_second(step):
    return jnp.where(step == 1, 0.1, 0.0)


@pytest.mark.parametrize("algorithm", [A2C, DQN, PPO, PQN, SAC, TD3, VPG])
def test_a_learning_rate_may_be_a_function_of_the_gradient_steps(algorithm):
    optimizer = algorithm(learning_rate=only_in_the_second).optimizer(num_updates=10)
    names = ("actor", "critic", *(("log_temperature",) if algorithm is SAC else ()))
    params = {name: jnp.ones(3) for name in names}
    state, moves = optimizer.init(params), []
    with jax.numpy_dtype_promotion("standard"):
        update = jax.jit(optimizer.update)
        for _ in range(3):
            changes, state = update(params, state, params)
            moves.append({bool(np.any(change)) for change in changes.values()})
    assert moves == [{False}, {True}, {False}]


def test_a_schedule_is_no_leaf_of_a_training():
    ppo = PPO(learning_rate=only_in_the_second, epochs=2, minibatches=1)
    train = make_train("CartPole-v1", ppo, num_envs=4, unroll_length=4, total_steps=64)
    state, metrics = jax.jit(lambda train: train.update(train.init(KEY)))(train)
    np.testing.assert_allclose(metrics["learning_rate"], 0.05)
    assert state.weights.gradient_steps == 2
