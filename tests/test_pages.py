"""The pages for readers name only what there is: files, headings, folders, settings."""

import ast
import functools
import importlib
import os
import re
import shlex
import subprocess
from contextlib import suppress
from copy import deepcopy
from pathlib import Path

import pytest
from docs.reference import reference
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import InterpolationResolutionError

from captioning.__main__ import ROOMS
from captioning.config.registry import CONF
from captioning.doctor.__main__ import read_folders
from captioning.errors import CaptioningError

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *(
        path
        for top in ("captioning", "conf", "experiments")
        for path in ROOT.glob(f"{top}/**/*.md")
    ),
]
TEXTS = {page: page.read_text() for page in PAGES}
TYPED = sorted(
    {
        line.removeprefix("captioning ")
        for text in TEXTS.values()
        for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
        for line in block.replace("\\\n", " ").splitlines()
        # with a variable of the shell; with parts of one's own, as in tests/test_readme.py
        if re.match("captioning [a-z]", line) and "$" not in line and "--config-dir" not in line
    }
)
RECORDS = [*ROOT.glob("experiments/*/README.md")]
GUIDES = [
    page
    for page in PAGES
    if page.parent.parent != ROOT / "experiments" and page.name != "CHANGELOG.md"
]
GROUPS = [path.relative_to(CONF).as_posix() for path in CONF.rglob("*") if path.is_dir()]
OF_OTHERS = (
    *("hydra.launcher.", "hydra.sweeper.", "hydra/sweeper=optuna", "logger.wandb.entity"),
    *("weights_only=", "hydra.verbose="),
)
"""Settings of plugins, of wandb.init and of torch.load, which no file here lists."""
SUFFIXES = "pth|pkl|tar|json|jsonl|npz|npy|csv|tsv|md|html|ckpt|safetensors|txt|py|yaml"


def settings():
    """All keys, with the names of their groups and without, each beginning and each end of them."""
    keys = set()
    for group in reference().split("\n## ")[1:]:
        name = group.partition("\n")[0].replace("/", ".")
        for key in re.findall(r"^\| `([^`]+)` \|", group, re.M):
            keys |= {key, f"{name}.{key}"}
    parts = [key.split(".") for key in keys]
    ends = {".".join(part[i:]) for part in parts for i in range(len(part))}
    return ends | {".".join(part[:i]) for part in parts for i in range(1, len(part))}


def texts():
    """All code and configuration, and the names of all files."""
    files = [path for top in ("captioning", "conf", "tests") for path in (ROOT / top).rglob("*.*")]
    kept = [path for path in files if path.suffix in (".py", ".yaml", ".js")]
    names = [path.name for path in (*files, *ROOT.glob("experiments/**/*.*"))]
    return "\n".join([*names, *(path.read_text() for path in kept)])


def exists(word, page, settings, texts):
    """Whether a word that the text `page` quotes is no setting, choice or file, or one there is."""
    key, equals, value = word.partition("=")
    if word.startswith(OF_OTHERS):
        return True
    if key in GROUPS and equals:
        choices = re.findall(r"(?:^|[,|])([a-z]\w+)(?=[,|]|$)", value)
        return all((CONF / key / f"{name}.yaml").is_file() for name in choices)
    if re.fullmatch(rf"[\w-]+\.({SUFFIXES})", key):
        return not re.search("[a-z]", key.partition(".")[0]) or key in texts or key in page
    if re.fullmatch(r"[a-z_]+(\.[a-z]\w*)*", key) and (equals or key.split(".")[0] in GROUPS):
        key = re.sub(r"^backbone\.of\.", "", key)
        return key in settings or key in GROUPS
    return True


def test_settings_choices_and_files_that_a_page_quotes_exist():
    known, written = settings(), texts()
    absent = []
    for page in GUIDES:
        prose = re.sub(r"^```.*?^```", "", TEXTS[page], flags=re.M | re.S)
        words = {word.strip("'+~,;") for word in " ".join(re.findall(r"`([^`]+)`", prose)).split()}
        absent += [
            (str(page), word) for word in words if not exists(word, TEXTS[page], known, written)
        ]
    assert absent == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_files_that_are_named_lead_somewhere(page):
    for target, heading in re.findall(r"\]\((?!\w+:)([^)#]*)#?([^)]*)\)", TEXTS[page]):
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), target
        # as GitHub writes headings in links
        headings = [
            re.sub(r"[^\w -]", "", line.lower())
            for line in re.findall(r"^#+ (.*)", TEXTS.get(found, ""), re.M)
        ]
        assert not heading or heading in [line.replace(" ", "-") for line in headings], heading
    for name in re.findall(r"`((?:captioning|conf|experiments|tests)/[\w/.-]+)`", TEXTS[page]):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("page", RECORDS, ids=lambda page: page.parent.name)
def test_numbers_of_an_answer_name_their_file(page):
    """Each section with a decimal names a file or folder, or says that none was kept."""
    answer = TEXTS[page].partition("\n## How it was made")[0]
    answer = re.sub(r"^```.*?^```", "", answer, flags=re.M | re.S)
    for section in re.split(r"^(?=#)", answer, flags=re.M):
        if not re.search(r"(?<![\w.])\d+\.\d", re.sub("`[^`]*`", "", section)):
            continue
        names = re.findall(r"(?:\]\(|`)([\w./-]+)[)`]", section)
        found = [name for name in names if (page.parent / name).exists() or (ROOT / name).exists()]
        files = [name for name in found if not name.endswith("README.md")]
        assert files or "not kept" in section.lower(), section.partition("\n")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lists_are_quoted(page):
    """Or zsh looks for files of such names."""
    blocks = re.findall(r"^```sh\n(.*?)^```", TEXTS[page], re.M | re.S)
    for line in "".join(blocks).splitlines():
        bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", line.partition(" #")[0])
        assert "=[" not in bare, line


def test_the_tree_of_folders_is_the_tree():
    page = TEXTS[ROOT / "captioning" / "README.md"]
    (tree,) = re.findall(r"## The folders\n\n```\n(.*?)^```", page, re.M | re.S)
    named = {line.split()[0] for line in tree.splitlines() if line.startswith("  ")}
    assert {name for name in named if name.endswith("/")} == {
        f"{path.parent.name}/" for path in ROOT.glob("captioning/*/__init__.py")
    }
    assert [name for name in named if not (ROOT / "captioning" / name).exists()] == []


def test_the_repository_travels():
    """All tracked files fit into 37 MB."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    files = [ROOT / os.fsdecode(name) for name in listed.split(b"\0") if name]
    assert sum(file.stat().st_size for file in files if file.is_file()) < 37_000_000


def test_commits_that_pages_and_records_name_are_of_this_history():
    if (ROOT / ".git/shallow").exists():
        pytest.skip("a shallow clone has no history")
    history = subprocess.check_output(["git", "rev-list", "HEAD"], cwd=ROOT, text=True).split()
    records = [path.read_text() for path in ROOT.glob("experiments/**/*.json")]
    text = " ".join([*records, *TEXTS.values()])
    after = re.findall(r'\bcommits?"?:?\s+(\S+(?:\s+and\s+\S+)?)', text)
    named = set(re.findall(r"\b(?=[a-f]*\d)[0-9a-f]{7,40}\b", " ".join(after)))
    assert named
    assert [name for name in named if not any(each.startswith(name) for each in history)] == []


@functools.cache
def composition(config, groups):
    """A command's configuration with these choices, for the values that lines set in it."""
    with initialize_config_dir(str(config.parent), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        return loader, compose(config.stem, list(groups), return_hydra_config=True)


def composes(line):
    name, *arguments = shlex.split(line, comments=True)
    settings = [argument for argument in arguments if not argument.startswith("-")]
    if name == "doctor":
        read_folders(settings)
        return
    room = ROOMS.get(name, name)
    module = room if (ROOT / "captioning" / f"{name}.py").is_file() else f"{room}.__main__"
    main = importlib.import_module(f"captioning.{module}").main
    config, settings = main.config, main.overrides(settings)
    parser = OverridesParser.create()
    given = parser.parse_overrides(settings)
    # each value in some job, not each with each; from an interval Optuna alone can choose
    values = [
        [argument for (argument,) in BasicSweeper.split_arguments([each], None)[0]]
        for each in given
        if not each.is_interval_sweep()
    ]
    count = max(map(len, values), default=1)
    jobs = [[each[i % len(each)] for each in values] for i in range(count)]
    for job in jobs:
        parsed = parser.parse_overrides(job)
        groups = [each for each in parsed if each.key_or_group in GROUPS]
        loader, found = composition(config, tuple(str(each.input_line) for each in groups))
        values = [each for each in parsed if each not in groups]
        chosen = deepcopy(found)
        loader._apply_overrides_to_config(values, chosen)
        with open_dict(chosen):
            HydraConfig.instance().set_config(chosen)
            del chosen["hydra"]
        with suppress(CaptioningError, InterpolationResolutionError):  # of files that are not here
            main.schema.model_validate(OmegaConf.to_container(chosen, resolve=True))


def test_what_is_to_be_typed_composes():
    for line in TYPED:
        try:
            composes(line)
        except Exception as error:
            error.add_note(line)
            raise


def test_messages_that_a_page_explains_are_written():
    """Each piece of a message between what varies (`...`, numbers) stands in one text of the
    package.
    """
    trouble = TEXTS[ROOT / "conf/troubleshooting.md"]
    rows = [line.split(" | ")[0] for line in trouble.splitlines() if line.startswith("| ")]
    messages = [message for row in rows for message in re.findall(r"`([^`]+)`", row)]
    texts = []
    for path in (ROOT / "captioning").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            texts.append(
                "\0".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
            )
    assert len(messages) > 10
    for message in messages:
        pieces = [
            piece
            for piece in re.split(r"\s*(?:\.\.\.|\b\d+\b|\bN\b)\s*", message)
            if len(piece) > 1
        ]
        assert any(all(piece in text for piece in pieces) for text in texts), message
