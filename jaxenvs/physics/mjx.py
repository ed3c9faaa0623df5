"""MJX, which is MuJoCo in JAX, as an engine.

Results equal those of C MuJoCo up to rounding, including what its data hold after a step: after
`mj_step`, positions of bodies are those of the last evaluation of the forces, not of the new
`qpos`.
"""

import copy
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import mujoco

from jaxenvs import loops
from jaxenvs.errors import ParameterError
from jaxenvs.physics.mjx_functions import Data, Model, conventions, mjx
from jaxenvs.physics.models import Plan, Simulated, simulated
from jaxenvs.physics.models import restore as restore

# The classical Runge-Kutta method: how far each evaluation is from the start, and its weight.
_DISTANCES, _WEIGHTS = (0.0, 0.5, 0.5, 1.0), (1 / 6, 1 / 3, 1 / 3, 1 / 6)


def start(
    plan: Plan,
    changes: Mapping[str, Any],
    qpos: jax.Array,
    qvel: jax.Array,
    kept: Any = None,
    control: jax.Array | None = None,
) -> Simulated:
    """Returns the simulation at positions and velocities, with all that follows from them."""
    del control  # on which only where a solver starts depends
    with conventions(plan.dtype):
        model = _put(plan.original, plan.dtype, changes)
        kept = first_kept(plan, kept)
        data = _data(model, qpos, qvel).replace(**kept)
        if plan.needs_forces:
            data = mjx.forward(model, data)
        if not plan.starts_with_forces:
            data = _follow(model, data, plan, qpos, qvel)
        return simulated(plan, kept, jnp.bool_(False), *_fields(plan, data))


def step(plan: Plan, changes: Mapping[str, Any], state: Any, control: jax.Array) -> Simulated:
    """Takes the physics steps of a control step."""
    with conventions(plan.dtype):
        model = _put(plan.original, plan.dtype, changes)
        kept = first_kept(plan, state.kept)
        data = _data(model, state.qpos, state.qvel).replace(**kept, ctrl=control)
        data = _simulate(model, data, plan.steps)
        diverged = ~(jnp.isfinite(data.qpos).all() & jnp.isfinite(data.qvel).all())
        kept = {name: jnp.where(diverged, old, getattr(data, name)) for name, old in kept.items()}
        if "cfrc_ext" in plan.fields:
            data = mjx.rne_postconstraint(model, data)
        if plan.refreshes:
            fresh = _data(model, data.qpos, data.qvel).replace(
                act=data.act, sensordata=data.sensordata
            )
            data = _follow(model, fresh, plan, data.qpos, data.qvel)
        fields, precise = _fields(plan, data)
        for name in plan.fields:
            old = getattr(state, name) if name in ("qpos", "qvel") else 0
            fields[name] = jnp.where(diverged, old, fields[name])
        return simulated(plan, kept, diverged, fields, precise)


def place(plan: Plan, changes: Mapping[str, Any], qpos: jax.Array, wanted: Any = True) -> Simulated:
    """Returns where bodies are at positions, and `ncon`, how many contacts there are.

    A micrometer is rounding: the toes of quadruped are 0 m above the ground at the right height.
    """
    del wanted
    with conventions(plan.dtype):
        model = _put(plan.original, plan.dtype, changes)
        data = mjx.kinematics(model, mjx.make_data(model).replace(qpos=qpos))
        return simulated(plan, {}, jnp.bool_(False), *_fields(plan, data, model))


def check(caller: str, original: mujoco.MjModel) -> None:
    """Checks that MJX can simulate a model.

    Raises:
        ParameterError: it cannot.
    """
    why = None
    try:
        _put_once(original, "float32")
    except NotImplementedError as error:
        why = str(error)
    if original.na and original.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4:
        why = "it does not integrate activations with the Runge-Kutta method"
    if why:
        raise ParameterError(
            f'{caller} cannot be simulated by engine="mjx": {why}.  Pass engine="c".'
        )


@functools.cache
def changeable(original: mujoco.MjModel) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the arrays that can have other values in an instance."""
    return {
        ".".join(key.name for key in path): jnp.shape(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(_put_once(original, "float32"))
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    }


def loadable(original: mujoco.MjModel) -> mujoco.MjModel:
    """Returns a model without what MJX and Warp refuse."""
    model, kinds = copy.copy(original), mujoco.mjtSolver
    if model.opt.solver == kinds.mjSOL_PGS:  # which MJX does not have
        model.opt.solver = kinds.mjSOL_NEWTON
    model.opt.enableflags &= ~int(mujoco.mjtEnableBit.mjENBL_ENERGY)  # nor this
    if model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_CONTACT:
        # It refuses pairs of shapes that it does not collide, unless their geoms cannot.
        model.geom_contype[:] = model.geom_conaffinity[:] = 0
    return model


@functools.cache
def _put_once(original: mujoco.MjModel, dtype: str) -> Model:
    """Returns a model in MJX, with arrays that do not belong to a trace or a mesh."""
    no_mesh = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ()))
    with conventions(dtype), no_mesh, jax.ensure_compile_time_eval():
        return mjx.put_model(loadable(original), impl="jax")


def first_kept(plan: Plan, kept: Any) -> dict[str, jax.Array]:
    """Returns what a state carries besides positions and velocities; at first it is zero."""
    sizes = {"qacc_warmstart": plan.original.nv, "act": plan.original.na}
    return kept or {name: jnp.zeros(size, plan.dtype) for name, size in sizes.items()}


def _put(original: mujoco.MjModel, dtype: str, changes: Mapping[str, Any]) -> Model:
    model = _put_once(original, dtype)
    return model.tree_replace({name: jnp.asarray(x, dtype) for name, x in changes.items()})


def _data(model: Model, qpos: jax.Array, qvel: jax.Array) -> Data:
    return mjx.make_data(model).replace(qpos=qpos, qvel=qvel)


def _follow(model: Model, data: Data, plan: Plan, qpos: jax.Array, qvel: jax.Array) -> Data:
    """Computes what follows from positions and velocities without forces.

    MJX normalizes the quaternions in `qpos`; C MuJoCo leaves them alone until they are integrated.
    """
    placed = mjx.kinematics(model, data)
    placed = mjx.com_pos(model, placed)
    placed = mjx.tendon(model, placed)
    placed = mjx.com_vel(model, placed)
    velocity = placed._impl.ten_J @ qvel
    placed = placed.tree_replace({"qpos": qpos, "_impl.ten_velocity": velocity})
    if plan.refreshes:  # sensors of forces stay as they were
        placed = mjx.sensor_vel(model, mjx.sensor_pos(model, placed))
    return placed


def _fields(plan: Plan, data: Data, model: Model = None) -> list[dict[str, jax.Array]]:
    def find(name: str) -> jax.Array:
        if name == "ncon":
            contact = mjx.collision(model, data)._impl.contact
            return (contact.dist < contact.includemargin - 1e-6).sum()
        return getattr(data._impl if hasattr(data._impl, name) else data, name)

    return [{name: find(name) for name in names} for names in (plan.fields, plan.precise)]


def _simulate(model: Model, start: Data, steps: int) -> Data:
    """Takes physics steps, as `mj_step` does.

    MJX's own step with the Runge-Kutta method evaluates the forces in four places of the program.
    Here they are in one, which compiles in about half of the time.
    """
    is_runge_kutta = model.opt.integrator == mjx.IntegratorType.RK4
    step = _runge_kutta if is_runge_kutta else mjx.step
    return loops.fori_loop(0, steps, lambda _, data: _cast(step(model, data), start), start)


def _cast(data: Data, like: Data) -> Data:
    """Undoes that MJX turns some int32 into int64 if x64 is enabled."""
    return jax.tree.map(lambda new, old: new.astype(old.dtype), data, like)


def _runge_kutta(model: Model, start: Data) -> Data:
    qpos, qvel, dt = start.qpos, start.qvel, model.opt.timestep
    dtype = qpos.dtype

    def evaluate(carry: Any, given: Any) -> tuple[Any, None]:
        data, speed, acceleration = carry
        distance, weight = given
        moved = _move(model, qpos, data.qvel, distance * dt)
        data = data.replace(
            qpos=jnp.where(distance == 0, qpos, moved), qvel=qvel + distance * dt * data.qacc
        )
        data = mjx.forward(model, data)
        return (
            _cast(data, start),
            speed + weight * data.qvel,
            acceleration + weight * data.qacc,
        ), None

    none = jnp.zeros_like(qvel)
    given = jnp.asarray(_DISTANCES, dtype), jnp.asarray(_WEIGHTS, dtype)
    (data, speed, acceleration), _ = loops.scan(evaluate, (start, none, none), given)
    return data.replace(
        qpos=_move(model, qpos, speed, dt),
        qvel=qvel + dt * acceleration,
        qacc_warmstart=data.qacc,
        time=start.time + dt,
    )


def _move(model: Model, qpos: jax.Array, qvel: jax.Array, dt: Any) -> jax.Array:
    """Returns positions after moving along a velocity for a time; orientations are quaternions."""
    parts = []
    joints = zip(model.jnt_type, model.jnt_qposadr, model.jnt_dofadr, strict=True)
    for kind, q, v in joints:
        if kind == mjx.JointType.FREE:
            parts += [qpos[q : q + 3] + dt * qvel[v : v + 3]]
            parts += [_turn(qpos[q + 3 : q + 7], dt * qvel[v + 3 : v + 6])]
        elif kind == mjx.JointType.BALL:
            parts += [_turn(qpos[q : q + 4], dt * qvel[v : v + 3])]
        else:
            parts += [qpos[q : q + 1] + dt * qvel[v : v + 1]]
    return jnp.concatenate(parts)


def _turn(quaternion: jax.Array, rotation: jax.Array) -> jax.Array:
    """Turns by a rotation vector in the body's frame."""
    squared = (rotation**2).sum()
    is_still = squared == 0
    angle = jnp.sqrt(jnp.where(is_still, 1, squared))
    cos = jnp.where(is_still, 1, jnp.cos(angle / 2))
    x, y, z = jnp.where(is_still, 0, jnp.sin(angle / 2) / angle) * rotation
    a, b, c, d = quaternion
    turned = [
        a * cos - b * x - c * y - d * z,
        a * x + b * cos + c * z - d * y,
        a * y - b * z + c * cos + d * x,
        a * z + b * y - c * x + d * cos,
    ]
    return jnp.stack(turned) / jnp.sqrt(sum(part**2 for part in turned))
