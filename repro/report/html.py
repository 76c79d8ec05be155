"""Elements of a page. Text that is not an element is escaped, so that no text can become markup."""

from __future__ import annotations

from html import escape
from typing import Any

from ..console import visible


class Html(str):
    """Text that is HTML already."""


def h(tag: str, *inside: Any, **attributes: Any) -> Html:
    """Return an element; its attributes have underscores for dashes, and those that are None or False are left out."""
    named = (
        f' {name.rstrip("_").replace("_", "-")}="{escape(visible(str(value)))}"'
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    return Html(f"<{tag}{''.join(named)}>{''.join(map(text, inside))}</{tag}>")


def text(value: Any) -> Html:
    """Return a value as HTML."""
    return value if isinstance(value, Html) else Html(escape(visible(str(value))))
