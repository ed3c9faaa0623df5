"""Base classes of actors: network settings, and the networks built for an environment."""

import abc
import dataclasses
import functools
from collections.abc import Collection, Mapping
from typing import Any, TypeGuard

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxenvs import loops, spaces, struct
from jaxenvs.errors import TrainingError
from jaxenvs.multi_agent import AGENT, CRITIC_OBSERVATION, MASK
from jaxenvs.training.extractors import DictExtractor, default_extractor, features_of, num_features

Extractor = nn.Module | Mapping[str, nn.Module] | None


@chex.dataclass(frozen=True)
class Features:
    """Preprocessed observations with one or more leading axes, the input of the networks."""

    inputs: chex.ArrayTree  # the input of the extractor
    critic_inputs: chex.ArrayTree = None  # the input of the critic's; None if it is the same
    action_mask: jax.Array | None = None  # bool[..., n], True where the choice is allowed


class Networks(abc.ABC):
    """The networks of an actor, built for the spaces of one environment. Holds no weights.

    `params` is a dict of the networks' weights. Losses use raw actions, see
    `jaxenvs.training.distributions`; `to_action` converts them to actions of the environment. The
    carry is the memory of a recurrent network, and the empty tuple for other networks.
    """

    observation_space: spaces.Space

    @abc.abstractmethod
    def init(self, key: chex.PRNGKey, features: Features) -> dict[str, Any]:
        """Draws the initial weights for N observations like `features`."""

    @abc.abstractmethod
    def mode(self, params: Any, carry: Any, features: Features) -> tuple[Any, jax.Array]:
        """Returns the carry and the best raw actions for N observations."""

    @abc.abstractmethod
    def to_action(self, action: jax.Array) -> jax.Array:
        """Converts raw actions to members of the action space."""

    def initial_carry(self, num_envs: int) -> Any:
        """Returns the carry of N instances at the start of their episodes."""
        del num_envs  # no memory
        return ()

    @property
    def is_recurrent(self) -> bool:
        """Whether there is a carry, so learning needs whole sequences."""
        return False

    def features_of_one(self) -> Features:
        """Returns the shapes of `features` for one observation, [1, ...], without computing it."""
        space = self.observation_space.batch(1)
        return jax.eval_shape(lambda key: self.features(space.sample(key)), jax.random.key(0))

    def features(self, observation: chex.ArrayTree) -> Features:
        """Preprocesses N observations, [N, ...], for the networks."""
        space, mask, critic_inputs = self.observation_space, None, None
        if has_mask(space):
            mask = observation[MASK].astype(bool)
        if (critic_space := critic_space_of(space)) is not None:
            critic_inputs = features_of(critic_space)(observation[CRITIC_OBSERVATION])
        space, observation = policy_part(space, observation)
        return Features(
            inputs=features_of(space)(observation), critic_inputs=critic_inputs, action_mask=mask
        )


class Actor(abc.ABC):
    """Network settings, from which `build` makes networks for an environment."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        struct.check_annotations(cls)

    @abc.abstractmethod
    def build(self, observation_space: spaces.Space, action_space: spaces.Space) -> Networks:
        """Builds the networks for the spaces of one instance.

        Raises:
            TrainingError: the actor does not support these spaces.
        """


@dataclasses.dataclass(frozen=True, eq=False)
class Branch:
    """A sequence of an extractor, an optional memory and a head.

    `memory` is a flax cell: `carry, y = cell(carry, x)` and `initialize_carry(key, shape)`.
    """

    observation_space: spaces.Space  # the input of `extractor`
    extractor: nn.Module
    head: nn.Module
    memory: nn.RNNCellBase | None = None

    def init(self, key: chex.PRNGKey, inputs: chex.ArrayTree) -> dict[str, Any]:
        """Draws the weights for inputs [N, ...]."""
        return self.init_head(*self.init_trunk(key, inputs))

    def init_trunk(
        self, key: chex.PRNGKey, inputs: chex.ArrayTree
    ) -> tuple[dict[str, Any], chex.PRNGKey, jax.Array]:
        """Returns the weights below the head, the head's key and the head's input."""
        extractor_key, memory_key, head_key = jax.random.split(key, 3)
        params = {"extractor": self.extractor.init(extractor_key, inputs)}
        x = apply(self.extractor, params["extractor"], inputs)
        if self.memory is not None:
            carry = self.initial_carry(x.shape[0])
            params["memory"] = self.memory.init(memory_key, carry, x)
            _, x = apply(self.memory, params["memory"], carry, x)
        return params, head_key, x

    def init_head(self, params: dict[str, Any], key: chex.PRNGKey, x: jax.Array) -> dict[str, Any]:
        """Adds the head's weights to those of the trunk."""
        return {**params, "head": self.head.init(key, x)}

    def initial_carry(self, num_envs: int) -> Any:
        """Returns the memory at the start of N episodes, or () without a memory."""
        if self.memory is None:
            return ()
        return self.memory.initialize_carry(jax.random.key(0), (num_envs, self._num_features))

    @functools.cached_property
    def _num_features(self) -> int:
        return num_features(self.extractor, self.observation_space)

    def step(self, params: Any, carry: Any, inputs: chex.ArrayTree) -> tuple[Any, Any]:
        """Runs one step, [N, ...]. Returns the new carry and the head's output."""
        x = apply(self.extractor, params["extractor"], inputs)
        if self.memory is not None:
            carry, x = apply(self.memory, params["memory"], carry, x)
        return carry, apply(self.head, params["head"], x)

    def unroll(
        self, params: Any, carry: Any, inputs: chex.ArrayTree, first: jax.Array
    ) -> tuple[Any, Any]:
        """Runs T steps, [T, N, ...]. Returns the carry and the head's output of each step.

        Resets the memory where `first`, bool[T, N], marks the start of an episode.
        """
        num_steps, num_envs = first.shape
        flat = jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), inputs)
        x = apply(self.extractor, params["extractor"], flat)
        carries, memory = (), self.memory
        if memory is not None:
            empty = self.initial_carry(num_envs)

            def remember(carry, step):
                x, first = step
                carry = struct.select(first, empty, carry)
                carry, y = apply(memory, params["memory"], carry, x)
                return carry, (carry, y)

            x = x.reshape((num_steps, num_envs, -1))
            _, (carries, x) = loops.scan(remember, carry, (x, first))
            x = x.reshape((num_steps * num_envs, -1))
        outputs = apply(self.head, params["head"], x)
        shape = (num_steps, num_envs)
        return carries, jax.tree.map(lambda y: y.reshape((*shape, *y.shape[1:])), outputs)


@dataclasses.dataclass(frozen=True, eq=False)
class BranchPerAgent:
    """A branch with weights of its own for each agent, stacked along their first axis.

    The inputs are a dict with the entry "agent", one-hot. Every agent's weights see all inputs, and
    the outputs of the one that acts are selected, because minibatches mix agents.
    """

    branch: Branch
    num_agents: int

    @property
    def memory(self) -> nn.RNNCellBase | None:
        """The memory of the branch."""
        return self.branch.memory

    @property
    def extractor(self) -> nn.Module:
        """The extractor of the branch."""
        return self.branch.extractor

    def init(self, key: chex.PRNGKey, inputs: chex.ArrayTree) -> dict[str, Any]:
        """Draws the weights for inputs [N, ...]."""
        _, inputs = _without_agent(inputs)
        keys = jax.random.split(key, self.num_agents)
        return jax.lax.map(lambda key: self.branch.init(key, inputs), keys)

    def initial_carry(self, num_envs: int) -> Any:
        """Returns the memory at the start of N episodes, or () without a memory."""
        return self.branch.initial_carry(num_envs)

    def step(self, params: Any, carry: Any, inputs: chex.ArrayTree) -> tuple[Any, Any]:
        """Runs one step, [N, ...], as `Branch.step`."""
        agent, inputs = _without_agent(inputs)
        results = jax.vmap(self.branch.step, in_axes=(0, None, None))(params, carry, inputs)
        return _of_agent(agent, results)

    def unroll(
        self, params: Any, carry: Any, inputs: chex.ArrayTree, first: jax.Array
    ) -> tuple[Any, Any]:
        """Runs T steps, [T, N, ...], as `Branch.unroll`."""
        agent, inputs = _without_agent(inputs)
        run = jax.vmap(self.branch.unroll, in_axes=(0, None, None, None))
        return _of_agent(agent, run(params, carry, inputs, first))


def _without_agent(inputs: Any) -> tuple[jax.Array, Any]:
    rest = {name: x for name, x in inputs.items() if name != AGENT}
    return inputs[AGENT], next(iter(rest.values())) if len(rest) == 1 else rest


def _of_agent(agent: jax.Array, results: Any) -> Any:
    """Selects from [A, ..., F] results by one-hot [..., A]."""
    index = jnp.argmax(agent, axis=-1)

    def select(x: jax.Array) -> jax.Array:
        rows = index.reshape((1, *index.shape, *(1,) * (x.ndim - 1 - index.ndim)))
        return jnp.take_along_axis(x, rows, axis=0)[0]

    return jax.tree.map(select, results)


def apply(network: nn.Module, params: Any, *inputs: Any) -> Any:
    """Applies a network that has no state except its weights. Narrow floats become float32."""

    def widen(x: jax.Array) -> jax.Array:
        is_narrow = jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize < 4
        return x.astype(jnp.float32) if is_narrow else x

    return jax.tree.map(widen, network.apply(params, *inputs))


def extractor_for(space: spaces.Space, chosen: Extractor, **settings: Any) -> nn.Module:
    """Returns the chosen extractor, or the default for the space.

    Args:
        space: the space of one observation, without an action mask.
        chosen: a flax module; a mapping with a module for each entry of a Dict; or None for the
            default.
        **settings: of `default_extractor`.
    """
    if chosen is None:
        return default_extractor(space, **settings)
    if isinstance(chosen, type):
        raise TrainingError(
            f"the actor got the class {chosen.__name__}; expected an instance: {chosen.__name__}()."
        )
    if not isinstance(chosen, Mapping):
        num_features(chosen, space)  # raises if it does not support the space
        return chosen
    entries = space.spaces if isinstance(space, spaces.Dict) else {}
    if set(entries) != set(chosen):
        raise TrainingError(
            f"the actor got extractors for {sorted(chosen)}, but the observations have"
            f" {sorted(entries) or 'no entries'}.  Give one extractor for each entry of a Dict."
        )
    return DictExtractor(dict(chosen))


def has_mask(space: spaces.Space) -> TypeGuard[spaces.Dict]:
    """Returns whether observations have an action mask."""
    return isinstance(space, spaces.Dict) and MASK in space.spaces


def critic_space_of(space: spaces.Space) -> spaces.Space | None:
    """Returns the space of the observations that only critics see, if there are any."""
    return space.spaces.get(CRITIC_OBSERVATION) if isinstance(space, spaces.Dict) else None


def policy_part(space: spaces.Space, observation: Any = None) -> tuple[spaces.Space, Any]:
    """Returns the part of a space and an observation that is the input of a policy.

    It is without the mask and the critic's observation. A single remaining entry is unwrapped.
    """
    return without_entries(space, (MASK, CRITIC_OBSERVATION), observation)


def without_entries(
    space: spaces.Space, others: Collection[str], observation: Any = None
) -> tuple[spaces.Space, Any]:
    """Removes entries of a Dict space and its observation, and unwraps a single remaining one.

    Raises:
        TrainingError: there are no other entries.
    """
    if not isinstance(space, spaces.Dict) or not space.spaces.keys() & {*others}:
        return space, observation
    names = [name for name in space.spaces if name not in others]
    if not names:
        found = " and ".join(f'"{name}"' for name in space.spaces)
        raise TrainingError(
            f"the observation space has only the {'entry' if len(space.spaces) == 1 else 'entries'}"
            f" {found}.  Add an entry with the actual observation."
        )
    entries = {name: space.spaces[name] for name in names}
    rest = None if observation is None else {name: observation[name] for name in names}
    if len(names) == 1:
        return entries[names[0]], None if rest is None else rest[names[0]]
    return spaces.Dict(entries), rest
