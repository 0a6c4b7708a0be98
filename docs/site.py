"""A hook of mkdocs: what the pages name of the repository is no part of the site."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to files outside of docs/ keep their text alone: on GitHub they lead somewhere."""
    return _OUTSIDE.sub(r"\1", markdown)
