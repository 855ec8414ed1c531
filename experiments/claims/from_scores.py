"""Answers of the claims' page that lie in the recorded `scores.json`.

    python experiments/claims/from_scores.py

Prints the rank correlation (Spearman) of the entropy of attention and CIDEr over the systems of
`zoo_flickr8k` that attend, how often each beam width was the best on validation, and the bad
endings of captions before and after self-critical training.
"""

import json
from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

from scipy.stats import spearmanr

HERE = Path(__file__).parent.parent
WIDTHS = [1, 3, 5]
CRITICAL = {
    "cross-entropy": "fine_tuning_flickr8k/refrozen_320-*",
    "self-critical": "fine_tuning_flickr8k/sc_refrozen_320-*",
}


def read(pattern: str) -> dict[str, dict[str, Any]]:
    """The contents of `scores.json`, by the folder of the run."""
    files = sorted(HERE.glob(f"{pattern}/scores.json"))
    return {file.parent.name: json.loads(file.read_text()) for file in files}


def main() -> None:
    systems = defaultdict(list)
    for folder, record in read("zoo_flickr8k/*").items():
        scores = record["scores"]
        if "self_critical" not in folder and scores.get("attention entropy"):
            systems[folder.partition("-seed")[0]].append(scores)
    means = {
        name: [fmean(run[key] for run in runs) for key in ("attention entropy", "CIDEr")]
        for name, runs in systems.items()
        if len(runs) > 1
    }
    for name, (entropy, cider) in sorted(means.items(), key=lambda each: each[1][0]):
        print(f"{name:<40}{entropy:5.2f} nats {cider:6.1f} CIDEr")
    found = spearmanr(*zip(*means.values(), strict=True))
    print(f"rank correlation {found.statistic:+.2f}, p {found.pvalue:.2f}, {len(means)} systems")

    chosen = Counter(
        record["provenance"]["decoding"]["width"]
        for record in read("*/*").values()
        if record["provenance"].get("decoding", {}).get("beam_widths") == WIDTHS
    )
    print("beam widths chosen on validation:", dict(chosen))

    for objective, pattern in CRITICAL.items():
        endings = [record["scores"]["bad_endings"] for record in read(pattern).values()]
        print(f"bad endings, {objective}: {fmean(endings):.2f} % of {len(endings)} runs")


if __name__ == "__main__":
    main()
