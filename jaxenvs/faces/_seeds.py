"""Parsing of seeds."""

import secrets
from collections.abc import Sequence
from typing import Any

from jaxenvs.errors import SeedError, as_integer

_DRAW_LIMIT = 2**32  # randomly drawn seeds are below this


def parse_seeds(seed: Any, num_envs: int, bits: int) -> list[int]:
    """Returns one seed per instance; a single seed s means s, s + 1, ..., as in Gymnasium.

    Args:
        seed: an int; a sequence of N ints, in which None draws a random seed; or None, which draws
            one for all.
        num_envs: N.
        bits: seeds must be below 2**bits.

    Raises:
        SeedError: a seed is not an integer or is out of range, or the number of seeds is not N.
    """
    if seed is None:
        seed = secrets.randbelow(_DRAW_LIMIT - num_envs + 1)
    first = as_integer(seed)
    if first is not None:
        seeds: list[Any] = [*range(first, first + num_envs)]
    elif isinstance(seed, (str, bytes)) or not (
        isinstance(seed, Sequence) or getattr(seed, "ndim", 0)
    ):
        raise SeedError(f"expected a seed, a list of {num_envs} seeds or None, got {seed!r}.")
    elif len(seed) != num_envs:
        raise SeedError(
            f"got {len(seed)} seeds for num_envs={num_envs}.  Pass one per instance, or a single"
            " int."
        )
    else:
        seeds = [
            secrets.randbelow(_DRAW_LIMIT) if each is None else as_integer(each) for each in seed
        ]
    for i, each in enumerate(seeds):
        if each is None or not 0 <= each < 2**bits:
            given = f"{seed!r}; instance {i} gets {each}" if first is not None else f"{seed[i]!r}"
            raise SeedError(f"expected a seed from 0 to 2**{bits} - 1, got {given}.")
    return seeds
