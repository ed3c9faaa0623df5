"""C MuJoCo as a pure function of a state: one custom call steps all instances of a batch.

The state carries all that a simulation remembers in double precision, as pairs of uint32, so that
it survives where JAX has no 64-bit mode. Results equal those of `mj_step` in a loop to the bit.

Without the compiled part of jaxenvs, a callback does the same with MuJoCo's Python functions.
"""

import ctypes
import functools
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from jaxenvs import ffi
from jaxenvs._machine import num_cores
from jaxenvs.bridge.native.libraries import xla_library
from jaxenvs.errors import ParameterError, closest
from jaxenvs.physics.models import Plan, Simulated, shape_of, simulated

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
_START, _FORCES, _BEGIN, _CONSTANTS = 1, 2, 4, 8  # modes of native/physics.h

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
) -> Simulated:
    """Returns the simulation at positions and velocities, with all that follows from them."""
    if plan.refreshes:  # as dm_control's reset
        flags = plan.original.opt.disableflags | int(mujoco.mjtDisableBit.mjDSBL_ACTUATION)
        changes = {**changes, "opt.disableflags": np.array([flags], np.int32)}
    return _call(plan, _START, changes, [kept, _row(wanted), qpos, qvel], {})


def step(plan: Plan, changes: Mapping[str, Any], state: Any, control: jax.Array) -> Simulated:
    """Takes the physics steps of a control step."""
    forces = _FORCES * any(name in _OF_FORCES for name in plan.fields)
    mode = _BEGIN if plan.refreshes else forces
    operands = [state.kept, _row(True), state.qpos, state.qvel]
    return _call(plan, mode, changes, operands, {_State.mjSTATE_CTRL: control})


def place(plan: Plan, changes: Mapping[str, Any], qpos: jax.Array, wanted: Any = True) -> Simulated:
    """Returns where bodies are at positions, and `ncon`, how many contacts there are."""
    return start(plan, changes, qpos, jnp.zeros(plan.original.nv, plan.dtype), None, wanted)


def changeable(original: mujoco.MjModel) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the arrays that can have other values in an instance."""
    found = {}
    for prefix, part in (("", original), ("opt.", original.opt)):
        for name in dir(part):
            value = None if name.startswith("_") else getattr(part, name)
            if isinstance(value, float | np.ndarray) and np.asarray(value).dtype.kind == "f":
                found[prefix + name] = np.shape(value)
    return found


def _row(wanted: Any) -> jax.Array:
    return jnp.reshape(jnp.asarray(wanted, bool), (1,))


def _call(
    plan: Plan,
    mode: int,
    changes: Mapping[str, Any],
    operands: Sequence[Any],
    writes: Mapping[Any, jax.Array],
) -> Simulated:
    """Calls native/physics.h.

    Args:
        plan: what the task needs.
        mode: what to compute.
        changes: arrays of the model.
        operands: the row, or None for that of a start, whether the simulation is wanted, positions,
            velocities.
        writes: what to write into the row, by bits of mjtState.
    """
    engine, original = _engine(plan.original), plan.original
    for name in (*plan.fields, *plan.precise):
        if name not in engine.fields and 0 not in shape_of(original, name):
            raise ParameterError(
                f'the engine "c" does not compute {name} in every step.{closest(name, _NAMES)}'
            )
    if operands[0] is None:
        operands = [jnp.asarray(engine.first), *operands[1:]]
    wanted = [(name, plan.dtype) for name in plan.fields if name in engine.fields]
    num_data = len(wanted)
    wanted += [(name, "float64") for name in plan.precise if name in engine.fields]
    results = [
        jax.ShapeDtypeStruct((2 * engine.size,), np.uint32),
        jax.ShapeDtypeStruct((1,), np.uint32),
        *(engine.shape(name, dtype) for name, dtype in wanted),
    ]
    table = list(engine.fields)

    def attributes(devices: int) -> dict[str, Any]:
        return {
            "id": np.int64(engine.id),
            "steps": np.int32(plan.steps),
            "mode": np.int32(mode),
            "threads": np.int32(max(1, num_cores() // devices)),
            "places": np.array([engine.places[int(bit)] for bit in writes], np.int64),
            "fields": np.array([table.index(name) for name, _ in wanted], np.int32),
            "expanded": ",".join(changes),
            "constants": "",
        }

    kept, flags, *found = ffi.call(
        _target(),
        results,
        attributes,
        *operands,
        *writes.values(),
        *(jnp.reshape(jnp.asarray(value), (-1,)) for value in changes.values()),
    )
    seen = [
        (name, array.reshape(shape_of(original, name)))
        for (name, _), array in zip(wanted, found, strict=True)
    ]
    return simulated(plan, kept, flags[0] != 0, dict(seen[:num_data]), dict(seen[num_data:]))


@functools.cache
def _target() -> str:
    handler = jax.ffi.pycapsule(xla_library().jaxenvs_physics_handler)
    jax.ffi.register_ffi_target(_TARGET, handler, platform="cpu")
    return _TARGET


# --- what native/physics.h needs to know ---

_FUNCTIONS = (
    *("mjb_makeBatch", "mjb_deleteBatch", "mjb_state", "mjb_status", "mjb_warning", "mjb_expand"),
    *("mjb_expanded", "mjb_setConst", "mjb_apply", "mj_step", "mj_forward"),
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
    )


@functools.cache
def _functions() -> Any:
    """Returns the addresses of MuJoCo's functions, in the order of jx_mujoco."""
    (path,) = Path(mujoco.__file__).parent.glob("libmujoco*")
    library = ctypes.CDLL(str(path))
    found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _FUNCTIONS]
    return (ctypes.c_void_p * len(found))(*found)


@functools.cache
def _engine(model: mujoco.MjModel) -> "_Engine":
    return _Engine(model)


class _Engine:
    """A model, as the custom call knows it."""

    def __init__(self, model: mujoco.MjModel) -> None:
        data = mujoco.MjData(model)
        full = int(_State.mjSTATE_INTEGRATION)
        self._model, self._row = model, np.empty(mujoco.mj_stateSize(model, full))
        mujoco.mj_getState(model, data, self._row, full)
        bits = [1 << i for i in range(full.bit_length()) if full >> i & 1]
        sizes = {bit: mujoco.mj_stateSize(model, bit) for bit in bits}
        starts = np.cumsum([0, *sizes.values()])
        self.places = dict(zip(bits, starts.tolist(), strict=False))
        carried = [int(bit) for bit in _CARRIED if sizes[int(bit)]]
        self._parts = np.array([(self.places[bit], sizes[bit]) for bit in carried], np.int64)
        self.size = int(self._parts[:, 1].sum())
        first = np.concatenate([self._row[at : at + size] for at, size in self._parts])
        self.first = first.view(np.uint32)
        self.fields = _fields(data)
        self._table = (_Field * len(self.fields))(*self.fields.values())
        content = np.empty(mujoco.mj_sizeModel(model), np.uint8)
        mujoco.mj_saveModel(model, None, content)
        digest = hashlib.sha256(mujoco.mj_versionString().encode() + content.tobytes())
        self.id = int.from_bytes(digest.digest()[:8], "little", signed=True)
        library = xla_library()
        library.jaxenvs_physics_register(
            ctypes.c_int64(self.id),
            ctypes.byref(
                _Physics(
                    mujoco=ctypes.addressof(_functions()),
                    model=model._address,
                    row=self._row.ctypes.data,
                    parts=self._parts.ctypes.data,
                    fields=ctypes.addressof(self._table),
                    num_parts=len(self._parts),
                    row_size=len(self._row),
                    num_warnings=int(_Warning.mjNWARNING),
                    qpos=self.places[int(_State.mjSTATE_QPOS)],
                    qvel=self.places[int(_State.mjSTATE_QVEL)],
                    diverged=sum(1 << int(warning) for warning in _DIVERGED),
                )
            ),
        )
        _kept.append(self)

    def shape(self, name: str, dtype: str) -> jax.ShapeDtypeStruct:
        if name == "ncon":
            return jax.ShapeDtypeStruct((1,), np.int32)
        return jax.ShapeDtypeStruct((self.fields[name].size,), np.dtype(dtype))


_kept: list[_Engine] = []  # whose memory programs use


def _fields(data: mujoco.MjData) -> dict[str, _Field]:
    """Returns where mjData has the arrays of `_NAMES`, and the number of contacts."""
    wanted = {}
    for name in _NAMES:
        value = getattr(data, name)
        if value.size:
            wanted[value.__array_interface__["data"][0]] = name, value.size
    found = {"ncon": _Field(_offset_of_ncon(), 1, ord("i"), False)}
    for offset, word in _words(data._address):
        if word in wanted:
            name, size = wanted.pop(word)
            found[name] = _Field(offset, size, ord("d"), name in _INPUTS)
        if not wanted:
            break
    return dict(sorted(found.items()))


def _words(address: int) -> Iterator[tuple[int, int]]:
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
        for _, word in _words(data._address):
            if word == last:
                break
            words += [word & 0xFFFFFFFF, word >> 32]
        matches = {4 * i for i, word in enumerate(words) if word == data.ncon}
        candidates = matches if candidates is None else candidates & matches
    (offset,) = candidates or ()
    return offset
