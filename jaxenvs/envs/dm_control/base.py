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
class InitialState:
    """The state in which an episode begins."""

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

    A subclass defines `_initial_state`, `_observe`, and `_reward`.
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
            return self._begin(self._initial_state(key))

    def step(
        self, state: ControlState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[ControlState, TimeStep]:
        del key  # a step is deterministic
        with precision(self.dtype):
            model, action = self._model_with(state.drawn), self._as_control(action)
            moved = self._engine.step(self._plan, self._changes(state.drawn), state, action)
            data = moved.data
            state = ControlState(qpos=data.qpos, qvel=data.qvel, kept=moved.kept, drawn=state.drawn)
            reward, terminated = self._reward(model, data, action), self._terminated(data)
            return state, moved.transition(self._observe(model, data), reward, terminated)

    def _begin(self, start: Any) -> tuple[ControlState, TimeStep]:
        changes = self._changes(start.drawn)
        begun = self._engine.start(self._plan, changes, start.qpos, start.qvel, start.kept)
        state = ControlState(
            qpos=start.qpos, qvel=start.qvel, kept=begun.kept, drawn=dict(start.drawn)
        )
        return state, begun.first(self._observe(self._model_with(start.drawn), begun.data))

    def _observe_data(self, data: Fields) -> Observation:
        return self._observe(self._model, data)

    def _read(self, data: Fields) -> Any:
        action = jnp.zeros(self._original.nu)
        reward = self._reward(self._model, data, action)
        return self._observe_data(data), reward, self._terminated(data)

    def _make_state(
        self, qpos: jax.Array, qvel: jax.Array | None = None, **drawn: Any
    ) -> InitialState:
        """Returns the state in which an episode begins, by default at rest."""
        still = jnp.zeros(self._original.nv, self.dtype)
        return InitialState(
            qpos=jnp.asarray(qpos, self.dtype),
            qvel=still if qvel is None else jnp.asarray(qvel, self.dtype),
            drawn={name: jnp.asarray(value, self.dtype) for name, value in drawn.items()},
        )

    def _random_joints(self, key: chex.PRNGKey) -> jax.Array:
        """Draws positions of joints: float32[nq].

        Joints with limits are uniform within them, hinges without limits within a full turn, and
        slides without limits stay. The orientation of a free body is a vector in [0, 1)^4,
        normalized, which is not uniform.
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

    def _random_joints_without_contact(self, key: chex.PRNGKey) -> InitialState:
        """Draws positions of joints until nothing touches."""
        return self._without_contact(
            self._make_state(self._qpos0),
            lambda count, _: self._make_state(self._random_joints(jax.random.fold_in(key, count))),
        )

    def _without_contact(
        self, first: InitialState, draw: Callable[[jax.Array, InitialState], InitialState]
    ) -> InitialState:
        """Draws initial states until nothing touches.

        `draw` gets the number of states drawn so far and the last one, at first `first`.
        """

        def again(carry: tuple[jax.Array, InitialState, jax.Array]) -> Any:
            count, start, touches = carry
            start = draw(count, start)
            # In a batch, instances that are done are left out.
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
    def _initial_state(self, key: chex.PRNGKey) -> InitialState:
        """Draws the state in which an episode begins, by `self._make_state(...)`."""

    @abc.abstractmethod
    def _observe(self, model: Model, data: Fields) -> Observation:
        """Returns the observation."""

    @abc.abstractmethod
    def _reward(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        """Returns the reward."""

    def _terminated(self, data: Fields) -> jax.Array:
        """Returns whether the episode terminates, which it does in the domain lqr only."""
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
