"""Prints the bill of materials (CycloneDX 1.6, JSON) of a lock: `locks/sbom.py FILE`.

Every distribution with its version, its package URL, the SHA-256 of each file that the lock admits, and what needs
it. The same lock gives the same bytes: no time and no serial number is in them.
"""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Pin:
    """One requirement of a lock. `needed_by` are distributions of the same lock; the project itself is `repro`."""

    name: str
    version: str
    hashes: tuple[str, ...]
    needed_by: tuple[str, ...]


def pins(text: str) -> list[Pin]:
    """The requirements of a lock as uv writes it, in its order."""
    found = []
    for name, version, rest in re.findall(
        r"^([a-z0-9][a-z0-9._-]*)==(\S+)((?:.*\n(?![a-z0-9]))*.*)", text, re.MULTILINE
    ):
        via = rest.partition("# via")[2]
        found.append(
            Pin(
                name,
                version,
                tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", rest)),
                tuple(re.findall(r"^[ #]*([a-z0-9][a-z0-9._-]*)", via, re.MULTILINE)),
            )
        )
    return found


def bill(lock: str, text: str) -> Bom:
    """The bill of materials of the lock called `lock`, whose content is `text`."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    project = Component(
        type=ComponentType.APPLICATION, name="repro", version=version, bom_ref="repro", description=f"as {lock} pins it"
    )
    components = {
        pin.name: Component(
            type=ComponentType.LIBRARY,
            name=pin.name,
            version=pin.version,
            bom_ref=f"{pin.name}=={pin.version}",
            purl=PackageURL("pypi", None, pin.name, pin.version),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in pin.hashes],
        )
        for pin in pins(text)
    }
    bom = Bom(components=components.values())
    bom.metadata.component = project
    bom.metadata.timestamp = None  # type: ignore[assignment]  # left out, as is the next
    bom.serial_number = None  # type: ignore[assignment]
    for pin in pins(text):
        for parent in pin.needed_by:
            bom.register_dependency(components.get(parent, project), [components[pin.name]])
    return bom


def main() -> None:
    lock = Path(sys.argv[1])
    bom = bill(lock.name, lock.read_text())
    print(make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1))


if __name__ == "__main__":
    main()
