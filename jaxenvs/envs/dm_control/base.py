"""What the tasks of the Control Suite have in common."""

import abc
import functools
import importlib
import math
from collections.abc import Callable
from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from jaxenvs import loops, struct
from jaxenvs.core import TimeStep
from jaxenvs.envs.mujoco.base import Simulation
from jaxenvs.errors import ParameterError, check_integer, missing_extra
from jaxenvs.physics.models import Fields, Model, precision

Observation = dict[str, jax.Array]


@chex.dataclass(frozen=True)
class Start:
    """Where an episode starts."""

    qpos: jax.Array  # float32[nq], m and rad, positions of the joints; orientations are quaternions
    qvel: jax.Array  # float32[nv], m/s and rad/s, velocities of the joints
    drawn: dict[str, jax.Array]  # arrays of the model that hold for this episode
    kept: Any = None  # what the engine needs besides, if it has simulated already


@chex.dataclass(frozen=True)
class ControlState:
    """The state of the simulation, and what an episode draws besides."""

    qpos: jax.Array
    qvel: jax.Array
    kept: Any  # see `MujocoState`
    drawn: dict[str, jax.Array]


class ControlTask(Simulation[ControlState]):
    """A task of the Control Suite.

    Bodies and velocities are those of the new state. Sensors of forces are those of the last
    physics step, as in dm_control.

    dm_control raises an error if a simulation diverges.

    A subclass defines how an episode starts, what is observed, and the reward.
    """

    n_sub_steps: int = struct.static(1)  # physics steps in a step

    refreshes: ClassVar = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer(ParameterError, f"{type(self).__name__} got n_sub_steps", self.n_sub_steps)

    @property
    def _num_steps(self) -> int:
        return self.n_sub_steps

    def reset(self, key: chex.PRNGKey) -> tuple[ControlState, TimeStep]:
        with precision(self.dtype):
            return self._start(self._draw_start(key))

    def step(
        self, state: ControlState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[ControlState, TimeStep]:
        del key  # a step is deterministic
        with precision(self.dtype):
            model, action = self._model_with(state.drawn), self._as_control(action)
            moved = self._engine.step(self._plan, self._changes(state.drawn), state, action)
            data = moved.data
            state = ControlState(qpos=data.qpos, qvel=data.qvel, kept=moved.kept, drawn=state.drawn)
            reward, terminated = self._judge(model, data, action), self._has_ended(data)
            return state, moved.transition(self._see(model, data), reward, terminated)

    def _start(self, start: Any) -> tuple[ControlState, TimeStep]:
        changes = self._changes(start.drawn)
        begun = self._engine.start(self._plan, changes, start.qpos, start.qvel, start.kept)
        state = ControlState(
            qpos=start.qpos, qvel=start.qvel, kept=begun.kept, drawn=dict(start.drawn)
        )
        return state, begun.first(self._see(self._model_with(start.drawn), begun.data))

    def _observe_data(self, data: Fields) -> Observation:
        return self._see(self._model, data)

    def _read(self, data: Fields) -> Any:
        action = jnp.zeros(self._original.nu)
        judged = self._judge(self._model, data, action)
        return self._observe_data(data), judged, self._has_ended(data)

    def _begin(self, qpos: jax.Array, qvel: jax.Array | None = None, **drawn: Any) -> Start:
        """Returns the start of an episode, without velocities by default."""
        still = jnp.zeros(self._original.nv, self.dtype)
        return Start(
            qpos=jnp.asarray(qpos, self.dtype),
            qvel=still if qvel is None else jnp.asarray(qvel, self.dtype),
            drawn={name: jnp.asarray(value, self.dtype) for name, value in drawn.items()},
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

    def _random_joints_without_contact(self, key: chex.PRNGKey) -> Start:
        """Draws joints until nothing touches."""
        return self._without_contact(
            self._begin(self._qpos0),
            lambda count, _: self._begin(self._random_joints(jax.random.fold_in(key, count))),
        )

    def _without_contact(self, first: Start, draw: Callable[[jax.Array, Start], Start]) -> Start:
        """Draws starts until nothing touches.

        `draw` gets the number of starts so far, and the latest, which is `first` at first.
        """

        def again(carry: tuple[jax.Array, Start, jax.Array]) -> Any:
            count, start, touches = carry
            start = draw(count, start)
            # In a batch, instances that have a start are not looked at.
            data = self._placed(("ncon",), start.drawn, start.qpos, wanted=touches)
            return count + 1, start, data.ncon > 0

        carry = jnp.int32(0), first, jnp.bool_(True)
        return loops.while_loop(lambda carry: carry[2], again, carry)[1]

    def _size(self, model: Model, geom: str) -> jax.Array:
        """Returns the first size of a geom, such as the radius of a sphere: float32[], m."""
        return model.geom_size[self._original.geom(geom).id, 0]

    def _sensor(self, data: Fields, name: str) -> jax.Array:
        """Returns the values of a sensor."""
        sensor = self._original.sensor(name)
        return data.sensordata[sensor.adr[0] : sensor.adr[0] + sensor.dim[0]]

    @abc.abstractmethod
    def _draw_start(self, key: chex.PRNGKey) -> Start:
        """Returns the start of an episode."""

    @abc.abstractmethod
    def _see(self, model: Model, data: Fields) -> Observation:
        """Returns the observation."""

    @abc.abstractmethod
    def _judge(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        """Returns the reward."""

    def _has_ended(self, data: Fields) -> jax.Array:
        """Returns whether the episode ends, which it does in the domain lqr only."""
        del data
        return jnp.bool_(False)


def load(domain: str, **options: Any) -> mujoco.MjModel:
    """Loads dm_control's model of a domain.

    Args:
        domain: its name.
        **options: what the domain's function needs.
    """
    try:
        module = importlib.import_module(f"dm_control.suite.{domain}")
    except ImportError as error:
        raise missing_extra(f"dm_control/{domain}", "dm-control", "dm_control") from error
    make = getattr(module, "get_model_and_assets", None) or module.make_model
    made = make(**options)  # the model, or the model and its assets
    xml, assets = made if isinstance(made, tuple) else (made, module.common.ASSETS)
    return mujoco.MjModel.from_xml_string(xml, assets)


load_once = functools.cache(load)
