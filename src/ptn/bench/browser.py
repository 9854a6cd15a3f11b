"""A real browser, driven by Playwright: Chromium of the system, or the one that Playwright installed."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .report import PeerMissing

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def launch_browser() -> Iterator["Browser"]:
    """Chromium without a window; `PeerMissing` where there is none."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise PeerMissing("Playwright is not installed: pip install playwright") from None
    with sync_playwright() as playwright:
        found = next((path for name in _NAMES if (path := shutil.which(name))), None)
        if found is None and not Path(playwright.chromium.executable_path).exists():
            raise PeerMissing("there is no Chromium: apt-get install chromium, or playwright install chromium")
        options: dict[str, Any] = {} if found is None else {"executable_path": found}
        if hasattr(os, "geteuid") and os.geteuid() == 0:  # Chromium's sandbox refuses to be root
            options["args"] = ["--no-sandbox"]
        browser = playwright.chromium.launch(**options)
        try:
            yield browser
        finally:
            browser.close()
