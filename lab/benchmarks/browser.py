"""The system's Chromium, headless and without network access, for tests of pages."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
WHY_NOT = "no Chromium on the PATH; on Debian, install it with: apt-get install chromium"


def chromium() -> str | None:
    """Return the path of the browser, or None if none is installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """Start the browser, yield it, and close it at the end of the context."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        try:
            yield started
        finally:
            started.close()


class OpenedPage:
    """Page opened offline from its file, with the errors, warnings and requests that it causes."""

    def __init__(self, started: Browser, path: Path, width: int = 1280, **context: Any) -> None:
        self.context = started.new_context(
            viewport={"width": width, "height": 900}, offline=True, **context
        )
        self.page: Page = self.context.new_page()
        self.told: list[str] = []
        self.asked: list[str] = []
        self.page.on(
            "console",
            lambda message: (
                self.told.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        self.page.on("pageerror", lambda error: self.told.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.resolve().as_uri())

    def ready(self) -> Page:
        """Return the page once all its plots are drawn."""
        self.page.wait_for_function(
            "document.documentElement.dataset.ready !== undefined", timeout=60_000
        )
        return self.page

    def close(self) -> None:
        self.context.close()
