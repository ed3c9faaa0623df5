"""Anonymous shared memory, which leaves no file behind.

On Linux it is a memfd, which exists as long as a process has it open. Elsewhere it is a file in the
temporary folder, deleted right after creation. Workers receive the file descriptor.
"""

import mmap
import os
import tempfile

from jaxenvs.errors import PoolError

_PLACE = 2**32  # the size of a place in an overflow, in bytes
_SPARE = 64 * 2**20  # bytes of memory that a pool leaves free
_CGROUPS = (  # the memory limit and use of this process's cgroup, versions 2 and 1
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


class Segment:
    """A block of zeroed shared memory. Other processes map it through `fd`.

    Args:
        size: the number of bytes.

    Raises:
        PoolError: the machine or the process's cgroup does not have that much memory.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        # The kernel would grant too much, and later kill a process that writes to it.
        available = available_memory()
        if available is not None and size > available - _SPARE:
            raise PoolError(_shortage(size, f"{available / 2**30:.2f} GiB are available"))
        self.fd = _anonymous_file()
        try:
            _allocate(self.fd, size)
            self.memory = mmap.mmap(self.fd, size)
        except OSError as error:
            self.close()
            raise PoolError(_shortage(size, error.strerror or str(error))) from error

    def close(self) -> None:
        """Closes the descriptor. The memory is freed once no process uses it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Overflow:
    """Places for data of any length, in a segment's file behind the mapped memory.

    A place takes memory once it is written, and outlives the process that wrote it.

    Args:
        fd: the segment's file descriptor.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, place: int, data: bytes, at: int = 0) -> None:
        """Writes data at byte `at` of a place."""
        os.pwrite(self._fd, data, (1 + place) * _PLACE + at)

    def read(self, place: int, size: int, at: int = 0) -> bytes:
        """Reads `size` bytes at byte `at` of a place."""
        return os.pread(self._fd, size, (1 + place) * _PLACE + at)


def available_memory() -> int | None:
    """Returns how many bytes are available without swapping; None if unknown."""
    lines = _read("/proc/meminfo").splitlines()
    found = [int(each.split()[1]) * 1024 for each in lines if each.startswith("MemAvailable:")]
    for limit, used in ((_read(limit), _read(used)) for limit, used in _CGROUPS):
        if limit.strip().isdecimal() and used.strip().isdecimal():  # else "max", or no such file
            found.append(max(0, int(limit) - int(used)))
    return min(found, default=None)


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


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
    # Allocate now: a page that cannot be allocated later kills the process with SIGBUS.
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
    else:
        os.ftruncate(fd, size)
