"""Messages between processes: pickles with their length in front, and descriptors beside them."""

import socket
import struct
from typing import Any

import cloudpickle

_LENGTH = struct.Struct("<Q")
_MAX_FDS = 8


def send(sock: socket.socket, message: Any, fds: tuple[int, ...] = ()) -> None:
    """Sends a message and descriptors."""
    send_packed(sock, cloudpickle.dumps(message), fds)


def send_packed(sock: socket.socket, data: bytes, fds: tuple[int, ...] = ()) -> None:
    """Sends a message that is a pickle already."""
    # The descriptors travel with the length, which is one piece; the rest may come in several.
    socket.send_fds(sock, [_LENGTH.pack(len(data))], fds)
    sock.sendall(data)


def receive(sock: socket.socket) -> tuple[Any, list[int]]:
    """Waits for a message and its descriptors.

    Raises:
        EOFError: the other side has gone.
        TimeoutError: the time that was set on the socket is over.
    """
    try:
        head, fds, _, _ = socket.recv_fds(sock, _LENGTH.size, _MAX_FDS)
        head = bytearray(head)
        if head:
            _fill(sock, head, _LENGTH.size)
    except ConnectionError as error:
        raise EOFError("the other process has gone") from error
    if not head:
        raise EOFError("the other process has gone")
    data = bytearray()
    _fill(sock, data, _LENGTH.unpack(head)[0])
    return cloudpickle.loads(bytes(data)), fds


def _fill(sock: socket.socket, data: bytearray, size: int) -> None:
    while len(data) < size:
        piece = sock.recv(min(size - len(data), 1 << 20))
        if not piece:
            raise EOFError("the other process has gone")
        data += piece
