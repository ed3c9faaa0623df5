"""Messages between processes: pickles prefixed with their length, plus file descriptors."""

import io
import os
import socket
import struct
import sys
import types
from typing import Any

import cloudpickle

from jaxenvs.errors import PoolError

_LENGTH = struct.Struct("<Q")
_MAX_FDS = 8


def encoded(text: str) -> bytes:
    """Returns any text as UTF-8, also if it has surrogates, which file names may contain."""
    return text.encode(errors="backslashreplace")


def send(sock: socket.socket, message: Any, fds: tuple[int, ...] = ()) -> None:
    """Sends a message and descriptors."""
    send_packed(sock, dumps(message), fds)


def send_packed(sock: socket.socket, data: bytes, fds: tuple[int, ...] = ()) -> None:
    """Sends a message that is already pickled."""
    # The descriptors go with the length, which arrives in one piece; the rest may be split.
    socket.send_fds(sock, [_LENGTH.pack(len(data))], fds)
    sock.sendall(data)


def pickled(message: Any, what: str, advice: str = "", *, to: str = "a worker process") -> bytes:
    """Returns a pickled message.

    Args:
        message: what to pickle.
        what: names it in the error.
        advice: ends the error.
        to: where it is sent.

    Raises:
        PoolError: it cannot be pickled.
    """
    try:
        return dumps(message)
    except Exception as error:
        raise PoolError(
            f"{what} cannot be sent to {to}: {type(error).__name__}: {error}.{advice}"
        ) from error


def dumps(message: Any) -> bytes:
    """Returns a pickled message, with what another process cannot import by its name in it."""
    with io.BytesIO() as file:
        _Pickler(file).dump(message)
        return file.getvalue()


class _Pickler(cloudpickle.Pickler):
    """Pickles functions, classes and modules by value if only this process has their module.

    By itself, cloudpickle does so for those of `__main__` and of no module.
    """

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self._seen = {"__main__"}

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (type, types.FunctionType, types.ModuleType)):
            is_module = isinstance(obj, types.ModuleType)
            name = obj.__name__ if is_module else obj.__module__
            module = sys.modules.get(name) if isinstance(name, str) else None
            if name == "jax" and obj is getattr(module, "Array", None):
                return getattr, (module, "Array")  # whose own name leads nowhere until jax 0.11
            if module is not None and name not in self._seen and module.__name__ == name:
                self._seen.add(name)
                if not is_importable(module):  # now or ever, so this is for good
                    cloudpickle.register_pickle_by_value(module)
        return super().reducer_override(obj)


def is_importable(module: types.ModuleType) -> bool:
    """Returns whether another process with the same `sys.path` can import a module by its name.

    It cannot if the module was loaded from a file elsewhere or under another name, as by
    `spec_from_file_location` and `runpy`, or if it is the script of a child process
    (`__mp_main__`).
    """
    name, file = module.__name__, getattr(module, "__file__", None)
    if file is not None and not file.endswith((".py", ".pyc")):
        return True  # its classes, written in C, have no value that can be pickled
    root, _, rest = name.partition(".")
    if rest and not os.path.isabs(file or ""):  # its package makes it, as torch.ops
        return root in sys.modules and is_importable(sys.modules[root])
    path = None
    if rest:
        path = getattr(sys.modules.get(name.rpartition(".")[0]), "__path__", ())
    finders = (each for each in sys.meta_path if hasattr(each, "find_spec"))
    found = (finder.find_spec(name, path) for finder in finders)
    spec = next((spec for spec in found if spec is not None), None)
    if spec is None or file is None or not spec.has_location:
        return spec is not None
    return os.path.realpath(spec.origin or "") == os.path.realpath(file)


def receive(sock: socket.socket) -> tuple[Any, list[int]]:
    """Waits for a message and its descriptors.

    Raises:
        EOFError: the other side closed the connection.
        TimeoutError: the timeout of the socket is over.
    """
    data, fds = receive_packed(sock)
    try:
        return cloudpickle.loads(data), fds
    except BaseException:  # anything, since unpickling runs code
        _close(fds)
        raise


def receive_packed(sock: socket.socket) -> tuple[bytes, list[int]]:
    """Like `receive`, but returns the message pickled."""
    fds: list[int] = []
    try:
        head, fds, _, _ = socket.recv_fds(sock, _LENGTH.size, _MAX_FDS)
        head = _filled(sock, head, _LENGTH.size)
        return _filled(sock, b"", _LENGTH.unpack(head)[0]), fds
    except BaseException as error:
        _close(fds)
        if isinstance(error, ConnectionError):
            raise EOFError("the other process has ended") from error
        raise


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _filled(sock: socket.socket, begin: bytes, size: int) -> bytes:
    """Receives what is missing of `size` bytes."""
    data = bytearray(begin)
    while len(data) < size:
        piece = sock.recv(min(size - len(data), 1 << 20))
        if not piece:
            raise EOFError("the other process has ended")
        data += piece
    return bytes(data)
