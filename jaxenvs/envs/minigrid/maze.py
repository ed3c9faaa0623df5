"""A free maze, which papers about unsupervised environment design (UED) use, and its levels."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import loops, prng, struct
from jaxenvs.core import TimeStep
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.layout import RandomStream, at, fill, filled
from jaxenvs.envs.minigrid.level import MiniGridState, SquareGrid
from jaxenvs.envs.minigrid.mazes import TEST_MAZES
from jaxenvs.errors import ParameterError, check_choice, check_integer

_AGENT = ">v<^"  # right, down, left, and up


@chex.dataclass(frozen=True)
class MazeLevel:
    """A maze: the cells inside of its outer walls, H rows and W columns.

    Places are pairs (x, y), column and row, counted from 0 in the upper left corner, so
    `walls[y, x]` is the cell of a place. Where the goal or the agent is, there is no wall, whatever
    `walls` says. A goal where the agent starts must be left and entered again.

    `jax.tree.map(lambda *leaves: jnp.stack(leaves), *levels)` makes a batch of levels.
    """

    walls: jax.Array  # bool[H, W]
    goal: jax.Array  # int32[2]
    agent: jax.Array  # int32[2]
    direction: jax.Array  # int32[], of the agent: right (0), down (1), left (2), up (3)

    @classmethod
    def from_text(cls, text: str) -> "MazeLevel":
        """Reads a level from a picture, with a line for each row.

        `#` is a wall, `.` an empty cell, `G` the goal, and one of `>v<^` the agent. Outer walls are
        left out, and so are spaces around lines.

        Raises:
            ParameterError: a character is none of these, rows differ in length, or there is not
                exactly one goal and one agent.
        """
        rows = [row.strip() for row in text.strip().splitlines()]
        if unknown := sorted({*"".join(rows)} - {*"#.G", *_AGENT}):
            raise ParameterError(
                f"MazeLevel.from_text got the character {unknown[0]!r}; expected # for a wall, ."
                f" for an empty cell, G for the goal, and one of {_AGENT} for the agent."
            )
        if len(lengths := sorted({len(row) for row in rows})) > 1:
            raise ParameterError(
                f"MazeLevel.from_text got rows of {lengths[0]} and {lengths[-1]} characters; all"
                " must have the same length."
            )
        picture = np.array([[*row] for row in rows])
        goals, agents = np.argwhere(picture == "G"), np.argwhere(np.isin(picture, [*_AGENT]))
        if len(goals) != 1 or len(agents) != 1:
            raise ParameterError(
                f"MazeLevel.from_text got {len(goals)} goals and {len(agents)} agents; expected one"
                f" G and one of {_AGENT}."
            )
        (goal,), (agent,) = goals, agents
        return cls(
            walls=jnp.asarray(picture == "#"),
            goal=jnp.asarray(goal[::-1], jnp.int32),
            agent=jnp.asarray(agent[::-1], jnp.int32),
            direction=jnp.int32(_AGENT.index(str(picture[tuple(agent)]))),
        )

    @classmethod
    def from_name(cls, name: str) -> "MazeLevel":
        """Returns one of the mazes on which papers test agents, see `mazes.TEST_MAZES`.

        Raises:
            ParameterError: there is none of that name; the message suggests the closest.
        """
        check_choice("MazeLevel.from_name got name", name, [*TEST_MAZES])
        return cls.from_text(TEST_MAZES[name])

    def to_text(self) -> str:
        """Returns the picture that `from_text` reads. Not for use in `jit`."""
        picture = np.where(self.walls, "#", ".")
        for (x, y), character in ((self.goal, "G"), (self.agent, _AGENT[int(self.direction)])):
            picture[y, x] = character
        return "\n".join(map("".join, picture))


class Maze(SquareGrid):
    """Find the goal in a maze with walls anywhere, as in research on environment design.

    Mission: "get to the green goal square"
    Start: `num_walls` walls, each in any cell inside of the outer walls, so some of them coincide;
        then the agent in any empty cell, looking anywhere, and the goal in any other empty cell
    Terminates: at the goal
    Time limit: 250 steps

    Whether there is a way is not checked. The 60 walls are in 51 cells on average, and 85 % of such
    levels can be solved. `level(key)` returns a level, and `reset_to` starts in any `MazeLevel`.

    Levels are drawn as in jaxued and minimax, which leave the outer walls out of the size: 13 x 13.
    View and rewards are jaxued's. There, too, only the first three of the seven actions do
    something. Its agent stays in front of the goal that ends the episode, and it has one flag for
    ends and time limits. minimax and dcd test agents with `max_steps=450`.

    Source: M. Dennis et al., Emergent Complexity and Zero-shot Transfer via Unsupervised
        Environment Design, 2020
    """

    see_through_walls: bool = struct.static(True)
    agent_view_size: int = struct.static(5)  # width and height of the view, odd
    size: int = struct.static(15)  # columns and rows, including the outer walls
    num_walls: int = struct.static(60)  # cells to draw, with replacement

    mission = "get to the green goal square"
    has_objects = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer(ParameterError, "Maze got size", self.size, 4)
        check_integer(ParameterError, "Maze got num_walls", self.num_walls, 0)
        most = self._inner_size**2 - 2
        if self.num_walls > most:
            raise ParameterError(
                f"Maze got num_walls={self.num_walls}; with size={self.size}, at most {most} leave"
                " room for the agent and the goal."
            )

    @property
    def default_max_steps(self) -> int:
        return 250

    @property
    def _inner_size(self) -> int:
        return self.size - 2

    def level(self, key: chex.PRNGKey) -> MazeLevel:
        """Draws the maze in which `reset(key)` starts."""
        words = RandomStream(key).words((self.num_walls + 3,))
        walls = _draw_walls(words[3:], self._inner_size)
        rng = RandomStream(words[:3])
        agent = rng.cell(~walls)
        goal = rng.cell(~walls & ~at(walls, agent))
        level = MazeLevel(
            walls=walls,
            goal=jnp.stack(goal),
            agent=jnp.stack(agent),
            direction=rng.integer(0, 4),
        )
        # Without the barrier, XLA draws walls again for each of their uses.
        return jax.lax.optimization_barrier(level)

    def reset_to(self, level: Any) -> tuple[MiniGridState, TimeStep]:
        """Starts an episode in a `MazeLevel`, in the level of a key, or in a `Start`.

        Raises:
            ParameterError: the level is not one of this environment's size.
        """
        if not isinstance(level, MazeLevel):
            return super().reset_to(level)
        state = self._start(level)
        return state, TimeStep.first(self._observe(state))

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        return self._start(self.level(key))

    def _start(self, level: MazeLevel) -> MiniGridState:
        expected = self._inner_size, self._inner_size
        if level.walls.shape != expected:
            raise ParameterError(
                f"Maze(size={self.size}) got a level with walls of shape"
                f" {list(level.walls.shape)}; expected {list(expected)}.  The size counts the outer"
                " walls. For a batch of levels, use vector_env.reset_to(levels)."
            )
        grid = fill(filled(*expected), level.walls, cells.WALL)
        grid = fill(grid, _at(grid, level.agent), cells.EMPTY)
        grid = fill(grid, _at(grid, level.goal), cells.GOAL)
        grid = jnp.pad(grid, 1, constant_values=cells.WALL)
        x, y = level.agent + 1
        return self.make_state(grid, x, y, level.direction)


def mutate(level: MazeLevel, key: chex.PRNGKey, num_edits: int = 20) -> MazeLevel:
    """Returns a similar level, after some random edits, as ACCEL makes them.

    Each edit does one of three things, with equal probabilities: nothing; it turns a cell without
    goal and agent into a wall, or a wall into an empty cell; or it moves the goal to another empty
    cell. The agent stays. These are the edits of minimax.

    Args:
        level: the level.
        key: the source of random numbers.
        num_edits: their number, which must be static.
    """

    def edit(level: MazeLevel, words: jax.Array) -> tuple[MazeLevel, None]:
        walls, rng = level.walls, RandomStream(words)
        kind = rng.integer(0, 3)
        flips, moves = kind == 1, kind == 2
        taken = _at(walls, level.goal) | _at(walls, level.agent)
        allowed = ~taken & (flips | ~walls)
        place = rng.cell(allowed)
        is_there = at(walls, place) & allowed  # nowhere if no cell is allowed
        level = MazeLevel(
            walls=walls ^ (is_there & flips),
            goal=jnp.where(moves & is_there.any(), jnp.stack(place), level.goal),
            agent=level.agent,
            direction=level.direction,
        )
        return level, None

    return loops.scan(edit, level, RandomStream(key).words((num_edits, 2)))[0]


def shortest_path(level: MazeLevel) -> jax.Array:
    """Returns the least number of steps, turns included, to the goal: int32[], -1 without a way.

    An agent that takes them gets `1 - 0.9 * steps / max_steps`, the largest return of the level.

    Raises:
        ParameterError: the level has more than 32 columns.
    """
    width = level.walls.shape[-1]
    if width > 32:
        raise ParameterError(f"shortest_path got {width} columns; at most 32 fit into its words.")
    lanes = np.arange(width, dtype=np.uint32)
    goal, agent = _at(level.walls, level.goal), _at(level.walls, level.agent)
    # A bit for each cell, in a word for each row, uint32[H].
    goal, agent, free = (
        jnp.sum(region.astype(jnp.uint32) << lanes[None], axis=1, dtype=jnp.uint32)
        for region in (goal, agent, ~level.walls | goal | agent)
    )

    def grow(carry: Any) -> Any:
        steps, reached, *_ = carry  # words of each direction, uint32[4, H]
        right, down, left, up = reached
        down, up = jnp.pad(down, (1, 0))[:-1], jnp.pad(up, (0, 1))[1:]
        ahead = jnp.stack([right << 1, down, left >> 1, up]) & free[None]
        wider = reached | ahead | jnp.roll(reached, 1, axis=0) | jnp.roll(reached, -1, axis=0)
        return steps + 1, wider, (ahead & goal[None]).any(), (wider != reached).any()

    def goes_on(carry: Any) -> jax.Array:
        *_, is_at_goal, has_grown = carry
        return ~is_at_goal & has_grown

    looks = np.arange(4, dtype=np.int32)[:, None] == level.direction
    start = jnp.where(looks, agent[None], np.uint32(0))
    carry = jnp.int32(0), start, jnp.bool_(False), jnp.bool_(True)
    steps, _, is_at_goal, _ = loops.while_loop(goes_on, grow, carry)
    return jnp.where(is_at_goal, steps, -1)


def _at(grid: jax.Array, place: jax.Array) -> jax.Array:
    """Returns the region of the cell at a place, int32[2]."""
    return at(grid, (place[0], place[1]))


def _draw_walls(words: jax.Array, size: int) -> jax.Array:
    """Returns the cells that are drawn with replacement, one by each word: bool[size, size]."""
    index = prng.below(words, jnp.asarray(size**2), is_small=size < 2**8)
    # As bits of words, they take a thirtieth of the operations that flags would.
    bit = np.uint32(1) << (index & 31).astype(jnp.uint32)
    lane = np.arange(-(-(size**2) // 32), dtype=np.int32)
    drawn = jnp.where((index >> 5)[:, None] == lane[None], bit[:, None], np.uint32(0))
    packed = jax.lax.reduce(drawn, np.uint32(0), jax.lax.bitwise_or, (0,))
    flags = packed[:, None] >> np.arange(32, dtype=np.uint32)[None] & 1 == 1
    return flags.reshape(-1)[: size**2].reshape(size, size)
