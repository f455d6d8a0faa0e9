"""What the tests of the page share."""

from typing import Any

import pytest

from lab.benchmarks.browser import WHY_NOT, chromium

METHODS = ("agent_reinforce", "random")
in_browser = pytest.mark.skipif(chromium() is None, reason=WHY_NOT)


def unfold(page: Any) -> None:
    """Open every fold."""
    page.evaluate(
        "document.querySelectorAll('details.fold').forEach(fold => { fold.open = true; })"
    )
