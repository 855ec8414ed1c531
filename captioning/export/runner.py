"""Caption photographs with the graphs in this folder: `python run.py PHOTOGRAPH...`.

It prints a JSON line for one.

Needs only NumPy, Pillow, onnxruntime, and the modules beside it. From Python, in this folder:
`OnnxCaptioner(FOLDER).caption(PHOTOGRAPH)[0].text`.

C channels, H rows and W columns of pixels, K hypotheses, T tokens, L context vectors, V words.
"""

import argparse
import json
import re
import sys
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


class OnnxCaptioner:
    """The captioner of a folder written by `captioning.export format=onnx`.

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

    def caption(self, photograph: str | Path | Image.Image) -> list[Caption]:
        """The best captions of one photograph, `n_best` at most."""
        return self.decode(self._run("backbone", {"images": self.read(photograph)[None]}))

    def decode(self, context: dict[str, Array]) -> list[Caption]:
        """Beam search over one image's `vectors` `[1, L, D]`.

        `mask` `[1, L]` is there if its set is partial.

        At each step all continuations are ranked together. An EOS among the best K ends its
        hypothesis; the beam is filled up with open ones.
        """
        k, ranking = self.decoding["width"], self.ranking
        longest, n_best = ranking.max_length, ranking.n_best
        outputs = self._run("start", context)
        image = {name: array for name, array in outputs.items() if name.startswith("image.")}
        beam, ended, best = [_Hypothesis(0.0, [], [])], 0, []
        for length in range(1, longest + 1):
            words = self._allowed(outputs["log_probs"][0], [one.tokens for one in beam])
            shown = [outputs["attention"]] if "attention" in outputs else []
            scores = np.array([one.score for one in beam])[:, None] + words.astype(np.float64)
            parents, tokens = self._best(scores, 2 * k)
            grown = [
                _Hypothesis(
                    scores[parent, token],
                    [*beam[parent].tokens, int(token)],
                    [*beam[parent].attention, *(x[0, parent] for x in shown)],
                )
                for parent, token in zip(parents, tokens, strict=True)
            ]
            likely = [row for row, one in enumerate(grown) if one.score > -np.inf]
            done = [grown[row] for row in likely if row < k and tokens[row] == EOS]
            rows = [row for row in likely if tokens[row] != EOS][:k]
            beam, parents = [grown[row] for row in rows], parents[rows]
            ended += len(done)
            done += beam if length == longest else []  # cut
            best += [(one.score / ranking.divisor(length), one) for one in done]
            best = sorted(best, key=lambda pair: -pair[0])[:n_best]
            last = best[-1][0] if len(best) == n_best else -np.inf
            if (ended >= k and ranking.early_stopping) or not beam or length == longest:
                break
            if max(beam[0].score / each for each in ranking.divisors_to_come(length)) <= last:
                break
            own = {name: outputs[name][:, parents] for name in self.of_hypotheses}
            outputs = self._run(
                "step", {"tokens": np.array([[one.tokens[-1] for one in beam]]), **own, **image}
            )
        captions = []
        for score, one in best:
            known = [self.words[token] for token in one.tokens if token >= len(NAMES)]
            text = self.between.join(known).strip()
            text = re.sub(self.no_space_pattern, "", text) if self.no_space_pattern else text
            rank = confidence(score, self.quantiles)
            captions.append(Caption(text, float(score), rank, one.tokens, one.attention))
        return captions

    def _run(self, name: str, given: dict[str, Array]) -> dict[str, Array]:
        graph = self._graphs[name]
        names = [output.name for output in graph.get_outputs()]
        arrays = graph.run(names, {one.name: given[one.name] for one in graph.get_inputs()})
        return dict(zip([name.removesuffix(".next") for name in names], arrays, strict=True))

    @staticmethod
    def _best(scores: Array, count: int) -> tuple[Array, Array]:
        """Rows and columns of the largest numbers, the largest first."""
        flat = scores.ravel()
        count = min(count, flat.size)
        best = np.sort(np.argpartition(-flat, count - 1)[:count])
        return np.unravel_index(best[np.argsort(-flat[best], kind="stable")], scores.shape)  # type: ignore[return-value]

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

    def read(self, photograph: str | Path | Image.Image) -> Array:
        """Read a photograph as `[C, H, W]` uint8: colours, and a mask if padded."""
        if isinstance(photograph, Image.Image):
            return self._pixels(photograph)
        with Image.open(photograph, formats=self.preprocessing["formats"]) as image:
            image.draft(None, (2 * self.preprocessing["size"],) * 2)
            return self._pixels(image)

    def _pixels(self, image: Image.Image) -> Array:
        how = self.preprocessing
        image = to_rgb(upright(image), how["pixel_range"])
        image = to_square(image, how["size"], how["resize"], how["interpolation"], how["mean"])
        return np.ascontiguousarray(np.array(image).transpose(2, 0, 1))


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
    """Caption the photographs of a command line; 1 if one could not be read."""
    parser = argparse.ArgumentParser(description="Captions photographs, a JSON line for one.")
    parser.add_argument("photographs", nargs="+")
    parser.add_argument("--threads", type=int, default=0, help="0 takes all cores")
    for name in ("--width", "--max-length", "--n-best"):
        parser.add_argument(name, type=int, default=argparse.SUPPRESS)
    parser.add_argument("--length-penalty", type=float, default=argparse.SUPPRESS)
    settings = vars(parser.parse_args(arguments))
    photographs, failed = settings.pop("photographs"), 0
    try:
        captioner = OnnxCaptioner(**settings)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    for photograph in photographs:
        try:
            captions = captioner.caption(photograph)
        except Exception as error:  # Pillow's decoders raise any exception on a broken file
            # whose repr has no control characters
            print(f"error: cannot read the image {photograph!r}: {error!r}", file=sys.stderr)
            failed = 1
            continue
        first, *others = [
            {"caption": one.text, "score": round(one.score, 4), "confidence": one.confidence}
            for one in captions
        ]
        line = {"image": photograph, **first}
        if others:
            line["alternatives"] = others
        print(json.dumps(line, ensure_ascii=False), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
