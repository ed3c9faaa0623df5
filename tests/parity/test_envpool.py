"""Toy text and bsuite's catch, compared with EnvPool's C++ versions: the second reference.

EnvPool's observations of these tasks say which state they are in, so every one of its transitions
can be compared with ours from the same state.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxenvs
from benchmarks import certify
from jaxenvs.envs.bsuite.catch import CatchState
from jaxenvs.envs.toy_text import BlackjackState

pytestmark = pytest.mark.interop

NUM_ENVS, STEPS = 200, 300


def play(id):
    """Plays EnvPool's environment at random.

    Returns the first observations of episodes, and the transitions: whether they are the first of
    an episode, observations, actions, next observations, rewards, and whether they terminate.
    """
    envpool = pytest.importorskip("envpool")
    envs, rng = envpool.make_gymnasium(id, num_envs=NUM_ENVS, seed=1), np.random.default_rng(0)
    observation, _ = envs.reset()
    starts, rows = [observation], []
    is_first, done = np.ones(NUM_ENVS, bool), np.zeros(NUM_ENVS, bool)
    for _ in range(STEPS):
        action = rng.integers(0, envs.action_space.n, NUM_ENVS, np.int32)
        following, reward, terminated, truncated, _ = envs.step(action)
        starts.append(following[done])  # this step has reset these instances
        row = (is_first, observation, action, following, reward, terminated)
        rows.append([x[~done] for x in row])
        observation, is_first, done = following, done, terminated | truncated
    envs.close()
    columns = [np.concatenate(column) for column in zip(*rows, strict=True)]
    assert len(columns[0]) > 10_000 and len(starts) > 100
    return np.concatenate(starts), columns


def our_starts(env, count):
    keys = jax.random.split(jax.random.key(0), count)
    return jax.tree.map(np.asarray, jax.vmap(env.reset)(keys)[1].observation)


def assert_same_distribution(*pairs):
    assert certify.same_distribution(list(pairs))["p_value"] >= certify.SIGNIFICANCE


@pytest.mark.parametrize(
    "id",
    [
        "FrozenLake-v1",
        "FrozenLake8x8-v1",
        "Taxi-v3",
        "CliffWalking-v1",
        "CliffWalkingSlippery-v1",
        "NChain-v0",
    ],
)
def test_transitions_are_those_of_the_table(id):
    env = jaxenvs.make(id).unwrapped
    table = jax.tree.map(np.asarray, env.table)
    starts, (_, s, action, following, reward, terminated) = play(id)
    assert_same_distribution((our_starts(env, len(starts)), starts))

    keys = np.stack([table.next_state, table.reward, table.terminated], axis=-1)
    first = (keys[..., :, None, :] == keys[..., None, :, :]).all(-1).argmax(-1)  # merges equal ones
    seen = np.stack([following, reward, terminated], axis=-1).astype(np.float32)
    matches = np.isclose(keys[s, action], seen[:, None], atol=1e-6).all(-1)
    assert (matches & (table.probability[s, action] > 0)).any(-1).all()

    observed, expected = np.zeros((2, *table.probability.shape))
    np.add.at(observed, (s, action, matches.argmax(-1)), 1)
    visits = observed.sum(-1, keepdims=True)
    rows, columns, _ = np.indices(first.shape)
    np.add.at(expected, (rows, columns, first), visits * table.probability)
    often = (visits[..., 0] >= 50) & ((expected > 0).sum(-1) > 1)
    observed, expected = observed[often], expected[often]
    used = expected > 0
    freedom = used.sum() - len(used)
    statistic = ((observed - expected) ** 2)[used] / expected[used]
    assert freedom == 0 or stats.chi2.sf(statistic.sum(), freedom) >= certify.SIGNIFICANCE
    assert (freedom > 0) == (env.num_outcomes > 1)


def test_first_steps_of_blackjack_have_the_same_distribution():
    """EnvPool's third number is 1 if there is any ace, so it hides what later hands are worth."""
    env = jaxenvs.make("Blackjack-v1").unwrapped
    starts, (is_first, *columns) = play("Blackjack-v1")
    assert_same_distribution((our_starts(env, len(starts)), tuple(starts.T)))

    hand, action, following, reward, terminated = (column[is_first] for column in columns)
    assert len(hand) > 10_000
    state = BlackjackState(
        total=jnp.asarray(hand[:, 0] - 10 * hand[:, 2]),
        has_ace=hand[:, 2] == 1,
        is_first=np.ones(len(hand), bool),
        dealer=jnp.asarray(hand[:, 1]),
    )
    keys = jax.random.split(jax.random.key(0), len(hand))
    state, ours = jax.tree.map(np.asarray, jax.jit(jax.vmap(env.step))(state, action, keys))
    score, dealer, _ = ours.observation
    # Twice the reward, because a natural may be worth 1.5.
    ours = np.stack([score, dealer, state.has_ace, 2 * ours.reward, ours.terminated], axis=1)
    theirs = np.column_stack([following, 2 * reward, terminated])
    groups = np.unique(np.column_stack([hand, action]), axis=0, return_inverse=True)[1].reshape(-1)
    assert groups.max() > 400
    ours, theirs = ours.astype(int), theirs.astype(int)
    assert_same_distribution(
        *((ours[groups == i], theirs[groups == i]) for i in range(groups.max() + 1))
    )


def test_steps_of_catch_are_the_same():
    env = jaxenvs.make("bsuite/catch-v0").unwrapped
    starts, (_, board, action, following, reward, terminated) = play("Catch-v0")
    columns = our_starts(env, len(starts))[:, 0].argmax(-1)
    assert_same_distribution((columns, starts[:, 0].argmax(-1)))
    cell = board[:, :-1].reshape(len(board), -1).argmax(-1)
    state = CatchState(
        ball_row=jnp.asarray(cell // env.columns, jnp.int32),
        ball_column=jnp.asarray(cell % env.columns, jnp.int32),
        paddle_column=jnp.asarray(board[:, -1].argmax(-1), jnp.int32),
    )
    keys = jax.random.split(jax.random.key(0), len(board))
    _, timestep = jax.jit(jax.vmap(env.step))(state, action, keys)
    np.testing.assert_array_equal(timestep.observation, following)
    np.testing.assert_array_equal(timestep.reward, reward)
    np.testing.assert_array_equal(timestep.terminated, terminated)
