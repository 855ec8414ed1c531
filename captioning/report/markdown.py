"""Tables in Markdown that are read as well where they are printed: every column as wide as its widest cell."""

from collections.abc import Sequence


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The lines of a table, without the end of the last."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    head, *body = [
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |" for row in cells
    ]
    return "\n".join([head, f"|{'|'.join('-' * (width + 2) for width in widths)}|", *body])
