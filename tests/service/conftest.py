"""What the tests of the server share: the pool that its graphs ask."""

from collections.abc import Iterator

import pytest

from tests.support.service import PoolStub, pooled
from ttsgraph.service import app


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream waits for its first text or error, so that no status depends on the clock."""
    monkeypatch.setattr(app, "HEAD_S", 60.0)


@pytest.fixture(scope="module")
def stub(request: pytest.FixtureRequest) -> Iterator[PoolStub]:
    """A pool that says 7, or what a module's USUAL says."""
    with pooled(PoolStub(getattr(request.module, "USUAL", lambda body: "7"))) as running:
        yield running


@pytest.fixture
def pool(stub: PoolStub) -> Iterator[PoolStub]:
    stub.reset()
    yield stub
    stub.release()
