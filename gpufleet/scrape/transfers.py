"""Runs many HTTP transfers at once: libcurl does them, epoll tells it which of its sockets are ready."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pycurl

OK = 0
_EVENTS = {pycurl.POLL_IN: select.EPOLLIN, pycurl.POLL_OUT: select.EPOLLOUT}
_EVENTS[pycurl.POLL_INOUT] = select.EPOLLIN | select.EPOLLOUT
_LONGEST_WAIT_SECONDS = 1.0


class Transfers:
    """One multi handle with its open connections, for the life of a process. Not for several threads at once."""

    def __init__(self, connections: int) -> None:
        self._poll = select.epoll()
        self._watched: set[int] = set()
        self._due: float | None = None
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)
        self._multi.setopt(pycurl.M_MAXCONNECTS, connections)

    def close(self) -> None:
        self._multi.close()
        self._poll.close()

    def run(self, handles: Sequence[Any]) -> Iterator[tuple[Any, int, str]]:
        """Begins all transfers together and yields each handle as it ends, with libcurl's code and what it says.

        Every handle must have a deadline of its own.
        """
        active = {id(handle): handle for handle in handles}
        for handle in handles:
            self._multi.add_handle(handle)
        try:
            while active:
                self._turn()
                for handle, code, message in self._ended():
                    del active[id(handle)]
                    self._multi.remove_handle(handle)
                    yield handle, code, message
        finally:
            for handle in active.values():
                self._multi.remove_handle(handle)

    def _turn(self) -> None:
        """Waits for sockets or the timer, and lets libcurl act on them."""
        wait = _LONGEST_WAIT_SECONDS
        if self._due is not None:
            wait = min(wait, max(0.0, self._due - time.monotonic()))
        for socket, event in self._poll.poll(wait, max(1, len(self._watched))):
            mask = pycurl.CSELECT_IN if event & ~select.EPOLLOUT else 0
            mask |= pycurl.CSELECT_OUT if event & select.EPOLLOUT else 0
            self._multi.socket_action(socket, mask)
        if self._due is not None and time.monotonic() >= self._due:
            self._due = None
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)

    def _ended(self) -> Iterator[tuple[Any, int, str]]:
        left = 1
        while left:
            left, done, failed = self._multi.info_read()
            yield from ((handle, OK, "") for handle in done)
            yield from failed

    def _watch(self, what: int, socket: int, _multi: object, _data: object) -> None:
        if what == pycurl.POLL_REMOVE:
            if socket in self._watched:
                self._watched.discard(socket)
                self._poll.unregister(socket)
        elif socket in self._watched:
            self._poll.modify(socket, _EVENTS[what])
        else:
            self._watched.add(socket)
            self._poll.register(socket, _EVENTS[what])

    def _set_timer(self, milliseconds: int) -> None:
        self._due = None if milliseconds < 0 else time.monotonic() + milliseconds / 1000
