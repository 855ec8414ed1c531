"""The layouts of caption files that users have, read for training and as references."""

import csv
import json

import pytest
from json_files import write_json

from captioning.config.explain import explain
from captioning.data.readers.captions import read_examples, read_references
from captioning.data.readers.options import reading
from captioning.data.readers.table import table_entries
from captioning.errors import CaptioningError

DOG, CAT = "a dog , running", "a cat; on | the mat"


def quoted_cell(text):
    return '"' + text.replace('"', '""') + '"'


KARPATHY = {
    "images": [
        {"filename": f"{i}.jpg", "imgid": i + 4, "split": "test", "sentences": [{"raw": text}]}
        for i, text in ((1, DOG), (2, CAT))
    ]
}
COCO = {
    "images": [{"id": 7, "file_name": "1.jpg"}, {"id": 8, "file_name": "2.jpg"}],
    "annotations": [{"image_id": 7, "caption": DOG}, {"image_id": 8, "caption": CAT}],
}
FILES = {
    "kaggle8k.txt": f'image,caption\n1.jpg,"{DOG}"\n2.jpg,{CAT}\n',
    "kaggle30k.csv": f'image_name,comment_number,comment\n1.jpg,0,"{DOG}"\n2.jpg,0,{CAT}\n',
    # the second line lacks a bar, as one of the real file does
    "results.csv": f"image_name| comment_number| comment\n1.jpg| 0| {DOG}\n2.jpg| 4   a cat; on "
    "the mat\n",
    "semicolons.csv": f'image;caption\n1.jpg;{DOG}\n2.jpg;"{CAT}"\n',
    "ids.tsv": f"id\tpath\traw\n0\t1.jpg\t{DOG}\n1\t2.jpg\t{CAT}\n",
    "no_header.txt": f'1.jpg,"{DOG}"\n2.jpg,{CAT}\n',
    "numbers.txt": f"1.jpg\t0\t{DOG}\n2.jpg\t0\t{CAT}\n",
    "token.txt": f"1.jpg#0\t{DOG}\n2.jpg#0\t{CAT}\n",
    "metadata.jsonl": "".join(
        json.dumps({"file_name": f, "text": t}) + "\n"
        for f, t in zip(("1.jpg", "2.jpg"), (DOG, CAT), strict=True)
    ),
    "blip.json": json.dumps(
        [{"image": "1.jpg", "caption": [DOG]}, {"image": "2.jpg", "caption": CAT, "image_id": "b"}]
    ),
    "challenger.json": json.dumps(
        [
            {"url": "?", "image_id": "1.jpg", "caption": [DOG]},
            {"image_id": "2.jpg", "caption": [CAT]},
        ]
    ),
    "clotho.csv": f'File_Name,Caption_1,Caption_2\n1.jpg,"{DOG}",\n2.jpg,,{CAT}\n',
    "json_cells.csv": f"raw,filename\n{quoted_cell(json.dumps([DOG]))},1.jpg\n"
    f"{quoted_cell(json.dumps([CAT]))},2.jpg\n",
    "python_cells.csv": f"image,captions\n1.jpg,{quoted_cell(repr([DOG]))}\n2.jpg,['{CAT}']\n",
    "language.txt": f"1.jpg#zhm#0\t{DOG}\n2.jpg#enc#0\t{CAT}\n",
    "by_id.json": json.dumps({"1.jpg": [DOG], "2.jpg": [CAT]}),
    "karpathy.json": json.dumps(KARPATHY),
    "coco.json": json.dumps(COCO),
}


@pytest.mark.parametrize("name", FILES)
def test_every_layout_gives_the_same_captions(name, tmp_path):
    file = tmp_path / name
    file.write_text(FILES[name])
    cat = CAT.replace(" |", "") if name == "results.csv" else CAT
    found = read_examples(tmp_path, file)
    assert [(e.path.name, [r.text.strip() for r in e.references]) for e in found] == [
        ("1.jpg", [DOG]),
        ("2.jpg", [cat]),
    ]
    references = read_references(file, captions=["1.jpg", "2.jpg"])
    assert {
        image: [text.strip() for text in record.references] for image, record in references.items()
    } == {"1.jpg": [DOG], "2.jpg": [cat]}


CELLS = {  # as pandas writes NumPy's arrays, and what is no list
    "['it\\'s a dog'\n \"a cat\"]": ["it's a dog", "a cat"],
    '["a \\u00e9", "b"]': ["a é", "b"],
    "['\\x', 'a']": ["['\\x', 'a']"],
    '["one" of two]': ['["one" of two]'],
    "[]": ["[]"],
}


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_may_be_a_list_of_captions(cell, tmp_path):
    (tmp_path / "a.csv").write_text(f"image,caption\n1.jpg,{quoted_cell(cell)}\n")
    assert table_entries(tmp_path / "a.csv")["1.jpg"].captions == CELLS[cell]


def test_marked_captions_are_left_out(tmp_path):
    """And images that have no other."""
    marked = {"is_rejected": "asdf", "is_precanned": "too dark"}
    entries = [{"image_id": 7, "caption": text, mark: True} for mark, text in marked.items()]
    entries += [{"image_id": 8, "caption": "asdf", "is_rejected": True, "is_precanned": False}]
    annotations = [*COCO["annotations"][:1], *entries]
    write_json(tmp_path / "a.json", {**COCO, "annotations": annotations})
    known = {7: [DOG], 8: ["asdf"]}
    unknown = [{"image_id": 9, "caption": "asdf", "is_rejected": True}]  # of no image
    write_json(tmp_path / "b.json", {**COCO, "annotations": [*annotations, *unknown]})
    skipped = []
    with reading(skipped=skipped):
        assert read_references(tmp_path / "b.json").keys() == {7}
    assert len(skipped) == 1
    for keep, expected in ((False, {7: [DOG]}), (True, known | {7: [DOG, *marked.values()]})):
        found = read_references(tmp_path / "a.json", marked=keep)
        assert {image: record.references for image, record in found.items()} == expected


@pytest.mark.parametrize(
    "references, captions, images",
    [
        (KARPATHY, [5, 6], [5, 6]),
        (KARPATHY, ["1.jpg"], ["1.jpg", "2.jpg"]),
        (COCO, ["7", "8"], ["7", "8"]),
        (COCO, [1, 2], [1, 2]),  # the numbers of file names
        (COCO, ["unknown"], [7, 8]),
        ([{"image": "val/COCO_val2014_000000000042.jpg", "caption": ["a dog"]}], [42], [42]),
        ([{"image": "val/a.jpg", "caption": ["a dog"]}], ["a.jpg"], ["a.jpg"]),
        ([{"image": "12", "caption": "a dog"}], [12], [12]),
        (COCO, ["007", "008"], ["007", "008"]),
        ([{"image": "0012", "caption": "a dog"}], [12], [12]),
        ([{"image": "0", "caption": "a dog"}], ["000"], ["000"]),
    ],
)
def test_images_are_called_as_in_the_captions(references, captions, images, tmp_path):
    file = tmp_path / "references.json"
    write_json(file, references)
    assert list(read_references(file, captions=captions)) == images


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_quoted_caption_has_several_lines(separator, tmp_path):
    file = tmp_path / "captions.csv"
    rows = [
        ["image", "caption"],
        ["1.jpg", 'a dog\n\n"runs"\n'],
        ["2.jpg", "a cat"],
        ["3.jpg", "a\nb"],
    ]
    with file.open("w", newline="") as out:
        csv.writer(out, delimiter=separator).writerows(rows)
    assert {image: entry.captions for image, entry in table_entries(file).items()} == {
        "1.jpg": ['a dog\n"runs"\n'],
        "2.jpg": ["a cat"],
        "3.jpg": ["a\nb"],
    }


@pytest.mark.parametrize(
    "after", ['3.jpg,"a cat"', "3.jpg,a cat", "\n".join(f"3.jpg,{n}" for n in range(99))]
)
def test_an_unclosed_quote_spoils_its_line_alone(after, tmp_path):
    (tmp_path / "captions.csv").write_text(
        f'image,caption\n1.jpg,a dog\n2.jpg,"a cow\n{after}\n4.jpg,an owl\n'
    )
    with pytest.raises(CaptioningError) as refused:
        table_entries(tmp_path / "captions.csv")
    assert "captions.csv, line 3" in explain(refused.value)
    skipped = []
    with reading(skipped=skipped):
        found = table_entries(tmp_path / "captions.csv")
    assert list(found) == ["1.jpg", "3.jpg", "4.jpg"]
    assert ["line 3" in explain(error) for error in skipped] == [True]


@pytest.mark.parametrize("content", [KARPATHY, COCO])
def test_a_json_of_another_layout_is_no_table(content, tmp_path):
    file = tmp_path / "captions.json"
    for indent in (None, 2):
        file.write_text(json.dumps(content, indent=indent))
        with pytest.raises(
            CaptioningError, match=r"data=karpathy data\.json=FILE .* data=coco_official"
        ):
            table_entries(file)
