"""When a lease is good."""

from twinlog.relay.lease import LEASE_S, Lease


class _Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_never_renewed_is_not_valid() -> None:
    """A worker that has committed nothing may send nothing."""
    assert not Lease(_Clock()).valid()


def test_good_from_when_the_renewal_began() -> None:
    """A slow commit shortens the lease, it does not move it."""
    clock = _Clock()
    lease = Lease(clock)
    began = clock.now
    clock.now += 2.5
    lease.renewed(began)
    assert lease.valid()
    clock.now = began + LEASE_S
    assert not lease.valid()


def test_older_renewal_never_shortens() -> None:
    """An answer that comes late, of an attempt that began earlier, changes nothing."""
    clock = _Clock()
    lease = Lease(clock)
    lease.renewed(clock.now)
    lease.renewed(clock.now - 100)
    assert lease.valid()


def test_fenced_is_for_good() -> None:
    """Once another worker has the id, no renewal brings it back."""
    clock = _Clock()
    lease = Lease(clock)
    lease.fenced()
    lease.renewed(clock.now)
    assert not lease.valid()
    assert lease.is_fenced


def test_frozen_process_finds_it_expired() -> None:
    """Time that passed while the process was stopped counts."""
    clock = _Clock()
    lease = Lease(clock)
    lease.renewed(clock.now)
    clock.now += 60
    assert not lease.valid()
    assert lease.remaining_s() < 0
