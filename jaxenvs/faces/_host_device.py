"""The device on which NumPy interfaces run environments."""

import functools

import jax


@functools.cache
def host_device() -> jax.Device:
    """Returns a CPU device that runs a program in the thread that calls it.

    JAX's own CPU device hands all but the smallest programs to another thread. If other processes
    keep the cores busy, it takes 50 us until that thread runs, ten times as long as a small step.

    It is a device of its own: arrays have to be put on it, and from it on one of `jax.devices()`.
    """
    try:
        from jaxlib import xla_client  # JAX has an option for whole processes only

        return xla_client.make_cpu_client(asynchronous=False, num_devices=1).devices()[0]
    except (ImportError, AttributeError, TypeError):  # it is not a public interface
        return jax.devices("cpu")[0]
