"""The point in a maze."""

from pathlib import Path
from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp

from jaxenvs.core import TimeStep
from jaxenvs.envs.robotics.base import assets, distance
from jaxenvs.envs.robotics.maze import RADIUS, Maze
from jaxenvs.physics.models import Fields, Plan, precision

_FASTEST = 5.0  # m/s, to which velocities are clipped before a step


@chex.dataclass(frozen=True)
class PointMazeState:
    """The state of the simulation, and the goal."""

    qpos: jax.Array  # float32[2], m
    qvel: jax.Array  # float32[2], m/s
    kept: Any  # see `MujocoState`
    control: jax.Array  # float32[2], the last action, which is still applied between two steps
    goal: jax.Array  # float32[2], m


class PointMaze(Maze[PointMazeState]):
    """Push a ball through a maze to a goal.

    Observation: a dict of three float32 arrays
        `observation`, [4]: x- and y-coordinate of the ball, m, and its velocity, m/s
        `achieved_goal`, [2]: the ball's coordinates
        `desired_goal`, [2]: those of the goal
    Action: float32[2], force on the ball along x and y in [-1, 1], times 100 N; clipped
    Reward: "sparse": 1 while the ball is within 0.45 m of the goal, otherwise 0. "dense":
        exp(-d) for a distance of d meters
    Start: the goal is in a uniform cell of those that can have it, the ball in one that is not the
        goal's, both with uniform noise of a quarter of a cell along x and y; no velocity
    Terminates: never; at the goal with `continuing_task=False`
    Time limit: none here; the ids have 300 steps, 600 in medium mazes, 800 in large ones

    Cells are 1 m wide. Velocities are clipped to [-5, 5] m/s before a step, not after it, so that
    observations can exceed this. With `reset_target=True`, a goal that was reached moves to a cell
    more than 0.45 m away, which is seen one step later: the observation of the step that reaches a
    goal has this goal. `info["success"]` says whether the ball is at the goal.

    Source: J. Fu et al., D4RL, 2020, as Gymnasium-Robotics' PointMaze-v3
    (tests/envs/robotics/test_robotics.py).
    """

    scale: ClassVar = 1.0
    height: ClassVar = 0.4
    refreshes: ClassVar = False

    @property
    def _agent(self) -> Path:
        return assets() / "point" / "point.xml"

    @property
    def _num_steps(self) -> int:
        return 1

    def reset(self, key: chex.PRNGKey) -> tuple[PointMazeState, TimeStep]:
        with precision(self.dtype):
            goal, qpos = (x.astype(self.dtype) for x in self._draw_places(key))
            still = jnp.zeros(2, self.dtype)
            begun = self._engine.start(self._plan, self._changes({}), qpos, still)
            state = PointMazeState(qpos=qpos, qvel=still, kept=begun.kept, control=still, goal=goal)
            return state, begun.first(*self._observe(begun.data, goal))

    def step(
        self, state: PointMazeState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[PointMazeState, TimeStep]:
        with precision(self.dtype):
            control = jnp.clip(self._as_control(action), -1, 1)
            # The package evaluates the forces at the clipped velocity first, with the last action.
            slow = state.replace(qvel=jnp.clip(state.qvel, -_FASTEST, _FASTEST))  # pyright: ignore[reportAttributeAccessIssue]
            plan = Plan(self._original, self.dtype, (), (), 0, False, False)
            evaluated = self._engine.start(
                plan, self._changes({}), slow.qpos, slow.qvel, state.kept, control=state.control
            )
            slow = slow.replace(kept=evaluated.kept)
            moved = self._engine.step(self._plan, self._changes({}), slow, control)
            data = moved.data
            observation, info = self._observe(data, state.goal)
            achieved = observation["achieved_goal"]
            next_state = PointMazeState(
                qpos=data.qpos,
                qvel=data.qvel,
                kept=moved.kept,
                control=control,
                goal=self._next_goal(achieved, state.goal, key),
            )
            reward = self.compute_reward(achieved, state.goal)
            terminated = self.compute_terminated(achieved, state.goal)
            return next_state, moved.transition(observation, reward, terminated, info)

    def _observe(self, data: Fields, goal: jax.Array) -> tuple[Any, Any]:
        """Returns the observation and `info`."""
        observation = {**self._observe_data(data), "desired_goal": goal}
        success = distance(observation["achieved_goal"], goal) <= RADIUS
        return observation, {"success": success}

    def _observe_data(self, data: Fields) -> dict[str, jax.Array]:
        return {
            "observation": jnp.concatenate([data.qpos, data.qvel]),
            "achieved_goal": data.qpos,
        }

    def _read(self, data: Fields) -> Any:
        return self._observe_data(data)
