"""A discrete-event simulation of the ideal pool for `send` and `recv`."""

import heapq
from collections.abc import Sequence


def ideal_seconds(durations: Sequence[Sequence[float]], batch_size: int, num_batches: int) -> float:
    """Returns the duration of `num_batches` calls of `recv` if only the environments take time.

    At time 0 all environments receive an action. `recv` returns the first `batch_size` environments
    that have finished since they were last returned, and they receive their next action
    immediately. Every environment has its own worker.

    Args:
        durations: seconds of each step, for each environment; repeated if there are too few.
        batch_size: at most the number of environments.
        num_batches: number of calls of `recv`.
    """
    taken = [0] * len(durations)
    running: list[tuple[float, int]] = []  # (end of the step, environment)

    def begin(instance: int, now: float) -> None:
        own = durations[instance]
        heapq.heappush(running, (now + own[taken[instance] % len(own)], instance))
        taken[instance] += 1

    now = 0.0
    for instance in range(len(durations)):
        begin(instance, now)
    for _ in range(num_batches):
        batch = [heapq.heappop(running) for _ in range(batch_size)]
        now = max(now, batch[-1][0])
        for _, instance in batch:
            begin(instance, now)
    return now
