"""Checks of the arguments of `reset` and `step` at trace time, where they cost nothing at run time.

Only the outermost call is checked: wrappers and batches have checked what they pass on.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import chex
import jax
import numpy as np

from jaxenvs import loops, prng
from jaxenvs.errors import JaxenvsError, RandomKeyError, StateError, describe
from jaxenvs.spaces.validation import check_action
from jaxenvs.timestep import Start

F = TypeVar("F", bound=Callable[..., Any])


class _Calls(threading.local):
    are_checked = True


_calls = _Calls()


@contextlib.contextmanager
def without_checks() -> Iterator[None]:
    """Turns the checks off for the calls inside, in this thread."""
    before, _calls.are_checked = _calls.are_checked, False
    try:
        yield
    finally:
        _calls.are_checked = before


# The methods below must not refer to `_calls`: cloudpickle copies what the methods of a class of
# `__main__` refer to, except functions of modules.


def checked_reset(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the method `reset` of an environment, with a check of its key."""

    @functools.wraps(method)
    def reset(self: Any, key: chex.PRNGKey, *others: Any, **options: Any) -> Any:
        check_reset(self, key)
        with without_checks():
            # In a user's `shard_map`, constants must vary as the rest does, see `loops`.
            return loops.vary_like(method(self, key, *others, **options), (self, key))

    return reset


def accepts_starts_and_keys(method: F) -> F:
    """Returns the method `reset_to` of an environment, which accepts `Start`s and keys as well."""

    @functools.wraps(method)
    def reset_to(self: Any, level: Any) -> Any:
        if isinstance(level, Start):
            return level.state, level.first
        return method(self, self.level(level) if prng.shape_of_keys(level) == () else level)

    return cast("F", reset_to)


def checked_step(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the method `step` of an environment, with checks of its arguments."""

    @functools.wraps(method)
    def step(
        self: Any, state: Any, action: Any, key: chex.PRNGKey, *others: Any, **options: Any
    ) -> Any:
        call = functools.partial(method, self, state, action, key, *others, **options)
        return call_checked(self, call, state, action, key)

    return step


def check_reset(env: Any, key: Any) -> None:
    """Checks the argument of `reset`, unless another environment calls it."""
    if _calls.are_checked:
        _check_key(f"reset of {type(env.unwrapped).__name__}", key)


def call_checked(
    env: Any, call: Callable[[], Any], state: chex.ArrayTree, action: Any, key: Any
) -> Any:
    """Returns the result of a step, after checks of its arguments unless an environment calls."""
    if not _calls.are_checked:
        return call()
    with without_checks():
        name = type(env.unwrapped).__name__
        check_order(state, key)
        _check_key(f"step of {name}", key)
        check_action(env.action_space, action, None, name)
        result = call_with_state(env, name, call, state, key)
        if isinstance(result, tuple) and len(result) == 2 and hasattr(result[1], "reward"):
            numbers = jax.tree.leaves((result[1].reward, result[1].terminated))
            if any(map(np.ndim, numbers)):
                _check_state(env, name, state, key)  # perhaps it is that of a batch
        return loops.vary_like(result, (env, state, action, key))


def check_order(state: chex.ArrayTree, key: Any) -> None:
    """Checks that the key is the last argument of `step`, not the first as in gymnax.

    Raises:
        RandomKeyError: it is the first.
    """
    if prng.shape_of_keys(key) is None and prng.shape_of_keys(state) is not None:
        raise RandomKeyError(
            f"step got a key as its first argument and {describe(key)} as its last."
            "  Call step(state, action, key)."
        )


def call_with_state(
    env: Any, name: str, call: Callable[[], Any], state: chex.ArrayTree, key: Any
) -> Any:
    """Returns the result of a step, and explains what goes wrong if the state is not of `env`.

    Args:
        env: a single environment or a batch.
        name: its name, for the error message.
        call: steps `env`.
        state: what `step` got.
        key: likewise.

    Raises:
        StateError: the state differs in structure or shapes from those of `env.reset`, and the step
            fails or returns a state of another structure.
    """
    try:
        result = call()
    except JaxenvsError:
        raise
    except Exception as error:
        _check_state(env, name, state, key, error)
        raise
    if isinstance(result, tuple) and jax.tree.structure(result[0]) != jax.tree.structure(state):
        _check_state(env, name, state, key)
    return result


def _check_state(
    env: Any, name: str, state: chex.ArrayTree, key: Any, error: Exception | None = None
) -> None:
    try:
        expected, _ = jax.eval_shape(env.reset, key)
    except Exception:  # the environment itself is broken
        return
    if not _equal_shapes(state, expected):
        raise StateError(
            f"step of {name} got the state {_outline(state)}; expected {_outline(expected)}."
            "  Pass the state that reset or step of this environment returned."
        ) from error


def _check_key(caller: str, key: Any) -> None:
    shape = prng.shape_of_keys(key)
    if shape is None:
        raise RandomKeyError(
            f"{caller} expected a random key, got {describe(key)}.  Use jax.random.key(seed)."
        )
    if shape:
        raise RandomKeyError(
            f"{caller} expected one key, got keys of shape {list(shape)}.  For several instances,"
            f" use vectorize(env, {shape[0]}), or jax.vmap."
        )


def _equal_shapes(tree: chex.ArrayTree, other: chex.ArrayTree) -> bool:
    (leaves, structure), (others, other_structure) = map(jax.tree.flatten, (tree, other))
    return structure == other_structure and [*map(np.shape, leaves)] == [*map(np.shape, others)]


def _outline(tree: chex.ArrayTree) -> str:
    return f"{jax.tree.map(describe, tree)!s:.200}".replace("'", "")
