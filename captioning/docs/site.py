"""All pages of a checkout, the tutorial and recorded reports as a static site that can be
searched.
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from captioning.config.registry import PACKAGE
from captioning.docs.reference import reference
from captioning.errors import CaptioningError

ROOT = PACKAGE.parent
TOPS = ("captioning", "conf", "experiments")
EQUATION = re.compile(r"\$\$(.+?)\$\$|\$([^$]+)\$", re.DOTALL)
INDEX, REPORT = "index.html", "report.html"
"""A recorded report, and its name in the site, where README.md becomes index.html."""
LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(?=[)#])")
NAVIGATION: Mapping[str, str] = {
    "Start": "README.md",
    "Tutorial": "experiments/tutorial",
    "Systems": "captioning/models/README.md",
    "Data": "captioning/data/README.md",
    "Settings": "conf/README.md",
    "Every setting": "reference.md",
    "Experiments": "experiments",
    "Bundled captioner": "captioning/pretrained/README.md",
    "Changes": "captioning/CHANGELOG.md",
}
CONFIGURATION: Mapping[str, Any] = {
    "site_name": "captioning",
    "use_directory_urls": False,  # so that it can be read from the disk
    "validation": {"links": {"anchors": "warn"}},
    "theme": {
        "name": "material",
        "font": False,  # none from another host
        # the system's choice; Material's script fails without the two that there are
        "palette": [
            {"media": "(prefers-color-scheme)"},
            {"media": "(prefers-color-scheme: light)", "scheme": "default"},
            {"media": "(prefers-color-scheme: dark)", "scheme": "slate"},
        ],
        "features": ["navigation.indexes", "content.code.copy", "toc.follow"],
    },
    "plugins": ["search", {"mkdocs-jupyter": {"include": ["*.ipynb"], "cache": False}}],
}


def collect(folder: Path, commands: Mapping[str, str]) -> None:
    """Copy the pages, and what they link to, into `folder` in the places that they have in the
    checkout.
    """
    pages = [ROOT / "README.md", *(path for top in TOPS for path in (ROOT / top).rglob("*.md"))]
    pages = [page for page in pages if not {"runs", "cache"} & {*page.relative_to(ROOT).parts}]
    for page in (*pages, *ROOT.glob("experiments/tutorial/*.ipynb")):
        text = page.read_text(encoding="utf-8")
        text = with_equations(text) if page.suffix == ".ipynb" else text
        for name in LINK.findall(text):
            linked = Path(os.path.normpath(page.parent / name))
            if (
                linked.is_file()
                and linked.is_relative_to(ROOT)
                and linked.suffix not in (".md", ".ipynb")
            ):
                _copy(linked, folder)
        place = folder / page.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(LINK.sub(partial(_target, page), text), encoding="utf-8")
    (folder / "reference.md").write_text(reference(commands), encoding="utf-8")


def with_equations(notebook: str) -> str:
    """A notebook's text with LaTeX as MathML, which browsers draw without a script."""
    from latex2mathml.converter import convert

    def drawn(found: re.Match[str]) -> str:
        return str(convert(found[1] or found[2], display="block" if found[1] else "inline"))

    content = json.loads(notebook)
    for cell in content["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = EQUATION.sub(drawn, "".join(cell["source"]))
    return json.dumps(content)


def _target(page: Path, link: re.Match[str]) -> str:
    """A link as the site can follow it: to a folder's page in place of the folder, to a report by
    its name here.
    """
    name = link[1]
    if (page.parent / name / "README.md").is_file():
        name = f"{name.rstrip('/')}/README.md"
    if page.suffix == ".ipynb":  # whose links MkDocs leaves as they are
        return re.sub(r"\.(md|ipynb)$", ".html", re.sub(r"(?<![^/])README\.md$", INDEX, name))
    return f"{name.removesuffix(INDEX)}{REPORT}" if Path(name).name == INDEX else name


def _copy(file: Path, folder: Path) -> None:
    place = folder / file.relative_to(ROOT)
    place = place.with_name(REPORT) if place.name == INDEX else place
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, place)


def navigation(folder: Path) -> list[dict[str, Any]]:
    """The entries of `NAVIGATION`; a folder is its page, then its notebooks or the pages of its
    folders.
    """
    entries: list[dict[str, Any]] = []
    for title, place in NAVIGATION.items():
        if (folder / place).is_file():
            entries.append({title: place})
        elif (folder / place).is_dir():
            inside = sorted((folder / place).glob("*.ipynb")) or sorted(
                (folder / place).glob("*/README.md")
            )
            names = [path.relative_to(folder).as_posix() for path in inside]
            entries.append({title: [f"{place}/README.md", *names]})
    return entries


def build(output: Path, strict: bool, commands: Mapping[str, str]) -> None:
    """Write the site into `output`; `strict` refuses broken links; `commands` with what they do."""
    if not (ROOT / "README.md").is_file():
        raise CaptioningError(
            "the pages are in a checkout of the project, not in its wheel: give this command there"
        )
    try:
        from mkdocs.commands.build import build as write
        from mkdocs.config import load_config
        from pymdownx.slugs import slugify
    except ImportError as error:
        raise CaptioningError("mkdocs is not installed: pip install 'captioning[docs]'") from error
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        collect(folder / "docs", commands)
        settings = {
            **CONFIGURATION,
            "nav": navigation(folder / "docs"),
            "site_dir": str(output.absolute()),
        }
        (folder / "mkdocs.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
        headings = {"permalink": True, "slugify": slugify(case="lower")}  # as code hosts name them
        extensions = ["tables", "fenced_code", "md_in_html", {"toc": headings}]
        write(
            load_config(str(folder / "mkdocs.yml"), strict=strict, markdown_extensions=extensions)
        )
