"""Two machines with a working folder each, which share the folders of runs and of the cache."""

import signal
import sys
from contextlib import ExitStack
from itertools import chain
from subprocess import Popen

import pytest
from lightning.fabric.plugins.environments.lightning import find_free_network_port
from processes import ENVIRONMENT, LIMIT, forked, started
from support import MODEL
from test_resume import COMMAND, TIMES, same, the_folder

SETTINGS = [
    *(word for word in COMMAND if word != "trainer=cpu"),
    *(*MODEL, "trainer=ddp", "trainer.accelerator=cpu", "trainer.precision=32-true"),
    *("data.reader.train=600", "data.batch_size=32", "data.num_workers=0"),
    *("backbone.trainable=false", "trainer.max_epochs=2", "resume=true"),
]
"""Of features in three shards, and 20 steps."""


def settings(shared, nodes):
    places = [f"{name}={shared / name}" for name in ("runs", "cache")]
    return [*SETTINGS, *places, f"trainer.num_nodes={nodes}", f"trainer.devices={2 // nodes}"]


def homes(shared, nodes):
    """The working folders of two processes."""
    found = [shared.with_name(f"{shared.name} node {rank % nodes}") for rank in range(2)]
    for home in found:
        home.mkdir(exist_ok=True)
    return found


def beside(shared, nodes, *further, **second):
    """How two processes end with the variables that torchrun gives; `second` are for the second."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(find_free_network_port())}
    place |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": str(2 // nodes), "TORCHELASTIC_RUN_ID": "0"}
    with ExitStack() as stack:
        both = []
        for rank, home in enumerate(homes(shared, nodes)):
            node, local = (rank, 0) if nodes == 2 else (0, rank)
            own = {"RANK": f"{rank}", "LOCAL_RANK": f"{local}", "GROUP_RANK": f"{node}"}
            variables = place | own | (second if rank else {})
            words = [*settings(shared, nodes), *further]
            both.append(stack.enter_context(started("run", home, *words, **variables)))
        for process, _ in both:
            process.join(LIMIT)
        said = "".join(stdout.read_text() for _, (stdout, _) in both)
        return [process.exitcode for process, _ in both], said


def torchrun(shared, nodes, **second):
    """The same of `torchrun` itself."""
    place = f"127.0.0.1:{find_free_network_port()}"
    launcher = [f"--nnodes={nodes}", f"--nproc-per-node={2 // nodes}", "--rdzv-backend=c10d"]
    launcher += [f"--rdzv-endpoint={place}", "--rdzv-id=test", "-m", "captioning.run"]
    command = [sys.executable, "-m", "torch.distributed.run", *launcher, *settings(shared, nodes)]
    both = [
        Popen(command, cwd=home, env=ENVIRONMENT | (second if number else {}))
        for number, home in enumerate(homes(shared, nodes)[:nodes])
    ]
    return [agent.wait(LIMIT) for agent in both], ""


def features(shared):
    return sorted(file.read_bytes() for file in shared.glob("cache/features/*/features.npy"))


@pytest.fixture(scope="module")
def one_node(tmp_path_factory):
    """What two processes of one machine leave."""
    shared = tmp_path_factory.mktemp("nodes") / "one"
    assert beside(shared, 1)[0] == [0, 0]
    return shared


def test_two_nodes_leave_what_one_leaves_to_the_bit(one_node, tmp_path):
    ended, said = beside(tmp_path / "two", 2)
    assert ended == [0, 0]
    assert said.count("images: train 600") == said.count("test score") == 1
    same(*(the_folder(shared / "runs") for shared in (one_node, tmp_path / "two")))
    assert features(tmp_path / "two") == features(one_node) != []
    left = chain.from_iterable(home.iterdir() for home in homes(tmp_path / "two", 2))
    assert [*left] == []


@pytest.mark.soak
def test_two_nodes_train_as_one_process_with_twice_the_batch(tmp_path):
    """Without dropout, which processes draw each for itself; losses are of the first one's part."""
    one, two = tmp_path / "one", tmp_path / "two"
    words = [*settings(one, 1), "data.batch_size=64", "trainer.devices=1"]
    alone = forked("run", tmp_path, *words, "model.dropout=0")
    assert alone.returncode == 0, alone.stderr
    assert beside(two, 2, "model.dropout=0")[0] == [0, 0]
    without = (*TIMES, "train/nll")
    same(*(the_folder(shared / "runs") for shared in (one, two)), tolerance=1e-4, without=without)


@pytest.mark.soak
@pytest.mark.parametrize("launch", [beside, torchrun])
def test_a_node_that_was_killed_loses_nothing(one_node, tmp_path, launch):
    shared = tmp_path / "two"
    for moment in ("train:7", "validation:1"):
        first, second = launch(shared, 2, KILL=moment)[0]
        assert first not in (0, -signal.SIGKILL)
        assert second == (-signal.SIGKILL if launch is beside else 1)
    assert launch(shared, 2)[0] == [0, 0]
    same(*(the_folder(place / "runs") for place in (one_node, shared)))
