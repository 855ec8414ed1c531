"""CLIPScore and RefCLIPScore from embeddings that are made elsewhere, or by open_clip.

B images, N references of all of them, d numbers of an embedding.

Hessel et al., "CLIPScore: A Reference-free Evaluation Metric for Image Captioning", EMNLP 2021.

A file `OURS.npz` of embeddings has the arrays `images [B, d]`, `captions [B, d]` and `references
[N, d]`, in the order of `OURS.texts.json`, and `texts` (their digest from there), `model` (such as
`ViT-B/32`) and `cut` (tokens of a text).
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from captioning.errors import CaptioningError, quoted
from captioning.files import atomic_write, read_arrays, write_json
from captioning.metrics.signature import sign
from captioning.metrics.statistics import Array, Computed, means

PREFIX = "A photo depicts "
WEIGHT = 2.5
NAMES = ("CLIPScore", "RefCLIPScore")

log = logging.getLogger(__name__)

_Text = Annotated[str, BeforeValidator(str), Field(pattern=r"^\P{C}+$", max_length=100)]


def _finite(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "f" or array.ndim != 2 or not np.isfinite(array).all():
        raise ValueError("must be a matrix of finite floating-point numbers")
    return array


Embed = Callable[[Sequence[Path], Mapping[str, Sequence[str]]], Mapping[str, Any]]
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


def clip_score(images: Array, captions: Array) -> Array:
    """CLIPScore of each caption, 0 to 2.5: `[B, d]` twice to `[B]`."""
    return WEIGHT * np.maximum(_cosine(images, captions), 0)


def ref_clip_score(
    score: Array, captions: Array, references: Array, counts: Sequence[int]
) -> Array:
    """RefCLIPScore: the harmonic mean of CLIPScore and of the most similar reference, 0 if either
    is.

    Args:
        score: CLIPScore `[B]`. captions: `[B, d]`. references: `[N, d]`, the first `counts[0]` of
        the first image, and so on; at least one of each. counts: B numbers that sum to N.
    """
    similar = _cosine(np.repeat(captions, counts, axis=0), references)
    best = np.maximum(np.maximum.reduceat(similar, np.cumsum([0, *counts[:-1]])), 0)
    return 2 * score * best / np.maximum(score + best, np.finfo(np.float64).tiny)


def _cosine(one: Array, other: Array) -> Array:
    """Row by row; 0 for a vector of zeros."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.einsum("bd,bd->b", one, other) / np.maximum(lengths, np.finfo(np.float64).tiny)


class ClipScore:
    """CLIPScore and RefCLIPScore of captions whose embeddings are in one of some files.

    The texts of other captions are written beside the first file that does not exist yet, or
    embedded into it.

    Args:
        files: of embeddings.
        ids: of each image that can be scored.
        references: of the same images.
        photographs: of the same images, if they are known.
        embed: makes the arrays of a file from photographs and from texts by name.
    """

    name = "CLIPScore"

    def __init__(
        self,
        files: Sequence[Path],
        ids: Sequence[int | str],
        references: Sequence[Sequence[str]],
        photographs: Sequence[Path] = (),
        embed: Embed | None = None,
    ) -> None:
        self._files, self._ids, self._references = files, ids, references
        self._photographs, self._embed = photographs, embed
        self._taken: list[Path] = []  # by texts that wait
        self.signature = ""

    def __call__(self, positions: Sequence[int], captions: Sequence[str]) -> Computed:
        """Score the captions of the images at these positions; nothing without embeddings."""
        references = [self._references[position] for position in positions]
        ids = [self._ids[position] for position in positions]
        texts = {
            "captions": [PREFIX + caption for caption in captions],
            "references": [PREFIX + text for each in references for text in each],
        }
        digest = hashlib.sha256(json.dumps([ids, texts]).encode()).hexdigest()
        known = next(
            (
                each
                for file in self._files
                if file.exists() and (each := _read(file)).texts == digest
            ),
            None,
        )
        if known is None:
            new = next(
                (file for file in self._files if not file.exists() and file not in self._taken),
                None,
            )
            if new is None:
                raise CaptioningError(
                    f"the embeddings in {', '.join(map(str, self._files))} are of other captions "
                    "or references: name "
                    "a file that does not exist yet, to write the texts of these"
                )
            self._taken.append(new)
            photographs = [
                self._photographs[position] for position in positions if self._photographs
            ]
            if self._embed is None:
                waiting = new.with_suffix(".texts.json")
                write_json(
                    waiting,
                    {"texts": digest, "ids": ids, "photographs": [*map(str, photographs)], **texts},
                )
                log.info(
                    "no CLIPScore yet: embed the texts of %s and the photographs into %s, and give "
                    "this command again",
                    *(waiting, new),
                )
                return Computed({}, {}, None)
            found = self._embed(photographs, texts)
            with atomic_write(new) as file:
                np.savez(file, texts=digest, **found)
            known = _read(new)
        return self._scored(known, [len(each) for each in references])

    def _scored(self, found: Embeddings, counts: Sequence[int]) -> Computed:
        rows, width = len(counts), found.images.shape[-1]
        shapes = [(rows, width), (rows, width), (sum(counts), width)]
        if [each.shape for each in (found.images, found.captions, found.references)] != shapes:
            raise CaptioningError(
                f"embeddings of {rows} images must have the shapes images, captions, "
                f"references={shapes}"
            )
        images, captions, references = (
            np.asarray(each, dtype=np.float64)
            for each in (found.images, found.captions, found.references)
        )
        fields = {"w": WEIGHT, "model": found.model, "prefix": PREFIX.strip(), "cut": found.cut}
        self.signature = sign(self.name, fields | {"dtype": str(found.captions.dtype)})
        score = clip_score(images, captions)
        both = score, ref_clip_score(score, captions, references, counts)
        return means({name: each.tolist() for name, each in zip(NAMES, both, strict=True)})


def _read(file: Path) -> Embeddings:
    try:
        return Embeddings.model_validate(read_arrays(file))
    except Exception as error:  # the readers of a damaged archive raise nearly anything
        raise CaptioningError(f"{file} is not a file of embeddings: {quoted(error)}") from error
