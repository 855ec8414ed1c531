"""Parts of the benchmark whose inputs are in memory: start-up, training, decoding, backbone, scoring.

B images, N captions per image.
"""

import io
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr
from functools import partial
from pathlib import Path

import torch
from omegaconf import DictConfig
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.meteor.meteor import Meteor
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

from captioning.backbones import Backbone
from captioning.backbones.base import ContextSet
from captioning.benchmark.built import TrainingStep, built_backbone, built_checkpoint, built_model, chosen_device
from captioning.benchmark.material import photographs, random_batch, sentences
from captioning.benchmark.measure import (
    DTYPES,
    Comparison,
    Measurement,
    Run,
    compare,
    isolated,
    peak_after,
    peak_bytes,
    timed,
)
from captioning.benchmark.naive import naive_beam
from captioning.decoding import FORBIDDEN, beam_search, greedy
from captioning.features.build import build_features
from captioning.machine import has_bfloat16
from captioning.metrics import Scorer
from captioning.metrics.java import find_java
from captioning.tokens import EOS

NO_BFLOAT16 = "left out: this CPU has no bfloat16 instructions"
NO_END = (*FORBIDDEN, EOS)  # never generated, so that every caption has the full length
Captions = dict[int, list[dict[str, str]]]
Tokens = dict[int, list[str]]
KILOBYTES = 1 if sys.platform == "darwin" else 1024  # bytes in the unit of `getrusage`
LIBRARIES = "import torch"
LOADED = "captioning.load(CHECKPOINT)"
COMMANDS = {
    LIBRARIES: ["-c", LIBRARIES],
    "captioning --help": ["-m", "captioning", "--help"],
    "captioning run --help": ["-m", "captioning.run", "--help"],
    "captioning run data.root=nowhere": ["-m", "captioning.run", "data=flickr8k", "data.root=nowhere"],
    "captioning evaluate captions=nowhere": ["-m", "captioning.evaluate", "captions=nowhere", "references=nowhere"],
    "captioning report --help": ["-m", "captioning.report", "--help"],
    LOADED: ["-c", "import sys, captioning; captioning.load(sys.argv[1], 'cpu')"],
}


def startup(config: DictConfig) -> Iterator[Measurement]:
    """Fresh processes in turn; files lie in the page cache."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "c.ckpt"
        torch.save(built_checkpoint(config), checkpoint)
        actions = {name: partial(_python, arguments) for name, arguments in COMMANDS.items()}
        actions[LOADED] = partial(_python, [*COMMANDS[LOADED], str(checkpoint)])
        seconds = timed(actions, config.repeats, torch.device("cpu"))
    libraries = Run(1, seconds[LIBRARIES]).median
    for name, run in ((name, Run(1, each)) for name, each in seconds.items()):
        note = "" if name == LIBRARIES else f"{run.median - libraries:+.2f} s beside `{LIBRARIES}`"
        yield Measurement("startup", f"`{name}`", ours=run, note=note)


def _python(arguments: list[str]) -> None:
    # in an empty folder, where the package must be found as it was by this process
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *arguments]
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    refused = ended.returncode == 1 and ended.stderr.splitlines()[-1].startswith("error: ")
    assert ended.returncode == 0 or refused, ended.stderr


def training(config: DictConfig) -> Iterator[Measurement]:
    """Each precision, then the memory of a large batch."""
    images, captions = config.batch.images, config.batch.captions
    for precision in config.precisions:
        name = f"{precision}, {images} x {captions} captions"
        if precision == "bf16-mixed" and not has_bfloat16(chosen_device(config)):
            yield Measurement("training", name, note=NO_BFLOAT16)
            continue
        found = isolated(_compared_training, config, precision)
        ours, naive = (Run(images * captions, seconds) for seconds in (found.ours, found.naive))
        naive_peak = isolated(_peak_training, config, precision, images, naive=True)
        yield Measurement("training", name, "captions", ours, naive, found.ceiling, found.peak, naive_peak)
    largest, precision = config.memory.training_images, config.precisions[0]
    peak = isolated(_peak_training, config, precision, largest, naive=False)
    yield Measurement("training", f"{precision}, {largest} x {captions} captions, memory alone", peak=peak)


def _compared_training(config: DictConfig, precision: str) -> Comparison:
    device, step = chosen_device(config), TrainingStep.built(config, precision)
    batch = random_batch(config, config.batch.images, config.batch.captions).to(device)
    return compare(partial(step, batch), partial(step, batch, naive=True), DTYPES[precision], config.repeats, device)


def _peak_training(config: DictConfig, precision: str, images: int, naive: bool) -> int | None:
    device, step = chosen_device(config), TrainingStep.built(config, precision)
    return peak_after(partial(step, random_batch(config, images, config.batch.captions).to(device), naive), device)


def decoding(config: DictConfig) -> Iterator[Measurement]:
    """Each width at each batch size, the naive search one image at a time; then memory by the number of batches."""
    for width in config.search.widths:
        naive_peak = isolated(_peak_decoding, config, width, 1, 1, naive=True)
        for images in config.search.batches:
            found = isolated(_compared_decoding, config, width, images)
            ours, naive = Run(images, found.ours), Run(1, found.naive)
            name = f"{_search_name(width)}, batch {images}"
            yield Measurement("decoding", name, "images", ours, naive, found.ceiling, found.peak, naive_peak)
    width, images, few, many = (config.memory[key] for key in ("width", "images", "few_batches", "many_batches"))
    peaks = {batches: isolated(_peak_decoding, config, width, images, batches, naive=False) for batches in (few, many)}
    before, after = peaks[few], peaks[many]
    note = f"after {many} batches; {before / 1e9:.2f} GB after {few}" if before else ""
    raw: dict[str, float | list[float] | None] = {f"peak after {n} batches": peak for n, peak in peaks.items()}
    yield Measurement(
        "decoding", f"{_search_name(width)}, batch {images}, memory alone", peak=after, note=note, raw=raw
    )


def _search_name(width: int) -> str:
    return "greedy" if width == 1 else f"beam {width}"


def _compared_decoding(config: DictConfig, width: int, images: int) -> Comparison:
    ours = _decoding(config, width, images, naive=False)
    return compare(ours, _decoding(config, width, 1, naive=True), torch.float32, config.repeats, chosen_device(config))


def _peak_decoding(config: DictConfig, width: int, images: int, batches: int, naive: bool) -> int | None:
    return peak_after(_decoding(config, width, images, naive), chosen_device(config), batches)


def _decoding(config: DictConfig, width: int, images: int, naive: bool) -> Callable[[], object]:
    model = built_model(config).eval()
    vectors = random_batch(config, images, captions=1).inputs.to(chosen_device(config))
    context, length = ContextSet(vectors, tuple(config.context.grid)), config.search.max_length
    if naive:
        return partial(naive_beam, model, context, width, length, NO_END)  # type: ignore[arg-type]
    if width == 1:
        return partial(greedy, model, context, length, NO_END)  # type: ignore[arg-type]
    return partial(beam_search, model, context, width, length, forbidden=NO_END)  # type: ignore[arg-type]


def backbone(config: DictConfig) -> Iterator[Measurement]:
    """A feature cache of photographs made for it; naively, one photograph after the other, a file for each."""
    number, (width, height) = config.photographs.number, config.photographs.size
    with tempfile.TemporaryDirectory() as folder:
        paths = photographs(Path(folder), number, width, height)
        found = isolated(_compared_backbone, config, paths)
        naive_peak = isolated(_naive_backbone_peak, config, paths)
    ours, naive = Run(number, found.ours), Run(number, found.naive)
    network = config.backbone.get("name") or config.backbone._target_.rpartition(".")[2]
    name = f"{network}, {number} files of {width} x {height}"
    note = "memory without that of the decoding processes"
    yield Measurement("backbone", name, "images", ours, naive, found.ceiling, found.peak, naive_peak, note)


def _compared_backbone(config: DictConfig, paths: Sequence[Path]) -> Comparison:
    network = built_backbone(config)
    return compare(
        lambda: _build(network, paths),
        lambda: _one_by_one(network, paths),
        torch.float32,
        config.repeats,
        chosen_device(config),
    )


def _naive_backbone_peak(config: DictConfig, paths: Sequence[Path]) -> int | None:
    _one_by_one(built_backbone(config), paths)
    return peak_bytes(chosen_device(config))


def _build(backbone: Backbone, paths: Sequence[Path]) -> None:
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):  # the progress bar
        build_features(backbone, paths, Path(folder))


def _one_by_one(backbone: Backbone, paths: Sequence[Path]) -> None:
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        for i, path in enumerate(paths):
            image = backbone.transform.read(path)[None].to(backbone.scale.device)
            torch.save(backbone(image)[0].half().cpu(), Path(folder) / f"{i}.pt")


def scoring(config: DictConfig) -> Iterator[Measurement]:
    """Candidates are tokenised and scored; references are tokenised beforehand on both sides."""
    captions, references = config.scoring.captions, config.scoring.references
    seconds, peak, largest = isolated(_scoring_seconds, captions, references, config.repeats)
    ours, naive = Run(captions, seconds["ours"]), Run(captions, seconds["raw"])
    yield Measurement(
        "scoring",
        f"{captions:,} captions, {references} references each",
        "captions",
        ours,
        naive,
        peak=peak,
        note=f"naive: raw pycocoevalcap ({naive.median:.2f} s); the largest Java process took {largest / 1e9:.2f} GB",
        raw={"peak of the largest Java process": largest},
    )


def _scoring_seconds(captions: int, references: int, repeats: int) -> tuple[dict[str, list[float]], int | None, int]:
    """Seconds of both in turn, peak memory of this process after ours, and of the largest that it started."""
    made = sentences(captions, references + 1)
    candidates = {i: texts[0] for i, texts in enumerate(made)}
    scorer = Scorer([texts[1:] for texts in made])
    scorer.score(candidates)  # tokenises the references too
    cpu = torch.device("cpu")
    peak, largest = peak_bytes(cpu), KILOBYTES * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss

    # pycocoevalcap starts whatever `java` is; it is to be the same one.
    os.environ["PATH"] = os.pathsep.join([str(find_java().parent), os.environ.get("PATH", "")])
    tokenized = _tokenized(_coco({i: texts[1:] for i, texts in enumerate(made)}))
    coco_candidates = _coco({i: [text] for i, text in candidates.items()})
    actions = {"ours": lambda: scorer.score(candidates), "raw": lambda: raw_scores(tokenized, coco_candidates)}
    return timed(actions, repeats, cpu), peak, largest


def _coco(captions: Tokens) -> Captions:
    return {i: [{"caption": text} for text in texts] for i, texts in captions.items()}


def _tokenized(captions: Captions) -> Tokens:
    """Captions tokenised by pycocoevalcap, without the line that its Java writes to standard error."""
    kept = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        tokens: Tokens = PTBTokenizer().tokenize(captions)
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    return tokens


def raw_scores(references: Tokens, candidates: Captions) -> dict[str, float]:
    """The corpus scores, 0-1, by pycocoevalcap's own classes as its `COCOEvalCap.evaluate` calls them.

    Args:
        references: by image, tokenised.
        candidates: by image, one each, not tokenised.
    """
    captions = _tokenized(candidates)
    bleu, _ = Bleu(4).compute_score(references, captions, verbose=0)
    scores = {f"BLEU-{n}": score for n, score in enumerate(bleu, 1)}
    for name, scorer in (("METEOR", Meteor()), ("ROUGE-L", Rouge()), ("CIDEr", Cider())):
        scores[name] = float(scorer.compute_score(references, captions)[0])
    return scores
