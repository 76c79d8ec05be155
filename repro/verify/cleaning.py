"""Taking names of people and machines out of the files of a results folder, before they are shared."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import files
from ..machine.environment import Environment

MADE_ANEW = ("report.md", "report.html", "certificate.json", "verdicts.json", "benchmark.json", "README.md")
_COMMON = {"root", "user", "ubuntu", "admin", "localhost"}  # accounts that name nobody
_LEAST = 4  # letters of a name that is replaced wherever it stands: shorter ones are parts of other words
_HOME = re.compile(r"(?P<home>(?:/home/|/Users/|\\\\?Users\\\\?)(?P<name>[^/\\\s\"'<>:,;]+)|(?<![\w.~])/root(?=/|\b))")
_OF_NCCL = re.compile(r"^([\w.-]+):\d+:\d+ \[\d+\] NCCL", re.MULTILINE)  # a line of its log begins with its host
_UUID = re.compile(r"\b(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_SERIAL = re.compile(r"(?<=serial)((?: ?_?number)?[\"']?\s*[:=]\s*[\"']?)([\w-]{6,})", re.IGNORECASE)
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}\b")
_ADDRESS = re.compile(
    r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)|[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}(?![\w:]))", re.IGNORECASE
)
_MAC = re.compile(r"(?<![\w:])(?:[0-9a-f]{2}:){5}[0-9a-f]{2}(?![\w:])", re.IGNORECASE)
# What no rule takes out, and what a person should look at.
_DOUBTFUL = {
    "a path of the machine": re.compile(
        r"(?<![\w.~/:<-])/(?!usr|opt|proc|sys|dev|etc|lib|bin|results)\w[\w.-]*/[\w./+-]*"
    ),
    "an address on the web": re.compile(
        r"https?://(?!docs\.pytorch\.org|pytorch\.org|github\.com/pytorch)[^\s\"'<>)]+"
    ),
    "what may be a secret": re.compile(r"\b(?:hf_|ghp_|sk-|AKIA)\w{8,}"),
}


@dataclass(frozen=True)
class Change:
    """What is replaced in a file, and how often."""

    file: str
    found: str
    becomes: str
    times: int


@dataclass(frozen=True)
class Cleaner:
    """Replaces names, each by what it maps to; `kept` are versions that look like addresses."""

    names: dict[str, str]
    kept: frozenset[str]

    def clean(self, text: str, note: Callable[[str, str], None] = lambda found, becomes: None) -> str:
        """Return a text without names, and `note` what is replaced by what."""

        def by(becomes: str) -> Callable[[re.Match[str]], str]:
            def replaced(match: re.Match[str]) -> str:
                note(match[0], becomes)
                return becomes

            return replaced

        def address(match: re.Match[str]) -> str:
            return by("ADDRESS")(match) if match[0] not in self.kept and _is_address(match[0]) else match[0]

        def serial(match: re.Match[str]) -> str:
            becomes = "0" if match[2].isdecimal() and match[1][-1] not in "\"'" else "SERIAL"  # JSON stays JSON
            note(match[2], becomes)
            return f"{match[1]}{becomes}"

        text = _UUID.sub(by("UUID"), text)
        text = _SERIAL.sub(serial, text)
        text = _MAIL.sub(by("MAIL"), text)
        text = _MAC.sub(by("ADDRESS"), text)
        text = _ADDRESS.sub(address, text)
        text = _HOME.sub(by("~"), text)
        for name, becomes in sorted(self.names.items(), key=lambda item: -len(item[0])):
            text = _pattern(name).sub(by(becomes), text)
        return text


@dataclass(frozen=True)
class Cleaned:
    """The files of a folder, by path, without names, and the `cleaner` that took them out; what was replaced, what a
    person should look at, and files that were left out, with the reason."""

    cleaner: Cleaner
    texts: dict[str, str]
    changes: list[Change]
    doubtful: list[tuple[str, str, str]]
    left_out: list[tuple[str, str]]


def _pattern(name: str) -> re.Pattern[str]:
    """Return the pattern of a name: wherever it stands as a word; one that is common or short only as a folder's name
    or before an @."""
    word = re.escape(name)
    if name.lower() in _COMMON or len(name) < _LEAST:
        return re.compile(rf"(?<=/){word}(?![\w.-])|(?<!\w){word}(?=@)", re.IGNORECASE)
    return re.compile(rf"(?<![A-Za-z0-9]){word}(?![A-Za-z0-9])", re.IGNORECASE)


def _is_address(text: str) -> bool:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (found.is_loopback or found.is_unspecified)


def cleaned(folder: Path, words: Sequence[str], environment: Environment) -> Cleaned:
    """Return the files of a folder without the names of this user and host, of its files' owners and of every home
    folder in them, and without these `words`. Files that are no text, and links, are left out; what is made anew is
    not read. Versions of the `environment` that look like addresses stay."""
    texts, left_out = dict[str, str](), list[tuple[str, str]]()
    owners = set[str]()
    for path in sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()):
        name = path.relative_to(folder).as_posix()
        if name in MADE_ANEW:
            continue
        if path.is_symlink() or not path.is_file():
            left_out.append((name, "a link, or no file"))
            continue
        with contextlib.suppress(KeyError, NotImplementedError):  # an account that the system does not know; Windows
            owners.add(path.owner())
        try:
            texts[name] = files.read(path).decode()
        except (UnicodeDecodeError, OSError):
            left_out.append((name, "no text"))
    versions = {*(environment.packages or {}).values()}
    versions |= {str(version) for each in environment.lock.differences.values() for version in each.values()}
    cleaner = Cleaner(_names(words, owners, texts.values()), frozenset(versions))
    found, changes = dict[str, str](), dict[tuple[str, str, str], int]()
    for name, text in texts.items():

        def note(word: str, becomes: str, name: str = name) -> None:
            changes[cleaner.clean(name), word, becomes] = changes.get((cleaner.clean(name), word, becomes), 0) + 1

        found[cleaner.clean(name, note)] = cleaner.clean(text, note)
    doubtful = [
        (name, what, match)
        for name, text in found.items()
        for what, pattern in _DOUBTFUL.items()
        for match in dict.fromkeys(each[0] for each in pattern.finditer(text))
    ]
    return Cleaned(cleaner, found, [Change(*key, times) for key, times in changes.items()], doubtful, left_out)


def _names(words: Sequence[str], owners: Iterable[str], texts: Iterable[str]) -> dict[str, str]:
    """Return each name with what takes its place."""
    users, hosts = {*owners, Path.home().name}, {socket.gethostname()}
    users |= {os.environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER", "SLURM_JOB_USER")}
    hosts |= {os.environ.get(name, "") for name in ("HOSTNAME", "SLURMD_NODENAME", "SLURM_SUBMIT_HOST")}
    for text in texts:
        users |= {match["name"] for match in _HOME.finditer(text) if match["name"]}
        hosts |= {*_OF_NCCL.findall(text)}
    hosts |= {host.partition(".")[0] for host in hosts}
    named = dict.fromkeys(hosts, "HOST") | dict.fromkeys(users, "USER") | dict.fromkeys(words, "NAME")
    return {name: becomes for name, becomes in named.items() if name.strip("./~")}
