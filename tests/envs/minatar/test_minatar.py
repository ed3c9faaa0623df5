"""Ids, actions, pictures, and chance; the levels of difficulty, and the end of Freeway.

tests/parity/test_certificates.py compares the other rules with MinAtar's.
"""

import gymnasium
import jax
import jax.numpy as jnp
import matplotlib
import minatar.gym
import numpy as np
import pytest
from gymnasium.envs import registration

import jaxenvs
from jaxenvs.envs.minatar import Asterix, Breakout, Freeway, SpaceInvaders
from jaxenvs.envs.minatar._minatar import ACTIONS, palette
from jaxenvs.errors import ParameterError

KEY = jax.random.key(0)
IDS = sorted(id for id in jaxenvs.registry if id.startswith("MinAtar/"))
GAMES = sorted({id[:-3] for id in IDS})

reset = jax.jit(lambda env: env.reset(KEY))
step = jax.jit(lambda env, state, action: env.step(state, action, KEY))


def play(env, state, letters):
    """Returns the states and timesteps of a sequence of actions."""
    states, timesteps = [], []
    for letter in letters:
        state, timestep = step(env, state, jnp.int32(env.actions.index(letter)))
        states.append(jax.device_get(state))
        timesteps.append(jax.device_get(timestep))
    return states, timesteps


def start(env, **changes):
    """Returns a state after reset, with some fields changed."""
    state = reset(env)[0]
    return state.replace(**{name: jnp.asarray(x, state[name].dtype) for name, x in changes.items()})


# All games.


@pytest.mark.filterwarnings("ignore:.*out of date")
def test_ids_and_spaces_are_those_of_minatar(monkeypatch):
    monkeypatch.setattr(registration, "registry", {})
    minatar.gym.register_envs()
    assert set(IDS) == {id for id in registration.registry if id.startswith("MinAtar/")}
    for id in IDS:
        env, theirs = jaxenvs.make(id), gymnasium.make(id).unwrapped
        assert env.action_space.n == theirs.action_space.n
        assert env.observation_space.shape == tuple(theirs.observation_space.shape)
        assert env.observation_space.dtype == theirs.observation_space.dtype
        letters = [theirs.game.env.action_map[i] for i in theirs.action_set]
        assert list(env.unwrapped.actions) == letters


@pytest.mark.parametrize("game", GAMES)
def test_both_action_sets_mean_the_same(game):
    full, minimal = (
        jaxenvs.make(f"{game}-v{version}", sticky_action_prob=0.0).unwrapped for version in (0, 1)
    )
    state = reset(full)[0]
    for letter in minimal.actions:
        ours, timestep = step(full, state, jnp.int32(ACTIONS.index(letter)))
        other, same = step(minimal, state, jnp.int32(minimal.actions.index(letter)))
        np.testing.assert_array_equal(timestep.observation, same.observation)
        assert ACTIONS[int(ours.last_action)] == minimal.actions[int(other.last_action)] == letter


@pytest.mark.parametrize("game", GAMES)
def test_sticky_actions_repeat_the_last_or_none_at_first(game):
    env = jaxenvs.make(f"{game}-v0").unwrapped
    sticky = env.replace(sticky_action_prob=1.0)
    state = reset(env)[0]
    assert ACTIONS[int(state.last_action)] == "n"
    for last in range(len(ACTIONS)):
        before = state.replace(last_action=jnp.int32(last))
        repeated = step(sticky, before, jnp.int32((last + 1) % len(ACTIONS)))
        chosen = step(env.replace(sticky_action_prob=0.0), before, jnp.int32(last))
        jax.tree.map(np.testing.assert_array_equal, repeated, chosen)


@pytest.mark.parametrize("game", GAMES)
def test_the_picture_has_the_color_of_the_last_channel(game):
    env = jaxenvs.make(f"{game}-v0").unwrapped
    state, timestep = reset(env)
    number = len(env.channels)
    shades = np.linspace(0, 1, number + 2)[1:-1]  # as seaborn chooses colors of a palette
    colors = matplotlib.colormaps["cubehelix"](shades)[:, :3]
    # Matplotlib rounds shades to one of 256 colors, so the palette differs by a few units.
    assert np.abs(palette(number)[1:] - 255 * colors).max() <= 5
    assert palette(number)[0].tolist() == [0, 0, 0]
    last = (np.asarray(timestep.observation) * np.arange(1, number + 1)).max(axis=-1)
    image = np.asarray(jax.jit(env.render)(state))
    assert image.shape == (320, 320, 3)
    for corner in (0, 31):
        np.testing.assert_array_equal(image[corner::32, corner::32], palette(number)[last])


def test_observations_are_bool_or_float32():
    env, other = Breakout(), Breakout(dtype="float32")
    ours, theirs = reset(env)[1].observation, reset(other)[1].observation
    assert (ours.dtype, theirs.dtype) == (jnp.bool_, jnp.float32)
    np.testing.assert_array_equal(ours, theirs)
    assert other.observation_space.dtype == jnp.float32
    with pytest.raises(ParameterError, match="int8"):
        Breakout(dtype="int8")


# Single games.


@pytest.mark.parametrize(
    ("ramping", "before", "after"), [(True, 12, 11), (True, 6, 6), (False, 12, 12)]
)
def test_a_new_wave_is_faster(ramping, before, after):
    env = SpaceInvaders(sticky_action_prob=0.0, difficulty_ramping=ramping)
    alien, bullet = [0, 1, *[0] * 8], [0, 0, 1, *[0] * 7]  # in the first column
    state = start(env, aliens=alien, cannon_bullets=bullet, move_interval=before)
    states, timesteps = play(env, state, "n")
    assert timesteps[0].reward == 1 and states[0].move_interval == after
    assert states[0].aliens.tolist() == reset(env)[0].aliens.tolist()


def test_kinds_and_rows_of_objects_are_independent():
    env = Asterix()
    draws = jax.vmap(lambda key: env.draw(start(env), key))(jax.random.split(KEY, 8_000))
    place = np.floor(8 * np.asarray(draws.place)).astype(int)
    kind = (place * 2 + np.asarray(draws.from_left)) * 2 + np.asarray(draws.is_gold)
    expected = np.tile([2 / 3, 1 / 3], 16) * 8_000 / 16
    chi_square = ((np.bincount(kind, minlength=32) - expected) ** 2 / expected).sum()
    assert chi_square < 70  # 31 degrees of freedom


def test_the_game_becomes_faster_every_102_steps():
    for ramping, indices in ((True, [0, 1, 1, 2, 9, 9]), (False, [0] * 6)):
        env = Asterix(sticky_action_prob=0.0, difficulty_ramping=ramping)

        @jax.jit
        def run(state, env=env):
            keys = jax.random.split(KEY, 1_100)
            return jax.lax.scan(
                lambda state, key: (env.step(state, jnp.int32(0), key)[0],) * 2, state, keys
            )[1]

        states = jax.device_get(run(start(env)))
        assert states.ramp_index[[100, 101, 202, 203, 102 * 9, 1_099]].tolist() == indices
        if ramping:
            assert states.spawn_timer[-10:].tolist() == states.move_timer[-10:].tolist() == [0] * 10


def test_freeway_terminates_after_2501_steps():
    env = Freeway(sticky_action_prob=0.0)
    assert start(env).steps_left == 2_500
    assert jaxenvs.make("MinAtar/Freeway-v0").time_limit is None
    _, timesteps = play(env, start(env, steps_left=1), "nn")  # steps 2,500 and 2,501
    assert [bool(timestep.terminated) for timestep in timesteps] == [False, True]
    assert not timesteps[1].truncated
