"""Texts of others in shell commands and in Markdown: what reads them gets the same text again."""

from __future__ import annotations

import os
import random
import subprocess

import pytest
from markdown_it import MarkdownIt

from repro.console import markdown
from repro.formats import shell_words


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_shell_reads_every_word_as_it_was(locale: str) -> None:
    unseen = ["\x85", "\xad", "\x9b1", "a\u200bb", "\u2028f", "\ufeff", "\U000e0001"]
    words = [*unseen, "it's \\ \n\x851", "\udcff\x85", "$HOME `c` é", "-_\\x85"]
    quoted = shell_words(words)
    assert quoted.isprintable()
    shell = ["bash", "-c", f"printf '%s\\0' {quoted}"]
    read = subprocess.run(shell, env={**os.environ, "LC_ALL": locale}, stdout=subprocess.PIPE, check=True).stdout
    assert read.split(b"\0")[:-1] == [os.fsencode(word) for word in words]


def test_markdown_shows_every_text_as_it_was() -> None:
    drawn = random.Random(0)
    texts = ["_a_", "__init__", "a_b_c", "_ _", "a __b__ c", "(_x_)", "_a*b*_", "100_000", "_\\_"]
    texts += ["".join(drawn.choices("__*`~ab1 \\(.-é", k=drawn.randint(1, 9))) for _ in range(5_000)]
    for text in texts:
        [paragraph] = MarkdownIt("commonmark").parseInline(f"x {markdown(text)} y")
        assert {token.type for token in paragraph.children or ()} <= {"text", "text_special"}, text
        assert "".join(token.content for token in paragraph.children or ()) == f"x {text} y"


def test_words_with_inner_underscores_stay_readable_in_the_markdown_itself() -> None:
    assert markdown("free_lunch takes max_steps") == "free_lunch takes max_steps"
    assert markdown(markdown("_a_")) == r"\_a\_", "once"
