"""MJX-Warp, which is MuJoCo in kernels for NVIDIA's GPUs, as an engine; slow on CPUs.

Results equal those of C MuJoCo up to rounding, except where an ellipsoid, or a cylinder, touches
another convex shape: Warp finds such contacts iteratively in single precision.

Warp's own collision of planes and capsules, which takes another tangent of a contact, is replaced
in the whole process, also for other programs in it, since kernels are built once.

Warp has one list of contacts for all instances of a batch, of a size that is chosen in advance.
"""

import atexit
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from jaxenvs import loops
from jaxenvs.errors import ParameterError, missing_extra
from jaxenvs.physics.mjx import first_kept, loadable
from jaxenvs.physics.mjx_functions import Data, Model, mjx
from jaxenvs.physics.models import Plan, Simulated, precision, simulated
from jaxenvs.physics.models import restore as restore

try:
    from mujoco.mjx._src import math
    from mujoco.mjx.third_party.mujoco_warp._src import collision_primitive, warp_util
    from mujoco.mjx.third_party.mujoco_warp._src.types import OverflowType
    from mujoco.mjx.warp import warp
    from mujoco.mjx.warp.types import _BATCH_DIM

    from jaxenvs.physics import warp_collisions
except ImportError as error:
    raise missing_extra(__name__, "warp-lang", "warp") from error

warp.config.log_level = warp.LOG_WARNING  # otherwise it prints each kernel that it loads
collision_primitive.plane_capsule = warp_collisions.plane_capsule
warp_util._KERNEL_CACHE.clear()  # kernels that another program built with Warp's own
# Kernels are launched by Python, so a program that runs when the interpreter ends would hang.
atexit.register(lambda: jax.block_until_ready(jax.live_arrays()))

_Disable = mujoco.mjtDisableBit
_NO_ACTUATION = int(_Disable.mjDSBL_ACTUATION)
_NO_FORCES = _NO_ACTUATION | int(_Disable.mjDSBL_CONSTRAINT) | int(_Disable.mjDSBL_CONTACT)
_HARMLESS = int(OverflowType.ITERATIONS | OverflowType.LS_ITERATIONS)  # as in C, which ignores it
_PLACES = {"body_pos", "body_quat", "geom_pos", "geom_quat"}
_PARTS = {  # of the simulation, which Warp leaves out if the model has zeros
    **dict.fromkeys(("opt.density", "opt.viscosity", "opt.wind"), "has_fluid"),
    **dict.fromkeys(("tendon_damping", "tendon_dampingpoly"), "has_tendon_damping"),
    **dict.fromkeys(("tendon_stiffness", "tendon_stiffnesspoly"), "has_tendon_stiffness"),
}
_OF_FORCES = ("cacc", "cfrc_int")  # which Warp computes with the velocity before the step
# The largest numbers of contacts and of rows of constraints of an instance, where more would not
# go unnoticed. Worst cases of large models, in which all touches all, do not occur.
_MAX_CONTACTS, _MAX_ROWS = 256, 1024


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
    kept = first_kept(plan, kept)
    disabled = _NO_ACTUATION if plan.needs_forces else _NO_FORCES

    def look(model: Model, data: Data) -> dict[str, Any]:
        return _fields(plan, mjx.forward(_without(model, disabled), data))

    found = _run(plan, look, changes, {"qpos": qpos, "qvel": qvel, **kept})
    return _simulated(plan, kept, jnp.bool_(False), found)


def step(plan: Plan, changes: Mapping[str, Any], state: Any, control: jax.Array) -> Simulated:
    """Takes the physics steps of a control step."""
    kept = first_kept(plan, state.kept)
    before = {"qpos": state.qpos, "qvel": state.qvel, **kept}

    def move(model: Model, data: Data) -> tuple[Any, ...]:
        if "cfrc_ext" in plan.fields:
            model = model.tree_replace({"opt._impl.run_rne_postconstraint": True})
        moved = loops.fori_loop(0, plan.steps, lambda _, each: mjx.step(model, each), data)
        is_lost = (moved._impl.overflow & ~_HARMLESS) != 0
        after = {name: getattr(moved, name) for name in before}
        if plan.refreshes:  # sensors of forces stay as they were
            sensors, original = moved.sensordata, plan.original
            is_of_forces = np.repeat(
                original.sensor_needstage == mujoco.mjtStage.mjSTAGE_ACC, original.sensor_dim
            )
            moved = mjx.forward(_without(model, _NO_FORCES), moved)
            sensors = jnp.where(is_of_forces, sensors, moved.sensordata)
            moved = moved.replace(sensordata=sensors)
        return is_lost, after, {**_fields(plan, moved), **_named(plan, after)}

    is_lost, after, found = _run(plan, move, changes, {**before, "ctrl": control})
    is_finite = jnp.isfinite(after["qpos"]).all() & jnp.isfinite(after["qvel"]).all()
    diverged = is_lost | ~is_finite
    safe = jax.tree.map(lambda old, new: jnp.where(diverged, old, new), before, after)
    found = {name: jnp.where(diverged, 0, value) for name, value in found.items()}
    kept = {name: safe[name] for name in kept}
    return _simulated(plan, kept, diverged, {**found, **_named(plan, safe)})


def place(plan: Plan, changes: Mapping[str, Any], qpos: jax.Array, wanted: Any = True) -> Simulated:
    """Returns where bodies are at positions, and `ncon`, which is positive if something touches.

    A micrometer is rounding: the toes of quadruped are 0 m above the ground at the right height.
    """
    del wanted
    counts = "ncon" in plan.fields
    disabled = _NO_ACTUATION if counts else _NO_FORCES

    def look(model: Model, data: Data) -> dict[str, Any]:
        data = mjx.forward(_without(model, disabled), data)
        touches = data._impl.efc__type >= int(mujoco.mjtConstraint.mjCNSTR_CONTACT_FRICTIONLESS)
        touches &= jnp.arange(touches.shape[0]) < data._impl.nefc
        depth = data._impl.efc__margin - data._impl.efc__pos
        return {**_fields(plan, data), "ncon": (touches & (depth > 1e-6)).sum()}

    return _simulated(plan, {}, jnp.bool_(False), _run(plan, look, changes, {"qpos": qpos}))


def check(caller: str, original: mujoco.MjModel) -> None:
    """Checks that Warp can simulate a model.

    Raises:
        ParameterError: it cannot.
    """
    try:
        _put_once(original)
    except NotImplementedError as error:
        raise ParameterError(
            f'{caller} cannot be simulated by engine="warp": {error}.  Pass engine="c".'
        ) from error


@functools.cache
def changeable(original: mujoco.MjModel) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the arrays that can have other values in an instance."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(_put_once(original)):
        names = [key.name for key in path]
        if _BATCH_DIM["Model"].get("__".join(names)) and jnp.issubdtype(leaf.dtype, jnp.floating):
            found[".".join(names)] = jnp.shape(leaf)
    return found


@functools.cache
def _put_once(original: mujoco.MjModel) -> Model:
    """Returns a model in Warp, with arrays that do not belong to a trace or a mesh."""
    model = loadable(original)
    model.opt.disableflags |= int(_Disable.mjDSBL_NATIVECCD)  # for C's function of two boxes
    no_mesh = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ()))
    with precision("float32"), no_mesh, jax.ensure_compile_time_eval():
        # It prints a line for each instance and step otherwise. We look at `overflow`.
        return mjx.put_model(model, impl="warp").tree_replace({"opt._impl.warn_overflow": 0})


@functools.cache
def _example(original: mujoco.MjModel) -> tuple[Data, int, int]:
    """Returns the data of one instance with room for one contact, and room that one needs."""
    is_runge_kutta = original.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4
    contacts, convex, rows = _largest(original)
    if not is_runge_kutta:  # with which only the last of four evaluations notices too many
        contacts, convex = min(contacts, _MAX_CONTACTS), min(convex, _MAX_CONTACTS)
        rows = min(rows, _MAX_ROWS)
    no_mesh = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ()))
    with precision("float32"), no_mesh, jax.ensure_compile_time_eval():
        data = mjx.make_data(
            loadable(original), impl="warp", naconmax=1, naccdmax=1, njmax=max(rows, 1)
        )
    return data, max(contacts, 1), max(convex, 1)


def _largest(original: mujoco.MjModel) -> tuple[int, int, int]:
    """Returns the largest numbers of contacts, of pairs of convex shapes, and of rows."""
    kinds, types = mujoco.mjtGeom, original.geom_type
    few = {kinds.mjGEOM_SPHERE: 1, kinds.mjGEOM_ELLIPSOID: 1, kinds.mjGEOM_CAPSULE: 2}
    simple = (kinds.mjGEOM_PLANE, kinds.mjGEOM_SPHERE, kinds.mjGEOM_CAPSULE)
    rows = 2 * int(original.jnt_limited.sum() + original.tendon_limited.sum())
    rows += original.nv + original.ntendon + 6 * original.neq
    contacts = convex = 0
    for pair in np.reshape(_put_once(original)._impl.nxn_geom_pair_filtered, (-1, 2)):
        count = min(few.get(kinds(types[geom]), 8) for geom in pair)
        size = int(max([*original.geom_condim[pair], *original.pair_dim]))
        contacts += count
        convex += any(kinds(types[geom]) not in simple for geom in pair)
        rows += count * max(1, 2 * (size - 1))
    return contacts, convex, rows


def _run(
    plan: Plan, function: Any, changes: Mapping[str, Any], values: Mapping[str, jax.Array]
) -> Any:
    """Returns what a function of a model and data returns, in a batch for all instances at once.

    Args:
        plan: what the task needs.
        function: (model, data) -> arrays.
        changes: arrays that replace those of the model.
        values: arrays that replace those of the data.
    """
    original = plan.original
    known = changeable(original)
    for name in changes:
        if name not in known:
            raise ParameterError(
                f'engine="warp" cannot give instances their own {name}.  Pass engine="c" or'
                ' engine="mjx".'
            )
    for name in (*plan.fields, *plan.precise):
        if name in _OF_FORCES:
            raise ParameterError(
                f'engine="warp" does not compute {name} after a step.  Pass engine="c".'
            )
    example, contacts, convex = _example(original)

    @jax.custom_batching.custom_vmap
    def run(changes: Any, values: Any) -> Any:
        (size,) = {len(leaf) for leaf in values.values()}
        data = _with_room(example, size * contacts, size * convex)

        def run_one(changes: Any, values: Any) -> Any:
            parts = {f"_impl.{_PARTS[name]}": True for name in changes if name in _PARTS}
            model = _put_once(original).tree_replace({**changes, **parts})
            still = _still_geoms(original, model, data) if _PLACES & {*changes} else {}
            return function(model, data.replace(**values, **still))

        return jax.vmap(run_one)(changes, values)

    @run.def_vmap
    def _(size: int, is_batched: Any, *operands: Any) -> Any:
        def merge(leaf: jax.Array, has_axis: bool) -> jax.Array:
            leaf = leaf if has_axis else jnp.broadcast_to(leaf, (size, *leaf.shape))
            return jax.lax.collapse(leaf, 0, 2)

        found = run(*jax.tree.map(merge, operands, tuple(is_batched)))

        def split(leaf: jax.Array) -> jax.Array:
            return leaf.reshape(size, len(leaf) // size, *leaf.shape[1:])

        return jax.tree.map(split, found), jax.tree.map(lambda _: True, found)

    @jax.custom_jvp
    def run_one(*operands: Any) -> Any:
        found = run(*jax.tree.map(lambda leaf: leaf[None], operands))
        return jax.tree.map(lambda leaf: leaf[0], found)

    @run_one.defjvp
    def _(*_: Any) -> Any:
        raise ParameterError(
            'engine="warp" has no derivatives.  Pass engine="mjx", or engine="c" with'
            ' derivatives="finite".'
        )

    with precision("float32"):
        return run_one(
            {name: jnp.asarray(value, jnp.float32) for name, value in changes.items()}, values
        )


def _with_room(data: Data, contacts: int, convex: int) -> Data:
    """Returns data with room for contacts, and for pairs of convex shapes that may touch."""
    inner = data._impl
    arrays = {
        field.name: jnp.repeat(getattr(inner, field.name), contacts, axis=0)
        for field in inner.fields()
        if field.name.startswith("contact__") and len(getattr(inner, field.name))
    }
    return data.replace(
        _impl=inner.replace(**arrays, naconmax=contacts, naccdmax=min(convex, contacts))
    )


def _still_geoms(original: mujoco.MjModel, model: Model, data: Data) -> dict[str, jax.Array]:
    """Returns where geoms are. Warp computes once, from its first model, where still ones are."""
    bodies = {0: (jnp.zeros(3), jnp.array([1.0, 0, 0, 0]))}
    for body in range(1, original.nbody):
        parent = original.body_parentid[body]
        if parent in bodies and not original.body_weldid[body] and original.body_mocapid[body] < 0:
            pos, turn = bodies[parent]
            pos = pos + math.rotate(model.body_pos[body], turn)
            bodies[body] = pos, math.quat_mul(turn, model.body_quat[body])
    places, turns = data.geom_xpos, data.geom_xmat
    for geom, body in enumerate(original.geom_bodyid):
        if body in bodies:
            pos, turn = bodies[body]
            places = places.at[geom].set(pos + math.rotate(model.geom_pos[geom], turn))
            turn = math.quat_mul(turn, model.geom_quat[geom])
            turns = turns.at[geom].set(math.quat_to_mat(turn))
    return {"geom_xpos": places, "geom_xmat": turns}


def _without(model: Model, disabled: int) -> Model:
    """Returns a model with some parts of the simulation disabled."""
    return model.tree_replace({"opt.disableflags": model.opt.disableflags | disabled})


def _named(plan: Plan, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in plan.fields}


def _fields(plan: Plan, data: Data) -> dict[str, jax.Array]:
    """Returns what a task reads of the data."""
    return {
        name: getattr(data._impl if hasattr(data._impl, name) else data, name)
        for name in {*plan.fields, *plan.precise} - {"ncon"}
    }


def _simulated(plan: Plan, kept: Any, diverged: jax.Array, found: Mapping[str, Any]) -> Simulated:
    fields, precise = (
        {name: found[name] for name in names} for names in (plan.fields, plan.precise)
    )
    return simulated(plan, kept, diverged, fields, precise)
