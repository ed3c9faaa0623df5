"""Gymnasium's CartPole in pools and in the vector environments of other libraries."""

import contextlib

from benchmarks.host import peers
from benchmarks.host.environments import actions, cartpole
from benchmarks.host.record import Record, fastest, paused, ratios, stepping

NUM_ENVS = (16, 64, 256)


def measure(record: Record) -> None:
    peers.prepare()
    for num_envs in NUM_ENVS[:1] if record.quick else NUM_ENVS:
        _race(record, num_envs)


def _race(record: Record, num_envs: int) -> None:
    case = f"CartPole-v1, N = {num_envs}"
    sides = {}
    with contextlib.ExitStack() as stack:
        for contestant in (*peers.OURS, *peers.GYMNASIUM, *peers.PUFFER, *peers.SB3):
            why = contestant.objection(num_envs)
            if why:
                record.note(f"{contestant.name} is skipped: {why}.")
                continue
            env, pids = stack.enter_context(peers.open_envs(contestant, cartpole, num_envs))
            run = stepping(env.step, actions(num_envs, dtype=contestant.dtype))
            if contestant.spins:
                run = stack.enter_context(paused(pids))(run)
            sides[contestant.name] = run
        seconds = record.race(case, sides, num_envs=num_envs)
    process, serial = seconds["process"], seconds["serial"]

    def over(name: str, mine: list[float], peer: str, required: float) -> None:
        record.figure(case, name, ratios(seconds[peer], mine), required)

    over("process / Gymnasium Sync", process, "Gymnasium Sync", 1.8)
    over("process / Gymnasium Async", process, "Gymnasium Async", 10)
    over("serial / Gymnasium Sync", serial, "Gymnasium Sync", 1.15)
    for family in (peers.PUFFER, peers.SB3):
        present = [each.name for each in family if each.name in seconds]
        if present:
            best = fastest(seconds, present)
            over(f"process / {best}", process, best, 1.5)
