"""What tasks with MuJoCo have in common, and what Gymnasium's have."""

import abc
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.envs.mujoco import physics, rendering
from jaxenvs.envs.mujoco._mjx import Data, Model, conventions, mjx, mujoco
from jaxenvs.errors import ParameterError, check_integer
from jaxenvs.spaces.validation import check_action_shape

Info = dict[str, jax.Array]

S = TypeVar("S")

# Observation spaces by the static fields of environments. Finding them takes half a second.
_spaces: dict[Any, Any] = {}


@chex.dataclass(frozen=True)
class MujocoState:
    """The state of the simulation, and the place that the next velocity is measured from."""

    qpos: jax.Array  # float32[nq], m and rad, positions of the joints; orientations are quaternions
    qvel: jax.Array  # float32[nv], m/s and rad/s, velocities of the joints
    qacc_warmstart: jax.Array  # float32[nv], the last accelerations, where the solver starts
    place: jax.Array  # float32[k], m, may be one physics step older than `qpos`


class Simulation(Environment[S]):
    """A task with a model of MuJoCo, simulated by MJX."""

    physics: Any = None  # arrays that replace the model's: {"opt.gravity": (0, 0, -3.7)}
    dtype: str = struct.static("float32")  # or "float64", which needs jax_enable_x64

    camera: ClassVar[Mapping[str, Any]]  # see `rendering.draw`

    def __post_init__(self) -> None:
        name = type(self).__name__
        if self.dtype not in ("float32", "float64"):
            raise ParameterError(
                f'{name} got dtype={self.dtype!r}; expected "float32" or "float64".'
            )
        if self.dtype == "float64" and not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
            raise ParameterError(
                f'{name} got dtype="float64".  It needs jax.config.update("jax_enable_x64", True).'
            )
        original = self._original  # raises if there is no such model
        if self.physics is not None:
            physics.check_changes(original, self.physics)

    @property
    @abc.abstractmethod
    def _original(self) -> mujoco.MjModel:
        """The model in C MuJoCo, always the same object."""

    @property
    def _model(self) -> Model:
        """The model in MJX."""
        return physics.put(self._original, self.dtype, self.physics)

    @property
    def observation_space(self) -> Any:
        kind = jax.tree.structure(self)
        if kind not in _spaces:
            with conventions(self.dtype):  # a simulation would take seconds to trace
                seen = jax.eval_shape(lambda: self._observe_data(mjx.make_data(self._model)))
            boxes = jax.tree.map(
                lambda leaf: spaces.Box(-np.inf, np.inf, leaf.shape, self.dtype), seen
            )
            _spaces[kind] = spaces.Dict(boxes) if isinstance(boxes, dict) else boxes
        return _spaces[kind]

    @abc.abstractmethod
    def _observe_data(self, data: Data) -> Any:
        """Returns the observation."""

    @property
    def action_space(self) -> spaces.Box:
        original = self._original
        is_limited = original.actuator_ctrllimited.astype(bool)[:, None]
        limits = np.where(
            is_limited, original.actuator_ctrlrange, [-mujoco.mjMAXVAL, mujoco.mjMAXVAL]
        )
        return spaces.Box(*limits.T.astype(np.float32))

    @property
    def _qpos0(self) -> jax.Array:
        """The positions that the model begins with."""
        return self._model.qpos0

    def _model_of(self, state: S) -> Model:
        """Returns the model in MJX, with what the episode changed in it."""
        del state
        return self._model

    def _as_control(self, action: chex.Array) -> jax.Array:
        """Returns an action as MJX takes it."""
        check_action_shape(self.action_space, action, type(self).__name__)
        return jnp.asarray(action, self.dtype)

    def render(self, state: S) -> jax.Array:
        """Draws the bodies: uint8[480, 480, 3]."""
        with conventions(self.dtype):
            return rendering.draw(self._model_of(state), self._original, state.qpos, self.camera)  # pyright: ignore[reportAttributeAccessIssue]


class MujocoEnvironment(Simulation[MujocoState]):
    """A task of Gymnasium's.

    Bodies are where the last evaluation of the forces saw them, as in C MuJoCo, so observations of
    bodies are up to one physics step older than `qpos`.

    A subclass defines how an episode starts, what is observed, and the rewards.
    """

    xml_file: str = struct.static("")  # the model: a file of Gymnasium's, or a path
    frame_skip: int = struct.static(1)  # physics steps in a step

    # Names in `info` that only a step computes. They are 0 after a reset.
    measured: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        check_integer(ParameterError, f"{name} got frame_skip", self.frame_skip)
        if self._original.na:
            raise ParameterError(
                f'{name} got xml_file="{self.xml_file}", whose actuators have a state; expected'
                ' a model without activations.  Pass engine="pool" to simulate it in C MuJoCo.'
            )

    @property
    def _original(self) -> mujoco.MjModel:
        return physics.load(self.xml_file)

    def reset(self, key: chex.PRNGKey) -> tuple[MujocoState, TimeStep]:
        with conventions(self.dtype):
            qpos, qvel = self._draw_start(key)
            return self._start(jnp.asarray(qpos, self.dtype), jnp.asarray(qvel, self.dtype))

    def step(
        self, state: MujocoState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[MujocoState, TimeStep]:
        del key  # a step is deterministic
        with conventions(self.dtype):
            model, action = self._model, self._as_control(action)
            start = physics.data(model, state.qpos, state.qvel)
            start = start.replace(qacc_warmstart=state.qacc_warmstart, ctrl=action)
            data = physics.simulate(model, start, self.frame_skip)
            data = data.tree_replace({"_impl.cfrc_ext": physics.contact_forces(model, data)})
            place = self._place(data)
            velocity = (place - state.place) / (self.frame_skip * model.opt.timestep)
            reward, terminated, parts = self._judge(data, action, velocity)
            state = MujocoState(
                qpos=data.qpos, qvel=data.qvel, qacc_warmstart=data.qacc_warmstart, place=place
            )
            return state, TimeStep.transition(
                self._observe_data(data),
                reward=reward,
                terminated=terminated,
                info=self._in_dtype({**self._describe(data), **parts}),
            )

    def _start(self, qpos: jax.Array, qvel: jax.Array) -> tuple[MujocoState, TimeStep]:
        data = self._settle(qpos, qvel)
        state = MujocoState(
            qpos=qpos, qvel=qvel, qacc_warmstart=jnp.zeros_like(qvel), place=self._place(data)
        )
        info = self._in_dtype(self._describe(data) | dict.fromkeys(self.measured, 0))
        return state, TimeStep.first(self._observe_data(data), info=info)

    def _in_dtype(self, info: Mapping[str, Any]) -> Info:
        return {name: jnp.asarray(value, self.dtype) for name, value in info.items()}

    def _settle(self, qpos: jax.Array, qvel: jax.Array) -> Data:
        """Returns the data of the first observation. Forces are 0 unless a subclass needs them."""
        return physics.place(self._model, qpos, qvel)

    def _observe(self, state: MujocoState) -> jax.Array:
        """Returns the first observation of an episode."""
        with conventions(self.dtype):
            return self._observe_data(self._settle(state.qpos, state.qvel))

    @abc.abstractmethod
    def _draw_start(self, key: chex.PRNGKey) -> tuple[jax.Array, jax.Array]:
        """Returns the positions and velocities of the joints at the start."""

    @abc.abstractmethod
    def _judge(
        self, data: Data, action: jax.Array, velocity: jax.Array
    ) -> tuple[jax.Array, jax.Array, Info]:
        """Returns the reward, whether the task ended, and what `measured` names."""

    def _place(self, data: Data) -> jax.Array:
        """Returns the place whose change is the velocity."""
        return data.qpos[:1]

    def _describe(self, data: Data) -> Info:
        """Returns the entries of `info` that exist after a reset, too."""
        del data
        return {}


def uniform_noise(env: Any, key: chex.PRNGKey) -> tuple[jax.Array, jax.Array]:
    """Returns the start with uniform noise in [-s, s) on positions and velocities."""
    size = env._qpos0.shape[0]
    noise = jax.random.uniform(key, (size + env._model.nv,), jnp.float32, -1.0, 1.0)
    noise = env.reset_noise_scale * noise
    return env._qpos0 + noise[:size], noise[size:]


def normal_noise(env: Any, key: chex.PRNGKey) -> tuple[jax.Array, jax.Array]:
    """Returns the start with uniform noise in [-s, s) on positions, s N(0, 1) on velocities."""
    position_key, velocity_key = jax.random.split(key)
    shape = env._qpos0.shape
    noise = jax.random.uniform(position_key, shape, jnp.float32, -1.0, 1.0)
    speeds = jax.random.normal(velocity_key, (env._model.nv,), jnp.float32)
    return env._qpos0 + env.reset_noise_scale * noise, env.reset_noise_scale * speeds
