"""A thread pool that can abandon hanging threads, and a queue of finished rows."""

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

Job = tuple[int, Callable[..., None], tuple[Any, ...]]  # row, function, arguments


class Abandoned(BaseException):
    """Ends an abandoned thread once the environment's code returns."""


class Member(threading.Thread):
    """One thread of a crew."""

    def __init__(self, crew: "Crew") -> None:
        super().__init__(name=crew.name, daemon=True)  # a hanging thread must not block exit
        self._jobs = crew.jobs
        self.job: Job | None = None
        self.since = 0.0  # when it entered an environment's code; 0 while it is outside
        self.abandoned = False

    def run(self) -> None:
        get = self._jobs.get
        while (job := get()) is not None:
            self.job = job
            try:
                job[1](job[0], *job[2])
            except Abandoned:
                return
            self.job = job = None  # an idle thread must not keep its objects alive


class Crew:
    """A fixed number of threads with one queue of jobs."""

    def __init__(self, size: int, name: str) -> None:
        self.name = name
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self.members = [Member(self) for _ in range(size)]
        for member in self.members:
            member.start()

    def put(self, row: int, function: Callable[..., None], *args: Any) -> None:
        """Calls `function(row, *args)` in one of the threads."""
        self.jobs.put((row, function, args))

    def drop(self) -> list[Job]:
        """Removes the jobs that have not started, and returns them."""
        found = []
        while True:
            try:
                job = self.jobs.get_nowait()
            except queue.Empty:
                return found
            if job is not None:
                found.append(job)

    # --- threads that hang ---

    def within(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls `function` and records when this thread entered it.

        Raises:
            Abandoned: the thread was abandoned meanwhile.
        """
        member = threading.current_thread()
        if not isinstance(member, Member):
            return function(*args, **kwargs)
        self._go(member, time.monotonic())
        try:
            return function(*args, **kwargs)
        finally:
            self._go(member, 0.0)

    def _go(self, member: Member, since: float) -> None:
        with self._lock:
            if member.abandoned:
                raise Abandoned
            member.since = since

    def stuck(self, seconds: float) -> list[tuple[int, Member]]:
        """Returns the rows whose environments have run for so long, and their threads."""
        before = time.monotonic() - seconds
        found = []
        for member in self.members:
            since, job = member.since, member.job
            if since and since <= before and job is not None:
                found.append((job[0], member))
        return sorted(found, key=lambda each: each[0])

    def abandon(self, member: Member) -> Job | None:
        """Replaces a thread that hangs; returns its job, or None if it has just returned."""
        with self._lock:
            if not member.since or member.job is None:
                return None
            member.abandoned = True
            job = member.job
        self.members[self.members.index(member)] = another = Member(self)
        another.start()
        return job

    def end(self, until: float) -> list[Member]:
        """Ends the threads after their current jobs; returns those still alive at `until`."""
        for _ in self.members:
            self.jobs.put(None)
        for member in self.members:
            if member is not threading.current_thread():
                member.join(max(0.0, until - time.monotonic()))
        return [
            each
            for each in self.members
            if each.is_alive() and each is not threading.current_thread()
        ]


class Finished:
    """A queue of finished rows, from which one thread takes several at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bell = threading.Lock()
        self._bell.acquire()
        self._rows: list[int] = []
        self._wanted = 0  # the number of rows that `take` waits for
        self._noted = 0

    def put(self, row: int, noted: int) -> None:
        """Adds a row and its status flags."""
        with self._lock:
            self._rows.append(row)
            self._noted |= noted
            if self._wanted and len(self._rows) >= self._wanted:
                self._wanted = 0
                self._bell.release()

    def take(self, count: int, timeout: float | None) -> tuple[list[int], int] | None:
        """Waits for `count` rows; returns them and their flags, or None on timeout."""
        with self._lock:
            if len(self._rows) < count:
                self._wanted = count
            else:
                return self._taken(count)
        there = self._bell.acquire(timeout=-1 if timeout is None else timeout)
        with self._lock:
            if not there:
                if self._wanted:
                    self._wanted = 0
                    return None
                self._bell.acquire()  # it was released just now
            return self._taken(count)

    def _taken(self, count: int) -> tuple[list[int], int]:
        rows, self._rows = self._rows[:count], self._rows[count:]
        noted = self._noted
        if not self._rows:
            self._noted = 0
        return rows, noted
