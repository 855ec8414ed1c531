"""Templates of pages, which escape every text, and the styles and scripts next to them."""

from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined


def environment(package: str) -> Environment:
    """For the templates of a package."""
    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def asset(package: str, name: str) -> str:
    """A style or a script."""
    return (files(package) / "templates" / name).read_text(encoding="utf-8")
