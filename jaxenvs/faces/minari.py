"""Rollouts as Minari data sets, and Minari data sets as arrays."""

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Literal

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.core import AutoresetMode, VectorEnv
from jaxenvs.errors import ParameterError, check_choice, describe, missing_extra
from jaxenvs.rollouts import Trajectory
from jaxenvs.spaces import Discrete, MultiDiscrete, Space, to_gymnasium
from jaxenvs.spaces.composite import map_leaves

try:
    # Type checkers would take `import minari` for this module if Minari is not installed.
    minari: Any = importlib.import_module("minari")
except ImportError as error:
    raise missing_extra(__name__, "minari", "minari") from error


def to_minari(
    trajectory: Trajectory,
    envs: VectorEnv,
    dataset_id: str,
    *,
    unfinished: Literal["truncate", "drop"] = "truncate",
    infos: bool = False,
    rollout_seed: int | None = None,
    decode: Mapping[str, Callable[[np.ndarray], str]] | None = None,
    **options: Any,
) -> Any:
    """Writes the episodes of a rollout as a Minari data set, instance by instance.

    An episode of L steps has L observations before the actions and the true last one, from before
    the reset. Images are not compressed to JPEG, as they would be by Minari's default.

    Args:
        trajectory: the trajectory of a rollout that began with a key, with leaves [T, N, ...].
            Join the trajectories of one that was continued along T first.
        envs: the batch that `rollout` got, for the spaces and the autoreset mode.
        dataset_id: the name of the data set, such as "cartpole/random-v0".
        unfinished: what happens to an episode that the trajectory contains in part, at the end or
            at a staggered start. "truncate" stores it, the end with `truncated` set; "drop" leaves
            it out.
        infos: whether to store the infos. Row 0 of an episode, that of the reset, is zero, because
            trajectories do not have it.
        rollout_seed: the seed of the rollout's key. The metadata of an episode have it, with its
            `instance` and `first_step`. Minari's `seed` is for episodes that begin with
            `reset(seed=...)`, which those of a rollout do not.
        decode: for entries of dict observations to be stored as text, functions that return it,
            such as `{"mission": level.decode_mission}` for MiniGrid.
        **options: those of `minari.create_dataset_from_buffers`, such as
            `env="jaxenvs/CartPole-v1"`, which `recover_environment` will make, or
            `data_format="parquet"`.

    Returns:
        The data set, a `MinariDataset`, as `minari.load_dataset` returns it.

    Raises:
        ParameterError: an option is invalid, `envs` has several agents, the trajectory does not
            fit its spaces, or contains no episode.
        SpaceError: Gymnasium has no such space.
        ValueError: Minari has such a data set already, or refuses an option.
        MissingExtraError: when this module is imported, if Minari is not installed.

    Example:
        >>> envs = jaxenvs.make_vec("CartPole-v1", 16)
        >>> trajectory = jaxenvs.rollout(envs, None, 100, jax.random.key(0)).trajectory
        >>> dataset = to_minari(trajectory, envs, "cartpole/random-v0", env="jaxenvs/CartPole-v1")
        >>> dataset.total_steps
        1600
    """
    check_choice("to_minari got unfinished", unfinished, ("truncate", "drop"))
    if not (isinstance(trajectory, Trajectory) and isinstance(envs, VectorEnv)):
        raise ParameterError(
            f"to_minari got {describe(trajectory)} and {describe(envs)}; expected a trajectory and"
            " the batch that it is of: to_minari(rollout(envs, ...).trajectory, envs, id)."
        )
    if envs.agents:
        raise ParameterError(
            f"to_minari got the agents {', '.join(envs.agents)}; Minari's format is for one agent."
        )
    trajectory = jax.device_get(trajectory)
    done = np.logical_or(trajectory.terminated, trajectory.truncated)
    problems: list[str] = []

    def convert(space: Space, rows: Any, path: str) -> Any:
        expected = [len(done), envs.num_envs, *(space.shape or ())]
        if [*np.shape(rows)] != expected:
            problems.append(f"{path} is {describe(rows)}, expected {space.dtype}{expected}")
        is_discrete = isinstance(space, Discrete | MultiDiscrete)  # int64 in Gymnasium
        return np.asarray(rows, np.int64 if is_discrete else None)

    observation_space, action_space = envs.single_observation_space, envs.single_action_space
    before, after, actions = (
        map_leaves(convert, space, getattr(trajectory, name), name, problems)
        for space, name in (
            (observation_space, "observation"),
            (observation_space, "final_observation"),
            (action_space, "action"),
        )
    )
    if problems:
        raise ParameterError(
            f"to_minari got a trajectory that is not of envs: {'; '.join(problems)}.  Pass the"
            " batch that rollout got, with its wrappers, and the trajectory that it returned."
        )
    stored_space = to_gymnasium(observation_space)
    for name, function in (decode or {}).items():
        stored_space = _with_text(stored_space, name, (before, after), function)
    stored = {
        "observations": before,
        "actions": actions,
        "rewards": trajectory.reward,
        "terminations": trajectory.terminated,
        "truncations": trajectory.truncated,
        **({"infos": trajectory.info} if infos else {}),
    }

    buffers, sources = [], []
    for i, rows, is_whole in _episodes(done, envs.autoreset_mode, envs.is_staggered):
        if unfinished == "drop" and not is_whole:
            continue
        steps = jax.tree.map(itemgetter((rows, i)), stored)
        last = jax.tree.map(itemgetter((rows[-1:], i)), after)
        steps["truncations"][-1] |= ~done[rows[-1], i]
        steps["observations"] = jax.tree.map(_append, steps["observations"], last)
        if infos:
            steps["infos"] = jax.tree.map(_with_zero_first, steps["infos"])
        buffers.append(minari.data_collector.EpisodeBuffer(**steps))
        source = {"instance": i, "first_step": int(rows[0]), "rollout_seed": rollout_seed}
        sources.append({name: value for name, value in source.items() if value is not None})
    if not buffers:
        raise ParameterError(
            f"to_minari got {done.shape[0]} steps that contain no episode to store.  Take more"
            ' steps, or pass unfinished="truncate".'
        )
    with warnings.catch_warnings():  # which ask for metadata
        warnings.filterwarnings("ignore", r"`\w+` is set to None|env_spec is None", UserWarning)
        dataset = minari.create_dataset_from_buffers(
            dataset_id,
            buffers,
            observation_space=stored_space,
            action_space=to_gymnasium(action_space),
            **{"jpeg_encoding": False, **options},
        )
    dataset.storage.update_episode_metadata(sources)
    return dataset


def from_minari(
    dataset: Any,
    *,
    infos: bool = False,
    encode: Mapping[str, Callable[[str], Any]] | None = None,
) -> Trajectory:
    """Returns the steps of a Minari data set as arrays, one episode after the other.

    A row has the observation, the action, what the step returned, and in `final_observation` the
    next observation. An episode ends where `terminated | truncated`; `truncated` is set in the last
    row of an episode that ends with neither. 64-bit numbers become 32-bit ones unless JAX's
    `jax_enable_x64` is set.

    Args:
        dataset: a `MinariDataset`, or its id; others than those of `to_minari` too.
        infos: whether to read the infos.
        encode: for entries of dict observations that are text, functions that return a row of
            numbers, such as `{"mission": lambda text: level.encode_mission(text=text)}`.

    Returns:
        A trajectory with leaves [M, ...] instead of [T, N, ...]; M is the number of steps.

    Raises:
        ParameterError: there are no episodes, an observation is text without a function for it, or
            an episode has other numbers of observations or actions than the format demands.
        FileNotFoundError: there is no such data set.
    """
    if isinstance(dataset, str):
        dataset = minari.load_dataset(dataset)
    episodes = [*dataset.iterate_episodes()]
    if not episodes:
        raise ParameterError(f"from_minari got {dataset.id}, which has no episodes.")

    def join(name: str, rows: slice = slice(None), extra: int = 0) -> Any:
        def concatenate(path: Any, *parts: Any) -> jax.Array:
            for i, (part, episode) in enumerate(zip(parts, episodes, strict=True)):
                if len(part) != len(episode) + extra:
                    raise ParameterError(
                        f"from_minari got {len(part)} {name} in episode {i}, which has"
                        f" {len(episode)} rewards; expected {len(episode) + extra}."
                    )
            chosen = [part[rows] for part in parts]
            if isinstance(chosen[0], list):
                entry = path[-1].key if path else name
                return jnp.asarray(_numbers_of([*chain(*chosen)], entry, encode or {}))
            return jnp.asarray(np.concatenate(chosen))

        trees = [getattr(episode, name) for episode in episodes]
        return jax.tree_util.tree_map_with_path(
            concatenate, *trees, is_leaf=lambda part: isinstance(part, list)
        )

    terminated, truncated = (join(name).astype(bool) for name in ("terminations", "truncations"))
    ends = np.cumsum([*map(len, episodes)]) - 1
    return Trajectory(
        observation=join("observations", slice(-1), extra=1),
        action=join("actions"),
        reward=join("rewards").astype(jnp.float32),
        terminated=terminated,
        truncated=truncated.at[ends].set(truncated[ends] | ~terminated[ends]),
        final_observation=join("observations", slice(1, None), extra=1),
        info=join("infos", slice(1, None), extra=1) if infos else {},
    )


def _append(rows: np.ndarray, more: np.ndarray) -> np.ndarray:
    return np.concatenate([rows, more])


def _with_zero_first(rows: np.ndarray) -> Any:
    rows = np.concatenate([np.zeros_like(rows[:1]), rows])
    return [*rows] if rows.ndim == 1 else rows  # Minari cannot read [L + 1] back from Parquet


def _episodes(
    done: np.ndarray, mode: AutoresetMode, is_staggered: bool
) -> Iterator[tuple[int, np.ndarray, bool]]:
    """Yields the instance of each episode, its rows, and whether it is whole.

    `done`, bool[T, N], is where episodes end.
    """
    ended = np.zeros_like(done)  # whether the row follows an end, so it is not a step of an episode
    if mode == "next_step":
        ended[1:] = done[:-1]
    elif mode == "disabled":
        ended[1:] = np.logical_or.accumulate(done)[:-1]
    for i in range(done.shape[1]):
        steps = np.flatnonzero(~ended[:, i])
        for rows in np.split(steps, np.flatnonzero(done[steps, i]) + 1):
            if len(rows):
                is_whole = done[rows[-1], i] and not (is_staggered and rows[0] == 0)
                yield i, rows, bool(is_whole)


def _with_text(
    space: gymnasium.Space, name: str, batches: Sequence[Any], decode: Callable[[np.ndarray], str]
) -> gymnasium.spaces.Dict:
    """Replaces an entry of the dicts `batches` by text. Returns their space."""
    if not isinstance(space, gymnasium.spaces.Dict) or name not in space.spaces:
        raise ParameterError(
            f'to_minari got decode for "{name}", but the observation space is {space}.  Name an'
            " entry of a dict."
        )
    found: set[str] = set()
    for batch in batches:
        texts = [[decode(tokens) for tokens in row] for row in batch[name]]
        batch[name] = np.array(texts, object)
        found.update(chain(*texts))
    characters = "".join(sorted(set().union(*found)))
    size = max(map(len, found))
    text = gymnasium.spaces.Text(size, min_length=0, charset=characters)
    return gymnasium.spaces.Dict({**space.spaces, name: text})


def _numbers_of(texts: list[str], name: str, encode: Mapping[str, Any]) -> np.ndarray:
    if name not in encode:
        raise ParameterError(
            f'from_minari got text as "{name}", which is not an array.  Pass'
            f' encode={{"{name}": function}}.'
        )
    rows = {text: np.asarray(encode[name](text)) for text in {*texts}}
    return np.stack([rows[text] for text in texts]).astype(np.int32)
