"""What the page's script knows: photographs with captions, references, scores, boxes and maps, as plain values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioning.config.settings import read_settings
from captioning.data.example import Box
from captioning.files import WHOLE, frame_of
from captioning.report.page.attention import packed_maps, state
from captioning.report.page.boxes import noun_boxes
from captioning.report.page.photographs import Photograph, read_photograph, root_of
from captioning.report.page.tested import Described, folder_of, metrics
from captioning.report.systems import System


@dataclass(frozen=True, slots=True)
class Gallery:
    """Of one table.

    Attributes:
        images: in the order of the page.
        metrics: that single captions have.
        photographs: of the images, None where there is none to be had.
        boxes: of the images, by word.
        maps: of each system, by the images' places.
        attention: of each system, what is to be said of it.
    """

    images: Sequence[Described]
    metrics: Sequence[str]
    photographs: list[Photograph | None]
    boxes: list[Mapping[str, list[Box]]]
    maps: list[Any]
    attention: list[str]

    def each_map(self) -> Iterator[tuple[int, int, Any]]:
        """The places of a system and an image, and the maps; the page reads those alone that are looked at."""
        for system, maps in enumerate(self.maps):
            yield from ((system, image, kept) for image, kept in (maps or {}).items())

    @property
    def names(self) -> list[str]:
        """Of all maps, in the order of their files."""
        return list(dict.fromkeys(name for _, _, kept in self.each_map() for name in kept["names"]))

    @property
    def takes_places(self) -> bool:
        """Whether hard attention has decoded some captions by one place at each word."""
        return any("path" in kept for _, _, kept in self.each_map())

    def for_script(self) -> list[dict[str, Any]]:
        """The images as JSON has them; scores in the order of `metrics`."""
        systems = range(len(self.attention))
        return [
            {
                "id": image.image_id,
                "references": image.references,
                "answers": [self._answer(image, place) for place in systems],
                "size": None if photograph is None else [photograph.width, photograph.height],
                **({"boxes": boxes} if boxes else {}),
            }
            for image, photograph, boxes in zip(self.images, self.photographs, self.boxes, strict=True)
        ]

    def _answer(self, image: Described, place: int) -> dict[str, Any] | None:
        if (line := image.answers.get(place)) is None:
            return None
        scores = [line.scores.get(name) for name in self.metrics]
        return {"caption": line.caption, "scores": [None if s is None else round(s, 2) for s in scores]}


def gather(
    systems: Sequence[System], images: Sequence[Described], photographs: str | None, side: int, heads: int
) -> tuple[Gallery, list[str]]:
    """The gallery of a table, and a line on each file that is left out.

    Args:
        systems: of the table.
        images: that they were tested on.
        photographs: the folder of the photographs; `auto`: that of each run's data; None: the page does without.
        side: pixels of a photograph's longer side.
        heads: the images whose every layer and head is shown.
    """
    roots = [None if photographs is None else root_of(folder_of(system), photographs) for system in systems]
    places = [_place(roots, image) for image in images]
    boxes = noun_boxes([root / name for root, name in filter(None, places)])
    shown = [place and read_photograph(*place, side) for place in places]
    ways = [_resize(folder_of(system)) for system in systems]
    frames = [[frame_of(way, each.width, each.height) if each else WHOLE for each in shown] for way in ways]
    maps, left_out = packed_maps(systems, images, frames, heads)
    found = Gallery(
        images=images,
        metrics=metrics(images),
        photographs=shown,
        boxes=[boxes.get(place[0] / place[1], {}) if place else {} for place in places],
        maps=maps,
        attention=[state(system, kept) for system, kept in zip(systems, maps, strict=True)],
    )
    return found, left_out


def _place(roots: Sequence[Path | None], image: Described) -> tuple[Path, str] | None:
    """The folder below which a photograph is to be found, and what it is called there."""
    for place, line in image.answers.items():
        if line.photograph and (root := roots[place]) is not None:
            return root, line.photograph
    return None


def _resize(run: Path) -> str:
    """How a photograph became the square that its maps lie on."""
    backbone = read_settings(run / "config.yaml").get("backbone")
    return str(backbone.get("resize", "squash")) if isinstance(backbone, dict) else "squash"
