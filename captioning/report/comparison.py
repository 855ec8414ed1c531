"""What an evaluation against other captions prints, read from its folder."""

import json
from pathlib import Path

from captioning.report.units import printed


def print_comparison(folder: Path) -> None:
    """Prints for every score the difference with its interval and p-value, in the units that the summary has named."""
    record = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    print(f"\nagainst {record['against']['file']}, {record['images']} images, {record['samples']} bootstrap samples\n")
    print(f"{'':<32}{'these':>7}{'others':>8}{'difference':>12}{'95 % interval':>18}{'p':>8}")
    for name, row in record["scores"].items():
        ours, theirs = printed(name, row["ours"]), printed(name, row["theirs"])
        interval = f"[{row['low']:+z.1f}, {row['high']:+z.1f}]"
        print(f"{name:<32}{ours:>7}{theirs:>8}{row['difference']:>+z12.1f}{interval:>18}{row['p']:>8.3f}")
