"""A browser for tests of pages: the system's Chromium or Chrome, driven by Playwright."""

import contextlib
import functools
import http.server
import shutil
import threading

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
EXECUTABLE = next(filter(None, map(shutil.which, _NAMES)), None)
# Chromium looks for updates at each start, which a machine without a network refuses.
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
_FLAGS += [f"--disable-{name}" for name in ("background-networking", "component-update", "sync")]
WIDTHS = (1280, 390)  # a desk's and a telephone's


@pytest.fixture(scope="module")
def browser():
    """Skipped where there is no browser, or nothing to drive it."""
    if EXECUTABLE is None:
        pytest.skip(f"needs a browser: one of {', '.join(_NAMES)}")
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs the extra `browser`")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=EXECUTABLE, args=_FLAGS)
        yield chromium
        chromium.close()


@contextlib.contextmanager
def opened(browser, url, width=1280, **options):
    """A page; at its end, that nothing was said in the console and nothing came from elsewhere."""
    context = browser.new_context(viewport={"width": width, "height": 900}, **options)
    page = context.new_page()
    trouble, here = [], url.split("/")[:3]
    page.on("console", lambda message: trouble.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("requestfailed", lambda request: trouble.append(request.url))
    page.on(
        "request",
        lambda request: (
            request.url.startswith(("data:", "blob:"))
            or request.url.split("/")[:3] == here
            or trouble.append(request.url)
        ),
    )
    page.goto(url)
    yield page
    context.close()
    assert trouble == []


def cut_off(page):
    """What is wider than the window, or than its frame without a way to scroll to the rest."""
    return page.evaluate(
        """() => {
          const scrolls = (one) => ["auto", "scroll"].includes(getComputedStyle(one).overflowX);
          function framed(one) {
            for (; one !== document.body; one = one.parentElement) if (scrolls(one)) return true;
            return false;
          }
          const shown = [...document.querySelectorAll("table, pre, img, svg, p, ul, .controls")];
          const cut = shown.filter(
            (one) => one.getBoundingClientRect().right > innerWidth + 1 && !framed(one));
          const page = document.documentElement.scrollWidth > innerWidth ? ["the page"] : [];
          return [...page, ...cut.map((one) => one.outerHTML.slice(0, 120))];
        }"""
    )


@contextlib.contextmanager
def served(folder):
    """The address of a server of a folder on this machine."""
    handler = functools.partial(_Quiet, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass
