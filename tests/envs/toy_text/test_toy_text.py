import jax
import jax.numpy as jnp
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
    TaxiState,
    generate_random_map,
    taxi,
)
from jaxenvs.errors import ParameterError
from tests.examples.test_examples import load

KEY = jax.random.key(0)


def value_iteration(env, sweeps):
    """Returns the values of all states without discount, float32[num_states]."""
    return load("value_iteration").action_values(env.table, 1.0, sweeps).max(axis=-1)


def test_optimal_values_are_those_in_gymnasiums_registry():
    assert value_iteration(FrozenLake(), 2_000)[0] == pytest.approx(14 / 17, abs=1e-3)
    assert value_iteration(CliffWalking(), 50)[36] == -13
    values = value_iteration(Taxi(), 50)
    starts = jax.vmap(lambda key: Taxi().reset(key)[0].s)(jax.random.split(KEY, 4_000))
    assert values[starts].mean() == pytest.approx(7.93, abs=0.2)  # 20 minus 13 steps on average


def test_an_own_map_is_a_leaf_that_can_differ_between_instances():
    maps = jnp.stack([generate_random_map(key, size=4) for key in jax.random.split(KEY, 3)])
    env = jaxenvs.vectorize(FrozenLake(desc=maps, is_slippery=False), 3, batched=("desc",))
    state, timestep = env.reset(KEY)
    assert timestep.observation.tolist() == [0, 0, 0]
    _, timestep = env.step(state, jnp.full(3, 2, jnp.int32), KEY)
    letters = maps[:, 0, 1]
    np.testing.assert_array_equal(timestep.terminated, letters == ord("H"))


def test_random_maps_have_a_path():
    maps = jax.vmap(lambda key: generate_random_map(key, 5, 0.5))(jax.random.split(KEY, 200))
    for board in np.asarray(maps):
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


def test_a_fall_off_the_cliff_leads_back_to_the_start():
    state, timestep = CliffWalking().step(TabularState(s=jnp.int32(30)), jnp.int32(2), KEY)
    assert (state.s, timestep.reward, timestep.terminated) == (36, -100, False)
    state, timestep = CliffWalking().step(TabularState(s=jnp.int32(35)), jnp.int32(2), KEY)
    assert (state.s, timestep.reward, timestep.terminated) == (47, -1, True)


def test_taxi_drives_picks_up_and_drops_off():
    def step(row, column, passenger, destination, action):
        s = jnp.int32(taxi.encode(row, column, passenger, destination))
        state, timestep = Taxi().step(
            TaxiState(s=s, is_fickle=jnp.bool_(False)), jnp.int32(action), KEY
        )
        where = tuple(int(part) for part in taxi.decode(state.s))
        return where, float(timestep.reward), bool(timestep.terminated)

    assert step(0, 1, 0, 1, 2) == ((0, 1, 0, 1), -1, False)  # a wall
    assert step(0, 0, 0, 1, 4) == ((0, 0, 4, 1), -1, False)
    assert step(0, 1, 0, 1, 4) == ((0, 1, 0, 1), -10, False)
    assert step(0, 4, 4, 1, 5) == ((0, 4, 1, 1), 20, True)
    assert step(0, 0, 4, 1, 5) == ((0, 0, 0, 1), -1, False)  # at another landmark
    assert step(2, 2, 4, 1, 5) == ((2, 2, 4, 1), -10, False)


def hand(total, has_ace=False, is_first=True, dealer=5):
    return BlackjackState(
        total=jnp.int32(total),
        has_ace=jnp.bool_(has_ace),
        is_first=jnp.bool_(is_first),
        dealer=jnp.int32(dealer),
    )


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
    draws = BlackjackDraws(card=jnp.int32(1), dealer_score=jnp.int32(dealer_score))
    _, timestep = Blackjack(**options).apply(state, jnp.int32(0), draws)
    assert timestep.reward == reward and timestep.terminated


def test_an_ace_counts_as_eleven_until_the_sum_exceeds_21():
    draws = BlackjackDraws(card=jnp.int32(9), dealer_score=jnp.int32(0))
    state, timestep = Blackjack().apply(hand(6, has_ace=True), jnp.int32(1), draws)
    assert timestep.observation == (15, 5, 0) and not timestep.terminated
    _, timestep = Blackjack().apply(state, jnp.int32(1), draws)
    assert timestep.reward == -1 and timestep.terminated


def test_chain_rewards():
    env = NChain(slip=0.0)
    state, timestep = env.step(TabularState(s=jnp.int32(4)), jnp.int32(0), KEY)
    assert (state.s, timestep.reward) == (4, 10)
    state, timestep = env.step(TabularState(s=jnp.int32(3)), jnp.int32(1), KEY)
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
