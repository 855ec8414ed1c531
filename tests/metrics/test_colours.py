"""Named colours against the pixels of drawn images."""

import pytest
from PIL import Image, ImageDraw
from refusals import refuses
from scored import compared

from captioning.metrics import ScoredImage, Scorer
from captioning.metrics.table import scores_of
from experiments.colours import HUES, NamedColours, colours_of

RGB = {"red": "#d62728", "orange": "#ff8c00", "yellow": "#ffd700", "green": "#2ca02c"}
RGB |= {"blue": "#1f5fd0", "purple": "#8a2be2"}


def drawn(folder, *colours):
    """A grey image with a disc of each colour."""
    picture = Image.new("RGB", (200, 120), "#b0b0b0")
    for n, colour in enumerate(colours):
        ImageDraw.Draw(picture).ellipse([60 * n + 10, 20, 60 * n + 50, 60], fill=RGB[colour])
    name = "-".join(colours) or "none"
    picture.save(folder / f"{name}.png")
    return ScoredImage(name, folder / f"{name}.png")


@pytest.mark.parametrize("colour", HUES)
def test_each_colour_is_seen_where_it_is_drawn(tmp_path, colour):
    assert colours_of(drawn(tmp_path, colour)) == [colour]


def test_scores_by_hand_with_signature_and_interval(tmp_path):
    images = [drawn(tmp_path, "red", "blue"), drawn(tmp_path, "green"), drawn(tmp_path)]
    scorer = Scorer([["a disc"]] * 3, [NamedColours()], images=images)
    scores = scorer.score({0: "A red and a green disc.", 1: "green on grey", 2: "nothing"})
    assert scores.corpus == {"colours not shown": pytest.approx(100 / 3)}
    in_images = [50, 0, float("nan")]
    assert [image["colours not shown"] for image in scores.per_image] == pytest.approx(
        in_images, nan_ok=True
    )
    assert scorer.signatures == {"colours": "colours|refs:1|lang:en|tok:PTB"}
    others = scorer.score(dict.fromkeys(range(3), "a blue disc"))
    found = compared(scores, others)["colours not shown"]
    assert found.difference == pytest.approx(100 / 3 - 200 / 3)


def test_its_score_can_be_monitored_by_its_name():
    assert scores_of(["BLEU", "experiments.colours.NamedColours"])[-1] == "colours not shown"


def test_without_images_it_is_refused():
    for images in (None, [ScoredImage(1)]):
        with refuses("image"):
            NamedColours().compute([["a red disc"]], [["a disc"]], images)
