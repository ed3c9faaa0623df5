"""Balls that move."""

import chex
import jax
import jax.numpy as jnp

from jaxenvs import spaces, struct
from jaxenvs.core import TimeStep
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.layout import RandomStream, at, empty, put, rectangle, walled
from jaxenvs.envs.minigrid.level import FORWARD, LEFT, MiniGridState, SquareGrid
from jaxenvs.errors import ParameterError

BALL = cells.make(cells.BALL, cells.BLUE)


@chex.dataclass(frozen=True)
class Obstacles:
    """The cells of the balls."""

    x: jax.Array  # int32[number]
    y: jax.Array  # int32[number]


class DynamicObstacles(SquareGrid):
    """Walk to the goal in the opposite corner without bumping into moving balls.

    Mission: "get to the green goal square"
    Action: int32[], left (0), right (1), forward (2)
    Reward: 1 - 0.9 * steps / time limit at the goal, -1 for bumping into something, otherwise 0
    Start: the agent in the upper left corner, looking right, or, if `agent_start_pos` is None, in
        any empty cell, looking anywhere; the goal in the lower right corner; the balls in any empty
        cells
    Terminates: at the goal, or after a step forward if a ball or a wall was in front of the agent
    Time limit: 4 * size**2 steps

    Before the agent acts, each ball moves to a random empty cell next to it, which may be diagonal,
    if there is one. In minigrid, which draws up to 101 cells for a ball, it stays with a
    probability of 7e-6 even if one cell is empty. There are at most `size / 2` balls, or
    `size / 2 + 1` if `n_obstacles` is not larger.
    """

    see_through_walls: bool = struct.static(True)
    agent_start_pos: tuple[int, int] | None = struct.static((1, 1))  # None for a random cell
    agent_start_dir: int = struct.static(0)  # right (0), down (1), left (2), up (3)
    n_obstacles: int = struct.static(4)  # number of balls

    mission = "get to the green goal square"
    has_objects = False
    failure_reward = -1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_obstacles < 1:
            raise ParameterError(
                f"DynamicObstacles got n_obstacles={self.n_obstacles}; it must be at least 1."
            )

    @property
    def default_max_steps(self) -> int:
        return 4 * self.size**2

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(3)

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        rng = RandomStream(key)
        grid = put(walled(self.size, self.size), (self.size - 2, self.size - 2), cells.GOAL)
        x, y, direction = *(self.agent_start_pos or (0, 0)), self.agent_start_dir
        if self.agent_start_pos is None:
            (x, y), direction = rng.cell(empty(grid)), rng.integer(0, 4)
        is_few = self.n_obstacles <= self.size / 2 + 1
        agent, places = at(grid, (x, y)), []
        for _ in range(self.n_obstacles if is_few else self.size // 2):
            grid, place = rng.put(grid, BALL, ~agent)
            places.append(place)
        columns, rows = (jnp.stack(entries) for entries in zip(*places, strict=True))
        return self.make_state(grid, x, y, direction, task=Obstacles(x=columns, y=rows))

    def draw(self, state: MiniGridState, key: chex.PRNGKey) -> Obstacles:
        """Draws the next cells of the balls."""
        rng, grid, places = RandomStream(key), state.grid, []
        agent = at(grid, (state.x, state.y))
        for i in range(len(state.task.x)):
            x, y = state.task.x[i], state.task.y[i]
            near = empty(grid) & rectangle(grid, x - 1, y - 1, 3, 3) & ~agent
            new_x, new_y = rng.cell(near)
            moves = near.any()
            new_x, new_y = jnp.where(moves, new_x, x), jnp.where(moves, new_y, y)
            grid = put(put(grid, (x, y), cells.EMPTY), (new_x, new_y), BALL)
            places.append((new_x, new_y))
        columns, rows = (jnp.stack(entries) for entries in zip(*places, strict=True))
        return Obstacles(x=columns, y=rows)

    def apply(
        self, state: MiniGridState, action: chex.Array, draws: Obstacles
    ) -> tuple[MiniGridState, TimeStep]:
        """Takes a step with the results of `draw`."""
        action = jnp.asarray(action, jnp.int32)
        action = jnp.where(action > FORWARD, LEFT, action)
        grid = state.grid
        for i in range(len(draws.x)):
            grid = put(grid, (state.task.x[i], state.task.y[i]), cells.EMPTY)
        for i in range(len(draws.x)):
            grid = put(grid, (draws.x[i], draws.y[i]), BALL)
        moved = state.replace(grid=grid, task=draws)  # pyright: ignore[reportAttributeAccessIssue]
        return self._finish(state, action, self.transition(moved, action))

    def step(
        self, state: MiniGridState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[MiniGridState, TimeStep]:
        return self.apply(state, action, self.draw(state, key))

    def outcome(
        self, before: MiniGridState, action: jax.Array, after: MiniGridState
    ) -> tuple[jax.Array, jax.Array]:
        success, _ = super().outcome(before, action, after)
        blocked = ~cells.is_in(
            cells.set_of(cells.EMPTY, cells.kind(cells.GOAL)), self.front_cell(before)
        )
        return success, (action == FORWARD) & blocked
