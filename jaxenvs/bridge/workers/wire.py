"""Messages between processes: length-prefixed pickles, with file descriptors."""

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
    """Encodes any text as UTF-8, including surrogates, which file names may contain."""
    return text.encode(errors="backslashreplace")


def send(sock: socket.socket, message: Any, fds: tuple[int, ...] = ()) -> None:
    """Sends a message and file descriptors."""
    send_packed(sock, dumps(message), fds)


def send_packed(sock: socket.socket, data: bytes, fds: tuple[int, ...] = ()) -> None:
    """Sends a message that is already pickled."""
    # The descriptors travel with the length, which arrives in one piece. The rest may be split.
    socket.send_fds(sock, [_LENGTH.pack(len(data))], fds)
    sock.sendall(data)


def pickled(message: Any, what: str, advice: str = "", *, to: str = "a worker process") -> bytes:
    """Pickles a message.

    Args:
        message: what to pickle.
        what: its name in the error message.
        advice: the end of the error message.
        to: the receiver's name in the error message.

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
    """Pickles a message, including the code that another process cannot import."""
    with io.BytesIO() as file:
        _Pickler(file).dump(message)
        return file.getvalue()


class _Pickler(cloudpickle.Pickler):
    """Pickles functions, classes and modules by value if only this process can import them.

    cloudpickle itself does so only for `__main__` and for objects without a module.
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
                return getattr, (module, "Array")  # cannot be found by its own name before jax 0.11
            if module is not None and name not in self._seen and module.__name__ == name:
                self._seen.add(name)
                if not is_importable(module):  # that does not change, so register it for good
                    cloudpickle.register_pickle_by_value(module)
        return super().reducer_override(obj)


def is_importable(module: types.ModuleType) -> bool:
    """Returns whether another process with the same `sys.path` can import a module by name.

    It cannot if the module was loaded from elsewhere or under another name, for example by
    `spec_from_file_location` or `runpy`, or if it is a child process's script (`__mp_main__`).
    """
    name, file = module.__name__, getattr(module, "__file__", None)
    if file is not None and not file.endswith((".py", ".pyc")):
        return True  # a C extension, whose classes cannot be pickled by value
    root, _, rest = name.partition(".")
    if rest and not os.path.isabs(file or ""):  # made by its package, such as torch.ops
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
    """Waits for a message and its file descriptors.

    Raises:
        EOFError: the other side closed the connection.
        TimeoutError: the socket's timeout expired.
    """
    data, fds = receive_packed(sock)
    try:
        return cloudpickle.loads(data), fds
    except BaseException:  # unpickling runs code, which may raise anything
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
    """Receives the rest of `size` bytes, after `begin`."""
    data = bytearray(begin)
    while len(data) < size:
        piece = sock.recv(min(size - len(data), 1 << 20))
        if not piece:
            raise EOFError("the other process has ended")
        data += piece
    return bytes(data)
