"""Messages between processes: pickles prefixed with their length, plus file descriptors."""

import os
import socket
import struct
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
    send_packed(sock, cloudpickle.dumps(message), fds)


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
        return cloudpickle.dumps(message)
    except Exception as error:
        raise PoolError(
            f"{what} cannot be sent to {to}: {type(error).__name__}: {error}.{advice}"
        ) from error


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
