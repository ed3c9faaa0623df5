"""A wrapper that repeats actions."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import loops, struct
from jaxenvs.core import TimeStep, Wrapper
from jaxenvs.wrappers._checks import check_count


class RepeatAction(Wrapper[Any]):
    """Repeats every action `num_repeats` times and sums the rewards.

    If the episode ends before the last repetition, the remaining repetitions are skipped. The
    observation, flags and info are those of the last step taken. A time limit inside this wrapper
    counts single steps; one outside it counts agent actions. A batch can be wrapped only if its
    instances are accessible.

    Raises:
        WrapperError: `num_repeats` is not an integer of at least 1.
    """

    num_repeats: int = struct.static()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "num_repeats")

    @property
    def time_limit(self) -> Any:
        limit = self.env.time_limit
        return None if limit is None else -(-limit // self.num_repeats)

    def reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        return self.env.reset(key)

    def step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        def take_step(state: Any, i: Any) -> tuple[Any, TimeStep]:
            return self.env.step(state, action, jax.random.fold_in(key, i))

        def repeat(carry: tuple[Any, TimeStep], i: Any) -> tuple[Any, None]:
            state, timestep = carry
            after, following = take_step(state, i)
            total = jax.tree.map(jnp.add, timestep.reward, following.reward)
            following = following.replace(reward=total)
            over = timestep.done
            return jax.tree.map(
                lambda old, new: jnp.where(over, old, new), carry, (after, following)
            ), None

        first = take_step(state, np.uint32(0))
        rest = np.arange(1, self.num_repeats, dtype=np.uint32)
        return loops.scan(repeat, first, rest)[0]
