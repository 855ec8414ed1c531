"""The page that captions dropped photographs.

A photograph is posted as it is, with the settings in the query. The answer is a line of JSON for
the photograph and one per captioner, each sent as soon as it is decoded. A beam knows its words
only at the end, so the page's script shows the words of all searches one after the other.
"""

import asyncio
import copy
import io
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image, UnidentifiedImageError
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from captioning.backbones.base import check_one_image
from captioning.captioner import TrainedCaptioner
from captioning.config.explain import explain
from captioning.config.registry import PACKAGE
from captioning.config.types import Config
from captioning.errors import CaptioningError, quoted
from captioning.files import FORMATS
from captioning.pretrained.named import PRETRAINED, checkpoint_path
from captioning.report.gallery import as_jpeg, data_uri
from captioning.report.maps import Shown, quantise
from captioning.report.page import environment, joined
from captioning.runs.evaluation.searches import LONGEST, build_search, same_search
from captioning.serve.controls import decoding_choices, requested_decoding

EXAMPLES = PACKAGE.parent / "experiments" / "photographs"  # of a checkout; a wheel has none
MEGA = 1_000_000
SIDE = 640  # pixels of the longer side of the photograph on the page
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class ServedCaptioner(TrainedCaptioner):
    """The captioner of one checkpoint, which reads photographs."""

    title = ""  # its run or file

    @property
    def no_attention_reason(self) -> str:
        """The reason for missing maps; empty if there are maps."""
        network = self.first
        if not network.model.attends:
            return "no attention"
        if not network.backbone.located:
            return "no map: what it attends to has no place on the photograph"
        return ""

    def with_search(self, decoding: Config) -> "ServedCaptioner":
        """The same networks with another search."""
        other = copy.copy(self)
        limit = self.config["model"].get("max_tokens")
        other.search = build_search(decoding, self.vocabulary, limit)
        other.quantiles = self.quantiles if same_search(self.config["decoding"], decoding) else ()
        return other

    def shown(self, image: Image.Image) -> Shown:
        """The photograph as it is drawn below maps: upright, and no larger than the page needs."""
        pixels = self.first.backbone.transform.whole(image, SIDE)
        upright = Image.fromarray(pixels.permute(1, 2, 0).numpy())
        return {"photograph": data_uri("image/jpeg", as_jpeg(upright)), "size": upright.size}

    def caption_image(self, image: Image.Image) -> Shown:
        """Caption an image, best first: text, words, score, confidence, and maps as in reports."""
        begun = time.perf_counter()
        (pixels,) = self.preprocess(image)
        backbone = self.first.backbone
        features = backbone(pixels[None].to(self.device))  # once for all captions
        (best,) = self.decode([features])
        first, captions = self._prediction(best), []
        for caption in (first, *first.alternatives):
            maps = None
            if caption.words and not self.no_attention_reason:
                for kept in self.attention_record("", caption.decoded, [features]):
                    maps = quantise(kept.maps, backbone.transform.frame(image))
            captions.append(
                {
                    "caption": caption.caption,
                    "words": caption.words,
                    "score": round(caption.score, 4),
                    "confidence": caption.confidence,
                    "maps": maps,
                }
            )
        return {"captions": captions, "seconds": round(time.perf_counter() - begun, 3)}


def load_captioners(
    checkpoints: Sequence[Path], device: str, modules: Sequence[str]
) -> list[ServedCaptioner]:
    """Load the captioners of checkpoints that read photographs."""
    captioners = []
    for path in checkpoints:
        captioner = ServedCaptioner.from_checkpoint(path, device, modules=modules)
        check_one_image([captioner.first.backbone], "captioning serve")
        if not captioner.first.backbone.reads_images:
            raise CaptioningError(f"checkpoint={path} reads features or sentences, not photographs")
        run = path.absolute().parents[1].name
        captioner.title = run if path.parent.name == "checkpoints" else path.stem
        if path == checkpoint_path(PRETRAINED):
            captioner.title = "the bundled captioner"
        captioners.append(captioner)
    return captioners


class CaptionUploads:
    """Caption posted photographs, one at a time; `waiting` may wait, further ones are refused."""

    def __init__(
        self,
        captioners: Sequence[ServedCaptioner],
        megabytes: float,
        megapixels: float,
        waiting: int,
    ):
        self.captioners, self.megabytes, self.megapixels = captioners, megabytes, megapixels
        limits = [captioner.config["model"].get("max_tokens") for captioner in captioners]
        longest = min([LONGEST, *filter(None, limits)])
        self.choices = decoding_choices(captioners[0].config["decoding"], longest)
        self.slots, self.turn = asyncio.Semaphore(1 + waiting), asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI has it."""
        request = Request(scope, receive)
        self._check_headers(request)
        captioners = self._requested_captioners(request)
        if self.slots.locked():
            raise HTTPException(503, "too many photographs are waiting: try again in a moment")
        async with self.slots:
            try:
                content = await request.body()
            except ClientDisconnect:
                return
            image = await run_in_threadpool(read_upload, content, self.megapixels)
            try:
                shown = captioners[0].shown(image)
            except CaptioningError as error:  # pixels that have no meaning as colours
                raise HTTPException(422, str(error)) from error
            async with self.turn:
                lines = _json_lines(shown, captioners, image)
                answer = StreamingResponse(lines, media_type="application/x-ndjson")
                await answer(scope, receive, send)

    def _check_headers(self, request: Request) -> None:
        """Refuse what other pages post, and large files before they are read."""
        if request.headers.get("Origin") != f"http://{request.headers['Host']}":
            raise HTTPException(403, "only the page itself may post here")
        if "Content-Length" not in request.headers:
            raise HTTPException(411, "the request needs a Content-Length")
        size = float(request.headers["Content-Length"]) / MEGA
        if size > self.megabytes:
            allowed = f"allowed are {self.megabytes:g}: scale it down"
            raise HTTPException(413, f"the photograph has {size:.1f} MB; {allowed}")

    def _requested_captioners(self, request: Request) -> list[ServedCaptioner]:
        """The captioners with the search that a visitor asks for."""
        try:
            settings = json.loads(request.query_params["settings"])
        except (KeyError, ValueError, RecursionError) as error:
            raise HTTPException(400, "the query has the settings as JSON, settings={}") from error
        try:
            decoding = requested_decoding(self.choices, settings)
            return [captioner.with_search(decoding) for captioner in self.captioners]
        except (CaptioningError, ValidationError) as error:
            raise HTTPException(400, explain(error)) from error


async def _json_lines(
    shown: Mapping[str, Any], captioners: Sequence[ServedCaptioner], image: Image.Image
) -> AsyncIterator[str]:
    yield json.dumps(shown) + "\n"
    try:
        for column, captioner in enumerate(captioners):
            answer = await run_in_threadpool(captioner.caption_image, image)
            yield json.dumps({"column": column, **answer}) + "\n"
    except (RuntimeError, CaptioningError) as error:  # such as a GPU whose memory is full
        message = f"this photograph could not be captioned: {quoted(error)}"
        yield json.dumps({"error": message}) + "\n"


def read_upload(content: bytes, megapixels: float) -> Image.Image:
    """Decode an image in memory, not yet upright; size and format are judged first."""
    try:
        image = Image.open(io.BytesIO(content), formats=FORMATS)
        if image.width * image.height <= megapixels * MEGA:
            image.load()
            return image
    except Image.DecompressionBombError:  # of so many pixels that Pillow does not open it
        pass
    except UnidentifiedImageError as error:
        kinds = ", ".join(FORMATS)
        raise HTTPException(415, f"this is not a photograph; allowed are {kinds}") from error
    except Exception as error:  # Pillow's decoders raise nearly every exception there is
        reason = f"{type(error).__name__}: {quoted(error)}"
        raise HTTPException(422, f"the photograph cannot be read ({reason})") from error
    allowed = f"allowed are {megapixels:g} million: scale it down"
    raise HTTPException(413, f"the photograph has too many pixels; {allowed}")


def upload_page(uploads: CaptionUploads) -> tuple[list[BaseRoute], str]:
    """Route to the page, what it loads, and the captions of what it posts; and their policy."""
    examples = {path.name: path.read_bytes() for path in sorted(EXAMPLES.glob("*.jpg"))}
    templates = environment(__package__)
    html = templates.get_template("captions.html").render(
        captioners=uploads.captioners,
        choices=uploads.choices,
        megabytes=uploads.megabytes,
        examples=examples,
    )
    style = joined(templates, ["page.css", "captions.css"])
    script = joined(templates, ["maps.js", "words.js", "captions.js"])
    files = {
        "/": Response(html, media_type="text/html"),
        "/page.css": Response(style, media_type="text/css"),
        "/page.js": Response(script, media_type="text/javascript"),
    }
    for name, jpeg in examples.items():
        files[f"/examples/{name}"] = Response(jpeg, media_type="image/jpeg")
    routes = [Route(path, file, methods=["GET"]) for path, file in files.items()]
    return [*routes, Route("/captions", uploads, methods=["POST"])], POLICY
