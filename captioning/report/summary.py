"""What a run or an evaluation prints at its end, read from its folder."""

import json
from pathlib import Path

SHOWN = 3


def print_summary(folder: Path, title: str = "test score") -> None:
    """Prints the score table under `title`, a few captions beside their references, and where everything lies."""
    record = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    lines = (folder / "captions.jsonl").read_text(encoding="utf-8").split("\n")[:-1]  # captions may hold U+2028
    print(f"\n{title:<32}{'0-100':>7}")
    for name, value in record["scores"].items():
        print(f"{name:<32}{'-' if value is None else format(value, '.1f'):>7}")
    for entry in map(json.loads, lines[:SHOWN]):
        print(f"\nimage {entry['image_id']}: {entry['caption']}")
        for reference in entry["references"]:
            print(f"    reference: {reference}")
    print(f"\nrun folder: {folder}")
    if (folder / "attention").is_dir():
        print(f"pictures of attention: {folder / 'attention'}")
