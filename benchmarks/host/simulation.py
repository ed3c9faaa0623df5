"""What a pool of `send` and `recv` could do at best: a simulation of discrete events."""

import heapq
from collections.abc import Sequence


def ideal_seconds(durations: Sequence[Sequence[float]], batch_size: int, num_batches: int) -> float:
    """How long `num_batches` calls of `recv` take if nothing but the environments takes time.

    The protocol: all environments are sent an action at time 0. `recv` returns as soon as
    `batch_size` have finished and were not returned before, those that finished first; they are
    sent their next action at once. Every environment has a worker of its own.

    Args:
        durations: of each environment, the seconds that its steps take, in turn; begun anew where
            there are too few.
        batch_size: at most as many as there are environments.
        num_batches: calls of `recv`.
    """
    taken = [0] * len(durations)
    at_work: list[tuple[float, int]] = []  # when it is finished, which environment

    def begin(instance: int, now: float) -> None:
        own = durations[instance]
        heapq.heappush(at_work, (now + own[taken[instance] % len(own)], instance))
        taken[instance] += 1

    now = 0.0
    for instance in range(len(durations)):
        begin(instance, now)
    for _ in range(num_batches):
        batch = [heapq.heappop(at_work) for _ in range(batch_size)]
        now = max(now, batch[-1][0])
        for _, instance in batch:
            begin(instance, now)
    return now
