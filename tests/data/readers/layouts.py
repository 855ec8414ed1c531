"""Miniature data sets in the layouts that readers read: one function per layout.

Each writes captions of `SPLITS` in a folder with the photographs `images/0.jpg` to `images/15.jpg`.
"""

import io
import json
import tarfile

import numpy as np
import pyarrow
import pyarrow.parquet
from json_files import write_json

SPLITS = ("train", "train", "val", "test")
TEXTS = ("A dog runs .", "Dogs")
SENTENCES = [{"raw": text, "tokens": text.lower().replace(" .", "").split()} for text in TEXTS]
KARPATHY = [
    {"filename": f"{i}.jpg", "imgid": i, "split": split, "sentences": SENTENCES}
    for i, split in enumerate(SPLITS)
]


def link(path, photograph):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(photograph.resolve())


def videos(numbers):
    names = {"train": "train", "val": "validate", "test": "test"}
    return {
        "videos": [{"video_id": f"{i}", "split": names[SPLITS[i]]} for i in numbers],
        "sentences": [{"video_id": f"{i}", "caption": text} for i in numbers for text in TEXTS],
    }


def karpathy(folder):
    for name in ("dataset", "dataset_flickr8k", "dataset_flickr30k"):
        write_json(folder / f"{name}.json", {"images": KARPATHY})


def coco(folder):
    own = [each | {"filepath": "val2014", "cocoid": 100 + each["imgid"]} for each in KARPATHY]
    write_json(folder / "dataset_coco.json", {"images": own})


def coco_official(folder):
    for first, split in ((100, "train2014"), (200, "val2014")):
        images = [{"id": first + i, "file_name": f"{i}.jpg"} for i in range(16)]
        annotations = [{"image_id": each["id"], "caption": t} for each in images for t in TEXTS]
        content = {"images": images, "annotations": annotations}
        write_json(folder / "annotations" / f"captions_{split}.json", content)


def captioned(images, **marks):
    return [{"image_id": each["id"], "caption": t, **marks} for each in images for t in TEXTS]


def nocaps(folder):
    """Trained on COCO 2017; the test has domains, and that of the server no captions."""
    for first, split in ((0, "train2017"), (200, "val2017")):  # ids that nocaps has too
        images = [{"id": first + i, "file_name": f"{i}.jpg"} for i in range(4)]
        content = {"images": images, "annotations": captioned(images)}
        write_json(folder / "annotations" / f"captions_{split}.json", content)
    domains = ("in-domain", "near-domain", "out-domain", "near-domain")
    images = [
        {"id": i, "file_name": f"{i}.jpg", "open_images_id": f"00{i}", "domain": domain}
        for i, domain in enumerate(domains)
    ]
    content = {"images": images, "annotations": captioned(images)}
    write_json(folder / "nocaps_val_4500_captions.json", content)
    write_json(folder / "nocaps_test_image_info.json", {"images": images})


def vizwiz(folder):
    for first, split in ((100, "train"), (200, "val")):
        images = [
            {"id": first + i, "file_name": f"{i}.jpg", "text_detected": i % 2 == 0}
            for i in range(12)
        ]
        good = captioned(images, is_rejected=False, is_precanned=False, text_detected=True)
        canned = captioned(images[:1], is_rejected=False, is_precanned=True, text_detected=True)
        write_json(
            folder / "annotations" / f"{split}.json",
            {"images": images, "annotations": good[len(canned) :] + canned},
        )
    write_json(folder / "annotations" / "test.json", {"images": images})


def textcaps(folder):
    for split, images in (("train", range(12)), ("val", range(12, 16)), ("test", range(12))):
        known = [{"caption_str": text, "reference_strs": list(TEXTS)} for text in TEXTS]
        entries = [
            {"image_id": f"{split}{i}", "image_name": f"{i}", "image_classes": ["Dog"], **own}
            for i in images
            for own in (known if split != "test" else [{}])
        ]
        write_json(folder / f"TextCaps_0.1_{split}.json", {"data": entries})


def levir_cc(folder):
    change = [entry | {"filepath": entry["split"]} for entry in KARPATHY]
    write_json(folder / "LevirCCcaptions.json", {"images": change})
    images = folder / "images"
    for i, split in enumerate(SPLITS):
        for side, number in (("A", i), ("B", i + 1)):
            link(images / split / side / f"{i}.jpg", images / f"{number}.jpg")


def r2gen(folder):
    reports = {"train": [], "val": [], "test": []}
    for i, split in enumerate(SPLITS):  # some with one image
        paths = [f"{k}.jpg" for k in range(i, i + 1 + i % 2)]
        reports[split].append({"id": f"report {i}", "report": TEXTS[0], "image_path": paths})
    write_json(folder / "annotation.json", reports)


def languages(folder):
    for code, captions in (("de", ["Ein Hund rennt .", "Hunde"]), ("zh", ["一只狗在跑。", "狗"])):
        content = {f"{i}.jpg": captions for i in range(len(SPLITS))}
        write_json(folder / f"captions_{code}.json", content)


def table(folder):
    rows = [f"{i}.jpg,{text}" for i in range(len(SPLITS)) for text in TEXTS]
    (folder / "captions.txt").write_text("\n".join(["image,caption", *rows]))
    for split in {*SPLITS}:
        names = [f"{i}.jpg" for i, own in enumerate(SPLITS) if own == split]
        (folder / f"{split}.txt").write_text("\n".join(names))


def frames(folder):
    """Clips of two frames, with the captions of `table`."""
    for i in range(len(SPLITS)):
        for frame in range(2):
            clip = folder / "clips" / f"{i}.jpg"
            link(clip / f"{frame}.jpg", folder / "images" / f"{i + frame}.jpg")


def image_cell(folder, number):
    return {"bytes": (folder / "images" / f"{number}.jpg").read_bytes(), "path": f"{number}.jpg"}


def write_parquet(file, rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)


def hub(folder):
    """The columns of nlphuji/flickr30k, whose only split is called `test`."""
    rows = [
        {
            "image": image_cell(folder, i),
            "caption": [*TEXTS],
            "sentids": [f"{2 * i}", f"{2 * i + 1}"],
            "split": split,
            "img_id": f"{i}",
            "filename": f"{i}.jpg",
        }
        for i, split in enumerate(SPLITS)
    ]
    write_parquet(folder / "hub" / "TEST" / "test" / "0000.parquet", rows)


def hub_rsicd(folder):
    """The columns of arampacha/rsicd."""
    for split in {*SPLITS}:
        rows = [
            {
                "filename": f"rsicd_images/{i}.jpg",
                "captions": [*TEXTS],
                "image": image_cell(folder, i),
            }
            for i, own in enumerate(SPLITS)
            if own == split
        ]
        name = {"val": "valid"}.get(split, split)
        write_parquet(folder / "hub" / "data" / f"{name}-00000-of-00001.parquet", rows)


def hub_textcaps(folder):
    """The columns of lmms-lab/TextCaps, whose test split has no captions."""
    for split in {*SPLITS}:
        rows = [
            {
                "question_id": f"{i}",
                "question": "Provide a one-sentence caption.",
                "image": image_cell(folder, i),
                "image_id": f"{i:016x}",
                "image_classes": ["Sign"],
                "set_name": split,
                "caption_str": None if split == "test" else [*TEXTS],
                "reference_strs": None if split == "test" else [*TEXTS],
            }
            for i, own in enumerate(SPLITS)
            if own == split
        ]
        write_parquet(folder / "hub" / "data" / f"{split}-00000-of-00001.parquet", rows)


def hub_coco(folder):
    """The files of undefined443/coco-karpathy-wds: a tar has the pairs KEY.jpg and KEY.json."""
    for split in {*SPLITS}:
        file = folder / "hub" / split / f"{split}-00000.tar"
        file.parent.mkdir(parents=True)
        with tarfile.open(file, "w") as tar:
            for i, own in enumerate(SPLITS):
                about = json.dumps({"captions": TEXTS, "cocoid": 100 + i}).encode()
                photograph = image_cell(folder, i)["bytes"]
                for suffix, content in (("jpg", photograph), ("json", about)):
                    member = tarfile.TarInfo(f"{i:09d}.{suffix}")
                    member.size = len(content)
                    if own == split:
                        tar.addfile(member, io.BytesIO(content))


def msrvtt(folder):
    for name, numbers in (("train_val", range(3)), ("test", range(3, 4))):
        write_json(folder / f"{name}_videodatainfo.json", videos(numbers))


def parallel(folder):
    """Of `experiments/two_languages`."""
    multi30k = ("train.lc.norm.tok", "val.lc.norm.tok", "test_2016_flickr.lc.norm.tok")
    for name in (*SPLITS, *multi30k):
        (folder / f"{name}.de").write_text("ein hund rennt\nhunde\n")
        (folder / f"{name}.en").write_text("a dog runs .\ndogs\n")


def features(folder):
    """Precomputed features of drawn scenes, by their ids."""
    drawn = [1_000_000 * split + i for split in range(3) for i in range(6)]
    rows = {str(i): np.full((1 + i % 5, 2048), i % 7 + 1, np.float16) for i in drawn}
    np.savez(folder / "features.npz", **rows)


LAYOUTS = {
    "karpathy": karpathy,
    "flickr8k": karpathy,
    "flickr30k": karpathy,
    "coco": coco,
    "coco_official": coco_official,
    "nocaps": nocaps,
    "vizwiz": vizwiz,
    "textcaps": textcaps,
    "levir_cc": levir_cc,
    "r2gen": r2gen,
    "flickr8k_languages": languages,
    "flickr8k_german": languages,
    "flickr8k_chinese": languages,
    "csv": table,
    "frames": frames,
    "hub": hub,
    "msrvtt": msrvtt,
    "shapes": features,
}
"""Function that writes what a file of `conf/data` reads, by its name."""
