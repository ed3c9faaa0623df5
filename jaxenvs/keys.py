"""How every key that reaches somebody's code comes about: one function for each.

Keys form a tree. `fold_in(key, i)` is the i-th child of a key, and so is `split(key, n)[i]`; the
functions below add children that neither of the two can name, see `prng.derive`. Code that is given
a key reaches its children and theirs, by `split` and `fold_in`, and nothing else. So two rules keep
all draws apart:

1. Of a key that is given to somebody's code, others get children of another domain alone.
2. Otherwise a key is either given away or derived from, never both, and given away once.

A key is of one domain or another by where it is needed, an index tells apart the rest.
"""

from typing import Any

import chex
import jax

from jaxenvs import prng, struct

_RESET = 0x52455345
_STAGGER = 0x53544147
_WRAPPER = 0x57524150
_EVALUATION = 0x4556414C


def instance_keys(key: chex.PRNGKey, indices: jax.Array) -> chex.PRNGKey:
    """Returns what the instances `indices`, uint32[n], are given of one key for all: its children.

    They are `jax.random.split(key, N)`.
    """
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, indices)


def autoreset_key(key: chex.PRNGKey, index: Any = 0) -> chex.PRNGKey:
    """Returns what an instance resets with when its episode ended.

    Args:
        key: of the call: one for all instances, or the instance's own.
        index: the instance's, where the key is one for all; else 0.
    """
    return prng.derive(key, _RESET, index)


def stagger_key(key: chex.PRNGKey) -> chex.PRNGKey:
    """Returns the key whose children an instance is played on with, once reset with `key`.

    Child 0 draws the number of steps; step t acts with child 2 t + 1 and steps with child 2 t + 2.
    """
    return prng.derive(key, _STAGGER)


def wrapper_key(key: chex.PRNGKey, depth: int) -> chex.PRNGKey:
    """Returns the key that a wrapper draws from in a step for which it passes `key` on.

    Args:
        key: what the wrapped environment is given.
        depth: how many wrappers with keys are inside of this one.
    """
    return prng.derive(key, _WRAPPER, depth)


def evaluation_key(key: chex.PRNGKey, index: Any) -> chex.PRNGKey:
    """Returns the key of evaluation number `index` beside a training that is given `key`."""
    return prng.derive(key, _EVALUATION, index)


@struct.pytree_dataclass
class CallKeys:
    """The [N] keys of `call_keys`, derived when indexed: resets need only a few of them."""

    keys: chex.PRNGKey
    calls: jax.Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.keys.shape

    def __getitem__(self, rows: Any) -> chex.PRNGKey:
        return call_keys(self.keys[rows], self.calls[rows])


def call_keys(keys: chex.PRNGKey, calls: jax.Array) -> chex.PRNGKey:
    """Returns the [N] keys of a call through an interface that takes seeds.

    Args:
        keys: [N] keys, `jax.random.key(seed)` of each instance.
        calls: uint32[N], the calls since each instance was seeded; the seeding reset is call 0.
    """
    return jax.vmap(jax.random.fold_in)(keys, calls)
