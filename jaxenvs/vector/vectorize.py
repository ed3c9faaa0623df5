"""Making a batch of an environment, and checks of how to make it."""

from collections.abc import Sequence
from typing import TypeVar, get_args

from jax.sharding import Mesh

from jaxenvs._cpu.chunks import Resets
from jaxenvs.core import AutoresetMode, Environment
from jaxenvs.errors import VectorizeError, check_integer, closest
from jaxenvs.meshes import check_mesh
from jaxenvs.vector import batched as batched_parameters
from jaxenvs.vector.vectorized_env import VectorizedEnv

S = TypeVar("S")


def vectorize(
    env: Environment[S],
    num_envs: int,
    *,
    autoreset_mode: AutoresetMode = "same_step",
    batched: Sequence[str] = (),
    reset_chunk: int | None = None,
    stagger: bool | int = False,
    mesh: Mesh | None = None,
    mesh_axis: str | None = None,
) -> VectorizedEnv[S]:
    """Creates a batch of `num_envs` instances of `env`.

    N is `num_envs`. Everything that `env` returns gains a leading [N] axis. The key does not:
    instance i draws from the key folded with i. Results depend only on the seed, not on the number
    of devices, the sharding or `reset_chunk`.

    The autoreset modes are those of Gymnasium:
        "same_step": an instance that finishes an episode starts the next one in the same step.
            `observation` and `info` belong to the start of the new episode, `final_observation`
            and `final_info` to the end of the old one.
        "next_step": the step after the end of an episode resets the instance. It ignores the
            action and returns reward 0.
        "disabled": a finished instance stays finished. Its flags and observation do not change,
            and its reward is 0.

    Args:
        env: a single environment.
        num_envs: N. With a `mesh`, it must be divisible by the size of the mesh axis.
        autoreset_mode: "same_step", "next_step" or "disabled", see above.
        batched: the names of parameters with a leading [N] axis, one value per instance.
            The spaces are those of the first instance.
        reset_chunk: the number of instances to reset per pass. Passes repeat until all finished
            instances are reset. Affects only speed. N resets all instances in one pass; None
            chooses a number based on N and the platform.
        stagger: whether to start the instances at different points of their episodes, so that they
            do not finish in lockstep. `reset` advances each instance by a random number of random
            actions. True draws a number below the time limit, an int a number below that int.
        mesh: a mesh to shard the instances over. None does not shard them.
        mesh_axis: the name of the mesh axis to use. None selects the first.

    Raises:
        VectorizeError: an argument is invalid: N, the mode, the chunk, `stagger`, `mesh_axis`
            without `mesh`, the value of a batched parameter, or an array instead of a number for a
            parameter that is not batched.
        UnknownParameterError: `batched` contains a name that is not a parameter of `env`.
        ShardingError: N is not divisible by the size of the mesh axis, or there is no such axis.

    Example:
        >>> env = jaxenvs.vectorize(jaxenvs.make("CartPole-v1"), 4)
        >>> state, timestep = env.reset(jax.random.key(0))
        >>> timestep.observation.shape
        (4, 4)
    """
    if not isinstance(env, Environment):
        raise VectorizeError(
            f"vectorize got {type(env).__name__}, expected an Environment."
            '  Create one with jaxenvs.make, such as jaxenvs.make("CartPole-v1").'
        )
    check_integer(VectorizeError, "vectorize got num_envs", num_envs)
    if autoreset_mode not in get_args(AutoresetMode):
        raise VectorizeError(
            f'vectorize got autoreset_mode="{autoreset_mode}"; expected one of'
            f" {list(get_args(AutoresetMode))}."
            f"{closest(str(autoreset_mode), get_args(AutoresetMode))}"
        )
    if reset_chunk is not None:
        check_integer(VectorizeError, "vectorize got reset_chunk", reset_chunk)
        if reset_chunk > num_envs:
            raise VectorizeError(
                f"reset_chunk={reset_chunk} is more than num_envs={num_envs}.  Use at most"
                f" {num_envs}, or None."
            )
    if not isinstance(stagger, bool):
        check_integer(VectorizeError, "vectorize got stagger", stagger)
    if stagger is True and env.time_limit is None:
        raise VectorizeError(
            f"stagger=True needs a time limit, and {type(env.unwrapped).__name__} has none."
            "  Pass stagger=<number of steps> or wrap the environment in TimeLimit."
        )
    if stagger is not False and autoreset_mode == "disabled":
        raise VectorizeError(
            'stagger does not work with autoreset_mode="disabled".  Use "same_step" or "next_step".'
        )
    if mesh is not None:
        check_mesh(mesh, mesh_axis, num_envs)
    elif mesh_axis is not None:
        raise VectorizeError(
            f'mesh_axis="{mesh_axis}" was given without mesh.  Pass mesh=... as well.'
        )
    return VectorizedEnv(
        env=env,
        num_envs=int(num_envs),
        autoreset_mode=autoreset_mode,
        batched=batched_parameters.check_names(env, batched),
        resets=Resets(None if reset_chunk is None else int(reset_chunk)),
        stagger="limit" if stagger is True else None if stagger is False else int(stagger),
        mesh=mesh,
        mesh_axis=mesh_axis,
    )
