"""The levels of minigrid."""

import inspect
import itertools
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, ClassVar

import numpy as np
from minigrid import envs
from minigrid.core import world_object as objects
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX
from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.minigrid_env import MiniGridEnv

from benchmarks.oracles import Oracle
from benchmarks.oracles.minigrid_bot import Bot, Level, Objective
from benchmarks.oracles.minigrid_parts import parts_of_levels
from jaxenvs.core import Environment
from jaxenvs.envs.minigrid import Maze, MiniGrid, MiniGridState, cells, missions
from jaxenvs.envs.minigrid.dynamic_obstacles import Obstacles
from jaxenvs.envs.minigrid.go_to_door import GoTo
from jaxenvs.envs.minigrid.level import DONE, DROP, PICK_UP, STEPS_X, STEPS_Y, TOGGLE
from jaxenvs.envs.minigrid.memory import MemoryTask
from jaxenvs.envs.minigrid.put_near import PutNearTask

ENGINE = "minigrid_env.py:"  # the file of `MiniGridEnv`, in names of lines
SHARED = ("max_steps", "agent_view_size", "see_through_walls")  # parameters of all levels


class MiniGridOracle(Oracle):
    """A level of minigrid. Rewards must be equal as float32, everything else exactly."""

    package = "minigrid"
    tolerance = 0.0
    env: MiniGrid
    env_type: ClassVar[type[MiniGridEnv]]
    names: ClassVar[dict[str, str]] = {}  # of parameters that minigrid calls something else
    has_own_door: ClassVar[bool] = False  # whether the level refers to its doors as objects
    can_move_objects: ClassVar[bool] = True  # without failure
    # The cells that the agent must not enter, bool[H, W].
    avoid: ClassVar[Callable[[MiniGridState], np.ndarray] | None] = None

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        kind = self.reference_type()
        accepted = inspect.signature(kind.__init__).parameters
        named = {self.names.get(name, name): value for name, value in env.parameters.items()}
        options = {name: value for name, value in named.items() if name in accepted}
        self.reference: Any = kind(
            **{name: options[name] for name in options if name not in SHARED}
        )
        for name in SHARED:
            if named[name] is not None:
                setattr(self.reference, name, named[name])
        self.reference.reset(seed=seed)
        self.truncated = False

    def reference_type(self) -> type[MiniGridEnv]:
        """Returns minigrid's class for `env`."""
        return self.env_type

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        used: list[Any] = [type(self.reference).step, MiniGridEnv.step, MiniGridEnv.get_view_exts]
        used += [Grid.slice, Grid.rotate_left, Grid.encode]
        if not self.env.see_through_walls:
            used.append(Grid.process_vis)
        if self.env.has_objects:
            used += [objects.Box.toggle, objects.WorldObj.toggle]
            used += [] if self.has_own_door else [objects.Door.toggle, objects.Door.encode]
        return tuple(dict.fromkeys(used))

    @property
    def unreachable(self) -> tuple[str, ...]:
        lines = ("self.render()", "raise ValueError", 'f"', "assert ", "vis_mask = np.ones")
        if not self.env.has_objects:
            lines = (*lines, "self.carrying", "self.grid.set(fwd_pos")
        if type(self.env).outcome is not MiniGrid.outcome:  # there is neither a goal nor lava
            lines = (*lines, f"{ENGINE} terminated = True", f"{ENGINE} reward = self._reward()")
        return lines

    def reset(self) -> Any:
        self.truncated = False
        return self._observe(self.reference.reset()[0])

    def step(self, action: int | np.ndarray) -> tuple[Any, float, bool]:
        observation, reward, terminated, self.truncated, _ = self.reference.step(int(action))
        return self._observe(observation), float(np.float32(reward)), bool(terminated)

    def _observe(self, observation: Any) -> Any:
        return {
            "image": observation["image"],
            "direction": np.int32(observation["direction"]),
            "mission": self._tokens().astype(np.int32),
        }

    def _tokens(self) -> np.ndarray:
        return to_tokens(self.env, self.reference.mission)

    def get_state(self) -> MiniGridState:
        reference, dtype = self.reference, self.env.cell_type
        grid = np.array([to_cell(thing) for thing in reference.grid.grid], dtype)
        return MiniGridState(
            grid=grid.reshape(reference.height, reference.width),
            x=np.int32(reference.agent_pos[0]),
            y=np.int32(reference.agent_pos[1]),
            direction=np.int32(reference.agent_dir),
            carrying=dtype(to_cell(reference.carrying)),
            step_count=np.int32(reference.step_count),
            mission=self._tokens() if "{}" in self.env.mission else (),
            task=self.get_task(),
        )

    def set_state(self, state: MiniGridState) -> None:
        reference = self.reference
        grid = np.asarray(state.grid)
        for index, cell in enumerate(grid.ravel().tolist()):
            reference.grid.grid[index] = thing = to_object(cell)
            if thing is not None:
                thing.cur_pos = index % grid.shape[1], index // grid.shape[1]
        reference.agent_pos = int(state.x), int(state.y)
        reference.agent_dir = int(state.direction)
        reference.carrying = to_object(int(state.carrying))
        reference.step_count = int(state.step_count)
        if "{}" in self.env.mission:
            reference.mission = self.env.decode_mission(state.mission)
        self.set_task(state)

    def get_task(self) -> Any:
        """Returns `task` of our state."""
        return ()

    def set_task(self, state: MiniGridState) -> None:
        """Sets the reference's attributes that `task` stands for."""

    def objective(self, state: MiniGridState) -> Objective:
        """Returns what a bot should do next."""
        return Objective(cells.kind(state.grid) == cells.kind(cells.GOAL))

    @property
    def level(self) -> Level:
        """The facts about the level that a bot needs."""
        return Level(self.objective, self.can_move_objects, self.avoid)

    def player(self) -> Callable[[Any], Any] | None:
        return Bot(self.level)

    def unusual_actions(self) -> range:
        return range(7)

    def unusual_states(self) -> Iterator[MiniGridState]:
        """Yields states with each kind of object in front of the agent and each in its hand."""
        self.reset()
        start = self.get_state()
        for front, hand in self._situations(start):
            for x, y, direction in self._poses(start)[:2]:
                grid = start.grid.copy()
                grid[y + STEPS_Y[direction], x + STEPS_X[direction]] = front
                yield start.replace(
                    grid=grid,
                    x=np.int32(x),
                    y=np.int32(y),
                    direction=np.int32(direction),
                    carrying=self.env.cell_type(hand),
                    step_count=self.some_time(),
                )

    def some_time(self) -> np.int32:
        """Returns a number of steps, often near the time limit."""
        limit = self.reference.max_steps
        return np.int32(self.random.choice([limit // 2, limit - 1]))

    def _situations(self, start: MiniGridState) -> Iterator[tuple[int, int]]:
        """Yields cells in front and in the hand of the agent."""
        fronts, hands = [cells.EMPTY, cells.WALL], [cells.EMPTY]
        if type(self.env).outcome is MiniGrid.outcome:
            fronts += [cells.GOAL, cells.LAVA]
        if self.env.has_objects:
            # A level has a single object of the color and kind that the agent must pick up.
            taken = cells.color(start.task) if isinstance(start.task, np.uint8) else None
            c, d, *_ = (n for n in (cells.GREEN, cells.PURPLE, cells.YELLOW) if n != taken)
            key, ball, box = (cells.make(kind, c) for kind in (cells.KEY, cells.BALL, cells.BOX))
            fronts += [key, ball, box]
            hands += [key, cells.make(cells.KEY, d), ball, box]
            if not self.has_own_door:
                doors = cells.OPEN_DOOR, cells.CLOSED_DOOR, cells.LOCKED_DOOR
                fronts += [cells.make(kind, c) for kind in doors]
            if self.env.cell_type is not np.uint8:
                full = [cells.make(cells.BOX, c, inside) for inside in (key, ball, box)]
                fronts, hands = fronts + full, hands + full[:1]
        yield from itertools.product(fronts, hands)

    def _poses(self, state: MiniGridState) -> list[tuple[int, int, int]]:
        """Returns poses, in random order, that face a cell whose object may be replaced."""
        height, width = state.grid.shape
        inner = itertools.product(range(1, width - 1), range(1, height - 1), range(4))
        found = []
        for x, y, direction in inner:
            i, j = x + STEPS_X[direction], y + STEPS_Y[direction]
            is_inside = 0 < i < width - 1 and 0 < j < height - 1
            is_free = state.grid[j, i] == cells.EMPTY or not self.has_own_door
            if state.grid[y, x] == cells.EMPTY and is_inside and is_free:
                found.append((x, y, direction))
        return [found[i] for i in self.random.permutation(len(found))]

    def parts(self, ours: MiniGridState, theirs: MiniGridState) -> list[tuple[Any, Any]]:
        return parts_of_levels(ours, theirs, self.random)


def to_tokens(env: MiniGrid, mission: str) -> np.ndarray:
    """Returns the numbers of a mission's words, padded: uint8[mission_length]."""
    words = [missions.WORDS.index(word) for word in missions.split(mission)]
    return np.array(words + [0] * (env.mission_length - len(words)), np.uint8)


def to_cell(thing: Any) -> int:
    """Returns our cell for an object of minigrid."""
    if thing is None:
        return cells.EMPTY
    kind = OBJECT_TO_IDX[thing.type]
    if kind == cells.OPEN_DOOR and not thing.is_open:
        kind = cells.LOCKED_DOOR if thing.is_locked else cells.CLOSED_DOOR
    inside = 0 if thing.contains is None else to_cell(thing.contains) & 0xFF
    return cells.make(kind, COLOR_TO_IDX[thing.color], inside)


def to_object(cell: int) -> Any:
    """Returns minigrid's object for a cell of ours."""
    kind, color = cells.kind(cell), cells.COLORS[cells.color(cell)]
    if kind in (cells.OPEN_DOOR, cells.CLOSED_DOOR, cells.LOCKED_DOOR):
        return objects.Door(color, kind == cells.OPEN_DOOR, kind == cells.LOCKED_DOOR)
    if kind == cells.BOX:
        return objects.Box(color, to_object(cell >> 8) if cell >> 8 else None)
    return objects.WorldObj.decode(kind, cells.color(cell), 0)


class CrossingOracle(MiniGridOracle):
    env_type = envs.CrossingEnv


class DistShiftOracle(MiniGridOracle):
    env_type = envs.DistShiftEnv
    variants = ({"agent_start_pos": None, "see_through_walls": False},)


class DoorKeyOracle(MiniGridOracle):
    env_type = envs.DoorKeyEnv


class EmptyOracle(MiniGridOracle):
    env_type = envs.EmptyEnv


class FourRoomsOracle(MiniGridOracle):
    env_type = envs.FourRoomsEnv
    variants = ({"agent_pos": (9, 3), "goal_pos": (15, 9), "agent_view_size": 9},)


class LavaGapOracle(MiniGridOracle):
    env_type = envs.LavaGapEnv


class LockedRoomOracle(MiniGridOracle):
    env_type = envs.LockedRoomEnv


class MazeEnv(MiniGridEnv):
    """minigrid's rules in a maze: walls, then the agent, then the goal, as jaxued draws them."""

    def __init__(self, size: int, num_walls: int) -> None:
        self.num_walls = num_walls
        super().__init__(MissionSpace(lambda: Maze.mission), grid_size=size, max_steps=250)

    def _gen_grid(self, width: int, height: int) -> None:
        self.grid = Grid(width, height)
        self.grid.wall_rect(0, 0, width, height)
        for _ in range(self.num_walls):
            x, y = self._rand_int(1, width - 1), self._rand_int(1, height - 1)
            self.put_obj(objects.Wall(), x, y)
        self.place_agent()
        self.place_obj(objects.Goal())


class MazeOracle(MiniGridOracle):
    note = "with levels drawn as in jaxued"
    env_type = MazeEnv
    variants = ({"size": 7, "num_walls": 9, "see_through_walls": False, "agent_view_size": 7},)


class MultiRoomOracle(MiniGridOracle):
    env_type = envs.MultiRoomEnv
    names: ClassVar = {
        "min_num_rooms": "minNumRooms",
        "max_num_rooms": "maxNumRooms",
        "max_room_size": "maxRoomSize",
    }
    variants = ({"min_num_rooms": 1, "max_num_rooms": 3},)


class PlaygroundOracle(MiniGridOracle):
    """A level without a task."""

    env_type = envs.PlaygroundEnv

    def player(self) -> None:
        return None


class DynamicObstaclesOracle(MiniGridOracle):
    env_type = envs.DynamicObstaclesEnv
    # Nine are too many for most grids. Three can shut in one of them in the smallest grid.
    variants = ({"n_obstacles": 9}, {"n_obstacles": 3, "agent_start_pos": (2, 2)})
    can_move_objects = False

    def get_task(self) -> Obstacles:
        places = np.array([ball.cur_pos for ball in self.reference.obstacles], np.int32)
        return Obstacles(x=places[:, 0], y=places[:, 1])

    get_draws = get_task

    @property
    def unreachable(self) -> tuple[str, ...]:
        # The other actions are replaced by a turn.
        lines = "actions.pickup", "can_pickup", "actions.drop", "actions.toggle", "if fwd_cell:"
        return (*super().unreachable, *lines, "fwd_cell.toggle", "actions.done", f"{ENGINE} pass")

    def set_task(self, state: MiniGridState) -> None:
        grid = self.reference.grid
        places = zip(state.task.x.tolist(), state.task.y.tolist(), strict=True)
        self.reference.obstacles = [grid.get(x, y) for x, y in places]

    def unusual_states(self) -> Iterator[MiniGridState]:
        """Yields states with balls around the agent or around another ball, or a wall ahead."""
        for _ in range(10):
            self.reset()
            state = self.get_state()
            inner = [*itertools.product(range(1, self.env.size - 1), repeat=2)][:-1]
            for is_corner in (False, True):
                x, y = inner[0] if is_corner else inner[self.random.integers(len(inner))]
                places = sorted(inner, key=lambda p: max(abs(p[0] - x), abs(p[1] - y)))
                agent = places.pop(is_corner)
                places = np.array(places[: len(state.task.x)], np.int32)
                grid = np.where(cells.kind(state.grid) == cells.BALL, cells.EMPTY, state.grid)
                grid = grid.astype(np.uint8)
                grid[places[:, 1], places[:, 0]] = cells.make(cells.BALL, cells.BLUE)
                yield state.replace(
                    grid=grid,
                    x=np.int32(agent[0]),
                    y=np.int32(agent[1]),
                    direction=np.int32(self.random.integers(4)),
                    step_count=self.some_time(),
                    task=Obstacles(x=places[:, 0], y=places[:, 1]),
                )


class FetchOracle(MiniGridOracle):
    env_type = envs.FetchEnv
    names: ClassVar = {"num_objects": "numObjs"}
    can_move_objects = False

    def get_task(self) -> np.uint8:
        return _look(self.reference.targetType, self.reference.targetColor)

    def set_task(self, state: MiniGridState) -> None:
        kind = {cells.KEY: "key", cells.BALL: "ball"}[int(cells.kind(state.task))]
        self.reference.targetType = kind
        self.reference.targetColor = cells.COLORS[cells.color(state.task)]

    def objective(self, state: MiniGridState) -> Objective:
        return Objective(state.grid & 0x7F == state.task, PICK_UP, True)


class GoToOracle(MiniGridOracle):
    """A level in which the agent says that it is next to its target."""

    can_move_objects = False

    def get_task(self) -> GoTo:
        x, y = self.reference.target_pos
        return GoTo(x=np.int32(x), y=np.int32(y))

    def set_task(self, state: MiniGridState) -> None:
        self.reference.target_pos = int(state.task.x), int(state.task.y)

    def objective(self, state: MiniGridState) -> Objective:
        rows, columns = np.indices(state.grid.shape)
        return Objective(abs(columns - state.task.x) + abs(rows - state.task.y) == 1, DONE)


class GoToDoorOracle(GoToOracle):
    env_type = envs.GoToDoorEnv

    @staticmethod
    def avoid(state: MiniGridState) -> np.ndarray:
        return cells.kind(state.grid) == cells.CLOSED_DOOR


class GoToObjectOracle(GoToOracle):
    env_type = envs.GoToObjectEnv
    names: ClassVar = {"num_objects": "numObjs"}


class MemoryOracle(MiniGridOracle):
    env_type = envs.MemoryEnv

    def get_task(self) -> MemoryTask:
        (x, success_y), (_, failure_y) = self.reference.success_pos, self.reference.failure_pos
        return MemoryTask(
            x=np.int32(x), success_y=np.int32(success_y), failure_y=np.int32(failure_y)
        )

    def set_task(self, state: MiniGridState) -> None:
        task = state.task
        self.reference.success_pos = int(task.x), int(task.success_y)
        self.reference.failure_pos = int(task.x), int(task.failure_y)

    @property
    def unreachable(self) -> tuple[str, ...]:
        # The action to pick up an object is replaced.
        lines = "can_pickup", "self.carrying is None", "self.carrying = fwd_cell", "cur_pos = np"
        return (*super().unreachable, *lines, "fwd_pos[1], None)")

    def objective(self, state: MiniGridState) -> Objective:
        return Objective(_at(state, state.task.x, state.task.success_y))

    @staticmethod
    def avoid(state: MiniGridState) -> np.ndarray:
        return _at(state, state.task.x, state.task.failure_y)


class PutNearOracle(MiniGridOracle):
    env_type = envs.PutNearEnv
    names: ClassVar = {"num_objects": "numObjs"}
    can_move_objects = False

    def get_task(self) -> PutNearTask:
        x, y = self.reference.target_pos
        move = _look(self.reference.move_type, self.reference.moveColor)
        return PutNearTask(move=move, x=np.int32(x), y=np.int32(y))

    def set_task(self, state: MiniGridState) -> None:
        task = state.task
        thing = to_object(int(task.move))
        self.reference.move_type, self.reference.moveColor = thing.type, thing.color
        self.reference.target_pos = int(task.x), int(task.y)

    def objective(self, state: MiniGridState) -> Objective:
        if state.carrying == cells.EMPTY:
            return Objective(state.grid & 0x7F == state.task.move, PICK_UP, True)
        rows, columns = np.indices(state.grid.shape)
        distance = np.maximum(abs(columns - state.task.x), abs(rows - state.task.y))
        return Objective((state.grid == cells.EMPTY) & (distance <= 1), DROP, True)


class RedBlueDoorsOracle(MiniGridOracle):
    env_type = envs.RedBlueDoorEnv
    has_own_door = True

    def set_task(self, state: MiniGridState) -> None:
        for thing in self.reference.grid.grid:
            if isinstance(thing, objects.Door):
                setattr(self.reference, f"{thing.color}_door", thing)

    def unusual_states(self) -> Iterator[MiniGridState]:
        """Yields such states, and the agent next to each door with each of them open or not."""
        yield from super().unusual_states()
        kinds = cells.CLOSED_DOOR, cells.OPEN_DOOR
        for red, blue, is_blue in itertools.product(kinds, kinds, (False, True)):
            self.reset()
            state = self.get_state()
            grid, found = state.grid.copy(), state.grid & 0x7F
            doors = [cells.make(kinds[0], color) for color in (cells.RED, cells.BLUE)]
            y, x = (int(index[0]) for index in np.nonzero(found == doors[is_blue]))
            for door, kind in zip(doors, (red, blue), strict=True):
                grid[found == door] = kind | door & 0x70
            yield state.replace(
                grid=grid,
                x=np.int32(x - 1 if is_blue else x + 1),
                y=np.int32(y),
                direction=np.int32(0 if is_blue else 2),
            )

    def objective(self, state: MiniGridState) -> Objective:
        red = state.grid == cells.make(cells.CLOSED_DOOR, cells.RED)
        blue = state.grid == cells.make(cells.CLOSED_DOOR, cells.BLUE)
        return Objective(red if red.any() else blue, TOGGLE, True)


class UnlockOracle(MiniGridOracle):
    env_type = envs.UnlockEnv
    has_own_door = True

    def set_task(self, state: MiniGridState) -> None:
        things = self.reference.grid.grid
        self.reference.door = next(thing for thing in things if isinstance(thing, objects.Door))

    def objective(self, state: MiniGridState) -> Objective:
        return Objective(cells.kind(state.grid) == cells.LOCKED_DOOR, TOGGLE, True)


class PickUpOracle(MiniGridOracle):
    """A level in which the agent picks up an object that no other one looks like."""

    def get_task(self) -> np.uint8:
        return np.uint8(to_cell(self.reference.obj) & 0x7F)

    def set_task(self, state: MiniGridState) -> None:
        task = int(state.task)
        things = (*self.reference.grid.grid, self.reference.carrying)
        found = [thing for thing in things if to_cell(thing) & 0x7F == task]
        self.reference.obj = found[0] if found else to_object(task)

    def objective(self, state: MiniGridState) -> Objective:
        return Objective(state.grid & 0x7F == state.task, PICK_UP, True)


class KeyCorridorOracle(PickUpOracle):
    env_type = envs.KeyCorridorEnv
    variants = ({"obj_type": "box", "agent_view_size": 5},)


class UnlockPickupOracle(PickUpOracle):
    env_type = envs.UnlockPickupEnv


class BlockedUnlockPickupOracle(PickUpOracle):
    env_type = envs.BlockedUnlockPickupEnv


class ObstructedMazeDoorOracle(PickUpOracle):
    env_type = envs.ObstructedMaze_1Dlhb


class ObstructedMazeOracle(PickUpOracle):
    def reference_type(self) -> type[MiniGridEnv]:
        return envs.ObstructedMaze_Full_V1 if self.env.keys_last else envs.ObstructedMaze_Full


def _look(kind: str, color: str) -> np.uint8:
    return np.uint8(cells.make(OBJECT_TO_IDX[kind], COLOR_TO_IDX[color]))


def _at(state: MiniGridState, x: Any, y: Any) -> np.ndarray:
    rows, columns = np.indices(state.grid.shape)
    return (columns == x) & (rows == y)
