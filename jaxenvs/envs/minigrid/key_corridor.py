"""A key in a side room of a corridor."""

import chex
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells, missions
from jaxenvs.envs.minigrid.layout import RandomStream
from jaxenvs.envs.minigrid.level import MiniGridState
from jaxenvs.envs.minigrid.room_grid import LEFT, UP, PickUp, Rooms
from jaxenvs.errors import ParameterError


class KeyCorridor(PickUp):
    """Find a key in the rooms beside a corridor, unlock the right room, and pick up the ball in it.

    Mission: "pick up the red ball", or another color
    Start: a corridor with rooms on both sides; the ball in a locked room to the right, its key in a
        room to the left; other doors of random colors until all rooms are connected; the agent in
        the middle of the corridor's rooms
    Terminates: after the ball is picked up
    Time limit: 30 * room_size**2 steps
    """

    room_size: int = struct.static(6)
    obj_type: str = struct.static("ball")  # or "box"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.obj_type not in ("ball", "box"):
            raise ParameterError(
                f'KeyCorridor got obj_type={self.obj_type!r}; it must be "ball" or "box".'
            )

    @property
    def mission(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return f"pick up the {{}} {self.obj_type}"

    @property
    def default_max_steps(self) -> int:
        return 30 * self.room_size**2

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        rooms = Rooms(self, RandomStream(key))
        for j in range(1, self.num_rows):
            rooms.remove_wall(1, j, UP)
        row, key_row = (rooms.rng.integer(0, self.num_rows) for _ in range(2))
        door = rooms.add_door(2, row, LEFT, locked=True)
        kind = cells.BALL if self.obj_type == "ball" else cells.BOX
        target = rooms.add_object(2, row, kind)
        rooms.add_object(0, key_row, cells.KEY, door.color)
        rooms.place_agent(1, self.num_rows // 2)
        rooms.connect_all()
        return rooms.make_state(
            task=cells.make(target.kind, target.color).astype(jnp.uint8),
            mission=self.encode_mission(missions.of_color(target.color)),
        )
