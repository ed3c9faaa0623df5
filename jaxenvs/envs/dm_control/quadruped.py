"""The quadruped domain."""

import functools
import math
from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from jaxenvs import loops, struct
from jaxenvs.envs.dm_control.base import ControlTask, InitialState, Observation, load_once
from jaxenvs.envs.dm_control.rewards import tolerance
from jaxenvs.errors import ParameterError
from jaxenvs.physics import check_only_c
from jaxenvs.physics.models import Fields, Model

_EPISODE = 20.0  # s; the floor is as large as what can be walked in this time
_SMOOTHNESS, _BUMP = 0.15, 2.0  # of the terrain: the least height of a bump, its width in m


class _Quadruped(ControlTask):
    """What the tasks of the domain have in common."""

    n_sub_steps: int = struct.static(4)  # physics steps in a step

    def _lift(self, qpos: jax.Array, low: float = 0.0, **drawn: jax.Array) -> jax.Array:
        """Moves the torso up from the height `low` by centimeters until nothing touches."""

        def lift(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            qpos, touches = carry
            # In a batch, instances that are done are left out.
            data = self._placed(("ncon",), drawn, qpos, wanted=touches)
            touches = data.ncon > 0
            return qpos.at[2].add(jnp.where(touches, 0.01, 0)), touches

        carry = qpos.at[2].set(low), jnp.bool_(True)
        return loops.while_loop(lambda carry: carry[1], lift, carry)[0]

    def _turned(self, key: chex.PRNGKey) -> jax.Array:
        """Returns first positions with a random orientation."""
        turn = jax.random.normal(key, (4,), jnp.float32)
        return self._qpos0.at[3:7].set(turn / jnp.linalg.norm(turn))

    def _observe_legs(self, data: Fields) -> Observation:
        original, kinds = self._original, mujoco.mjtSensor
        hinges = original.jnt_type == mujoco.mjtJoint.mjJNT_HINGE
        angles, speeds = original.jnt_qposadr[hinges], original.jnt_dofadr[hinges]
        return {
            "egocentric_state": jnp.concatenate([data.qpos[angles], data.qvel[speeds], data.act]),
            "torso_velocity": self._sensor(data, "velocimeter"),
            "torso_upright": self._upright(data),
            "imu": self._sensors(data, kinds.mjSENS_ACCELEROMETER, kinds.mjSENS_GYRO),
            "force_torque": jnp.arcsinh(
                self._sensors(data, kinds.mjSENS_FORCE, kinds.mjSENS_TORQUE)
            ),
        }

    def _sensors(self, data: Fields, *kinds: mujoco.mjtSensor) -> jax.Array:
        """Returns the values of all sensors of some kinds."""
        original = self._original
        chosen = np.flatnonzero(np.isin(original.sensor_type, kinds))
        return jnp.concatenate([self._sensor(data, original.sensor(i).name) for i in chosen])

    def _upright(self, data: Fields) -> jax.Array:
        return data.xmat[self._original.body("torso").id, 2, 2]

    def _upright_reward(self, data: Fields, least: float = 1.0) -> jax.Array:
        return tolerance(
            self._upright(data),
            (least, jnp.inf),
            margin=1 + least,
            value_at_margin=0,
            sigmoid="linear",
        )


class Quadruped(_Quadruped):
    """Walk or run on four legs, or bring a ball to the middle.

    Observation: dict
        egocentric_state  float32[44], angles of the hinges in rad, their velocities in rad/s, and
            the activations of the actuators
        torso_velocity  float32[3], m/s, in the torso's frame
        torso_upright  float32[], cosine of the angle from upright
        imu  float32[6], acceleration in m/s^2 and turning in rad/s, in the torso's frame
        force_torque  float32[24], arcsinh of the toes' forces in N, then torques in N m
        ball_state  float32[9], position, velocity, and turning of the ball, in the torso's frame;
            to `fetch`
        target_position  float32[3], m, from the torso, in its frame; to `fetch`
    Action: float32[12], positions of yaw, lift, and extension of each leg
    Reward: at most 1, for an upright torso times a speed forward of at least `move_speed`; to
        `fetch`, times being near the ball, and half of it for the ball being near the target
    Start: turned anywhere on the ground, at rest; to `fetch` upright anywhere, and a ball is thrown
        (in single precision, toes are a micrometer above the ground, so that they touch nothing)
    Terminates: never
    Time limit: none here; ids have 1,000 steps

    Source: the Control Suite's quadruped (Y. Tassa et al., 2020, arXiv:2006.12983).
    """

    move_speed: float = struct.static(0.5)  # m/s
    fetch: bool = struct.static(False)  # whether there is a ball

    camera: ClassVar = {"body": 1, "distance": 4.0}

    @property
    def _original(self) -> mujoco.MjModel:
        if self.fetch:
            return load_once("quadruped", walls_and_ball=True)
        return load_once("quadruped", floor_size=_EPISODE * self.move_speed)

    def _initial_state(self, key: chex.PRNGKey) -> InitialState:
        turn_key, place_key, ball_key, throw_key = jax.random.split(key, 4)
        if not self.fetch:
            return self._make_state(self._lift(self._turned(turn_key)))
        angle = jax.random.uniform(turn_key, (), jnp.float32, 0, 2 * math.pi)
        turn = jnp.stack([jnp.cos(angle / 2), jnp.zeros(()), jnp.zeros(()), jnp.sin(angle / 2)])
        far = 0.9 * self._size(self._model, "floor")
        place, ball_place = (
            jax.random.uniform(key, (2,), jnp.float32, -far, far) for key in (place_key, ball_key)
        )
        qpos = self._qpos0.at[:2].set(place).at[3:7].set(turn)
        ball, ball_speed = self._ball
        # Single precision cannot tell the 2e-16 m between toes and ground from 0.
        low = 1e-6 if self.dtype == "float32" else 0.0
        qpos = self._lift(qpos, low).at[ball : ball + 2].set(ball_place)
        throw = 5 * jax.random.normal(throw_key, (2,), jnp.float32)
        qvel = jnp.zeros(self._original.nv, self.dtype)
        qvel = qvel.at[ball_speed : ball_speed + 2].set(throw)
        return self._make_state(qpos.at[ball + 2].set(2), qvel)

    @property
    def _ball(self) -> tuple[int, int]:
        """Where the ball's positions and velocities begin."""
        joint = self._original.joint("ball_root")
        return joint.qposadr[0], joint.dofadr[0]

    def _observe(self, model: Model, data: Fields) -> Observation:
        original, observation = self._original, self._observe_legs(data)
        if not self.fetch:
            return observation
        torso, ball, speed = original.body("torso").id, original.body("ball").id, self._ball[1]
        rows = [
            data.xpos[ball] - data.xpos[torso],
            data.qvel[speed : speed + 3] - data.qvel[:3],
            data.qvel[speed + 3 : speed + 6],
        ]
        target = data.site_xpos[original.site("target").id] - data.xpos[torso]
        return observation | {
            "ball_state": (jnp.stack(rows) @ data.xmat[torso]).reshape(-1),
            "target_position": target @ data.xmat[torso],
        }

    def _reward(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        original = self._original
        stand = self._upright_reward(data)
        if not self.fetch:
            return stand * tolerance(
                self._sensor(data, "velocimeter")[0],
                (self.move_speed, jnp.inf),
                margin=self.move_speed,
                value_at_margin=0.5,
                sigmoid="linear",
            )
        ball = data.xpos[original.body("ball").id]

        def near(site: str, extra: Any) -> jax.Array:
            apart = (data.site_xpos[original.site(site).id] - ball)[:2]
            return tolerance(
                jnp.linalg.norm(apart),
                (0, model.site_size[original.site(site).id, 0] + extra),
                margin=self._size(model, "floor") * math.sqrt(2),
                value_at_margin=0,
                sigmoid="linear",
            )

        return (
            stand * near("workspace", self._size(model, "ball")) * (0.5 + 0.5 * near("target", 0))
        )


class QuadrupedEscape(_Quadruped):
    """Climb out of a bowl with bumps on four legs.

    Observation: dict
        egocentric_state  float32[44], angles of the hinges in rad, their velocities in rad/s, and
            the activations of the actuators
        torso_velocity  float32[3], m/s, in the torso's frame
        torso_upright  float32[], cosine of the angle from upright
        imu  float32[6], acceleration in m/s^2 and turning in rad/s, in the torso's frame
        force_torque  float32[24], arcsinh of the toes' forces in N, then torques in N m
        origin  float32[3], m, the middle of the bowl from the torso, in its frame
        rangefinder  float32[20], tanh of the distance to the terrain in m along 20 rays from the
            torso; 1 where there is none
    Action: float32[12], positions of yaw, lift, and extension of each leg
    Reward: the distance from the middle as a share of that to the edge of the terrain, at most 1,
        times an upright torso, at most 20 degrees from upright for 1
    Start: turned anywhere in the middle, just above the ground, at rest; the terrain is random
    Terminates: never
    Time limit: none here; ids have 1,000 steps

    The state holds the 40,401 heights of the episode's terrain.

    Engine: C MuJoCo only.

    Source: the Control Suite's quadruped (Y. Tassa et al., 2020, arXiv:2006.12983).
    """

    camera: ClassVar = {"body": 1, "distance": 4.0}

    def __post_init__(self) -> None:
        check_only_c("QuadrupedEscape", self.engine, "has no terrains with cylinders on them")
        if "hfield_data" in (self.physics or {}):
            raise ParameterError(
                'QuadrupedEscape got physics["hfield_data"], but each episode draws its terrain.'
                "  Omit it."
            )
        super().__post_init__()

    @property
    def _original(self) -> mujoco.MjModel:
        return load_once("quadruped", floor_size=40, terrain=True, rangefinders=True)

    def _initial_state(self, key: chex.PRNGKey) -> InitialState:
        turn_key, terrain_key = jax.random.split(key)
        heights = self._draw_terrain(terrain_key)
        qpos = self._lift(self._turned(turn_key), hfield_data=heights)
        return self._make_state(qpos, hfield_data=heights)

    def _draw_terrain(self, key: chex.PRNGKey) -> jax.Array:
        """Returns the heights of a bowl with bumps, of which the highest possible is about 1."""
        bowl, enlarge = _terrain(self._original)
        bumps = jax.random.uniform(key, 2 * enlarge.shape[1:], jnp.float32, _SMOOTHNESS, 1)
        enlarge = jnp.asarray(enlarge)
        return jnp.asarray(bowl * (enlarge @ bumps @ enlarge.T), jnp.float32).reshape(-1)

    def _observe(self, model: Model, data: Fields) -> Observation:
        torso = self._original.body("torso").id
        far = self._sensors(data, mujoco.mjtSensor.mjSENS_RANGEFINDER)
        return self._observe_legs(data) | {
            "origin": -data.xpos[torso] @ data.xmat[torso],
            "rangefinder": jnp.where(far == -1, 1, jnp.tanh(far)),
        }

    def _reward(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        size = model.hfield_size[0, 0]
        away = tolerance(
            jnp.linalg.norm(data.site_xpos[self._original.site("workspace").id]),
            (size, jnp.inf),
            margin=size,
            value_at_margin=0,
            sigmoid="linear",
        )
        return self._upright_reward(data, math.cos(math.radians(20))) * away


@functools.cache
def _terrain(original: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    """Returns a bowl [n, n], and the matrix [n, k] that enlarges k bumps to n by cubic splines."""
    from scipy import ndimage  # which dm_control needs

    size = original.hfield_nrow[0]
    x = np.linspace(-1, 1, size)
    radius = np.clip(np.hypot(x, x[:, None]), 0.04, 1)
    num_bumps = int(2 * original.hfield_size[0, 0] / _BUMP)
    enlarge = ndimage.zoom(np.eye(num_bumps), (size / num_bumps, 1))
    return 0.5 - np.cos(2 * math.pi * radius) / 2, np.asarray(enlarge)
