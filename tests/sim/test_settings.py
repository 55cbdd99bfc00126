"""What a seed stands for."""

from tests.sim.faults import Faults
from tests.sim.settings import GROUPS_OF_FAULTS, NEED_REPLICAS, NEED_SOURCES, Settings


def test_a_seed_always_stands_for_the_same_world() -> None:
    """And two seeds seldom for the same."""
    assert Settings.of(11) == Settings.of(11)
    assert len({str(Settings.of(seed)).partition(",")[2] for seed in range(100)}) > 95


def test_every_kind_of_fault_is_drawn_somewhere_and_can_be_done() -> None:
    """No kind is forgotten, and each has its method."""
    kinds = {kind for group in GROUPS_OF_FAULTS for kind in group}
    drawn = {kind for seed in range(300) for kind in Settings.of(seed).faults}
    assert drawn == kinds
    assert all(callable(getattr(Faults, "_" + kind.replace(" ", "_"))) for kind in kinds)


def test_faults_fit_the_clusters() -> None:
    """A cluster of one broker has no leader to lose and none to move."""
    for seed in range(300):
        settings = Settings.of(seed)
        assert settings.destination_nodes > 1 or not NEED_REPLICAS & set(settings.faults)
        assert settings.source_nodes > 1 or not NEED_SOURCES & set(settings.faults)


def test_a_compacted_source_is_never_trimmed_and_no_other_compacted() -> None:
    """As its cleanup.policy says."""
    for seed in range(300):
        settings = Settings.of(seed)
        assert ("trim source" if settings.compacted else "compact source") not in settings.faults
