"""Wheels made on the spot: environments to install without a network."""

from __future__ import annotations

import base64
import hashlib
import sysconfig
import zipfile
from pathlib import Path


def wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> Path:
    """Lays a wheel that installs these files into a folder."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},sha256={_digest(text)},{len(text.encode())}\n" for file, text in files.items())
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            entry = zipfile.ZipInfo(file)
            entry.external_attr = (0o100755 if "/scripts/" in file else 0o100644) << 16
            archive.writestr(entry, text)
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def linked(folder: Path, name: str, start: str = "", **modules: str) -> Path:
    """A wheel whose environment has all that this one has, as links that its first start lays into its site-packages,
    and these modules; `start` is a line of Python that it runs first."""
    files = {f"{module}.py": text for module, text in modules.items()}
    link = (
        f"here, there = sys._getframe(2).f_locals['sitedir'], {sysconfig.get_path('purelib')!r}\n"
        "for each in os.listdir(there):\n"
        "    if not os.path.lexists(os.path.join(here, each)):\n"
        "        os.symlink(os.path.join(there, each), os.path.join(here, each))\n"
    )
    return wheel(folder, name, "1.0", files | {f"{name}.pth": f"import os, sys; exec({link!r})\n{start}\n"})


def pin(wheel: Path) -> str:
    """Its line for a lock."""
    name, version = wheel.name.removesuffix("-py3-none-any.whl").rsplit("-", 1)
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
