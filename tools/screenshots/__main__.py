"""The pictures of the dashboard in docs/images: `make screenshots` stages a Redis, has workers run on it, and takes them anew, light and dark.
`make screenshots ALL=DIRECTORY` takes all pages instead, for people who look at them."""

from __future__ import annotations

import argparse
import base64
import os
import shutil
import struct
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from fusion.settings import Settings, use_settings
from fusion.store.client.connections import connect
from fusion.store.redis_server.instance import EmbeddedRedis
from tests.browser import chromium
from tests.web.harness import ServerProcess
from tools.screenshots.everything import furnished, take_all
from tools.screenshots.staged import stage

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
IMAGES = ROOT / "docs" / "images"
#: Pixels, and bytes of a picture at most.
WIDTH, MOST = 1280, 150_000
#: Makes of a picture its pixels: four bytes each, as base64.
PIXELS = """async (picture) => {
    const image = new Image()
    image.src = "data:image/png;base64," + picture
    await image.decode()
    const canvas = new OffscreenCanvas(image.width, image.height), drawn = canvas.getContext("2d")
    drawn.drawImage(image, 0, 0)
    const bytes = drawn.getImageData(0, 0, image.width, image.height).data
    let text = ""
    for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768))
    return btoa(text)
}"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.screenshots")
    parser.add_argument(
        "--all", metavar="DIRECTORY", type=Path, help="take all pages, for a screen and a phone, into this directory"
    )
    into: Path | None = parser.parse_args().all
    if into is not None:
        if into.resolve().is_relative_to(ROOT):
            parser.error(f"{into} is in the checkout, which keeps none of these pictures: name a directory outside of it")
        into.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="shop-", dir="/tmp"))
    redis_server = EmbeddedRedis(str(home / "redis"), persistent=False)
    shutil.copy(HERE / "shop.py", home)
    IMAGES.mkdir(exist_ok=True)
    try:
        redis_server.start()
        os.environ["FUSION_REDIS_URL"] = redis_server.url
        use_settings(None)
        conn = connect(Settings(redis_url=redis_server.url))
        settings = {"FUSION_EVENTS_FILE": str(home / "events.jsonl")} if into else {}
        with stage(conn, redis_server.url, home, settings) as job:
            server = ServerProcess(redis_server.url, home / "server", "--no-auth", "--dashboard")
            try:
                if into is None:
                    take(server.url, job)
                else:
                    with furnished(conn, redis_server.url, server, home) as pages, launched() as browser:
                        take_all(browser, server.url, pages, into)
            finally:
                server.stop()
    finally:
        redis_server.stop()
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def launched() -> Iterator[Browser]:
    """The browser of the tests, until the end."""
    with chromium.found() as (playwright, program):
        browser = playwright.chromium.launch(executable_path=program, args=chromium.ARGUMENTS)
        yield browser
        browser.close()


def take(url: str, job: str) -> None:
    """Those of the documentation. SystemExit for one that is too large."""
    with launched() as browser:
        for name, path, height in (("overview", "/", 1100), ("failures", "/failures", 400), ("job", f"/jobs/{job}", 880)):
            for scheme in ("light", "dark"):
                picture = with_palette(browser, _seen(browser, url + path, scheme, height))
                (IMAGES / f"{name}-{scheme}.png").write_bytes(picture)
                print(f"docs/images/{name}-{scheme}.png: {len(picture):,} bytes", flush=True)
                if len(picture) > MOST:
                    raise SystemExit(f"at most {MOST:,} bytes: make it less high")


def _seen(browser: Browser, url: str, scheme: Any, height: int) -> bytes:
    context = browser.new_context(color_scheme=scheme, viewport={"width": WIDTH, "height": height}, timezone_id="UTC")
    page = context.new_page()
    page.goto(url, wait_until="load")
    picture = page.screenshot()
    context.close()
    return picture


def with_palette(browser: Browser, picture: bytes) -> bytes:
    """The same PNG with 256 colours: a third of the bytes."""
    width, height = struct.unpack(">II", picture[16:24])
    page = browser.new_page()
    raw = base64.b64decode(page.evaluate(PIXELS, base64.b64encode(picture).decode()))
    page.close()
    colours = numpy.frombuffer(raw, numpy.uint8).reshape(-1, 4)[:, :3].astype(numpy.int32)
    known, which, often = numpy.unique(colours @ (65536, 256, 1), return_inverse=True, return_counts=True)
    kept = known[numpy.argsort(-often)[:256]]
    apart = [(known[:, None] >> shift & 255) - (kept >> shift & 255) for shift in (16, 8, 0)]
    nearest = numpy.argmin(sum(part**2 for part in apart), axis=1).astype(numpy.uint8)
    rows = nearest[which].reshape(height, width)
    lines = b"".join(b"\0" + row.tobytes() for row in rows)
    palette = b"".join(int(one).to_bytes(3, "big") for one in kept)
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", palette),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    ]
    chunks = [struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


if __name__ == "__main__":
    main()
