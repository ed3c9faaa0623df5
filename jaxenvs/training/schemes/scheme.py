"""What is done where: collection, gradients and updates, centrally or by workers."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax

from jaxenvs.core import Environment, VectorEnv
from jaxenvs.errors import TrainingError
from jaxenvs.training._validation import check_integer
from jaxenvs.training.actors.base import Actor
from jaxenvs.training.algorithms.base import Algorithm
from jaxenvs.training.storages.base import Storage

Resources = Sequence[Any] | Mapping[str, Any] | None
MakesEnv = Callable[[], "VectorEnv | Environment | str"]
_PIECES = (4, 3, 2, 5, 7)  # that an unroll is collected in, if it may end early


@dataclasses.dataclass(frozen=True)
class Central:
    """Done by the learner itself."""

    n = 1
    sync = True
    resources = None


@dataclasses.dataclass(frozen=True)
class Remote:
    """Done by `n` workers, see `remote`."""

    n: int
    sync: bool
    resources: Resources


def central() -> Central:
    """The operation is done by the learner itself."""
    return Central()


def remote(n: int, *, sync: bool = True, resources: Resources = None) -> Remote:
    """The operation is done by `n` workers.

    Without `sync`, collectors act with weights that are about `n` updates old. `VTrace` corrects
    for that and PPO's ratio for most of it; memories do not mind. A2C and VPG with `GAE` or
    `Rollout` are accepted and corrected by nothing, so keep `n` small there. Of gradients that are
    applied as they come, `target_kl` ends those on the unroll of the worker that saw it passed.

    Where several collectors share a memory and are not all waited for, or may be restarted, it cuts
    returns of several steps and hindsight's goals at the end of each unroll: make `unroll_length`
    several times `n_step`.

    Args:
        n: how many.
        sync: whether all are waited for; else each one's result is used as it comes, while the
            others go on with the weights that they were given last.
        resources: None makes them threads of this process, on the default device; a sequence of
            devices makes them threads on these devices in turn; a mapping such as {"num_cpus": 1}
            makes them Ray actors, each with so much of the cluster (needs the extra `ray`), and
            started anew as often as they die, unless "max_restarts" says otherwise.

    Raises:
        TrainingError: `n` is no number from 1 on, or `sync` or `resources` is none of these.
    """
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise TrainingError(f"remote got n={n!r}; it takes a number of workers, from 1 on.")
    if not isinstance(sync, bool):
        raise TrainingError(f"remote got sync={sync!r}; it takes True or False.")
    are_devices = isinstance(resources, Sequence) and all(
        isinstance(each, jax.Device) for each in resources
    )
    if not (resources is None or isinstance(resources, Mapping) or (are_devices and resources)):
        raise TrainingError(
            f"remote got resources={resources!r:.60}; it takes a list of devices, such as"
            " jax.devices(), or a mapping for Ray, such as {'num_cpus': 1}."
        )
    return Remote(n=n, sync=sync, resources=resources)


@dataclasses.dataclass(frozen=True)
class Scheme:
    """A training's parts, and where each operation runs.

    Every worker that computes gradients has its own group of workers that collect, and its own
    storage. So with collection=remote(c) and gradients=remote(g) there are g times c collectors.

    Raises:
        TrainingError: the choices contradict each other; the message says which.
    """

    env: VectorEnv | Environment | str | MakesEnv  # a function is called by each collector
    algorithm: Algorithm | None = None  # None: PPO, with defaults for the spaces
    actor: Actor | None = None  # None: the algorithm's
    storage: Storage | None = None  # None: the algorithm's
    num_envs: int | None = None  # instances of each collector, 16; of a `VectorEnv` its own number
    unroll_length: int = 32  # steps of each instance at a time
    collection: Central | Remote = dataclasses.field(default_factory=central)
    gradients: Central | Remote = dataclasses.field(default_factory=central)
    update: Literal["centralized", "decentralized"] = "centralized"
    fraction_workers: float = 1.0  # of synchronous collectors that are waited for
    fraction_samples: float = 1.0  # of its unroll that each of the others must have; see `pieces`
    log_info: Sequence[str] = ()  # names in `info` that become metrics, see `make_train`

    def __post_init__(self) -> None:
        check_integer("Scheme got unroll_length", self.unroll_length)
        if self.num_envs is not None:
            check_integer("Scheme got num_envs", self.num_envs)
        problems = list(self._problems())
        if problems:
            raise TrainingError("the scheme contradicts itself:\n  " + "\n  ".join(problems))

    @property
    def is_fused(self) -> bool:
        """Whether everything is one program of one device."""
        return isinstance(self.collection, Central) and isinstance(self.gradients, Central)

    @property
    def pieces(self) -> int:
        """How many parts an unroll is collected in: 1, unless collection may end early.

        Learned from is each part by itself, so that all are of one length: advantages look no
        further ahead than its end.
        """
        if self.fraction_workers == 1 and self.fraction_samples == 1:
            return 1
        return next((p for p in _PIECES if self.unroll_length % p == 0), 0)

    def _problems(self) -> Any:
        for name in ("collection", "gradients"):
            place = getattr(self, name)
            if not isinstance(place, Central | Remote):
                yield f"{name}={place!r} is none of central() and remote(n)."
                return
        if self.update not in ("centralized", "decentralized"):
            yield f'update="{self.update}"; choose "centralized" or "decentralized".'
        if self.update == "decentralized" and not (
            isinstance(self.gradients, Remote) and self.gradients.sync
        ):
            yield (
                'update="decentralized" averages the gradients of synchronous workers, but'
                f" gradients={_named(self.gradients)}.  Pass gradients=remote(n, sync=True), or"
                ' update="centralized".'
            )
        for name in ("fraction_workers", "fraction_samples"):
            share = getattr(self, name)
            if not isinstance(share, int | float) or not 0 < share <= 1:
                yield f"{name}={share!r}; it is a share above 0, and 1 at most."
                return
        is_early = self.fraction_workers < 1 or self.fraction_samples < 1
        if is_early and not (isinstance(self.collection, Remote) and self.collection.sync):
            yield (
                "fraction_workers and fraction_samples end synchronous collection early, but"
                f" collection={_named(self.collection)}.  Pass collection=remote(n, sync=True)."
            )
        if is_early and not self.pieces:
            yield (
                f"unroll_length={self.unroll_length} cannot be collected in parts, as"
                " fraction_workers and fraction_samples ask.  Choose a multiple of 4, 3 or 2."
            )
        if isinstance(self.env, VectorEnv) and self.collection.n * self.gradients.n > 1:
            yield (
                f"env is one VectorEnv for {self.collection.n * self.gradients.n} collectors."
                "  Pass an id, a single environment, or a function that makes one for each."
            )
        normalizes = [
            name
            for name in ("normalize_observations", "normalize_rewards")
            if getattr(self.algorithm, name, False)
        ]
        if normalizes and isinstance(self.gradients, Remote):
            yield (
                f"{' and '.join(normalizes)} keep statistics, which workers that compute gradients"
                " would each have for themselves.  Wrap the environment in NormalizeObservation or"
                " NormalizeReward, compute gradients centrally, or use `shard`."
            )


def _named(place: Central | Remote) -> str:
    if isinstance(place, Central):
        return "central()"
    return f"remote({place.n}, sync={place.sync})"
