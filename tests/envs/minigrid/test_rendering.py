import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.envs.minigrid import cells, rendering
from jaxenvs.envs.minigrid.door_key import DoorKey

pytest.importorskip("minigrid")

from minigrid.core.grid import Grid

from tests.envs.minigrid._reference import LOOKS, inject, to_object

IN_HAND = [look for look in LOOKS if cells.CAN_PICK_UP >> cells.kind(look) & 1]


@pytest.fixture(scope="module")
def env():
    return gym.make("MiniGrid-DoorKey-8x8-v0").unwrapped


def shuffle(env, generator, looks):
    """Gives an environment of minigrid a random grid, agent, and object in its hand."""
    env.reset(seed=0)
    for x, y in np.ndindex(8, 8):
        env.grid.set(x, y, to_object(generator.choice(looks)))
    env.agent_pos = tuple(generator.integers(0, 8, 2))
    env.agent_dir = int(generator.integers(4))
    env.carrying = to_object(generator.choice([cells.EMPTY, *IN_HAND]))


def draw_all(level, state, tile_size):
    """Returns the grid with and without highlights, and the view."""
    found, is_seen = level.agent_view(state)
    place = state.grid, state.x, state.y, state.direction
    return (
        rendering.draw_grid(*place, is_seen, tile_size),
        rendering.draw_grid(*place, tile_size=tile_size),
        rendering.draw_view(found, is_seen, tile_size),
    )


def draw_all_theirs(env, tile_size):
    return (
        env.get_full_render(True, tile_size),
        env.get_full_render(False, tile_size),
        env.get_pov_render(tile_size),
    )


@pytest.mark.parametrize("is_highlighted", [False, True])
def test_all_tiles_equal_those_of_minigrid(is_highlighted):
    seen = jnp.full((3, 3), is_highlighted)

    def draw(look, x, direction):
        return rendering.draw_grid(look.reshape(1, 1), x, jnp.int32(0), direction, seen, 8)

    draw = jax.jit(jax.vmap(draw, (0, None, None)))
    looks = np.array(LOOKS, np.uint8)
    for direction in (None, 0, 1, 2, 3):
        agent = (-1, 0) if direction is None else (0, direction)  # left of the cell, or in it
        for look, tile in zip(LOOKS, np.asarray(draw(looks, *map(np.int32, agent))), strict=True):
            expected = Grid.render_tile(to_object(look), direction, is_highlighted, 8)
            np.testing.assert_array_equal(tile, expected.astype(np.uint8))


@pytest.mark.parametrize(("view_size", "sees_through"), [(7, False), (3, True)])
def test_images_of_random_grids_equal_those_of_minigrid(env, monkeypatch, view_size, sees_through):
    monkeypatch.setattr(env, "agent_view_size", view_size)
    monkeypatch.setattr(env, "see_through_walls", sees_through)
    level = DoorKey(agent_view_size=view_size, see_through_walls=sees_through)
    generator = np.random.default_rng(0)
    clear = [look for look in LOOKS if not cells.IS_OPAQUE >> cells.kind(look) & 1]
    states, expected = [], []
    for i in range(16):
        shuffle(env, generator, LOOKS if i % 2 else clear)
        states.append(inject(env, level))
        expected.append(draw_all_theirs(env, 8))
    states = jax.tree.map(lambda *leaves: np.stack(leaves), *states)
    found = jax.jit(jax.vmap(lambda state: draw_all(level, state, 8)))(states)
    for ours, theirs in zip(found, zip(*expected, strict=True), strict=True):
        np.testing.assert_array_equal(ours, np.stack(theirs))


def test_images_of_the_default_size_equal_those_of_minigrid(env):
    level = DoorKey()
    env.reset(seed=1)
    env.carrying = to_object(cells.make(cells.BALL, cells.PURPLE))
    env.grid.set(1, 1, to_object(cells.LAVA))  # minigrid takes 0.05 s for each new tile
    env.grid.set(1, 2, to_object(cells.make(cells.CLOSED_DOOR, cells.BLUE)))
    state = inject(env, level)
    frames = jax.jit(lambda state: (*draw_all(level, state, 32), level.render(state)))(state)
    expected = draw_all_theirs(env, 32)
    for ours, theirs in zip(frames, [*expected, expected[0]], strict=True):
        np.testing.assert_array_equal(ours, theirs)
