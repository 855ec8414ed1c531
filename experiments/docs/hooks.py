"""All pages of a checkout and the tutorial as the pages of MkDocs."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

try:
    from docs.reference import reference
except ImportError:  # loaded by MkDocs, which knows this folder alone
    from reference import reference

ROOT = Path(__file__).resolve().parents[2]
TOPS = ("captioning", "conf", "experiments")
EQUATION = re.compile(r"\$\$(.+?)\$\$|\$([^$]+)\$", re.DOTALL)
LINK = re.compile(r'(?:(?<=\]\()|(?<=src="))([^)"#\s:]+)(?=[)"#])')
NAVIGATION: Mapping[str, str] = {
    "Start": "README.md",
    "Tutorial": "experiments/tutorial",
    "Systems": "captioning/models",
    "Data": "captioning/data",
    "Settings": "conf",
    "Every setting": "reference.md",
    "Experiments": "experiments",
    "Bundled captioner": "captioning/pretrained/README.md",
    "Contributing": "captioning/README.md",
    "Changes": "captioning/CHANGELOG.md",
}


def on_config(config: Any) -> Any:
    """Collect the pages, before MkDocs reads them."""
    config.docs_dir = tempfile.mkdtemp()
    collect(Path(config.docs_dir))
    config.nav = navigation(Path(config.docs_dir))
    return config


def on_post_build(config: Any) -> None:
    """Remove the collected pages."""
    shutil.rmtree(config.docs_dir)


def collect(folder: Path) -> None:
    """Copy the pages of the checkout, and what they link to, into the same places of `folder`."""
    pages = [ROOT / "README.md", *(path for top in TOPS for path in (ROOT / top).rglob("*.md"))]
    pages = [
        page for page in pages if not {"runs", "cache", "report"} & {*page.relative_to(ROOT).parts}
    ]
    for page in (*pages, *ROOT.glob("experiments/tutorial/*.ipynb")):
        text = page.read_text(encoding="utf-8")
        text = with_equations(text) if page.suffix == ".ipynb" else text
        for name in LINK.findall(text):
            linked = Path(os.path.normpath(page.parent / name))
            inside = linked.is_file() and linked.is_relative_to(ROOT)
            if inside and linked.suffix not in (".md", ".ipynb"):
                _copy(linked, folder)
        copied = folder / page.relative_to(ROOT)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_text(LINK.sub(partial(_target, page), text), encoding="utf-8")
    (folder / "reference.md").write_text(reference(), encoding="utf-8")
    shutil.copy(Path(__file__).with_name("site.css"), folder)


def with_equations(notebook: str) -> str:
    """A notebook's text with LaTeX as MathML, which browsers draw without a script."""

    def drawn(match: re.Match[str]) -> str:
        return str(convert(match[1] or match[2], display="block" if match[1] else "inline"))

    content = json.loads(notebook)
    for cell in content["cells"]:
        cell.get("metadata", {}).pop("tags", None)  # which the page would show
        if cell["cell_type"] == "markdown":
            cell["source"] = EQUATION.sub(drawn, "".join(cell["source"]))
    return json.dumps(content)


def _target(page: Path, link: re.Match[str]) -> str:
    """A link as the site can follow it: to a folder's page."""
    name = link[1]
    if (page.parent / name / "README.md").is_file():
        name = f"{name.rstrip('/')}/README.md"
    if page.suffix == ".ipynb":  # whose links MkDocs leaves as they are
        return re.sub(
            r"\.(md|ipynb)$", ".html", re.sub(r"(?<![^/])README\.md$", "index.html", name)
        )
    return name


def _copy(file: Path, folder: Path) -> None:
    copied = folder / file.relative_to(ROOT)
    copied.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, copied)


def navigation(folder: Path) -> list[dict[str, Any]]:
    """The entries of `NAVIGATION`; a folder is its page, then its notebooks, the pages below, or
    those that its page links to, in this order.
    """
    entries: list[dict[str, Any]] = []
    for title, name in NAVIGATION.items():
        if (folder / name).is_file():
            entries.append({title: name})
            continue
        notebooks = sorted((folder / name).glob("*.ipynb"))
        index = (folder / name / "README.md").read_text(encoding="utf-8")
        links = dict.fromkeys(
            link for link in LINK.findall(index) if re.fullmatch(r"\w+\.md", link)
        )
        linked = [folder / name / link for link in links]
        pages = notebooks or sorted((folder / name).glob("*/README.md")) or linked
        inside = [path.relative_to(folder).as_posix() for path in pages]
        entries.append({title: [f"{name}/README.md", *inside]})
    return entries
