"""Models of MuJoCo, and what a step of Gymnasium's `MujocoEnv` does to them, in MJX.

Results equal those of C MuJoCo up to rounding, including what its data hold after a step: after
`mj_step`, positions of bodies are those of the last evaluation of the forces, not of the new
`qpos`.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import loops
from jaxenvs.envs.mujoco._mjx import Data, Model, conventions, mjx, mujoco
from jaxenvs.errors import ParameterError, closest

# The classical Runge-Kutta method: how far each evaluation is from the start, and its weight.
_DISTANCES, _WEIGHTS = (0.0, 0.5, 0.5, 1.0), (1 / 6, 1 / 3, 1 / 3, 1 / 6)


@functools.cache
def load(xml_file: str) -> mujoco.MjModel:
    """Loads a model: Gymnasium's file of that name, or a path that begins with /, ., or ~.

    A file is read once per process, because programs that were compiled for it are kept.

    The solver PGS, which MJX does not have, is replaced by Newton.

    Raises:
        ParameterError: there is no such file.
    """
    path = Path(xml_file).expanduser()
    if not xml_file.startswith(("/", ".", "~")):
        path = _assets() / xml_file
    if not path.exists():
        known = [each.name for each in _assets().glob("*.xml")]
        raise ParameterError(
            f'there is no file {path} for xml_file="{xml_file}".{closest(xml_file, known)}'
            "  Pass a file of Gymnasium's, or a path that begins with /, ., or ~."
        )
    model = mujoco.MjModel.from_xml_path(str(path))
    if model.opt.solver == mujoco.mjtSolver.mjSOL_PGS:
        model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    return model


def _assets() -> Path:
    return Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"


@functools.cache
def _put(original: mujoco.MjModel, dtype: str) -> Model:
    """Returns a model in MJX, with arrays that do not belong to a trace or a mesh."""
    no_mesh = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ()))
    with conventions(dtype), no_mesh, jax.ensure_compile_time_eval():
        return mjx.put_model(original, impl="jax")


def put(original: mujoco.MjModel, dtype: str, changes: Mapping[str, Any] | None) -> Model:
    """Returns a model in MJX, with some of its arrays replaced."""
    model = _put(original, dtype)
    if not changes:
        return model
    return model.tree_replace({name: jnp.asarray(x, dtype) for name, x in changes.items()})


def check_changes(original: mujoco.MjModel, changes: Mapping[str, Any]) -> None:
    """Checks the names and shapes of arrays that replace those of a model.

    Raises:
        ParameterError: the model has no such array, or it has another shape.
    """
    arrays = {
        ".".join(key.name for key in path): np.shape(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(_put(original, "float32"))
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    }
    for name, value in changes.items():
        if name not in arrays:
            raise ParameterError(
                f'the model has no array "{name}" in MJX.{closest(name, arrays)}'
                '  Examples are "opt.gravity", "body_mass", and "geom_friction".'
            )
        expected, given = arrays[name], np.shape(value)
        if given[len(given) - len(expected) :] != expected or len(given) > len(expected) + 1:
            raise ParameterError(
                f'physics["{name}"] has the shape {list(given)}; expected {list(expected)}, or'
                " [N, ...] for different values in N instances."
            )


def data(model: Model, qpos: jax.Array, qvel: jax.Array) -> Data:
    """Returns data with positions and velocities, and all else zero."""
    return mjx.make_data(model).replace(qpos=qpos, qvel=qvel)


def place(model: Model, qpos: jax.Array, qvel: jax.Array) -> Data:
    """Computes what follows from positions and velocities without forces.

    MJX normalizes the quaternions in `qpos`; C MuJoCo leaves them alone until they are integrated.
    """
    placed = mjx.kinematics(model, data(model, qpos, qvel))
    placed = mjx.com_pos(model, placed)
    placed = mjx.tendon(model, placed)
    placed = mjx.com_vel(model, placed)
    return placed.tree_replace({"qpos": qpos, "_impl.ten_velocity": placed._impl.ten_J @ qvel})


def simulate(model: Model, start: Data, frame_skip: int) -> Data:
    """Takes `frame_skip` steps, as `mj_step` does.

    MJX's own step with the Runge-Kutta method evaluates the forces in four places of the program.
    Here they are in one, which compiles in about half of the time.
    """
    is_runge_kutta = model.opt.integrator == mjx.IntegratorType.RK4
    step = _runge_kutta if is_runge_kutta else mjx.step
    return loops.fori_loop(0, frame_skip, lambda _, data: _cast(step(model, data), start), start)


def contact_forces(model: Model, data: Data) -> jax.Array:
    """Returns `cfrc_ext` as `mj_rnePostConstraint` computes it: [nbody, 6], torque then force."""
    return mjx.rne_postconstraint(model, data)._impl.cfrc_ext


def _cast(data: Data, like: Data) -> Data:
    """Undoes that MJX turns some int32 into int64 if x64 is enabled."""
    return jax.tree.map(lambda new, old: new.astype(old.dtype), data, like)


def _runge_kutta(model: Model, start: Data) -> Data:
    qpos, qvel, dt = start.qpos, start.qvel, model.opt.timestep
    dtype = qpos.dtype

    def evaluate(carry: Any, given: Any) -> tuple[Any, None]:
        data, speed, acceleration = carry
        distance, weight = given
        moved = move(model, qpos, data.qvel, distance * dt)
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
        qpos=move(model, qpos, speed, dt),
        qvel=qvel + dt * acceleration,
        qacc_warmstart=data.qacc,
        time=start.time + dt,
    )


def move(model: Model, qpos: jax.Array, qvel: jax.Array, dt: Any) -> jax.Array:
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
