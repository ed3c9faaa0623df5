"""What the tasks of the Control Suite have in common."""

import abc
import dataclasses
import functools
import importlib
import math
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import loops, struct
from jaxenvs.core import TimeStep
from jaxenvs.envs.mujoco import physics
from jaxenvs.envs.mujoco._mjx import Data, Model, conventions, mjx, mujoco
from jaxenvs.envs.mujoco.base import Simulation
from jaxenvs.errors import ParameterError, check_integer, missing_extra

Observation = dict[str, jax.Array]


@chex.dataclass(frozen=True)
class ControlState:
    """The state of the simulation, and what an episode draws besides."""

    qpos: jax.Array  # float32[nq], m and rad, positions of the joints; orientations are quaternions
    qvel: jax.Array  # float32[nv], m/s and rad/s, velocities of the joints
    qacc_warmstart: jax.Array  # float32[nv], the last accelerations, where the solver starts
    drawn: dict[str, jax.Array]  # arrays of the model that hold for this episode, by MJX's names
    act: jax.Array | None = None  # float32[na], activations of actuators that have a state


class ControlTask(Simulation[ControlState]):
    """A task of the Control Suite.

    Bodies and velocities are those of the new state. Sensors of forces are those of the last
    physics step, as in dm_control.

    A subclass defines how an episode starts, what is observed, and the reward.
    """

    n_sub_steps: int = struct.static(1)  # physics steps in a step

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer(ParameterError, f"{type(self).__name__} got n_sub_steps", self.n_sub_steps)

    def reset(self, key: chex.PRNGKey) -> tuple[ControlState, TimeStep]:
        with conventions(self.dtype):
            state = self._draw_start(key)
            return state, TimeStep.first(self._observe(state))

    def step(
        self, state: ControlState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[ControlState, TimeStep]:
        del key  # a step is deterministic
        with conventions(self.dtype):
            model, action = self._model_of(state), self._as_control(action)
            start = _activate(physics.data(model, state.qpos, state.qvel), state)
            start = start.replace(qacc_warmstart=state.qacc_warmstart, ctrl=action)
            moved = physics.simulate(model, start, self.n_sub_steps)
            state = dataclasses.replace(
                state,
                qpos=moved.qpos,
                qvel=moved.qvel,
                qacc_warmstart=moved.qacc_warmstart,
                act=None if state.act is None else moved.act,
            )
            data = _sense(model, state, moved.sensordata)
            return state, TimeStep.transition(
                self._see(model, data),
                reward=self._judge(model, data, action),
                terminated=self._has_ended(data),
            )

    def _observe(self, state: ControlState) -> Observation:
        """Returns the first observation of an episode."""
        with conventions(self.dtype):
            model = self._model_of(state)
            sensed = _activate(physics.data(model, state.qpos, state.qvel), state)
            if (self._original.sensor_needstage == mujoco.mjtStage.mjSTAGE_ACC).any():
                sensed = mjx.forward(model, sensed)
            return self._see(model, _sense(model, state, sensed.sensordata))

    def _observe_data(self, data: Data) -> Observation:
        return self._see(self._model, data)

    def _model_of(self, state: ControlState) -> Model:
        return self._model.tree_replace(state.drawn)

    def _begin(self, qpos: jax.Array, qvel: jax.Array | None = None, **drawn: Any) -> ControlState:
        """Returns the state at the start of an episode, without velocities by default."""
        original = self._original
        still = jnp.zeros(original.nv, self.dtype)
        return ControlState(
            qpos=jnp.asarray(qpos, self.dtype),
            qvel=still if qvel is None else jnp.asarray(qvel, self.dtype),
            qacc_warmstart=still,
            drawn={name: jnp.asarray(value, self.dtype) for name, value in drawn.items()},
            act=jnp.zeros(original.na, self.dtype) if original.na else None,
        )

    def _random_joints(self, key: chex.PRNGKey) -> jax.Array:
        """Returns limited joints within their limits, and others that turn anywhere: float32[nq].

        Joints that move along an axis stay if they have no limits. The orientation of a free body
        is a vector in [0, 1)^4, normalized, which is not uniform.
        """
        original, kinds = self._original, mujoco.mjtJoint
        address, is_limited = original.jnt_qposadr, original.jnt_limited.astype(bool)
        turns = (original.jnt_type == kinds.mjJNT_HINGE) & ~is_limited
        low, high = self._model.jnt_range[is_limited].T.astype(jnp.float32)
        drawn = jax.random.uniform(key, (original.nq,), jnp.float32)

        def between(low: Any, high: Any, at: np.ndarray) -> jax.Array:
            return low + drawn[at] * (high - low)

        qpos = self._qpos0.astype(jnp.float32)
        qpos = qpos.at[address[is_limited]].set(between(low, high, address[is_limited]))
        qpos = qpos.at[address[turns]].set(between(-math.pi, math.pi, address[turns]))
        for start in address[original.jnt_type == kinds.mjJNT_FREE] + 3:
            turn = drawn[start : start + 4]
            qpos = qpos.at[start : start + 4].set(turn / jnp.sqrt((turn**2).sum()))
        return qpos

    def _without_contact(
        self,
        key: chex.PRNGKey,
        draw: Callable[[chex.PRNGKey, ControlState], ControlState],
        **drawn: Any,
    ) -> ControlState:
        """Draws starts until nothing touches.

        `draw` gets a key and the start that was drawn before, at first with the arrays `drawn`.
        """

        def again(carry: tuple[jax.Array, ControlState]) -> tuple[jax.Array, ControlState]:
            count, state = carry
            return count + 1, draw(jax.random.fold_in(key, count), state)

        def touches(carry: tuple[jax.Array, ControlState]) -> jax.Array:
            return self._touches(carry[1].qpos, **carry[1].drawn)

        first = again((jnp.int32(0), self._begin(self._qpos0, **drawn)))
        return loops.while_loop(touches, again, first)[1]

    def _touches(self, qpos: jax.Array, **drawn: jax.Array) -> jax.Array:
        """Returns whether anything touches, with arrays that an episode draws.

        A micrometer is rounding: quadruped's toes are 0 m above the ground at the right height.
        """
        model = self._model.tree_replace(drawn)
        data = mjx.kinematics(model, mjx.make_data(model).replace(qpos=qpos))
        contact = mjx.collision(model, data)._impl.contact
        return (contact.dist < contact.includemargin - 1e-6).any()

    def _size(self, model: Model, geom: str) -> jax.Array:
        """Returns the first size of a geom, such as the radius of a sphere: float32[], m."""
        return model.geom_size[self._original.geom(geom).id, 0]

    def _sensor(self, data: Data, name: str) -> jax.Array:
        """Returns the values of a sensor."""
        sensor = self._original.sensor(name)
        return data.sensordata[sensor.adr[0] : sensor.adr[0] + sensor.dim[0]]

    @abc.abstractmethod
    def _draw_start(self, key: chex.PRNGKey) -> ControlState:
        """Returns the state at the start of an episode."""

    @abc.abstractmethod
    def _see(self, model: Model, data: Data) -> Observation:
        """Returns the observation."""

    @abc.abstractmethod
    def _judge(self, model: Model, data: Data, action: jax.Array) -> jax.Array:
        """Returns the reward."""

    def _has_ended(self, data: Data) -> jax.Array | bool:
        """Returns whether the episode ends, which it does in the domain lqr only."""
        return False


def _activate(data: Data, state: ControlState) -> Data:
    """Puts the activations into the data, if actuators have any."""
    return data if state.act is None else data.replace(act=state.act)


def _sense(model: Model, state: ControlState, sensed: jax.Array) -> Data:
    """Computes bodies and sensors, of which those of forces stay as they were."""
    data = physics.place(model, state.qpos, state.qvel).replace(sensordata=sensed)
    return mjx.sensor_vel(model, mjx.sensor_pos(model, _activate(data, state)))


def load(domain: str, *, without_contacts: bool = False, **options: Any) -> mujoco.MjModel:
    """Loads dm_control's model of a domain.

    MJX does not compute energies, which no task uses.

    Args:
        domain: its name.
        without_contacts: for models that disable contacts. MJX refuses pairs of shapes that it
            does not collide, unless their geoms cannot collide.
        **options: what the domain's function needs.
    """
    try:
        module = importlib.import_module(f"dm_control.suite.{domain}")
    except ImportError as error:
        raise missing_extra(f"dm_control/{domain}", "dm-control", "dm_control") from error
    make = getattr(module, "get_model_and_assets", None) or module.make_model
    made = make(**options)  # the model, or the model and its assets
    xml, assets = made if isinstance(made, tuple) else (made, module.common.ASSETS)
    model = mujoco.MjModel.from_xml_string(xml, assets)
    if without_contacts:
        model.geom_contype[:] = model.geom_conaffinity[:] = 0
    model.opt.enableflags &= ~int(mujoco.mjtEnableBit.mjENBL_ENERGY)
    return model


load_once = functools.cache(load)
