"""Seeds on their way in."""

import operator
import secrets
from collections.abc import Sequence
from typing import Any

from jaxenvs.errors import SeedError

_DRAWN = 2**32  # drawn seeds are below it


def seeds_of(seed: Any, num_envs: int, bits: int) -> list[int]:
    """Returns the seeds of N instances: s, s + 1, ... where one is given for all, as in Gymnasium.

    Args:
        seed: an int; N of them, where None draws one; or None, which draws one for all.
        num_envs: N.
        bits: seeds are below 2**bits.

    Raises:
        SeedError: not a seed, out of range, or not one for each instance.
    """
    if seed is None:
        seed = secrets.randbelow(_DRAWN - num_envs + 1)
    first = _as_int(seed)
    if first is not None:
        seeds: list[Any] = [*range(first, first + num_envs)]
    elif isinstance(seed, (str, bytes)) or not (
        isinstance(seed, Sequence) or getattr(seed, "ndim", 0)
    ):
        raise SeedError(f"expected a seed, a list of {num_envs} seeds or None, got {seed!r}.")
    elif len(seed) != num_envs:
        raise SeedError(
            f"got {len(seed)} seeds for num_envs={num_envs}.  Pass one for each, or a single int."
        )
    else:
        seeds = [secrets.randbelow(_DRAWN) if each is None else _as_int(each) for each in seed]
    for i, each in enumerate(seeds):
        if each is None or not 0 <= each < 2**bits:
            given = f"{seed!r}; instance {i} takes {each}" if first is not None else f"{seed[i]!r}"
            raise SeedError(f"expected a seed from 0 to 2**{bits} - 1, got {given}.")
    return seeds


def _as_int(seed: Any) -> int | None:
    """The number that `seed` is, be it of Python, NumPy or JAX; else None."""
    if (
        isinstance(seed, bool)
        or getattr(seed, "shape", ())
        or str(getattr(seed, "dtype", "")) == "bool"
    ):
        return None
    try:
        return operator.index(seed)
    except TypeError:
        return None
