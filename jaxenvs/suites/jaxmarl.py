"""Environments of JaxMARL as native environments with several agents.

JaxMARL's automatic reset loses the last observation, and its `dones` merge time limits with the end
of the task. Here an episode that ends at `max_steps` is truncated for all agents, unless the task
ends in the same step.

Source: A. Rutherford et al., JaxMARL: Multi-Agent RL Environments and Algorithms in JAX, 2024.
"""

import copy
import functools
import inspect
import sys
import types
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment
from jaxenvs.errors import WrapperError, missing_extra
from jaxenvs.multi_agent import MASK, STATE, MultiAgentEnvironment, MultiAgentTimeStep
from jaxenvs.suites._shared import (
    Adapter,
    ByIdentity,
    by_name,
    check_kind,
    figure_picture,
    from_gymnax_space,
    python_picture,
    resize,
    with_globals,
)

try:
    # Importing JaxMARL sets the streams to the process's own, not to those of a notebook.
    with redirect_stdout(sys.stdout), redirect_stderr(sys.stderr):
        import jaxmarl
        from jaxmarl import registration
        from jaxmarl.environments import (
            SMAX,
            CoinGame,
            Hanabi,
            InTheGrid_2p,
            InTheMatrix,
            JaxNav,
            Overcooked,
            OvercookedV2,
        )
        from jaxmarl.environments.mpe.mpe_visualizer import MPEVisualizer
        from jaxmarl.environments.mpe.simple import SimpleMPE
        from jaxmarl.environments.multi_agent_env import MultiAgentEnv
        from jaxmarl.viz.overcooked_visualizer import OvercookedVisualizer
except ImportError as error:
    raise missing_extra(__name__, "jaxmarl", "jaxmarl") from error

_MABRAX = ("ant_4x2", "halfcheetah_6x1", "hopper_3x1", "humanoid_9|8", "walker2d_2x3")
_LATE = (SMAX, SimpleMPE)  # they end an episode on step `max_steps` + 1


class FromJaxMARL(Adapter, MultiAgentEnvironment[Any]):
    """An environment of JaxMARL.

    Where JaxMARL defines legal actions, observations have the entries "observation" and
    "action_mask". `info` has JaxMARL's infos, and the entry "world_state" if there is one.
    """

    env: ByIdentity = struct.static()

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(map(str, self.env.value.agents))

    @property
    def time_limit(self) -> int | None:
        env = _innermost(self.env.value)
        limit = getattr(env, "max_steps", getattr(env, "episode_length", None))
        return limit if limit is None else limit + isinstance(env, _LATE)

    @property
    def observation_space(self) -> spaces.Dict:
        with jax.ensure_compile_time_eval():
            shapes = jax.eval_shape(self._reset, jax.random.key(0))[1].observation
            found = {}
            for agent, name in zip(self.agents, self.env.value.agents, strict=True):
                space = _space_of(self.env.value.observation_space, name)
                if self._has_masks:
                    mask = spaces.MultiBinary(shapes[agent][MASK].shape)
                    space = spaces.Dict({"observation": space, MASK: mask})
                found[agent] = resize(space, shapes[agent])
            return spaces.Dict(found)

    @property
    def action_space(self) -> spaces.Dict:
        with jax.ensure_compile_time_eval():
            return spaces.Dict(
                {
                    str(name): _space_of(self.env.value.action_space, name)
                    for name in self.env.value.agents
                }
            )

    def _reset(self, key: chex.PRNGKey) -> tuple[Any, MultiAgentTimeStep]:
        observations, state = self.env.value.reset(key)
        terminated = dict.fromkeys(self.agents, jnp.bool_(False))
        return (state, terminated), MultiAgentTimeStep.first(
            self._observe(observations, state),
            to_act=self._to_act(state),
            info=_state_in(observations),
        )

    def _step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, MultiAgentTimeStep]:
        env, (state, terminated) = self.env.value, state
        action = {name: action[str(name)] for name in env.agents}
        observations, state, rewards, dones, info = env.step_env(key, state, action)
        over = jnp.asarray(dones["__all__"], bool)
        is_cut = over & self._is_cut(state)
        # At the limit, the flags of most environments do not tell which agents had ended before.
        terminated = {
            agent: terminated[agent] | ((flag | over) & ~is_cut)
            for agent, flag in self._by_agent(dones, over).items()
        }
        return (state, terminated), MultiAgentTimeStep.transition(
            self._observe(observations, state),
            reward=self._by_agent(rewards),
            terminated=terminated,
            truncated=is_cut,
            to_act=self._to_act(state),
            info={**by_name(info), **_state_in(observations)},
        )

    def render(self, state: Any) -> jax.Array:
        env, state = _innermost(self.env.value), state[0]
        return python_picture("JaxMARL", env.name, functools.partial(_draw, env), state)

    def _by_agent(self, values: Any, default: Any = None) -> dict[str, Any]:
        """Returns values of JaxMARL keyed by agent; STORM has arrays, and keys of its own."""
        found = {}
        for i, name in enumerate(self.env.value.agents):
            if not isinstance(values, Mapping):
                found[str(name)] = values[i]
            else:
                found[str(name)] = values.get(name, values.get(f"agent_{name}", default))
        return found

    def _observe(self, observations: Any, state: Any) -> dict[str, Any]:
        env, seen = self.env.value, self._by_agent(by_name(observations))
        if not self._has_masks:
            return seen
        legal = env.get_legal_moves if isinstance(env, Hanabi) else env.get_avail_actions
        masks = self._by_agent(legal(state))
        return {
            agent: {"observation": seen[agent], MASK: masks[agent].astype(bool)}
            for agent in self.agents
        }

    @property
    def _has_masks(self) -> bool:
        cls = type(self.env.value)
        defines = cls.get_avail_actions is not MultiAgentEnv.get_avail_actions
        first = self.action_space.spaces[self.agents[0]]
        return (defines or issubclass(cls, Hanabi)) and isinstance(first, spaces.Discrete)

    def _to_act(self, state: Any) -> dict[str, jax.Array] | None:
        if not isinstance(self.env.value, Hanabi):
            return None
        seat = jnp.argmax(state.cur_player_idx)
        return {agent: state.seat_order[seat] == i for i, agent in enumerate(self.agents)}

    def _is_cut(self, state: Any) -> Any:
        """Returns whether a finished episode has reached the limit and the task has not ended."""
        if self.time_limit is None:
            return False
        if hasattr(state, "info"):  # of brax
            return state.info["truncation"] != 0
        env = _innermost(self.env.value)
        state = getattr(state, "state", state)  # of an environment inside another
        reached = state.step >= self.time_limit
        if not hasattr(env, "is_terminal"):
            return reached
        return reached & ~env.is_terminal(state.replace(step=0, done=jnp.bool_(False)))


def from_jaxmarl(env: Any) -> FromJaxMARL:
    """Returns an environment of JaxMARL as a native environment, with its time limit.

    Raises:
        WrapperError: `env` is not a JaxMARL environment, or is one of MABrax that resets itself.
    """
    check_kind("from_jaxmarl", env, MultiAgentEnv)
    if getattr(env, "auto_reset", False):
        raise WrapperError(
            f"from_jaxmarl got {env.name}, which resets itself.  Make it with auto_reset=False."
        )
    return FromJaxMARL(env=ByIdentity(env))


def names() -> list[str]:
    """Returns the names of JaxMARL's environments, without those that the installation lacks."""
    unsupported = {"storm"}  # its observations have the axis of agents in different places
    if not registration.SUBMODULE_ENVIRONMENTS:
        unsupported |= {name for name in registration.registered_envs if "Robotarium" in name}
    return [name for name in registration.registered_envs if name not in unsupported]


def make(name: str, **parameters: Any) -> Environment:
    """Makes an environment of JaxMARL by its name.

    Args:
        name: one of `names()`.
        **parameters: arguments of `jaxmarl.make`.
    """
    if name in _MABRAX:
        parameters["auto_reset"] = False
    return from_jaxmarl(jaxmarl.make(name, **parameters))


def _draw(env: Any, state: Any) -> Any:
    """Returns JaxMARL's picture of the state of an innermost environment; None if it has none."""
    state = getattr(state, "state", state)  # of an environment inside another
    if isinstance(env, SimpleMPE):

        def draw(axes: Any) -> None:
            plt = types.SimpleNamespace(subplots=lambda *_, **__: (axes.figure, axes))
            init = with_globals(MPEVisualizer.init_render, plt=plt, print=lambda *_: None)
            is_heard = not np.all(env.silent)
            init(types.SimpleNamespace(env=env, state_seq=[state], comm_active=is_heard))

        return figure_picture(draw)
    if isinstance(env, SMAX):
        attacks = dict(zip(env.agents, state.prev_attack_actions, strict=True))
        return figure_picture(
            lambda axes: env.init_render(axes, (None, state, attacks), 0, state.step)
        )
    if isinstance(env, JaxNav):
        return figure_picture(lambda axes: env.init_render(axes, state, env.get_obs(state)))
    if isinstance(env, Overcooked):
        pictures = []
        visualizer: Any = OvercookedVisualizer()
        visualizer.window = types.SimpleNamespace(show_img=pictures.append)
        visualizer.render(env.agent_view_size, state, highlight=False)
        return pictures[0]
    if isinstance(env, OvercookedV2):
        return _overcooked_v2().render_sequence(jax.tree.map(lambda leaf: leaf[None], state))[0]
    if isinstance(env, InTheGrid_2p | InTheMatrix):
        env = copy.copy(env)
        numpy = types.SimpleNamespace(zeros=np.zeros, uint8=np.uint8, int8=np.uint8)
        # It writes int8(255), which only old releases of NumPy accept.
        env.render_time = with_globals(type(env).render_time, onp=numpy).__get__(env)
        return env.render(state)
    return np.asarray(env.render(state)) if isinstance(env, CoinGame) else None


@functools.cache  # each of these objects compiles its drawing again
def _overcooked_v2() -> Any:
    from jaxmarl.viz.overcooked_v2_visualizer import OvercookedV2Visualizer

    return OvercookedV2Visualizer()


def _innermost(env: Any) -> Any:
    return getattr(env, "_env", env)


def _space_of(method: Any, name: Any) -> spaces.Space:
    takes_agent = bool(inspect.signature(method).parameters)
    return from_gymnax_space(method(name) if takes_agent else method())


def _state_in(observations: Any) -> dict[str, Any]:
    has_state = isinstance(observations, Mapping) and STATE in observations
    return {STATE: observations[STATE]} if has_state else {}
