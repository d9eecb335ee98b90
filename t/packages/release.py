#!/usr/bin/python3
"""What a release has, made of what is committed: the sources, the packages of
Debian 12 and 13 for amd64 and arm64, both images, the chart, the notes and the
checksums.

    t/packages/release.py --build DIR [--part NAME]... [--again] VERSION

--again makes all a second time, in other folders, and compares.
"""

import argparse
import filecmp
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "demo"), str(ROOT / "t/system"),
                str(Path(__file__).resolve().parent)]

# pylint: disable=wrong-import-position
import arm64                                                    # noqa: E402
import chart                                                    # noqa: E402
import check                                                    # noqa: E402
import deploy                                                   # noqa: E402
from root import Root                                           # noqa: E402
from tap import Skip                                            # noqa: E402

NAME = "nginx-kv-router"
VERSIONS = [                    # where the version is written
    ("debian/changelog", r"^\S+ \((\S+)\)"),
    ("deploy/chart/Chart.yaml", r"^version: (\S+)"),
    ("deploy/chart/Chart.yaml", r"^appVersion: (\S+)"),
    ("deploy/chart/values.yaml", r"^image: \S+?:(\S+)"),
    ("deploy/chart/examples/relay.yaml", r"image: kv-relay:(\S+)"),
    ("src/kvr.h", r'KVR_VERSION +"(.*?)"'),
    ("docs/openapi.json", r'"version": "(.*?)"'),
    ("CHANGES", r"^Changes with \S+ (\S+)")]
SUITES = {"bookworm": "debian-12", "trixie": "debian-13"}
UPDATES = """echo deb http://deb.debian.org/debian-security bookworm-security \
main >> /etc/apt/sources.list; apt-get update; apt-get -y upgrade"""
PLAIN = ("--owner=0", "--group=0", "--mode=u=rwX,go=rX")
BUILDAH = ("buildah", "--storage-driver=vfs")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NGINX = """#!/bin/bash
exec {run} nginx "${{@#{root}}}"
"""

args = None                     # of the command line
out = None                      # the folder of the release
directory = None                # of this run
epoch = None                    # the commit's time


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], check=True, text=True,
                          capture_output=True).stdout.strip()


def agree():
    """Refuses a version that a file contradicts, and what is not committed."""
    for name, pattern in (
            *VERSIONS, (f"docs/release-{args.version}.md", r"^# \S+ (\S+)")):
        path = ROOT / name
        found = path.exists() and re.search(pattern, path.read_text(), re.M)
        said = found[1] if found else "nothing"
        if said != args.version:
            sys.exit(f'release: VERSION is {args.version}, but {name} says '
                     f'{said}: change the one that is wrong')
    changed = git("diff", "--name-only", "HEAD").split()
    if changed:
        sys.exit("release: a release has what is committed: commit or undo "
                 f"the changes of {', '.join(changed)}")


def packed(folder, path, *words, what="."):
    """A tar archive of a folder, the same whenever and wherever it is made."""
    subprocess.run(
        ["tar", "--create", f"--file={path}", "--sort=name", "--format=gnu",
         f"--mtime=@{epoch}", "--numeric-owner", *words, "-C", folder, what],
        check=True)


def zipped(path, target):
    """Compressed without a time and a name."""
    with open(target, "wb") as file:
        subprocess.run(["gzip", "-9nc", path], stdout=file, check=True)


def the_source():
    """the sources and the notes"""
    plain = directory / "source.tar"
    git("-c", "tar.umask=0022", "archive", f"--output={plain}",
        f"--prefix={NAME}-{args.version}/", "HEAD")
    zipped(plain, out / f"{NAME}-{args.version}.tar.gz")
    shutil.copy(ROOT / f"docs/release-{args.version}.md", out / "NOTES.md")


def packages(suite, arch):
    """The packages of a suite, of the sources of the release."""
    root = Root(suite, args.build / "deb/roots", directory / f"{suite}-{arch}")
    try:
        parent = Path("/root/another/folder" if args.again else "/root")
        inside = root.path / str(parent).lstrip("/")
        inside.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-xf", f"{out / NAME}-{args.version}.tar.gz",
                        "-C", inside], check=True)
        where = f"{parent / NAME}-{args.version}"
        settings = [f"SOURCE_DATE_EPOCH={epoch}",
                    "DEB_BUILD_OPTIONS=noautodbgsym",
                    f"TZ={'Asia/Tokyo' if args.again else 'UTC'}"]
        if arch == "arm64":
            arm64.cross(root, where, *settings)
        else:
            root.apt("update")
            root.apt("install", "make")
            root.run("util/deps", "deb", cwd=where)
            root.run("env", *settings, "dpkg-buildpackage", "-us", "-uc", "-b",
                     cwd=where)
        folder = out / SUITES[suite]
        folder.mkdir(exist_ok=True)
        made = [Path(shutil.copy(path, folder)) for path in inside.glob("*.deb")
                if arch == "amd64" or path.stem.endswith("_arm64")]
        assert made, f"{suite}, {arch}: no packages"
    finally:
        root.remove()
    subprocess.run(["lintian", "--fail-on", "error,warning", *made], check=True)


def the_chart():
    """the chart"""
    chart.tools = args.build / "deploy"
    chart.tools.mkdir(exist_ok=True)
    chart.fetch_helm()
    subprocess.run([chart.tools / "helm", "package", chart.CHART],
                   cwd=directory, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["tar", "-xmf", f"{NAME}-{args.version}.tgz"],
                   cwd=directory, check=True)
    packed(directory, directory / "chart.tar", *PLAIN, what=NAME)
    zipped(directory / "chart.tar", out / f"{NAME}-chart-{args.version}.tgz")


def buildah(*words):
    """buildah, with what it stores in the folder of this run."""
    return subprocess.run(
        [*BUILDAH, "--root", directory / "images", "--runroot",
         directory / "running", *words], cwd=directory, check=True,
        text=True, stdout=subprocess.PIPE).stdout.strip()


def image(name, tag):
    """The image that a Containerfile describes, of the release's packages."""
    path = deploy.DEPLOY / f"Containerfile.{name}"
    built = directory / "built"
    shutil.copytree(out / "debian-12", built / "source/build/deb",
                    ignore=shutil.ignore_patterns("*_arm64.deb"),
                    dirs_exist_ok=True)
    lines = deploy.both(path)[1]
    root = deploy.stage(path, [("RUN", UPDATES), *(
        one for one in lines if one[0] in ("COPY", "RUN"))],
        SimpleNamespace(path=built))
    root.clean(epoch)
    context = directory / f"context-{name}"
    context.mkdir()
    packed(root.path, context / "root.tar", "--one-file-system")
    (context / "Containerfile").write_text("\n".join(
        ["FROM scratch", "ADD root.tar /", f"ENV PATH={PATH}",
         *(" ".join(one) for one in lines if one[0] not in ("COPY", "RUN")),
         ""]))
    buildah("build", "--isolation=chroot", f"--timestamp={epoch}", "-t", tag,
            "-f", context / "Containerfile", context)
    buildah("push", "-q", tag, f"oci:{name}:{tag}")
    oci = out / f"{tag.replace(':', '-')}-amd64.oci.tar"
    packed(directory / name, oci, *PLAIN)
    return buildah("from", f"oci:{name}:{tag}")


def the_images():
    """both images for amd64; the router's one routes a request"""
    deploy.build, deploy.directory = args.build / "deb", directory
    relay = image("relay", f"kv-relay:{args.version}")
    assert args.version in buildah("run", "--isolation=chroot", relay,
                                   "kv-relay", "--version")
    router = image("router", f"{NAME}:{args.version}")
    path, programs = Path(buildah("mount", router)), directory / "programs"
    programs.mkdir()
    (programs / "kv-stand-in").symlink_to(ROOT / "demo/engine.py")
    (programs / "nginx").write_text(NGINX.format(
        run=f"{' '.join(BUILDAH)} --root {directory / 'images'} --runroot "
        f"{directory / 'running'} run --isolation=chroot {router} --",
        root=path))
    (programs / "nginx").chmod(0o755)
    (path / "root/first/conf").mkdir(parents=True)
    shutil.copy(path / check.EXAMPLES / "alone.conf", path / "root/first/conf")
    root = SimpleNamespace(path=path, programs=programs)
    root.run = lambda *words, **more: arm64.Emulated.run(root, *words, **more)
    print("#", check.routed(root, "/root/first")[0], flush=True)


PARTS = {"source": the_source,
         "bookworm": partial(packages, "bookworm", "amd64"),
         "trixie": partial(packages, "trixie", "amd64"),
         "chart": the_chart, "images": the_images,
         "bookworm-arm64": partial(packages, "bookworm", "arm64"),
         "trixie-arm64": partial(packages, "trixie", "arm64")}


def files(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*")
                  if path.is_file() and path.name != "SHA256SUMS")


def sums():
    """The checksums, and the list of what was made."""
    lines = [(hashlib.sha256((out / name).read_bytes()).hexdigest(), name)
             for name in files(out)]
    (out / "SHA256SUMS").write_text(
        "".join(f"{digest}  {name}\n" for digest, name in lines))
    print(f"release {args.version} is in {out}:")
    for digest, name in lines:
        print(f"  {digest[:12]} {(out / name).stat().st_size:>10}  {name}")


def why(*paths):
    """What two files that differ have that differs."""
    if not all(path.exists() for path in paths):
        return "only one build has it"
    if not paths[0].name.endswith((".deb", ".tar", ".tar.gz", ".tgz")):
        return "its text"
    trees = [tempfile.mkdtemp(dir=directory) for path in paths]
    for path, tree in zip(paths, trees):
        subprocess.run(["dpkg-deb", "-R", path, tree] if path.suffix == ".deb"
                       else ["tar", "-xf", path, "-C", tree], check=True)
    said = subprocess.run(["diff", "-rq", "--no-dereference", *trees],
                          text=True, capture_output=True, check=False).stdout
    return said.replace(str(directory), "").strip() or "times, modes or order"


def compare(first, second):
    """Says which files of two builds differ: is there one?"""
    names = files(second) if args.part else \
        sorted({*files(first), *files(second)})
    bad = [name for name in names if not (first / name).exists()
           or not (second / name).exists()
           or not filecmp.cmp(first / name, second / name, False)]
    for name in bad:
        print(f"differs: {name}: {why(first / name, second / name)}")
    print(f"{len(names) - len(bad)} of {len(names)} files are the same twice")
    return bool(bad)


def make(folder):
    """Makes the parts that were asked for, in a folder."""
    global out, directory
    out = args.build / folder
    if not args.part:
        shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="release-", dir=args.build))
    directory.chmod(0o755)
    for part in dict.fromkeys(["source", *args.part]) if args.part else PARTS:
        begun = time.monotonic()
        print(f"release: {part} ...", flush=True)
        PARTS[part]()
        print(f"release: {part}: {time.monotonic() - begun:.0f} s", flush=True)
    sums()


def main():
    """The program."""
    global args, epoch
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=ROOT / "build", type=Path)
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("version")
    args = parser.parse_args()
    args.build = args.build.resolve()
    agree()
    epoch = int(git("log", "-1", "--format=%ct"))
    try:
        make("release-again" if args.again else "release")
        return args.again and compare(args.build / "release", out)
    except Skip as skip:
        sys.exit(f"release: {skip}")
    finally:
        for root in deploy.images:
            root.remove()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
