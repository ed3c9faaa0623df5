"""Models of MuJoCo as native environments."""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import mujoco

from jaxenvs import struct
from jaxenvs.core import TimeStep
from jaxenvs.envs.mujoco.base import Simulation
from jaxenvs.physics import models
from jaxenvs.physics.models import Fields, precision
from jaxenvs.suites._shared import ByIdentity, check_kind


@chex.dataclass(frozen=True)
class Start:
    """Where an episode starts."""

    qpos: jax.Array  # float32[nq]
    qvel: jax.Array  # float32[nv]


@chex.dataclass(frozen=True)
class ModelState:
    """The state of the simulation, and what the next reward reads of the data before the step."""

    qpos: jax.Array  # float32[nq]
    qvel: jax.Array  # float32[nv]
    kept: Any  # what the engine needs besides
    before: dict[str, jax.Array]


class FromMujoco(Simulation[ModelState]):
    """A task with a model of MuJoCo, see `from_mujoco`."""

    model: Any = struct.static(None)  # ByIdentity of a mujoco.MjModel
    frame_skip: int = struct.static(1)  # physics steps in a step
    observe: Any = struct.static(None)  # functions of the data, see `from_mujoco`
    reward: Any = struct.static(None)
    terminated: Any = struct.static(None)
    initialize: Any = struct.static(None)
    body: int = struct.static(1)  # that pictures follow

    refreshes = False
    starts_with_forces = True

    @property
    def _camera(self) -> dict[str, Any]:
        return {"body": self.body, "distance": 1.5 * float(self._original.stat.extent)}

    @property
    def _original(self) -> mujoco.MjModel:
        return self.model.value

    @property
    def _num_steps(self) -> int:
        return self.frame_skip

    def _observe_data(self, data: Fields) -> Any:
        return self.observe(data)

    def _read(self, data: Fields) -> Any:
        action = jnp.zeros(self._original.nu)
        return self.observe(data), self.reward(data, action, data), self.terminated(data)

    def _seen_before(self, data: Fields) -> dict[str, jax.Array]:
        """Returns what the next reward reads of the data."""

        def reward(before: Fields) -> Any:
            return self.reward(before, jnp.zeros(self._original.nu), data)

        names, _ = models.fields_read_by(self._original, self.dtype, reward)
        return {name: getattr(data, name) for name in names}

    def reset(self, key: chex.PRNGKey) -> tuple[ModelState, TimeStep]:
        with precision(self.dtype):
            start = Start(qpos=self._qpos0, qvel=jnp.zeros(self._original.nv, self.dtype))
            start = self.initialize(start, key)
            qpos, qvel = (jnp.asarray(x, self.dtype) for x in (start.qpos, start.qvel))
            begun = self._engine.start(self._plan, self._changes({}), qpos, qvel)
            state = ModelState(
                qpos=qpos, qvel=qvel, kept=begun.kept, before=self._seen_before(begun.data)
            )
            return state, begun.first(self.observe(begun.data))

    def step(
        self, state: ModelState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[ModelState, TimeStep]:
        del key  # a step is deterministic
        with precision(self.dtype):
            action = self._as_control(action)
            moved = self._engine.step(self._plan, self._changes({}), state, action)
            data = moved.data
            before = Fields(self._original, self.dtype, state.before)
            reward = jnp.asarray(self.reward(before, action, data), self.dtype)
            state = ModelState(
                qpos=data.qpos, qvel=data.qvel, kept=moved.kept, before=self._seen_before(data)
            )
            terminated = jnp.asarray(self.terminated(data))
            return state, moved.transition(self.observe(data), reward, terminated)


def from_mujoco(
    model: Any,
    *,
    observe: Callable[[Any], Any],
    reward: Callable[[Any, jax.Array, Any], Any],
    terminated: Callable[[Any], Any] = lambda data: jnp.bool_(False),
    initialize: Callable[[Any, chex.PRNGKey], Any] = lambda start, key: start,
    frame_skip: int = 1,
    body: int = 1,
    **options: Any,
) -> FromMujoco:
    """Returns an environment with a model of MuJoCo, without a time limit.

    Actions are MuJoCo's controls. After a step, the data are what `mj_step` leaves, so places of
    bodies are those of the last evaluation of the forces, up to one physics step older than `qpos`.

    Args:
        model: a `mujoco.MjModel`. Do not change it afterwards.
        observe: data -> observation, an array or a tree of dicts and tuples. `data` has arrays by
            MuJoCo's names, such as `qpos`, `xpos`, `sensordata`, or `cfrc_ext`; matrices of
            orientations are [..., 3, 3].
        reward: (data before the step, action, data after it) -> reward.
        terminated: data after a step -> whether the task has ended; by default it never does.
        initialize: (start, key) -> start of an episode, with `start.replace(qpos=..., qvel=...)`;
            all else is computed from them.
        frame_skip: the number of physics steps in a step.
        body: the number of the body that pictures follow.
        **options: `engine`, `physics`, `dtype`, `num_threads`, and `on_divergence`, as of all tasks
            with MuJoCo.

    Raises:
        WrapperError: `model` is not a `mujoco.MjModel`.
        ParameterError: an option is wrong, or the engine cannot simulate the model.

    Example:
        >>> env = jaxenvs.suites.adapt(
        ...     mujoco.MjModel.from_xml_path("pendulum.xml"),
        ...     observe=lambda data: data.qpos,
        ...     reward=lambda data, action, next_data: -jnp.abs(next_data.qpos).sum(),
        ... )  # doctest: +SKIP
    """
    check_kind("from_mujoco", model, mujoco.MjModel)
    return FromMujoco(
        model=ByIdentity(model),
        frame_skip=frame_skip,
        observe=observe,
        reward=reward,
        terminated=terminated,
        initialize=initialize,
        body=body,
        **options,
    )
