"""Plants faults in a copy of the repository, one at a time, and reports which ones the tests catch.

    python -m tests.mutations
    python -m tests.mutations --only dqn-double-swapped,factory-own-limit-wins
    python -m tests.mutations --list

A mutant is a small fault that changes results without an error. Each runs only the tests that are
most likely to notice it. They have to pass without the fault, or every mutant seems to be caught.
The faults were chosen from the source, not from the tests, so their share that is caught estimates
how many other faults would be.

A mutant is caught if a test fails or the time is over. The exit status is 1 if one survived, or if
no test ran.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hatch_build import compile_part, import_native
from jaxenvs._machine import cache_folder
from tests.release import copy_files

ROOT = Path(__file__).resolve().parent.parent
NATIVE = (".c", ".cc", ".h")  # files of the native part
PROGRAMS = os.environ.get("JAX_COMPILATION_CACHE_DIR") or cache_folder() / "tests"
MARKS = "not interop and not slow"
NO_TESTS = 5  # pytest's exit status
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


class Mutant(NamedTuple):
    """A fault, and the tests that should notice it. Paths are relative to the root."""

    name: str
    file: str
    old: str  # occurs in the file exactly once
    new: str
    tests: tuple[str, ...]  # files or folders


class Result(NamedTuple):
    """The outcome of a mutant."""

    name: str
    outcome: str  # "caught", "timeout", "survived", or "error"
    seconds: float
    first_failure: str | None  # the id of a test


MUTANTS = (
    # Factory and keys.
    Mutant(
        "factory-own-limit-wins",
        "jaxenvs/factory.py",
        "spec.time_limit is not None and env.time_limit is None:",
        "spec.time_limit is not None:",
        ("tests/test_factory.py",),
    ),
    Mutant(
        "keys-shared-by-wrappers",
        "jaxenvs/keys.py",
        "return prng.derive(key, _WRAPPER, depth)",
        "return prng.derive(key, _WRAPPER)",
        ("tests/wrappers/test_transform.py", "tests/contract/test_keys.py"),
    ),
    # Batches.
    Mutant(
        "vector-disabled-pays-again",
        "jaxenvs/vector/vectorized_env.py",
        "frozen = state.last.replace(reward=jax.tree.map(jnp.zeros_like, timestep.reward))",
        "frozen = state.last",
        ("tests/vector/test_autoreset.py", "tests/test_multi_agent.py"),
    ),
    Mutant(
        "vector-shards-share-reset-keys",
        "jaxenvs/vector/vectorized_env.py",
        "key, rows.astype(jnp.uint32) + first\n",
        "key, rows.astype(jnp.uint32)\n",
        ("tests/vector/test_sharding.py", "tests/contract/test_combinations.py"),
    ),
    Mutant(
        "chunks-last-pass-writes-too-much",
        "jaxenvs/_cpu/chunks.py",
        "due = jnp.minimum(chunk, counts[-1] - first)",
        "due = jnp.minimum(chunk, counts[-1])",
        ("tests/vector/test_autoreset.py",),
    ),
    Mutant(
        "stagger-reuses-action-keys",
        "jaxenvs/vector/vectorized_env.py",
        "step_keys = child(base, number + np.uint32(2))",
        "step_keys = child(base, number + np.uint32(1))",
        ("tests/vector/test_vectorize.py", "tests/contract/test_keys.py"),
    ),
    # Rollouts and several agents.
    Mutant(
        "evaluate-one-step-too-many",
        "jaxenvs/rollouts.py",
        "is_pending & (state.steps < max_steps)",
        "is_pending & (state.steps <= max_steps)",
        ("tests/test_rollouts.py",),
    ),
    Mutant(
        "agents-act-after-truncation",
        "jaxenvs/multi_agent.py",
        "acts = {agent: acts[agent] & ~(terminated[agent] | truncated[agent]) for agent in acts}",
        "acts = {agent: acts[agent] & ~terminated[agent] for agent in acts}",
        ("tests/test_multi_agent.py", "tests/training/test_multi_agent.py"),
    ),
    # Spaces.
    Mutant(
        "box-samples-only-upper-bound",
        "jaxenvs/spaces/box.py",
        "(~has_low & has_high, lambda: ceiling + jnp.log1p(-u)),",
        "(~has_low & has_high, lambda: ceiling - jnp.log1p(-u)),",
        ("tests/test_spaces.py",),
    ),
    Mutant(
        "multi-discrete-mask-allows-padding",
        "jaxenvs/spaces/discrete.py",
        "return mask & add_leading_axes(exists, mask.ndim)",
        "return mask",
        ("tests/test_spaces.py",),
    ),
    Mutant(
        "composite-parts-share-key",
        "jaxenvs/spaces/composite.py",
        "space.sample(part_key, shape, part_mask)",
        "space.sample(key, shape, part_mask)",
        ("tests/test_spaces.py",),
    ),
    # Wrappers.
    Mutant(
        "sticky-action-excludes-longest",
        "jaxenvs/wrappers/sticky_action.py",
        "jax.random.randint(duration_key, (), low, high + 1, jnp.int32)",
        "jax.random.randint(duration_key, (), low, high, jnp.int32)",
        ("tests/wrappers/test_sticky_action.py",),
    ),
    Mutant(
        "normalize-reward-goes-on-in-the-next-episode",
        "jaxenvs/wrappers/normalize.py",
        "return jax.tree.map(jnp.zeros_like, memory), timestep",
        "return memory, timestep",
        ("tests/wrappers/test_normalize.py",),
    ),
    Mutant(
        "transform-keeps-memory-of-old-episode",
        "jaxenvs/wrappers/vector.py",
        "(new_memory, first.observation, first.info),",
        "(memory, first.observation, first.info),",
        ("tests/wrappers/test_transform.py", "tests/wrappers/test_all.py"),
    ),
    # Environments.
    Mutant(
        "pendulum-cost-of-unclipped-torque",
        "jaxenvs/envs/classic_control/pendulum.py",
        "0.1 * state.theta_dot**2 + 0.001 * torque**2",
        "0.1 * state.theta_dot**2 + 0.001 * action[0] ** 2",
        ("tests/parity/test_classic_control.py",),
    ),
    Mutant(
        "blackjack-natural-beats-natural",
        "jaxenvs/envs/toy_text/blackjack.py",
        "jnp.where(own_natural & ~dealer_natural, jnp.float32(1), result)",
        "jnp.where(own_natural, jnp.float32(1), result)",
        ("tests/envs/toy_text/test_toy_text.py", "tests/parity/test_certificates.py"),
    ),
    Mutant(
        "asterix-gold-turns-enemies-to-gold",
        "jaxenvs/envs/minatar/asterix.py",
        "is_gold=is_gold & present,",
        "is_gold=is_gold,",
        ("tests/envs/test_golden.py", "tests/parity/test_certificates.py"),
    ),
    Mutant(
        "umbrella-second-action-counts",
        "jaxenvs/envs/bsuite/umbrella_chain.py",
        "has = jnp.where(state.elapsed == 0,",
        "has = jnp.where(state.elapsed <= 1,",
        ("tests/envs/bsuite/test_tasks.py", "tests/parity/test_certificates.py"),
    ),
    Mutant(
        "minigrid-any-key-opens",
        "jaxenvs/envs/minigrid/level.py",
        "has_key = (hand == cells.KEY) & (cells.color(carrying) == cells.color(front))",
        "has_key = hand == cells.KEY",
        ("tests/envs/minigrid/test_levels.py", "tests/parity/test_certificates.py"),
    ),
    Mutant(
        "four-rooms-fails-less-often",
        "jaxenvs/envs/misc/four_rooms.py",
        "< self.fail_prob * (4 / 3)",
        "< self.fail_prob",
        ("tests/envs/misc/test_misc.py",),
    ),
    Mutant(
        "bit-flipping-one-result-for-a-batch",
        "jaxenvs/envs/goals/bit_flipping.py",
        "return jnp.all(jnp.equal(achieved_goal, desired_goal), axis=-1)",
        "return jnp.all(jnp.equal(achieved_goal, desired_goal))",
        ("tests/envs/goals/test_bit_flipping.py",),
    ),
    Mutant(
        "mujoco-velocity-since-start",
        "jaxenvs/envs/mujoco/base.py",
        "kept=moved.kept, place=place)",
        "kept=moved.kept, place=state.place)",
        (
            "tests/envs/mujoco/test_mujoco.py",
            "tests/parity/test_physics.py",
            "tests/parity/test_certificates.py",
        ),
    ),
    Mutant(
        "bipedal-walker-signed-tilt",
        "jaxenvs/envs/box2d/bipedal_walker.py",
        "(jnp.abs(each.world.bodies[0, 2]) for each in (new, state))",
        "(each.world.bodies[0, 2] for each in (new, state))",
        (
            "tests/envs/box2d/test_bipedal_walker.py",
            "tests/envs/test_golden.py",
            "tests/parity/test_certificates.py",
        ),
    ),
    # Bridge.
    Mutant(
        "pool-final-observation-is-a-view",
        "jaxenvs/bridge/pool/batches.py",
        "leaves = (array[ids[row]].copy() for array in answer.final_observation)",
        "leaves = (array[ids[row]] for array in answer.final_observation)",
        ("tests/bridge/test_pool.py", "tests/faces/test_callers_memory.py"),
    ),
    Mutant(
        "rows-count-on-after-reset",
        "jaxenvs/bridge/workers/rows.py",
        "            elapsed[row] = 0\n        elapsed[row] += 1\n",
        "        elapsed[row] += 1\n",
        ("tests/bridge/test_pool.py",),
    ),
    Mutant(
        "native-backend-counts-finished-episodes",
        "jaxenvs/bridge/backends/vectorized.py",
        "np.where(self._ended[rows], first, elapsed[rows] + 1)",
        "elapsed[rows] + 1",
        ("tests/bridge/test_native.py",),
    ),
    Mutant(
        "memory-limit-of-cgroup-ignored",
        "jaxenvs/bridge/memory/segment.py",
        "return min(found, default=None)",
        "return max(found, default=None)",
        ("tests/bridge/test_faults.py",),
    ),
    Mutant(
        "xla-truncated-episodes-have-no-final-observation",
        "jaxenvs/bridge/native/xla.cc",
        "h->terminated[buffer][rows[i]] || h->truncated[buffer][rows[i]]",
        "h->terminated[buffer][rows[i]]",
        ("tests/bridge/test_xla.py",),
    ),
    Mutant(
        "auto-lets-caller-step-against-its-will",
        "jaxenvs/bridge/making/choosing.py",
        '        and (may_serve or config.backend != "serial")\n'
        "        and (may_share or not config.caller_steps)\n",
        '        and (may_serve or config.backend != "serial")\n',
        ("tests/bridge/test_tuning.py", "tests/bridge/test_shared.py"),
    ),
    # Faces.
    Mutant(
        "gym-vector-send-permutes-backwards",
        "jaxenvs/faces/gym_vector_env.py",
        "rows = np.argsort(order)",
        "rows = order",
        ("tests/faces/test_gym_vector.py",),
    ),
    Mutant(
        "gym-env-keeps-old-observation-space",
        "jaxenvs/faces/gym_env.py",
        "        self.observation_space = self._batch.single_observation_space\n"
        "        self.action_space = self._batch.single_action_space\n"
        "        return True\n",
        "        self.action_space = self._batch.single_action_space\n        return True\n",
        ("tests/faces/test_gym_env.py",),
    ),
    Mutant(
        "dm-env-reset-forgets-no-last-action",
        "jaxenvs/faces/dm_env.py",
        "        self._last_action = None\n"
        "        return dm_env.restart(take_rows(self._start_episodes().observation))\n",
        "        return dm_env.restart(take_rows(self._start_episodes().observation))\n",
        ("tests/faces/test_dm_env.py",),
    ),
    Mutant(
        "gymnax-final-observation-of-next-episode",
        "jaxenvs/faces/gymnax.py",
        'info["final_observation"] = timestep.observation',
        'info["final_observation"] = observation',
        ("tests/faces/test_gymnax.py",),
    ),
    # Training.
    Mutant(
        "vtrace-advantage-clipped-as-error",
        "jaxenvs/training/storages/vtrace.py",
        "advantage = jnp.minimum(clip_pg_rho, weight)",
        "advantage = jnp.minimum(clip_rho, weight)",
        ("tests/training/storages/test_vtrace.py",),
    ),
    Mutant(
        "prioritized-incomplete-rows-get-priority",
        "jaxenvs/training/storages/prioritized.py",
        "jnp.where((known > 0) & ~jnp.isnan(error), priority, known)",
        "jnp.where(~jnp.isnan(error), priority, known)",
        ("tests/training/storages/test_replay.py", "tests/training/storages/test_truncation.py"),
    ),
    Mutant(
        "dqn-double-swapped",
        "jaxenvs/training/algorithms/dqn.py",
        "chooser = networks.q(weights.params, next_features) if self.double else next_values",
        "chooser = next_values if self.double else networks.q(weights.params, next_features)",
        ("tests/training/algorithms/test_off_policy.py",),
    ),
    Mutant(
        "learner-resumes-without-best-score",
        "jaxenvs/training/run_files.py",
        "self._best = np.array([_read_score(folder / _BEST_SCORE) for folder in folders])",
        "self._best = np.full(len(folders), -np.inf)",
        ("tests/training/test_learner.py",),
    ),
    Mutant(
        "schemes-collectors-share-keys",
        "jaxenvs/training/schemes/sources.py",
        "call = self._index, int(behavior.updates), number",
        "call = int(behavior.updates), number",
        ("tests/training/test_schemes.py", "tests/contract/test_keys.py"),
    ),
    # Checks of environments, command line.
    Mutant(
        "check-env-skips-final-observations",
        "jaxenvs/testing/_run_checks.py",
        '"after_inside": inside(timestep.final_observation),',
        '"after_inside": inside(before),',
        ("tests/testing/test_check_env.py",),
    ),
    Mutant(
        "cli-eval-counts-unfinished-episodes",
        "jaxenvs/cli/evaluate.py",
        "np.asarray(evaluation.episode_return)[np.asarray(evaluation.finished)]",
        "np.asarray(evaluation.episode_return).ravel()",
        ("tests/cli/test_train.py", "tests/cli/test_own.py"),
    ),
)


def check() -> list[str]:
    """Returns what is wrong with the table, such as a mutant whose code has changed."""
    problems = []
    names = [mutant.name for mutant in MUTANTS]
    if len(set(names)) < len(names):
        problems.append("two mutants have the same name")
    for mutant in MUTANTS:
        for path in (mutant.file, *mutant.tests):
            if not (ROOT / path).exists():
                problems.append(f"{mutant.name}: {path} does not exist")
        if not (ROOT / mutant.file).is_file():
            continue
        source = (ROOT / mutant.file).read_bytes()
        count = source.count(mutant.old.encode())
        if count != 1:
            problems.append(f"{mutant.name}: the old code occurs {count} times in {mutant.file}")
        elif mutant.file.endswith(".py"):
            try:
                compile(_mutated(mutant, source), mutant.file, "exec")
            except SyntaxError as error:
                problems.append(f"{mutant.name}: the new code is not valid, {error}")
    return problems


def _mutated(mutant: Mutant, source: bytes) -> bytes:
    return source.replace(mutant.old.encode(), mutant.new.encode())


def copy_repository(folder: Path) -> None:
    """Copies all files that git does not ignore, and compiles the native part."""
    copy_files(folder, "-co", "--exclude-standard")
    _compile_native_part(folder)


def _compile_native_part(folder: Path) -> None:
    native = import_native(folder)
    for part in native.PARTS:
        compile_part(native, part, native.SOURCES)


def run(mutant: Mutant, folder: Path, *, marks: str = MARKS, timeout: float = 900) -> Result:
    """Plants a mutant in the copy `folder`, runs its tests there, and restores the file."""
    file, start = folder / mutant.file, time.perf_counter()
    source = file.read_bytes()
    try:
        _write(file, _mutated(mutant, source), folder)
        status, output = _run_tests(mutant.tests, folder, marks, timeout)
        if status in (0, NO_TESTS):
            optimized = _run_tests(mutant.tests, folder, marks, timeout, "--optimized")
            if optimized[0] != NO_TESTS:
                status, output = optimized
    finally:
        _write(file, source, folder)
    found = _FAILED.search(output)
    if status is None:
        outcome = "timeout"
    elif status == NO_TESTS:
        outcome = "error"
    else:  # whatever else goes wrong in an import or a fixture, the mutant is the cause
        outcome = "caught" if status else "survived"
    seconds = round(time.perf_counter() - start, 1)
    return Result(mutant.name, outcome, seconds, found[1] if found else None)


def _write(file: Path, source: bytes, folder: Path) -> None:
    """Writes a file of the copy `folder` and renews what is compiled from it."""
    file.write_bytes(source)
    if file.suffix in NATIVE:
        _compile_native_part(folder)
    # Python takes bytecode for current if the source has the same size and second.
    for bytecode in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
        bytecode.unlink()


def _run_tests(
    tests: Sequence[str], folder: Path, marks: str, timeout: float, *options: str
) -> tuple[int | None, str]:
    """Returns pytest's exit status, None if the time was over, and its output."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", marks]
    command += options
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    # The path comes before that of an editable install.
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "JAX_COMPILATION_CACHE_DIR": str(PROGRAMS),
    }
    # Not a pipe, which a process that a test left behind could keep open.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [*command, *tests],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        return status, output.read().decode(errors="replace")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the mutants and returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", metavar="NAME[,NAME]", help="the mutants to run; default all")
    parser.add_argument("--list", action="store_true", help="show the mutants and run nothing")
    parser.add_argument("--output", type=Path, help="a JSON file for the results")
    parser.add_argument("--marks", default=MARKS, help=f'tests to run; default "{MARKS}"')
    parser.add_argument("--timeout", type=float, default=900, help="seconds per mutant")
    options = parser.parse_args(arguments)

    known = {mutant.name: mutant for mutant in MUTANTS}
    names = options.only.split(",") if options.only else list(known)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"there is no mutant {', '.join(unknown)}; --list shows all")
    chosen = [known[name] for name in names]
    if options.list:
        for mutant in chosen:
            print(f"{mutant.name}  {mutant.file}  {' '.join(mutant.tests)}")
        return 0
    if problems := check():
        print(*problems, sep="\n", file=sys.stderr)
        return 1

    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="jaxenvs-mutations-") as temporary:
        folder = Path(temporary).resolve() / "repository"
        copy_repository(folder)
        for mutant in chosen:
            result = run(mutant, folder, marks=options.marks, timeout=options.timeout)
            results.append(result)
            shown = f"{result.outcome:8} {result.seconds:6.1f} s  {result.name}"
            print(f"{shown}  {result.first_failure or ''}".rstrip(), flush=True)
            if options.output is not None:
                rows = [each._asdict() for each in results]
                options.output.write_text(json.dumps(rows, indent=2) + "\n")
    num_caught = sum(result.outcome in ("caught", "timeout") for result in results)
    print(f"caught {num_caught} of {len(results)}")
    return 0 if num_caught == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
