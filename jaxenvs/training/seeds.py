"""The seeds of a training run: one, or several that train side by side in one program."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.errors import TrainingError, check_integer


class Seeds:
    """The seeds of a learner. With several, its arrays have a leading axis.

    Args:
        seed: a seed, or a sequence of different seeds.

    Attributes:
        numbers: the seeds.
        are_several: whether there is an axis of seeds.

    Raises:
        TrainingError: a seed is invalid, or there are two equal ones.
    """

    def __init__(self, seed: Any) -> None:
        self.are_several = isinstance(seed, Sequence) and not isinstance(seed, str)
        numbers: tuple[Any, ...] = tuple(seed) if self.are_several else (seed,)
        for each in numbers:
            check_integer(TrainingError, "Learner got seed", each, least=0)
            if each >= 2**32:
                raise TrainingError(f"Learner got seed={each}; it must be less than 2**32.")
        if len(set(numbers)) != len(numbers) or not numbers:
            raise TrainingError(f"Learner got seed={seed!r:.60}; the seeds must be different.")
        self.numbers = tuple(map(int, numbers))

    def folders(self, folder: Path) -> list[Path]:
        """Returns the folder of each seed."""
        if not self.are_several:
            return [folder]
        return [folder / f"seed_{seed}" for seed in self.numbers]

    def broadcast(self, value: float) -> Any:
        """Returns a number as a metric: float64[S] for several seeds."""
        return np.full(len(self.numbers), value, np.float64) if self.are_several else float(value)

    def to_floats(self, metrics: dict[str, Any]) -> dict[str, Any]:
        """Returns the metrics of a single seed as floats; arrays of several stay as they are."""
        return metrics if self.are_several else {name: float(x) for name, x in metrics.items()}

    def split(self, tree: Any) -> list[Any]:
        """Returns a tree for each seed."""
        if not self.are_several:
            return [tree]
        return [jax.tree.map(lambda x, i=i: x[i], tree) for i in range(len(self.numbers))]

    def stack(self, trees: Sequence[Any]) -> Any:
        """Joins a tree for each seed, the inverse of `split`."""
        return jax.tree.map(lambda *x: jnp.stack(x), *trees) if self.are_several else trees[0]

    def shapes_of_one(self, shapes: Any) -> Any:
        """Returns the shapes for one seed, given those for all."""
        if not self.are_several:
            return shapes
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), shapes)

    def map(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Maps a function over the axis of seeds, if there is one."""
        return jax.vmap(function) if self.are_several else function
