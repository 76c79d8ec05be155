"""Safe reading of the authors' archive: results of plain values out of a tar, a tgz or a folder, of which nothing runs.

The archive holds `artifacts/tango_workspace.tgz`, which holds `cache/NAME-VERSION-HASH/data.dill.gz` for each step of
a Tango workspace, with `cache-metadata.json` beside it once the step has ended. A result is a gzip of three pickles.
"""

from __future__ import annotations

import gzip
import io
import itertools
import os
import pickle
import pickletools
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Self, cast

from ..console import UserError
from ..formats import counted

_WORKSPACE, _SURVEY, _STEPS = "tango_workspace.tgz", "survey.csv", "stepinfo.sqlite"
_SUFFIXES = (".tar", ".tgz", ".gz")
_MOST_FILES = 200_000
_MOST_UNPACKED = 2**32  # bytes of a tar
_MOST_NAME = 2**16  # bytes of a name or of other headers before a file
_MOST_RESULT = 2**10  # bytes of a result, packed and unpacked; one has 50 to 119
_MOST_SURVEY = 2**22
_CHUNK = 2**20
_BEFORE_A_FILE = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)
_ENTRY = re.compile(r"(?:.*/)?cache/(\w{1,64}-\w{1,16}-[1-9A-HJ-NP-Za-km-z]{32})/(data\.dill\.gz|cache-metadata\.json)")
_PLAIN_OPCODES = {
    *("PROTO", "FRAME", "STOP", "MEMOIZE", "BINGET", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1"),
    *("BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE", "EMPTY_DICT", "SETITEM", "SETITEMS"),
}
# In pickles of protocol 4 each string follows its opcode and a byte with its length.
_NAMED = re.compile(
    rb"\x8c\x06commit\x94?\x8c\x28([0-9a-f]{40})"
    rb"|\x8c.(python|torch|transformers|deepspeed|ai2-tango|dill)\x94?\x8c.([0-9]{1,4}(?:\.[0-9a-z+]{1,12}){1,4})"
)
_MOST_MATCH = 128  # bytes


class RefusedError(Exception):
    """The archive is damaged, or holds what a result never holds."""


@dataclass
class Packed:
    """What an archive holds: packed results by the id of their step, and the answers to the authors' survey."""

    results: dict[str, bytes] = field(default_factory=dict)
    survey: bytes | None = None


def is_archive(path: Path) -> bool:
    """Return whether a path is named as the authors' archive is, or is a folder with a Tango workspace in it."""
    if path.is_dir():
        return (path / "cache").is_dir() or (path / _WORKSPACE).is_file()
    return path.is_file() and path.suffix in _SUFFIXES


def read(path: Path) -> Packed:
    """Return what an archive holds. A result of a step that never ended is left out. Raise UserError where the archive
    is damaged or exceeds a limit."""
    found, ended = Packed(), set[str]()
    try:
        for name, size, opened in _files(path):
            if name.rpartition("/")[2] == _SURVEY:
                found.survey = _content(opened, size, _MOST_SURVEY, _SURVEY)
            if not (match := _ENTRY.fullmatch(name)):
                continue
            step, kind = match.groups()
            if kind == "cache-metadata.json":
                ended.add(step)
            elif step in found.results:
                raise RefusedError(f"{step} is there twice")
            else:
                found.results[step] = _content(opened, size, _MOST_RESULT, step)
    except RefusedError as error:
        raise UserError(f"{path}: {error}; get the authors' artifacts.tar again") from error
    except (EOFError, OSError, RecursionError, ValueError, zlib.error, tarfile.TarError) as error:
        read = counted(len(found.results), "result")
        raise UserError(f"{path} is damaged or cut off after {read} ({error}); get it again") from error
    found.results = {step: packed for step, packed in found.results.items() if step in ended}
    return found


def unpickle(packed: bytes) -> Any:
    """Return a result, which is of plain values. Raise RefusedError for anything else, before it is unpickled."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        data = io.BytesIO(unpacker.decompress(packed, _MOST_RESULT))
        if not unpacker.eof:
            raise RefusedError(f"its gzip is cut off, or unpacks to more than {_MOST_RESULT} bytes")
        # The unpickler must not see another opcode: some fill the memory by themselves.
        for opcode, _, _ in itertools.chain.from_iterable(pickletools.genops(data) for _ in range(3)):
            if opcode.name not in _PLAIN_OPCODES:
                raise RefusedError(f"its pickle holds {opcode.name}, which no plain value has")
        data.seek(0)
        unpickler = _PlainUnpickler(data)  # one for all three, which share a memo
        version, iterator, value = (unpickler.load() for _ in range(3))
    except RefusedError:
        raise
    except Exception as error:  # damaged bytes make zlib and pickle raise nearly anything
        raise RefusedError(f"it is damaged ({type(error).__name__})") from error
    if (version, iterator) != ("001", False):
        raise RefusedError("its format is not Tango's DillFormat 001")
    return value


def environment(path: Path) -> list[str]:
    """Return the commit and the versions that stand in an archive's stepinfo.sqlite, by listing its strings."""
    found = set[tuple[bytes, bytes]]()
    for name, _, opened in _files(path):
        if name.rpartition("/")[2] == _STEPS:
            with opened() as file:
                before = b""
                while chunk := file.read(_CHUNK):
                    found |= {
                        (match[2] or b"commit", match[1] or match[3]) for match in _NAMED.finditer(before + chunk)
                    }
                    before = chunk[-_MOST_MATCH:]
    return [f"{name.decode()} {value.decode()}" for name, value in sorted(found)]


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise RefusedError(f"its pickle asks for {module}.{name}")


class _Header(tarfile.TarInfo):
    """A tar's header, of which none may make tarfile hold more than a name in memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if found.type == tarfile.GNUTYPE_SPARSE or (found.type in _BEFORE_A_FILE and found.size > _MOST_NAME):
            raise RefusedError("a header of its tar is sparse or too long")
        return found

    def _proc_gnusparse_10(self, *_: Any) -> None:
        raise RefusedError("a header of its tar is sparse")


def _files(source: Path) -> Iterator[tuple[str, int, Callable[[], IO[bytes]]]]:
    """Yield name, size and opener of each regular file in a folder or a tar; follow no link, write nothing."""
    if source.is_dir():
        inside = (Path(folder, name) for folder, _, names in os.walk(source) for name in names)
        for number, path in enumerate(inside):
            if number == _MOST_FILES:
                raise RefusedError(f"it has more than {_MOST_FILES:,} files")
            if path.is_symlink() or not path.is_file():
                continue
            if path.name == _WORKSPACE:
                with path.open("rb") as file:
                    yield from _in_tar(file, nested=True)
            else:
                yield str(path), path.stat().st_size, partial(_open, path)
    else:
        with source.open("rb") as file:
            yield from _in_tar(file, nested=False)


def _open(path: Path) -> IO[bytes]:
    return path.open("rb")


def _in_tar(file: IO[bytes], nested: bool) -> Iterator[tuple[str, int, Callable[[], IO[bytes]]]]:
    """Yield the files of a tar, gzipped or not, and where it is not `nested` those of the workspace's tar in it."""
    stream: Any = file
    if stream.peek(2)[:2] == b"\x1f\x8b":
        stream = gzip.GzipFile(fileobj=stream)
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as tar:
        for number, member in enumerate(iter(tar.next, None)):
            cast(Any, tar).members = []  # which would hold every header
            if number == _MOST_FILES or member.offset_data + member.size > _MOST_UNPACKED:
                raise RefusedError(f"it has more than {_MOST_FILES:,} files or {_MOST_UNPACKED:,} bytes")
            if member.name.startswith("/") or ".." in member.name.split("/"):
                raise RefusedError(f"{member.name!r} leads out of it")
            if not member.isreg():
                continue
            opened = partial(cast(Callable[[Any], IO[bytes]], tar.extractfile), member)
            if member.name.rpartition("/")[2] == _WORKSPACE and not nested:
                yield from _in_tar(opened(), nested=True)
            else:
                yield member.name, member.size, opened
    for _ in range(_MOST_UNPACKED // _CHUNK):  # to the checksum at the end of a gzip, or a cut goes unnoticed
        if not stream.read(_CHUNK):
            return
    raise RefusedError(f"it unpacks to more than {_MOST_UNPACKED:,} bytes")


def _content(opened: Callable[[], IO[bytes]], size: int, most: int, name: str) -> bytes:
    if size > most:
        raise RefusedError(f"{name} has {size:,} bytes, more than {most:,}")
    with opened() as file:
        return file.read(most)
