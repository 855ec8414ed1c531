"""The page that captions dropped photographs.

A photograph is posted as it is, with the settings in the query. The answer is a line of JSON for
the photograph and one per captioner, each sent as soon as it is decoded. A beam knows its words
only at the end, so the page's script shows the words of all searches one after the other.
"""

import copy
import io
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from PIL import Image, UnidentifiedImageError
from pydantic import ValidationError

from captioning.captioner import TrainedCaptioner
from captioning.config.explain import explain
from captioning.config.registry import PACKAGE
from captioning.decoding import Caption
from captioning.decoding.confidence import confidence
from captioning.download.named import PRETRAINED, checkpoint_path
from captioning.errors import CaptioningError, quoted
from captioning.files import FORMATS
from captioning.report.gallery import as_jpeg, data_uri
from captioning.report.maps import packed
from captioning.report.page import asset, environment
from captioning.runs.searches import LONGEST, build_search, same_search
from captioning.serve.controls import choices, decoding_of
from captioning.serve.server import Handler, Refused

EXAMPLES = PACKAGE.parent / "experiments" / "photographs"  # of a checkout; a wheel has none
REPORT = "captioning.report"
KIND = (
    "application/octet-stream"  # browsers let no page elsewhere post this without asking here first
)
MEGA = 1_000_000
SIDE = 640  # pixels of the longer side of the photograph on the page
ANIMATED = (
    "AVIF",
    "GIF",
    "PNG",
    "WEBP",
)  # further pictures of other formats are views of the same photograph


class ServedCaptioner(TrainedCaptioner):
    """The captioner of one checkpoint, which reads photographs."""

    title = ""  # its run or file

    @property
    def max_tokens(self) -> int | None:
        """The longest caption that the model can read, if limited."""
        found: int | None = self.config["model"].get("max_tokens")
        return found

    @property
    def blind(self) -> str:
        """The reason for missing maps; empty if there are maps."""
        network = self.networks[0]
        if not getattr(network.model, "attends", True):
            return "no attention"
        return (
            ""
            if network.backbone.located
            else "no map: what it attends to has no place on the photograph"
        )

    def searching(self, decoding: Mapping[str, Any]) -> "ServedCaptioner":
        """The same networks with another search."""
        other = copy.copy(self)
        other.search = build_search(decoding, self.vocabulary, self.max_tokens)
        other.quantiles = self.quantiles if same_search(self.config["decoding"], decoding) else ()
        return other

    def shown(self, image: Image.Image) -> dict[str, Any]:
        """The photograph as it is drawn below maps: upright, and no larger than the page needs."""
        pixels = self.networks[0].backbone.transform.whole(image, SIDE)
        upright = Image.fromarray(pixels.permute(1, 2, 0).numpy())
        return {"photograph": data_uri("image/jpeg", as_jpeg(upright)), "size": upright.size}

    def told(self, image: Image.Image) -> dict[str, Any]:
        """The captions of a photograph, best first: text, words, score, confidence and maps as in
        the report.
        """
        begun = time.perf_counter()
        (pixels,) = self.read(image)
        backbone = self.networks[0].backbone
        features = backbone(pixels[None].to(self.device))  # once for all captions
        (best,) = self.decode([features], [False])
        captions = []
        found: list[Caption] = [best, *best.alternatives]
        for caption in found:
            words = self.vocabulary.each_word(caption.tokens)
            kept = self.kept("", caption, [features], [False]) if words and not self.blind else []
            maps = packed(kept[0].maps, backbone.transform.frame(image)) if kept else None
            sure = confidence(caption.score, self.quantiles)
            text, score = self.vocabulary.decode(caption.tokens), round(caption.score, 4)
            captions.append(
                {"caption": text, "words": words, "score": score, "confidence": sure, "maps": maps}
            )
        return {"captions": captions, "seconds": round(time.perf_counter() - begun, 3)}


def load_captioners(
    checkpoints: Sequence[Path], device: str, modules: Sequence[str]
) -> list[ServedCaptioner]:
    """Load the captioners of checkpoints that read photographs."""
    served = []
    for path in checkpoints:
        captioner = ServedCaptioner.from_checkpoint(path, device, modules=modules)
        if not captioner.networks[0].backbone.reads_photographs:
            raise CaptioningError(f"checkpoint={path} reads features or sentences, not photographs")
        captioner.title = (
            path.absolute().parents[1].name if path.parent.name == "checkpoints" else path.stem
        )
        if path == checkpoint_path(PRETRAINED):
            captioner.title = "the bundled captioner"
        served.append(captioner)
    return served


class Captions:
    """State shared by all requests, such as limits on uploads and the queue (`waiting`)."""

    def __init__(
        self,
        captioners: Sequence[ServedCaptioner],
        megabytes: float,
        megapixels: float,
        waiting: int,
    ):
        self.captioners, self.megabytes, self.megapixels = captioners, megabytes, megapixels
        longest = min(captioner.max_tokens or LONGEST for captioner in captioners)
        self.choices = choices(captioners[0].config["decoding"], min(longest, LONGEST))
        self.places, self.turn = BoundedSemaphore(1 + waiting), Lock()
        examples = {path.name: path.read_bytes() for path in sorted(EXAMPLES.glob("*.jpg"))}
        page = environment(__package__).get_template("captions.html")
        known = {
            "captioners": captioners,
            "choices": self.choices,
            "megabytes": megabytes,
            "examples": examples,
        }
        style = [asset(REPORT, "page.css"), asset(__package__, "captions.css")]
        script = [
            asset(REPORT, "maps.js"),
            asset(REPORT, "words.js"),
            asset(__package__, "captions.js"),
        ]
        # type and content of the page and everything it loads
        self.files = {
            f"/examples/{name}": ("image/jpeg", content) for name, content in examples.items()
        } | {
            "/": ("text/html; charset=utf-8", page.render(**known).encode()),
            "/page.css": ("text/css; charset=utf-8", "\n".join(style).encode()),
            "/page.js": ("text/javascript; charset=utf-8", "\n".join(script).encode()),
        }

    def answer(
        self, captioners: Sequence[ServedCaptioner], image: Image.Image
    ) -> Iterator[dict[str, Any]]:
        """The lines of an answer; one photograph at a time."""
        with self.turn:
            yield captioners[0].shown(image)
            for number, captioner in enumerate(captioners):
                yield {"column": number, **captioner.told(image)}


class CaptionsHandler(Handler):
    """Serves the page of `captions` and captions what it posts."""

    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )

    def __init__(self, *connection: Any, captions: Captions) -> None:
        self._captions = captions
        super().__init__(*connection)

    def do_GET(self) -> None:
        try:
            kind, content = self._captions.files[urlsplit(self.path).path]
        except (KeyError, ValueError) as error:
            raise Refused(404, f"there is nothing here; the page is {self.server.url}") from error
        self.send(200, kind, content)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        length = self._checked_length()
        captioners = self._asked()
        if not self._captions.places.acquire(blocking=False):
            raise Refused(503, "too many photographs are waiting: try again in a moment")
        try:
            image = read_upload(self.receive(length), self._captions.megapixels)
            lines = self._captions.answer(captioners, image)
            try:
                first = next(lines)
            except CaptioningError as error:  # pixels that have no meaning as colours
                raise Refused(422, error) from error
            self.begin(200, {"Content-Type": "application/x-ndjson"})
            self._write(first)
            try:
                for line in lines:
                    self._write(line)
            except (RuntimeError, CaptioningError) as error:  # such as a GPU whose memory is full
                self._write({"error": f"this photograph could not be captioned: {quoted(error)}"})
        finally:
            self._captions.places.release()

    def _write(self, line: dict[str, Any]) -> None:
        self.wfile.write(json.dumps(line).encode() + b"\n")

    def _checked_length(self) -> int:
        """Return the upload's size, checked before reading; only the page's own script may post."""
        given, largest = self.headers["Content-Length"] or "", self._captions.megabytes
        chunked = self.headers["Transfer-Encoding"]
        if urlsplit(self.path).path != "/captions":
            raise Refused(404, "photographs are posted to /captions")
        if self.headers["Origin"] != f"http://{self.headers['Host']}":
            raise Refused(403, f"only the page {self.server.url} may post here")
        if self.headers["Content-Type"] != KIND:
            raise Refused(415, f"a photograph is posted as {KIND}")
        if chunked or not (given.isascii() and given.isdecimal() and len(given) < 20):
            raise Refused(411, "a photograph is posted with its Content-Length")
        if (size := int(given) / MEGA) > largest:
            raise Refused(
                413, f"the photograph has {size:.1f} MB; allowed are {largest:g}: scale it down"
            )
        return int(given)

    def _asked(self) -> list[ServedCaptioner]:
        """The captioners with the search that a visitor asks for."""
        try:
            (text,) = parse_qs(urlsplit(self.path).query, strict_parsing=True, max_num_fields=1)[
                "settings"
            ]
            asked = json.loads(text)
        except (KeyError, ValueError, RecursionError) as error:
            raise Refused(400, "the query has the settings as JSON, settings={}") from error
        try:
            decoding = decoding_of(self._captions.choices, asked)
            return [captioner.searching(decoding) for captioner in self._captions.captioners]
        except (CaptioningError, ValidationError) as error:
            raise Refused(400, explain(error)) from error


def read_upload(content: bytes, megapixels: float) -> Image.Image:
    """Decode a photograph in memory, not yet upright; size and format are judged first."""
    try:
        image = Image.open(io.BytesIO(content), formats=FORMATS)
        if image.width * image.height > megapixels * MEGA:
            raise Image.DecompressionBombError
        if image.format in ANIMATED and getattr(image, "is_animated", False):
            raise Refused(415, "this is an animation: choose one picture of it")
        image.load()
        return image
    except Refused:
        raise
    except Image.DecompressionBombError as error:
        allowed = f"allowed are {megapixels:g} million: scale it down"
        raise Refused(413, f"the photograph has too many pixels; {allowed}") from error
    except UnidentifiedImageError as error:
        raise Refused(415, f"this is not a photograph; allowed are {', '.join(FORMATS)}") from error
    except (
        Exception
    ) as error:  # Pillow's decoders raise nearly every exception there is on a broken file
        raise Refused(
            422, f"the photograph cannot be read ({type(error).__name__}: {quoted(error)})"
        ) from error
