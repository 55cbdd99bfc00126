"""What all tests share: the marks. Fixtures live beside the tests that use them."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks that conftest files put on tests."""
    config.addinivalue_line("markers", "real: uses real Kafka brokers on this machine; -m 'not real' leaves them out")
