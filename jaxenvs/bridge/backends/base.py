"""What a pool asks of that which steps its environments."""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from jaxenvs.bridge._arrays import Arrays, AutoresetMode, Plan, plan
from jaxenvs.bridge._instances import Validate
from jaxenvs.bridge._lines import RESET as RESET
from jaxenvs.bridge._lines import RESET_ALL as RESET_ALL
from jaxenvs.bridge._lines import STEP as STEP
from jaxenvs.bridge._lines import STEP_ALL as STEP_ALL


@dataclasses.dataclass(frozen=True)
class Settings:
    """How environments are run, the same for all of a pool."""

    observation_space: gymnasium.Space
    action_space: gymnasium.Space
    info_fields: Mapping[str, gymnasium.Space]
    autoreset_mode: AutoresetMode
    time_limit: int | None
    validate: Validate
    watched: bool  # whether somebody wants to know which environment is at work
    lock_step: bool  # whether all are mostly stepped together
    mode_is_open: bool = False  # whether another mode may be chosen until the first reset

    def plan(self, num_envs: int, start: int = 0) -> Plan:
        """Where the arrays lie, from byte `start` of some memory on."""
        return plan(
            num_envs,
            self.observation_space,
            self.action_space,
            self.info_fields,
            self.mode_is_open or self.autoreset_mode == "same_step",
            start,
        )


@dataclasses.dataclass(frozen=True)
class Post:
    """What an environment raised, or a warning about one."""

    instance: int  # -1 for all of them, which are one
    what: str  # it did: "step", "reset", "warning" ...
    text: str  # the traceback
    worker: int | None = None
    pid: int | None = None
    fatal: bool = False  # the pool cannot go on

    @classmethod
    def parse(cls, data: bytes, worker: int, pid: int) -> list["Post"]:
        """What a worker left in its mailbox."""
        parts = [part.decode(errors="replace").split("\n", 2) for part in data.split(b"\0")]
        return [cls(int(part[0]), part[1], part[2], worker, pid) for part in parts]


class Broken(Exception):
    """An environment or its process failed outside of a step: `post` says how."""

    def __init__(self, post: Post) -> None:
        super().__init__(post.text)
        self.post = post


class Backend(abc.ABC):
    """Steps environments.

    It is made with the environments, says what it found in `facts`, and is then told by `attach`
    how to run them. Requests name one of two buffers, in which they are answered. A pool does not
    ask for an instance again before it took its answer.

    What waits returns how that ended: `_lines.OK` with the flags INFO, DONE and ATTENTION of what
    was waited for, or TIMEOUT or INTERRUPTED.
    """

    name: str
    makes_batches = False  # whether it answers with arrays that it made, see `batch`
    autoreset_mode: AutoresetMode | None = None  # where it is not for the pool to choose
    facts: Sequence[Mapping[str, Any]]  # of each environment, see `_worker.facts`
    num_workers: int
    bounds: tuple[int, ...] | None = None  # of workers that keep their instances
    caller_steps = False  # whether the caller steps those before the first worker's
    _owner: int | None = None  # the only process that can use it; None for any
    plan: Plan
    arrays: Arrays

    @abc.abstractmethod
    def attach(self, settings: Settings) -> None:
        """Makes `plan` and `arrays`."""

    @abc.abstractmethod
    def start_all(self, op: int, buffer: int) -> None:
        """Begins STEP_ALL or RESET_ALL."""

    @abc.abstractmethod
    def wait_all(self, buffer: int, timeout: float | None) -> int:
        """Waits for everything that was begun."""

    def lock_step(self, timeout: float | None) -> Callable[[int], int]:
        """A function that does STEP_ALL in the buffer that it is given, and waits for it."""

        def step(buffer: int) -> int:
            self.start_all(STEP_ALL, buffer)
            return self.wait_all(buffer, timeout)

        return step

    @abc.abstractmethod
    def start_some(self, op: int, buffer: int, instances: np.ndarray) -> None:
        """Begins STEP or RESET of some instances, int32[n]."""

    @abc.abstractmethod
    def take(self, out: np.ndarray, timeout: float | None) -> int:
        """Waits for as many finished instances as fit into `out`, int32, and writes which."""

    def batch(self, order: np.ndarray | None = None) -> Any:
        """What was waited for, as `Pool.step` returns it, of a backend that makes batches.

        Args:
            order: int32[n], the environments in the order of the rows; None for as they came.
        """
        raise NotImplementedError

    @abc.abstractmethod
    def message(self, kind: str, instances: Sequence[int], *what: Any) -> list[Any]:
        """Asks environments that are idle for something, see `_worker.perform`.

        Raises:
            Broken: one of them raised.
        """

    @abc.abstractmethod
    def set_options(self, options: dict[str, Any] | None) -> None:
        """Sets the options of the resets that follow."""

    @abc.abstractmethod
    def read_posts(self) -> list[Post]:
        """Takes what was reported since the last call."""

    def forget(self) -> None:  # noqa: B027
        """Leaves out what was begun and what is finished: after Ctrl-C nobody takes it.

        What cannot be left out is waited for by `wait_all`, which is called next.
        """

    def stuck(self, seconds: float) -> list[int]:
        """Instances at work that calls over so many seconds found making no progress."""
        return []

    def restart(self, instances: Sequence[int]) -> bool:
        """Makes instances anew that hang; False if that cannot be done."""
        return False

    @abc.abstractmethod
    def close(self, grace: float) -> list[Post]:
        """Closes everything, by force after `grace` seconds; what environments raised."""


def by_owner(
    kind: str,
    instances: Sequence[int],
    what: Sequence[Any],
    owner_of: Callable[[int], int],
    ask: Callable[[int, list[int], list[Any]], Sequence[Any]],
) -> list[Any]:
    """What a message asks of instances, asked of each owner for its own.

    Args:
        kind, instances, what: as `Backend.message` is given them.
        owner_of: whose an instance is.
        ask: told an owner, its instances and what concerns them; returns a value for each.

    Returns:
        The values, in the order of `instances`.
    """
    owned: dict[int, list[int]] = {}
    for instance in instances:
        owned.setdefault(owner_of(instance), []).append(instance)
    place = {instance: i for i, instance in enumerate(instances)}
    values: dict[int, Any] = {}
    for owner, mine in sorted(owned.items()):
        rest = list(what)
        if kind == "set_attr":  # one value for each
            rest[1] = [what[1][place[instance]] for instance in mine]
        values.update(zip(mine, ask(owner, mine, rest), strict=True))
    return [values[instance] for instance in instances]


def private_arrays(settings: Settings, num_envs: int) -> tuple[Plan, Arrays]:
    """Arrays in memory of this process, where nothing needs to be shared."""
    plan = settings.plan(num_envs)
    return plan, Arrays.over(plan, np.zeros(plan.size, np.uint8).data)
