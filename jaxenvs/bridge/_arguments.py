"""What the calls of a pool are given: seeds, masks, numbers of environments."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxenvs.errors import EnvIdError, PoolError, SeedError, describe


def checked_ids(env_ids: Any, num_envs: int) -> np.ndarray:
    """int32[n], numbers of environments, each named once.

    Raises:
        EnvIdError: they are none, out of range, or one was given twice.
    """
    ids = np.asarray(env_ids)
    if ids.dtype == np.bool_ or ids.ndim != 1 or not (ids.dtype.kind in "iu" and len(ids)):
        raise EnvIdError(
            f"env_ids got {describe(ids)}; expected int32[n] of numbers from 0 to"
            f" {num_envs - 1}, at least one."
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
            "  Send each environment one action, then wait for it."
        )
    return ids.astype(np.int32)


def seeds_of(seed: Any, ids: np.ndarray) -> Any:
    """int64 for each of `ids`; -1 for none."""
    if seed is None:
        return -1
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        seeds: list[Any] = [int(seed) + int(i) for i in ids]
    else:
        seeds = list(seed) if isinstance(seed, (Sequence, np.ndarray)) else [seed]
    if len(seeds) != len(ids):
        raise SeedError(
            f"reset got {len(seeds)} seeds for {len(ids)} environments."
            "  Pass one for each, or a single number."
        )
    for each in seeds:
        is_number = isinstance(each, (int, np.integer)) and not isinstance(each, bool)
        if each is not None and not (is_number and 0 <= each < 2**63):
            raise SeedError(f"reset got the seed {each!r}; expected whole numbers from 0 on.")
    return [-1 if each is None else int(each) for each in seeds]


def without_mask(
    options: dict[str, Any] | None, num_envs: int
) -> tuple[dict[str, Any] | None, np.ndarray | None]:
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


def short(numbers: Sequence[int], limit: int = 8) -> str:
    shown = ", ".join(map(str, numbers[:limit]))
    return f"[{shown}]" if len(numbers) <= limit else f"[{shown}, ... {len(numbers)} in all]"
