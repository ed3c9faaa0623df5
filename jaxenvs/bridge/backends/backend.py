"""The interface of the backends, which step the environments of a pool."""

import abc
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from jaxenvs.bridge.memory.arrays import Arrays, AutoresetMode, Plan
from jaxenvs.bridge.memory.channel import STEP_ALL
from jaxenvs.bridge.workers.checks import Validate


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings that all environments of a pool share."""

    observation_space: gymnasium.Space
    action_space: gymnasium.Space
    info_fields: Mapping[str, gymnasium.Space]
    autoreset_mode: AutoresetMode
    time_limit: int | None
    validate: Validate
    timeout: float | None  # seconds; with one, workers report which environment is at work
    lock_step: bool  # whether all environments are usually stepped together
    mode_is_open: bool = False  # whether the autoreset mode may change until the first reset

    def plan(self, num_envs: int, start: int = 0) -> Plan:
        """Lays out the arrays, starting at byte `start`."""
        return Plan(
            num_envs,
            self.observation_space,
            self.action_space,
            dict(self.info_fields),
            self.mode_is_open or self.autoreset_mode == "same_step",
            start,
        )


@dataclasses.dataclass(frozen=True)
class Report:
    """A report of a failed environment, or a warning about one."""

    instance: int  # -1 for a vectorized environment
    what: str  # the operation: "step", "reset", "warning" ...
    text: str  # the traceback
    worker: int | None = None
    pid: int | None = None
    fatal: bool = False  # whether the pool cannot continue

    @classmethod
    def parse(cls, data: bytes, worker: int, pid: int) -> list["Report"]:
        """Returns the reports of a worker, each of which ends with a zero byte."""
        texts = data[:-1].decode(errors="replace").split("\0")
        parts = [text.split("\n", 2) for text in texts]
        return [cls(int(part[0]), part[1], part[2], worker, pid) for part in parts]


class EnvFailure(Exception):
    """An environment or its process failed outside of a step; `report` has the report.

    `is_lost` is true if its process ended or hangs, rather than the environment raised.
    """

    def __init__(self, report: Report, *, is_lost: bool = False) -> None:
        super().__init__(report.text)
        self.report, self.is_lost = report, is_lost


class MessageTimeout(Exception):
    """Environments did not answer a message in time."""

    def __init__(self, instances: Sequence[int]) -> None:
        super().__init__(instances)
        self.instances = instances


class Backend(abc.ABC):
    """The base class of backends.

    The constructor makes the environments and sets `descriptions`; `attach` then sets how to run
    them. A request names one of two buffers for its answer. A pool does not request anything of an
    instance whose answer it has not taken yet.

    Methods that wait return a status: OK with the flags INFO, DONE and ATTENTION, or
    TIMEOUT or INTERRUPTED.
    """

    name: str
    makes_batches = False  # whether it returns its own arrays, see `batch`
    autoreset_mode: AutoresetMode | None = None  # set if the pool cannot choose it
    descriptions: Sequence[Mapping[str, Any]]  # of each environment, see `worker.describe_env`
    num_workers: int
    bounds: tuple[int, ...] | None = None  # each worker's first instance, then the end
    caller_steps = False  # whether the caller steps the instances below bounds[0]
    owner: int | None = None  # the only process that can use it; None for any
    plan: Plan
    arrays: Arrays
    timeout: float | None = None  # seconds that a message may take; set by `attach`

    @abc.abstractmethod
    def attach(self, settings: Settings) -> None:
        """Sets how to run the environments; makes `plan` and `arrays`."""

    @abc.abstractmethod
    def start_all(self, op: int, buffer: int) -> None:
        """Starts STEP_ALL or RESET_ALL."""

    @abc.abstractmethod
    def wait_all(self, buffer: int, timeout: float) -> int:
        """Waits for everything that was started."""

    def lock_step(self, timeout: float) -> Callable[[int], int]:
        """Returns a function that runs STEP_ALL into a given buffer and waits for it."""

        def step(buffer: int) -> int:
            self.start_all(STEP_ALL, buffer)
            return self.wait_all(buffer, timeout)

        return step

    @abc.abstractmethod
    def start_some(self, op: int, buffer: int, instances: np.ndarray) -> None:
        """Starts STEP or RESET of some instances, int32[n]."""

    @abc.abstractmethod
    def take(self, out: np.ndarray, timeout: float) -> int:
        """Waits for `len(out)` finished instances and writes their indices to `out`, int32.

        If the wait fails and no instance has finished, returns ATTENTION and writes -1.
        """

    def batch(self, order: np.ndarray | None = None) -> Any:
        """Returns the latest batch in the form of `Pool.step`, if the backend makes batches.

        Its infos are those of the environment, with masks, and the info_fields.

        Args:
            order: int32[n], the environments in the order of the rows; None for order of arrival.
        """
        raise NotImplementedError

    def flush(self, buffer: int) -> None:  # noqa: B027
        """Writes the latest batch of all to `arrays`, if the backend makes batches."""

    @abc.abstractmethod
    def message(self, kind: str, instances: Sequence[int], *what: Any) -> list[Any]:
        """Sends a message to idle environments, see `worker.perform`.

        Raises:
            EnvFailure: an environment raised.
            MessageTimeout: an environment did not answer within `timeout`.
        """

    def kept_info(self, buffer: int, instance: int) -> Any:
        """Returns an info that is not in the arrays, see `View.kept_info`; pickled or not."""
        raise NotImplementedError

    @abc.abstractmethod
    def set_options(self, options: dict[str, Any] | None) -> None:
        """Sets the options of subsequent resets."""

    @abc.abstractmethod
    def read_reports(self) -> list[Report]:
        """Returns the reports since the last call."""

    def forget(self) -> None:  # noqa: B027
        """Drops pending and finished requests after Ctrl-C.

        The next call is `wait_all`, which waits for requests that cannot be dropped.
        """

    def stuck(self, seconds: float) -> list[int]:
        """Returns the instances that have made no progress for so many seconds."""
        return []

    def restart(self, instances: Sequence[int]) -> bool:
        """Replaces instances that hang; returns False if that is impossible."""
        return False

    @property
    def is_forked_copy(self) -> bool:
        """Whether this is a copy in a fork of its owner, which cannot use it."""
        return self.owner not in (None, os.getpid())

    def close(self, grace: float) -> list[Report]:
        """Closes everything, by force after `grace` seconds; returns reports of what raised.

        A copy in a fork of the owner does nothing.
        """
        return [] if self.is_forked_copy else self._close(grace)

    @abc.abstractmethod
    def _close(self, grace: float) -> list[Report]:
        """Like `close`, in the owner."""


def split_by_owner(
    kind: str,
    instances: Sequence[int],
    what: Sequence[Any],
    owner_of: Callable[[int], int],
    ask: Callable[[int, list[int], list[Any]], Sequence[Any]],
) -> list[Any]:
    """Splits a message by owner, and returns the values in the order of `instances`.

    Args:
        kind, instances, what: the arguments of `Backend.message`.
        owner_of: returns the owner of an instance.
        ask: sends an owner the part for its instances; returns a value for each.
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
    """Returns arrays in this process's own memory, for backends that share nothing."""
    plan = settings.plan(num_envs)
    return plan, Arrays.over(plan, np.zeros(plan.size, np.uint8).data)
