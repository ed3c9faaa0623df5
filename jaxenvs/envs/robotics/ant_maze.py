"""The ant in a maze."""

from pathlib import Path
from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp

from jaxenvs.core import TimeStep
from jaxenvs.envs.mujoco.ant import Ant
from jaxenvs.envs.mujoco.base import MujocoState
from jaxenvs.envs.robotics.base import distance
from jaxenvs.envs.robotics.maze import RADIUS, Maze
from jaxenvs.physics import models
from jaxenvs.physics.models import Fields, precision


@chex.dataclass(frozen=True)
class AntMazeState(MujocoState):
    """The state of the ant, and the goal."""

    goal: jax.Array  # float32[2], m


class AntMaze(Maze[Any], Ant):
    """Walk through a maze to a goal on four legs.

    Observation: a dict of three float32 arrays
        `observation`, [105]: that of Ant
        `achieved_goal`, [2]: x- and y-coordinate of the torso, m
        `desired_goal`, [2]: those of the goal
    Action: float32[8], torques on the joints in [-1, 1], times the gear of the model
    Reward: "sparse": 1 while the torso is within 0.45 m of the goal, otherwise 0. "dense":
        exp(-d) for a distance of d meters
    Start: the goal is in a uniform cell of those that can have it, the ant in one that is not the
        goal's, both with uniform noise of a quarter of a cell along x and y; no other noise
    Terminates: never, also if the ant falls over; at the goal with `continuing_task=False`
    Time limit: none here; the ids have 700 steps, 1,000 in medium and large mazes

    Cells are 4 m wide; the radius of the goal is that of the small mazes. Ant's rewards do not
    count, but `info` has them. With `reset_target=True`, a goal that was reached moves to a cell
    more than 0.45 m away, which is seen one step later: the observation of the step that reaches a
    goal has this goal. `info["success"]` says whether the ant is at the goal.

    Source: J. Fu et al., D4RL, 2020, as Gymnasium-Robotics' AntMaze-v5
    (tests/envs/robotics/test_robotics.py).
    """

    scale: ClassVar = 4.0
    height: ClassVar = 0.5
    # The place is the achieved goal; there is no noise but that of the place.
    exclude_current_positions_from_observation: ClassVar = False  # pyright: ignore[reportIncompatibleVariableOverride]
    reset_noise_scale: ClassVar = 0.0  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def _agent(self) -> Path:
        return models.find(self.xml_file)

    def reset(self, key: chex.PRNGKey) -> tuple[AntMazeState, TimeStep]:
        with precision(self.dtype):
            goal, place = (x.astype(self.dtype) for x in self._draw_places(key))
            qpos = self._qpos0.at[:2].set(place)
            state, timestep = self._begin(qpos, jnp.zeros(self._original.nv, self.dtype))
            return self._with_goal(state, goal), _toward(timestep, goal)

    def step(
        self, state: Any, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[AntMazeState, TimeStep]:
        moved, timestep = super().step(state, action, key)
        with precision(self.dtype):
            timestep = _toward(timestep, state.goal)
            achieved = timestep.observation["achieved_goal"]
            diverged = timestep.truncated
            timestep = timestep.replace(
                reward=jnp.where(diverged, 0, self.compute_reward(achieved, state.goal)),
                terminated=self.compute_terminated(achieved, state.goal) & ~diverged,
            )
            return self._with_goal(moved, self._next_goal(achieved, state.goal, key)), timestep

    def _with_goal(self, state: MujocoState, goal: jax.Array) -> AntMazeState:
        return AntMazeState(**vars(state), goal=goal)

    def _observe_data(self, data: Fields) -> Any:
        observation = super()._observe_data(data)
        return {"observation": observation[2:], "achieved_goal": observation[:2]}


def _toward(timestep: TimeStep, goal: jax.Array) -> TimeStep:
    """Returns the timestep with a goal."""
    success = distance(timestep.observation["achieved_goal"], goal) <= RADIUS
    return timestep.replace(
        observation={**timestep.observation, "desired_goal": goal},
        info={**timestep.info, "success": success},
    )
