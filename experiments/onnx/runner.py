"""Caption images with the graphs in this folder: `python run.py IMAGE...`.

It prints a JSON line for each.

Needs only NumPy, Pillow, onnxruntime, and the modules beside it. From Python, in this folder:
`OnnxCaptioner(FOLDER).caption(IMAGE)[0].text`.

C channels, H rows and W columns of pixels, K hypotheses, T tokens, L context vectors, V words.
"""

import argparse
import json
import re
import sys
from bisect import insort
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnxruntime
from PIL import Image

from captioning.data.pixels import to_rgb, to_square, upright
from captioning.decoding.filters import Filters, Pieces, Tokens
from captioning.decoding.ranking import Ranking, check_limits, confidence
from captioning.tokens import EOS, NAMES

TYPES: dict[str, Any] = {"integer": int, "number": (int, float), "boolean": bool, "string": str}
"""Of values, by their names in JSON Schema."""
Array = np.ndarray[Any, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Caption:
    """A caption, its score by which the search ranked, and the attention map of each token.

    Confidence is the share of validation captions with a lower score; None if unknown.
    """

    text: str
    score: float
    confidence: float | None
    tokens: list[int]
    attention: list[Array] = field(repr=False)  # T times `[L]`; empty for a model without attention


@dataclass(frozen=True)
class _Hypothesis:
    score: float
    tokens: list[int]
    attention: list[Array]


class _Beam:
    """The open hypotheses of one image, the best first, and the best captions so far."""

    def __init__(self, width: int, ranking: Ranking):
        self.width, self.ranking = width, ranking
        self.open = [_Hypothesis(0.0, [], [])]
        self.best: list[tuple[float, _Hypothesis]] = []  # scores by which captions are ranked
        self._ended = 0

    def advance(self, words: Array, maps: Array | None, length: int) -> list[int]:
        """Extend the hypotheses to `length` tokens; return the rows of those that stay open.

        All continuations are ranked together, by log-probabilities `words` `[K, V]`. An EOS among
        the best K ends its hypothesis; the beam is filled up with open ones. Attention `maps` are
        `[1, K, L]`, if any.
        """
        scores = np.array([one.score for one in self.open])[:, None] + words
        grown, rows = [], []
        for rank, (row, token) in enumerate(_largest(scores, 2 * self.width)):
            score, before = scores[row, token], self.open[row]
            if score == -np.inf:
                break
            attention = [] if maps is None else [*before.attention, maps[0, row]]
            one = _Hypothesis(score, [*before.tokens, token], attention)
            if token != EOS:
                grown.append(one)
                rows.append(row)
            elif rank < self.width:
                self._ended += 1
                self._keep(one, length)
        self.open = grown[: self.width]
        if length == self.ranking.max_length:  # cut
            for one in self.open:
                self._keep(one, length)
        return rows[: self.width]

    def _keep(self, one: _Hypothesis, length: int) -> None:
        score = one.score / self.ranking.divisor(length)
        insort(self.best, (score, one), key=lambda pair: -pair[0])
        del self.best[self.ranking.n_best :]

    def ended(self, length: int) -> bool:
        """Whether no better caption can follow after `length` tokens."""
        ranking = self.ranking
        if not self.open or length == ranking.max_length:
            return True
        if ranking.early_stopping and self._ended >= self.width:
            return True
        if len(self.best) < ranking.n_best:
            return False
        reachable = max(self.open[0].score / each for each in ranking.divisors_to_come(length))
        return reachable <= self.best[-1][0]


class OnnxCaptioner:
    """The captioner of a folder written by `experiments.onnx.export`.

    Args:
        folder: with `captioner.json` and the graphs.
        threads: of onnxruntime; 0 takes all cores.
        decoding: settings that replace the folder's, such as `width=5` or `n_best=3`.
    """

    def __init__(
        self, folder: str | Path = Path(__file__).parent, threads: int = 0, **decoding: Any
    ):
        about = json.loads((Path(folder) / "captioner.json").read_text(encoding="utf-8"))
        self.words, self.preprocessing = about["vocabulary"], about["preprocessing"]
        self.of_hypotheses = about["of_hypotheses"]
        self.between = about["between"]  # empty if the vocabulary has pieces with their blanks
        # a regular expression: blanks between words, as in Chinese
        self.no_space_pattern = about["no_space_pattern"]
        self.decoding = about["decoding"] | decoding
        _check(self.decoding, about["settings"])
        self.ranking = self._chosen(Ranking)
        kind = Tokens if self.between else Pieces
        self.filters = self._chosen(Filters).over(kind(self.words, about["language"]))
        # the best stays the best
        same = self.decoding | {"n_best": 1} == about["decoding"] | {"n_best": 1}
        self.quantiles = about["quantiles"] if same else []
        if about["longest"] and self.decoding["max_length"] > about["longest"]:
            raise ValueError(f"max_length is at most {about['longest']} for this captioner")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self._graphs = {
            name: onnxruntime.InferenceSession(
                Path(folder) / f"{name}.onnx", options, ["CPUExecutionProvider"]
            )
            for name in ("backbone", "start", "step")
        }

    def _chosen(self, settings: type[T]) -> T:
        """A dataclass of settings, with those of this captioner."""
        return settings(**{each.name: self.decoding[each.name] for each in fields(settings)})  # type: ignore[arg-type]

    def caption(self, image: str | Path | Image.Image) -> list[Caption]:
        """The best captions of one image, `n_best` at most."""
        return self.decode(self._run("backbone", {"images": self.read(image)[None]}))

    def decode(self, context: dict[str, Array]) -> list[Caption]:
        """Beam search over one image's `vectors` `[1, L, D]`.

        `mask` `[1, L]` is there if its set is partial.
        """
        outputs = self._run("start", context)
        image = {name: array for name, array in outputs.items() if name.startswith("image.")}
        beam = _Beam(self.decoding["width"], self.ranking)
        for length in range(1, self.ranking.max_length + 1):
            words = self._allowed(outputs["log_probs"][0], [one.tokens for one in beam.open])
            rows = beam.advance(words, outputs.get("attention"), length)
            if beam.ended(length):
                break
            tokens = np.array([[one.tokens[-1] for one in beam.open]])
            own = {name: outputs[name][:, rows] for name in self.of_hypotheses}
            outputs = self._run("step", {"tokens": tokens, **own, **image})
        return [self._caption(score, one) for score, one in beam.best]

    def _caption(self, score: float, one: _Hypothesis) -> Caption:
        words = [self.words[token] for token in one.tokens if token >= len(NAMES)]
        text = self.between.join(words).strip()
        if self.no_space_pattern:
            text = re.sub(self.no_space_pattern, "", text)
        rank = confidence(score, self.quantiles)
        return Caption(text, float(score), rank, one.tokens, one.attention)

    def _run(self, name: str, given: dict[str, Array]) -> dict[str, Array]:
        graph = self._graphs[name]
        names = [output.name for output in graph.get_outputs()]
        arrays = graph.run(names, {one.name: given[one.name] for one in graph.get_inputs()})
        return dict(zip([name.removesuffix(".next") for name in names], arrays, strict=True))

    def _allowed(self, words: Array, hypotheses: list[list[int]]) -> Array:
        """Set the log-probabilities `[K, V]` of words that may not follow to minus infinity."""
        left = self.ranking.max_length - len(hypotheses[0])
        ends = words[:, EOS].copy()
        words[:, self.decoding["never"]] = -np.inf
        if not self.filters.idle:
            words[~self.filters.allowed(hypotheses, words.shape[1], left)] = -np.inf
        nothing = (words == -np.inf).all(axis=1)  # there it ends
        words[nothing, EOS] = ends[nothing]
        return words

    def read(self, image: str | Path | Image.Image) -> Array:
        """Read an image as `[C, H, W]` uint8: colours, and a mask if padded."""
        if isinstance(image, Image.Image):
            return self._pixels(image)
        with Image.open(image, formats=self.preprocessing["formats"]) as opened:
            opened.draft(None, (2 * self.preprocessing["size"],) * 2)
            return self._pixels(opened)

    def _pixels(self, image: Image.Image) -> Array:
        how = self.preprocessing
        image = to_rgb(upright(image), how["pixel_range"])
        image = to_square(image, how["size"], how["resize"], how["interpolation"], how["mean"])
        return np.ascontiguousarray(np.array(image).transpose(2, 0, 1))


def _largest(scores: Array, count: int) -> list[tuple[int, int]]:
    """Rows and columns of the largest numbers, the largest first."""
    flat = scores.ravel()
    count = min(count, flat.size)
    best = np.sort(np.argpartition(-flat, count - 1)[:count])
    rows, columns = np.divmod(best[np.argsort(-flat[best], kind="stable")], scores.shape[1])
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


def _check(decoding: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Refuse settings that the search does not know, and values that it cannot have."""
    for name, value in decoding.items():
        if name not in schemas:
            raise ValueError(f"there is no setting {name!r:.200}; settings: {', '.join(schemas)}")
        if not _fits(value, schemas[name]):
            raise ValueError(
                f"{name}={value!r:.200} is not allowed; in JSON Schema it must be {schemas[name]}"
            )
    check_limits(decoding["width"], n_best=decoding["n_best"])


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value is as a JSON Schema of the few words that are used here."""
    if "enum" in schema:
        return value in schema["enum"]
    if "anyOf" in schema:
        return any(_fits(value, each) for each in schema["anyOf"])
    kind = schema["type"]
    if kind == "array":
        return isinstance(value, list | tuple) and all(_fits(x, schema["items"]) for x in value)
    if not isinstance(value, TYPES[kind]) or isinstance(value, bool) != (kind == "boolean"):
        return False
    low, high = schema.get("minimum", -np.inf), schema.get("maximum", np.inf)
    return kind not in ("integer", "number") or low <= value <= high


def main(arguments: list[str] | None = None) -> int:
    """Caption the images of a command line; 1 if one could not be read."""
    parser = argparse.ArgumentParser(description="Captions images, a JSON line for each.")
    parser.add_argument("images", nargs="+")
    parser.add_argument("--threads", type=int, default=0, help="0 takes all cores")
    for name in ("--width", "--max-length", "--n-best"):
        parser.add_argument(name, type=int, default=argparse.SUPPRESS)
    parser.add_argument("--length-penalty", type=float, default=argparse.SUPPRESS)
    settings = vars(parser.parse_args(arguments))
    paths, failed = settings.pop("images"), 0
    try:
        captioner = OnnxCaptioner(**settings)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    for path in paths:
        try:
            captions = captioner.caption(path)
        except Exception as error:  # Pillow's decoders raise any exception on a broken file
            # whose repr has no control characters
            print(f"error: cannot read the image {path!r}: {error!r}", file=sys.stderr)
            failed = 1
            continue
        first, *others = [
            {"caption": one.text, "score": round(one.score, 4), "confidence": one.confidence}
            for one in captions
        ]
        line = {"image": path, **first}
        if others:
            line["alternatives"] = others
        print(json.dumps(line, ensure_ascii=False), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
