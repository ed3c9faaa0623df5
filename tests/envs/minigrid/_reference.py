"""Conversions between states of minigrid's environments and ours."""

import numpy as np
from minigrid.core.world_object import Ball, Box, Door, Floor, Goal, Key, Lava, Wall

from jaxenvs.envs.minigrid import cells, missions
from jaxenvs.envs.minigrid.level import MiniGridState

TYPES = {
    cells.kind(cells.WALL): Wall,
    cells.FLOOR: Floor,
    cells.KEY: Key,
    cells.BALL: Ball,
    cells.BOX: Box,
    cells.kind(cells.GOAL): Goal,
}
DOORS = {
    cells.OPEN_DOOR: {"is_open": True},
    cells.CLOSED_DOOR: {},
    cells.LOCKED_DOOR: {"is_locked": True},
}
KINDS = {kind.__name__.lower(): number for number, kind in TYPES.items()}
# What a cell can look like: all kinds of objects in all of their colors.
LOOKS = [
    *(cells.EMPTY, cells.LAVA),
    *(cells.make(kind, color) for kind in {**TYPES, **DOORS} for color in range(6)),
]


def to_object(cell):
    """Returns minigrid's object for a cell, or None."""
    kind, color = cells.kind(int(cell)), cells.COLORS[cells.color(int(cell))]
    if kind == cells.EMPTY:
        return None
    if kind == cells.kind(cells.LAVA):
        return Lava()
    return Door(color, **DOORS[kind]) if kind in DOORS else TYPES[kind](color)


def to_cell(thing):
    """Returns the cell for one of minigrid's objects, or for None."""
    if thing is None:
        return cells.EMPTY
    if thing.type == "lava":
        return cells.LAVA
    color = cells.COLORS.index(thing.color)
    if thing.type == "door":
        shut = cells.LOCKED_DOOR if thing.is_locked else cells.CLOSED_DOOR
        return cells.make(cells.OPEN_DOOR if thing.is_open else shut, color)
    inside = 0 if thing.contains is None else to_cell(thing.contains)
    return cells.make(KINDS[thing.type], color, inside)


def inject(env, level, task=()):
    """Returns the state of `level` that equals the state of `env`, an environment of minigrid."""
    env = env.unwrapped
    grid = np.array([to_cell(thing) for thing in env.grid.grid])
    mission = ()
    if "{}" in level.mission:
        words = [level.vocabulary.index(word) for word in missions.split(env.mission)]
        mission = np.pad(np.uint8(words), (0, level.mission_length - len(words)))
    x, y = map(int, env.agent_pos)
    return MiniGridState(
        grid=np.asarray(grid.reshape(env.height, env.width), level.cell_type),
        x=np.int32(x),
        y=np.int32(y),
        direction=np.int32(int(env.agent_dir)),
        carrying=np.asarray(to_cell(env.carrying), level.cell_type),
        step_count=np.int32(env.step_count),
        mission=mission,
        task=task,
    )
