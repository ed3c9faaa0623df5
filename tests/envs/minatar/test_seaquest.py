import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.envs.minatar.seaquest import (
    ENEMY_INTERVAL,
    Enemies,
    Seaquest,
    SeaquestDraws,
    _rest,
)

ENV = Seaquest()
START = jax.device_get(ENV.reset(jax.random.key(0))[0])
apply = jax.jit(lambda env, state, action, draws: env.apply(state, action, draws))
observe = jax.jit(lambda state: ENV._observe(state))


def draws(**changes):
    """Returns draws by which nothing appears, with some fields changed."""
    none = {"sticks": False, "enemy_from_left": False, "enemy_is_sub": False, "enemy_row": 0}
    fields = none | {"diver_from_left": False, "diver_row": 0} | changes
    dtypes = {bool: np.bool_, int: np.int32}
    return SeaquestDraws(**{name: dtypes[type(x)](x) for name, x in fields.items()})


def step(state, letter="n", env=ENV, **drawn):
    state, timestep = apply(env, state, jnp.int32(env.actions.index(letter)), draws(**drawn))
    return jax.device_get((state, timestep))


def at(row, column, **changes):
    """Returns a state under water, in which nothing appears soon, with some fields changed."""
    fields = {"row": row, "column": column, "surfaced": row == 0} | changes
    fields = {"enemy_timer": 9, "diver_timer": 9} | fields
    return START.replace(**{name: np.asarray(x, START[name].dtype) for name, x in fields.items()})


def enemies(state, *, right=(), fish=(), subs=()):
    """Adds fish (row, column, rest) and subs (row, column, rest, steps until they fire)."""
    boards = np.zeros((5, 2, 8), np.uint32)
    for row, column, rest in fish:
        boards[0, rest // 3, row - 1] |= 1 << rest % 3 * 10 + column
    for row, column, rest, fires in subs:
        number = (int(state.clock) + fires) % 11 + 1
        for i in range(4):
            boards[1 + i, rest // 3, row - 1] |= (number >> i & 1) << rest % 3 * 10 + column
    return state.replace(
        fish=Enemies(soon=boards[0, 0], late=boards[0, 1]),
        subs=Enemies(soon=boards[1:, 0], late=boards[1:, 1]),
        heads_right=np.isin(np.arange(1, 9), right),
    )


def bits(state, name, row, *columns, right=False):
    """Adds shots or bullets to a row."""
    words = np.array(state[name])
    words[row - (name == "bullets")] |= sum(1 << column + 10 * right for column in columns)
    return state.replace(**{name: words})


def shown(state, channel):
    """Returns the cells (row, column) of a channel."""
    board = np.asarray(observe(state))[:, :, ENV.channels.index(channel)]
    return [(int(row), int(column)) for row, column in np.argwhere(board)]


# The player.


def test_shot_starts_in_front_of_the_player_and_delays_the_next():
    state = at(4, 5)
    shots = []
    for _ in range(6):
        state, _ = step(state, "f")
        shots.append([column for _, column in shown(state, "friendly_bullet")])
    assert shots == [[4], [3], [2], [1], [0], [4]]


def test_player_back_follows_its_front():
    left, _ = step(at(4, 5), "l")
    right, _ = step(at(4, 5), "r")
    assert (shown(left, "sub_front"), shown(left, "sub_back")) == ([(4, 4)], [(4, 5)])
    assert (shown(right, "sub_front"), shown(right, "sub_back")) == ([(4, 6)], [(4, 5)])


def test_oxygen_lasts_200_steps_under_water():
    state = at(4, 5, oxygen=1)
    state, timestep = step(state)
    assert not timestep.terminated
    assert step(state)[1].terminated
    assert len(shown(at(4, 5, oxygen=199), "oxygen_gauge")) == 9
    assert len(shown(at(4, 5, oxygen=200), "oxygen_gauge")) == 10


@pytest.mark.parametrize(
    ("rescued", "left", "reward", "terminated"),
    [(0, 0, 0, True), (1, 0, 0, False), (6, -1, 7, False), (-1, -2, 0, False)],
)
def test_surfacing_needs_divers_and_a_full_boat_pays_its_oxygen(rescued, left, reward, terminated):
    before = at(1, 5, rescued=rescued, oxygen=159)
    state, timestep = step(before, "u")
    assert (state.rescued, timestep.reward, timestep.terminated) == (left, reward, terminated)
    assert state.oxygen == (159 if terminated else 200)
    assert len(shown(before, "diver_gauge")) == max(rescued, 0)
    assert not step(state, "u")[1].terminated or terminated  # only a dive counts


def test_surfacing_makes_the_game_more_difficult_if_asked():
    for env, ramp in ((ENV, 19), (Seaquest(difficulty_ramping=False), 0)):
        state = at(1, 5, rescued=-1)
        for _ in range(25):
            state, _ = step(state, "u", env)
            state, _ = step(state, "d", env)
        assert state.ramp == ramp
    assert [int(_rest(jnp.int32(ramp))) for ramp in range(8)] == [5, 5, 4, 4, 3, 3, 2, 2]


# Enemies.


def test_enemy_appears_at_an_edge_and_moves_when_its_timer_ends():
    state, _ = step(at(1, 5, enemy_timer=0), enemy_from_left=True, enemy_row=4)
    columns = []
    for _ in range(12):
        columns.append(shown(state, "enemy_fish")[0][1])
        state, _ = step(state)
    assert columns == [0] * 5 + [1] * 6 + [2]


def test_enemy_never_appears_in_a_row_heading_the_other_way():
    state = enemies(at(1, 5, enemy_timer=0), right=[4], fish=[(4, 2, 3)])
    for row, from_left, number in ((4, False, 1), (4, True, 2), (5, False, 2)):
        after, _ = step(state, enemy_from_left=from_left, enemy_row=row)
        assert len(shown(after, "enemy_fish")) == number
        assert after.enemy_timer == ENEMY_INTERVAL - 1


def test_sub_fires_after_ten_steps_and_its_bullet_moves_at_once():
    state, _ = step(at(1, 5, enemy_timer=0), enemy_row=4, enemy_is_sub=True)
    bullets = [[]]
    for _ in range(21):
        state, _ = step(state)
        bullets.append(shown(state, "enemy_bullet"))
    assert [i for i in range(1, 22) if bullets[i] and not bullets[i - 1]] == [10, 21]
    assert bullets[10] == [(4, 7)] and shown(state, "enemy_sub") == [(4, 6)]


def test_a_sub_that_moves_into_a_shot_still_fires():
    state = enemies(at(1, 5), subs=[(4, 7, 0, 0)])
    state, timestep = step(bits(state, "shots", 4, 5, right=True))
    assert timestep.reward == 1
    assert not shown(state, "enemy_sub") and not shown(state, "friendly_bullet")
    assert shown(state, "enemy_bullet") == [(4, 5)]


def test_a_shot_hits_a_fish_before_a_sub_and_the_oldest_first():
    state = enemies(at(1, 5), fish=[(4, 6, 1), (4, 6, 3)], subs=[(4, 6, 2, 5)])
    after, timestep = step(bits(state, "shots", 4, 7))
    assert timestep.reward == 1 and not shown(after, "friendly_bullet")
    only = enemies(at(1, 5), fish=[(4, 6, 3)], subs=[(4, 6, 2, 5)])
    without, _ = step(only)
    jax.tree.map(np.testing.assert_array_equal, after.fish, without.fish)
    jax.tree.map(np.testing.assert_array_equal, after.subs, without.subs)


@pytest.mark.parametrize("kind", ["fish", "subs", "bullets"])
def test_whatever_moves_onto_the_player_ends_the_game(kind):
    def state(column):
        if kind == "bullets":
            return bits(at(4, 5), "bullets", 4, column)
        return enemies(at(4, 5), **{kind: [(4, column, 0, 9)[: 3 + (kind == "subs")]]})

    ends = [bool(step(state(column))[1].terminated) for column in range(10)]
    assert ends == [column in (5, 6) for column in range(10)]


def test_enemies_that_appear_later_also_enter_each_cell_later():
    # All combinations of the steps after which enemies rest less, relative to the first's arrival.
    drops = np.array(list(itertools.combinations(range(0, 60, 2), 3)))
    drops = drops[(np.diff(drops) >= 4).all(axis=1)]
    drops = np.concatenate([drops, drops + [-99, 0, 0], drops + [-99, -99, 0]])

    def rest(time):
        return 5 - (drops < time[:, None]).sum(axis=1)

    for lead in range(15, 40):
        first, second = np.zeros(len(drops), int), np.full(len(drops), lead)
        for move in range(10):
            first = first + rest(first) + (move > 0)
            second = second + rest(second) + (move > 0)
            assert (second - first).min() >= 6


# Divers.


def test_divers_cross_the_board_in_60_steps():
    state, _ = step(at(1, 5, diver_timer=0), diver_row=4)
    places = []
    for i in range(61):
        places.append([column for _, column in shown(state, "diver")])
        state, _ = step(state, diver_row=6)
        if i == 29:
            assert shown(state, "diver") == [(4, 4), (6, 9)]
    assert places[:7] == [[9]] * 5 + [[8]] * 2
    assert places[58] == [0, 5] and places[59] == [4]


def test_the_last_place_on_board_is_for_the_diver_that_came_last():
    # Both pass column 2: the last one heads right, the one before it left.
    fields = {"diver_timer": 16, "diver_rows": [4, 4], "diver_heads_right": [True, False]}
    for rescued, left in ((4, []), (5, [4]), (6, [4, 4])):
        state = at(4, 2, rescued=rescued, **fields)
        assert shown(state, "diver") == [(4, 2)]
        state, _ = step(state)
        assert state.rescued == 6
        assert [row for row in state.diver_rows[::-1] if row] == left


def test_trails_are_behind_enemies_and_divers():
    state = enemies(at(1, 5), right=[4], fish=[(4, 3, 3), (5, 3, 3)], subs=[(4, 0, 3, 5)])
    assert shown(state, "trail") == [(4, 2), (5, 4)]
    state = at(1, 5, diver_rows=[3, 6], diver_heads_right=[True, False], diver_timer=20)
    assert shown(state, "diver") == [(3, 1), (6, 3)]
    assert shown(state, "trail") == [(3, 0), (6, 4)]
