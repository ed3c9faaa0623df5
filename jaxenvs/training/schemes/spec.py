"""A scheme and what all of its workers derive from it."""

import contextlib
import dataclasses
import functools
import inspect
import math
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from jaxenvs.bridge.jit import HostEnv
from jaxenvs.core import Environment, VectorEnv
from jaxenvs.errors import TrainingError
from jaxenvs.training.algorithms.algorithm import Algorithm
from jaxenvs.training.assembly import assemble, default_algorithm, resolve
from jaxenvs.training.schemes.scheme import Central, Scheme
from jaxenvs.training.train_program import Train
from jaxenvs.vector.vectorized_env import VectorizedEnv
from jaxenvs.wrappers.independent_agents import batch_of

_NUM_ENVS = 16  # the default of a scheme


@dataclasses.dataclass(frozen=True)
class TrainingSpec:
    """A scheme and the objects that its workers derive from it."""

    scheme: Scheme
    total_steps: int
    seed: int

    @property
    def awaited_workers(self) -> int:
        """The number of synchronous collectors that must finish their unrolls."""
        return math.ceil(self.scheme.fraction_workers * self.scheme.collection.n)

    @property
    def min_chunks(self) -> int:
        """The number of chunks that each of the other collectors needs by then."""
        return math.ceil(self.scheme.fraction_samples * self.scheme.chunks)

    @property
    def chunks_per_update(self) -> int:
        """The number of chunks per update."""
        if not self.scheme.collection.sync:
            return 1
        others = self.scheme.collection.n - self.awaited_workers
        return self.awaited_workers * self.scheme.chunks + others * self.min_chunks

    @functools.cached_property
    def algorithm(self) -> Algorithm:
        """The scheme's algorithm; by default PPO with settings for the spaces."""
        scheme = self.scheme
        if scheme.algorithm is not None:
            return scheme.algorithm
        return default_algorithm(
            self._env,
            scheme.actor,
            scheme.unroll_length // scheme.chunks,
            # Gradient workers cannot share normalization statistics.
            normalize=isinstance(scheme.gradients, Central),
        )

    @functools.cached_property
    def train(self) -> Train:
        """The training program whose `collect` and `learn` the workers and the learner call.

        Its environments are those of the first collector in this process.
        """
        scheme, algorithm, learners = self.scheme, self.algorithm, self.scheme.gradients.n
        train = assemble(
            self._env,
            algorithm,
            actor=scheme.actor,
            storage=scheme.storage,
            unroll_length=scheme.unroll_length // scheme.chunks,
            total_steps=self.total_steps,
            log_info=scheme.log_info,
        )
        if scheme.gradients.sync:
            algorithm = algorithm.per_device(learners)
        rows = train.env.num_envs * self.chunks_per_update
        algorithm.check_sizes(train.networks, rows, train.unroll_length)
        train = train.replace(
            algorithm=algorithm, collectors=self.chunks_per_update, learners=learners
        )
        return train.replace(num_updates=-(-self.total_steps // train.context.steps_per_update))

    def train_of(self, collector: int) -> Train:
        """Returns a collector's training program, with separate environments if they are hosted."""
        train = self.train
        if isinstance(batch_of(train.env), VectorizedEnv):
            return train  # native environments can be shared
        if vars(self).setdefault("first_collector", collector) == collector:
            return train
        return train.replace(env=self._make_env())

    def key(self, *numbers: int) -> Any:
        """Returns a different key for each sequence of numbers."""
        return functools.reduce(jax.random.fold_in, numbers, jax.random.key(self.seed))

    def close_env(self, env: VectorEnv) -> None:
        """Closes hosted environments, unless the user passed them and has to close them."""
        if not isinstance(self.scheme.env, VectorEnv):
            env.close()

    @contextlib.contextmanager
    def closing_on_error(self) -> Iterator[None]:
        """Closes the environments if making an executor fails."""
        try:
            yield
        except BaseException:
            if "_env" in vars(self):
                self.close_env(self._env)
            raise

    def close_unused_env(self) -> None:
        """Closes the hosted environments of this process if other processes collect."""
        places = (self.scheme.collection, self.scheme.gradients)
        if any(isinstance(place.resources, Mapping) for place in places):
            self.close_env(self._env)

    @functools.cached_property
    def _env(self) -> VectorEnv:
        """The environments of the first collector in this process."""
        return self._make_env()

    def _make_env(self) -> VectorEnv:
        env, number = call_env_factory(self.scheme.env), self.scheme.num_envs
        if number is None and not isinstance(env, VectorEnv):
            number = _NUM_ENVS
        return resolve(env, number)

    def __reduce__(self) -> Any:
        return TrainingSpec, (self.scheme, self.total_steps, self.seed)  # no cached properties


def call_env_factory(env: Any) -> Any:
    """Returns `env()` if `env` is a function that makes an environment, otherwise `env`."""
    if not callable(env) or isinstance(env, Environment | VectorEnv):
        return env
    try:
        inspect.signature(env).bind()
    except TypeError as error:  # it has parameters
        raise TrainingError(
            f"the scheme got env={env!r:.80}, which needs arguments: {error}.  Pass a function"
            " without parameters; each collector calls it."
        ) from error
    except ValueError:  # its signature is unknown
        pass
    return env()


def find_host_env(env: VectorEnv) -> HostEnv | None:
    """Returns the hosted environments inside wrappers, or None for native environments."""
    hosts = env.unwrapped
    return hosts if isinstance(hosts, HostEnv) else None
