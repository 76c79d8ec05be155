"""Files of prices of one's own, as people give them with --prices."""

from __future__ import annotations

from pathlib import Path


def prices(folder: Path, text: str) -> str:
    file = folder / "my.toml"
    file.write_text(text)
    return str(file)


def gpu_table(name: str = "RTX 3090", price: str = "900", currency: str = '"USD"', quoted: str = "2024-09-21") -> str:
    return f'[[gpu]]\nname = "{name}"\nprice = {price}\ncurrency = {currency}\nquoted = {quoted}\nsource = "shop"\n'


def system_table(gpus: int, price: int = 5000, currency: str = "USD", quoted: str = "2026-11-01") -> str:
    return f'[[system]]\ngpus = {gpus}\nprice = {price}\ncurrency = "{currency}"\nquoted = {quoted}\nsource = "shop"\n'


def rental_table(
    terms: str = "on-demand",
    hours: str = "1",
    gpu: str = "A100",
    gpus: int = 8,
    provider: str = "shop",
    price: float = 0.5,
    currency: str = "USD",
) -> str:
    return (
        f'[[rental]]\ngpu = "{gpu}"\ngpus = {gpus}\nprovider = "{provider}"\nterms = "{terms}"\nhours = {hours}\n'
        f'price = {price}\ncurrency = "{currency}"\nquoted = 2026-11-01\nsource = "shop"\n'
    )


def rate_table(from_: str, to: str, rate: float = 1.25, quoted: str = "2026-11-01") -> str:
    return f'[[rate]]\nfrom = "{from_}"\nto = "{to}"\nrate = {rate}\nquoted = {quoted}\nsource = "bank"\n'


def spot_table(checkpoint: str = "2m", restart: str = "10m") -> str:
    return f'[[spot]]\nrestart = "{restart}"\nsource = "tried"\n' + (
        f'checkpoint = "{checkpoint}"\n' if checkpoint else ""
    )


def storage_table(price: float) -> str:
    return f'[[storage]]\nprice = {price}\ncurrency = "USD"\nquoted = 2026-11-01\nsource = "shop"\n'


def catalogue(folder: Path, *rows: str, name: str = "aws.csv", header: str = "") -> str:
    """Return SkyPilot's catalogue of a cloud with these rows."""
    head = header or "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,SpotPrice,Region"
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join([head, *rows]) + "\n", newline="")
    return str(file)
