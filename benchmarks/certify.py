"""Certifies that environments equal their reference implementations.

    python -m benchmarks.certify FrozenLake-v1 Taxi-v4
    python -m benchmarks.certify --all

Writes each certificate to its family's file in benchmarks/certificates. It has three parts:

1. Steps: the state of the reference is copied into ours, both take the same action, and ours gets
   the reference's random outcomes. Next state, observation, reward, and termination must be equal,
   floats within the tolerance of the oracle. The lines of the reference's step that ran are
   counted.
2. Chance: start states, and the next states of steps with random outcomes, have the same
   distribution in both: chi-square tests for discrete values, Kolmogorov-Smirnov tests for floats.
3. Episodes: returns and lengths of whole episodes have the same distribution, with a random policy
   and with one that gets further.

Tasks with MuJoCo run in C MuJoCo; all that it carries from step to step must be equal to the bit.
`--engine mjx` writes mjx.json. There, single precision is measured, not judged.
"""

import contextlib
import importlib.metadata
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import jaxenvs
from benchmarks import _certificates, _common, _sources
from benchmarks.oracles import Oracle, Policy, oracle_for, oracle_name, table_of
from jaxenvs.core import Environment

CHUNK = 1_000  # steps compared per call, so that one program serves many steps
Player = Callable[[Any], Any]  # a policy on the host: (state) -> action
SIGNIFICANCE = 1e-3  # smallest acceptable p-value, after correction for the number of tests


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; see `--help`. Returns 1 if a certificate fails."""
    parser = _common.plain_parser("certify", __doc__)
    add = parser.add_argument
    add("ids", nargs="*", help="environment ids")
    add("--all", action="store_true", help="all ids that have a reference implementation")
    add(
        "--stale",
        action="store_true",
        help="all ids whose certificate is old or missing",
    )
    add("--engine", choices=("c", "mjx"), default="c", help="of tasks with MuJoCo")
    add("--steps", type=int, help="steps to compare per id and variant")
    add("--episodes", type=int, help="episodes to compare per policy")
    add("--longest", type=int, help="steps after which an episode is cut off")
    add("--samples", type=int, help="samples per distribution")
    add("--seed", type=int, default=0)
    add("--output", type=Path, default=_certificates.FOLDER, help="folder of the certificates")
    options = parser.parse_args(arguments)
    ids = options.ids
    if options.all:
        ids = certified_ids()
    if options.stale:
        ids = [id for id in certified_ids() if is_stale(id, options.engine)]
    failed = []
    for id in ids:
        given = {name: getattr(options, name) for name in Oracle.sizes}
        sizes = {name: value for name, value in given.items() if value is not None}
        certificate = certify(id, sizes, seed=options.seed, engine=options.engine)
        path = _certificates.write(id, certificate, options.engine, options.output)
        print(f"{id}: {'passed' if certificate['passed'] else 'FAILED'}, {path}")
        if not certificate["passed"]:
            failed.append(id)
    return 1 if failed else 0


def sources_digest(id: str, engine: str = "c") -> str:
    """Returns the digest of the sources of an id's rules."""
    return _sources.digest(str(jaxenvs.registry[id].entry_point).partition(":")[0], engine=engine)


def certified_ids() -> list[str]:
    """Returns the ids that have a reference implementation."""
    specs = jaxenvs.registry.values()
    return [spec.id for spec in specs if oracle_name(str(spec.entry_point)) is not None]


def is_stale(id: str, engine: str = "c") -> bool:
    """Returns whether an id has no certificate of its current sources."""
    certificate = _certificates.read(id, engine)
    return certificate is None or certificate["sources"] != sources_digest(id, engine)


def reference_version(env: Environment) -> str:
    """Returns the name and version of the package of an environment's reference, and its note."""
    oracle = oracle_for(env)
    names = [f"{name} {importlib.metadata.version(name)}" for name in oracle.package.split()]
    return ", ".join(filter(None, [*names, oracle.note]))


def certify(
    id: str, sizes: Mapping[str, int], *, seed: int = 0, engine: str = "c"
) -> dict[str, Any]:
    """Returns the certificate of an id, with its default parameters and all its variants.

    Args:
        id: the id.
        sizes: numbers that replace some of `Oracle.sizes`.
        seed: the seed of both implementations.
        engine: the engine of tasks with MuJoCo.
    """
    oracle_type = oracle_for(jaxenvs.make(id))
    sizes = {**oracle_type.sizes, **sizes}
    longest, num_samples, num_episodes = (
        sizes[name] for name in ("longest", "samples", "episodes")
    )
    parts = []
    for variant in oracle_type.variants_of(engine):
        with precision(variant):
            env = jaxenvs.make(id, **variant)
            chosen = {name: repr(value) for name, value in variant.items() if name != "engine"}
            parts.append(
                {"parameters": chosen}
                | compare_steps(env, sizes["steps"], seed)
                | {"chance": compare_chance(env, num_samples, seed)}
                | {"episodes": compare_episodes(env, env.time_limit, num_episodes, seed, longest)}
            )
    lines = {line: any(part["lines"][line] for part in parts) for line in parts[0]["lines"]}
    steps_passed = all(part["passed"] for part in parts)
    for part in parts:
        del part["lines"], part["passed"]
    p_values = [
        found["p_value"]
        for part in parts
        for found in (*part["chance"].values(), *part["episodes"].values())
    ]
    smallest = min(1.0, min(p_values) * len(p_values))
    mismatches, steps = (sum(part[name] for part in parts) for name in ("mismatches", "steps"))
    return {
        "id": id,
        "reference": reference_version(jaxenvs.make(id)),
        "jax": jax.__version__,
        **({"engine": env.parameters["engine"]} if "engine" in env.parameters else {}),
        "sources": sources_digest(id, engine),
        "samples": num_samples,
        "longest": longest,
        "passed": steps_passed and smallest >= SIGNIFICANCE,
        "steps": steps,
        "episodes": sum(part["step_episodes"] for part in parts),
        "mismatches": mismatches,
        "largest_error": max(part["largest_error"] for part in parts),
        "smallest_p_value": smallest,
        "reference_lines": len(lines),
        "reference_lines_run": sum(lines.values()),
        "lines_not_run": [line for line, ran in lines.items() if not ran],
        "parts": parts,
    }


def precision(parameters: Mapping[str, Any]) -> contextlib.AbstractContextManager[Any]:
    """Returns a context in which environments with these parameters can be made and run."""
    return jax.enable_x64(parameters.get("dtype") == "float64")


# Part 1: steps.


def compare_steps(env: Environment, num_steps: int, seed: int = 0) -> dict[str, Any]:
    """Compares single steps from the reference's states with its random outcomes.

    Half of the episodes follow the oracle's policy, if it has one, with a tenth of random actions.
    Half of them start where ours do, if the oracle can.
    Episodes without an end are cut off after the time limit of `env` or a quarter of the steps.
    """
    longest = max(100, min(num_steps // 4, env.time_limit or num_steps))  # pyright: ignore[reportArgumentType]
    env = env.unwrapped
    oracle = oracle_for(env)(env, seed)
    lines = LineCounter(oracle.step_functions, oracle.unreachable)
    rows, starts, episodes, make_player = [], [], 0, _players(oracle)
    our_starts = _our_starts(env, seed) if oracle.starts_at_ours else itertools.repeat(None)
    started: list[tuple[Any, Any]] = []
    for state in oracle.unusual_states():
        for action in oracle.unusual_actions():
            oracle.set_state(state)
            rows.append(_take(oracle, oracle.get_state(), action, lines))
    while len(rows) < num_steps or episodes < oracle.least_starts * num_steps:
        ours = next(our_starts)
        start = oracle.reset() if ours is None else oracle.start_at(ours[0])
        state = oracle.get_state()
        if ours is None:
            starts.append((state, start))
        else:
            started.append((ours, (state, start)))
        episodes, ended, length, play = episodes + 1, False, 0, make_player()
        while not ended and length < longest:
            action = oracle.sample_action()
            if play is not None and episodes % 2 and oracle.random.random() < 0.9:
                action = play(state)
            rows.append(_take(oracle, state, action, lines))
            state = rows[-1]["next_state"]
            ended, length = rows[-1]["terminated"] or oracle.truncated, length + 1
    found = _run_ours(env, rows)
    expected = _stack([{name: row[name] for name in found} for row in rows])
    mismatches, largest = _compare(found, expected, oracle.tolerance)
    if started:
        more, error = _compare(*map(_stack, zip(*started, strict=True)), oracle.tolerance)
        mismatches, largest = mismatches + more, max(largest, error)
    shown = jax.jit(jax.vmap(oracle.observe_start))(_stack([state for state, _ in starts]))
    first = _stack([observation for _, observation in starts])
    more, error = _compare(shown, first, min(1e-5, oracle.tolerance))
    mismatches, largest = mismatches + more, max(largest, error)
    table = oracle.get_table()
    if table is not None:
        more, error = _compare(table_of(env), table)
        mismatches, largest = mismatches + more, max(largest, error)
    return {
        "steps": len(rows),
        "step_episodes": episodes,
        "passed": mismatches <= oracle.tolerated * len(rows),
        "mismatches": mismatches,
        "largest_error": largest,
        "lines": lines.ran(),
    }


def _our_starts(env: Environment, seed: int) -> Iterator[tuple[Any, Any] | None]:
    """Yields states and observations of our starts, with None before each, in turn."""
    reset = jax.jit(jax.vmap(env.reset))
    for count in itertools.count():
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), count), 64)
        state, timestep = jax.device_get(reset(keys))
        for i in range(len(keys)):
            yield None
            yield jax.tree.map(itemgetter(i), (state, timestep.observation))


def _take(oracle: Oracle, state: Any, action: Any, lines: "LineCounter") -> dict[str, Any]:
    row = {"state": state, "action": action}
    with lines:
        observation, reward, terminated = oracle.step(action)
    row |= {"next_state": oracle.get_state(), "observation": observation}
    row |= {"reward": reward, "terminated": terminated}
    if oracle.truncated is not None:
        row["truncated"] = oracle.truncated
    if oracle.info is not None:
        row["info"] = oracle.info
    if has_chance(oracle.env):
        row["draws"] = oracle.get_draws()
    return row


def has_chance(env: Environment) -> bool:
    """Returns whether chance decides anything in a step of `env`."""
    return hasattr(env, "draw")


def _run_ours(env: Environment, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns next states, observations, rewards, and flags of our steps, stacked."""

    @jax.jit
    @jax.vmap
    def run(state: Any, action: jax.Array, draws: Any) -> dict[str, Any]:
        if has_chance(env):
            state, timestep = env.apply(state, action, draws)  # pyright: ignore[reportAttributeAccessIssue]
        else:
            state, timestep = env.step(state, action, jax.random.key(0))
        return {"next_state": state} | {name: getattr(timestep, name) for name in names}

    names = ("observation", "reward", "terminated", "truncated", "info")
    names = [name for name in names if name in rows[0]]
    dtype = env.action_space.dtype  # pyright: ignore[reportAttributeAccessIssue]
    chunks, size = [], min(CHUNK, len(rows))
    for i in range(0, len(rows), size):
        chunk = rows[i : i + size]
        padded = [*chunk, *[chunk[-1]] * (size - len(chunk))]
        actions = np.stack([np.asarray(row["action"], dtype) for row in padded])
        draws = _stack([row.get("draws") for row in padded])
        done = jax.device_get(run(_stack([row["state"] for row in padded]), actions, draws))
        chunks.append(jax.tree.map(itemgetter(slice(len(chunk))), done))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *chunks)


def _compare(found: Any, expected: Any, tolerance: float = 1e-5) -> tuple[int, float]:
    """Returns how many rows differ and the largest error of floats.

    Errors are absolute for values up to 1, and relative to the expected value above. Floats differ
    if the error exceeds `tolerance`.
    """
    jax.tree.map(lambda a, b: None, found, expected)  # the structures are equal
    differs, largest = np.zeros(0, bool), 0.0
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape:
            raise ValueError(f"ours has the shape {a.shape}, the reference {b.shape}")
        a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
        if a.dtype.kind == "f":
            a, b = a.astype(np.float64), b.astype(np.float64)
            error = np.abs(a - b) / np.maximum(1, np.abs(b))
            largest = max(largest, float(error.max(initial=0.0)))
            wrong = ~(error <= tolerance)  # also if it is NaN
        else:
            wrong = a != b
        wrong = wrong.any(axis=1)
        differs = wrong if not differs.size else differs | wrong
    return int(differs.sum()), largest


class LineCounter:
    """A context in which the lines of some functions are recorded as they run."""

    def __init__(self, functions: Iterable[FunctionType], skipped: tuple[str, ...] = ()) -> None:
        import linecache

        self._codes: set[CodeType] = set()
        for function in functions:
            self._add(function.__code__)
        self._lines: dict[tuple[str, int], str] = {}
        for code in self._codes:
            for _, _, line in code.co_lines():
                if line is None or line == code.co_firstlineno:
                    continue
                text = linecache.getline(code.co_filename, line).strip()
                place = f"{Path(code.co_filename).name}: {text}"
                if not any(part in place for part in skipped):
                    self._lines[code.co_filename, line] = text
        self._ran: set[tuple[str, int]] = set()
        # Functions whose lines have all run are no longer traced.
        self._left = {
            code: {line for *_, line in code.co_lines() if (code.co_filename, line) in self._lines}
            for code in self._codes
        }

    def _add(self, code: CodeType) -> None:
        self._codes.add(code)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):  # comprehensions and inner functions
                self._add(constant)

    def __enter__(self) -> None:
        if any(self._left.values()):  # tracing is slow
            sys.settrace(self._on_call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _on_call(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        return self._on_line if self._left.get(frame.f_code) else None

    def _on_line(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        if event == "line":
            self._ran.add((frame.f_code.co_filename, frame.f_lineno))
            self._left[frame.f_code].discard(frame.f_lineno)
        return self._on_line

    def ran(self) -> dict[str, bool]:
        """Returns for each line, as "file:number: text", whether it ran."""
        return {
            f"{Path(file).name}:{line}: {text}": (file, line) in self._ran
            for (file, line), text in sorted(self._lines.items())
        }


# Part 2: chance.


def compare_chance(env: Environment, num_samples: int, seed: int = 0) -> dict[str, Any]:
    """Compares the distributions of start states and, if a step has chance, of next states."""
    env = env.unwrapped
    oracle = oracle_for(env)(env, seed)
    theirs = []
    for _ in range(num_samples):
        oracle.reset()
        theirs.append(oracle.get_state())
    ours = _reset(env, num_samples, jax.random.key(seed))
    samples = {"start states": [(jax.device_get(ours), _stack(theirs))]}
    if has_chance(env):
        samples["steps"] = _sample_steps(env, oracle, num_samples, seed)
    return {
        name: same_distribution([*pairs, *(part for pair in pairs for part in oracle.parts(*pair))])
        for name, pairs in samples.items()
    }


def _sample_steps(
    env: Environment, oracle: Oracle, num_samples: int, seed: int, num_states: int = 8
) -> list[tuple[Any, Any]]:
    """Returns samples of next states, ours and theirs, from the steps with the most outcomes."""
    candidates = [*((state, oracle.sample_action()) for state in oracle.unusual_states())]
    while len(candidates) < CHUNK:
        oracle.reset()
        terminated, length = False, 0
        while not terminated and length < CHUNK // 4:
            candidates.append((oracle.get_state(), oracle.sample_action()))
            terminated, length = oracle.step(candidates[-1][1])[2], length + 1

    # One program of CHUNK steps, because some take minutes to compile.
    step = jax.jit(jax.vmap(lambda state, action, key: env.step(state, action, key)[0]))
    dtype = env.action_space.dtype  # pyright: ignore[reportAttributeAccessIssue]
    chosen = candidates[:CHUNK]
    states = _stack([state for state, _ in chosen])
    actions = np.stack([np.asarray(action, dtype) for _, action in chosen])
    keys = jax.random.split(jax.random.key(seed + 1), (32, CHUNK))
    reached = [jax.device_get(step(states, actions, row)) for row in keys]
    outcomes = np.stack([_rows(state) for state in reached], axis=1)
    counts = [len(np.unique(rows, axis=0)) for rows in outcomes]
    pairs = []
    keys = jax.random.split(jax.random.key(seed + 2), (-(-num_samples // CHUNK), CHUNK))
    for i in np.argsort(counts, kind="stable")[::-1][:num_states]:
        if counts[i] == 1:
            break
        state, action = chosen[i]
        repeated = _stack([state] * CHUNK), np.stack([actions[i]] * CHUNK)
        ours = jax.tree.map(
            lambda *parts: np.concatenate(parts)[:num_samples],
            *(jax.device_get(step(*repeated, row)) for row in keys),
        )
        theirs = []
        for _ in range(num_samples):
            oracle.set_state(state)
            oracle.step(action)
            theirs.append(oracle.get_state())
        pairs.append((ours, _stack(theirs)))
    return pairs


def same_distribution(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    """Tests for each pair of samples whether they have the same distribution.

    All integers of a sample are tested together, as one category, and each float by itself.

    Returns:
        The number of tests and the smallest p-value, multiplied by that number (Bonferroni).
    """
    p_values = [1.0]
    for ours, theirs in pairs:
        a, b = (jax.tree.leaves(jax.device_get(tree)) for tree in (ours, theirs))
        kinds = [np.asarray(leaf).dtype.kind for leaf in a]
        discrete = [i for i, kind in enumerate(kinds) if kind != "f"]
        if discrete:
            p_values.append(
                _chi_square(_rows([a[i] for i in discrete]), _rows([b[i] for i in discrete]))
            )
        for i, kind in enumerate(kinds):
            if kind == "f":
                # Numbers that differ by rounding are equal.
                x, y = (
                    np.round(np.asarray(leaves[i], np.float64).reshape(len(leaves[i]), -1), 5)
                    for leaves in (a, b)
                )
                p_values += [
                    float(stats.ks_2samp(x[:, j], y[:, j]).pvalue) for j in range(x.shape[1])
                ]
    tests = len(p_values) - 1
    return {"tests": tests, "p_value": min(1.0, min(p_values) * max(tests, 1))}


def _chi_square(a: np.ndarray, b: np.ndarray) -> float:
    """Returns the p-value of the hypothesis that rows of both have the same distribution."""
    _, category = np.unique(np.concatenate([a, b]), axis=0, return_inverse=True)
    category = category.reshape(-1)
    counts = np.stack(
        [np.bincount(part, minlength=category.max() + 1) for part in np.split(category, [len(a)])]
    )
    rare = counts.sum(axis=0) < 10
    counts = np.concatenate([counts[:, ~rare], counts[:, rare].sum(axis=1, keepdims=True)], axis=1)
    counts = counts[:, counts.sum(axis=0) > 0]
    if counts.shape[1] == 1:
        return 1.0
    return float(stats.chi2_contingency(counts).pvalue)


# Part 3: episodes.


def compare_episodes(
    env: Environment, time_limit: Any, num_episodes: int, seed: int = 0, longest: int = 1_000
) -> dict[str, Any]:
    """Compares returns and lengths of whole episodes, cut off after the time limit or `longest`."""
    env = env.unwrapped
    oracle = oracle_for(env)(env, seed)
    limit = min(longest, time_limit or longest)
    sizes = num_episodes, limit, seed
    plays: dict[str, tuple[Callable[[], Player | None], Callable[[], np.ndarray]]] = {
        "random": (lambda: None, lambda: _play_ours(env, oracle.random_policy, *sizes))
    }
    if oracle.policy is not None:
        policy = oracle.policy
        plays["scripted"] = _players(oracle), lambda: _play_ours(env, policy, *sizes)
    elif oracle.player() is not None:
        plays["scripted"] = oracle.player, lambda: _play_ours_on_host(env, oracle, *sizes)
    found = {}
    for name, (make_player, play_ours) in plays.items():
        theirs, ours = _play_reference(oracle, make_player, num_episodes, limit), play_ours()
        p_values = [
            float(stats.ks_2samp(*_order(ours[:, i], theirs[:, i]), method="asymp").pvalue)
            for i in (0, 1)
        ]
        found[name] = {
            "episodes": num_episodes,
            "return": {
                "ours": _common.mean_and_error(ours[:, 0]),
                "reference": _common.mean_and_error(theirs[:, 0]),
            },
            "length": {
                "ours": _common.mean_and_error(ours[:, 1]),
                "reference": _common.mean_and_error(theirs[:, 1]),
            },
            "p_value": min(1.0, 2 * min(p_values)),
        }
    return found


def _play_reference(
    oracle: Oracle, make_player: Callable[[], Player | None], num_episodes: int, limit: int
) -> np.ndarray:
    results = []
    for _ in range(num_episodes):
        oracle.reset()
        total, length, terminated, play = 0.0, 0, False, make_player()
        while not terminated and length < limit:
            action = oracle.sample_action() if play is None else play(oracle.get_state())
            _, reward, terminated = oracle.step(action)
            total, length = total + float(reward), length + 1
        results.append((total, length))
    return np.array(results, np.float64)


def _play_ours(
    env: Environment, policy: Policy, num_episodes: int, limit: int, seed: int
) -> np.ndarray:
    @jax.jit
    @jax.vmap
    def play(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(carry: Any) -> Any:
            state, total, length, _ = carry
            action_key, step_key = jax.random.split(jax.random.fold_in(key, length + 1))
            action = policy(env, state, action_key)
            state, timestep = env.step(state, action, step_key)
            total += timestep.reward.astype(jnp.float32)
            return state, total, length + 1, timestep.terminated

        start = env.reset(jax.random.fold_in(key, 0))[0]
        carry = (start, jnp.float32(0), jnp.int32(0), jnp.bool_(False))
        _, total, length, _ = jax.lax.while_loop(
            lambda carry: ~carry[3] & (carry[2] < limit), step, carry
        )
        return total, length

    total, length = play(jax.random.split(jax.random.key(seed), num_episodes))
    return np.stack([total, length], axis=1).astype(np.float64)


def _play_ours_on_host(
    env: Environment, oracle: Oracle, num_episodes: int, limit: int, seed: int
) -> np.ndarray:
    key, players = jax.random.key(seed), [oracle.player() for _ in range(num_episodes)]
    step, state = jax.jit(jax.vmap(env.step)), _reset(env, num_episodes, key)
    total, length = np.zeros((2, num_episodes))
    playing = np.ones(num_episodes, bool)
    while playing.any() and length.max() < limit:
        leaves, tree = jax.tree.flatten(jax.device_get(state))
        actions = np.zeros(num_episodes, env.action_space.dtype)  # pyright: ignore[reportAttributeAccessIssue]
        for i in np.flatnonzero(playing):
            actions[i] = players[i](tree.unflatten([leaf[i] for leaf in leaves]))  # pyright: ignore[reportOptionalCall]
        keys = jax.random.split(jax.random.fold_in(key, int(length.max())), num_episodes)
        state, timestep = step(state, actions, keys)
        total, length = total + playing * np.asarray(timestep.reward), length + playing
        playing &= ~np.asarray(timestep.terminated)
    return np.stack([total, length], axis=1)


def _order(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Replaces values by ranks, which are equal for values that differ by rounding only."""
    values, where = np.unique(np.concatenate([a, b]), return_inverse=True)
    is_next = np.diff(values) > 1e-6 * np.maximum(1, np.abs(values[1:]))
    ranks = np.concatenate([[0], np.cumsum(is_next)])[where]
    return ranks[: len(a)], ranks[len(a) :]


def _players(oracle: Oracle) -> Callable[[], Player | None]:
    """Returns a function that makes a player for one episode, None without a scripted policy."""
    if oracle.policy is None:
        return oracle.player
    policy, bits = oracle.policy, _key_bits(oracle)
    act = jax.jit(lambda env, state, bits: policy(env, state, jax.random.wrap_key_data(bits)))
    return lambda: lambda state: np.asarray(act(oracle.env, state, next(bits)))


def _key_bits(oracle: Oracle) -> Iterator[np.ndarray]:
    """Yields the bits of random keys, made many at a time."""
    while True:
        seed = int(oracle.random.integers(2**31))
        yield from np.asarray(jax.random.key_data(jax.random.split(jax.random.key(seed), CHUNK)))


def _reset(env: Environment, number: int, key: jax.Array) -> Any:
    """Returns the first states of episodes."""
    return jax.jit(jax.vmap(lambda key: env.reset(key)[0]))(jax.random.split(key, number))


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)


def _rows(tree: Any) -> np.ndarray:
    """Returns the leaves of a batch side by side, one row per element."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    return np.concatenate([leaf.reshape(len(leaf), -1).astype(np.float64) for leaf in leaves], 1)


if __name__ == "__main__":
    sys.exit(main())
