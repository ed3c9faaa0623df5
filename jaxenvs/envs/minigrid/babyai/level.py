"""The base class of BabyAI's levels."""

import abc
from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import loops, struct
from jaxenvs.envs.minigrid.babyai import instructions
from jaxenvs.envs.minigrid.babyai.instructions import Instruction, Progress
from jaxenvs.envs.minigrid.layout import RandomStream, divide, lookup
from jaxenvs.envs.minigrid.level import DROP, MiniGridState
from jaxenvs.envs.minigrid.room_grid import RoomGrid, Rooms

# Invalid levels are drawn again. `UnblockPickup` is valid least often, once in ten draws.
MOST_DRAWS = 10_000
_VISITS = (0, 1, 1, 1, 2)  # for each verb, the number of objects that the agent must go to


class BabyAILevel(RoomGrid):
    """A level of rooms whose mission is an instruction in a small part of English.

    A subclass defines `generate_mission`, and `verbs`, `num_actions`, and `has_locations`, which
    bound the instructions that it returns.
    """

    room_size: int = struct.static(8)

    mission = "{}"
    cell_type = np.uint32
    verbs: ClassVar[tuple[int, ...]] = (instructions.GO_TO,)  # of the instruction's actions
    num_actions: ClassVar[int] = 1  # the most actions of an instruction: 1, 2, or 4
    has_locations: ClassVar[bool] = False  # whether descriptions have locations

    @abc.abstractmethod
    def generate_mission(self, rooms: Rooms) -> Instruction:
        """Adds doors, objects, and the agent to the rooms, and returns the instruction.

        It sets `rooms.ok` to false to start again.
        """

    @property
    def default_max_steps(self) -> int | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The number of steps after which an episode is truncated; None if missions differ."""
        if self.num_actions > 1 or len({_VISITS[verb] for verb in self.verbs}) > 1:
            return None
        return self.steps_per_visit * _VISITS[self.verbs[0]]

    @property
    def steps_per_visit(self) -> int:
        """The number of steps allowed for each object that the agent must go to."""
        return self.room_size**2 * self.num_rows * self.num_cols

    @property
    def is_strict(self) -> tuple[bool, ...]:
        """For each action, whether opening or picking up a wrong object is a failure."""
        return (False,) * self.num_actions

    @property
    def mission_length(self) -> int:
        return instructions.word_count(
            self.verbs, self.num_actions, has_locations=self.has_locations
        )

    def steps_allowed(self, state: MiniGridState) -> chex.Numeric:
        limit = self.time_limit
        if limit is not None:
            return limit
        visits = lookup(np.array(_VISITS, np.int32), state.task.verb)
        return self.steps_per_visit * visits.sum(dtype=jnp.int32)

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        rng = RandomStream(key)
        base, draw_level = rng.key(), jax.jit(self._draw_level)  # traced once

        def draw(carry: tuple[Any, jax.Array, jax.Array]) -> tuple[Any, jax.Array, jax.Array]:
            _, _, count = carry
            state, fits = draw_level(jax.random.fold_in(base, count))
            return state, fits, count + 1

        shape = jax.eval_shape(draw_level, base)[0]
        blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
        start = blank, jnp.bool_(False), jnp.int32(0)
        return loops.while_loop(lambda carry: ~carry[1] & (carry[2] < MOST_DRAWS), draw, start)[0]

    def _draw_level(self, key: chex.PRNGKey) -> tuple[MiniGridState, jax.Array]:
        """Draws a level. Returns its state and whether it is valid."""
        rooms = Rooms(self, RandomStream(key))
        instruction = instructions.pad(self.generate_mission(rooms), self.num_actions)
        regions = self.locations_of(rooms)
        verb = instruction.verb
        is_used = verb != instructions.NOTHING, verb == instructions.PUT_NEXT
        found = [
            instructions.matches(what, rooms.grid, regions) & used[:, None, None]
            for what, used in zip((instruction.object, instruction.target), is_used, strict=True)
        ]
        found, fits = jnp.stack(found, axis=1), rooms.ok
        if instructions.PUT_NEXT in self.verbs:
            fits &= instructions.is_possible(verb, found)
        rooms.grid = instructions.mark(rooms.grid, found)
        progress = Progress(verb=verb, stage=instruction.stage, done=verb == instructions.NOTHING)
        words = instructions.to_words(instruction, found, self.mission_length)
        return rooms.make_state(task=progress, mission=words), fits

    def locations_of(self, rooms: Rooms) -> jax.Array:
        """Returns the regions that descriptions refer to: bool[5, H, W]."""
        limit = max(self.width, self.height)
        place = (divide(index, rooms.step, limit=limit)[0] for index in (rooms.x, rooms.y))
        room = rooms.room(*place)
        return instructions.locations(rooms.x, rooms.y, rooms.direction, room)

    def transition(self, state: MiniGridState, action: jax.Array) -> MiniGridState:
        after = super().transition(state, action)
        grid = jnp.where(action == DROP, instructions.update_places(after.grid), after.grid)
        after = after.replace(grid=grid)  # pyright: ignore[reportAttributeAccessIssue]
        progress, *_ = self._update_progress(state, action, after)
        return after.replace(task=progress)

    def outcome(
        self, before: MiniGridState, action: jax.Array, after: MiniGridState
    ) -> tuple[jax.Array, jax.Array]:
        _, success, failure = self._update_progress(before, action, after)
        return success, failure

    def _update_progress(
        self, before: MiniGridState, action: jax.Array, after: MiniGridState
    ) -> tuple[Progress, jax.Array, jax.Array]:
        return instructions.update_progress(
            *(before.task, before, action, after, self.front_place(after)),
            strict=self.is_strict,
            puts=instructions.PUT_NEXT in self.verbs,
        )


class OneRoomLevel(BabyAILevel):
    """A level of one room."""

    num_rows: int = struct.static(1)
    num_cols: int = struct.static(1)
