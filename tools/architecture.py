"""Draw docs/architecture.svg: `python tools/architecture.py`. tests compare the file with what this would draw (`--check`)."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "docs" / "architecture.svg"
WIDTH, HEIGHT = 960, 500

#: Colours that the reader's theme chooses. The background is the page's own.
STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; text-anchor: middle }
.small { font-size: 11px; fill: #59636e }
.head { font-weight: 600 }
rect { fill: #ffffff; stroke: #818b98; stroke-width: 1.2 }
rect.room { fill: #f6f8fa; stroke-dasharray: 5 4 }
rect.redis { stroke: #cf222e; stroke-dasharray: none }
rect.job { fill: #dafbe1; stroke: #1a7f37 }
path { fill: none; stroke: #59636e; stroke-width: 1.4; marker-end: url(#tip) }
#tip path { fill: #59636e; stroke: none; marker-end: none }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .small { fill: #9198a1 }
  rect { fill: #151b23; stroke: #656c76 } rect.room { fill: #0d1117 }
  rect.redis { stroke: #f85149 } rect.job { fill: #12261e; stroke: #3fb950 }
  path { stroke: #9198a1 } #tip path { fill: #9198a1 }
}
""".strip()


@dataclass(frozen=True)
class Box:
    """A rectangle with a heading and lines below it, centred; a `room` has its heading at the top and others inside it."""

    x: int
    y: int
    width: int
    height: int
    head: str
    lines: tuple[str, ...] = ()
    kind: str = ""

    def draw(self) -> str:
        """The rectangle and its texts."""
        middle, rows = self.x + self.width // 2, [self.head, *self.lines]
        top = self.y + 19 if "room" in self.kind else self.y + self.height // 2 - 8 * (len(rows) - 1) + 4
        parts = [f'<rect class="{self.kind}" x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="7"/>']
        for number, row in enumerate(rows):
            parts.append(text(middle, top + 16 * number, row, "small" if number else "head"))
        return "\n".join(parts)


def text(x: int, y: int, words: str, kind: str = "small") -> str:
    """Words centred on x."""
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(words)}</text>'


def arrow(*points: tuple[int, int]) -> str:
    """A line through the points, with a tip at the last."""
    return f'<path d="M{" L".join(f"{x} {y}" for x, y in points)}"/>'


BOXES = [
    Box(15, 60, 150, 150, "Your program", ("Queue, AsyncQueue", "@job, Log", "fusion enqueue", "POST /api/v1/jobs")),
    Box(265, 40, 160, 410, "Redis", kind="room redis"),
    Box(280, 70, 130, 70, "queues", ("by priority,", "then by arrival")),
    Box(280, 150, 130, 55, "leases", ("who runs what",)),
    Box(280, 215, 130, 55, "schedule, cron", ("what is due when",)),
    Box(280, 280, 130, 55, "ended jobs", ("results, failures",)),
    Box(280, 345, 130, 90, "event stream", ("and _callbacks:", "what is to be sent", "to whom")),
    Box(525, 15, 420, 385, "fusion start: a supervisor, and what it keeps running", kind="room"),
    Box(540, 50, 390, 185, "worker (any number)", kind="room"),
    Box(555, 85, 110, 130, "worker loop", ("claims, commits,", "renews leases;", "no threads")),
    Box(695, 85, 100, 130, "fork server", ("tasks loaded;", "forks and kills,", "keeps deadlines")),
    Box(825, 85, 92, 40, "job", ("a process",), "job"),
    Box(825, 130, 92, 40, "job", ("a process",), "job"),
    Box(825, 175, 92, 40, "spare", ("forked ahead",)),
    Box(540, 250, 390, 60, "scheduler (any number)", ("moves due jobs to their queues, makes cron ticks",)),
    Box(540, 325, 390, 60, "relay (any number)", ("a thread per sink, and the courier for callbacks",)),
    Box(545, 435, 185, 50, "Elasticsearch, file, log", ("each transition",)),
    Box(750, 435, 165, 50, "URLs", ("how a job ended",)),
]
ARROWS = [
    arrow((165, 105), (275, 105)),
    arrow((280, 308), (90, 308), (90, 215)),
    arrow((410, 105), (550, 105)),
    arrow((555, 175), (414, 175)),
    arrow((665, 150), (690, 150)),
    arrow((795, 105), (820, 105)),
    arrow((795, 150), (820, 150)),
    arrow((795, 195), (820, 195)),
    arrow((540, 280), (480, 280), (480, 242), (414, 242)),
    arrow((410, 360), (535, 360)),
    arrow((637, 385), (637, 430)),
    arrow((832, 385), (832, 430)),
]
LABELS = [
    text(215, 97, "enqueue"),
    text(185, 300, "result, status"),
    text(480, 97, "claim"),
    text(480, 167, "commit, renew"),
    text(475, 352, "at least once"),
]


def picture() -> str:
    """The whole SVG."""
    tip = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0 L8 4 L0 8 z"/></marker>'
    title = "Programs enqueue into Redis. Workers claim jobs and have a fork server start a process for each; a relay tells the outside."
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">',
            f"<title>{title}</title>",
            f"<style>\n{STYLE}\n</style>",
            f"<defs>{tip}</defs>",
            *(box.draw() for box in BOXES),
            *ARROWS,
            *LABELS,
            "</svg>\n",
        ]
    )


def main(arguments: list[str]) -> int:
    """Write the file; with `--check` compare it, 1 if it differs."""
    if arguments == ["--check"]:
        if TARGET.exists() and TARGET.read_text() == picture():
            return 0
        print(f"{TARGET.name} is not what tools/architecture.py draws: run it")
        return 1
    TARGET.write_text(picture())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
