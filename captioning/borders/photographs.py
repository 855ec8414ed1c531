"""Photographs, as all parts agree on them: formats that are opened, and the square that a network sees."""

FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
"""The kinds of files that Pillow may take a photograph for: others, EPS for one, it hands to other programs."""

Frame = tuple[float, float, float, float]
"""Left, top, right, bottom of the square in fractions of the photograph."""
WHOLE: Frame = (0.0, 0.0, 1.0, 1.0)


def frame_of(resize: str, width: int, height: int) -> Frame:
    """The square: all of the photograph (`squash`), a part of it (`crop`), or more than it (`pad`)."""
    if resize == "squash":
        return WHOLE
    side = min(width, height) if resize == "crop" else max(width, height)
    left, top = (1 - side / width) / 2, (1 - side / height) / 2
    return left, top, 1 - left, 1 - top
