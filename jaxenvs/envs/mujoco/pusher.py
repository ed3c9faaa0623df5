"""The pusher task."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp

from jaxenvs import loops, struct
from jaxenvs.envs.mujoco.base import Info, MujocoEnvironment
from jaxenvs.physics.models import Fields


class Pusher(MujocoEnvironment):
    """Push a cylinder on a table to a goal with an arm that has seven joints.

    Observation: float32[23]
        0-6  angles of the arm's joints, rad
        7-13  their velocities, rad/s
        14-16  position of the arm's tip, m
        17-19  position of the cylinder, m
        20-22  position of the goal, m
    Action: float32[7], torques on the joints in [-2, 2], times the gear of the model
    Reward: minus the cylinder's distance from the goal, minus half of the tip's distance from the
        cylinder, minus 0.1 times the sum of squared actions
    Start: the cylinder is uniform in [-0.3, 0) x [-0.2, 0.2) without the disc with a radius of
        0.17 around the goal; uniform noise of 0.005 on the velocities of the arm
    Terminates: never
    Time limit: none here; `Pusher-v5` is registered with 100 steps

    Source: Gymnasium's Pusher-v5 (benchmarks/certificates/mujoco.json).
    """

    xml_file: str = struct.static("pusher_v5.xml")
    frame_skip: int = struct.static(5)
    reward_near_weight: float = 0.5  # weight of the tip's distance from the cylinder
    reward_dist_weight: float = 1.0  # weight of the distance from the goal
    reward_control_weight: float = 0.1  # weight of the squared actions

    measured: ClassVar = ("reward_dist", "reward_ctrl", "reward_near")
    camera: ClassVar = {"body": 0, "distance": 2.5, "elevation": -40.0}

    def _initial_state(self, key: chex.PRNGKey) -> tuple[jax.Array, jax.Array]:
        speed_key, place_key = jax.random.split(key)

        def draw(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            count, _ = carry
            noise = jax.random.uniform(jax.random.fold_in(place_key, count), (2,), jnp.float32)
            return count + 1, jnp.stack([-0.3 + 0.3 * noise[0], -0.2 + 0.4 * noise[1]])

        _, place = loops.while_loop(
            lambda carry: (carry[1] ** 2).sum() <= 0.17**2,
            draw,
            (jnp.int32(0), jnp.zeros(2, jnp.float32)),
        )
        speeds = jax.random.uniform(speed_key, (7,), jnp.float32, -0.005, 0.005)
        start = self._qpos0[:7].astype(jnp.float32)
        still = jnp.zeros(4, jnp.float32)
        return jnp.concatenate([start, place, still[:2]]), jnp.concatenate([speeds, still])

    def _observe_data(self, data: Fields) -> jax.Array:
        bodies = [self._body(data, name) for name in ("tips_arm", "object", "goal")]
        return jnp.concatenate([data.qpos[:7], data.qvel[:7], *bodies])

    def _body(self, data: Fields, name: str) -> jax.Array:
        return data.xpos[self._original.body(name).id]

    def _outcome(
        self, data: Fields, action: jax.Array, velocity: jax.Array
    ) -> tuple[jax.Array, jax.Array, Info]:
        del velocity
        pushed = self._body(data, "object")
        near = _distance(pushed, self._body(data, "tips_arm")) * self.reward_near_weight
        distance = _distance(pushed, self._body(data, "goal")) * self.reward_dist_weight
        control = (action**2).sum() * self.reward_control_weight
        parts = {"reward_dist": -distance, "reward_ctrl": -control, "reward_near": -near}
        return -distance - control - near, jnp.bool_(False), parts


def _distance(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.sqrt(((a - b) ** 2).sum())
