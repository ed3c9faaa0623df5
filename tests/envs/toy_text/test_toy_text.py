import jax
import numpy as np
import pytest

import jaxenvs
from jaxenvs.envs.toy_text import (
    Blackjack,
    BlackjackDraws,
    BlackjackState,
    CliffWalking,
    FrozenLake,
    NChain,
    TabularState,
    Taxi,
    generate_random_map,
)
from jaxenvs.errors import ParameterError
from tests.examples.test_examples import load

KEY = jax.random.key(0)


def value_iteration(env, sweeps):
    """Returns the values of all states without discount, float32[num_states]."""
    action_values = load("value_iteration").action_values
    return jax.jit(lambda env: action_values(env.table, 1.0, sweeps).max(axis=-1))(env)


def test_optimal_values_are_those_in_gymnasiums_registry():
    assert value_iteration(FrozenLake(), 2_000)[0] == pytest.approx(14 / 17, abs=1e-3)
    assert value_iteration(CliffWalking(), 50)[36] == -13
    values = np.asarray(value_iteration(Taxi(), 50))
    starts = jax.jit(jax.vmap(lambda key: Taxi().reset(key)[0].s))(jax.random.split(KEY, 4_000))
    assert values[starts].mean() == pytest.approx(7.93, abs=0.2)  # 20 minus 13 steps on average


def test_an_own_map_is_a_leaf_that_can_differ_between_instances():
    make_maps = jax.jit(jax.vmap(lambda key: generate_random_map(key, size=4)))
    maps = np.asarray(make_maps(jax.random.split(KEY, 3)))
    env = jaxenvs.vectorize(FrozenLake(desc=maps, is_slippery=False), 3, batched=("desc",))
    state, timestep = jax.jit(env.reset)(KEY)
    assert timestep.observation.tolist() == [0, 0, 0]
    _, timestep = jax.jit(env.step)(state, np.full(3, 2, np.int32), KEY)
    letters = maps[:, 0, 1]
    np.testing.assert_array_equal(timestep.terminated, letters == ord("H"))


def test_random_maps_have_a_path():
    make_maps = jax.jit(jax.vmap(lambda key: generate_random_map(key, 5, 0.5)))
    maps = np.asarray(make_maps(jax.random.split(KEY, 200)))
    for board in maps:
        reached, found = {(0, 0)}, {(0, 0)}
        while found:
            near = {(r + i, c + j) for r, c in found for i, j in ((0, 1), (1, 0), (0, -1), (-1, 0))}
            found = {
                (r, c)
                for r, c in near - reached
                if 0 <= r < 5 and 0 <= c < 5 and board[r, c] != ord("H")
            }
            reached |= found
        assert (4, 4) in reached
    assert bytes(maps[0, 0, :1]) == b"S" and bytes(maps[0, -1, -1:]) == b"G"
    # Rejection makes frozen cells likelier than one half.
    assert 0.5 < (maps == ord("F")).mean() < 0.9


@pytest.mark.parametrize("desc", [["SF", "F"], ["SX", "FG"], ["FF", "FG"], "SFFG"])
def test_wrong_maps_are_rejected(desc):
    with pytest.raises(ParameterError, match="FrozenLake got"):
        FrozenLake(desc=desc)
    with pytest.raises(ParameterError, match='expected "4x4" or "8x8"'):
        FrozenLake(map_name="5x5")


def hand(total, has_ace=False, is_first=True, dealer=5):
    return BlackjackState(
        total=np.int32(total),
        has_ace=np.bool_(has_ace),
        is_first=np.bool_(is_first),
        dealer=np.int32(dealer),
    )


@jax.jit
def compiled(env, state, action, draws):
    return env.apply(state, action, draws)


def apply(env, state, action, card, dealer_score):
    draws = BlackjackDraws(card=np.int32(card), dealer_score=np.int32(dealer_score))
    return jax.device_get(compiled(env, state, np.int32(action), draws))


@pytest.mark.parametrize(
    ("options", "state", "dealer_score", "reward"),
    [
        ({}, hand(20), 19, 1.0),
        ({}, hand(17), 17, 0.0),
        ({}, hand(12), 0, 1.0),
        ({"sab": True}, hand(11, has_ace=True), 21, 1.0),
        ({"sab": True}, hand(11, has_ace=True), 22, 0.0),
        ({"natural": True}, hand(11, has_ace=True), 20, 1.5),
        ({"natural": True}, hand(11, has_ace=True, is_first=False), 20, 1.0),
        ({"natural": True, "sab": True}, hand(11, has_ace=True), 20, 1.0),
    ],
)
def test_blackjack_pays_by_the_rules(options, state, dealer_score, reward):
    _, timestep = apply(Blackjack(**options), state, 0, 1, dealer_score)
    assert timestep.reward == reward and timestep.terminated


def test_an_ace_counts_as_eleven_until_the_sum_exceeds_21():
    state, timestep = apply(Blackjack(), hand(6, has_ace=True), 1, 9, 0)
    assert timestep.observation == (15, 5, 0) and not timestep.terminated
    _, timestep = apply(Blackjack(), state, 1, 9, 0)
    assert timestep.reward == -1 and timestep.terminated


def test_chain_rewards():
    step = jax.jit(NChain(slip=0.0).step)
    state, timestep = step(TabularState(s=np.int32(4)), np.int32(0), KEY)
    assert (state.s, timestep.reward) == (4, 10)
    state, timestep = step(TabularState(s=np.int32(3)), np.int32(1), KEY)
    assert (state.s, timestep.reward) == (0, 2)
    with pytest.raises(ParameterError, match="at least 2"):
        NChain(n=1)


@pytest.mark.interop
def test_chain_returns_are_those_of_envpool():
    envpool = pytest.importorskip("envpool")
    envs = envpool.make_gymnasium("NChain-v0", num_envs=300, seed=1)
    envs.reset()
    rng, theirs = np.random.default_rng(0), np.zeros(300)
    for _ in range(1_000):
        theirs += envs.step(rng.integers(0, 2, 300))[1]
    batch = jaxenvs.make_vec("NChain-v0", 300, autoreset_mode="disabled")
    ours = np.zeros(300)
    state, _ = batch.reset(KEY)
    step = jax.jit(batch.step)
    for key in jax.random.split(KEY, 1_000):
        state, timestep = step(state, rng.integers(0, 2, 300, dtype=np.int32), key)
        ours += np.asarray(timestep.reward)
    error = np.hypot(ours.std(), theirs.std()) / 300**0.5
    assert abs(ours.mean() - theirs.mean()) < 4 * error


# The faces have the attributes of Gymnasium's classes.


def test_the_table_of_the_face_is_gymnasiums():
    gymnasium = pytest.importorskip("gymnasium")
    for id, options in (
        ("Taxi-v4", {"is_rainy": True}),
        ("FrozenLake-v1", {}),
        ("CliffWalking-v1", {"is_slippery": True}),
    ):
        ours = jaxenvs.make_gym(id, **options).unwrapped.P
        theirs = gymnasium.make(id, **options).unwrapped.P
        assert ours.keys() == theirs.keys()
        for s, actions in ours.items():
            for action, entries in actions.items():
                for entry, expected in zip(entries, theirs[s][action], strict=True):
                    assert entry == pytest.approx(tuple(map(float, expected)), abs=1e-6)


def test_the_state_of_a_face_can_be_read_and_set():
    env = jaxenvs.make_gym("Taxi-v4", fickle_passenger=True, fickle_probability=1.0).unwrapped
    observation, _ = env.reset(seed=0)
    assert env.s == observation and env.fickle_step
    env.s = env.encode(0, 0, 0, 1)
    assert env.locs[0] == (0, 0)
    observation, reward, _, _, info = env.step(4)
    assert reward == -1 and env.decode(observation) == (0, 0, 4, 1)
    assert info["action_mask"].tolist() == env.action_mask(observation).tolist()
    observation, *_ = env.step(0)
    assert env.decode(observation)[3] != 1 and not env.fickle_step
    with pytest.raises(ParameterError, match="from 0 to 499"):
        env.s = 500
