"""C MuJoCo as a pure function of a state: one custom call steps all instances of a batch.

The state carries all that a simulation remembers in double precision, as pairs of uint32, so that
it survives where JAX has no 64-bit mode. Results equal those of `mj_step` in a loop to the bit.

Without the compiled part of jaxenvs, a callback does the same with MuJoCo's Python functions.
"""

import contextlib
import copy
import ctypes
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.experimental.buffer_callback import buffer_callback
from mujoco.batch import Batch

from jaxenvs import ffi
from jaxenvs._machine import num_cores
from jaxenvs.bridge.native.libraries import NativePartMissing, xla_library
from jaxenvs.errors import ParameterError, closest
from jaxenvs.physics.models import Plan, Simulated, change, precision, shape_of, simulated

_TARGET = "jaxenvs_physics"
_State = mujoco.mjtState
_CARRIED = (
    *(_State.mjSTATE_TIME, _State.mjSTATE_QPOS, _State.mjSTATE_QVEL, _State.mjSTATE_ACT),
    *(_State.mjSTATE_HISTORY, _State.mjSTATE_WARMSTART, _State.mjSTATE_EQ_ACTIVE),
    *(_State.mjSTATE_MOCAP_POS, _State.mjSTATE_MOCAP_QUAT),
)
_INPUTS = ("qpos", "qvel", "act", "ctrl", "qacc_warmstart", "mocap_pos", "mocap_quat")
_NAMES = (  # of arrays of the data that a task can read
    *_INPUTS,
    *("xpos", "xquat", "xmat", "xipos", "ximat", "xanchor", "xaxis", "geom_xpos", "geom_xmat"),
    *("site_xpos", "site_xmat", "cam_xpos", "cam_xmat", "subtree_com", "cdof", "cinert"),
    *("ten_length", "ten_velocity", "actuator_length", "actuator_velocity", "cvel", "cdof_dot"),
    *("qfrc_bias", "qfrc_passive", "qfrc_actuator", "qfrc_smooth", "qfrc_constraint"),
    *("actuator_force", "qacc", "qacc_smooth", "act_dot", "sensordata"),
    *("cacc", "cfrc_int", "cfrc_ext"),
)
_OF_FORCES = ("cacc", "cfrc_int", "cfrc_ext")  # which only `mj_rnePostConstraint` computes
_CONSTANTS = (  # of the model, which `mj_setConst` computes, but those of cameras and lights
    *("actuator_acc0", "actuator_length0", "body_invweight0", "body_margin", "body_sameframe"),
    *("body_subtreemass", "bvh_aabb", "dof_M0", "dof_invweight0", "dof_length", "geom_aabb"),
    *("geom_rbound", "geom_sameframe", "jnt_actuatorid", "tendon_invweight0", "tendon_length0"),
)
_DISTANCE = 1e-6  # of perturbed simulations from each other, half
_HEIGHTS = "hfield_data"  # of the model, float32
_START, _FORCES, _BEGIN, _RAISE = 1, 2, 4, 8  # modes of native/physics.h

# Warnings after which a result is not one of physics. MuJoCo resets such a simulation silently.
_Warning = mujoco.mjtWarning
_DIVERGED = (
    *(_Warning.mjWARN_CONTACTFULL, _Warning.mjWARN_CNSTRFULL, _Warning.mjWARN_BADQPOS),
    *(_Warning.mjWARN_BADQVEL, _Warning.mjWARN_BADQACC, _Warning.mjWARN_BADCTRL),
)


def start(
    plan: Plan,
    changes: Mapping[str, Any],
    qpos: jax.Array,
    qvel: jax.Array,
    kept: Any = None,
    wanted: Any = True,
    control: jax.Array | None = None,
) -> Simulated:
    """Returns the simulation at positions and velocities, with all that follows from them."""
    writes = {} if control is None else {_State.mjSTATE_CTRL: control}
    if plan.refreshes:  # as dm_control's reset
        flags = plan.original.opt.disableflags | int(mujoco.mjtDisableBit.mjDSBL_ACTUATION)
        changes = {**changes, "opt.disableflags": np.array([flags], np.int32)}
    return _call(plan, _START, changes, kept, wanted, qpos, qvel, writes)


def step(
    plan: Plan,
    changes: Mapping[str, Any],
    state: Any,
    control: jax.Array,
    mocap: tuple[jax.Array, jax.Array] | None = None,
) -> Simulated:
    """Takes the physics steps of a control step.

    `mocap` has the positions and quaternions of bodies that the task moves, [nmocap, 3] and
    [nmocap, 4].
    """
    forces = _FORCES * any(name in _OF_FORCES for name in plan.fields)
    mode = (_BEGIN if plan.refreshes else forces) | _RAISE * plan.raises
    poses = [jnp.reshape(each, (-1,)) for each in mocap or ()]

    def call(plan: Plan, qpos: Any, qvel: Any, control: Any, kept: Any, others: Any) -> Any:
        changes, poses = others
        bits = _State.mjSTATE_CTRL, _State.mjSTATE_MOCAP_POS, _State.mjSTATE_MOCAP_QUAT
        writes = dict(zip(bits, (control, *poses), strict=False))
        found = _call(plan, mode, changes, kept, True, qpos, qvel, writes)
        return found.kept, found.diverged, found.data.arrays, found.precise.arrays

    kept = state.kept
    if kept is None and _derives(plan):  # of a start that is simulated before an episode begins
        only = dataclasses.replace(plan, fields=(), precise=())
        _, constants = _parts(plan, start(only, changes, state.qpos, state.qvel).kept)
        kept = _joined(_parts(plan, None)[0], constants)
    inputs = state.qpos, state.qvel, control, kept, (dict(changes), poses)
    return simulated(plan, *_with_derivatives(plan, call)(*inputs))


def _with_derivatives(plan: Plan, call: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a call with derivatives by positions, velocities, and controls.

    They are differences of perturbed simulations, in double precision: two for each number. The
    matrices do not depend on tangents, so that they can be transposed.
    """
    step = jax.custom_jvp(functools.partial(call, plan))

    @functools.partial(step.defjvp, symbolic_zeros=True)
    def _(primals: Any, tangents: Any) -> Any:
        is_known = [isinstance(t, SymbolicZero) for t in jax.tree.leaves(tangents[3:])]
        if plan.derivatives != "finite" or not all(is_known):
            raise ParameterError(
                'the engine "c" has no derivatives by arrays of the model.'
                if plan.derivatives == "finite"
                else 'the engine "c" has no derivatives here.  Pass derivatives="finite", or'
                ' engine="mjx", which has them in forward mode.'
            )
        *moved, kept, others = primals
        row, constants = _parts(plan, kept)
        tangent = jnp.concatenate(
            [
                jnp.zeros(x.shape, plan.dtype) if isinstance(t, SymbolicZero) else t
                for t, x in zip(tangents[:3], moved, strict=True)
            ]
        )
        double = dataclasses.replace(plan, dtype="float64", raises=False)
        size = len(tangent)
        with precision("float64"):
            place = 1 + np.arange(plan.original.nq + plan.original.nv)  # after the time
            numbers = jax.lax.bitcast_convert_type(row.reshape(-1, 2), jnp.float64)
            given = jnp.concatenate(moved[:2])
            # As in a step, what was changed beside the row counts.
            own = jnp.where(numbers[place].astype(given.dtype) == given, numbers[place], given)
            start = jnp.concatenate([own, moved[2].astype(jnp.float64)])
            away = start + _DISTANCE * jnp.concatenate([jnp.eye(size), -jnp.eye(size)])

            def moved_by(x: jax.Array) -> Any:
                there = numbers.at[place].set(x[: len(place)])
                words = jax.lax.bitcast_convert_type(there, jnp.uint32).reshape(-1)
                parts = jnp.split(x, np.cumsum([each.size for each in moved[:2]]))
                return call(double, *parts, _joined(words, constants), others)[2:]

            found = jax.vmap(moved_by)(away)
            slopes = jax.tree.map(
                lambda x: ((x[:size] - x[size:]) / (2 * _DISTANCE)).astype(plan.dtype), found
            )
        result = step(*primals)
        dots = jax.tree.map(lambda slope: jnp.tensordot(tangent, slope, 1), slopes)
        with precision("float64"):
            dots = jax.tree.map(lambda dot, x: dot.astype(x.dtype), dots, result[2:])
        zeros = jax.tree.map(lambda x: np.zeros(x.shape, jax.dtypes.float0), result[:2])
        return result, (*zeros, *dots)

    return step


def place(plan: Plan, changes: Mapping[str, Any], qpos: jax.Array, wanted: Any = True) -> Simulated:
    """Returns where bodies are at positions, and `ncon`, how many contacts there are."""
    return start(plan, changes, qpos, jnp.zeros(plan.original.nv, plan.dtype), None, wanted)


def restore(original: mujoco.MjModel, data: mujoco.MjData, state: Any) -> None:
    """Puts the state of a task, in NumPy, into MuJoCo's data."""
    engine, kept = _engine(original), state.kept
    row = kept["row"] if isinstance(kept, dict) else kept
    numbers = engine.unpacked(row, state.qpos, state.qvel)
    mujoco.mj_setState(data.model, data, numbers, int(_State.mjSTATE_INTEGRATION))


def activated(plan: Plan, act: jax.Array) -> Any:
    """Returns what `start` takes as `kept` for actuators with activations: float[na]."""
    first = jnp.asarray(_engine(plan.original).first)
    place = 2 * (1 + plan.original.nq + plan.original.nv)  # after the time and what moves
    with jax.enable_x64(True):
        words = jax.lax.bitcast_convert_type(act.astype(jnp.float64), jnp.uint32)
    return first.at[place : place + words.size].set(words.reshape(-1))


def check(caller: str, original: mujoco.MjModel) -> None:
    """Checks that C MuJoCo can simulate a model, which it can."""


@functools.cache
def changeable(original: mujoco.MjModel) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the arrays that can have other values in an instance."""
    found, batch = {}, Batch(original, 1, nthread=1)
    for prefix, part in (("", original), ("opt.", original.opt)):
        for name in dir(part):
            value = None if name.startswith("_") else getattr(part, name)
            if isinstance(value, float | np.ndarray) and np.asarray(value).dtype.kind == "f":
                with contextlib.suppress(Exception):  # of arrays that all simulations share
                    batch.expand(prefix + name)
                    found[prefix + name] = np.shape(value)
    return found | ({_HEIGHTS: (original.nhfielddata,)} if original.nhfielddata else {})


def _call(
    plan: Plan,
    mode: int,
    changes: Mapping[str, Any],
    kept: Any,
    wanted: Any,
    qpos: jax.Array,
    qvel: jax.Array,
    writes: Mapping[Any, jax.Array],
) -> Simulated:
    """Calls native/physics.h.

    Args:
        plan: what the task needs.
        mode: what to compute.
        changes: arrays of the model.
        kept: of the state; None at a start.
        wanted: whether the results are used.
        qpos: positions.
        qvel: velocities.
        writes: what to write into the row, by bits of mjtState.
    """
    model, engine = plan.original, _engine(plan.original)
    fields = [(name, plan.dtype) for name in plan.fields if engine.has(name)]
    precise = [(name, "float64") for name in plan.precise if engine.has(name)]
    row, constants = _parts(plan, kept)
    made: list[str] = []  # arrays of the model that follow from those of the user
    if _derives(plan):
        if mode & _START:
            made = engine.constants
        elif not constants:
            raise ValueError("this state is that of an environment with the model's own physics")
        else:
            changes = {**changes, **constants}
    terrain = [name for name in changes if name == _HEIGHTS]
    changed = [name for name in changes if name != _HEIGHTS]
    call = _Call(
        engine=engine,
        steps=plan.steps,
        mode=mode,
        num_threads=plan.num_threads or num_cores(),
        places=[engine.places[int(bit)] for bit in writes],
        fields=[name for name, _ in (*fields, *precise)],
        expanded=changed,
        has_heights=bool(terrain),
        constants=made,
    )
    results = [
        jax.ShapeDtypeStruct((2 * engine.size,), np.uint32),
        jax.ShapeDtypeStruct((1,), np.uint32),
        *(engine.shape(name, dtype) for name, dtype in (*fields, *precise)),
        *(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (_words(model, n) for n in made)),
    ]
    operands = [
        row,
        jnp.reshape(jnp.asarray(wanted, bool), (1,)),
        *(qpos, qvel),
        *writes.values(),
        *(jnp.reshape(jnp.asarray(changes[name]), (-1,)) for name in changed),
        *(jnp.asarray(changes[name], jnp.float32) for name in terrain),
    ]
    row, flags, *found = ffi.call(_runner(call), results, *operands)
    seen = [
        (name, array.reshape(shape_of(model, name)))
        for (name, _), array in zip((*fields, *precise), found, strict=False)
    ]
    constants = dict(zip(made, found[len(seen) :], strict=True)) or constants
    data, exact = dict(seen[: len(fields)]), dict(seen[len(fields) :])
    return simulated(plan, _joined(row, constants), flags[0] != 0, data, exact)


def _derives(plan: Plan) -> bool:
    """Returns whether arrays of the model follow from those of the user."""
    return any(name in plan.original._setconst_inputs for name in plan.physics)


def _parts(plan: Plan, kept: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the row of a state, and arrays that follow from those of the user."""
    if kept is None:
        return jnp.asarray(_engine(plan.original).first), {}
    return (kept["row"], kept["constants"]) if isinstance(kept, dict) else (kept, {})


def _joined(row: jax.Array, constants: dict[str, jax.Array]) -> Any:
    """Returns what a state keeps, of these parts."""
    return {"row": row, "constants": constants} if constants else row


@dataclasses.dataclass(frozen=True)
class _Call:
    """What a call does, besides its operands."""

    engine: "_Engine"
    steps: int
    mode: int
    num_threads: int
    places: list[int]  # of what is written, in the row
    fields: list[str]  # of the data
    expanded: list[str]  # arrays of the model, among the operands
    has_heights: bool  # whether the last operand has those of a terrain, float32
    constants: list[str]  # arrays of the model that follow from others, among the results


def _runner(call: _Call) -> ffi.Run:
    try:
        xla_library()
    except NativePartMissing:
        return functools.partial(_run_by_callback, call)
    return functools.partial(_run, call)


def _run(call: _Call, devices: int, shapes: Any, *operands: jax.Array) -> Any:
    table = list(call.engine.fields)
    return jax.ffi.ffi_call(_target(), shapes)(
        *operands,
        id=np.int64(call.engine.id),
        steps=np.int32(call.steps),
        mode=np.int32(call.mode),
        threads=np.int32(max(1, call.num_threads // devices)),
        places=np.array(call.places, np.int64),
        fields=np.array([table.index(name) for name in call.fields], np.int32),
        expanded=",".join(call.expanded),
        has_heights=call.has_heights,
        constants=",".join(call.constants),
    )


@functools.cache
def _target() -> str:
    handler = jax.ffi.pycapsule(xla_library().jaxenvs_physics_handler)
    jax.ffi.register_ffi_target(_TARGET, handler, platform="cpu")
    return _TARGET


# --- the same without the compiled part ---


def _run_by_callback(call: _Call, devices: int, shapes: Any, *operands: jax.Array) -> Any:
    del devices

    def in_place(_: Any, results: Sequence[Any], *operands: Any) -> None:
        batch = shapes[0].shape[:-1]
        given = [np.broadcast_to(x, (*batch, np.shape(x)[-1])) for x in map(np.asarray, operands)]
        for i in np.ndindex(*batch):
            _simulate(call, [x[i] for x in given], [np.asarray(x)[i] for x in results])

    return buffer_callback(in_place, shapes)(*operands)


def _simulate(call: _Call, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
    """Does what native/physics.h does for a simulation."""
    row, wanted, qpos, qvel, *others = operands
    engine, num_writes = call.engine, len(call.places)
    if not wanted[0]:
        for result in results:
            result[...] = 0
        results[0][...] = row
        return
    changed = [*call.expanded, *[_HEIGHTS] * call.has_heights]
    model = copy.copy(engine.model) if changed else engine.model
    change(model, dict(zip(changed, others[num_writes:], strict=True)))
    data = mujoco.MjData(model)
    if call.constants:
        mujoco.mj_setConst(model, data)
        mujoco.mj_resetData(model, data)
    state = engine.unpacked(row, qpos, qvel)
    for at, value in zip(call.places, others, strict=False):
        state[at : at + len(value)] = value
    before, full = state.copy(), int(_State.mjSTATE_INTEGRATION)
    mujoco.mj_setState(model, data, state, full)
    flag = 0
    if call.mode & _START:
        mujoco.mj_forward(model, data)
    else:
        for _ in range(call.steps):
            mujoco.mj_step(model, data)
        if call.mode & _FORCES:
            mujoco.mj_rnePostConstraint(model, data)
        if call.mode & _BEGIN:
            mujoco.mj_step1(model, data)
        flag = sum(1 << int(kind) for kind in _DIVERGED if data.warning[kind].number)
    mujoco.mj_getState(model, data, state, full)
    if flag and call.mode & _RAISE:
        raise FloatingPointError("a simulation diverged.")
    if flag:
        data, state = mujoco.MjData(model), before
        mujoco.mj_setState(model, data, state, full)
        mujoco.mj_forward(model, data)
    results[0][...] = np.concatenate([state[at : at + n] for at, n in engine.parts]).view(np.uint32)
    results[1][...] = flag
    made = [np.ravel(getattr(data, name)) for name in call.fields]
    made += [_words(model, name) for name in call.constants]
    for result, value in zip(results[2:], made, strict=True):
        result[...] = value


# --- what native/physics.h needs to know ---

_FUNCTIONS = (
    *("mjb_makeBatch", "mjb_deleteBatch", "mjb_state", "mjb_status", "mjb_warning", "mjb_expand"),
    *("mjb_setConst", "mjb_apply", "mj_step", "mj_forward"),
    *("mj_rnePostConstraint", "mj_step1", "mju_user_warning", "mju_writeLog"),
)


class _Field(ctypes.Structure):  # jx_field
    _fields_ = (
        ("offset", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("size", "type", "is_state")),
    )


class _Physics(ctypes.Structure):  # jx_physics
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("mujoco", "model", "row", "parts", "fields")),
        *((name, ctypes.c_int32) for name in ("num_parts", "row_size", "num_warnings")),
        *((name, ctypes.c_int32) for name in ("qpos", "qvel")),
        ("diverged", ctypes.c_uint32),
        *((name, ctypes.c_int64) for name in ("heights", "model_size")),
    )


@functools.cache
def _functions() -> Any:
    """Returns the addresses of MuJoCo's functions, in the order of jx_mujoco."""
    (path,) = Path(mujoco.__file__).parent.glob(f"libmujoco*{mujoco.mj_versionString()}*")
    library = ctypes.CDLL(str(path))
    found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _FUNCTIONS]
    return (ctypes.c_void_p * len(found))(*found)


@functools.cache  # which keeps what programs use
def _engine(model: mujoco.MjModel) -> "_Engine":
    return _Engine(model)


class _Engine:
    """A model, as the custom call knows it."""

    def __init__(self, model: mujoco.MjModel) -> None:
        data = mujoco.MjData(model)
        full = int(_State.mjSTATE_INTEGRATION)
        self.model, self.row = model, np.empty(mujoco.mj_stateSize(model, full))
        mujoco.mj_getState(model, data, self.row, full)
        bits = [1 << i for i in range(full.bit_length()) if full >> i & 1]
        sizes = {bit: mujoco.mj_stateSize(model, bit) for bit in bits}
        starts = np.cumsum([0, *sizes.values()])
        self.places = dict(zip(bits, starts.tolist(), strict=False))
        carried = [int(bit) for bit in _CARRIED if sizes[int(bit)]]
        self.parts = np.array([(self.places[bit], sizes[bit]) for bit in carried], np.int64)
        self.size = int(self.parts[:, 1].sum())
        first = np.concatenate([self.row[at : at + size] for at, size in self.parts])
        self.first = first.view(np.uint32)
        self.fields = _fields(data)
        self._table = (_Field * len(self.fields))(*self.fields.values())
        content = np.empty(mujoco.mj_sizeModel(model), np.uint8)
        mujoco.mj_saveModel(model, None, content)
        digest = hashlib.sha256(mujoco.mj_versionString().encode() + content.tobytes())
        self.id = int.from_bytes(digest.digest()[:8], "little", signed=True)
        heights, model_size = _heights(model)
        described = _Physics(
            mujoco=ctypes.addressof(_functions()),
            model=model._address,
            row=self.row.ctypes.data,
            parts=self.parts.ctypes.data,
            fields=ctypes.addressof(self._table),
            num_parts=len(self.parts),
            row_size=len(self.row),
            num_warnings=int(_Warning.mjNWARNING),
            qpos=self.places[int(_State.mjSTATE_QPOS)],
            qvel=self.places[int(_State.mjSTATE_QVEL)],
            diverged=sum(1 << int(warning) for warning in _DIVERGED),
            heights=heights,
            model_size=model_size,
        )
        with contextlib.suppress(NativePartMissing):
            register = xla_library().jaxenvs_physics_register
            register(ctypes.c_int64(self.id), ctypes.byref(described))

    def unpacked(self, row: np.ndarray, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
        """Returns MuJoCo's own state, where what was changed beside the row counts."""
        state, numbers = self.row.copy(), np.ascontiguousarray(row).view(np.float64)
        for at, size in self.parts:
            state[at : at + size], numbers = numbers[:size], numbers[size:]
        for bit, given in ((_State.mjSTATE_QPOS, qpos), (_State.mjSTATE_QVEL, qvel)):
            own = state[self.places[int(bit)] :][: len(given)]
            own[:] = np.where(own.astype(given.dtype) == given, own, given)
        return state

    def has(self, name: str) -> bool:
        """Returns whether there is something to read in an array of the data.

        Raises:
            ParameterError: there is, but not here.
        """
        if name in self.fields or 0 in shape_of(self.model, name):
            return name in self.fields
        raise ParameterError(
            f'engine="c" does not compute {name} in every step.{closest(name, _NAMES)}'
        )

    @property
    def constants(self) -> list[str]:
        """The arrays of the model that MuJoCo computes from others when it loads it."""
        return [name for name in _CONSTANTS if getattr(self.model, name).size]

    def shape(self, name: str, dtype: str) -> jax.ShapeDtypeStruct:
        if name == "ncon":
            return jax.ShapeDtypeStruct((1,), np.int32)
        return jax.ShapeDtypeStruct((self.fields[name].size,), np.dtype(dtype))


def _fields(data: mujoco.MjData) -> dict[str, _Field]:
    """Returns where mjData has the arrays of `_NAMES`, and the number of contacts."""
    wanted = {}
    for name in _NAMES:
        value = getattr(data, name)
        if value.size:
            wanted[value.__array_interface__["data"][0]] = name, value.size
    found = {"ncon": _Field(_offset_of_ncon(), 1, ord("i"), False)}
    for offset, word in _memory(data._address):
        if word in wanted:
            name, size = wanted.pop(word)
            found[name] = _Field(offset, size, ord("d"), name in _INPUTS)
        if not wanted:
            break
    return dict(sorted(found.items()))


def _heights(model: mujoco.MjModel) -> tuple[int, int]:
    """Returns where mjModel has the heights of its terrain, if any, and where mjModel ends."""
    if not model.nhfielddata:
        return 0, 0
    heights, place = model.hfield_data.__array_interface__["data"][0], 0
    for offset, word in _memory(model._address):
        if word == heights:
            place = offset
        if word == model.signature & 0xFFFFFFFFFFFFFFFF:  # the last field
            return place, offset + 8
    raise AssertionError


def _words(model: mujoco.MjModel, name: str) -> np.ndarray:
    """Returns an array of the model with one dimension, and doubles as pairs."""
    flat = np.ravel(getattr(model, name))
    return flat.view(np.uint32) if flat.dtype == np.float64 else flat


def _memory(address: int) -> Iterator[tuple[int, int]]:
    """Yields the words at an address, page by page, since the memory behind may not be ours."""
    at, page = address, 4096
    while True:
        size = page - at % page
        for i, word in enumerate((ctypes.c_uint64 * (size // 8)).from_address(at)):
            yield at + 8 * i - address, word
        at += size


@functools.cache
def _offset_of_ncon() -> int:
    """Returns where mjData has the number of contacts, which is the same in all models."""
    candidates: set[int] | None = None
    for boxes in (1, 2, 3, 5):
        bodies = "".join(
            f'<body pos="{i} 0 0.05"><freejoint/><geom type="box" size=".1 .1 .1"/></body>'
            for i in range(boxes)
        )
        model = mujoco.MjModel.from_xml_string(
            f'<mujoco><worldbody><geom type="plane" size="9 9 9"/>{bodies}</worldbody></mujoco>'
        )
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        data.qpos[2] = 9  # one touches no more, so that this is not the largest number so far
        mujoco.mj_forward(model, data)
        last = data.qpos.__array_interface__["data"][0]
        words = []
        for _, word in _memory(data._address):
            if word == last:
                break
            words += [word & 0xFFFFFFFF, word >> 32]
        matches = {4 * i for i, word in enumerate(words) if word == data.ncon}
        candidates = matches if candidates is None else candidates & matches
    (offset,) = candidates or {0}
    return offset
