"""The folder of a run: its identity, made, locked, found again, finished."""

import logging
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import yaml
from omegaconf import OmegaConf, open_dict
from refusals import refuses
from support import composed, make_photographs, read_or_refused

from captioning.backbones.scratch import SmallCNN
from captioning.config.schemas.run import RunSettings
from captioning.config.settings import check_settings
from captioning.data.example import Example, Reference
from captioning.errors import Stopped
from captioning.runs.folders.folder import lock, new_folder, run_folder
from captioning.runs.folders.record import Record, record_progress
from captioning.runs.folders.run import RunFolder, identity
from captioning.runs.jobs import Job, ranking
from captioning.runs.settings import in_some_folder, read_settings
from captioning.training.loggers.metrics_file import MetricsFile

OVERRIDES = ("optimizer.lr=1e-5", "name='1e-5'", "+data.note='2020-01-01'", "resume=true")


def backbone(seed=0):
    torch.manual_seed(seed)
    return SmallCNN(dim=8, size=32, grid=4, trainable=True)


def splits(caption="a dog"):
    example = Example(1, Path("1.jpg"), (Reference(caption, tuple(caption.split())),))
    return {"train": [example], "val": [], "test": []}


def identified(config):
    return identity(typed(config), splits(), backbone())


def typed(config):
    return check_settings(RunSettings, in_some_folder(config))


def found(config, **changed):
    return RunFolder(config, typed(config), identified(config) | changed, config.trainer.precision)


def run(*overrides):
    return found(composed(*OVERRIDES, *overrides))


# What makes two runs the same

VAL = "metrics.val=[BLEU,METEOR,ROUGE-L,CIDEr]"
METEOR = "callbacks.checkpoint.monitor=val/METEOR"


MOVED = ["data.root=there/d", "backbone.weights=/w.pt"]
CHANGES = ["seed=2", "optimizer.lr=0.1", "decoding.width=5", "data.views=2", "data.language=de"]


@pytest.mark.parametrize(
    "before, overrides, same",
    [
        ([], ["runs=/elsewhere", "cache=/elsewhere", "+overrides=[a,b]", "logger=wandb"], True),
        ([], ["resume=true", "data.num_workers=0", "metrics.timeout=9", "test=false"], True),
        # as drawn scenes were before they had a size of their own
        (["model.size=published", "~data.model_size"], ["model.size=published"], True),
        (["model.size=published"], [], False),
        ([VAL], [], True),  # nothing is chosen by METEOR
        (["metrics.val=[METEOR]"], ["metrics.val=[CIDEr]"], False),
        ([METEOR], [VAL, METEOR], False),
        (["model._target_=yours.Model"], ["model._target_=mine.Model"], False),
        ([], ["+callbacks.new=null", "+new=null"], True),
        *(([], [other], False) for other in CHANGES),
        (["data=flickr8k", "data.root=d"], ["data=flickr8k", *MOVED], True),
        (["data=coco_official", "data.root=d"], ["data=coco_official", *MOVED], True),
    ],
    ids=str,
)
def test_settings_that_change_the_result_make_another_run(before, overrides, same, elsewhere):
    for root in ("d", "there/d") if "data.root=d" in before else ():
        make_photographs(Path(root))
    one, other = identified(composed(*before)), identified(composed(*overrides))
    assert [name for name in one if one[name] != other[name]] == ([] if same else ["settings"])


def test_so_do_other_captions_and_other_weights():
    settings = typed(composed())
    one = identity(settings, splits(), backbone())
    other = identity(settings, splits("a cat"), backbone(1))
    assert {name for name in one if one[name] != other[name]} == {"data", "backbone"}


def test_so_does_another_tokenizer_in_the_same_file(tmp_path):
    file = tmp_path / "tokenizer.json"
    config = composed(f"data.vocabulary.subwords={file}")
    digests = []
    for content in ("one", "other"):
        file.write_text(content)
        digests.append(identified(config))
    one, other = digests
    assert {name for name in one if one[name] != other[name]} == {"tokenizer"}


# Found again


def test_a_run_of_another_size_is_another_run(elsewhere):
    """Its settings have no default size."""
    old = run("model.size=published", "~data.model_size")
    with old.open():
        pass
    assert run().path != old.path
    assert run("model.size=published").path == old.path
    with refuses(r"came with model\.size=small \(it has published\)"):
        run(f"resume={old.path}")


def test_a_run_is_found_again_with_its_precision_and_result(elsewhere, monkeypatch, caplog):
    new = run("trainer.precision=bf16-mixed")
    assert not new.finished
    with new.open():
        new.finish({"best": 0.5, "widths": {1: float("inf"), 3: 0.5}})
    config = yaml.safe_load((new.path / "config.yaml").read_text())
    assert config["overrides"] == [*OVERRIDES, "trainer.precision=bf16-mixed"]
    assert "NaN" not in (new.path / "run.json").read_text()

    caplog.set_level(logging.INFO)
    again = run("trainer.precision=bf16-mixed", "runs=./runs", "cache=elsewhere", "test=false")
    assert (again.path, again.finished, again.precision) == (new.path, True, "bf16-mixed")
    assert again.result == {"best": 0.5, "widths": {"1": None, "3": 0.5}}
    assert "this run is finished" in caplog.text
    assert "code has changed" not in caplog.text
    assert not run("trainer.precision=bf16-mixed").finished  # its test is missing
    monkeypatch.setattr("captioning.runs.folders.run.code_digest", lambda: "other")
    assert run("trainer.precision=bf16-mixed", "test=false").finished
    assert "the code has changed since" in caplog.text
    with refuses(r"data\.note=\"2\" \(it has \"2020-01-01\"\), "):
        run("data.note='2'")
    with refuses(rf"init_from={new.path}/checkpoints/best.ckpt$"):
        run("trainer.precision=bf16-mixed", "trainer.max_epochs=99")  # of a finished run


def begun(done, *overrides):
    """The folder of a run that ended after a checkpoint at this step, of a hundred."""
    new = run("resume=null", *overrides)
    with new.open():
        new.checkpoint()
    if done is not None:
        record_progress(new.path, done, 100)
    return new.path


def test_unfinished_runs_are_named_and_the_furthest_is_resumed(elsewhere, caplog):
    caplog.set_level(logging.INFO)
    longest = begun(76)
    assert not caplog.records[:-1]  # of nothing but its own folder
    shorter, empty = begun(40), begun(None)
    line = f"{longest} is unfinished: 76 of 100 steps; resume=true continues it"
    assert caplog.text.count(line) == 2
    assert f"{shorter} is unfinished: 40 of 100 steps; resume={shorter} " in caplog.text
    assert str(empty) not in caplog.text.partition(f"run folder: {empty}")[0]

    caplog.clear()
    assert run().path == longest
    assert f"resume={shorter} takes it" in caplog.text
    assert run(f"resume='{shorter}'").path == shorter
    with held_by_another(longest):
        assert run().path == shorter
        caplog.clear()
        run("resume=null")
        assert f"{longest} is" not in caplog.text
        assert f"{shorter} is unfinished: 40 of 100 steps; resume=true " in caplog.text
    finished = run(f"resume='{empty}'")
    finished.finish({"best": 0.5})
    assert run().path == empty
    with refuses(f"resume={shorter} continues .* optimizer.lr=0.5"):
        run(f"resume='{shorter}'", "optimizer.lr=0.5")
    with refuses(r"resume=elsewhere is not a run folder"):
        run("resume=elsewhere")


def test_what_other_code_has_written_is_compared_by_its_settings(elsewhere):
    record = Record.of(begun(3))
    record.code, record.digests["settings"] = "older", "made in another way"
    (path,) = elsewhere.glob("runs/*")
    record.write(path)
    assert run().path == path.relative_to(elsewhere)
    assert run("resume=null", "optimizer.lr=0.5").path != path


def rewritten(path, change):
    """The run of a folder as code would have left it that made other digests of its settings."""
    file, record = path / "config.yaml", Record.of(path)
    record.digests["settings"] = "made in another way"
    record.write(path)
    file.write_text(yaml.safe_dump(change(yaml.safe_load(file.read_text()))))


def test_a_setting_that_an_older_run_lacks_has_the_default_of_its_class(elsewhere):
    def without_some(config):
        del config["decoding"]["filters"]["min_length"]  # 0 by default, as in conf
        del config["decoding"]["filters"]["required"]
        del config["callbacks"]["gradient_norm"]  # which changes no result
        return config

    path = begun(3)
    rewritten(path, without_some)
    assert run().path == path
    with refuses(r"decoding\.filters\.min_length=2 \(it has 0\)"):
        run(f"resume={path}", "decoding.filters.min_length=2")


def test_null_is_no_default(elsewhere):
    path = begun(3)
    rewritten(path, lambda config: config | {"schedule": config["schedule"] | {"final": None}})
    with refuses(r"schedule\.final=0\.0 \(it has null\)"):
        run(f"resume={path}")


def test_a_run_is_found_in_a_folder_that_was_renamed_and_a_new_one_is_told(elsewhere, caplog):
    caplog.set_level(logging.INFO)
    renamed = begun(3).rename("runs/my_best_model")
    assert run().path == renamed
    (elsewhere / "runs/foreign").mkdir()
    (elsewhere / "runs/foreign/run.json").write_text("{")  # is no reason to refuse
    assert run("seed=2").path != renamed
    assert "resume=true finds no run" in caplog.text


def test_a_damaged_folder_refuses_no_new_run(elsewhere):
    folder = begun(3)
    (folder / "run.json").write_text("{")
    run("resume=null")
    with refuses(r"run\.json"):
        run()


def test_resuming_is_refused_with_other_data(elsewhere, caplog):
    with run().open():
        pass
    config = composed(*OVERRIDES)
    with refuses("but that began from other data"):
        found(config, data="other")
    with refuses(r"other weights \(init_from\)"):
        found(config, init_from="other")
    found(config, backbone="other")
    assert "the backbone has changed" in caplog.text


# Made


def test_a_folder_appears_complete_or_not_at_all(elsewhere):
    def stop():
        raise Stopped("stopped", signal.SIGINT)

    OmegaConf.register_new_resolver("stop", stop, replace=True)
    new = run()
    with open_dict(new._config):
        new._config.data.stops = "${stop:}"
    with pytest.raises(Stopped), new.open():
        pass
    assert not list(new.path.parent.iterdir())
    new.path.mkdir()
    with run().open():
        pass
    assert sorted(path.name for path in new.path.iterdir()) == ["config.yaml", "run.json"]


def test_each_of_several_at_once_has_its_own(elsewhere):
    configs = [composed(*OVERRIDES) for _ in range(4)]
    base = run_folder(typed(configs[0]))
    killed, prepared = (base.with_name(name) for name in (".run-killed", ".run-prepared"))
    for draft in (killed, prepared):
        (draft / "run").mkdir(parents=True)
    for each in (killed / "run", killed):
        os.utime(each, (0, 0))
    with ThreadPoolExecutor(4) as pool:
        folders = list(pool.map(lambda config: new_folder(config, base), configs))
    assert sorted(folder.name for folder in folders) == [
        *(base.name, f"{base.name}-2", f"{base.name}-3", f"{base.name}-4")
    ]
    assert (killed.exists(), prepared.exists()) == (False, True)
    for config, folder in zip(configs, folders, strict=True):
        assert config.folder == OmegaConf.load(folder / "config.yaml").folder == str(folder)
        assert "${" not in (folder / "config.yaml").read_text()


def test_the_best_job_comes_first_and_failed_ones_last():
    named = [("a0", "runs/1", 9.96), ("a1", "runs/3", None), ("a2", "runs/2", 112.3)]
    jobs = {Job(name, 1, folder, "val/CIDEr", "max"): score for name, folder, score in named}
    table = ["jobs by val/CIDEr", "   1   112.3  a2  runs/2", "   2    10.0  a0  runs/1"]
    table += ["   3       -  a1  runs/3"]
    assert ranking(jobs, "val/CIDEr", "max").splitlines()[1:] == table
    least = ranking(jobs, "val/CIDEr", "min").splitlines()[2:]
    assert [line.split()[-1] for line in least] == ["runs/1", "runs/2", "runs/3"]
    seeds = {Job("a0", 2, "runs/4", "val/CIDEr", "max"): 30.04} | jobs  # the mean is 20.0
    assert ranking(seeds, "val/CIDEr", "max").splitlines()[3] == "   2   20.0 ± 14.2  a0 seed=1,2"


# Locked

HOLDER = """
import os, sys, time
from filelock import FileLock
held = FileLock(sys.argv[1])
held.acquire()
read, write = os.pipe()
if os.fork() == 0:  # as a data worker, which outlives its killed parent by seconds
    os.close(1)
    os.write(write, b".")
    time.sleep(20)
    os._exit(0)
os.read(read, 1)  # it has begun, and so has let go of the lock that it was forked with
print("held", flush=True)
time.sleep(600)
"""


@contextmanager
def held_by_another(folder):
    program = f"import sys; sys.path = {sys.path}\n{HOLDER}"
    command = [sys.executable, "-S", "-c", program, str(folder / ".lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        try:
            yield
        finally:
            process.kill()


def test_a_folder_is_one_runs_alone(tmp_path, monkeypatch):
    refused = refuses("another process is training in")
    with held_by_another(tmp_path), refused, lock(tmp_path):
        pass
    with lock(tmp_path):  # the other was killed
        with refused, lock(tmp_path):
            pass
        monkeypatch.setenv("RANK", "1")  # other ranks leave it to the first
        with lock(tmp_path):
            pass
        monkeypatch.delenv("RANK")
    assert not list(tmp_path.iterdir())


# Files of a run that anything may have happened to

READERS = {
    "run.json": lambda path: Record.of(path.parent),
    "config.yaml": read_settings,
    "metrics.csv": lambda path: MetricsFile(path).keep(before=2),
}
DAMAGED = [b"null", b"[1]", b"[" * 100_000, bytes(range(256)), b"", b'step,"' + b"x" * 10**6]
RESULTS = [b'{"result": {}}', b'{"result": {"best": "good"}}', b'{"result": [1]}']
# nothing stands for more than itself, and nothing is built
LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{i + 1}: &a{i + 1} [*a{i}, *a{i}]\n" for i in range(60))
PLAIN = [LAUGHS.encode(), b"a: !!python/object/apply:os.getcwd []\n"]
CASES = [*((file, content) for file in READERS for content in DAMAGED)]
CASES += [*(("run.json", content) for content in RESULTS)]
CASES += [*(("config.yaml", content) for content in PLAIN)]


@pytest.mark.parametrize("file, content", CASES, ids=lambda part: str(part[:20]))
def test_damaged_files_are_named(file, content, tmp_path):
    (tmp_path / file).write_bytes(content)
    _, message = read_or_refused(lambda: READERS[file](tmp_path / file))
    assert str(tmp_path / file) in str(message)
