"""What an evaluation against other captions prints, read from its folder."""

import json
from pathlib import Path


def print_comparison(folder: Path) -> None:
    """Prints for every score the difference with its interval and p-value."""
    record = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    print(f"\nagainst {record['against']['file']}, {record['images']} images, {record['samples']} bootstrap samples\n")
    print(f"{'':<32}{'these':>7}{'others':>8}{'difference':>12}{'95 % interval':>18}{'p':>8}")
    for name, row in record["scores"].items():
        interval = f"[{row['low']:+.1f}, {row['high']:+.1f}]"
        print(
            f"{name:<32}{row['ours']:>7.1f}{row['theirs']:>8.1f}{row['difference']:>+12.1f}{interval:>18}{row['p']:>8.3f}"
        )
