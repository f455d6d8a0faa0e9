"""What the tests of the server share: the pool that its graphs ask."""

from collections.abc import Iterator

import pytest

from tests.support.service import PoolStub, pooled


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolStub]:
    with pooled(PoolStub()) as stub:
        yield stub
