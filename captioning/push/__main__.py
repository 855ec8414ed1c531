"""Upload a captioner to the hub: `captioning push checkpoint=FILE to=hf:USER/NAME`.

It gets a card with data, scores, settings and limits from the record of its run, and the source of
the user's parts. With `to=FOLDER` all is left there, to be looked at first.
"""

import re
import shlex
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from captioning import __version__
from captioning.config.command import command, start
from captioning.config.registry import PACKAGE, class_name, modules_of
from captioning.config.settings import Settings
from captioning.config.types import Config, PathText, given_path, map_values
from captioning.data.words import ENGLISH
from captioning.errors import CaptioningError, naming, quoted
from captioning.files import JOIN, atomic_folder, markdown_table, write_text
from captioning.metrics.metric import MAIN, ScoreType
from captioning.metrics.table import HEADLINE, SCORES
from captioning.pretrained.named import (
    FILE,
    REPOSITORY,
    check_checkpoint,
    checkpoint_path,
    hub_token,
    is_elsewhere,
)
from captioning.report.runs import TestRecord, read_record
from captioning.runs.folders.source import FOLDER as SOURCE
from captioning.runs.settings import relocate


class PushSettings(Settings):
    """Settings of `captioning push`."""

    checkpoint: PathText
    """RUN_FOLDER/checkpoints/best.ckpt (its scores go into the model card), or an export"""
    to: PathText
    """hf:USER/NAME, hf:USER/NAME@BRANCH, or a new folder, to inspect the files first"""
    half: bool
    """true: weights in half precision, as in captioning export"""
    licence: str | None
    """licence of the weights by its name on the hub, such as mit or cc-by-4.0"""


PATIENCE = 60  # seconds of silence; the library's own client waits for ever
TASK = "image-to-text"
OF_CARD = (
    "seed",
    "data",
    "backbone",
    "model",
    "objective",
    "optimizer",
    "schedule",
    "trainer",
    "decoding",
)


@command("push.yaml", PushSettings)
def main(config: PushSettings) -> None:
    """Write captioner and card to a folder, and upload it where it goes to the hub."""
    check_checkpoint("checkpoint", config.checkpoint)
    of_hub = REPOSITORY.fullmatch(config.to)
    if of_hub and hub_token() is None:
        raise CaptioningError(
            "you are not logged in to the Hugging Face Hub: give the command `hf auth login`, or "
            "set HF_TOKEN to a token that may write"
        )
    if not of_hub and (is_elsewhere(config.to) or given_path(config.to).exists()):
        raise CaptioningError(
            f"to={quoted(config.to)} is not allowed; it must be hf:USER/NAME, hf:USER/NAME@BRANCH "
            "or a new folder"
        )

    with TemporaryDirectory() as parent:
        folder = Path(parent, "captioner") if of_hub else given_path(config.to)
        called = config.to if of_hub else f"{folder.name}/{FILE}"  # not where it is here
        write_folder(
            folder, checkpoint_path(config.checkpoint), called, config.half, config.licence
        )
        if of_hub:
            print(upload(folder, config.to))
        else:
            print(f"{folder}: {', '.join(path.name for path in sorted(folder.iterdir()))}")


def write_folder(
    folder: Path, checkpoint: Path, called: str, half: bool, licence: str | None
) -> None:
    """Make `folder` with `captioner.safetensors` and `README.md`.

    `called` is the `checkpoint=` by which others name it.
    """
    # here, because PyTorch takes seconds
    from captioning.data.subwords import load_vocabulary
    from captioning.runs.checkpoints.checkpoint import load_checkpoint, write_safetensors

    saved = load_checkpoint(checkpoint)
    config = without_places(saved.config)
    parent = checkpoint.parent
    run = parent.parent if parent.name == "checkpoints" else parent
    source, own = run / SOURCE, own_modules(config)
    for module in own:
        file = source.joinpath(*module.split("."))
        if not (file.with_suffix(".py").is_file() or (file / "__init__.py").is_file()):
            raise CaptioningError(
                f"checkpoint={checkpoint} has parts of the module {quoted(module)}, which nobody "
                f"else has: put its source into {source}, and it travels with the captioner"
            )
    scores = run / "scores.json"  # of a run folder that this is the best checkpoint of
    record, score = None, saved.score
    if checkpoint.stem == "best" and scores.is_file():
        record = read_record(scores)
        tested = record.scores.get(HEADLINE)
        if tested is not None and not record.provenance.part:
            score = f"test/{HEADLINE} {SCORES[HEADLINE].printed(tested)}"
    vocabulary = load_vocabulary(saved.words)
    text = card(config, f"{len(vocabulary.words):,} {vocabulary.unit}", record, called, licence)
    with atomic_folder(folder) as draft:
        if own:
            shutil.copytree(source, draft / SOURCE, ignore=shutil.ignore_patterns("__pycache__"))
        write_safetensors(
            draft / FILE, config, saved.words, saved.networks, half, score, saved.quantiles
        )
        write_text(draft / "README.md", text)


def own_modules(config: Config) -> list[str]:
    """The user's modules that a captioner is built from."""
    sections = [config[name] for name in ("backbone", "model", "decoding")]
    modules = set().union(*map(modules_of, sections))
    return sorted(name for name in modules if not f"{name}.".startswith("captioning."))


def without_places(config: Config) -> Config:
    """Settings without the folders of this machine: of absolute paths the names are left.

    What lies below `data.root` still does, so that `data.root=FOLDER` moves all of it.
    """

    def named(node: Any) -> Any:
        return Path(node).name if isinstance(node, str) and Path(node).is_absolute() else node

    root = str(config["data"].get("root", ""))
    if Path(root).is_absolute():
        config = relocate(config, root, Path(root).name)
    return map_values(config, named)


def card(
    config: Config, words: str, record: TestRecord | None, called: str, licence: str | None
) -> str:
    """The text of `card.md` with the front matter of model cards.

    `record` is that of the run's test.
    """
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

    data = config.get("choices", {}).get("data") or "its data set"
    title, images = _title(config), config["backbone"].get("images", 1)
    scores, results = {}, []
    if record:
        known = ((score, record.scores.get(score.name)) for score in SCORES.values())
        scores = {score: x for score, x in known if score.group == MAIN and x is not None}
        if not record.provenance.part:  # which would stand beside scores of the whole split
            for score, value in scores.items():
                result = EvalResult(
                    task_type=TASK,
                    metric_type=_kind(score),
                    metric_name=score.name,
                    metric_value=round(value, 1),
                    dataset_type=data,
                    dataset_name=data,
                    dataset_split="test",
                )
                results.append(result)
    front = ModelCardData(
        language=config["data"].get("language") or ENGLISH,
        license=licence,
        library_name="captioning",
        pipeline_tag=TASK,
        tags=["image-captioning"],
        datasets=[data],
        metrics=sorted({_kind(score) for score in scores}) or None,
        model_name=title,
        eval_results=results or None,
    )
    call = f"checkpoint={called}"
    modules = ",".join(own_modules(config))
    if modules:
        call += f" {shlex.quote(quoted(f'modules=[{modules}]'))}"
    dumped = yaml.safe_dump({key: config[key] for key in OF_CARD if key in config}, sort_keys=False)
    backticks = max(["``", *re.findall("`+", dumped)], key=len)
    printed = [score.printed(x) for score, x in scores.items()]
    text = ModelCard.from_template(
        front,
        template_path=str(PACKAGE / "push" / "card.md"),
        title=_plain(title),
        plain=_plain,
        version=__version__,
        data=_plain(data),
        origin=config.get("source", {}),
        images=images,
        photographs=JOIN.join(["PHOTOGRAPH"] * images),
        call=call,
        code=SOURCE if modules else None,
        words=words,
        record=record,
        table=markdown_table([score.heading for score in scores], [printed]),
        settings=dumped,
        fence=f"{backticks}`",
    )
    return f"{text}\n"


def _title(config: Config) -> str:
    """Name the model and its backbone."""
    backbone = config["backbone"].get("of", config["backbone"])
    chosen = config.get("choices", {}).get("model")
    model = config["model"].get("title") or chosen or class_name(config["model"])
    return f"{model} on {backbone.get('name') or class_name(backbone)}"


def _plain(text: object) -> str:
    """One line of Markdown that shows a text of the checkpoint or record as it is."""
    return re.sub(r"[^\w\s.,+-]|(?<!\d)\.", r"\\\g<0>", quoted(text))


def _kind(score: ScoreType) -> str:
    """Name a metric without its variant: `bleu` of BLEU-4."""
    return score.name.partition("-")[0].lower()


def upload(folder: Path, name: str) -> str:
    """Upload the files of a folder as one commit to `hf:USER/NAME[@BRANCH]`; return its address."""
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.utils import get_session

    repository = REPOSITORY.fullmatch(name)
    assert repository is not None
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    size = sum(path.stat().st_size for path in files)
    print(f"{size / 1e6:.1f} MB go to {name}", file=sys.stderr)
    with naming(f"the Hugging Face Hub has not taken {name}"):
        get_session().timeout = PATIENCE
        commit = HfApi(token=hub_token()).create_commit(
            repository["repo_id"],
            [CommitOperationAdd(path.relative_to(folder).as_posix(), path) for path in files],
            commit_message="A captioner and its card",
            revision=repository["revision"],
        )
    return quoted(commit.commit_url)


if __name__ == "__main__":
    start(main)
