"""Groups of workers, as threads or Ray actors, that are called asynchronously."""

import abc
import concurrent.futures
import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cloudpickle
import jax
import jax.numpy as jnp

from jaxenvs.errors import missing_extra

_EVERY_CALL = 2**62


class WorkerGroup(abc.ABC):
    """A group of workers. Calls return futures; each worker handles its calls in order."""

    size: int

    @abc.abstractmethod
    def call(self, worker: int, method: str, *arguments: Any) -> Any:
        """Calls a method of `worker` and returns a future."""

    @abc.abstractmethod
    def finish_early(self, worker: int, number: int) -> None:
        """Asks `worker` to end call `number` as early as allowed."""

    @abc.abstractmethod
    def wait(self, future: Any) -> Any:
        """Waits for a result. Raises the worker's exception if there is one."""

    @abc.abstractmethod
    def wait_any(self, futures: Sequence[Any], timeout: float | None = None) -> Any | None:
        """Returns the first future that has a result, or None after `timeout` seconds."""

    @abc.abstractmethod
    def close(self) -> None:
        """Stops the workers."""

    def call_all(self, method: str, *arguments: Any) -> list[Any]:
        """Calls a method of all workers and returns the results."""
        return self.wait_all([self.call(i, method, *arguments) for i in range(self.size)])

    def wait_all(self, futures: Sequence[Any]) -> list[Any]:
        """Returns all results. Raises the first error once every call has ended."""
        answers, errors = [], []
        for future in futures:
            try:
                answers.append(self.wait(future))
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return answers


class ThreadGroup(WorkerGroup):
    """A group with one thread per worker. XLA and pools release Python's global lock."""

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
            arguments = _to_device(arguments, self._devices[worker])
        return self._submit(worker, getattr(self._workers[worker], method), *arguments)

    def finish_early(self, worker: int, number: int) -> None:
        self._workers[worker].finish_early(number)

    def wait(self, future: Any) -> Any:
        answer = future.result()
        if self._devices[0] is None:
            return answer
        # A program cannot use arrays of several devices, so results move to the caller's device.
        return _to_device(answer, self._home)

    def wait_any(self, futures: Sequence[Any], timeout: float | None = None) -> Any | None:
        done, _ = concurrent.futures.wait(
            futures, timeout, return_when=concurrent.futures.FIRST_COMPLETED
        )
        return next((future for future in futures if future in done), None)

    def close(self) -> None:
        workers = [worker for worker in self._workers if worker is not None]
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.finish_early(_EVERY_CALL)
        for worker in workers:
            worker.close()  # also ends a program that waits for a hanging environment
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


class RayGroup(WorkerGroup):
    """A group with one Ray actor per worker. Ray restarts dead actors and repeats their calls."""

    def __init__(
        self, make_worker: Callable[[int], Any], size: int, resources: Mapping[str, Any]
    ) -> None:
        try:
            import ray
        except ImportError as error:
            raise missing_extra("Workers in a Ray cluster", "ray", "ray") from error
        from jaxenvs.bridge.backends.ray import Session
        from jaxenvs.bridge.workers.inheritance import inheritance
        from jaxenvs.bridge.workers.wire import pickled

        packed = pickled(make_worker, "the worker of a Scheme", to="an actor"), inheritance()
        self._ray, self.size, self._session = ray, size, Session()
        # Kept, because an actor that Ray restarts needs them again.
        self._packed = [ray.put(part) for part in packed]
        # Two concurrent calls, because `finish_early` must reach a worker during another call.
        settings = {"max_restarts": -1, "max_task_retries": -1, "max_concurrency": 2}
        self._warn_if_insufficient(resources)
        actor: Any = ray.remote(**{**settings, **resources})(_RayWorker)
        self._actors: list[Any] = [actor.remote(*self._packed, index) for index in range(size)]

    def call(self, worker: int, method: str, *arguments: Any) -> Any:
        return self._actors[worker].call.remote(method, *jax.device_get(arguments))

    def finish_early(self, worker: int, number: int) -> None:
        self._actors[worker].call.remote("finish_early", number)

    def wait(self, future: Any) -> Any:
        return self._ray.get(future)

    def wait_any(self, futures: Sequence[Any], timeout: float | None = None) -> Any | None:
        ready, _ = self._ray.wait(list(futures), num_returns=1, timeout=timeout)
        return ready[0] if ready else None

    def close(self) -> None:
        actors, self._actors = self._actors, []
        if not self._ray.is_initialized():
            return  # Ray has shut down, with its actors; `kill` would start it again
        for actor in actors:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.kill(actor)
        self._session.end()

    def _warn_if_insufficient(self, resources: Mapping[str, Any]) -> None:
        """Warns if the cluster has too few resources: Ray would wait for them silently."""
        wanted = {"CPU": resources.get("num_cpus"), "GPU": resources.get("num_gpus")}
        wanted |= {"memory": resources.get("memory"), **(resources.get("resources") or {})}
        there = self._ray.cluster_resources()
        for name, each in wanted.items():
            if each and each * self.size > there.get(name, 0.0):
                warnings.warn(
                    f"{self.size} workers ask for {each:g} {name} each, but the Ray cluster has"
                    f" {there.get(name, 0.0):g} in total.  Training waits until it has more.  Use"
                    " fewer workers, or request less in remote(..., resources=...).",
                    stacklevel=2,
                )


class _RayWorker:
    def __init__(self, make_worker: bytes, inheritance: bytes, index: int) -> None:
        from jaxenvs.bridge.workers.inheritance import take

        take(inheritance)
        self._worker = cloudpickle.loads(make_worker)(index)

    def call(self, method: str, *arguments: Any) -> Any:
        return jax.device_get(getattr(self._worker, method)(*arguments))


def _to_device(tree: Any, device: Any) -> Any:
    """Returns a tree with its arrays on `device`; Python numbers stay unchanged."""

    def move(leaf: Any) -> Any:
        return jax.device_put(leaf, device) if isinstance(leaf, jax.Array) else leaf

    return jax.tree.map(move, tree)


def make_workers(make_worker: Callable[[int], Any], size: int, resources: Any) -> WorkerGroup:
    """Returns the workers that `remote(size, resources=resources)` describes."""
    if isinstance(resources, Mapping):
        return RayGroup(make_worker, size, resources)
    return ThreadGroup(make_worker, size, resources)
