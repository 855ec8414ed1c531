"""What conf/recipes.md says to type, typed, on a handful of generated images."""

import base64
import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml
from chats import Reply, chatting, said
from json_files import write_json
from pictures import plain
from processes import ENVIRONMENT, PACKAGE, SCRIPT, python
from support import make_photographs

PAGE = (Path(PACKAGE) / "conf" / "recipes.md").read_text()
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
TRAINED = [
    *("data.vocabulary.min_count=1", "data.num_workers=0", "data.batch_size=2"),
    *("trainer.max_epochs=1", "callbacks.attention.images=1"),
]
NETWORK = ["backbone.weights=null", "backbone.size=64"]
NOTHING = {}
SERVER = "localhost:8000"
SEEDS = {"seed=1,2,3": "seed=1,2"}


def blocks(title, kind):
    section = SECTIONS[title]
    for old, new in RECIPES[title][2].items() if title in RECIPES else ():
        section = section.replace(old, new)
    yield from re.findall(rf"^```{kind}\n(.*?)^```", section, re.M | re.S)


def karpathy(file, images, **place):
    """A Karpathy JSON whose captions differ from image to image, as CIDEr needs."""
    entries = []
    for i, split in enumerate(["train"] * 4 + ["val"] * 2 + ["test"] * 2):
        plain(f"{images}/{i}.jpg", colour=(30 * i, 9, 9))
        what = ("dog runs", "cat sleeps")[i % 2]
        sentences = [{"raw": text, "tokens": text.split()} for text in (f"a {what}", f"one {what}")]
        entry = {"filename": f"{i}.jpg", "imgid": i, "cocoid": 100 + i, "split": split}
        entries.append(entry | place | {"sentences": sentences})
    write_json(file, {"images": entries})


def remote_sensing():
    karpathy("RSICD/dataset_rsicd.json", "RSICD/images")


def radiology():
    make_photographs(Path("IU"))
    Path("IU/captions.txt").unlink()
    Path("experiments").symlink_to(Path(PACKAGE) / "experiments")


def another_tool():
    rows = ["image,caption"]
    for i, what in enumerate(("dog runs", "cat sleeps", "bird flies", "child plays")):
        plain(f"IMAGES/{i}.jpg", colour=(60 * i, 9, 9))
        rows += [f"{i}.jpg,a {what}", f"{i}.jpg,one {what}"]
    Path("captions.csv").write_text("\n".join(rows))


def regions():
    karpathy("COCO/dataset_coco.json", "COCO/val2014", filepath="val2014")
    with Path("trainval_36.tsv").open("w") as file:
        for i in range(8):
            features = np.full((36, 2048), i + 1, np.float32)
            encoded = base64.b64encode(features.tobytes()).decode()
            file.write(f"{100 + i}\t60\t50\t36\tboxes\t{encoded}\n")


def chinese():
    for i in range(20):
        plain(f"CHINESE/images/{i}.jpg", colour=(12 * i, 9, 9))
    rows = [f"{i}.jpg,{text}" for i in range(20) for text in ("一只狗在跑。", "狗在草地上跑")]
    Path("CHINESE/captions.csv").write_text("\n".join(["image,caption", *rows]))


def cluster():
    """Programs of Slurm that run the jobs of an array on this machine, all at once."""
    karpathy("COCO/dataset_coco.json", "COCO/val2014", filepath="val2014")
    Path("bin").mkdir()
    for name, program in PROGRAMS.items():
        Path("bin", name).write_text(f"{SCRIPT}{program}")
        Path("bin", name).chmod(0o755)


PROGRAMS = {
    "sbatch": """
import os, re, subprocess, sys
from pathlib import Path
text = Path(sys.argv[-1]).read_text()
first, last = map(int, re.search(r"--array=(\\d+)-(\\d+)", text).groups())
print("Submitted batch job 7", flush=True)
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
for task in range(first, last + 1):
    subprocess.Popen(["sh", sys.argv[-1]], **quiet, start_new_session=True, env=os.environ | {
        "SLURM_JOB_ID": f"{8 + task}", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": f"{task}",
        "SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0",
        "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "localhost",
        "SLURM_NODELIST": "localhost",
    })
""",
    "srun": """
import os, sys
command = next(i for i, word in enumerate(sys.argv) if i and "python" in word.split("/")[-1])
os.execvp(sys.argv[command], sys.argv[command:])
""",
    "sacct": "print('JobID|State|NodeList')",
    "scontrol": "print('localhost')",
}


RECIPES = {
    "A Karpathy JSON": (
        remote_sensing,
        {"describe": NETWORK, "run": [*TRAINED, *NETWORK], "report": []},
        SEEDS,
    ),
    "Radiology reports": (
        radiology,
        {"run": [*TRAINED, *(word.replace("backbone.", "backbone.of.") for word in NETWORK)]},
        NOTHING,
    ),
    "Captions of another tool": (another_tool, {"compare": []}, NOTHING),
    "Bottom-up attention features": (regions, {"run": TRAINED}, NOTHING),
    "Chinese captions": (chinese, {"run": [*TRAINED, *NETWORK]}, NOTHING),
    "A Slurm cluster": (
        cluster,
        {"run": [*TRAINED, *NETWORK, "trainer.accelerator=cpu"], "report": []},
        SEEDS | {"trainer.devices=4": "trainer.devices=1"},
    ),
}
"""What writes the data, what is added to each command, and what is replaced in the page."""


def typed(lines, home, more):
    """What commands print, each with settings of its own that make it small."""
    printed = ""
    for line in lines.replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line, comments=True)
        if program in ("pip", "wandb"):
            continue
        if program == "captioning":
            arguments = ["-m", "captioning", *arguments, *more.get(arguments[0], [])]
        environment = {
            "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "XDG_CACHE_HOME": str(home / "user"),
        }
        ended = python(*arguments, cwd=home, env=ENVIRONMENT | environment)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        printed += ended.stdout + ended.stderr
    return printed


@pytest.mark.soak
@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_prints_what_its_page_shows(title, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, more, _ = RECIPES[title]
    make()
    for block in (*blocks(title, "python"), *blocks(title, "yaml")):
        (name,) = re.findall(r"^# (\S+\.(?:py|yaml))$", block, re.M)
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(block)
    lines = "".join(blocks(title, "sh"))
    (shown,) = blocks(title, "text")
    with chatting(lambda *_: Reply(said("a dog runs"))) as server:
        place = server.address.removeprefix("http://")
        printed = typed(lines.replace(SERVER, place), tmp_path, more)
        shown = shown.replace(SERVER, place)
    for line in filter(None, shown.splitlines()):
        pattern = re.escape(line).replace(r"\.\.\.", ".*").replace(r"\ ", " ")
        pattern = re.sub(r"\bN\b", r"[-+\\d.,]+", re.sub(" +", r"\\s+", pattern))
        assert re.search(pattern, printed), f"{line}\n{printed}"


@pytest.mark.soak
def test_the_sweep_of_weights_and_biases(tmp_path):
    """By the command that W&B's own agent makes of the file."""
    from wandb.cli import cli
    from wandb.sdk.launch.sweeps.utils import create_sweep_command_args

    (shown,) = blocks("A Weights & Biases sweep", "text")
    source = Path(cli.__file__).read_text()
    assert all(words in source for words in ("sweep with ID: ", "Run sweep agent with: "))
    assert "sweep with ID: " in shown
    (block,) = blocks("A Weights & Biases sweep", "yaml")
    sweep = yaml.safe_load(block)
    make_photographs(tmp_path / "FOLDER")
    values = {
        name: each.get("value", each.get("min", each.get("values", [None])[0]))
        for name, each in sweep["parameters"].items()
    }
    given = create_sweep_command_args(
        {"args": {name: {"value": value} for name, value in values.items()}}
    )
    *_, option, module, arguments = sweep["command"]
    assert (option, module, arguments) == ("-m", "captioning.run", "${args_no_hyphens}")
    line = shlex.join(["captioning", "run", *given["args_no_hyphens"]])
    offline = ["logger.wandb.offline=true"]
    printed = typed(line, tmp_path, {"run": [*TRAINED, *NETWORK, *offline]})
    assert "run folder: runs/csv-sat_soft-seed1" in printed
    defaults = (Path(PACKAGE) / "conf" / "callbacks" / "default.yaml").read_text()
    assert f"monitor: {sweep['metric']['name']}" in defaults
