"""Two rooms with a locked door between them."""

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells, missions
from jaxenvs.envs.minigrid.layout import RandomStream, put
from jaxenvs.envs.minigrid.level import TOGGLE, MiniGridState
from jaxenvs.envs.minigrid.room_grid import RIGHT, PickUp, RoomGrid, Rooms


class Unlock(RoomGrid):
    """Unlock the door of a room with its key.

    Mission: "open the door"
    Start: two rooms with a locked door of random color between them; the key and the agent in the
        left room
    Terminates: after the door is opened
    Time limit: 8 * room_size**2 steps
    """

    room_size: int = struct.static(6)
    num_rows: int = struct.static(1)
    num_cols: int = struct.static(2)

    mission = "open the door"

    @property
    def default_max_steps(self) -> int:
        return 8 * self.room_size**2

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        rooms = Rooms(self, RandomStream(key))
        door = rooms.add_door(0, 0, RIGHT, locked=True)
        rooms.add_object(0, 0, cells.KEY, door.color)
        rooms.place_agent(0, 0)
        return rooms.make_state()

    def outcome(
        self, before: MiniGridState, action: jax.Array, after: MiniGridState
    ) -> tuple[jax.Array, jax.Array]:
        is_open = cells.kind(self.front_cell(after)) == cells.OPEN_DOOR
        return (action == TOGGLE) & is_open, jnp.bool_(False)


class UnlockPickup(PickUp):
    """Unlock the door of a room with its key, and pick up the box behind it.

    Mission: "pick up the red box", or another color
    Start: as in `Unlock`, with a box of random color in the right room
    Terminates: after the box is picked up
    Time limit: 8 * room_size**2 steps
    """

    room_size: int = struct.static(6)
    num_rows: int = struct.static(1)
    num_cols: int = struct.static(2)

    mission = "pick up the {} box"

    @property
    def default_max_steps(self) -> int:
        return 8 * self.room_size**2

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        rooms = Rooms(self, RandomStream(key))
        box = rooms.add_object(1, 0, cells.BOX)
        door = rooms.add_door(0, 0, RIGHT, locked=True)
        self.block(rooms, door.x, door.y)
        rooms.add_object(0, 0, cells.KEY, door.color)
        rooms.place_agent(0, 0)
        return rooms.make_state(
            task=cells.make(box.kind, box.color).astype(jnp.uint8),
            mission=self.encode_mission(missions.of_color(box.color)),
        )

    def block(self, rooms: Rooms, x: jax.Array, y: jax.Array) -> None:
        """Puts an obstacle in front of the door."""


class BlockedUnlockPickup(UnlockPickup):
    """Move a ball out of the way, unlock a door with its key, and pick up the box behind it.

    Mission: "pick up the red box", or another color
    Start: as in `UnlockPickup`, with a ball of random color in front of the door
    Terminates: after the box is picked up
    Time limit: 16 * room_size**2 steps
    """

    @property
    def default_max_steps(self) -> int:
        return 16 * self.room_size**2

    def block(self, rooms: Rooms, x: jax.Array, y: jax.Array) -> None:
        ball = cells.make(cells.BALL, rooms.rng.color())
        rooms.grid = put(rooms.grid, (x - 1, y), ball)
