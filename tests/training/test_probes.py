"""Every algorithm against tasks whose values are known: the cheapest proof that it learns right."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.testing import PROBES, TruncationProbe
from jaxenvs.testing.probes import Probe
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
    PrioritizedReplay,
    QNetwork,
    Replay,
    VTrace,
    make_train,
)
from tests.ids import every_nth

GAMMA = 0.5  # what is learned soon is enough to tell right from wrong
CUES = jnp.array([[-1.0], [0.0], [1.0]])
SHOWN = {
    "ValueProbe": [0],
    "ObservationProbe": [-1, 1],
    "DiscountProbe": [0, 1],
    "TruncationProbe": [-1, 1],
    "PolicyProbe": [0],
    "PolicyObservationProbe": [-1, 1],
}
# What stands before the cue 1 where that is the second one of an episode; 1 where it is not.
FIRST_CUES = jnp.array(
    [{"Discount": 0.0, "Truncation": -1.0}.get(p.__name__[:-5], 1.0) for p in PROBES]
)


class AnyProbe(Probe):
    """One of the probes, by number: all of them are learned in one program."""

    which: int = 0

    def _all(self, call):
        index = jnp.asarray(self.which, jnp.int32)
        return jax.lax.switch(index, [lambda p=p: call(p(self.continuous)) for p in PROBES])

    def reset(self, key):
        return self._all(lambda probe: probe.reset(key))

    def step(self, state, action, key):
        return self._all(lambda probe: probe.step(state, action, key))

    def optimal_value(self, observation, gamma):
        return self._all(lambda probe: probe.optimal_value(observation, gamma))

    def optimal_push(self, observation):
        return self._all(lambda probe: probe.optimal_push(observation))


SMALL = ActorCritic(hidden_sizes=(16,))
FAST = {"gamma": GAMMA, "learning_rate": 0.01}
UNBIASED = {**FAST, "entropy_coefficient": 0.0}
REPLAYED = {**FAST, "batch_size": 32, "replay_ratio": 1 / 8, "learning_starts": 64}

CASES = {
    "PPO": (PPO(**UNBIASED, anneal=False), SMALL, None),
    "PPO with V-trace": (PPO(**UNBIASED, anneal=False), SMALL, VTrace()),
    "recurrent PPO": (
        PPO(**UNBIASED, anneal=False),
        ActorCritic(hidden_sizes=(16,), memory=nn.GRUCell(16), shared=True),
        None,
    ),
    "A2C": (A2C(**UNBIASED), SMALL, None),
    "VPG": (VPG(**FAST), SMALL, None),
    "DQN": (DQN(**REPLAYED, target_update_every=20), QNetwork(hidden_sizes=(16,)), Replay(512)),
    "dueling, prioritized, n-step DQN": (
        DQN(**REPLAYED, target_update_every=20),
        QNetwork(hidden_sizes=(16,), dueling=True),
        PrioritizedReplay(512, n_step=2),
    ),
    "discrete SAC": (
        SAC(**REPLAYED, tau=0.05, initial_temperature=1e-3, learn_temperature=False),
        ActorTwinQ(hidden_sizes=(16,)),
        Replay(512),
    ),
    "SAC": (
        SAC(**REPLAYED, tau=0.05, initial_temperature=1e-3, learn_temperature=False),
        ActorTwinQ(hidden_sizes=(16,)),
        Replay(512),
    ),
    "TD3": (
        TD3(**REPLAYED, tau=0.05, target_noise=0.0),
        ActorTwinQ(policy="deterministic", hidden_sizes=(16,)),
        Replay(512),
    ),
    "PQN": (
        PQN(**FAST, anneal=False, exploration_steps=4_000, minibatches=4),
        QNetwork(hidden_sizes=(16,), layer_norm=True),
        None,
    ),
}
CONTINUOUS = ("SAC", "TD3")
OFF_POLICY = (DQN, SAC, TD3)


def judged(train, params, carry, cues):
    """What the learner holds of cues, and does there: values, actions, and its memory after."""
    networks = train.networks
    features = networks.features(cues)
    after, action = networks.mode(params, carry, features)
    if not isinstance(train.algorithm, OFF_POLICY):
        values = networks.value_after(params, carry, features)
    elif isinstance(train.algorithm, DQN):
        values = networks.q(params, features).max(-1)
    elif networks.is_discrete:
        values = networks.q(params, features).min(0)[jnp.arange(len(cues)), action]
    else:
        values = networks.q(params, features, action).min(0)
    return values, networks.to_action(action), after


@pytest.mark.parametrize("name", every_nth(5, CASES))
def test_values_and_pushes_of_all_probes_are_learned(name):
    algorithm, actor, storage = CASES[name]
    unroll_length = 4 if isinstance(algorithm, OFF_POLICY) else 8

    def learn(which, key):
        env = AnyProbe(continuous=name in CONTINUOUS, which=which)
        train = make_train(
            env,
            algorithm,
            actor=actor,
            storage=storage,
            num_envs=8,
            unroll_length=unroll_length,
            total_steps=8_000,
        )
        params = train(key).learner_state.params
        carry = train.networks.initial_carry(len(CUES))
        # Who remembers has seen the cue of a second step only after that of the first.
        *_, after = judged(train, params, carry, jnp.full_like(CUES, FIRST_CUES[which]))
        follows = jnp.arange(len(CUES)) == jnp.where(FIRST_CUES[which] < 1, 2, -1)
        carry = jaxenvs.struct.select(follows, after, carry)
        values, action, _ = judged(train, params, carry, CUES)
        return (
            values,
            env.push(action),
            env.optimal_value(CUES, GAMMA),
            env.optimal_push(CUES),
        )

    number = len(PROBES)
    keys = jax.random.split(jax.random.key(0), number)
    values, pushes, best_values, best_pushes = jax.jit(jax.vmap(learn))(jnp.arange(number), keys)
    for i, probe in enumerate(PROBES):
        if "recurrent" in name and probe is TruncationProbe:
            continue  # what lies behind the cut is a third step to a memory, which never saw one
        seen = np.isin(CUES[:, 0], SHOWN[probe.__name__])
        np.testing.assert_allclose(
            values[i][seen], best_values[i][seen], atol=0.1, err_msg=probe.__name__
        )
        matters = seen & (best_pushes[i] != 0)
        np.testing.assert_allclose(
            pushes[i][matters], best_pushes[i][matters], atol=0.15, err_msg=probe.__name__
        )
