"""Rules of Seaquest that a short comparison with MinAtar's, as in tests/parity, rarely meets."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.envs.minatar.seaquest import Enemies, Seaquest, SeaquestDraws, _rest

ENV = Seaquest()
START = jax.device_get(ENV.reset(jax.random.key(0))[0])
NOTHING_APPEARS = SeaquestDraws(
    sticks=np.bool_(False),
    enemy_from_left=np.bool_(False),
    enemy_is_sub=np.bool_(False),
    enemy_row=np.int32(0),
    diver_from_left=np.bool_(False),
    diver_row=np.int32(0),
)
apply = jax.jit(lambda env, state, action: env.apply(state, action, NOTHING_APPEARS))
observe = jax.jit(lambda state: ENV._observe(state))


def step(state, letter="n", env=ENV):
    return jax.device_get(apply(env, state, jnp.int32(env.actions.index(letter))))


def at(row, column, **changes):
    """Returns a state under water, in which nothing appears soon, with some fields changed."""
    fields = {"row": row, "column": column, "surfaced": row == 0} | changes
    fields = {"enemy_timer": 9, "diver_timer": 9} | fields
    return START.replace(**{name: np.asarray(x, START[name].dtype) for name, x in fields.items()})


def enemies(state, *, fish=(), subs=()):
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
        heads_right=np.zeros(8, bool),
    )


def shoot(state, row, column, right=False):
    """Adds a shot."""
    shots = np.array(state.shots)
    shots[row] |= 1 << column + 10 * right
    return state.replace(shots=shots)


def shown(state, channel):
    """Returns the cells (row, column) of a channel."""
    board = np.asarray(observe(state))[:, :, ENV.channels.index(channel)]
    return [(int(row), int(column)) for row, column in np.argwhere(board)]


def test_surfacing_makes_the_game_more_difficult_if_asked():
    for env, ramp in ((ENV, 19), (Seaquest(difficulty_ramping=False), 0)):
        state = at(1, 5, rescued=-1)
        for _ in range(25):
            state, _ = step(state, "u", env)
            state, _ = step(state, "d", env)
        assert state.ramp == ramp
    assert [int(_rest(jnp.int32(ramp))) for ramp in range(8)] == [5, 5, 4, 4, 3, 3, 2, 2]


def test_a_sub_that_moves_into_a_shot_still_fires():
    state = enemies(at(1, 5), subs=[(4, 7, 0, 0)])
    state, timestep = step(shoot(state, 4, 5, right=True))
    assert timestep.reward == 1
    assert not shown(state, "enemy_sub") and not shown(state, "friendly_bullet")
    assert shown(state, "enemy_bullet") == [(4, 5)]


def test_a_shot_hits_a_fish_before_a_sub_and_the_oldest_first():
    state = enemies(at(1, 5), fish=[(4, 6, 1), (4, 6, 3)], subs=[(4, 6, 2, 5)])
    after, timestep = step(shoot(state, 4, 7))
    assert timestep.reward == 1 and not shown(after, "friendly_bullet")
    only = enemies(at(1, 5), fish=[(4, 6, 3)], subs=[(4, 6, 2, 5)])
    without, _ = step(only)
    jax.tree.map(np.testing.assert_array_equal, after.fish, without.fish)
    jax.tree.map(np.testing.assert_array_equal, after.subs, without.subs)


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


def test_the_last_place_on_board_is_for_the_diver_that_came_last():
    # Both pass column 2: the last one heads right, the one before it left.
    fields = {"diver_timer": 16, "diver_rows": [4, 4], "diver_heads_right": [True, False]}
    for rescued, left in ((4, []), (5, [4]), (6, [4, 4])):
        state = at(4, 2, rescued=rescued, **fields)
        assert shown(state, "diver") == [(4, 2)]
        state, _ = step(state)
        assert state.rescued == 6
        assert [row for row in state.diver_rows[::-1] if row] == left
