"""Pages of joined panels, judged from their pixels."""

import numpy as np
from PIL import Image

from captioning.report.figures import LINE, MARGIN, _page
from captioning.report.systems import System


def test_a_name_that_is_wider_than_its_panel_goes_on_below() -> None:
    panel = Image.new("RGB", (700, 100), "red")
    names = [
        "spatial transformer",
        "Show, Attend and Tell, soft, small (" + "model.encoder.norm=post, " * 6 + "x" * 40 + ")",
    ]
    page = np.asarray(_page([System(name, ()) for name in names], [panel, panel])).astype(int)
    red = (page == [255, 0, 0]).all(axis=2).any(axis=1)
    above = int(red.argmax())
    between = int((~red[above + 100 :]).argmin())
    assert (above, red.sum()) == (LINE, 200)
    assert between >= 4 * LINE
    assert (page[:, -MARGIN // 2 :] == 255).all()
    assert (page[:, : MARGIN // 2] == 255).all()
    lines = [page[above + 100 + LINE * i : above + 100 + LINE * (i + 1)] for i in range(between // LINE)]
    assert all((line < 128).any() for line in lines)
