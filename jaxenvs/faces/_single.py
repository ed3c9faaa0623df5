"""One instance, driven as a batch of one."""

from typing import Any

import gymnasium
import jax

from jaxenvs.errors import ActionError
from jaxenvs.faces._engine import Engine, HostStep
from jaxenvs.faces.gym import _as_batch


def step_one(engine: Engine, space: gymnasium.Space, action: Any) -> HostStep:
    """Takes one action, of `space`, in an engine of one instance.

    Raises:
        ActionError: the action does not fit; the message speaks of one action, not of a batch.
    """
    try:
        return engine.step(_as_batch(space, action))
    except ActionError:
        raise ActionError(
            f"step got the action {action!r}; expected a member of {space}.  Clip what is out of"
            " range (jaxenvs.wrappers.ClipAction does), or pass validate=False to let the"
            " environment decide."
        ) from None


def row(tree: Any, index: int = 0) -> Any:
    """One instance's part of a tree of [N, ...]."""
    return jax.tree.map(lambda leaf: leaf[index], tree)
