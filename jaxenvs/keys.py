"""Derivation of random keys for environments, wrappers and policies.

Keys form a tree. `fold_in(key, i)` and `split(key, n)[i]` are both child i of a key. The functions
below derive children in other domains that `split` and `fold_in` cannot reach, see `prng.derive`.
Code that receives a key can reach only its descendants in the domain of `split` and `fold_in`. Two
rules keep all draws independent:

1. If a key is passed to such code, only its children in other domains are used elsewhere.
2. Otherwise a key is either passed on, once, or used to derive other keys, but never both.

Each purpose has its own domain; an index distinguishes the keys within a domain.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import chex
import jax

from jaxenvs import prng, struct
from jaxenvs.errors import RandomKeyError

T = TypeVar("T")

_RESET = 0x52455345
_STAGGER = 0x53544147
_WRAPPER = 0x57524150
_EVALUATION = 0x4556414C
_TRIAL = 0x54524941


def instance_keys(key: chex.PRNGKey, indices: jax.Array) -> chex.PRNGKey:
    """Returns the keys of instances `indices`, uint32[n]: rows of `jax.random.split(key, N)`."""
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, indices)


def autoreset_key(key: chex.PRNGKey, index: Any = 0) -> chex.PRNGKey:
    """Returns the key with which an instance resets after its episode.

    Args:
        key: the key of the step: either one for all instances, or the instance's own.
        index: the index of the instance if the key is one for all instances, else 0.
    """
    return prng.derive(key, _RESET, index)


def stagger_key(key: chex.PRNGKey) -> chex.PRNGKey:
    """Returns the key for the random steps of a staggered start, after a reset with `key`.

    Child 0 draws the number of steps. Step t samples its action with child 2 t + 1 and steps with
    child 2 t + 2.
    """
    return prng.derive(key, _STAGGER)


def wrapper_key(key: chex.PRNGKey, depth: int) -> chex.PRNGKey:
    """Returns the key for a wrapper's own random numbers.

    Args:
        key: the key that the wrapper passes to the wrapped environment.
        depth: the number of wrappers inside this one that use keys too.
    """
    return prng.derive(key, _WRAPPER, depth)


def trial_key(key: chex.PRNGKey) -> chex.PRNGKey:
    """Returns the key for what changes between two episodes of a trial, in a step with `key`."""
    return prng.derive(key, _TRIAL)


def evaluation_key(key: chex.PRNGKey, index: Any) -> chex.PRNGKey:
    """Returns the key of evaluation number `index` of the training run with key `key`."""
    return prng.derive(key, _EVALUATION, index)


def checked_keys(key: Any, num_envs: int) -> Any:
    """Returns the key of a batch: one for all instances, or [N] keys, one per instance.

    Raises:
        RandomKeyError: it is not a key, or the number of keys is neither 1 nor N.
    """
    if isinstance(key, CallKeys):
        return key
    key = prng.as_typed_key(key)
    if key.shape not in ((), (num_envs,)):
        raise RandomKeyError(
            f"expected one key for all instances or {num_envs} keys, one per instance; got keys of"
            f" shape {list(key.shape)}.  Use jax.random.split(key, {num_envs})."
        )
    return key


@struct.pytree_dataclass
class CallKeys:
    """The [N] keys of `call_keys`, derived when indexed, because resets need only a few of them."""

    keys: chex.PRNGKey
    calls: jax.Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.keys.shape

    def __getitem__(self, rows: Any) -> chex.PRNGKey:
        return call_keys(self.keys[rows], self.calls[rows])


def call_with_fast_keys(call: Callable[[Any], T], key: Any) -> T:
    """Is `prng.call_with_fast_key`, for `CallKeys`, too."""
    if not isinstance(key, CallKeys):
        return prng.call_with_fast_key(call, key)
    calls = key.calls
    return prng.call_with_fast_key(lambda own: call(CallKeys(keys=own, calls=calls)), key.keys)


def call_keys(keys: chex.PRNGKey, calls: jax.Array) -> chex.PRNGKey:
    """Returns the [N] keys of a call of an environment that is seeded with integers.

    Args:
        keys: [N] keys, `jax.random.key(seed)` for each instance.
        calls: uint32[N], calls since each instance was seeded; the reset with the seed is call 0.
    """
    return jax.vmap(jax.random.fold_in)(keys, calls)
