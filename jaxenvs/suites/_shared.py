"""Helpers that the adapters share."""

import abc
import dataclasses
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any, Self

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import loops, spaces
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import (
    JaxenvsError,
    ParameterError,
    RenderError,
    SpaceError,
    WrapperError,
    check_parameters,
)
from jaxenvs.spaces.unbounded import limits, unbounded
from jaxenvs.struct import is_traced
from jaxenvs.wrappers import TimeLimit

NO_LIMIT = 2**31 - 1  # for libraries that always have a step limit, an int32


@dataclasses.dataclass(frozen=True, eq=False)
class ByIdentity:
    """An object as the value of a static field: equal only to itself, even if it has no hash."""

    value: Any


def in_32_bits(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method that computes the same with `jax_enable_x64` as without."""

    @functools.wraps(function)
    def method(*args: Any) -> Any:
        with jax.enable_x64(False):
            return function(*args)

    return method


class Adapter(Environment[Any]):
    """A single instance of another library's environment, without resets and time limits.

    A subclass defines `_reset` and `_step` with the library's own reset and step. Their results
    may differ in dtypes and in the keys of `info`; those of `reset` and `step` do not.
    """

    @abc.abstractmethod
    def _reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        """Starts an episode."""

    @abc.abstractmethod
    def _step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        """Takes one action."""

    @property
    def parameters(self) -> dict[str, Any]:
        return {}  # those of the library, if they can be read

    @in_32_bits
    def reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        state, first = self._reset(key)
        next_state, following = _shapes_after_step(self, key)
        # Most libraries have extra results in steps only, but `info` has the same keys always.
        info = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), following.info)
        info |= {name: first.info[name] for name in info.keys() & first.info.keys()}
        observation = cast_like(first.observation, following.observation)
        return cast_like(state, next_state), first.replace(
            observation=observation, info=cast_like(info, following.info)
        )

    def example(self) -> Any:
        """Returns a state, for what depends on shapes only."""
        return jax.jit(self.reset)(jax.random.key(0))[0]

    @in_32_bits
    def step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        state, timestep = self._step(state, action, key)
        timestep = timestep.replace(
            observation=cast_like(timestep.observation, timestep.observation),
            info=cast_like(timestep.info, timestep.info),
        )
        return cast_like(state, state), timestep


def _shapes_after_step(env: Adapter, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
    """Returns the shapes of the results of a step, which is traced once for an environment."""
    leaves, structure = jax.tree.flatten((env, key))
    types = map(jax.typeof, leaves)
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type) for x in types]
    return _trace_step(structure, tuple(shapes))


@functools.lru_cache(maxsize=256)
def _trace_step(structure: Any, shapes: tuple[Any, ...]) -> tuple[Any, TimeStep]:
    def take_step(env: Adapter, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        return env._step(env._reset(key)[0], env.action_space.sample(key), key)

    return jax.eval_shape(take_step, *structure.unflatten(shapes))


class WithParameters(Adapter):
    """An adapter whose library keeps parameters apart: `env.replace(gravity=3.7)` changes them."""

    params: Any  # a dataclass, and a pytree whose static fields cannot differ between instances
    inner_parameters = "params"

    @property
    def parameters(self) -> dict[str, Any]:
        return {name: getattr(self.params, name) for name in field_names(self.params)}

    def replace(self, **changes: Any) -> Self:
        own = field_names(self)
        inner = [name for name in changes if name not in own]
        check_parameters(repr(self), inner, field_names(self.params))
        return super().replace(**changes)


def with_time_limit(env: Environment, limit: Any, name: str) -> Environment:
    """Returns `env` with a time limit, unless `limit` is None or out of reach.

    Args:
        env: the environment.
        limit: a number of steps.
        name: the library's name for it.

    Raises:
        ParameterError: the limit is not one number.
    """
    if limit is None:
        return env
    if np.ndim(limit):
        raise ParameterError(
            f"{env!r:.80} got {name}={limit!r:.60}; expected one number of steps, which becomes the"
            ' time limit.  For a limit per instance, pass batched="time_limit" and'
            f" time_limit=jnp.array([...]) to make_vec, and one {name}."
        )
    is_reached = np.isfinite(limit) and limit < NO_LIMIT
    return TimeLimit(env, time_limit=int(limit)) if is_reached else env


def check_kind(name: str, env: Any, kind: type[Any]) -> None:
    """Raises WrapperError if `env`, an argument of the function `name`, is not a `kind`."""
    if not isinstance(env, kind):
        raise WrapperError(
            f"{name} got {env!r:.80}; expected an environment of {kind.__module__.split('.')[0]}."
        )


def check_single(
    name: str, env: Any, kind: type[Any], batching: tuple[type[Any], ...], inner: str
) -> None:
    """Checks that `env` describes a single instance that does not reset itself.

    Args:
        name: the name of the caller, for error messages.
        env: the environment.
        kind: the library's class of environments.
        batching: its wrappers that reset or batch instances.
        inner: the attribute with the environment in a wrapper.

    Raises:
        WrapperError: `env` is not a `kind`, or has such a wrapper.
    """
    check_kind(name, env, kind)
    layer = env
    while layer is not None:
        if isinstance(layer, batching):
            raise WrapperError(
                f"{name} got an environment with {type(layer).__name__}, but jaxenvs batches and"
                " resets instances itself.  Pass the environment without this wrapper."
            )
        layer = vars(layer).get(inner)


def replace_parameters(
    id: str, changes: Mapping[str, Any], params: Any, static: Any
) -> tuple[Any, Any]:
    """Returns a library's parameters and its static parameters, both dataclasses, with changes.

    Raises:
        UnknownParameterError: neither has a field of that name.
    """
    own, others = field_names(params), field_names(static)
    check_parameters(id, changes, [*own, *others])
    return (
        params.replace(**{name: x for name, x in changes.items() if name in own}),
        static.replace(**{name: x for name, x in changes.items() if name in others}),
    )


def field_names(params: Any) -> list[str]:
    """Returns the names of the parameters in a dataclass."""
    return [field.name for field in dataclasses.fields(params)]


def cast_like(tree: chex.ArrayTree, like: chex.ArrayTree) -> Any:
    """Returns `tree` as arrays with the dtypes of `like`, never weakly typed.

    Python's numbers become 32-bit arrays, also under `jax_enable_x64`.
    """

    def cast(leaf: Any, like: Any) -> Any:
        dtype = like.dtype if hasattr(like, "dtype") else jnp.result_type(like)
        if isinstance(leaf, int | float) and dtype.itemsize == 8:
            dtype = np.dtype(f"{dtype.kind}4")
        is_key = jnp.issubdtype(dtype, jax.dtypes.extended)
        return leaf if is_key else jnp.asarray(leaf, dtype)

    return jax.tree.map(cast, tree, like)


def by_name(tree: Any) -> Any:
    """Returns a tree of arrays in which named tuples and dataclasses are dicts by field name."""
    if dataclasses.is_dataclass(tree):
        return {f.name: by_name(getattr(tree, f.name)) for f in dataclasses.fields(tree)}
    if hasattr(tree, "_asdict"):
        return {name: by_name(value) for name, value in tree._asdict().items()}
    if isinstance(tree, Mapping):
        return {name: by_name(value) for name, value in tree.items()}
    if isinstance(tree, tuple | list):
        return tuple(by_name(value) for value in tree)
    return tree


def from_gymnax_space(space: Any) -> spaces.Space:
    """Returns a space of gymnax, or of a library that copied its classes."""
    kind = type(space).__name__
    if isinstance(space, Mapping):
        return spaces.Dict({name: from_gymnax_space(each) for name, each in space.items()})
    if kind == "Discrete":
        return spaces.Discrete(int(space.n))
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(np.asarray(space.num_categories))
    if kind == "Box":
        bounds = limits(space.dtype)  # JaxMARL has an upper bound of 1e9 for uint8
        low, high = (
            jnp.asarray(np.clip(x, *bounds) if isinstance(x, int | float) else x, space.dtype)
            for x in (space.low, space.high)
        )
        low, high = (b if is_traced(b) else np.asarray(b) for b in (low, high))
        shape = tuple(map(int, np.atleast_1d(space.shape)))  # JaxMARL has plain numbers
        return spaces.Box(low, high, shape, space.dtype)
    if kind == "Dict":
        return spaces.Dict({name: from_gymnax_space(each) for name, each in space.spaces.items()})
    if kind == "Tuple":
        return spaces.Tuple([from_gymnax_space(each) for each in space.spaces])
    raise SpaceError(f"there is no space of jaxenvs for {space!r:.80}.")


def resize(space: Any, shapes: Any) -> spaces.Space:
    """Returns `space` with the shapes and dtypes that observations really have.

    Libraries declare some of their spaces with another shape or dtype. Bounds that do not fit are
    those of the dtype.
    """
    if isinstance(space, spaces.Dict):
        return spaces.Dict(
            {name: resize(each, shapes[name]) for name, each in space.spaces.items()}
        )
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([resize(*pair) for pair in zip(space.spaces, shapes, strict=True)])
    if (space.shape, space.dtype) == (shapes.shape, shapes.dtype):
        return space
    try:
        low, high = (np.broadcast_to(bound, shapes.shape) for bound in space.bounds)
        return spaces.Box(low, high, dtype=shapes.dtype)
    except (ValueError, SpaceError):
        return unbounded(shapes)


def host_picture(draw: Callable[[Any], Any], state: Any, example: Callable[[], Any]) -> jax.Array:
    """Returns the picture of a state that a function of the host draws, uint8[H, W, 3].

    Args:
        draw: the function.
        state: the state, which may be traced.
        example: a function that returns a state of the environment, whose picture has the same
            size. Called if `state` is traced.
    """

    def paint(state: Any) -> np.ndarray:
        return np.asarray(draw(jax.tree.map(np.asarray, state)))[..., :3].astype(np.uint8)

    state = _without_keys(state)
    if not is_traced(*jax.tree.leaves(state)):
        return jnp.asarray(paint(state))
    with jax.ensure_compile_time_eval():
        shape = paint(_without_keys(example())).shape
    result = jax.ShapeDtypeStruct(shape, np.uint8)
    picture = jax.pure_callback(paint, result, state, vmap_method="sequential")
    return loops.vary_like(picture, state)


def mujoco_picture(draw: Callable[[Any], Any], state: Any, example: Callable[[], Any]) -> jax.Array:
    """Returns `host_picture` of a function that draws with MuJoCo.

    Raises:
        RenderError: MuJoCo cannot draw on this machine.
    """
    from jaxenvs.physics.renderer import drawing_errors  # which imports MuJoCo

    def paint(state: Any) -> Any:
        with drawing_errors():
            return draw(state)

    return host_picture(paint, state, example)


def python_picture(library: str, name: str, draw: Callable[[Any], Any], state: Any) -> jax.Array:
    """Returns the picture that a library draws outside of compiled programs, uint8[H, W, 3].

    Args:
        library: its name, for error messages.
        name: the name of the environment.
        draw: returns the picture of a state, or None if the library has none.
        state: the state.

    Raises:
        RenderError: the state is traced, there is no picture, or the library's code fails.
    """
    if is_traced(*jax.tree.leaves(state)):
        raise RenderError(
            f"{library} cannot draw in a compiled program.  Call env.render(state) outside of jit"
            " and vmap."
        )
    try:
        picture = draw(state)
    except JaxenvsError:
        raise
    except Exception as error:  # parts of the libraries need old releases of other packages
        raise RenderError(f"{library} cannot draw {name}: {error!r:.200}") from error
    if picture is None:
        raise RenderError(f"{library} has no pictures of {name}.")
    return jnp.asarray(picture)


def figure_picture(draw: Callable[[Any], Any]) -> np.ndarray:
    """Returns what a function draws on axes of Matplotlib, uint8[500, 500, 3]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure  # not pyplot, which opens windows

    canvas = FigureCanvasAgg(Figure((5, 5)))
    draw(canvas.figure.subplots())
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]


def with_globals(function: Callable[..., Any], **names: Any) -> Callable[..., Any]:
    """Returns a copy of a function in which some global names have other values."""
    return types.FunctionType(function.__code__, {**function.__globals__, **names})


def _without_keys(state: Any) -> Any:
    """Returns a state with words instead of keys, which the host cannot read."""

    def replace(leaf: Any) -> Any:
        is_key = jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)
        return jax.random.key_data(leaf) if is_key else leaf

    return jax.tree.map(replace, state)
