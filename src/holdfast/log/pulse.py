"""The life of the workers of one process, by its own clock: until when it may begin effects (S5).

Pure: each method takes the time since the boot of the machine, which no one sets. With a lifetime of 8 s, a worker
begins effects until 6 s after it sent its last acknowledged beat, and others may take its sessions 8 s after the
database got that beat. So it stops first, whatever was lost or slow, as long as no clock runs a quarter faster than
another.
"""

from __future__ import annotations


class Pulse:
    """The beats of one process for its workers.

    `limits` are its workers, each with the number of sessions that it runs at a time, 0 for a command. `lapses` counts
    the times that it was not fresh until a beat was acknowledged: what it knew of its leases before is no longer sure.
    """

    def __init__(self, ttl_s: float) -> None:
        self.ttl_s = ttl_s
        self.limits: dict[str, int] = {}
        self.lapses = 0
        self._beaten: dict[str, int] = {}
        self._sent_s = 0.0
        self._wary_until_s = 0.0
        self._looped_s = 0.0

    @property
    def is_new(self) -> bool:
        """True while a worker has no acknowledged beat."""
        return self._beaten != self.limits

    def is_fresh(self, now_s: float) -> bool:
        """Return True while no worker elsewhere can take a session of these workers."""
        return not self.is_new and now_s < self._sent_s + 0.75 * self.ttl_s

    def is_wary(self, now_s: float) -> bool:
        """Return True while other workers may live although their rows are old.

        This process lost the database for so long that they may have lost it too, and are about to beat again. It can
        learn that the database is back by a transaction that waited for it, before its own beat.
        """
        return now_s < self._wary_until_s or (bool(self._beaten) and now_s > self._sent_s + self.ttl_s)

    def enroll(self, worker_id: str, now_s: float, limit: int | None = None) -> None:
        """Begin to beat for a worker. A limit of None leaves it as it is."""
        self._looped_s = now_s
        self.limits[worker_id] = self.limits.get(worker_id, 0) if limit is None else limit

    def looped(self, now_s: float) -> None:
        """Note that the event loop answered: a brain that hangs must not look alive."""
        self._looped_s = now_s

    def may_beat(self, now_s: float) -> bool:
        """Return True while the event loop has answered within a lifetime."""
        return now_s < self._looped_s + self.ttl_s

    def acknowledged(self, limits: dict[str, int], sent_s: float, now_s: float) -> None:
        """Note that the database has a beat for these workers that was sent then."""
        if not self.is_fresh(now_s):
            self.lapses += 1
        if self._beaten and sent_s > self._sent_s + self.ttl_s:
            self._wary_until_s = now_s + self.ttl_s
        self._sent_s, self._beaten = sent_s, limits
