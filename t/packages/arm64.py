#!/usr/bin/python3
"""Everything for arm64, cross-built in a bare Debian 12: the packages, the unit
programs that qemu-user can run, and nginx with the module in a Debian for arm64,
which routes a request by overlap.  TAP.

    t/packages/arm64.py --build DIR
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "demo"), str(ROOT / "t/system"),
                str(Path(__file__).resolve().parent)]

# pylint: disable=wrong-import-position
import tap                                                      # noqa: E402
import check                                                    # noqa: E402
from root import Root, can_be_made, mirror                      # noqa: E402

LIBRARIES = """libcurl4-openssl-dev libhiredis-dev libmicrohttpd-dev
    libmpack-dev libpcre2-dev libssl-dev libutf8proc-dev libxxhash-dev
    libyajl-dev libzmq3-dev zlib1g-dev""".split()
QEMU = "usr/bin/qemu-aarch64-static"
AARCH64 = 183                   # of the header of an ELF file
LIMIT = 3600                    # seconds that a unit program may take

# The compiler: nginx's configure runs each "autotest" that it compiles.
COMPILER = r"""#!/bin/bash
aarch64-linux-gnu-gcc "$@" || exit
while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
case $out in
    */autotest)
        mv "$out" "$out.arm64"
        printf '#!/bin/sh\nexec qemu-aarch64 %s "$@"\n' "$out.arm64" >"$out"
        chmod +x "$out" ;;
esac
"""

# nginx of the Debian for arm64, whose paths begin there.
NGINX = r"""#!/bin/bash
exec chroot {root} /{qemu} /usr/sbin/nginx "${{@#{root}}}"
"""

build = None                    # where to build, set by main()
directory = None                # of this run
machine = None                  # the bare Debian, which builds
other = None                    # the Debian for arm64


class Emulated:
    """A Debian for arm64, of which nginx alone is run: its packages are
    unpacked, and their scripts are not run."""

    def __init__(self, path, packages):
        self.path = path
        wanted = {re.split(r"[ |:(]", word.strip())[0]
                  for package in packages for word in subprocess.run(
                      ["dpkg-deb", "-f", package, "Depends"], check=True,
                      capture_output=True, text=True).stdout.split(",")}
        wanted -= {package.name.split("_")[0] for package in packages}
        wanted = ["nginx", *sorted(name for name in wanted
                                   if not name.startswith("nginx-abi"))]
        done = subprocess.run(
            ["debootstrap", "--foreign", "--arch=arm64", "--variant=minbase",
             f"--include={','.join(wanted)}", "bookworm", path, mirror()],
            capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
        for package in (*(path / "var/cache/apt/archives").glob("*.deb"),
                        *packages):
            subprocess.run(["dpkg-deb", "-x", package, path], check=True)
        # as their scripts would do
        (path / "etc/passwd").write_text(
            "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n")
        (path / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
        subprocess.run(["mount", "--bind", "/proc", path / "proc"], check=True)
        subprocess.run(["mount", "--bind", "/dev", path / "dev"], check=True)
        shutil.copy(f"/{QEMU}", path / QEMU)
        self.programs = path / "root/programs"
        self.programs.mkdir(parents=True)
        (self.programs / "kv-stand-in").symlink_to(ROOT / "demo/engine.py")
        nginx = self.programs / "nginx"
        nginx.write_text(NGINX.format(root=path, qemu=QEMU))
        nginx.chmod(0o755)

    def run(self, *command, cwd="/root", check=True):
        """Runs a command of this machine there, with that nginx."""
        done = subprocess.run(
            command, cwd=self.path / cwd.lstrip("/"), check=False, text=True,
            env={"PATH": f"{self.programs}:/usr/sbin:/usr/bin:/sbin:/bin"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)
        assert not check or done.returncode == 0, done.stdout
        return done.returncode, done.stdout

    def remove(self):
        """Ends its life."""
        for name in ("proc", "dev"):
            subprocess.run(["umount", self.path / name], check=False)
        if not any(map(Path.is_mount, (self.path / "proc",
                                       self.path / "dev"))):
            shutil.rmtree(self.path, ignore_errors=True)


def cross(root, where, *settings):
    """Cross-builds the packages of the sources in a bare Debian."""
    root.run("dpkg", "--add-architecture", "arm64")
    root.apt("update")
    root.apt("install", "git", "make", "nginx-dev", "debhelper",
             "crossbuild-essential-arm64", "qemu-user",
             *(f"{name}:arm64" for name in LIBRARIES))
    compiler = root.path / "usr/local/bin/arm64-cc"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    root.run("env", "CC=arm64-cc", "DEB_BUILD_OPTIONS=noautodbgsym", *settings,
             "dpkg-buildpackage", "-aarm64", "-us", "-uc", "-b", "-d",
             cwd=where)


def packages_are_built():
    """the packages are cross-built"""
    global machine
    can_be_made()
    machine = Root("bookworm", build / "roots", directory / "machine")
    check.source(machine)
    cross(machine, "/root/nginx-kv-router")
    found = sorted(path.name for path in built())
    assert [name.split("_")[0] for name in found
            if name.endswith("_arm64.deb")] == [
                "kv-relay", "libnginx-mod-http-kv-router",
                "nginx-kv-router"], found


def built():
    """The packages."""
    return list((machine.path / "root").glob("*.deb"))


def steps(path):
    """Does this program kill processes at each instruction, by processes.h?"""
    return re.search(r"\bkilled_(at|behind)\(", path.read_text())


def units_pass():
    """all unit programs pass that qemu-user can run: it has no ptrace"""
    paths = sorted((ROOT / "t/unit").glob("test_*.c"))
    names = [path.stem for path in paths if not steps(path)]
    print("# left out, as they step through a process:",
          *(path.stem for path in paths if steps(path)), flush=True)
    where = "/root/nginx-kv-router"
    machine.run("make", "CC=arm64-cc", "BUILD=build/arm64",
                *(f"build/arm64/unit/{name}" for name in names), cwd=where)

    def passes(name):
        status, said = machine.run(
            "timeout", LIMIT, "qemu-aarch64", f"build/arm64/unit/{name}",
            cwd=where, check=False)
        bad = [line for line in said.splitlines() if line.startswith("not ok")]
        plan = re.search(r"^1\.\.(\d+)", said, re.M)
        passed = len(re.findall(r"^ok ", said, re.M))
        print(f"# {name}: {passed} passed, status {status}", flush=True)
        return not (status or bad or not plan or passed != int(plan[1]))

    with ThreadPoolExecutor(cpu_count()) as pool:
        wrong = [name for name, well in zip(names, pool.map(passes, names))
                 if not well]
    assert not wrong, wrong


def nginx_routes():
    """nginx routes a request by overlap in a Debian for arm64"""
    global other
    other = Emulated(directory / "arm64", built())
    (other.path / "root/first/conf").mkdir(parents=True)
    shutil.copy(other.path / check.EXAMPLES / "alone.conf",
                other.path / "root/first/conf")
    header = (other.path / "usr/sbin/nginx").read_bytes()[:20]
    assert header[18] == AARCH64, header
    line, (overlap, cached) = check.routed(other, "/root/first")
    print(f"# {line}\n# overlap: {overlap} tokens, cached by the engine: "
          f"{cached}")


def main():
    global build, directory
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=ROOT / "build", type=Path)
    build = parser.parse_args().build.resolve() / "deb"
    build.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="arm64-", dir=build))
    directory.chmod(0o755)
    check.directory = directory
    try:
        return tap.run([packages_are_built, nginx_routes, units_pass])
    finally:
        for root in (machine, other):
            if root:
                root.remove()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
