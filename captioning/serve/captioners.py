"""Trained captioners of the page, with captions and attention maps of a photograph."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image

from captioning.captioner import TrainedCaptioner
from captioning.config.searches import build_search, same_search
from captioning.decoding import Caption
from captioning.decoding.confidence import confidence
from captioning.download.named import PRETRAINED, checkpoint_path
from captioning.errors import CaptioningError
from captioning.report.gallery import as_jpeg, data_uri
from captioning.report.maps import packed

SIDE = 640  # pixels of the longer side of the photograph on the page


@dataclass(frozen=True, slots=True)
class ServedCaptioner:
    """A captioner of one checkpoint, titled by its run or file."""

    title: str
    captioner: TrainedCaptioner

    @property
    def about(self) -> str:
        """Its system, score and size."""
        return repr(self.captioner.networks[0])

    @property
    def max_tokens(self) -> int | None:
        """The longest caption that the model can read, if limited."""
        found: int | None = self.captioner.config["model"].get("max_tokens")
        return found

    @property
    def blind(self) -> str:
        """The reason for missing maps; empty if there are maps."""
        network = self.captioner.networks[0]
        if not getattr(network.model, "attends", True):
            return "no attention"
        return "" if network.backbone.located else "no map: what it attends to has no place on the photograph"

    def searching(self, decoding: Mapping[str, Any]) -> "ServedCaptioner":
        """The same networks with another search."""
        known = self.captioner
        search = build_search(decoding, known.vocabulary, self.max_tokens)
        quantiles = known.quantiles if same_search(known.config["decoding"], decoding) else ()
        captioner = TrainedCaptioner(known.config, known.vocabulary, known.networks, search, known.device, quantiles)
        return replace(self, captioner=captioner)

    def shown(self, image: Image.Image) -> dict[str, Any]:
        """The photograph as it is drawn below maps: upright, and no larger than the page needs."""
        transform = self.captioner.networks[0].backbone.transform
        upright = Image.fromarray(transform.whole(image, SIDE).permute(1, 2, 0).numpy())
        return {"photograph": data_uri("image/jpeg", as_jpeg(upright)), "size": upright.size}

    def caption(self, image: Image.Image) -> dict[str, Any]:
        """The captions of a photograph, best first: words, score, confidence and maps as in the report."""
        begun = time.perf_counter()
        captioner = self.captioner
        (pixels,) = captioner.read(image)
        backbone = captioner.networks[0].backbone
        features = backbone(pixels[None].to(captioner.device))  # once for all captions
        (best,) = captioner.decode([features], [False])
        captions = []
        found: list[Caption] = [best, *best.alternatives]
        for caption in found:
            words = captioner.vocabulary.each_word(caption.tokens)
            kept = captioner.kept("", caption, [features], [False]) if words else []
            maps = packed(kept[0].maps, backbone.transform.frame(image)) if kept else None
            sure = confidence(caption.score, captioner.quantiles)
            captions.append({"words": words, "score": round(caption.score, 4), "confidence": sure, "maps": maps})
        return {"captions": captions, "seconds": round(time.perf_counter() - begun, 3)}


def load_captioners(checkpoints: Sequence[Path], device: str, modules: Sequence[str]) -> list[ServedCaptioner]:
    """Load the captioners of checkpoints that read photographs."""
    served = []
    for path in checkpoints:
        captioner = TrainedCaptioner.from_checkpoint(path, device, modules=modules)
        if not captioner.networks[0].backbone.reads_photographs:
            raise CaptioningError(f"checkpoint={path} reads precomputed features, not photographs")
        title = path.absolute().parents[1].name if path.parent.name == "checkpoints" else path.stem
        title = "the bundled captioner" if path == checkpoint_path(PRETRAINED) else title
        served.append(ServedCaptioner(title, captioner))
    return served
