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
from jaxenvs.envs.minatar.asterix import AsterixDraws
from jaxenvs.envs.minatar.freeway import FreewayDraws
from jaxenvs.errors import ParameterError

KEY = jax.random.key(0)
IDS = sorted(id for id in jaxenvs.registry if id.startswith("MinAtar/"))
GAMES = sorted({id[:-3] for id in IDS})

reset = jax.jit(lambda env: env.reset(KEY))
step = jax.jit(lambda env, state, action: env.step(state, action, KEY))
apply = jax.jit(lambda env, state, action, draws: env.apply(state, action, draws))


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


def nibbles(*numbers):
    return sum(number << 4 * i for i, number in enumerate(numbers))


def rows(**words):
    """Returns a map of Space Invaders with some rows, such as r3=0b10."""
    return [words.get(f"r{i}", 0) for i in range(10)]


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


# Breakout.

BREAKOUT = Breakout(sticky_action_prob=0.0)


def test_the_ball_breaks_one_brick_before_it_leaves_the_bricks():
    state = start(BREAKOUT, ball_row=4, ball_column=4, moves_down=False, moves_right=True)
    states, timesteps = play(BREAKOUT, state, "n")
    assert timesteps[0].reward == 1 and states[0].bricks == 2**30 - 1 - 2**25
    assert (states[0].ball_row, states[0].ball_column, states[0].moves_down) == (4, 5, True)
    state = start(BREAKOUT, ball_row=4, ball_column=4, moves_down=False, strike=True)
    states, timesteps = play(BREAKOUT, state, "n")
    assert timesteps[0].reward == 0 and states[0].bricks == 2**30 - 1 and states[0].ball_row == 3


@pytest.mark.parametrize(
    ("paddle", "moves_right", "over"), [(4, True, False), (5, False, False), (6, True, True)]
)
def test_the_paddle_reflects_the_ball(paddle, moves_right, over):
    state = start(BREAKOUT, paddle=paddle, ball_row=8, ball_column=4, moves_right=True)
    states, timesteps = play(BREAKOUT, state, "n")
    assert timesteps[0].terminated == over
    if not over:
        assert not states[0].moves_down and states[0].moves_right == moves_right


def test_new_bricks_appear_when_the_ball_comes_down():
    states, _ = play(BREAKOUT, start(BREAKOUT, bricks=0, ball_row=7, ball_column=2), "nn")
    assert [state.bricks for state in states] == [0, 2**30 - 1]


# Space Invaders.

INVADERS = SpaceInvaders(sticky_action_prob=0.0)


def test_the_cannon_shoots_every_five_steps():
    states, _ = play(INVADERS, start(INVADERS, cannon=0), "ffffff")
    bullets = [np.flatnonzero(state.cannon_bullets).tolist() for state in states]
    assert bullets == [[8], [7], [6], [5], [4], [3, 8]]
    assert states[0].cannon_bullets[8] == 1 << 0


def test_the_aliens_turn_at_an_edge():
    state = start(INVADERS, aliens=rows(r2=0b1001), move_timer=0)
    states, _ = play(INVADERS, state, "nnn")
    assert [state.aliens.tolist() for state in states] == [rows(r3=0b1001)] * 2 + [rows(r3=0b10010)]
    assert states[0].moves_right and states[0].move_timer == 1  # as many steps as aliens


def test_aliens_in_the_bottom_row_end_the_game():
    turning = start(INVADERS, aliens=rows(r9=0b1), move_timer=0)
    assert play(INVADERS, turning, "n")[1][0].terminated
    beside = start(INVADERS, aliens=rows(r9=0b1000000), move_timer=1)
    _, timesteps = play(INVADERS, beside, "nn")
    assert [bool(timestep.terminated) for timestep in timesteps] == [False, True]


def test_the_nearest_alien_shoots():
    aliens = rows(r1=0b0010001000, r4=0b0000001001)  # columns 3 and 7, and 0 and 3
    state = start(INVADERS, aliens=aliens, alien_shot_timer=0)
    states, _ = play(INVADERS, state, "n")
    assert states[0].alien_bullets.tolist() == rows(r4=0b1000)
    states, _ = play(INVADERS, state, "r")
    assert states[0].alien_bullets.tolist() == rows(r1=0b10000000)


@pytest.mark.parametrize(
    ("ramping", "before", "after"), [(True, 12, 11), (True, 6, 6), (False, 12, 12)]
)
def test_a_new_wave_is_faster(ramping, before, after):
    env = INVADERS.replace(difficulty_ramping=ramping)
    state = start(env, aliens=rows(r1=0b1), cannon_bullets=rows(r2=0b1), move_interval=before)
    states, timesteps = play(env, state, "n")
    assert timesteps[0].reward == 1 and states[0].move_interval == after
    assert states[0].aliens.tolist() == reset(env)[0].aliens.tolist()


# Asterix.

ASTERIX = Asterix(sticky_action_prob=0.0)


def arrive(state, place, from_left=True, is_gold=True):
    draws = AsterixDraws(
        sticks=jnp.bool_(False),
        from_left=jnp.bool_(from_left),
        is_gold=jnp.bool_(is_gold),
        place=jnp.float32(place),
    )
    return jax.device_get(apply(ASTERIX, state, jnp.int32(0), draws)[0])


def test_an_object_arrives_in_a_free_row_if_there_is_one():
    columns = nibbles(2, 0, 2, 2, 0, 2, 2, 0)
    state = start(ASTERIX, columns=columns, spawn_timer=0, player_row=8)
    for place, row in ((0.0, 1), (0.34, 4), (0.66, 4), (0.999, 7)):
        after = arrive(state, place)
        assert after.columns - columns == 1 << 4 * row
        assert after.moves_right == after.is_gold == 1 << 4 * row
        after = arrive(state, place, from_left=False, is_gold=False)
        assert after.columns - columns == 10 << 4 * row
        assert after.moves_right == after.is_gold == 0
    full = start(ASTERIX, columns=nibbles(*[2] * 8), spawn_timer=0, player_row=8)
    assert arrive(full, 0.5).columns == full.columns
    assert arrive(full, 0.5).spawn_timer == 9


def test_kinds_and_rows_of_objects_are_independent():
    draws = jax.vmap(lambda key: ASTERIX.draw(start(ASTERIX), key))(jax.random.split(KEY, 8_000))
    place = np.floor(8 * np.asarray(draws.place)).astype(int)
    kind = (place * 2 + np.asarray(draws.from_left)) * 2 + np.asarray(draws.is_gold)
    expected = np.tile([2 / 3, 1 / 3], 16) * 8_000 / 16
    chi_square = ((np.bincount(kind, minlength=32) - expected) ** 2 / expected).sum()
    assert chi_square < 70  # 31 degrees of freedom


def test_gold_is_taken_and_enemies_end_the_game():
    for is_gold in (0, 1 << 16):
        for letter, column, move_timer in (("l", 5, 1), ("l", 4, 0), ("n", 5, 0)):
            state = start(
                ASTERIX,
                columns=column << 16,
                moves_right=1 << 16,
                is_gold=is_gold,
                move_timer=move_timer,
            )
            states, timesteps = play(ASTERIX, state, letter)
            assert timesteps[0].reward == (is_gold > 0)
            assert timesteps[0].terminated == (is_gold == 0)
            assert (states[0].columns == 0) == (is_gold > 0)


def test_objects_leave_the_board():
    state = start(ASTERIX, columns=nibbles(10, 1, 9), moves_right=nibbles(1, 0, 1), move_timer=0)
    states, timesteps = play(ASTERIX, state, "n")
    assert states[0].columns == nibbles(0, 0, 10) and states[0].moves_right == nibbles(0, 0, 1)
    assert timesteps[0].observation[..., 2].sum() == 1


def test_the_game_becomes_faster_every_102_steps():
    for ramping, indices in ((True, [0, 1, 1, 2, 9, 9]), (False, [0] * 6)):
        env = ASTERIX.replace(difficulty_ramping=ramping)

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


# Freeway.

FREEWAY = Freeway(sticky_action_prob=0.0)
SLOW = {"speeds": nibbles(*[5] * 8), "timers": nibbles(*[5] * 8)}


def test_the_chicken_moves_every_three_steps():
    states, _ = play(FREEWAY, start(FREEWAY, **SLOW), "uuuuuudd")
    assert [int(state.chicken) for state in states] == [9, 9, 9, 8, 8, 8, 9, 9]


@pytest.mark.parametrize(
    ("column", "timer", "hit"), [(4, 0, True), (4, 1, True), (3, 0, True), (3, 1, False)]
)
def test_a_car_sends_the_chicken_back_before_or_after_it_moves(column, timer, hit):
    state = start(
        FREEWAY,
        chicken=5,
        columns=nibbles(*[4] * 4, column, *[4] * 3),
        timers=nibbles(*[timer] * 8),
        moves_right=nibbles(*[1] * 8),
    )
    states, _ = play(FREEWAY, state, "n")
    assert states[0].chicken == (9 if hit else 5)


def test_arriving_changes_speeds_and_directions():
    columns = nibbles(*range(8))
    state = start(FREEWAY, chicken=1, move_timer=0, columns=columns, **SLOW)
    draws = FreewayDraws(
        sticks=jnp.bool_(False),
        speeds=jnp.uint32(nibbles(1, 2, 3, 4, 5, 1, 2, 3)),
        moves_right=jnp.uint32(nibbles(0, 1, 0, 1, 0, 1, 0, 1)),
    )
    after, timestep = apply(FREEWAY, state, jnp.int32(ACTIONS.index("u")), draws)
    assert timestep.reward == 1 and after.chicken == 9 and after.columns == columns
    assert (after.speeds, after.moves_right) == (draws.speeds, draws.moves_right)
    assert after.timers == nibbles(0, 1, 2, 3, 4, 0, 1, 2)


def test_cars_go_around_the_board():
    state = start(
        FREEWAY,
        columns=nibbles(9, 0, 0, 9),
        moves_right=nibbles(1, 0, 1, 0),
        **(SLOW | {"timers": 0}),
    )
    states, timesteps = play(FREEWAY, state, "n")
    assert states[0].columns == nibbles(0, 9, 1, 8) + nibbles(0, 0, 0, 0, 9, 9, 9, 9)
    trails = np.argmax(timesteps[0].observation[1:5, :, 6], axis=1)
    assert trails.tolist() == [9, 0, 0, 9]


def test_freeway_terminates_after_2501_steps():
    assert (
        start(FREEWAY).steps_left == 2_500 and jaxenvs.make("MinAtar/Freeway-v0").time_limit is None
    )
    _, timesteps = play(FREEWAY, start(FREEWAY, steps_left=1), "nn")  # steps 2,500 and 2,501
    assert [bool(timestep.terminated) for timestep in timesteps] == [False, True]
    assert not timesteps[1].truncated
