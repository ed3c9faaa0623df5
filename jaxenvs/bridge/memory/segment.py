"""Anonymous shared memory, which leaves no file behind.

On Linux it is a memfd, an open file that exists while any process holds it and is passed to workers
as a descriptor. Elsewhere it is a file in the temporary folder, deleted right after creation.
"""

import mmap
import os
import tempfile

from jaxenvs.errors import PoolError

_SPARE = 64 * 2**20  # bytes that a pool leaves available


class Segment:
    """A block of shared memory, initially zero, that other processes map by `fd`.

    Args:
        size: the number of bytes.
        fd: the descriptor of an existing segment; None makes a new one.

    Raises:
        PoolError: the machine does not have that much memory.
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
        """Closes the descriptor; the memory is freed when nothing uses it any more."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def check_memory(size: int) -> None:
    """Raises if `size` bytes would exhaust the machine.

    The kernel would otherwise grant them, and kill a process when they are written to.

    Raises:
        PoolError: less memory is available, or the process's cgroup allows less.
    """
    available = available_memory()
    if available is not None and size > available - _SPARE:
        raise PoolError(_shortage(size, f"{available / 2**30:.2f} GiB are available"))


def available_memory() -> int | None:
    """Returns the bytes available without swapping; None if the system does not say."""
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
    # Allocated now, because a page that is missing later kills the process with SIGBUS.
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
    """Returns the remaining memory of this process's cgroup, for versions 2 and 1."""
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
