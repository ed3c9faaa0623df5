"""Objects of which one is to be put near another."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells, missions
from jaxenvs.envs.minigrid._objects import draw_objects
from jaxenvs.envs.minigrid.layout import RandomStream, empty, walled
from jaxenvs.envs.minigrid.level import DROP, PICK_UP, MiniGridState, SquareGrid
from jaxenvs.errors import ParameterError


@chex.dataclass(frozen=True)
class PutNearTask:
    """The object to move and the place to put it."""

    move: jax.Array  # uint8[], the kind and the color of the object
    x: jax.Array  # int32[], of the object that it must be near to
    y: jax.Array  # int32[]


class PutNear(SquareGrid):
    """Pick up one object and drop it next to another one, which may be diagonal.

    Mission: "put the red key near the blue ball", or other colors and kinds
    Start: the agent and `num_objects` different keys, balls, and boxes in any empty cells, no
        object next to another one; the mission names two of them
    Terminates: after another object is picked up, and after the object is dropped, with success
        next to the cell where the other object was at the start
    Time limit: 5 * size steps
    """

    size: int = struct.static(6)
    see_through_walls: bool = struct.static(True)
    num_objects: int = struct.static(2)  # number of objects

    mission = "put the {} {} near the {} {}"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_objects < 2:
            raise ParameterError(f"PutNear got num_objects={self.num_objects}; it needs two.")

    @property
    def default_max_steps(self) -> int:
        return 5 * self.size

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        rng, kinds = RandomStream(key), (cells.KEY, cells.BALL, cells.BOX)
        grid = walled(self.size, self.size)
        grid, objects, columns, rows = draw_objects(
            rng, grid, self.num_objects, kinds, unique=True, gap=1
        )
        x, y = rng.cell(empty(grid))
        move, target = rng.shuffle(self.num_objects, 2)
        words = []
        for index in (move, target):
            words.append(missions.of_color(cells.color(objects[index])))
            words.append(missions.of_kind(cells.kind(objects[index])))
        move = objects[move].astype(np.uint8)
        return self.make_state(
            *(grid, x, y, rng.integer(0, 4)),
            task=PutNearTask(move=move, x=columns[target], y=rows[target]),
            mission=self.encode_mission(*words),
        )

    def outcome(
        self, before: MiniGridState, action: jax.Array, after: MiniGridState
    ) -> tuple[jax.Array, jax.Array]:
        task, nothing = after.task, cells.EMPTY
        takes = (action == PICK_UP) & (after.carrying != nothing)
        drops = (action == DROP) & (before.carrying != nothing)
        x, y = self.front_place(after)
        is_near = jnp.maximum(abs(x - task.x), abs(y - task.y)) <= 1
        success = drops & (after.carrying == nothing) & is_near
        return success, (takes & (cells.appearance(after.carrying) != task.move)) | (
            drops & ~success
        )
