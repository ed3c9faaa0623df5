"""BabyAI's levels in minigrid."""

import contextlib
import io
from types import FunctionType
from typing import Any

import numpy as np
from minigrid.core.grid import Grid
from minigrid.envs import babyai
from minigrid.envs.babyai.core import verifier
from minigrid.envs.babyai.core.roomgrid_level import RejectSampling, RoomGridLevel
from minigrid.minigrid_env import MiniGridEnv

from benchmarks.oracles.minigrid import MiniGridOracle, to_cell
from benchmarks.oracles.minigrid_bot import Objective
from jaxenvs.envs.minigrid import MiniGridState, cells
from jaxenvs.envs.minigrid.babyai import instructions
from jaxenvs.envs.minigrid.babyai.instructions import MARKS, PLACES, Progress
from jaxenvs.envs.minigrid.level import DONE, DROP, PICK_UP, TOGGLE

VERBS = {
    verifier.GoToInstr: instructions.GO_TO,
    verifier.OpenInstr: instructions.OPEN,
    verifier.PickupInstr: instructions.PICK_UP_OBJECT,
    verifier.PutNextInstr: instructions.PUT_NEXT,
}


class BoundedLevel(RoomGridLevel):
    """A level that is drawn again if the agent's room has no suitable cell.

    minigrid looks for one without end if every free cell of the room faces an object or a door.
    """

    tries = 0

    def place_agent(self, *args: Any, **kwargs: Any) -> Any:
        self.tries = 0
        return super().place_agent(*args, **kwargs)

    def place_obj(self, obj: Any, *args: Any, **kwargs: Any) -> Any:
        if obj is None:  # the agent
            self.tries += 1
            if self.tries > 1_000:
                raise RejectSampling("no cell for the agent")
        return super().place_obj(obj, *args, **kwargs)


class BabyAIOracle(MiniGridOracle):
    """A level of BabyAI. Draws its levels until minigrid accepts one, without its messages."""

    has_own_door = True

    def reference_type(self) -> type[MiniGridEnv]:
        level = getattr(babyai, type(self.env).__name__)
        return type(level.__name__, (BoundedLevel, level), {})

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        kinds: list[Any] = [type(part) for part, *_ in self._actions() if part is not None]
        kinds.append(type(self.reference.instrs))
        checks = [getattr(kind, "verify_action", kind.verify) for kind in kinds]
        return tuple(
            dict.fromkeys([RoomGridLevel.step, MiniGridEnv.step, Grid.process_vis, *checks])
        )

    @property
    def unreachable(self) -> tuple[str, ...]:
        # Levels differ in the objects that they have and in the actions of their missions.
        return ("",)

    is_done = False  # minigrid does not record that a single action is done

    def reset(self) -> Any:
        self.is_done = False
        with contextlib.redirect_stdout(io.StringIO()):
            super().reset()
        # If the agent carries something from the start, minigrid shows it on the floor at first.
        return self._observe(self.reference.gen_obs())

    def step(self, action: int | np.ndarray) -> tuple[Any, float, bool]:
        observation, reward, terminated = super().step(action)
        self.is_done = terminated and reward > 0
        return observation, reward, terminated

    def unusual_states(self) -> tuple[()]:
        """Returns none, for objects of a mission cannot be told by a state."""
        return ()

    def get_state(self) -> MiniGridState:
        marks, places = self._marks()
        reference, shape = self.reference, (self.reference.height, self.reference.width)
        things = [to_cell(thing) | marks.get(id(thing), 0) for thing in reference.grid.grid]
        carrying = to_cell(reference.carrying) | marks.get(id(reference.carrying), 0)
        return MiniGridState(
            grid=np.array(things, np.uint32).reshape(shape) | places,
            x=np.int32(reference.agent_pos[0]),
            y=np.int32(reference.agent_pos[1]),
            direction=np.int32(reference.agent_dir),
            carrying=np.uint32(carrying),
            step_count=np.int32(reference.step_count),
            mission=self._tokens(),
            task=self.get_task(),
        )

    def _marks(self) -> tuple[dict[int, int], np.ndarray]:
        """Returns the marks of objects, by their identity, and the marks of places."""
        marks: dict[int, int] = {}
        places = np.zeros((self.reference.height, self.reference.width), np.uint32)
        for k, (part, *_) in enumerate(self._actions()):
            if part is None:
                continue
            puts = isinstance(part, verifier.PutNextInstr)
            for bit, what in enumerate([part.desc_move, part.desc_fixed] if puts else [part.desc]):
                for thing in what.obj_set:
                    marks[id(thing)] = marks.get(id(thing), 0) | 1 << MARKS + 2 * k + bit
                for x, y in what.obj_poss:
                    places[y, x] |= np.uint32(1 << PLACES + 2 * k + bit)
        return marks, places

    def _actions(self) -> list[tuple[Any, int, bool]]:
        """Returns instruction, stage, and whether it is done, for each of our actions."""
        number, whole = self.env.num_actions, self.reference.instrs  # pyright: ignore[reportAttributeAccessIssue]
        groups = [(whole, 0, False)]
        if isinstance(whole, verifier.BeforeInstr | verifier.AfterInstr):
            is_after = isinstance(whole, verifier.AfterInstr)
            parts = (whole.instr_a, whole.a_done), (whole.instr_b, whole.b_done)
            groups = [
                (part, i ^ is_after, done == "success") for i, (part, done) in enumerate(parts)
            ]
        found: list[tuple[Any, int, bool]] = []
        for part, stage, done in groups:
            rows = [(part, stage, done)]
            if isinstance(part, verifier.AndInstr):
                pair = (part.instr_a, part.a_done), (part.instr_b, part.b_done)
                rows = [(x, stage, done or is_done == "success") for x, is_done in pair]
            missing = 2 if number == 4 else 1
            found += rows + [(None, stage, True)] * (missing - len(rows))
        return found + [(None, 0, True)] * (number - len(found))

    def get_task(self) -> Progress:
        rows = self._actions()
        return Progress(
            verb=np.array([VERBS.get(type(part), 0) for part, *_ in rows], np.int32),
            stage=np.array([stage for _, stage, _ in rows], np.int32),
            done=np.array([done or self.is_done for *_, done in rows]),
        )  # pyright: ignore[reportArgumentType]

    def objective(self, state: MiniGridState) -> Objective:
        task, grid = state.task, np.asarray(state.grid)
        left = np.flatnonzero(~task.done & (task.stage == task.stage[~task.done].min()))
        k = int(left[0])
        marked = (grid >> MARKS + 2 * k & 1 == 1) & (cells.kind(grid) != cells.EMPTY)
        verb, is_empty = task.verb[k], cells.kind(grid) == cells.EMPTY
        has_object = cells.kind(int(state.carrying)) != cells.EMPTY
        if verb == instructions.GO_TO:
            return Objective(grid >> PLACES + 2 * k & 1 == 1, DONE, True)
        if verb == instructions.OPEN:
            return Objective(marked, TOGGLE, True)
        if verb == instructions.PUT_NEXT and has_object and state.carrying >> MARKS + 2 * k & 1:
            near = np.pad(grid >> PLACES + 2 * k + 1 & 1 == 1, 1)
            beside = near[1:-1, 2:] | near[1:-1, :-2] | near[2:, 1:-1] | near[:-2, 1:-1]
            return Objective(beside & is_empty, DROP, True)
        if has_object and not marked.any():
            return Objective(is_empty, DROP, True)
        return Objective(marked, PICK_UP, True)


def __getattr__(name: str) -> type[BabyAIOracle]:
    if name.endswith("Oracle"):
        return BabyAIOracle
    raise AttributeError(name)
