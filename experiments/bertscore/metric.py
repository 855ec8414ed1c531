"""BERTScore: cosines between the words of a caption and of a reference, in a language model.

Zhang et al., "BERTScore: Evaluating Text Generation with BERT", ICLR 2020.

T tokens of a text without the first and the last one, which mark its ends, d features.
"""

import os
from collections.abc import Callable, Iterable
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from captioning.config.types import given_path
from captioning.data.words import ENGLISH
from captioning.errors import CaptioningError
from captioning.machine import get_device
from captioning.metrics.metric import Fields, Images, Metric, Texts, first_pairs, main_score
from captioning.metrics.statistics import MetricResult
from captioning.pretrained.library import library_digest, read_folder
from captioning.pretrained.loading import load, load_model
from captioning.pretrained.named import SUFFIX, hub_token
from captioning.progress import progress_bar

if TYPE_CHECKING:
    from torch import Tensor

BATCH, IMAGES = 64, 256  # texts that are computed, and images whose features are held, at a time
LONGEST = 512  # tokens of a text, which is cut there
MODEL, LAYER, BASELINE = "BERTSCORE_MODEL", "BERTSCORE_LAYER", "BERTSCORE_BASELINE"


class Settings(BaseModel):
    """Variables of the environment."""

    model: str = Field("roberta-large", alias=MODEL)
    """a folder of `transformers` with safetensors, or a name on the Hugging Face Hub"""
    layer: int = Field(17, alias=LAYER, ge=1)
    """whose features are compared, from 1; 17 is that of the authors for roberta-large"""
    baseline: float | None = Field(None, alias=BASELINE, gt=-1, lt=1)
    """F of unrelated sentences b, from the authors' tables: scores are (F - b) / (1 - b) then"""


class BertScore(Metric):
    """Mean over images of F, of the reference with the highest; texts as they are written.

    Of a single pair it is what `torchmetrics` 1.9 computes. Of several pairs that function compares
    captions with the references of other images (its issue 2728), and is not used.
    """

    name = "BERTScore"
    scores = (main_score("BERTScore", "x 100", mean=True),)
    tokenized = False

    def __init__(self, language: str = ENGLISH, timeout: float = 60.0):
        super().__init__(language, timeout)
        given = Settings.model_validate({**os.environ})
        self.model, self.layer, self.baseline = given_path(given.model), given.layer, given.baseline
        if self.model.is_dir():
            read_folder(MODEL, self.model)

    def signature(self, references: Texts) -> Fields:
        fields = {"model": self.model, "layer": self.layer, "baseline": self.baseline}
        if self.model.is_dir():
            fields |= {"model": self.model.name, "sha256": self._digest[:8]}
        return fields | {"transformers": version("transformers")}

    @cached_property
    def _digest(self) -> str:
        return library_digest(self.model)

    @cached_property
    def _features_of(self) -> "Callable[[Iterable[str]], dict[str, Tensor]]":
        """A model of `transformers`, which gives features `[T, d]`, of length 1, of each text.

        It serves all validations of a training.
        """
        import torch  # here, because commands start without it

        name, layer = self.model, self.layer
        folder = name if name.is_dir() else _hub_folder(str(name))
        tokenizer = load("AutoTokenizer", MODEL, folder, padding_side="right")
        model = load_model("AutoModel", MODEL, folder).eval()
        device, layers = get_device("auto"), model.config.num_hidden_layers
        model.to(device)
        if not 1 <= layer <= layers:
            raise CaptioningError(f"{LAYER}={layer} is not among the {layers} of {name}")
        cut = {"padding": True, "truncation": True, "max_length": LONGEST}

        @torch.inference_mode()
        def features_of(texts: Iterable[str]) -> "dict[str, Tensor]":
            features, ordered = {}, sorted(texts, key=len)  # so that a batch has little padding
            for first in range(0, len(ordered), BATCH):
                batch = ordered[first : first + BATCH]
                tokens = tokenizer(batch, return_tensors="pt", **cut).to(device)
                states = model(**tokens, output_hidden_states=True).hidden_states[layer]
                states = torch.nn.functional.normalize(states, dim=-1).cpu()
                lengths = tokens["attention_mask"].sum(1).tolist()
                for text, row, length in zip(batch, states, lengths, strict=True):
                    features[text] = row[1 : length - 1]
            return features

        return features_of

    def compute(self, captions: Texts, references: Texts, images: Images = None) -> MetricResult:
        pairs, scores = [*first_pairs(captions, references)], []
        with progress_bar("BERTScore", len(pairs), "image") as bar:
            for first in range(0, len(pairs), IMAGES):  # so that memory does not grow with all
                some = pairs[first : first + IMAGES]
                features = self._features_of(
                    {text for pair in some for text in (pair[0], *pair[1])}
                )
                scores += [
                    max(_f_score(features[caption], features[text]) for text in known)
                    for caption, known in some
                ]
                bar.update(len(some))
        if self.baseline is not None:
            scores = [(score - self.baseline) / (1 - self.baseline) for score in scores]
        return MetricResult.from_means({self.name: scores})


def _f_score(caption: "Tensor", reference: "Tensor") -> float:
    """F of the best match of each token, `[T, d]` twice; 0 for a text without tokens."""
    if not len(caption) or not len(reference):
        return 0.0
    cosines = caption @ reference.T
    precision, recall = cosines.amax(1).mean().item(), cosines.amax(0).mean().item()
    return 2 * precision * recall / (precision + recall)


def _hub_folder(repository: str) -> Path:
    """The folder of a model's settings and safetensors on the hub, or in the hub's cache."""
    from huggingface_hub import snapshot_download  # here, because it takes a second

    files = ["*.json", "*.jinja", f"*{SUFFIX}"]
    return Path(snapshot_download(repository, allow_patterns=files, token=hub_token()))
