"""Lists of levels: the protocol of Procgen, with test levels that are not among those of training.

A level is what a reset decides, see `Environment.level`. Seed s names the level of
`jax.random.key(s)`.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.core import Environment
from jaxenvs.core import FixedLevel as FixedLevel
from jaxenvs.errors import ParameterError, as_integer
from jaxenvs.timestep import Start as Start
from jaxenvs.wrappers.levels import Levels as Levels
from jaxenvs.wrappers.levels import RandomizedLevel as RandomizedLevel

TRAIN, NUM_TEST = range(200), 1_000  # what levels="train" and levels="test" stand for
_CHUNK, _MAX_SEEDS = 1_024, 20_000


def from_seeds(env: Environment, seeds: Any) -> Any:
    """Returns the levels of `jax.random.key(seed)` for K seeds: each leaf is [K, ...]."""
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
    return jax.vmap(env.level)(keys)


def distinct_seeds(env: Environment, seeds: Iterable[int]) -> list[int]:
    """Returns the seeds whose levels differ from those of all seeds before them.

    Levels are equal if episodes start in equal states with equal observations. `len` of the result
    is how many levels there are among the seeds.
    """
    found = dict[bytes, int]()
    for seed, digest in _fingerprints(env, seeds):
        found.setdefault(digest, seed)
    return list(found.values())


def held_out_seeds(
    env: Environment, train: Sequence[int] = TRAIN, num_seeds: int = NUM_TEST
) -> list[int]:
    """Returns seeds whose levels differ from each other and from those of the seeds `train`.

    Seeds that differ can have equal levels. The result begins after the largest seed of `train`. It
    is shorter than `num_seeds` if the next 20,000 seeds have fewer other levels.

    Raises:
        ParameterError: they have none.
    """
    known = {digest for _, digest in _fingerprints(env, train)}
    first, found = max(train, default=-1) + 1, list[int]()
    for seed, digest in _fingerprints(env, range(first, first + _MAX_SEEDS)):
        if digest not in known:
            known.add(digest)
            found.append(seed)
            if len(found) == num_seeds:
                break
    if not found:
        raise ParameterError(
            f"{env!r:.80} has only the {len(known)} levels of the {len(train)} seeds to train on,"
            " none to test on.  Train on fewer seeds, or use a larger environment."
        )
    return found


def with_levels(env: Environment, levels: Any) -> Levels:
    """Returns `env` with episodes that start in `levels` only, drawn uniformly.

    Args:
        env: the environment.
        levels: the seeds as integers; a number K for the seeds 0 to K - 1; "train" for the seeds 0
            to 199; "test" for up to 1,000 seeds whose levels are not among those of "train", see
            `held_out_seeds`; or the levels themselves, stacked: each leaf is [K, ...].

    Raises:
        ParameterError: `levels` is none of these, or there are no levels for "test".
        WrapperError: the levels are not stacked, see `Levels`.
    """
    if isinstance(levels, str):
        if levels not in ("train", "test"):
            raise ParameterError(
                f'levels="{levels}"; expected "train", "test", seeds, or stacked levels.'
            )
        levels = TRAIN if levels == "train" else held_out_seeds(env)
    elif (number := as_integer(levels)) is not None:
        levels = range(number)
    if isinstance(levels, Sequence | np.ndarray):
        seeds = np.asarray(levels)
        if seeds.ndim != 1 or not seeds.size or not np.issubdtype(seeds.dtype, np.integer):
            raise ParameterError(
                f"levels={levels!r:.60}; expected integers, the seeds of the levels."
            )
        if seeds.min() < 0 or seeds.max() >= 2**32:
            raise ParameterError(f"levels={levels!r:.60}; seeds must be from 0 to 2**32 - 1.")
        levels = from_seeds(env, seeds)
    return Levels(env, levels)


def _fingerprints(env: Environment, seeds: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """Yields each seed with a hash of the state and the observation in which its level starts."""

    @jax.jit
    def starts(seeds: jax.Array) -> list[jax.Array]:
        state, timestep = jax.vmap(env.reset_to)(from_seeds(env, seeds))
        leaves = jax.tree.leaves((state, timestep.observation))
        return [leaf for leaf in leaves if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)]

    seeds = np.fromiter(seeds, np.uint32)
    chunk = min(_CHUNK, max(1, len(seeds)))
    for first in range(0, len(seeds), chunk):
        part = seeds[first : first + chunk]
        rows = [np.asarray(leaf) for leaf in starts(jnp.asarray(np.resize(part, chunk)))]
        for i, seed in enumerate(part):
            digest = hashlib.blake2b(digest_size=16)
            for leaf in rows:
                digest.update(leaf[i].tobytes())
            yield int(seed), digest.digest()
