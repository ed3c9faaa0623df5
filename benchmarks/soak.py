"""Steps hosted environments for minutes while their processes are killed and stopped at random.

    python -m benchmarks.soak --minutes 10
    python -m benchmarks.soak --minutes 1 --ways ffi,send --seed 3

Every transition is compared with a count that the environments keep: nothing may be lost, come
twice, or be made up. The exit status is 1 if something was.
"""

import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxenvs
from benchmarks import _common
from benchmarks._counted import LENGTH, Counted
from jaxenvs.bridge.pool import Pool

WAYS = ("step", "send", "ffi", "callback")
NUM_ENVS, NUM_WORKERS, TIMEOUT = 12, 3, 0.5
_UNROLL = 200


class Check:
    """Compares transitions with what must come: the modes are next_step and same_step."""

    def __init__(self, observation: np.ndarray, same_step: bool) -> None:
        self.last, self._same_step = observation.copy(), same_step
        self.over = np.zeros(len(observation), bool)
        self.steps = self.restarts = 0
        self.wrong: list[str] = []

    def see(
        self,
        ids: np.ndarray,
        actions: np.ndarray,
        observation: np.ndarray,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        restarted: np.ndarray,
        final: np.ndarray | None = None,
    ) -> None:
        """Looks at a batch."""
        for row, i in enumerate(ids.tolist()):
            self.steps += 1
            life, episode, count, _ = self.last[i].tolist()
            seen = observation[row].tolist()
            flags = bool(terminated[row]), bool(truncated[row])
            if restarted[row]:
                self.restarts += 1
                fine = seen[0] != life and seen[1:] == [1, 0, 0] and flags == (False, True)
                fine = fine and reward[row] == 0
            elif self.over[i]:  # next_step: this one is the reset
                fine = seen == [life, episode + 1, 0, 0] and flags == (False, False)
            else:
                after = [life, episode, count + 1, int(actions[row])]
                ends = count + 1 >= LENGTH
                fine = flags == (ends, False) and reward[row] == count + 1
                if ends and self._same_step:
                    fine = fine and seen == [life, episode + 1, 0, 0]
                    fine = fine and final is not None and final[row].tolist() == after
                else:
                    fine = fine and seen == after
            if not fine:
                self.wrong.append(f"{i}: {self.last[i].tolist()} -> {seen}, {flags}")
            self.last[i] = observation[row]
            self.over[i] = any(flags) and not self._same_step and not restarted[row]


def play(way: str, pool: Pool, end: float, rng: np.random.Generator) -> Check:
    """Steps a pool until the time `end`; returns what was found."""
    if way in ("ffi", "callback"):
        return _play_in_programs(pool, way, end, rng)
    check = Check(pool.reset(seed=0)[0], same_step=False)
    if way == "send":
        actions = rng.integers(0, 1000, NUM_ENVS)
        pool.send(actions)
    while time.monotonic() < end and not check.wrong:
        if way == "step":
            actions = rng.integers(0, 1000, NUM_ENVS)
            observation, *flags, info = pool.step(actions)
            check.see(np.arange(NUM_ENVS), actions, observation, *flags, info["restarted"])
        else:
            observation, *flags, info = pool.recv()
            ids = info["env_id"].copy()
            check.see(ids, actions[ids], observation, *flags, info["restarted"])
            actions[ids] = rng.integers(0, 1000, len(ids))
            pool.send(actions[ids], ids)
    return check


def _play_in_programs(pool: Pool, path: Any, end: float, rng: np.random.Generator) -> Check:
    env = jaxenvs.HostEnv(pool, path=path, autoreset_mode="same_step")

    def program(state: Any, actions: jax.Array) -> Any:
        def once(state: Any, action: jax.Array) -> Any:
            state, t = env.step(state, action, jax.random.key(0))
            flags = t.reward, t.terminated, t.truncated, t.info["restarted"]
            return state, (t.observation, *flags, t.final_observation)

        return jax.lax.scan(once, state, actions)

    compiled = jax.jit(program)
    state, first = env.reset(jax.random.key(0))
    check = Check(np.asarray(first.observation), same_step=True)
    while time.monotonic() < end and not check.wrong:
        actions = rng.integers(0, 1000, (_UNROLL, NUM_ENVS)).astype(np.int32)
        state, found = compiled(state, jnp.asarray(actions))
        for action, *row in zip(actions, *map(np.asarray, found), strict=True):
            check.see(np.arange(NUM_ENVS), action, *row)
    return check


def disturb(pool: Pool, until: threading.Event, seed: int, counts: dict[str, int]) -> None:
    """Kills and stops worker processes at random times."""
    rng = random.Random(seed)
    while not until.wait(rng.uniform(0.05, 1.0)):
        pid = rng.choice(pool._backend.pids)  # pyright: ignore[reportAttributeAccessIssue]
        which = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP])
        try:
            os.kill(pid, which)
        except ProcessLookupError:
            continue
        counts[which.name] = counts.get(which.name, 0) + 1


def soak(way: str, seconds: float, seed: int) -> bool:
    """Runs one way; prints the figures, and returns whether all went well."""
    pool = jaxenvs.make_pool(
        Counted,
        NUM_ENVS,
        batch_size=NUM_ENVS // 2 if way == "send" else None,
        num_workers=NUM_WORKERS,
        backend="process",
        timeout=TIMEOUT,
        on_failure="restart",
    )
    until, counts = threading.Event(), {}
    thread = threading.Thread(target=disturb, args=(pool, until, seed, counts), daemon=True)
    thread.start()
    try:
        check = play(way, pool, time.monotonic() + seconds, np.random.default_rng(seed))
    finally:
        until.set()
        thread.join()
        pool.close()
    told = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    print(f"{way}: {check.steps:,} steps, {told}, {check.restarts} restarts", flush=True)
    for each in check.wrong[:10]:
        print(f"  wrong: environment {each}", flush=True)
    return not check.wrong


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    parser = _common.plain_parser("soak", __doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all ways together")
    parser.add_argument("--ways", type=_common.choices(WAYS), default=list(WAYS), help=f"of {WAYS}")
    parser.add_argument("--seed", type=int, default=0, help="of the disturbances (default 0)")
    options = parser.parse_args(arguments)
    logging.getLogger("jaxenvs").setLevel(logging.ERROR)
    seconds = options.minutes * 60 / len(options.ways)
    went_well = [soak(way, seconds, options.seed) for way in options.ways]
    sys.exit(not all(went_well))


if __name__ == "__main__":
    main()
