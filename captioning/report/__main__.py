"""Gathers runs into tables and pictures: `python -m captioning.report runs=FOLDER`."""

from itertools import combinations
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from captioning.config.command import command, start, while_read
from captioning.config.registry import CONF
from captioning.data.caption_files import common_images, read_captions, read_references
from captioning.errors import CaptioningError
from captioning.metrics import Scorer
from captioning.metrics.bootstrap import paired_bootstrap
from captioning.report.curves import save_curves
from captioning.report.figures import save_figures
from captioning.report.published import PUBLISHED, Published
from captioning.report.systems import System, group
from captioning.report.table import markdown, write_csv
from captioning.report.tested_runs import Run, find_runs


@command(CONF / "report.yaml")
def main(config: DictConfig) -> None:
    """Writes `table.md`, `table.csv` and the pictures, and prints the table."""
    published = _published(config)
    runs, left_out = find_runs(Path(str(config.runs)).expanduser())
    if not runs:
        others = "".join(f"; {line}" for line in left_out)
        raise CaptioningError(f"there is no tested run below runs={config.runs}: captioning.run leaves them{others}")
    tables = [(title, group(members)) for title, members in _by_data(runs).items()]
    output = Path(str(config.output)).expanduser()
    output.mkdir(parents=True, exist_ok=True)
    pages, pictures = [], []
    for number, (title, systems) in enumerate(tables):
        rows = published if published is not None else PUBLISHED.get(systems[0].runs[0].name, ())
        page = markdown(title, systems, rows, config.cider)
        if config.bootstrap.metrics:
            page += compared(systems, config)
        pages.append(page)
        suffix = f"-{number + 1}" if number else ""
        pictures += save_curves(output / f"curves{suffix}", systems)
        pictures += save_figures(output / f"attention{suffix}", systems)
    (output / "table.md").write_text("\n".join(pages), encoding="utf-8")
    write_csv(output / "table.csv", tables, config.cider)
    with while_read():
        for line in (*pages, *(f"left out: {line}" for line in left_out)):
            print(line)
        for path in (output / "table.md", output / "table.csv", *pictures):
            print(path)


def _published(config: DictConfig) -> tuple[Published, ...] | None:
    """The rows that were asked for; None leaves the choice to the data set's name."""
    if config.published == "auto":
        return None
    if config.published is None:
        return ()
    if config.published not in PUBLISHED:
        raise CaptioningError(
            f"published={config.published} is not allowed; it must be auto, null or one of {', '.join(PUBLISHED)}"
        )
    return PUBLISHED[config.published]


def _by_data(runs: list[Run]) -> dict[str, list[Run]]:
    """Runs whose captions answer the same task, by a title; different data have different tables."""
    tasks: dict[str, list[Run]] = {}
    for run in runs:
        tasks.setdefault(run.provenance["data_digest"], []).append(run)
    titles: dict[str, list[Run]] = {}
    for digest, members in tasks.items():
        title = ", ".join(dict.fromkeys(run.name for run in members))
        titles[title if title not in titles else f"{title} ({digest[:8]})"] = members
    return titles


def compared(systems: list[System], config: DictConfig) -> str:
    """The paired bootstrap between the first runs of any two systems, as a table."""
    scored = []
    for system in systems:
        file = system.runs[0].folder / "captions.jsonl"
        references, captions = read_references(file), read_captions(file)
        images = common_images(references, {str(file): captions}, False)
        scorer = Scorer([references[image] for image in images], OmegaConf.to_container(config.bootstrap.metrics))  # type: ignore[arg-type]
        scored.append((system, scorer.score({i: captions[image] for i, image in enumerate(images)}).statistics))
    lines = ["", f"Paired bootstrap over images, {config.bootstrap.samples} samples, first runs:", ""]
    lines += ["| systems | score | difference | 95 % interval | p |", "|---|---|---|---|---|"]
    for (one, ours), (other, theirs) in combinations(scored, 2):
        found = paired_bootstrap(ours, theirs, config.bootstrap.samples, config.bootstrap.seed)
        for name, d in found.items():
            interval = f"[{d.low:+.1f}, {d.high:+.1f}]"
            lines.append(f"| {one.label} - {other.label} | {name} | {d.difference:+.1f} | {interval} | {d.p:.3f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    start(main)
