"""Rivers of lava or walls, with gaps."""

import chex
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.layout import RandomStream, fill, put, walled
from jaxenvs.envs.minigrid.level import MiniGridState, SquareGrid
from jaxenvs.errors import ParameterError

OBSTACLES = {"lava": cells.LAVA, "wall": cells.WALL}


class Crossing(SquareGrid):
    """Cross rivers of lava or walls through their gaps to the goal.

    Mission: "avoid the lava and get to the green goal square", or with walls "find the opening and
        get to the green goal square"
    Start: the agent in the upper left corner, looking right; the goal in the lower right corner;
        `num_crossings` rivers in different even rows and columns, drawn uniformly. A random path
        that only goes right and down crosses each river once, where there are the gaps
    Terminates: at the goal, or in lava
    Time limit: 4 * size**2 steps
    """

    size: int = struct.static(9)
    num_crossings: int = struct.static(1)  # number of rivers
    obstacle_type: str = struct.static("lava")  # or "wall"

    has_objects = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.obstacle_type not in OBSTACLES:
            raise ParameterError(
                f'Crossing got obstacle_type={self.obstacle_type!r}; it must be "lava" or "wall".'
            )
        if self.size % 2 == 0 or self.size < 5:
            raise ParameterError(f"Crossing got size={self.size}; it must be odd and at least 5.")
        if not 1 <= self.num_crossings <= self.size - 3:
            raise ParameterError(
                f"Crossing got num_crossings={self.num_crossings}; a grid of this size has room for"
                f" 1 to {self.size - 3} rivers."
            )

    @property
    def mission(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        if self.obstacle_type == "lava":
            return "avoid the lava and get to the green goal square"
        return "find the opening and get to the green goal square"

    @property
    def default_max_steps(self) -> int:
        return 4 * self.size**2

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        size, rng = self.size, RandomStream(key)
        grid = put(walled(size, size), (size - 2, size - 2), cells.GOAL)
        lines = np.arange(2, size - 2, 2, dtype=np.int32)
        drawn = jnp.stack(rng.shuffle(2 * len(lines), self.num_crossings))
        is_river = (drawn[:, None] == np.arange(2 * len(lines), dtype=np.int32)[None]).any(0)
        in_columns, in_rows = is_river[: len(lines)], is_river[len(lines) :]
        index = np.arange(size, dtype=np.int32)
        across = (in_columns[:, None] & (lines[:, None] == index[None])).any(
            0
        )  # bool[size], by column
        down = (in_rows[:, None] & (lines[:, None] == index[None])).any(0)  # by row
        inside = (index > 0) & (index < size - 1)
        rivers = (across[None] | down[:, None]) & inside[None] & inside[:, None]
        grid = fill(grid, rivers, OBSTACLES[self.obstacle_type])

        # Rivers are crossed one by one, the next column or the next row, in random order. The gap
        # is in the room that the path has reached, between the last and the next river.
        left, above = jnp.int32(0), jnp.int32(0)
        for _ in range(self.num_crossings):
            columns, rows = across & (index > left), down & (index > above)
            number = columns.sum(dtype=jnp.int32)
            goes_right = rng.integer(0, number + rows.sum(dtype=jnp.int32)) < number
            right = jnp.where(columns.any(), jnp.argmax(columns), size - 1).astype(jnp.int32)
            below = jnp.where(rows.any(), jnp.argmax(rows), size - 1).astype(jnp.int32)
            x = jnp.where(goes_right, right, rng.integer(left + 1, right))
            y = jnp.where(goes_right, rng.integer(above + 1, below), below)
            grid = put(grid, (x, y), cells.EMPTY)
            left, above = jnp.where(goes_right, right, left), jnp.where(goes_right, above, below)
        return self.make_state(grid, 1, 1, 0)
