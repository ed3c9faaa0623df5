"""A chain of rooms with doors between them."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import loops, struct
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.layout import RandomStream, at, empty, fill, filled, outline, rectangle
from jaxenvs.envs.minigrid.level import MiniGrid, MiniGridState
from jaxenvs.errors import ParameterError

SMALLEST = 4  # columns and rows of a room, including walls
TRIES = 8  # to place the next room
# A chain is complete after about 100 proposals. The bound is never met; see `_draw_chain`.
MOST_PROPOSALS = 100_000


@chex.dataclass(frozen=True)
class Chain:
    """The rooms that are placed, and how often the next one did not fit."""

    number: jax.Array  # int32[]
    tries: jax.Array  # int32[]
    side: jax.Array  # int32[], where the door into the last room is: right, down, left, up
    rooms: jax.Array  # int32[max_num_rooms, 6]: left, top, width, height, column and row of door


class MultiRoom(MiniGrid):
    """Walk through a chain of rooms, whose doors are closed, to the goal in the last one.

    Mission: "traverse the rooms to get to the goal"
    Start: between `min_num_rooms` and `max_num_rooms` rooms of random sizes; the agent anywhere in
        the first one, the goal anywhere in the last one
    Terminates: at the goal
    Time limit: 20 * max_num_rooms steps

    As in minigrid, a room that does not fit is drawn again, and after eight failures the whole
    chain is. A level needs about 100 draws; there are at most 100,000.
    """

    width: int = struct.static(25)  # pyright: ignore[reportIncompatibleMethodOverride]
    height: int = struct.static(25)  # pyright: ignore[reportIncompatibleMethodOverride]
    min_num_rooms: int = struct.static(6)  # smallest number of rooms
    max_num_rooms: int = struct.static(6)  # largest number of rooms
    max_room_size: int = struct.static(10)  # columns and rows, including walls

    mission = "traverse the rooms to get to the goal"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.min_num_rooms <= self.max_num_rooms:
            raise ParameterError(
                f"MultiRoom got min_num_rooms={self.min_num_rooms} and"
                f" max_num_rooms={self.max_num_rooms}; expected 0 < min_num_rooms <= max_num_rooms."
            )
        if self.max_room_size < SMALLEST:
            raise ParameterError(
                f"MultiRoom got max_room_size={self.max_room_size}; it must be at least {SMALLEST}."
            )

    @property
    def default_max_steps(self) -> int:
        return 20 * self.max_num_rooms

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        rng = RandomStream(key)
        number = rng.integer(self.min_num_rooms, self.max_num_rooms + 1)
        rooms = self._draw_chain(rng, number)
        grid = filled(self.width, self.height)
        grid = fill(grid, outline(grid, *rooms[0, :4]), cells.WALL)

        def add_next(carry: Any, row: Any) -> tuple[Any, None]:
            (grid, color), (room, exists, word) = carry, row
            color = RandomStream(word).choose(np.arange(len(cells.COLORS), dtype=np.int32) != color)
            left, top, width, height, x, y = room
            walls = outline(grid, left, top, width, height)
            grid = fill(grid, walls & exists, cells.WALL)
            door = cells.make(cells.CLOSED_DOOR, color)
            return (fill(grid, at(grid, (x, y)) & exists, door), color), None

        later = np.arange(1, self.max_num_rooms, dtype=np.int32)
        words = rng.next_words(len(later))[:, None]
        (grid, _), _ = loops.scan(
            add_next, (grid, jnp.int32(-1)), (rooms[1:], later < number, words)
        )
        x, y = rng.cell(empty(grid) & rectangle(grid, *rooms[0, :4]))
        last = rectangle(grid, *rooms[number - 1, :4])
        grid, _ = rng.put(grid, cells.GOAL, last & ~at(grid, (x, y)))
        return self.make_state(grid, x, y, rng.integer(0, 4))

    def _draw_chain(self, rng: RandomStream, number: jax.Array) -> jax.Array:
        """Draws the rooms, int32[max_num_rooms, 6], of which the first `number` exist."""
        key = rng.key()

        def propose(carry: tuple[Chain, jax.Array]) -> tuple[Chain, jax.Array]:
            chain, count = carry
            words = jax.random.bits(jax.random.fold_in(key, count), (6,), jnp.uint32)
            return self._propose(chain, RandomStream(words)), count + 1

        def is_incomplete(carry: tuple[Chain, jax.Array]) -> jax.Array:
            return (carry[0].number < number) & (carry[1] < MOST_PROPOSALS)

        empty_chain = Chain(
            number=jnp.int32(0),
            tries=jnp.int32(0),
            side=jnp.int32(2),
            rooms=jnp.zeros((self.max_num_rooms, 6), jnp.int32),
        )
        return loops.while_loop(is_incomplete, propose, (empty_chain, jnp.int32(0)))[0].rooms

    def _propose(self, chain: Chain, rng: RandomStream) -> Chain:
        """Adds a random room if it fits. After eight that do not, starts again."""
        is_first = chain.number == 0
        left, top, width, height = chain.rooms[chain.number - 1, :4]
        exit_side = (chain.side + 1 + rng.integer(0, 3)) % 4
        is_beside = exit_side % 2 == 0
        along = 1 + rng.integer(0, jnp.where(is_beside, height, width) - 2)
        x = left + jnp.where(is_beside, jnp.where(exit_side == 0, width - 1, 0), along)
        y = top + jnp.where(is_beside, along, jnp.where(exit_side == 1, height - 1, 0))
        x = jnp.where(is_first, rng.integer(0, self.width - 2), x)
        y = jnp.where(is_first, rng.integer(0, self.width - 2), y)
        side = jnp.where(is_first, 2, (exit_side + 2) % 4)

        # One word for both sides of the room, which are independent.
        sizes = self.max_room_size + 1 - SMALLEST
        both = rng.integer(0, sizes * sizes)
        width, height = SMALLEST + both % sizes, SMALLEST + both // sizes
        is_beside = side % 2 == 0
        back = 1 + rng.integer(0, jnp.where(is_beside, height, width) - 2)
        left = jnp.where(is_beside, jnp.where(side == 0, x - width + 1, x), x - back)
        top = jnp.where(is_beside, y - back, jnp.where(side == 1, y - height + 1, y))
        left, top = jnp.where(is_first, x, left), jnp.where(is_first, y, top)

        inside = (left >= 0) & (top >= 0) & (left + width <= self.width)
        inside &= top + height < self.height
        others = chain.rooms.T
        # minigrid lets neighbors share walls, and compares the two sides in different ways.
        apart = (left + width < others[0]) | (others[0] + others[2] <= left)
        apart |= (top + height < others[1]) | (others[1] + others[3] <= top)
        index = np.arange(self.max_num_rooms, dtype=np.int32)
        fits = inside & (apart | (index >= chain.number - 1)).all()

        room = jnp.stack([left, top, width, height, x, y])
        rooms = jnp.where((index == chain.number)[:, None] & fits, room[None], chain.rooms)
        tries = jnp.where(fits | is_first, 0, chain.tries + 1)
        number = jnp.where(tries == TRIES, 0, chain.number + fits.astype(jnp.int32))
        return Chain(
            number=number,
            tries=jnp.where(tries == TRIES, 0, tries),
            side=jnp.where(fits, side, chain.side),
            rooms=rooms,
        )
