"""Describe a data set before training: `captioning describe data=csv data.root=FOLDER`."""

from dataclasses import asdict
from itertools import count

from captioning.config.command import command, start, while_read
from captioning.config.explain import explain
from captioning.config.settings import DataSettings, Settings, check_reader
from captioning.config.types import Config, GivenPath, Length
from captioning.errors import CaptioningError
from captioning.files import write_json


class DescribeDataSettings(DataSettings):
    """Settings below `data`."""

    vocabulary: Config
    max_words: Length


class DescribeSettings(Settings):
    """Settings of `captioning describe`."""

    output: GivenPath
    """the folder of index.html and describe.json"""
    images: bool
    """true: read every image, 8,000 in about ten seconds; false: captions only"""
    data: DescribeDataSettings


@command("describe.yaml", DescribeSettings)
def main(config: DescribeSettings) -> None:
    """Write `describe.json` and `index.html`, and print a summary, what needs attention first."""
    data = config.data.plain
    # here, because PyTorch takes seconds
    from captioning.data.readers.on_disk import find_on_disk
    from captioning.data.readers.reading import run_reader
    from captioning.data.subset import training_subset
    from captioning.data.subwords import build_vocabulary, load_vocabulary
    from captioning.data.vocabulary import Vocabulary
    from captioning.data.words import Language
    from captioning.describe.captions import describe_captions
    from captioning.describe.findings import find_problems
    from captioning.describe.images import Pairs, describe_images
    from captioning.describe.page import as_text, write_description

    reader = check_reader(data["reader"]).build()
    language, drawn = Language.of(data), hasattr(reader, "writes_to")
    skipped: list[Exception] = []
    splits = run_reader(reader, False, language, skipped, needed=("train",))
    output = config.output
    output.mkdir(parents=True, exist_ok=True)  # or hours of reading would be lost
    if config.images:
        splits, _ = find_on_disk(splits)  # absent ones are counted with others below
    root = reader.writes_to if drawn else data.get("root") or data["reader"].get("root")
    splits, captions = training_subset(splits, data)
    refusal = ""
    try:
        vocabulary = load_vocabulary(
            build_vocabulary(captions, **data["vocabulary"]).saved, language
        )
    except CaptioningError as error:  # the numbers show why
        vocabulary, refusal = Vocabulary([]), str(error)
    numbers, locations = describe_captions(splits, vocabulary, data["max_words"], root)
    locations["skipped"] = list(map(explain, skipped))
    numbers["photographs"], pairs = {}, Pairs()
    if config.images:
        numbers["photographs"], of_images, pairs = describe_images(splits, root, drawn)
        locations |= of_images
    numbers["data"] = config.composed.choices.data
    if data.get("root") is not None:
        numbers["data"] += f" in {data['root']}"
    chosen = {name: data[name] for name in ("language", "tokens", "max_words")}
    numbers["settings"] = chosen | data["vocabulary"]
    findings, first = find_problems(numbers, locations, refusal), output
    for number in count(2):
        if not (output / "index.html").exists():
            break  # else it is of another data set, or of the same one before
        output = first.with_name(f"{first.name}-{number}")
    output.mkdir(parents=True, exist_ok=True)
    page, record = output / "index.html", output / "describe.json"
    write_json(record, {**numbers, "findings": list(map(asdict, findings))})
    write_description(page, numbers, findings, pairs)
    with while_read():
        print(as_text(numbers, findings), page, record, sep="\n")


if __name__ == "__main__":
    start(main)
