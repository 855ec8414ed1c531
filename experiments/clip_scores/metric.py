"""CLIPScore, PAC-S and their variants with references, from embeddings or by open_clip.

B images, N references of all of them, d numbers of an embedding.

Hessel et al., "CLIPScore: A Reference-free Evaluation Metric for Image Captioning", EMNLP 2021;
Sarto et al., "Positive-Augmented Contrastive Learning for Image and Video Captioning Evaluation",
CVPR 2023.

A file `OURS.npz` of embeddings has the arrays `images [B, d]`, `captions [B, d]` and
`references [N, d]`, in the order of `OURS.texts.json`, and `texts` (their digest from there),
`model` (such as `ViT-B/32`) and `cut` (tokens of a text).
"""

import hashlib
import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from captioning.config.types import given_path
from captioning.data.words import ENGLISH
from captioning.errors import CaptioningError, quoted
from captioning.files import atomic_write, read_arrays, write_json
from captioning.metrics.metric import (
    Fields,
    Images,
    Metric,
    ScoredImage,
    Texts,
    first_captions,
    main_score,
)
from captioning.metrics.statistics import Array, MetricResult

FILES, WEIGHTS = "CLIP_EMBEDDINGS", "CLIP_WEIGHTS"
"""Variables of the environment: files of embeddings, with `:` between them, and a folder."""
PREFIX = "A photo depicts "

_Text = Annotated[str, BeforeValidator(str), Field(pattern=r"^\P{C}+$", max_length=100)]


def _finite(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "f" or array.ndim != 2 or not np.isfinite(array).all():
        raise ValueError("must be a matrix of finite floating-point numbers")
    return array


Matrix = Annotated[np.ndarray, AfterValidator(_finite)]


class Embeddings(BaseModel):
    """Contents of a file of embeddings."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    images: Matrix
    captions: Matrix
    references: Matrix
    texts: _Text
    model: _Text
    cut: _Text

    @classmethod
    def read(cls, file: Path) -> "Embeddings":
        try:
            return cls.model_validate(read_arrays(file))
        except Exception as error:  # the readers of a damaged archive raise nearly anything
            raise CaptioningError(f"{file} is not a file of embeddings: {quoted(error)}") from error


def clip_score(images: Array, captions: Array, weight: float = 2.5) -> Array:
    """CLIPScore of each caption, 0 to `weight`: `[B, d]` twice to `[B]`."""
    return weight * np.maximum(_cosine(images, captions), 0)


def ref_clip_score(
    score: Array, captions: Array, references: Array, counts: Sequence[int]
) -> Array:
    """RefCLIPScore: the harmonic mean of CLIPScore and of the most similar reference.

    0 if either is.

    Args:
        score: CLIPScore `[B]`.
        captions: `[B, d]`.
        references: `[N, d]`, the first `counts[0]` of the first image, and so on; at least one of
            each.
        counts: B numbers that sum to N.
    """
    similar = _cosine(np.repeat(captions, counts, axis=0), references)
    best = np.maximum(np.maximum.reduceat(similar, np.cumsum([0, *counts[:-1]])), 0)
    return 2 * score * best / np.maximum(score + best, np.finfo(np.float64).tiny)


def _cosine(one: Array, other: Array) -> Array:
    """Row by row; 0 for a vector of zeros."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.einsum("bd,bd->b", one, other) / np.maximum(lengths, np.finfo(np.float64).tiny)


class ClipScore(Metric):
    """CLIPScore and RefCLIPScore of captions by embeddings in files, one for each set of captions.

    A file that is not there yet is made by the network in the folder `WEIGHTS`; without a folder,
    it has to be made elsewhere.
    """

    name = "CLIPScore"
    scores = tuple(main_score(name, "x 100", mean=True) for name in ("CLIPScore", "RefCLIPScore"))
    tokenized = False
    weight = 2.5

    _embeddings: Embeddings

    def __init__(self, language: str = ENGLISH, timeout: float = 60.0):
        super().__init__(language, timeout)
        if not (files := os.environ.get(FILES)):
            raise CaptioningError(f"it needs embeddings, which may be new: {FILES}=FILE.npz")
        self._files = [given_path(file) for file in files.split(os.pathsep)]
        self._embed = None
        if weights := os.environ.get(WEIGHTS):
            from experiments.clip_scores import embed  # here, because PyTorch takes seconds

            self._embed = partial(embed.embed, embed.check_folder(given_path(weights)))
        self._waiting: list[Path] = []  # files that other texts wait for

    def find(self, captions: Texts, references: Texts, images: Sequence[ScoredImage]) -> Embeddings:
        """Read or make them, or write the texts for another tool and say so in an error."""
        texts = {
            "captions": [PREFIX + text for text in first_captions(captions)],
            "references": [PREFIX + text for texts in references for text in texts],
        }
        ids = [image.image_id for image in images]
        digest = hashlib.sha256(json.dumps([ids, texts]).encode()).hexdigest()
        for file in filter(Path.exists, self._files):
            known = Embeddings.read(file)
            if known.texts == digest:
                return known
        absent = [f for f in self._files if not f.exists() and f not in self._waiting]
        if not absent:
            raise CaptioningError(
                f"the embeddings in {', '.join(map(str, self._files))} are of other captions or "
                "references: name a file that does not exist yet, to write the texts of these"
            )
        file, paths = absent[0], [image.path for image in images if image.path]
        if self._embed is not None:
            arrays = self._embed(paths, texts)
            with atomic_write(file) as opened:
                np.savez(opened, texts=digest, **arrays)
            return Embeddings.read(file)
        self._waiting.append(file)
        waiting = file.with_suffix(".texts.json")
        names = list(map(str, paths))
        write_json(waiting, {"texts": digest, "ids": ids, "photographs": names, **texts})
        raise CaptioningError(
            f"embed the texts of {waiting} and the photographs into {file}, and give this command "
            "again"
        )

    def signature(self, references: Texts) -> Fields:
        made = self._embeddings
        fields = {"w": self.weight, "model": made.model, "prefix": PREFIX.strip(), "cut": made.cut}
        return fields | {"dtype": str(made.captions.dtype)}

    def compute(self, captions: Texts, references: Texts, images: Images = None) -> MetricResult:
        self._embeddings = self.find(captions, references, images or ())
        counts = [len(texts) for texts in references]
        rows, width = len(counts), self._embeddings.images.shape[-1]
        shapes = [(rows, width), (rows, width), (sum(counts), width)]
        arrays = [getattr(self._embeddings, n) for n in ("images", "captions", "references")]
        if [array.shape for array in arrays] != shapes:
            raise CaptioningError(
                f"embeddings of {rows} images must have the shapes images, captions, "
                f"references={shapes}"
            )
        of_images, of_captions, of_references = (array.astype(float) for array in arrays)
        score = clip_score(of_images, of_captions, self.weight)
        referred = ref_clip_score(score, of_captions, of_references, counts)
        names = [score.name for score in self.scores]
        return MetricResult.from_means(
            dict(zip(names, (score.tolist(), referred.tolist()), strict=True))
        )


class PacScore(ClipScore):
    """PAC-S and RefPAC-S: the same with CLIP as Sarto et al. trained it further."""

    name = "PAC-S"
    scores = tuple(main_score(name, "x 100", mean=True) for name in ("PAC-S", "RefPAC-S"))
    weight = 2.0
