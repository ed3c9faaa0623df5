"""Models of MuJoCo, and what tasks read of a simulation, whatever engine runs it."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.core import TimeStep
from jaxenvs.errors import ParameterError, closest, missing_extra

try:
    import mujoco
except ImportError as error:
    raise missing_extra(__name__, "mujoco", "mujoco") from error


@functools.cache
def load(xml_file: str) -> mujoco.MjModel:
    """Loads a model: Gymnasium's file of that name, or a path that begins with /, ., or ~.

    A file is read once per process, because programs that were compiled for it are kept.

    Raises:
        ParameterError: there is no such file.
    """
    return mujoco.MjModel.from_xml_path(str(find(xml_file)))


def find(xml_file: str) -> Path:
    """Returns the path of a model's file, see `load`."""
    path = Path(xml_file).expanduser()
    if not xml_file.startswith(("/", ".", "~")):
        path = _assets() / xml_file
    if not path.exists():
        known = [each.name for each in _assets().glob("*.xml")]
        raise ParameterError(
            f'there is no file {path} for xml_file="{xml_file}".{closest(xml_file, known)}'
            "  Pass a file of Gymnasium's, or a path that begins with /, ., or ~."
        )
    return path


def _assets() -> Path:
    return Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"


@contextlib.contextmanager
def precision(dtype: str) -> Iterator[None]:
    """Traces a program in `dtype`, whatever the settings of the caller are."""
    with (
        jax.enable_x64(dtype == "float64"),
        jax.numpy_rank_promotion("allow"),
        jax.numpy_dtype_promotion("standard"),
        jax.default_matmul_precision("highest"),  # otherwise GPUs round to ten bits
    ):
        yield


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a task uses an engine."""

    original: mujoco.MjModel
    dtype: str
    fields: tuple[str, ...]  # what the task reads of the data
    precise: tuple[str, ...]  # what it reads in double precision if the engine can
    steps: int  # physics steps in a step
    # Whether all is computed at the new state after a step, as dm_control does, not left as it was
    # at the last evaluation of the forces, as Gymnasium does.
    refreshes: bool
    starts_with_forces: bool = False  # whether the first observation has forces
    physics: tuple[str, ...] = ()  # names of arrays that the user replaces for all episodes
    raises: bool = False  # whether a simulation that diverges is an error
    num_threads: int | None = None  # of C MuJoCo
    derivatives: str | None = None  # "finite": C MuJoCo has derivatives

    @property
    def needs_forces(self) -> bool:
        """Whether a start reads forces, of itself or through sensors."""
        stages = self.original.sensor_needstage
        has_sensors = (stages == mujoco.mjtStage.mjSTAGE_ACC).any()
        return self.starts_with_forces or (self.refreshes and bool(has_sensors))


class Model:
    """Arrays of a model by MuJoCo's names, some of which have other values for an instance."""

    def __init__(
        self, original: Any, dtype: str, changes: Mapping[str, Any], prefix: str = ""
    ) -> None:
        self._original, self._dtype, self._changes = original, dtype, changes
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        if name == "opt":
            return Model(self._original.opt, self._dtype, self._changes, "opt.")
        if (full := self._prefix + name) in self._changes:
            return self._changes[full]
        value = getattr(self._original, name)
        is_float = np.issubdtype(np.asarray(value).dtype, np.floating)
        return jnp.asarray(value, self._dtype) if is_float else value


class Fields:
    """Arrays of the data by MuJoCo's names; matrices of orientations are [..., 3, 3]."""

    def __init__(self, original: mujoco.MjModel, dtype: str, arrays: Mapping[str, Any]) -> None:
        self._original, self._dtype, self.arrays = original, dtype, arrays

    def __getattr__(self, name: str) -> Any:
        if name in self.arrays:
            return self.arrays[name]
        shape = shape_of(self._original, name)
        if 0 in shape:
            return jnp.zeros(shape, self._dtype)
        raise AttributeError(f"this task does not read {name} at every step")


@dataclasses.dataclass(frozen=True)
class Simulated:
    """What an engine returns."""

    kept: Any  # what the engine needs of the state besides positions and velocities
    diverged: jax.Array  # bool[], whether this was not physics; the state is that from before
    data: Fields
    precise: Fields  # the fields that the plan asks for in double precision

    def first(self, observation: Any, info: Mapping[str, Any] | None = None) -> TimeStep:
        """Returns the first timestep of an episode."""
        return TimeStep.first(observation, info={**(info or {}), "diverged": self.diverged})

    def transition(
        self, observation: Any, reward: Any, terminated: Any, info: Mapping[str, Any] | None = None
    ) -> TimeStep:
        """Returns the timestep of a step, which truncates the episode if it diverged."""
        return TimeStep.transition(
            observation,
            reward=jnp.where(self.diverged, 0, reward),
            terminated=terminated & ~self.diverged,
            truncated=self.diverged,
            info={**(info or {}), "diverged": self.diverged},
        )


def simulated(
    plan: Plan, kept: Any, diverged: jax.Array, data: Mapping[str, Any], precise: Mapping[str, Any]
) -> Simulated:
    """Returns what an engine returns."""
    dtype, original = plan.dtype, plan.original
    return Simulated(
        kept, diverged, Fields(original, dtype, data), Fields(original, "float64", precise)
    )


def shape_of(original: mujoco.MjModel, name: str) -> tuple[int, ...]:
    """Returns the shape of an array of the data.

    Raises:
        AttributeError: MuJoCo has no such array.
    """
    shape = np.shape(getattr(_example(original), name))
    return (*shape[:-1], 3, 3) if name.endswith(("xmat", "ximat")) else shape


@functools.cache
def _example(original: mujoco.MjModel) -> mujoco.MjData:
    return mujoco.MjData(original)


def fields_read_by(
    original: mujoco.MjModel, dtype: str, function: Callable[[Any], Any]
) -> tuple[tuple[str, ...], Any]:
    """Returns the names of what a function reads of the data, and the shapes of its results."""
    names: set[str] = set()

    class Probe(Fields):
        def __getattr__(self, name: str) -> Any:
            shape = shape_of(original, name)
            names.add(name)
            return jnp.zeros(shape, np.int32 if name == "ncon" else dtype)

    shapes = jax.eval_shape(lambda: function(Probe(original, dtype, {})))
    return tuple(sorted(names)), shapes


def change(model: mujoco.MjModel, changes: Mapping[str, np.ndarray]) -> None:
    """Replaces arrays of a model; doubles may be pairs of uint32."""
    for name, value in changes.items():
        *path, last = name.split(".")
        owner = functools.reduce(getattr, path, model)
        value = value.view(np.float64) if value.dtype == np.uint32 else value
        array = getattr(owner, last)
        setattr(owner, last, value.reshape(array.shape) if np.ndim(array) else value.item())


def array(model: mujoco.MjModel, name: str) -> np.ndarray:
    """Returns an array of a model by its name, such as "opt.gravity"."""
    return np.array(functools.reduce(getattr, name.split("."), model))


def restore(original: mujoco.MjModel, data: mujoco.MjData, state: Any) -> None:
    """Puts positions and velocities of a task's state, in NumPy, into MuJoCo's data."""
    del original
    data.qpos, data.qvel = state.qpos, state.qvel


def check_changes(
    original: mujoco.MjModel, changes: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Checks the names and shapes of arrays that replace those of a model.

    Raises:
        ParameterError: the model has no such array, or it has another shape.
    """
    for name, value in changes.items():
        if name not in shapes:
            raise ParameterError(
                f'the model has no array "{name}".{closest(name, shapes)}'
                '  Examples are "opt.gravity", "body_mass", and "geom_friction".'
            )
        expected, given = shapes[name], np.shape(value)
        if given[len(given) - len(expected) :] != expected or len(given) > len(expected) + 1:
            raise ParameterError(
                f'physics["{name}"] has the shape {list(given)}; expected {list(expected)}, or'
                " [N, ...] for different values in N instances."
            )
