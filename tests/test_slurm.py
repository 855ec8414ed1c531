"""What Slurm would be given; there is no cluster, so its `sbatch` only keeps the script and fails."""

import os
from pathlib import Path

from processes import forked

SBATCH = """#!/bin/sh
for script; do :; done
cp "$script" submitted.sh
exit 1
"""


def test_one_task_for_each_gpu_of_each_node(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for program in ("sbatch", "srun"):
        (tmp_path / "bin" / program).write_text(SBATCH)
        (tmp_path / "bin" / program).chmod(0o755)
    settings = ["trainer=ddp", "trainer.devices=8", "trainer.num_nodes=4", "hydra.launcher.partition=gpu"]
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    forked("run", tmp_path, "-m", "hydra/launcher=slurm", *settings, "seed=1,2,3", PATH=path)
    script = (tmp_path / "submitted.sh").read_text().splitlines()
    wanted = {"nodes=4", "ntasks-per-node=8", "gpus-per-node=8", "partition=gpu", "array=0-2%3"}
    assert {f"#SBATCH --{setting}" for setting in wanted} <= set(script)
    assert any(line.startswith("srun ") and "submitit" in line for line in script)
