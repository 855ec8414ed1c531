"""Captioners of the library `transformers`, not trained here: `checkpoint=transformers:FOLDER`.

B images of 3 colours, K captions of each, T tokens.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from captioning.backbones.base import Backbone
from captioning.backbones.images import ImageTransform
from captioning.config.registry import validate_arguments
from captioning.config.types import Config, Count, Length, given_path, validated_class
from captioning.data.images import Source, load_image
from captioning.data.pixels import to_rgb
from captioning.decoding import GeneratedCaption
from captioning.decoding.caption import best_first
from captioning.errors import CaptioningError, naming, quoted
from captioning.files import LARGEST_SIDE, MOST_PIXELS
from captioning.pretrained.library import DATA, LIBRARY, UNTRAINED
from captioning.pretrained.loading import load, load_model
from captioning.runs.checkpoints.networks import DecodedText, Network

SIDE = 512
"""Side of the padded square for models that take images of any shape."""
WHOLE = 2**15
"""More than the side of any JPEG file's image that would be read smaller."""


@validated_class
class LibraryDecoding:
    """Settings of `decoding`; their values are (D)."""

    width: Count = 3
    max_length: Length = 20
    length_penalty: float = 1.0
    early_stopping: bool = False
    n_best: Count = 1
    prompt: str | None = None


@dataclass(frozen=True)
class LibraryTransform(ImageTransform):
    """Images in the size and crop of the library's processor, without its normalisation."""

    processor: Any = None

    def read(self, source: Source) -> Tensor:
        with load_image(source, WHOLE) as image:
            image = to_rgb(image)
            if self.view:
                image = self.view(image, (self.size, self.size), source)
            given = {"do_rescale": False, "do_normalize": False, "return_tensors": "pt"}
            return self.processor(images=image, **given)["pixel_values"][0].round().to(torch.uint8)


class LibraryImages(Backbone):
    """In place of a backbone: images as the library's processor gives them to its model."""

    located = False

    def __init__(self, processor: Any, prompt: str | None):
        images = getattr(processor, "image_processor", processor)
        _check_sides(images)
        size = dict(getattr(images, "crop_size", None) or images.size)
        self._given: dict[str, Any] = {"return_tensors": "pt"}
        transform = ImageTransform(SIDE, resize="pad")
        if size.keys() == {"height", "width"}:  # else it reads any shape
            transform = LibraryTransform(size["height"], processor=images)
            self._given |= {"do_resize": False, "do_center_crop": False}
        # trainable, as images, not cached features, are its inputs
        super().__init__("transformers", nn.Identity(), 1, (1, 1), transform, True)
        self._images, self._prompt = images, prompt
        self._processor = processor
        self.is_chat = bool(getattr(processor, "chat_template", None))

    def context_of(self, inputs: Tensor) -> Any:
        """Arguments of `generate` for B images."""
        images = list(inputs[:, :3].cpu())
        if self._prompt is None:
            given = self._images(images=images, **self._given)
        else:
            text = self._prompt
            if self.is_chat:
                content = [{"type": "image"}, {"type": "text", "text": text}]
                message = [{"role": "user", "content": content}]
                text = self._processor.apply_chat_template(message, add_generation_prompt=True)
            # one prompt for all, so that tokens need no padding
            given = self._processor(images=images, text=[text] * len(images), **self._given)
        return {name: value.to(inputs.device) for name, value in given.items()}


def _check_sides(images: Any) -> None:
    """Refuse a processor that makes images far larger, or that does not say how large."""
    from transformers.image_utils import SizeDict  # here, as the library is of an extra

    if images.size is None:
        raise ValueError("its image processor has no size")
    pixels = hasattr(type(images), "merge_size")  # as Qwen's, whose edges are numbers of pixels
    most = MOST_PIXELS if pixels else LARGEST_SIDE
    for name, sizes in vars(images).items():
        for side, number in dict(sizes).items() if isinstance(sizes, dict | SizeDict) else ():
            if not 0 < number <= most:
                raise ValueError(f"{name}.{side}={number} of its image processor exceeds {most:,}")


class LibrarySearch:
    """`generate` of the library in the form of our searches, for inputs of `backbone`."""

    def __init__(self, processor: Any, how: LibraryDecoding):
        self.backbone, self.n_best = LibraryImages(processor, how.prompt), how.n_best
        self._special = torch.tensor(processor.tokenizer.all_special_ids)
        self._settings = {
            "num_beams": how.width,
            "max_new_tokens": how.max_length,
            "length_penalty": how.length_penalty,
            "early_stopping": how.early_stopping,
            "num_return_sequences": how.n_best,
            "do_sample": False,
            "return_dict_in_generate": True,
            "output_scores": True,
        }

    def __call__(self, model: Any, given: Mapping[str, Tensor]) -> list[GeneratedCaption]:
        with naming(f"{type(model).__name__} cannot generate captions"):
            out = model.generate(**given, **self._settings)
        prompt = given["input_ids"].shape[1] if "input_ids" in given else 0
        if prompt and not self.backbone.is_chat:  # BLIP leaves out its last token, the end
            prompt -= 1
        sequences = out.sequences.cpu()
        scores = out.get("sequences_scores")
        if scores is None:  # of greedy decoding: the sum until the end, which is a special token
            log_probs = torch.stack(out.scores, dim=1).log_softmax(dim=-1).cpu()
            new = sequences[:, -log_probs.shape[1] :]
            ends = torch.isin(new, self._special).long()
            said = ends.cumsum(dim=1) - ends == 0
            scores = (log_probs.gather(-1, new[..., None])[..., 0] * said).sum(dim=1)
        captions = [
            GeneratedCaption(row, score, None)
            for row, score in zip(sequences[:, prompt:].tolist(), scores.tolist(), strict=True)
        ]
        size = self.n_best
        return [best_first(captions[i : i + size]) for i in range(0, len(captions), size)]


def load_library(setting: str, device: torch.device, decoding: Config) -> tuple[Any, ...]:
    """The parts of a `TrainedCaptioner` from a folder of the library."""
    validate_arguments("decoding", LibraryDecoding, decoding)
    how = LibraryDecoding(**decoding)
    folder = given_path(setting.removeprefix(LIBRARY))
    model = load_model("AutoModelForImageTextToText", "checkpoint", folder)
    processor = load("AutoProcessor", "checkpoint", folder)
    if not hasattr(processor, "image_processor"):  # as of a vision-encoder-decoder
        processor = load("AutoImageProcessor", "checkpoint", folder)
        processor.tokenizer = load("AutoTokenizer", "checkpoint", folder)
    with naming(f"checkpoint={setting} cannot be loaded"):
        search = LibrarySearch(processor, how)
    backbone, family = search.backbone, model.config.model_type
    asked, can = how.prompt is not None, backbone.is_chat or family.startswith("blip")
    if (asked and not can) or (backbone.is_chat and not asked):
        needs = "takes no" if asked else "needs"
        raise CaptioningError(f"checkpoint={setting} ({family}) {needs} decoding.prompt=TEXT")
    title = f"{type(model).__name__} of {quoted(folder.name)}, {UNTRAINED}"
    config = {
        "data": DATA,
        "decoding": {"_target_": f"{type(model).__name__}.generate", **asdict(how)},
        "model": {},
    }
    network = Network(backbone, model, device, title)
    vocabulary = DecodedText(partial(processor.tokenizer.decode, skip_special_tokens=True))
    return config, vocabulary, [network], search, device
