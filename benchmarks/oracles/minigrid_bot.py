"""A bot that solves MiniGrid's levels. It knows the whole state."""

import heapq
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxenvs.envs.minigrid import MiniGridState, cells
from jaxenvs.envs.minigrid.level import (
    DROP,
    FORWARD,
    LEFT,
    PICK_UP,
    RIGHT,
    STEPS_X,
    STEPS_Y,
    TOGGLE,
)

Pose = tuple[int, int, int]  # column, row, direction
AROUND = tuple(zip(STEPS_X.tolist(), STEPS_Y.tolist(), strict=True))
MOVABLE = (cells.KEY, cells.BALL, cells.BOX)
NEVER, NO_KEY, BLOCKED = np.inf, 1_000, 100  # costs of entering a cell, in steps


class Objective(NamedTuple):
    """The next goal: enter one of some cells, or act in or in front of one of them."""

    cells: np.ndarray  # bool[H, W]
    action: int | None = None  # None to enter a cell
    is_facing: bool = False  # whether the agent acts on the cell in front


class Level(NamedTuple):
    """The facts about a level that the bot needs."""

    objective: Callable[[MiniGridState], Objective]
    can_move_objects: bool = True  # whether the agent may pick up or toggle objects in its way
    avoid: Callable[[MiniGridState], np.ndarray] | None = None  # cells not to enter, bool[H, W]


class Bot:
    """A policy for one episode, a function from states to actions.

    It walks by the cheapest way and ignores, at a cost, obstacles that it can remove. It removes
    the first one on its way: it unlocks a door after it got the key, or moves an object. Then it
    plans again.
    """

    def __init__(self, level: Level) -> None:
        self.level = level
        self.plan: list[tuple[Pose, int]] = []  # poses and actions, the next one at the end
        self.world: Any = None

    def __call__(self, state: MiniGridState) -> int:
        pose = int(state.x), int(state.y), int(state.direction)
        world = np.asarray(state.grid).tobytes(), int(state.carrying)
        if not self.plan or self.plan[-1][0] != pose or world != self.world:
            self.world = world
            avoid = None if self.level.avoid is None else self.level.avoid(state)
            planner = _Planner(np.asarray(state.grid), int(state.carrying), pose, self.level, avoid)
            self.plan = planner.plan(self.level.objective(state))[::-1]
        return self.plan.pop()[1] if self.plan else LEFT


class _Planner:
    def __init__(
        self, grid: np.ndarray, hand: int, pose: Pose, level: Level, avoid: np.ndarray | None
    ) -> None:
        self.grid, self.hand, self.pose, self.level, self.avoid = grid, hand, pose, level, avoid
        self.kinds, self.looks = cells.kind(grid), grid & 0x7F

    def plan(
        self,
        objective: Objective,
        later: tuple[Objective, ...] = (),
        closed: frozenset[tuple[int, int]] = frozenset(),
    ) -> list[tuple[Pose, int]]:
        """Returns poses and actions up to the first action that changes the grid, [] if none.

        Args:
            objective: what to do.
            later: what to do afterward; nothing should be put in the way there.
            closed: locked doors, (x, y), that are not to be used.
        """
        costs, ways = self._search(self.grid, self.hand, self.pose, closed)
        ends = [pose for pose in costs if self._is_end(pose, objective)]
        if not ends:
            return []
        end, plan, goals = min(ends, key=costs.__getitem__), [], (objective, *later)
        way = []
        while end != self.pose:
            way.append(end)
            end = ways[end]
        pose = self.pose
        for following in way[::-1]:
            x, y, direction = following
            if direction != pose[2]:
                plan.append((pose, RIGHT if (direction - pose[2]) % 4 == 1 else LEFT))
            else:
                kind = self.kinds[y, x]
                if kind in (cells.CLOSED_DOOR, cells.LOCKED_DOOR):
                    if kind == cells.LOCKED_DOOR and not self._opens(self.grid[y, x]):
                        return self._get_key(self.grid[y, x], goals, closed | {(x, y)})
                    return [*plan, (pose, TOGGLE)]
                if kind == cells.BOX:
                    return [*plan, (pose, TOGGLE)]
                if kind in MOVABLE:
                    if self.hand == cells.EMPTY:
                        return [*plan, (pose, PICK_UP)]
                    return plan or self._put_away(goals)
                plan.append((pose, FORWARD))
            pose = following
        if objective.action is None:
            return plan
        x, y = _front(pose)
        is_locked = objective.action == TOGGLE and self.kinds[y, x] == cells.LOCKED_DOOR
        if is_locked and not self._opens(self.grid[y, x]):
            return self._get_key(self.grid[y, x], goals, closed | {(x, y)})
        if objective.action == PICK_UP and self.hand != cells.EMPTY:
            return plan or self._put_away(goals)
        return [*plan, (pose, objective.action)]

    def _get_key(
        self, door: Any, goals: tuple[Objective, ...], closed: frozenset[tuple[int, int]]
    ) -> list[tuple[Pose, int]]:
        key = cells.make(cells.KEY, cells.color(int(door)))
        if (self.looks == key).any():
            return self.plan(Objective(self.looks == key, PICK_UP, True), goals, closed)
        if self.hand >> 8 & 0xFF == key:
            return self._put_away(goals)
        boxes = (self.kinds == cells.BOX) & (self.grid.astype(int) >> 8 & 0xFF == key)
        return self.plan(Objective(boxes, TOGGLE, True), goals, closed)

    def _put_away(self, goals: tuple[Objective, ...]) -> list[tuple[Pose, int]]:
        """Plans to drop what the agent carries, near and where it is not in the way."""
        costs, ways = self._search(self.grid, self.hand, self.pose, frozenset())
        options = []
        for pose in sorted(costs, key=costs.__getitem__):
            x, y = _front(pose)
            if costs[pose] >= BLOCKED or len(options) == 12:
                break
            if self.kinds[y, x] != cells.EMPTY:
                continue
            grid = self.grid.copy()
            grid[y, x] = self.hand
            then, _ = self._search(grid, cells.EMPTY, pose, frozenset())
            rest = sum(
                min((then[end] for end in then if self._is_end(end, goal)), default=10 * NO_KEY)
                for goal in goals
            )
            options.append((costs[pose] + rest, pose))
        if not options:
            return []
        pose = min(options)[1]
        plan = [(pose, DROP)]
        while pose != self.pose:
            before = ways[pose]
            turn = (pose[2] - before[2]) % 4
            plan.append((before, FORWARD if turn == 0 else RIGHT if turn == 1 else LEFT))
            pose = before
        return plan[::-1]

    def _is_end(self, pose: Pose, objective: Objective) -> bool:
        x, y = _front(pose) if objective.is_facing else pose[:2]
        return bool(objective.cells[y, x]) and self.kinds[pose[1], pose[0]] not in MOVABLE

    def _search(
        self, grid: np.ndarray, hand: int, start: Pose, closed: frozenset[tuple[int, int]]
    ) -> tuple[dict[Pose, float], dict[Pose, Pose]]:
        """Returns the costs of poses, and the pose before each on the cheapest way to it."""
        enter = self._enter_costs(grid, hand, closed)
        costs, ways, queue = {start: 0.0}, {}, [(0.0, start)]
        while queue:
            cost, pose = heapq.heappop(queue)
            if cost > costs[pose]:
                continue
            x, y, direction = pose
            ahead = _front(pose)
            for following, extra in (
                ((x, y, (direction + 1) % 4), 0),
                ((x, y, (direction - 1) % 4), 0),
                ((*ahead, direction), enter[ahead[1]][ahead[0]]),
            ):
                total = cost + 1 + extra
                if total < costs.get(following, NEVER):
                    costs[following], ways[following] = total, pose
                    heapq.heappush(queue, (total, following))
        return costs, ways

    def _enter_costs(
        self, grid: np.ndarray, hand: int, closed: frozenset[tuple[int, int]]
    ) -> list[list[float]]:
        kinds = cells.kind(grid)
        costs = np.full(16, NEVER)
        costs[[cells.EMPTY, cells.FLOOR, cells.OPEN_DOOR, cells.kind(cells.GOAL)]] = 0
        costs[cells.CLOSED_DOOR], costs[cells.LOCKED_DOOR] = 1, NO_KEY
        if self.level.can_move_objects:
            costs[list(MOVABLE)] = BLOCKED
        enter = costs[kinds]
        if cells.kind(hand) == cells.KEY:
            enter[(kinds == cells.LOCKED_DOOR) & (cells.color(grid) == cells.color(hand))] = 1
        enter[[0, -1]], enter[:, [0, -1]] = NEVER, NEVER
        for x, y in closed:
            enter[y, x] = NEVER
        if self.avoid is not None:
            enter[self.avoid] = NEVER
        return enter.tolist()

    def _opens(self, door: Any) -> bool:
        return cells.kind(self.hand) == cells.KEY and cells.color(self.hand) == cells.color(door)


def _front(pose: Pose) -> tuple[int, int]:
    x, y, direction = pose
    return x + AROUND[direction][0], y + AROUND[direction][1]


def is_solvable(level: Level, state: MiniGridState) -> bool:
    """Returns whether the agent can meet its objective, if it moves all objects out of its way.

    Locked doors open once the agent can get to their key, which may be in a box.
    """
    grid, objective = np.asarray(state.grid), level.objective(state)
    kinds, passable = cells.kind(grid), [cells.EMPTY, cells.FLOOR, cells.kind(cells.GOAL)]
    passable += [cells.OPEN_DOOR, cells.CLOSED_DOOR]
    passable += MOVABLE if level.can_move_objects else ()
    opened = np.isin(kinds, passable)
    if level.avoid is not None:
        opened &= ~level.avoid(state)
    region = np.zeros(grid.shape, bool)
    region[state.y, state.x] = True
    while True:
        wide = _widen(region)
        found = {int(cell) & 0x7F for cell in grid[wide]}
        found |= {int(cell) >> 8 & 0x7F for cell in grid[wide & (kinds == cells.BOX)]}
        found |= {int(state.carrying) & 0x7F}
        locked = wide & (kinds == cells.LOCKED_DOOR)
        has_key = [cells.make(cells.KEY, color) in found for color in range(8)]
        opened |= locked & np.array(has_key)[cells.color(grid)]
        wider = region | wide & opened
        if (wider == region).all():
            break
        region = wider
    reached = _widen(region) & (kinds != cells.LOCKED_DOOR) if objective.is_facing else region
    return bool(((reached | region) & objective.cells).any())


def _widen(region: np.ndarray) -> np.ndarray:
    wide = np.pad(region, 1)
    beside = wide[1:-1, 2:] | wide[1:-1, :-2]
    return region | beside | wide[2:, 1:-1] | wide[:-2, 1:-1]
