"""Schemes: the parts of a training run, and the places where its operations run."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax

from jaxenvs.core import Environment, VectorEnv
from jaxenvs.errors import TrainingError, check_integer
from jaxenvs.training.actors.actor import Actor
from jaxenvs.training.algorithms.algorithm import Algorithm
from jaxenvs.training.storages.storage import Storage

Resources = Sequence[Any] | Mapping[str, Any] | None
MakesEnv = Callable[[], "VectorEnv | Environment | str"]
_CHUNK_COUNTS = (4, 3, 2, 5, 7)  # candidates for `Scheme.chunks`, best first


@dataclasses.dataclass(frozen=True)
class Central:
    """The learner's own process and thread as the place of an operation."""

    n = 1
    sync = True
    resources = None


@dataclasses.dataclass(frozen=True)
class Remote:
    """Workers as the place of an operation, see `remote`."""

    n: int
    sync: bool
    resources: Resources


def central() -> Central:
    """Runs an operation in the learner itself."""
    return Central()


def remote(n: int, *, sync: bool = True, resources: Resources = None) -> Remote:
    """Runs an operation in `n` workers.

    With `sync=False`, collectors act with weights that are about `n` updates old. `VTrace` corrects
    for that, and PPO's ratio for most of it; replay memories need no correction. A2C and VPG with
    `GAE` or `DiscountedReturns` do not correct for it, so keep `n` small. If gradients are applied
    asynchronously, `target_kl` stops only the worker that exceeded it.

    If several collectors share a replay memory and are asynchronous, end early or may restart,
    n-step returns and hindsight goals are cut at the end of each unroll. In this case, make
    `unroll_length` several times as large as `n_step`.

    Args:
        n: the number of workers.
        sync: whether the learner waits for all workers. Otherwise it uses each result as it
            arrives, while the other workers continue with the last weights they received.
        resources: None makes threads of this process, on the default device. A sequence of
            devices makes threads that are assigned to these devices in turn. A mapping such as
            {"num_cpus": 1} makes Ray actors with these resources each (needs the extra `ray`).
            Ray restarts actors that die, without a limit unless "max_restarts" is given.

    Raises:
        TrainingError: `n` is not a positive integer, or `sync` or `resources` is invalid.
    """
    check_integer(TrainingError, "remote got n", n)
    if not isinstance(sync, bool):
        raise TrainingError(f"remote got sync={sync!r}; expected True or False.")
    are_devices = isinstance(resources, Sequence) and all(
        isinstance(each, jax.Device) for each in resources
    )
    if not (resources is None or isinstance(resources, Mapping) or (are_devices and resources)):
        raise TrainingError(
            f"remote got resources={resources!r:.60}; expected a list of devices, such as"
            " jax.devices(), or a mapping for Ray, such as {'num_cpus': 1}."
        )
    return Remote(n=n, sync=sync, resources=resources)


@dataclasses.dataclass(frozen=True)
class Scheme:
    """The parts of a training run, and the place where each operation runs.

    Every gradient worker has its own group of collectors and its own storage, so with
    collection=remote(c) and gradients=remote(g) there are g times c collectors.

    Raises:
        TrainingError: options contradict each other; the message lists them.
    """

    env: VectorEnv | Environment | str | MakesEnv  # a function is called by each collector
    algorithm: Algorithm | None = None  # None: PPO with defaults for the spaces
    actor: Actor | None = None  # None: the algorithm's default
    storage: Storage | None = None  # None: the algorithm's default
    num_envs: int | None = None  # per collector; None: 16, or that of a `VectorEnv`
    unroll_length: int = 32  # steps of each instance between two updates
    collection: Central | Remote = dataclasses.field(default_factory=central)
    gradients: Central | Remote = dataclasses.field(default_factory=central)
    update: Literal["centralized", "decentralized"] = "centralized"
    fraction_workers: float = 1.0  # fraction of synchronous collectors that must finish
    fraction_samples: float = 1.0  # fraction of an unroll that the others need, see `chunks`
    log_info: Sequence[str] = ()  # names in `info` to log, see `make_train`

    def __post_init__(self) -> None:
        check_integer(TrainingError, "Scheme got unroll_length", self.unroll_length)
        if self.num_envs is not None:
            check_integer(TrainingError, "Scheme got num_envs", self.num_envs)
        problems = list(self._problems())
        if problems:
            raise TrainingError("the scheme contradicts itself:\n  " + "\n  ".join(problems))

    @property
    def is_fused(self) -> bool:
        """Whether everything is one program on one device."""
        return isinstance(self.collection, Central) and isinstance(self.gradients, Central)

    @property
    def chunks(self) -> int:
        """The number of chunks in which an unroll is collected: 1 unless collection may end early.

        Algorithms learn from each chunk separately, because compiled programs need a fixed length.
        Advantages are estimated within a chunk.
        """
        if self.fraction_workers == 1 and self.fraction_samples == 1:
            return 1
        return next((p for p in _CHUNK_COUNTS if self.unroll_length % p == 0), 0)

    def _problems(self) -> Any:
        for name in ("collection", "gradients"):
            place = getattr(self, name)
            if not isinstance(place, Central | Remote):
                yield f"{name}={place!r}; expected central() or remote(n)."
                return
        if self.update not in ("centralized", "decentralized"):
            yield f'update="{self.update}"; expected "centralized" or "decentralized".'
        if self.update == "decentralized" and not (
            isinstance(self.gradients, Remote) and self.gradients.sync
        ):
            yield (
                'update="decentralized" averages the gradients of synchronous workers, but'
                f" gradients={_describe(self.gradients)}.  Pass gradients=remote(n, sync=True), or"
                ' update="centralized".'
            )
        for name in ("fraction_workers", "fraction_samples"):
            share = getattr(self, name)
            if not isinstance(share, int | float) or not 0 < share <= 1:
                yield f"{name}={share!r}; it must be above 0 and at most 1."
                return
        is_early = self.fraction_workers < 1 or self.fraction_samples < 1
        if is_early and not (isinstance(self.collection, Remote) and self.collection.sync):
            yield (
                "fraction_workers and fraction_samples end synchronous collection early, but"
                f" collection={_describe(self.collection)}.  Pass collection=remote(n, sync=True)."
            )
        if is_early and not self.chunks:
            yield (
                f"unroll_length={self.unroll_length} cannot be collected in chunks, which"
                " fraction_workers and fraction_samples need.  Choose a multiple of 4, 3 or 2."
            )
        if isinstance(self.env, VectorEnv) and self.collection.n * self.gradients.n > 1:
            yield (
                f"env is one VectorEnv for {self.collection.n * self.gradients.n} collectors."
                "  Pass an id, a single environment, or a function that makes an environment."
            )
        normalizes = [
            name
            for name in ("normalize_observations", "normalize_rewards")
            if getattr(self.algorithm, name, False)
        ]
        if normalizes and isinstance(self.gradients, Remote):
            yield (
                f"{' and '.join(normalizes)} keep statistics, which gradient workers cannot share."
                "  Wrap the environment in NormalizeObservation or"
                " NormalizeReward, compute gradients centrally, or use `shard`."
            )


def _describe(place: Central | Remote) -> str:
    if isinstance(place, Central):
        return "central()"
    return f"remote({place.n}, sync={place.sync})"
