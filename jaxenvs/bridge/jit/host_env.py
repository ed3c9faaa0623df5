"""Pools inside compiled programs.

    env = HostEnv(jaxenvs.make_pool("gymnasium/CartPole-v1", 64))
    state, timestep = jax.jit(env.step)(state, action, key)

On a CPU, with the "process" backend, a program steps the worker processes through a custom call
(XLA FFI), without Python and its lock. With other backends, and on other devices, it uses
callbacks of JAX. The results are the same.
"""

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.sharding import AxisType, NamedSharding, PartitionSpec, reshard

from jaxenvs import keys, loops, prng
from jaxenvs.bridge.foreign.pettingzoo import AGENT_FIELDS
from jaxenvs.bridge.jit.calls import called
from jaxenvs.bridge.jit.hosted import RECV, RESET_, RESET_SOME, SEND, STEP_, Call, Hosted
from jaxenvs.bridge.jit.paths import Path, check_pools, chosen_path, wait_until_still
from jaxenvs.bridge.memory.layout import getter, leaves_of, tree_of
from jaxenvs.bridge.pool import Pool
from jaxenvs.core import AutoresetMode, TimeStep, VectorEnv
from jaxenvs.errors import ClosedError, PoolError, RenderError, ShardingError
from jaxenvs.meshes import check_mesh
from jaxenvs.multi_agent import TO_ACT, MultiAgentTimeStep
from jaxenvs.spaces import Space
from jaxenvs.spaces.conversion import from_gymnasium
from jaxenvs.spaces.validation import check_action
from jaxenvs.struct import select


@chex.dataclass(frozen=True)
class HostState:
    """A program's handle on hosted environments: the id of the pool and its call counter.

    The environments themselves live outside the program, so a state can be stepped only once;
    stepping it again is a `StaleStateError`.
    """

    token: jax.Array  # int32[P, 2]: pool id and call counter; P pools, one per device


class HostEnv(VectorEnv[HostState]):
    """A pool as a `VectorEnv`, for use inside `jit`, `scan`, `cond` and `while_loop`.

    N is `num_envs`. Each call happens exactly once and in order, because it needs the state that
    the previous one returned. Only `reset` uses its key, to seed the environments; after that,
    their own generators draw all random numbers.

    `info` and `final_info` contain `env_id`, `elapsed_step`, `restarted` (see `Pool`) and the
    pool's `info_fields`. If an episode ended and the next one began in the same step, `info`
    belongs to the reset and `final_info` to the step.

    If the environments are PettingZoo's, timesteps are `MultiAgentTimeStep`s. An agent that is
    absent observes zeros and counts as ended.

    Gradients stop at the environments. `vmap` is refused, because the number of environments is
    fixed when the pool is made; make a larger pool, or several pools.

    Args:
        pool: the environments. From now on the pool's own `step`, `reset`, `send` and `recv` raise
            `PoolError`; `render`, `call` and `close` still work. With `mesh`: a sequence with one
            pool for each device.
        mesh: a device mesh. Each device along its first axis drives its own pool, and with it its
            own slice of the N environments.
        mesh_axis: another axis of the mesh to use instead of the first.
        autoreset_mode: what happens after an episode ends. None means the mode that the pool was
            made with, or "same_step" if the pool was made without one and has not been reset yet.
        path: how programs reach the pool: "ffi" (custom call), "callback", or "auto", which uses
            the custom call where it works.
        final_observation: whether to return `timestep.final_observation`. False sets it to None,
            which saves a copy of every observation.

    Raises:
        PoolError: an argument is invalid, or the pool cannot be used in this way.
        ShardingError: the number of pools is not the number of devices.

    Example:
        >>> pool = jaxenvs.make_pool("gymnasium/CartPole-v1", 4, num_workers=1)
        >>> env = jaxenvs.HostEnv(pool)
        >>> state, timestep = env.reset(jax.random.key(0))
        >>> state, timestep = env.step(state, jnp.zeros(4, jnp.int32), jax.random.key(1))
        >>> timestep.observation.shape
        (4, 4)
        >>> env.close()
    """

    def __init__(
        self,
        pool: Pool | Sequence[Pool],
        *,
        mesh: jax.sharding.Mesh | None = None,
        mesh_axis: str | None = None,
        autoreset_mode: AutoresetMode | None = None,
        path: Path = "auto",
        final_observation: bool = True,
    ) -> None:
        pools = [pool] if isinstance(pool, Pool) else list(pool)
        check_pools(pools, autoreset_mode)
        self.pools = tuple(pools)
        first = self.pools[0]
        self._per_pool = first.num_envs
        self.num_envs = first.num_envs * len(pools)
        self.batch_size = first.batch_size * len(pools)
        self.autoreset_mode: AutoresetMode = first.autoreset_mode
        self.mesh, self.mesh_axis = mesh, None
        if mesh is not None:
            self.mesh_axis = check_mesh(mesh, mesh_axis, self.num_envs)
        devices = 1 if mesh is None else mesh.shape[self.mesh_axis]
        if len(pools) != devices:
            raise ShardingError(
                f"HostEnv got {len(pools)} pools for {devices} devices.  Pass one pool for each"
                " device of the mesh, or one pool and no mesh."
            )
        self._hosted = tuple(map(Hosted.of, self.pools))
        # Except under same-step autoreset, the final observation is the returned observation.
        self._shows_final = final_observation
        self._wants_final = final_observation and self.autoreset_mode == "same_step"
        self.path = chosen_path(path, self._hosted)
        if devices > 1:
            Hosted.join(self._hosted)
        self._observation_space = from_gymnasium(first.single_observation_space)
        self._action_space = from_gymnasium(first.single_action_space)
        self._columns = _columns(first, self._observation_space)
        self._static = _Static(self)

    @property
    def agents(self) -> tuple[str, ...]:
        return self.pools[0].agents

    @property
    def single_observation_space(self) -> Space:
        return self._observation_space

    @property
    def single_action_space(self) -> Space:
        return self._action_space

    def reset(self, key: chex.PRNGKey) -> tuple[HostState, TimeStep]:
        """Resets every environment, seeded from one key or from N keys.

        Waits for pending steps and drops their results. Do not call this after a step of the same
        pool in the same program: `reset` takes no state, so nothing orders the two calls. Use
        `reset_where` there.
        """
        tokens = np.array([[hosted.id, 0] for hosted in self._hosted], np.int32)
        outputs = self._call(RESET_, self._per_pool, jnp.asarray(tokens), self._seeds(key))
        return self._answer(outputs)

    def step(self, state: HostState, action: Any, key: chex.PRNGKey) -> tuple[HostState, TimeStep]:
        """Steps every environment; the key is not used.

        Raises:
            ActionError: the action has the wrong structure, shape or kind of dtype.
            jax.errors.JaxRuntimeError: while the program runs, with the message of one of these:
                StaleStateError, the state was stepped already; WorkerError or EnvTimeoutError, an
                environment failed (with the worker's traceback); ActionError, an action is outside
                the action space.
        """
        del key
        operands = self._actions(action, state.token.shape[0] * self._per_pool)
        return self._answer(self._call(STEP_, self._per_pool, state.token, *operands))

    def reset_where(
        self, mask: jax.Array, state: HostState, timestep: TimeStep, key: chex.PRNGKey
    ) -> tuple[HostState, TimeStep]:
        """Resets the environments where `mask`, bool[N], is true; other rows stay unchanged."""
        mask = jnp.asarray(mask, bool)
        outputs = self._call(RESET_SOME, self._per_pool, state.token, mask, self._seeds(key))
        state, fresh = self._answer(outputs)
        return state, select(mask, fresh, timestep)

    def send(self, state: HostState, action: Any, env_ids: Any = None) -> HostState:
        """Starts a step of some environments; `recv` waits for the results.

        To compute something in between, see `after`.

        Args:
            state: the state that the previous call returned.
            action: one action for each of `env_ids`.
            env_ids: int32[n], usually `timestep.info["env_id"]`; None for all, in order.
        """
        self._refuse_several("send")
        ids = np.arange(self.num_envs) if env_ids is None else env_ids
        ids = jnp.asarray(ids, jnp.int32)
        operands = self._actions(action, ids.shape[0])
        outputs = self._call(SEND, self.batch_size, state.token, ids, *operands)
        return HostState(token=outputs[0])

    def recv(self, state: HostState) -> tuple[HostState, TimeStep]:
        """Waits for the first `batch_size` environments that finish their step.

        Rows are in the order of `timestep.info["env_id"]`, int32[batch_size].
        """
        self._refuse_several("recv")
        return self._answer(self._call(RECV, self.batch_size, state.token))

    def close(self) -> None:
        """Closes the pools; programs that still step them get an error.

        With several devices it first waits for a running program, up to 10 seconds: an error on
        one device would leave the others waiting.
        """
        if len(self.pools) > 1:
            wait_until_still(self._hosted)
        for pool in self.pools:
            pool.close()

    def render(self, state: HostState, index: int = 0) -> jax.Array:
        """Returns the frame of environment `index`, uint8[H, W, 3]; not inside a program."""
        if isinstance(state.token, Tracer):
            raise RenderError(
                "hosted environments cannot be rendered inside a compiled program."
                "  Call render outside of it, or call pool.render()."
            )
        jax.block_until_ready(state.token)
        (frame,) = self.pools[index // self._per_pool].render([index % self._per_pool])
        return jnp.asarray(frame)

    def __repr__(self) -> str:
        pools = repr(self.pools[0]) if len(self.pools) == 1 else f"{len(self.pools)} pools"
        return f"HostEnv({pools}, path={self.path!r})"

    # --- one call ---

    def _call(self, operation: int, count: int, token: jax.Array, *operands: Any) -> list[Any]:
        operands = tuple(lax.stop_gradient(part) for part in operands)
        call = Call(operation, count, self._wants_final)
        local = functools.partial(
            called, repr(self), self.path, call, self._results(operation, count)
        )
        if self.mesh is None or _within(self.mesh_axis):
            # JAX takes the results of calls of the host for the same on all devices.
            return loops.vary_like(local(token, *operands), (token, operands))
        if self.mesh.axis_types[self.mesh.axis_names.index(self.mesh_axis)] == AxisType.Explicit:
            # On an explicit axis, shapes carry their sharding, so arrays without one must get it.
            sharding = NamedSharding(self.mesh, PartitionSpec(self.mesh_axis))
            token = reshard(token, sharding)
            operands = tuple(reshard(part, sharding) for part in operands)
        # Every device drives its own pool, so JAX has no replication to check.
        over = PartitionSpec(self.mesh_axis)
        return jax.shard_map(local, mesh=self.mesh, in_specs=over, out_specs=over, check_vma=False)(
            token, *operands
        )

    def _results(self, operation: int, count: int) -> list[jax.ShapeDtypeStruct]:
        """Returns the shapes and dtypes of the results of a call, the token first."""
        results = [jax.ShapeDtypeStruct((1, 2), jnp.int32)]
        if operation == SEND:
            return results
        observation, others, fields = self._columns
        wanted = [*observation, *others, *fields, *(observation if self._wants_final else ())]
        wanted += fields if self.autoreset_mode == "same_step" else ()
        return results + [jax.ShapeDtypeStruct((count, *s.shape), s.dtype) for s in wanted]

    def _answer(self, outputs: Sequence[Any]) -> tuple[HostState, TimeStep]:
        space = self.pools[0].single_observation_space
        leaves = iter(outputs)
        token = next(leaves)
        observation = tree_of(space, leaves)
        reward, terminated, truncated = next(leaves), next(leaves), next(leaves)
        info = {name: next(leaves) for name in ("elapsed_step", "restarted", "env_id")}
        fields = self.pools[0].info_fields.items()
        info |= {name: tree_of(field, leaves) for name, field in fields}
        final_observation, final_info = self._final(observation, space, leaves), info
        if self.autoreset_mode == "same_step":
            final_info = info | {name: tree_of(field, leaves) for name, field in fields}
            begins = terminated | truncated
            info = info | {"elapsed_step": jnp.where(begins, 0, info["elapsed_step"])}
        timestep = TimeStep(
            observation=observation,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            info=info,
            final_observation=final_observation,
            final_info=final_info,
        )
        return HostState(token=token), self._by_agent(timestep) if self.agents else timestep

    def _by_agent(self, timestep: TimeStep) -> MultiAgentTimeStep:
        """Returns the timestep of PettingZoo's environments with the values of each agent."""
        reward, terminated, truncated, alive = (timestep.final_info[name] for name in AGENT_FIELDS)
        cut = timestep.truncated[:, None]  # by a time limit, or as an environment was restarted
        ended = ~alive | cut | timestep.terminated[:, None]
        truncated = ended & (truncated | (cut & ~terminated))
        restarted = timestep.info["restarted"][:, None]

        def by_agent(values: jax.Array) -> Any:
            return {agent: values[:, i] for i, agent in enumerate(self.agents)}

        def others(info: Any) -> dict[str, Any]:
            return {name: info[name] for name in info if name not in AGENT_FIELDS}

        # Under same-step autoreset, `info` belongs to the next episode.
        acts = timestep.info["agent_alive"] if self.autoreset_mode == "same_step" else ~ended
        return MultiAgentTimeStep(
            observation=timestep.observation,
            reward=by_agent(jnp.where(restarted, 0.0, reward)),
            terminated=by_agent(ended & (terminated | ~truncated)),
            truncated=by_agent(truncated),
            info={**others(timestep.info), TO_ACT: by_agent(acts)},
            final_observation=timestep.final_observation,
            final_info={**others(timestep.final_info), TO_ACT: by_agent(~ended)},
        )

    def _final(self, observation: Any, space: Any, leaves: Any) -> Any:
        if self._wants_final:
            return tree_of(space, leaves)
        return observation if self._shows_final else None

    def _actions(self, action: Any, count: int) -> list[Any]:
        action = check_action(self._action_space, action, count, self.pools[0].name)
        leaves = leaves_of(self.pools[0].single_action_space)
        return [getter(leaf.path)(action) for leaf in leaves]

    def _seeds(self, key: chex.PRNGKey) -> jax.Array:
        """Returns a nonnegative seed for each environment, int32[N]: 31 bits of its own key.

        Given one key, environment i uses its i-th child, as in every `VectorEnv`.
        """
        key = prng.as_typed_key(key)
        if not key.shape:
            key = keys.instance_keys(key, jnp.arange(self.num_envs, dtype=jnp.uint32))
        return (jax.vmap(jax.random.bits)(key) >> 1).astype(jnp.int32)

    def _refuse_several(self, what: str) -> None:
        if len(self.pools) > 1:
            raise PoolError(
                f"{what} was called on a HostEnv over {len(self.pools)} devices, whose environments"
                " finish independently.  Use step, or make a HostEnv for each pool."
            )


class _Static:
    """A HostEnv in the structure of a pytree.

    JAX's caches keep structures, so this one must not keep the environments alive.
    """

    def __init__(self, env: HostEnv) -> None:
        self._env, self._name = weakref.ref(env), repr(env)

    def __call__(self, _: Any) -> HostEnv:
        env = self._env()
        if env is None:
            raise ClosedError(f"a program was built with {self._name}, which no longer exists.")
        return env


jax.tree_util.register_pytree_node(
    HostEnv, lambda env: ((), env._static), lambda static, children: static(children)
)


def _columns(pool: Pool, space: Space) -> tuple[list[Any], list[Any], list[Any]]:
    """Returns the shape and dtype of each part of a row: observation, flags, info fields."""
    shapes = jax.eval_shape(space.sample, jax.random.key(0))
    leaves = leaves_of(pool.single_observation_space)
    observation = [getter(leaf.path)(shapes) for leaf in leaves]
    dtypes = (jnp.float32, jnp.bool_, jnp.bool_, jnp.int32, jnp.bool_, jnp.int32)
    others = [jax.ShapeDtypeStruct((), dtype) for dtype in dtypes]
    fields = [
        jax.ShapeDtypeStruct(leaf.shape, _narrow(leaf.dtype))
        for field in pool.info_fields.values()
        for leaf in leaves_of(field)
    ]
    return observation, others, fields


def _narrow(dtype: np.dtype) -> Any:
    """Returns the dtype that JAX uses for `dtype` without 64-bit mode."""
    return {"f8": np.float32, "i8": np.int32, "u8": np.uint32}.get(dtype.str[1:], dtype.type)


def _within(axis: str | None) -> bool:
    """Returns whether this is traced inside a shard_map over `axis`."""
    mesh = jax.sharding.get_abstract_mesh()
    return axis is not None and axis in getattr(mesh, "manual_axes", ())
