"""What tasks with MuJoCo have in common, and what Gymnasium's have."""

import abc
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import chex
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from jaxenvs import physics, spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.envs.mujoco import rendering
from jaxenvs.errors import ParameterError, check_integer
from jaxenvs.physics import models
from jaxenvs.physics.models import Fields, Model, Plan, precision
from jaxenvs.physics.renderer import Renderer, picture
from jaxenvs.spaces.unbounded import unbounded
from jaxenvs.spaces.validation import check_action_shape

Info = dict[str, jax.Array]

S = TypeVar("S")

# Plans and spaces of observations, by the static fields of environments, since tracing takes time.
_plans: dict[Any, Any] = {}


@chex.dataclass(frozen=True)
class MujocoState:
    """The state of the simulation, and the place that the next velocity is measured from."""

    qpos: jax.Array  # float32[nq], m and rad, positions of the joints; orientations are quaternions
    qvel: jax.Array  # float32[nv], m/s and rad/s, velocities of the joints
    # What the engine needs besides. In C MuJoCo, uint32[2 S], the simulation in double precision:
    # where `qpos` and `qvel` equal it when rounded, it is what counts. In MJX and Warp, a dict.
    kept: Any
    # float32[2, k], m, the place and what rounding left of it. It may be one physics step older
    # than `qpos`.
    place: jax.Array


class Simulation(Environment[S]):
    """A task with a model of MuJoCo.

    A simulation that diverges, which C MuJoCo would put back to its start silently, stays where it
    was: the episode is truncated, with the reward 0 and `info["diverged"]`.
    """

    physics: Any = None  # arrays that replace the model's: {"opt.gravity": (0, 0, -3.7)}
    dtype: str = struct.static("float32")  # or "float64", which needs jax_enable_x64
    engine: str = struct.static("auto")  # "c" (on CPUs), "mjx", or "warp"; see docs/usage/mujoco
    num_threads: int | None = struct.static(None)  # of a step in C; by default the cores we may use
    derivatives: str | None = struct.static(None)  # "finite": C has them, at the cost of many steps
    on_divergence: str = struct.static("truncate")  # or "raise", an error of the program
    renderer: Renderer | None = struct.static(None)  # MuJoCo's own, instead of a program in JAX

    camera: ClassVar[Mapping[str, Any]]  # see `rendering.draw`
    refreshes: ClassVar[bool]  # see `Plan`
    starts_with_forces: ClassVar[bool] = False

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
        object.__setattr__(self, "engine", physics.check_engine(name, self.engine, self.dtype))
        if self.on_divergence not in ("truncate", "raise"):
            raise ParameterError(
                f'{name} got on_divergence={self.on_divergence!r}; expected "truncate" or "raise".'
            )
        if self.derivatives not in (None, "finite"):
            raise ParameterError(
                f'{name} got derivatives={self.derivatives!r}; expected "finite" or None.'
            )
        if self.on_divergence == "raise" and self.engine != "c":
            raise ParameterError(
                f'{name} got on_divergence="raise", which engine="{self.engine}" cannot do.  Pass'
                ' engine="c", or look at info["diverged"].'
            )
        if self.num_threads is not None:
            check_integer(ParameterError, f"{name} got num_threads", self.num_threads)
        original = self._original  # raises if there is no such model
        self._engine.check(name, original)
        if self.renderer is not None:
            self.renderer.check(name, original)
        if self.physics is not None:
            models.check_changes(original, self.physics, self._engine.changeable(original))
            arrays = {name: jnp.asarray(x, self.dtype) for name, x in self.physics.items()}
            object.__setattr__(self, "physics", arrays)

    @property
    @abc.abstractmethod
    def _original(self) -> mujoco.MjModel:
        """The model, always the same object."""

    @property
    def _engine(self) -> Any:
        return physics.engine(self.engine)

    @property
    def _model(self) -> Model:
        """The arrays of the model, with those that `physics` replaces."""
        return self._model_with({})

    def _model_with(self, drawn: Mapping[str, Any]) -> Model:
        return Model(self._original, self.dtype, self._changes(drawn))

    def _changes(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arrays that differ from the model's, also those of an episode."""
        return {**(self.physics or {}), **drawn}

    @property
    def _plan(self) -> Plan:
        return self._plan_and_space[0]

    @property
    def observation_space(self) -> Any:
        return self._plan_and_space[1]

    @property
    def _plan_and_space(self) -> tuple[Plan, Any]:
        kind = jax.tree.structure(self)
        if kind not in _plans:
            original = self._original
            with precision(self.dtype):
                fields, _ = models.fields_read_by(original, self.dtype, self._read)
                precise, _ = models.fields_read_by(original, self.dtype, self._place)
                _, observation = models.fields_read_by(original, self.dtype, self._observe_data)
            plan = Plan(
                original=original,
                dtype=self.dtype,
                fields=tuple(sorted({"qpos", "qvel", *fields})),
                precise=precise,
                steps=self._num_steps,
                refreshes=self.refreshes,
                starts_with_forces=self.starts_with_forces,
                physics=tuple(self.physics or {}),
                raises=self.on_divergence == "raise",
                num_threads=self.num_threads,
                derivatives=self.derivatives,
            )
            _plans[kind] = plan, unbounded(observation)
        return _plans[kind]

    @property
    @abc.abstractmethod
    def _num_steps(self) -> int:
        """Physics steps in a step."""

    @abc.abstractmethod
    def _read(self, data: Fields) -> Any:
        """Calls all functions of the task that read the data of a step."""

    def _place(self, data: Fields) -> Any:
        """Returns the place whose change is the velocity."""
        del data

    @abc.abstractmethod
    def _observe_data(self, data: Fields) -> Any:
        """Returns the observation."""

    @property
    def action_space(self) -> spaces.Box:
        return spaces.Box(*self._control_range)

    @property
    def _control_range(self) -> np.ndarray:
        original = self._original
        is_limited = original.actuator_ctrllimited.astype(bool)[:, None]
        limits = np.where(
            is_limited, original.actuator_ctrlrange, [-mujoco.mjMAXVAL, mujoco.mjMAXVAL]
        )
        return limits.T.astype(np.float32)

    @property
    def _qpos0(self) -> jax.Array:
        """The positions that the model begins with."""
        return self._model.qpos0

    def _as_control(self, action: chex.Array) -> jax.Array:
        """Returns an action as the engine takes it."""
        check_action_shape(self.action_space, action, type(self).__name__)
        return jnp.asarray(action, self.dtype)

    def _placed(
        self, names: tuple[str, ...], drawn: Mapping[str, Any], qpos: jax.Array, wanted: Any = True
    ) -> Fields:
        """Returns some fields of the data at positions. `wanted` says whether they are needed."""
        plan = Plan(self._original, self.dtype, names, (), 0, self.refreshes)
        qpos = jnp.asarray(qpos, self.dtype)
        return self._engine.place(plan, self._changes(drawn), qpos, wanted).data

    @property
    def _camera(self) -> Mapping[str, Any]:
        return self.camera

    def render(self, state: S) -> jax.Array:
        """Draws the bodies: uint8[480, 480, 3], or the size of `renderer`."""
        return self._picture(state, getattr(state, "drawn", {}))

    def _picture(self, state: Any, drawn: Mapping[str, Any]) -> jax.Array:
        original = self._original
        with precision(self.dtype):
            if self.renderer is not None:
                changes = self._changes(drawn)
                return picture(self.renderer, original, changes, self._engine, state)
            data = self._placed(rendering.FIELDS, drawn, state.qpos)
            return rendering.draw(self._model_with(drawn), original, data, self._camera)


class MujocoEnvironment(Simulation[MujocoState]):
    """A task of Gymnasium's.

    Bodies are where the last evaluation of the forces saw them, as in C MuJoCo, so observations of
    bodies are up to one physics step older than `qpos`.

    A subclass defines `_initial_state`, `_observe_data`, and `_outcome`, and, if it has entries of
    `info`, `_info` and `measured`.
    """

    xml_file: str = struct.static("")  # the model: a file of Gymnasium's, or a path
    frame_skip: int = struct.static(1)  # physics steps in a step

    # Names in `info` that only a step computes. They are 0 after a reset.
    measured: ClassVar[tuple[str, ...]] = ()
    refreshes: ClassVar = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer(ParameterError, f"{type(self).__name__} got frame_skip", self.frame_skip)

    @property
    def _original(self) -> mujoco.MjModel:
        return models.load(self.xml_file)

    @property
    def _num_steps(self) -> int:
        return self.frame_skip

    def reset(self, key: chex.PRNGKey) -> tuple[MujocoState, TimeStep]:
        with precision(self.dtype):
            qpos, qvel = self._initial_state(key)
            return self._begin(jnp.asarray(qpos, self.dtype), jnp.asarray(qvel, self.dtype))

    def step(
        self, state: MujocoState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[MujocoState, TimeStep]:
        del key  # a step is deterministic
        with precision(self.dtype):
            action = self._as_control(action)
            moved = self._engine.step(self._plan, self._changes({}), state, action)
            data = moved.data
            place = self._rounded_place(moved.precise)
            path, rest = place - state.place
            velocity = (path + rest) / (self.frame_skip * self._model.opt.timestep)
            reward, terminated, parts = self._outcome(data, action, velocity)
            info = self._in_dtype({**self._info(data), **parts})
            state = MujocoState(qpos=data.qpos, qvel=data.qvel, kept=moved.kept, place=place)
            return state, moved.transition(self._observe_data(data), reward, terminated, info)

    def _begin(self, qpos: jax.Array, qvel: jax.Array) -> tuple[MujocoState, TimeStep]:
        begun = self._engine.start(self._plan, self._changes({}), qpos, qvel)
        state = MujocoState(
            qpos=qpos, qvel=qvel, kept=begun.kept, place=self._rounded_place(begun.precise)
        )
        info = self._in_dtype(self._info(begun.data) | dict.fromkeys(self.measured, 0))
        return state, begun.first(self._observe_data(begun.data), info)

    def _rounded_place(self, data: Fields) -> jax.Array:
        """Returns the place in two numbers, whose differences are exact in single precision."""
        with jax.enable_x64(True):
            place = self._place(data)
            rounded = place.astype(self.dtype)
            return jnp.stack([rounded, (place - rounded).astype(self.dtype)])

    def _in_dtype(self, info: Mapping[str, Any]) -> Info:
        return {name: jnp.asarray(value, self.dtype) for name, value in info.items()}

    def _read(self, data: Fields) -> Any:
        action, velocity = jnp.zeros(self._original.nu), jnp.zeros(2)
        return self._observe_data(data), self._info(data), self._outcome(data, action, velocity)

    @abc.abstractmethod
    def _initial_state(self, key: chex.PRNGKey) -> tuple[jax.Array, jax.Array]:
        """Draws the positions and velocities of the joints at which an episode begins."""

    @abc.abstractmethod
    def _outcome(
        self, data: Fields, action: jax.Array, velocity: jax.Array
    ) -> tuple[jax.Array, jax.Array, Info]:
        """Returns the reward, whether the episode terminates, and what `measured` names."""

    def _place(self, data: Fields) -> jax.Array:
        return data.qpos[:1]

    def _info(self, data: Fields) -> Info:
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
