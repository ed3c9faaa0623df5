"""Memory that several processes share, without a name and so without a trace.

On Linux it is a memfd: an open file that exists as long as somebody has it, handed to workers as
a descriptor. Elsewhere it is a file in the temporary folder that is deleted at once.
"""

import mmap
import os
import tempfile

from jaxenvs.errors import PoolError

_SPARE = 64 * 2**20  # bytes that a pool leaves to others


class Segment:
    """`size` bytes of zeros that other processes map by `fd`.

    Args:
        size: bytes.
        fd: the descriptor of a segment made elsewhere; None makes one.

    Raises:
        PoolError: the machine has less memory than that.
    """

    def __init__(self, size: int, fd: int | None = None) -> None:
        self.size = size
        if fd is not None:
            self.fd, self.memory = fd, mmap.mmap(fd, size)
            return
        check_memory(size)
        self.fd = _anonymous_file()
        try:
            _allocate(self.fd, size)
            self.memory = mmap.mmap(self.fd, size)
        except OSError as error:
            self.close()
            raise PoolError(_shortage(size, error.strerror or str(error))) from error

    def close(self) -> None:
        """Gives the descriptor back; the memory goes when nothing uses it any more."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def check_memory(size: int) -> None:
    """Raises where `size` bytes would exhaust the machine.

    The kernel would otherwise grant them, and kill some process when they are written to.

    Raises:
        PoolError: less is available, or allowed to this group of processes.
    """
    available = available_memory()
    if available is not None and size > available - _SPARE:
        raise PoolError(_shortage(size, f"{available / 2**30:.2f} GiB are available"))


def available_memory() -> int | None:
    """Bytes that can be had without swapping; None where the system does not tell."""
    found = [value for value in (_meminfo(), *_cgroup_limits()) if value is not None]
    return min(found) if found else None


def _shortage(size: int, why: str) -> str:
    return (
        f"the pool needs {size / 2**30:.2f} GiB of shared memory: {why}."
        "  Use fewer environments or smaller observations."
    )


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("jaxenvs-pool", os.MFD_CLOEXEC)
    fd, path = tempfile.mkstemp(prefix="jaxenvs-pool-")
    os.unlink(path)
    return fd


def _allocate(fd: int, size: int) -> None:
    # Claimed now: a page that is missing later is no error, but a signal that kills.
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
    else:
        os.ftruncate(fd, size)


def _meminfo() -> int | None:
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _cgroup_limits() -> list[int | None]:
    """What is left of the limits on this process's groups, version 2 and 1."""
    pairs = (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    )
    return [_left(limit, used) for limit, used in pairs]


def _left(limit_path: str, used_path: str) -> int | None:
    try:
        with open(limit_path) as limit, open(used_path) as used:
            text = limit.read().strip()
            return None if text == "max" else max(0, int(text) - int(used.read()))
    except (OSError, ValueError):
        return None
