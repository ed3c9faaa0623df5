"""What the calls of a pool are given: seeds, masks, numbers of environments."""

from collections.abc import Sequence
from typing import Any, TypeGuard

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
    if is_whole(seed):
        seeds: list[Any] = [int(seed) + int(i) for i in ids]
    else:
        seeds = list(seed) if isinstance(seed, (Sequence, np.ndarray)) else [seed]
    if len(seeds) != len(ids):
        raise SeedError(
            f"reset got {len(seeds)} seeds for {len(ids)} environments."
            "  Pass one for each, or a single number."
        )
    for each in seeds:
        if each is not None and not _is_seed(each):
            raise SeedError(f"reset got the seed {each!r}; expected whole numbers from 0 on.")
    return [-1 if each is None else int(each) for each in seeds]


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether it is a whole number, of Python or NumPy."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))


def _is_seed(value: Any) -> bool:
    return is_whole(value) and 0 <= value < 2**63


def whole_or_none(name: str, value: Any) -> int | None:
    """An argument of make_pool that counts something, as an int of Python; None stays None.

    Raises:
        PoolError: it is no whole number from 1 on.
    """
    if value is None:
        return None
    if not is_whole(value) or value < 1:
        raise PoolError(f"make_pool got {name}={value!r}; expected a whole number from 1 on.")
    return int(value)


def seconds_or_none(name: str, value: Any) -> float | None:
    """An argument of make_pool that is a time, as a float; None stays None.

    Raises:
        PoolError: it is no number above 0, or without an end.
    """
    if value is None:
        return None
    is_number = is_whole(value) or isinstance(value, (float, np.floating))
    if not is_number or not 0 < value < float("inf"):
        raise PoolError(
            f"make_pool got {name}={value!r}; expected seconds above 0, or None for any time."
        )
    return float(value)


def check_seed(seed: Any, num_envs: int | None) -> None:
    """Looks at the seed of make_pool, which is used much later; None are yet to be counted.

    Raises:
        SeedError: it is no whole number from 0 on, and no sequence of one for each environment.
    """
    if seed is None:
        return
    is_array = isinstance(seed, np.ndarray) and seed.ndim > 0
    is_many = is_array or (isinstance(seed, Sequence) and not isinstance(seed, (str, bytes)))
    if is_many and num_envs is not None and len(seed) != num_envs:
        raise SeedError(
            f"make_pool got {len(seed)} seeds for {num_envs} environments.  Pass one for each, or a"
            " single number."
        )
    for each in seed if is_many else [seed]:
        if not _is_seed(each):
            raise SeedError(
                f"make_pool got seed={seed!r:.80}; expected a whole number from 0 on, or a list"
                " with one for each environment."
            )


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
