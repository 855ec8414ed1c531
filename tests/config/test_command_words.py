"""Arguments that are no settings: what Hydra makes of the setting that they become."""

from pathlib import Path

from refusals import refuses
from support import composed

from captioning.config.arguments import positionals_to_override

ODD = [
    *("my photo.jpg", "it's.jpg", 'a "b".jpg', "a,b.jpg", "[1].jpg", "a\\b.jpg", "end\\", "ü.jpg"),
    *("\udcff.jpg", "#1.jpg", "${runs}.jpg", "${", "$x", "{a}", "(b)", "null", "5", "true", "1e3"),
    *("*.jpg", "~/a.jpg", "a:b", "%", "@a", "my runs=1"),
]


def test_words_come_back_as_they_were_typed():
    (setting,) = positionals_to_override("images", ODD)
    assert list(composed(setting, name="predict").images) == ODD


def test_settings_stay_and_words_may_stand_among_settings():
    given = ["a.jpg", "device=cpu", "b.jpg", "~decoding.ensemble"]
    assert positionals_to_override("images", given) == [
        "device=cpu",
        "~decoding.ensemble",
        "images=['a.jpg','b.jpg']",
    ]
    for without in ([], ["device=cpu", "images=a"]):
        assert positionals_to_override("images", without) == without
    with refuses(r"a\.jpg and images="):
        positionals_to_override("images", ["images=b.jpg", "a.jpg"])


def test_the_run_folder_of_a_sweep_is_a_word(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("runs/a-optimizer.lr=0.1").mkdir(parents=True)
    long = f"metrics=[{','.join(500 * ['CIDEr'])}]"
    _, setting = positionals_to_override("files", ["runs/a-optimizer.lr=0.1", long])
    assert list(composed(setting, name="compare").files) == ["runs/a-optimizer.lr=0.1"]
