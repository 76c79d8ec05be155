"""Wheels made on the spot: a second environment without a network."""

from __future__ import annotations

import base64
import hashlib
import sysconfig
import zipfile
from pathlib import Path


def wheel(folder: Path, name: str, version: str, files: dict[str, str], requires: tuple[str, ...] = ()) -> Path:
    """A wheel that installs these files."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    content = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in content.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            rows.append(f"{file},sha256={digest},{len(text.encode())}\n")
            archive.writestr(file, text)
        archive.writestr(f"{info}/RECORD", "".join(rows) + f"{info}/RECORD,,\n")
    return path


def linked(folder: Path, name: str, version: str = "1.0", start: str = "") -> Path:
    """A wheel whose environment sees all that this one has; `start` is a line of Python that it runs first."""
    lines = [sysconfig.get_path("purelib"), start]
    return wheel(folder, name, version, {f"{name}.pth": "\n".join(filter(None, lines)) + "\n"})


def lock(path: Path, *wheels: Path) -> Path:
    """A lock of these wheels, with their hashes."""
    lines = []
    for each in wheels:
        name, version = each.name.split("-")[:2]
        digest = hashlib.sha256(each.read_bytes()).hexdigest()
        lines.append(f"{name.replace('_', '-')}=={version} --hash=sha256:{digest}\n")
    path.write_text("".join(lines))
    return path
