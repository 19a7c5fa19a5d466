"""Free and taken ports."""

from __future__ import annotations

import errno
import socket

from gpufleet.stack.problems import StackError

LOOPBACK = "127.0.0.1"


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now. Raises OSError when `host` is no address of this machine."""
    family, kind, protocol, _name, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
    return True


def free_port(host: str = LOOPBACK) -> int:
    """A port that the system calls free."""
    family, kind, protocol, _name, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as listener:
        listener.bind(address)
        return int(listener.getsockname()[1])


def require_free(host: str, port: int) -> None:
    """Raises StackError, in one sentence, unless the pages can listen at `host`:`port`."""
    try:
        free = is_free(host, port)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StackError(f"Cannot listen at {host} port {port} ({reason}): choose another --host or --port.") from error
    if not free:
        raise StackError(f"Port {port} at {host} is taken by another program: choose another one with --port.")


def local_names() -> list[str]:
    """Names and addresses under which this machine may be asked for pages."""
    names = {socket.gethostname(), socket.getfqdn()}
    for family, target in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))  # sends nothing: asks which of our addresses would be used
                address = probe.getsockname()[0]
        except OSError:
            continue
        names.add(f"[{address}]" if ":" in address else address)
    return sorted(name for name in names if name)
