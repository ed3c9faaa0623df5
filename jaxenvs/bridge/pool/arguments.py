"""Validation of the arguments of a pool's methods: seeds, masks, env_ids."""

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from jaxenvs.errors import EnvIdError, PoolError, SeedError, describe


def checked_ids(env_ids: Any, num_envs: int) -> np.ndarray:
    """Returns the indices of environments as int32[n], each given once.

    Raises:
        EnvIdError: there is no index, one is out of range, or one was given twice.
    """
    ids = np.asarray(env_ids)
    if ids.dtype == np.bool_ or ids.ndim != 1 or not (ids.dtype.kind in "iu" and len(ids)):
        raise EnvIdError(
            f"env_ids got {describe(ids)}; expected int32[n] with at least one index from 0 to"
            f" {num_envs - 1}."
        )
    if ids.min() < 0 or ids.max() >= num_envs:
        wrong = ids[(ids < 0) | (ids >= num_envs)]
        raise EnvIdError(
            f"env_ids got {short(wrong.tolist())}; environments are numbered from 0 to"
            f" {num_envs - 1}."
        )
    # A set is faster for few, sorting for many.
    if (len(set(ids.tolist())) if len(ids) < 64 else len(np.unique(ids))) != len(ids):
        values, counts = np.unique(ids, return_counts=True)
        raise EnvIdError(
            f"env_ids got {short(values[counts > 1].tolist())} more than once."
            "  Send each environment one action, then wait for its result."
        )
    return ids.astype(np.int32)


def seeds_of(what: str, seed: Any, ids: Sequence[int] | np.ndarray) -> Any:
    """Returns an int64 seed for each of `ids`; -1 means no seed.

    Args:
        what: the call that got the seed.
        seed: None, an integer, to which each index is added, or a sequence with one for each.

    Raises:
        SeedError: a seed is not a nonnegative integer, or the number of seeds is wrong.
    """
    if seed is None:
        return -1
    if is_whole(seed):
        seeds: list[Any] = [int(seed) + int(i) for i in ids]
    else:
        seeds = list(seed) if isinstance(seed, Sequence) or np.ndim(seed) else [seed]
    if len(seeds) != len(ids):
        raise SeedError(
            f"{what} got {len(seeds)} seeds for {len(ids)} environments.  Pass one seed for each"
            " environment, or a single integer."
        )
    for each in seeds:
        if each is not None and not (is_whole(each) and 0 <= each < 2**63):
            raise SeedError(f"{what} got the seed {each!r:.80}; expected nonnegative integers.")
    return [-1 if each is None else int(each) for each in seeds]


def is_whole(value: Any) -> TypeGuard[int]:
    """Returns whether a value is an integer of Python or NumPy, but not a bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))


def without_mask(
    options: dict[str, Any] | None, num_envs: int
) -> tuple[dict[str, Any] | None, np.ndarray | None]:
    """Returns the options without "reset_mask", and that mask or None.

    Raises:
        PoolError: the mask is not bool[N], or selects no environment.
    """
    if not options or "reset_mask" not in options:
        return options, None
    mask = np.asarray(options["reset_mask"])
    if mask.shape != (num_envs,) or mask.dtype != np.bool_ or not mask.any():
        raise PoolError(
            f"options['reset_mask'] got {describe(mask)} with {int(np.count_nonzero(mask))} true;"
            f" expected bool[{num_envs}] with at least one true."
        )
    rest = {name: value for name, value in options.items() if name != "reset_mask"}
    return rest or None, mask


def short(numbers: Sequence[int]) -> str:
    """Returns the first eight numbers for a message."""
    shown = ", ".join(map(str, numbers[:8]))
    return f"[{shown}]" if len(numbers) <= 8 else f"[{shown}, ... {len(numbers)} in all]"
