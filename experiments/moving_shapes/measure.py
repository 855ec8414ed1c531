"""Count the captions with the right direction: `python measure.py RUN ...` prints CSV."""

import json
import re
import sys
from pathlib import Path

import yaml

AXES = {"to the left": 0, "to the right": 0, "up": 1, "down": 1}


def way(text: str) -> str | None:
    found = re.search("|".join(AXES), text)
    return found and found[0]


def main(runs: list[Path]) -> None:
    print("model,encoder,seed,clips,way,axis,way where the axis is right")
    for run in runs:
        config = yaml.safe_load((run / "config.yaml").read_text())
        encoder = (config["model"].get("encoder") or {"_target_": "none"})["_target_"].rpartition(
            "."
        )[2]
        lines = [json.loads(line) for line in (run / "captions.jsonl").read_text().splitlines()]
        pairs = [(way(line["caption"]), way(line["references"][0])) for line in lines]
        right = sum(said == true for said, true in pairs)
        axis = sum(said is not None and AXES[said] == AXES[true] for said, true in pairs)
        shares = right / len(pairs), axis / len(pairs), right / max(1, axis)
        told = ",".join(f"{100 * share:.1f}" for share in shares)
        print(f"{config['choices']['model']},{encoder},{config['seed']},{len(pairs)},{told}")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
