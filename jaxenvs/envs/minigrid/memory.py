"""An object to remember."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.layout import RandomStream, fill, put, rectangle, walled
from jaxenvs.envs.minigrid.level import PICK_UP, TOGGLE, MiniGridState, SquareGrid
from jaxenvs.errors import ParameterError


@chex.dataclass(frozen=True)
class MemoryTask:
    """The end of the hallway, where the agent turns up or down."""

    x: jax.Array  # int32[], column of both ends
    success_y: jax.Array  # int32[]
    failure_y: jax.Array  # int32[]


class Memory(SquareGrid):
    """Look at an object at the start, then go to the same kind of object at the hallway's end.

    Mission: "go to the matching object at the end of the hallway"
    Start: a key or a ball in the room to the left; a key and a ball at the end of the hallway, in
        random order; the agent in the room or in the hallway, looking right
    Terminates: next to one of the objects at the end, with success if it is of the same kind
    Time limit: 5 * size**2 steps

    The action `PICK_UP` has the effect of `TOGGLE`, as in minigrid.
    """

    size: int = struct.static(7)
    random_length: bool = struct.static(False)  # of the hallway

    mission = "go to the matching object at the end of the hallway"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size % 2 == 0 or self.size < 7:
            raise ParameterError(f"Memory got size={self.size}; it must be odd and at least 7.")

    @property
    def default_max_steps(self) -> int:
        return 5 * self.size**2

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        size, middle, rng = self.size, self.size // 2, RandomStream(key)
        end = rng.integer(4, size - 2) if self.random_length else size - 3
        grid = walled(size, size)
        for y in (middle - 2, middle + 2):  # of the room
            grid = fill(grid, rectangle(grid, 1, y, 4, 1), cells.WALL)
        for y in (middle - 1, middle + 1):  # of the hallway
            hall = rectangle(grid, 4, y, 1, 1) | rectangle(grid, 5, y, end - 5, 1)
            grid = fill(grid, hall, cells.WALL)
        rows = np.arange(size, dtype=np.int32)[:, None]
        grid = fill(grid, rectangle(grid, end, 0, 1, size) & (rows != middle), cells.WALL)
        grid = fill(grid, rectangle(grid, end + 2, 0, 1, size), cells.WALL)
        x = rng.integer(1, end + 1)
        shown_key, upper_key = rng.boolean(), rng.boolean()
        key_cell, ball = cells.make(cells.KEY, cells.GREEN), cells.make(cells.BALL, cells.GREEN)
        grid = put(grid, (1, middle - 1), jnp.where(shown_key, key_cell, ball))
        grid = put(grid, (end + 1, middle - 2), jnp.where(upper_key, key_cell, ball))
        grid = put(grid, (end + 1, middle + 2), jnp.where(upper_key, ball, key_cell))
        is_upper = shown_key == upper_key
        return self.make_state(
            *(grid, x, middle, 0),
            task=MemoryTask(
                x=jnp.asarray(end + 1, jnp.int32),
                success_y=jnp.where(is_upper, middle - 1, middle + 1).astype(jnp.int32),
                failure_y=jnp.where(is_upper, middle + 1, middle - 1).astype(jnp.int32),
            ),
        )

    def transition(self, state: MiniGridState, action: jax.Array) -> MiniGridState:
        return super().transition(state, jnp.where(action == PICK_UP, TOGGLE, action))

    def outcome(
        self, before: MiniGridState, action: jax.Array, after: MiniGridState
    ) -> tuple[jax.Array, jax.Array]:
        task = after.task
        at_end = after.x == task.x
        return at_end & (after.y == task.success_y), at_end & (after.y == task.failure_y)
