"""Native batches behind the interfaces of other libraries."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxenvs.core import AutoresetMode, Environment
from jaxenvs.factory import make_from
from jaxenvs.vector.vectorize import vectorize


def make_native_batch(
    id: str | Environment,
    num_envs: int,
    *,
    autoreset_mode: AutoresetMode,
    wrappers: Sequence[Callable[[Any], Any]],
    time_limit: Any,
    params: Mapping[str, Any],
    batched: Sequence[str] = (),
    stagger: bool | int = False,
) -> Any:
    """Makes a `VectorEnv` with `wrappers` around it, innermost first."""
    env: Any = vectorize(
        make_from(id, time_limit=time_limit, **params),
        num_envs,
        autoreset_mode=autoreset_mode,
        batched=batched,
        stagger=stagger,
    )
    for wrapper in wrappers:
        env = env.wrap(wrapper)
    return env
