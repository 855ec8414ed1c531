"""What experiments/table1_coco says to type, typed: from the download to the table, on a miniature
in COCO's layout.
"""

import re
import shlex
from pathlib import Path

from processes import PACKAGE, forked
from test_download import archives, overrides, site  # noqa: F401 - fixtures

MODELS = ("spatial_transformer", "sat_soft", "sat_hard")
MINIATURE = {
    "run": [
        f"model={','.join(MODELS)}",
        "model.size=small",
        *("data.vocabulary.min_count=1", "data.num_workers=0", "data.batch_size=2", "seed=1"),
        *("backbone.weights=null", "backbone.size=32"),  # VGG-11, not trained
        *("trainer.max_epochs=1", "decoding.beam_widths=[1,2]", "callbacks.attention=null"),
        "metrics.test=[BLEU,CIDEr]",  # METEOR would start Java
    ],
    # without being told, published rows are for COCO's own number of images alone
    "report": ["published=coco", "metrics=[BLEU,CIDEr]"],
}


def test_every_step_of_the_way_to_the_table(site, tmp_path):  # noqa: F811
    page = (Path(PACKAGE) / "experiments" / "table1_coco" / "README.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    doctor, *steps = [line for block in blocks for line in block.splitlines()]
    assert doctor == "captioning doctor"  # tests/doctor
    more = MINIATURE | {"download": overrides(site, "coco")}
    said = {}
    for step in steps:
        _, command, *arguments = shlex.split(step.replace("trainer=gpu", "trainer=cpu"))
        module = "run" if command == "run" else f"{command}.__main__"
        ended = forked(module, tmp_path, *arguments, *more.get(command, []))
        assert ended.returncode == 0, ended.stdout + ended.stderr
        said[command] = ended.stdout
    assert list(said) == ["download", "run", "report"]
    assert "8 photographs of dataset_coco.json" in said["download"]
    folders = {path.name for path in (tmp_path / "runs" / "table1").glob("coco-*")}
    assert folders == {f"coco-{model}_small-seed1" for model in MODELS}
    assert said["run"].count("choosing the beam width on validation: ") == 3
    report = tmp_path / "runs" / "table1" / "report"
    table = (report / "table.md").read_text()
    assert table.count(", small") >= 3
    assert "[ST] Table 1" in table
    assert (report / "curves.pdf").exists()
