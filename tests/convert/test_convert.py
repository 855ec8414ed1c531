"""The command `captioning convert`, and what every other command does with its checkpoint."""

import json
import shutil
import signal
from pathlib import Path

import pytest
import torch
import yaml
from convert.golden import PUBLISHED
from json_files import write_json
from processes import forked
from support import QUIET, called

import captioning
from captioning import evaluate
from captioning.convert.__main__ import main
from captioning.convert.sources.sgrvinod import REPOSITORY
from captioning.errors import CaptioningError
from captioning.export.__main__ import main as export
from captioning.push.__main__ import main as push
from captioning.report.published import untrained_rows
from captioning.runs.checkpoints.checkpoint import load_checkpoint

pytestmark = QUIET

FILES = PUBLISHED / "sgrvinod"
WEIGHTS, WORDS = next(FILES.glob("*.tar")), next(FILES.glob("WORDMAP*"))


def converted(output, weights=WEIGHTS, vocabulary=WORDS, source="sgrvinod", **more):
    given = {"source": source, "weights": weights, "vocabulary": vocabulary, "output": output}
    called(main, *(f"{key}={value}" for key, value in (given | more).items()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home") / "captioner"
    converted(folder)
    return folder


def test_a_folder_with_checkpoint_settings_and_source(folder):
    saved = load_checkpoint(folder / "checkpoints" / "best.ckpt")
    source = saved.config["source"]
    assert source["repository"] == REPOSITORY
    assert [len(file["sha256"]) for file in source["files"]] == [64, 64]
    assert "model.d_embed=16" in yaml.safe_load((folder / "settings.yaml").read_text())
    assert saved.words[:3] == ["a", "the", "on"]


def test_it_captions_and_shows_attention(folder):
    captioner = captioning.load(folder / "checkpoints" / "best.ckpt")
    (prediction,) = captioner.caption(FILES / "images" / "0.png")
    assert prediction.caption == "stands a"  # as by its own beam search of five
    assert prediction.attention.shape == (2, 4, 4)


def test_the_next_command_can_be_pasted(tmp_path, capsys):
    converted(output := tmp_path / "a b")
    said = capsys.readouterr().out
    assert (
        f"next: captioning predict PHOTOGRAPH 'checkpoint={output}/checkpoints/best.ckpt'" in said
    )


def test_an_existing_folder_is_kept(folder):
    with pytest.raises(CaptioningError, match=r"output="):
        converted(folder)


def test_an_unknown_source_is_refused(tmp_path):
    with pytest.raises(CaptioningError, match=r"source=.*sgrvinod"):
        converted(tmp_path / "out", source="sgrvinot")


@pytest.mark.parametrize(
    "words",
    ["[]", "{}", '{"a": 1}', "{", '{"<pad>": 0, "<start>": 1, "<end>": 2, "<unk>": 3, "a": 9999}'],
)
def test_words_that_do_not_fit_are_refused(tmp_path, words):
    vocabulary = tmp_path / "WORDMAP.json"
    vocabulary.write_text(words)
    with pytest.raises(CaptioningError):
        converted(tmp_path / "out", vocabulary=vocabulary)
    assert not (tmp_path / "out").exists()


def test_a_word_fewer_than_rows_is_no_word_lost(tmp_path):
    """Rows without a word are left out, and words keep their rows."""
    words = json.loads(WORDS.read_text())
    del words["horse"]
    vocabulary = tmp_path / "WORDMAP.json"
    vocabulary.write_text(json.dumps(words))
    converted(tmp_path / "out", vocabulary=vocabulary)
    captioner = captioning.load(tmp_path / "out" / "checkpoints" / "best.ckpt")
    assert captioner.vocabulary.words[-1] == "child"


def test_a_text_file_is_no_checkpoint(tmp_path):
    path = tmp_path / "weights.pth"
    shutil.copy(WORDS, path)
    with pytest.raises(CaptioningError, match=r"weights\.pth"):
        converted(tmp_path / "out", weights=path)


M2 = PUBLISHED / "meshed_memory"
UP_DOWN = PUBLISHED / "self_critical-updown_bn"
STATES = [
    ("meshed_memory", M2 / "meshed_memory_transformer.pth", M2 / "vocab.pkl", {"heads": 4}),
    ("self_critical", UP_DOWN / "model.pth", UP_DOWN / "infos_updown_bn.pkl", {}),
]


def without_one(state):
    del state[next(iter(state))]


def with_one_more(state):
    state["unknown.weight"] = torch.zeros(3)


def of_another_shape(state):
    state[next(iter(state))] = torch.zeros(1, 1, 7)


def not_finite(state):
    state[next(iter(state))].fill_(torch.nan)


@pytest.mark.parametrize("source, weights, vocabulary, more", STATES)
@pytest.mark.parametrize("change", [without_one, with_one_more, of_another_shape, not_finite])
def test_weights_that_do_not_fit_are_refused(tmp_path, source, weights, vocabulary, more, change):
    saved = torch.load(weights, weights_only=True)
    change(saved.get("state_dict", saved))
    torch.save(saved, tmp_path / "weights.pth")
    with pytest.raises(CaptioningError, match=r"weights\.pth"):
        converted(tmp_path / "out", tmp_path / "weights.pth", vocabulary, source, **more)
    assert not (tmp_path / "out").exists()


def test_files_of_another_source_are_refused(tmp_path):
    for source, weights, vocabulary, _ in STATES:
        with pytest.raises(CaptioningError):
            converted(tmp_path / "out", weights, vocabulary, source="sgrvinod")
        with pytest.raises(CaptioningError):
            converted(tmp_path / "out", source=source)


def test_heads_are_only_for_a_source_that_needs_them(tmp_path):
    with pytest.raises(CaptioningError, match="heads"):
        converted(tmp_path / "out", heads=4)


@pytest.fixture
def coco(tmp_path, monkeypatch):
    """Four images in Karpathy's layout, and the folder as the current one."""
    monkeypatch.chdir(tmp_path)
    for number in range(4):  # the two images, twice
        Path("set/images").mkdir(parents=True, exist_ok=True)
        shutil.copy(FILES / "images" / f"{number % 2}.png", f"set/images/{number}.png")
    splits = {"0.png": "train", "1.png": "train", "2.png": "val", "3.png": "test"}
    words = ["a", "man", "holds", "a", "red", "ball"]
    write_json(
        "set/dataset.json",
        {
            "images": [
                {
                    "filename": name,
                    "imgid": number,
                    "split": split,
                    "sentences": [{"raw": " ".join(words), "tokens": words}],
                }
                for number, (name, split) in enumerate(splits.items())
            ]
        },
    )
    return tmp_path


DATA = ["data=karpathy", "data.root=set"]


def test_it_is_evaluated_and_exported(folder, coco):
    called(evaluate.main, f"checkpoint={folder}/checkpoints/best.ckpt", *DATA, "metrics=[BLEU]")
    (line,) = (coco / "runs/evaluate/captions.jsonl").read_text().splitlines()
    assert json.loads(line)["caption"] == "stands a"
    ((_, row),) = untrained_rows(coco / "runs")  # beside own runs in a report
    assert row.system == f"tutorial of {REPOSITORY}"
    called(export, f"checkpoint={folder}/checkpoints/best.ckpt", "output=shared")
    (prediction,) = captioning.load("shared").caption(FILES / "images" / "1.png")
    assert prediction.caption == "stands a"


def test_it_is_trained_on_and_resumed(folder, coco):
    """From its weights, with its words; a run that is killed ends as a whole one."""
    settings = [
        *(f"init_from={folder}/checkpoints/best.ckpt", *DATA, "trainer=cpu", "data.batch_size=1"),
        *(
            "data.num_workers=0",
            "trainer.max_epochs=2",
            "metrics.val=[BLEU]",
            "metrics.test=[BLEU]",
        ),
        *("callbacks.resume.every_n_steps=1", "+callbacks.killer._target_=faults.Killer"),
    ]
    ended = forked("run", coco, *settings, "name=whole")
    assert ended.returncode == 0, ended.stderr
    killed = forked("run", coco, *settings, "name=killed", KILL="train:4")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    ended = forked("run", coco, *settings, "name=killed", "resume=true")
    assert "resuming from" in ended.stdout
    whole, killed = (
        load_checkpoint(coco / "runs" / f"{name}-sat_soft-seed1" / "checkpoints/last.ckpt").networks
        for name in ("whole", "killed")
    )
    assert all(tensor.equal(killed[name]) for name, tensor in whole.items())
    begun = load_checkpoint(folder / "checkpoints/best.ckpt").networks
    assert not whole["model.head.output.weight"].equal(begun["model.head.output.weight"])


def test_push_names_source_and_licence(folder, coco):
    called(push, f"checkpoint={folder}/checkpoints/best.ckpt", "to=card")
    card = (coco / "card/README.md").read_text()
    assert "licence of the code: mit" in card
    assert "license:" not in card  # of weights that others have trained
    assert "sgrvinod" in card
    assert "ICML 2015" in card
    assert "trained on" not in card.partition("## Settings")[0]
