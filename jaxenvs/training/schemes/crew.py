"""Workers, wherever they are: calls that return at once, and waiting for what they answer."""

import abc
import concurrent.futures
import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxenvs.errors import missing_extra

_EVERY_CALL = 2**62


class Crew(abc.ABC):
    """Some workers. A call returns a future; each worker answers in the order of its calls."""

    size: int

    @abc.abstractmethod
    def call(self, worker: int, method: str, *arguments: Any) -> Any:
        """Has `worker` call one of its methods; returns a future."""

    @abc.abstractmethod
    def hurry(self, worker: int, number: int) -> None:
        """Tells `worker` to end the call of this number as soon as it may."""

    @abc.abstractmethod
    def result(self, future: Any) -> Any:
        """Waits for an answer. What was raised over there is raised here."""

    @abc.abstractmethod
    def first(self, futures: Sequence[Any], timeout: float | None = None) -> Any | None:
        """Waits until one of them has its answer, and returns that one; None after `timeout` s."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the workers."""

    def all(self, method: str, *arguments: Any) -> list[Any]:
        """The answers of all workers to one call."""
        return self.results([self.call(i, method, *arguments) for i in range(self.size)])

    def results(self, futures: Sequence[Any]) -> list[Any]:
        """All answers. What one of them raised is raised when none is under way any more."""
        answers, errors = [], []
        for future in futures:
            try:
                answers.append(self.result(future))
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return answers


class Threads(Crew):
    """A thread for each worker. XLA computes without Python's lock, and so do pools wait."""

    def __init__(
        self, make_worker: Callable[[int], Any], size: int, devices: Sequence[Any] | None
    ) -> None:
        self.size = size
        self._devices = [None] * size
        if devices:
            self._devices = [devices[i % len(devices)] for i in range(size)]
            (self._home,) = jnp.zeros(()).devices()
        self._threads = [
            concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix=f"jaxenvs-worker-{i}")
            for i in range(size)
        ]
        self._workers: list[Any] = [None] * size
        try:
            making = [self._submit(i, self._make, make_worker, i) for i in range(size)]
            for future in making:
                future.result()
        except BaseException:
            self.close()
            raise

    def call(self, worker: int, method: str, *arguments: Any) -> Any:
        if self._devices[worker] is not None:
            arguments = _moved(arguments, self._devices[worker])
        return self._submit(worker, getattr(self._workers[worker], method), *arguments)

    def hurry(self, worker: int, number: int) -> None:
        self._workers[worker].hurry(number)

    def result(self, future: Any) -> Any:
        answer = future.result()
        if self._devices[0] is None:
            return answer
        # No program takes arrays of several devices: all come to where those who call compute.
        return _moved(answer, self._home)

    def first(self, futures: Sequence[Any], timeout: float | None = None) -> Any | None:
        done, _ = concurrent.futures.wait(
            futures, timeout, return_when=concurrent.futures.FIRST_COMPLETED
        )
        return next((future for future in futures if future in done), None)

    def close(self) -> None:
        workers = [worker for worker in self._workers if worker is not None]
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.hurry(_EVERY_CALL)
        for worker in workers:
            worker.close()  # which also ends a program that waits for an environment that hangs
        for thread in self._threads:
            thread.shutdown(wait=True)
        self._workers = [None] * self.size

    def _make(self, make_worker: Callable[[int], Any], index: int) -> None:
        self._workers[index] = make_worker(index)

    def _submit(self, worker: int, function: Callable[..., Any], *arguments: Any) -> Any:
        device = self._devices[worker]

        def run() -> Any:
            place = contextlib.nullcontext() if device is None else jax.default_device(device)
            with place:
                return function(*arguments)

        return self._threads[worker].submit(run)


class RayActors(Crew):
    """A Ray actor for each worker. Ray makes one that died anew, and calls it again."""

    def __init__(
        self, make_worker: Callable[[int], Any], size: int, resources: Mapping[str, Any]
    ) -> None:
        try:
            import ray
        except ImportError as error:
            raise missing_extra("Workers with resources of a cluster", "ray", "ray") from error
        from jaxenvs.bridge.backends.ray import Session

        self._ray, self.size, self._session = ray, size, Session()
        # Two calls at a time, so that a worker can be told to hurry; never two of the others.
        settings = {"max_restarts": -1, "max_task_retries": -1, "max_concurrency": 2}
        self._warn_of_too_little(resources)
        actor: Any = ray.remote(**{**settings, **resources})(_Actor)
        self._actors: list[Any] = [actor.remote(make_worker, index) for index in range(size)]

    def call(self, worker: int, method: str, *arguments: Any) -> Any:
        return self._actors[worker].call.remote(method, *jax.device_get(arguments))

    def hurry(self, worker: int, number: int) -> None:
        self._actors[worker].call.remote("hurry", number)

    def result(self, future: Any) -> Any:
        return self._ray.get(future)

    def first(self, futures: Sequence[Any], timeout: float | None = None) -> Any | None:
        ready, _ = self._ray.wait(list(futures), num_returns=1, timeout=timeout)
        return ready[0] if ready else None

    def close(self) -> None:
        actors, self._actors = self._actors, []
        if not self._ray.is_initialized():
            return  # it ended before, and they with it; asked to kill, it would start anew
        for actor in actors:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.kill(actor)
        self._session.end()

    def _warn_of_too_little(self, resources: Mapping[str, Any]) -> None:
        """Ray waits without a word for what a cluster does not have, since it may grow."""
        wanted = {"CPU": resources.get("num_cpus"), "GPU": resources.get("num_gpus")}
        wanted |= {"memory": resources.get("memory"), **(resources.get("resources") or {})}
        there = self._ray.cluster_resources()
        for name, each in wanted.items():
            if each and each * self.size > there.get(name, 0.0):
                warnings.warn(
                    f"{self.size} workers ask for {each:g} {name} each, and the Ray cluster has"
                    f" {there.get(name, 0.0):g} in all: training waits until it has more.  Ask for"
                    " fewer workers, or for less in remote(..., resources=...).",
                    stacklevel=2,
                )


class _Actor:
    def __init__(self, make_worker: Callable[[int], Any], index: int) -> None:
        self._worker = make_worker(index)

    def call(self, method: str, *arguments: Any) -> Any:
        return jax.device_get(getattr(self._worker, method)(*arguments))


def _moved(tree: Any, device: Any) -> Any:
    """The arrays of a tree on another device; numbers stay what they are."""

    def move(leaf: Any) -> Any:
        return jax.device_put(leaf, device) if isinstance(leaf, jax.Array) else leaf

    return jax.tree.map(move, tree)


def recruit(make_worker: Callable[[int], Any], size: int, resources: Any) -> Crew:
    """The workers that `remote(size, resources=resources)` asks for."""
    if isinstance(resources, Mapping):
        return RayActors(make_worker, size, resources)
    return Threads(make_worker, size, resources)
