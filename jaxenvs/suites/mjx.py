"""Models of MuJoCo as native environments, with physics in MJX."""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import loops, spaces, struct
from jaxenvs.core import TimeStep
from jaxenvs.errors import missing_extra
from jaxenvs.suites._shared import Adapter, ByIdentity, check_kind, mujoco_picture, unbounded

try:
    import mujoco
    from mujoco import mjx
except ImportError as error:
    raise missing_extra(__name__, "mujoco-mjx", "mjx") from error


class FromMjx(Adapter):
    """A task with a model of MuJoCo. Its state is an `mjx.Data`.

    The model's arrays are leaves. To randomize the physics, replace some of them, such as
    `env.replace(model=env.model.replace(body_mass=...))`. Pictures show the original model.
    """

    model: Any  # mjx.Model
    mj_model: ByIdentity = struct.static()
    frame_skip: int = struct.static()
    observe: Callable[[Any], Any] = struct.static()
    reward: Callable[[Any, jax.Array, Any], Any] = struct.static()
    terminated: Callable[[Any], Any] = struct.static()
    initialize: Callable[[Any, chex.PRNGKey], Any] = struct.static()

    @property
    def observation_space(self) -> spaces.Space:
        return unbounded(jax.eval_shape(self.begin, jax.random.key(0))[1].observation)

    @property
    def action_space(self) -> spaces.Space:
        model = self.mj_model.value
        is_limited = model.actuator_ctrllimited.astype(bool)[:, None]
        ranges = np.where(is_limited, model.actuator_ctrlrange, [-np.inf, np.inf])
        return spaces.Box(*ranges.T.astype(np.float32), dtype=np.float32)

    def begin(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        data = self.initialize(mjx.make_data(self.model, impl="jax"), key)
        data = mjx.forward(self.model, data)
        return data, TimeStep.first(self.observe(data))

    def advance(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        del key
        data = state.replace(ctrl=action)
        data = loops.fori_loop(0, self.frame_skip, lambda _, data: mjx.step(self.model, data), data)
        return data, TimeStep.transition(
            self.observe(data),
            reward=self.reward(state, action, data),
            terminated=self.terminated(data),
        )

    def render(self, state: Any) -> jax.Array:
        def draw(parts: dict[str, np.ndarray]) -> np.ndarray:
            data = mujoco.MjData(self.mj_model.value)
            for name, value in parts.items():
                getattr(data, name)[:] = value
            mujoco.mj_forward(self.mj_model.value, data)
            with mujoco.Renderer(self.mj_model.value) as renderer:
                renderer.update_scene(data)
                return renderer.render()

        def parts(data: Any) -> dict[str, jax.Array]:
            return {name: getattr(data, name) for name in ("qpos", "mocap_pos", "mocap_quat")}

        return mujoco_picture(draw, parts(state), lambda: parts(self.example()))


def from_mjx(
    model: Any,
    *,
    observe: Callable[[Any], Any],
    reward: Callable[[Any, jax.Array, Any], Any],
    terminated: Callable[[Any], Any] = lambda data: jnp.bool_(False),
    initialize: Callable[[Any, chex.PRNGKey], Any] = lambda data, key: data,
    frame_skip: int = 1,
) -> FromMjx:
    """Returns an environment with a model of MuJoCo, without a time limit.

    Actions are MuJoCo's controls.

    Args:
        model: a `mujoco.MjModel`.
        observe: data -> observation, an array or a tree of dicts and tuples. `data` is an
            `mjx.Data`.
        reward: (data before the step, action, data after it) -> reward.
        terminated: data after a step -> whether the task has ended; by default it never does.
        initialize: (data, key) -> data at the beginning of an episode. It may replace `qpos`,
            `qvel`, and the like; all else is computed from them.
        frame_skip: the number of simulation steps in a step.

    Raises:
        WrapperError: `model` is not a `mujoco.MjModel`.

    Example:
        >>> env = jaxenvs.suites.adapt(
        ...     mujoco.MjModel.from_xml_path("pendulum.xml"),
        ...     observe=lambda data: data.qpos,
        ...     reward=lambda data, action, next_data: -jnp.abs(next_data.qpos).sum(),
        ... )  # doctest: +SKIP
    """
    check_kind("from_mjx", model, mujoco.MjModel)
    return FromMjx(
        model=mjx.put_model(model, impl="jax"),
        mj_model=ByIdentity(model),
        frame_skip=frame_skip,
        observe=observe,
        reward=reward,
        terminated=terminated,
        initialize=initialize,
    )
