"""A small Debian in a folder, made by debootstrap: a bare machine."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from processes import Process
from tap import Skip

APT = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y",
       "-o", "Dpkg::Use-Pty=0", "--no-install-recommends")
LIMIT = 1800                    # seconds that a command may take
# files that differ from build to build, or are of a Root: clean() removes them
LEFT = """usr/sbin/policy-rc.d etc/dpkg/dpkg.cfg.d/quick var/log/dpkg.log
    var/log/alternatives.log var/log/bootstrap.log var/log/apt/*
    var/lib/dpkg/*-old var/lib/apt/lists/* var/cache/apt/*.bin
    var/cache/apt/archives/*.deb var/cache/ldconfig/aux-cache
    var/cache/debconf/*-old etc/*-""".split()
APT_CONF = ("01autoremove", "70debconf")        # those of a bare Debian


def mirror():
    """The archive that this machine's apt has for its own suite."""
    lines = subprocess.run(
        ["apt-get", "indextargets", "--format",
         "$(CREATED_BY) $(SUITE) $(REPO_URI)"],
        capture_output=True, text=True, check=True).stdout.splitlines()
    found = [line.split()[2] for line in lines
             if line.startswith("Packages ") and "-" not in line.split()[1]]
    if not found:
        raise Skip("apt has no archive of packages here")
    return found[0]


def can_be_made():
    """Skips the test where no such root can be made."""
    if os.geteuid() != 0:
        raise Skip("a root of Debian is made as root only")
    if not shutil.which("debootstrap"):
        raise Skip("debootstrap is not installed")


class Root:
    """One such root; `cache` keeps the bare one of the suite."""

    def __init__(self, suite, cache, folder):
        can_be_made()
        self.path = Path(folder)
        bare = Path(cache) / f"{suite}.tar"
        if not bare.exists():
            self._bootstrap(suite, bare)
        self.path.mkdir(parents=True)
        subprocess.run(["tar", "-xf", bare, "-C", self.path], check=True)
        if subprocess.run(["mount", "--bind", "/proc", self.path / "proc"],
                          capture_output=True, check=False).returncode != 0:
            shutil.rmtree(self.path)
            raise Skip("nothing can be mounted here")
        (self.path / "etc/dpkg/dpkg.cfg.d/quick").write_text(
            "force-unsafe-io\n")        # the root need not survive a crash
        policy = self.path / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n")      # no service starts
        policy.chmod(0o755)
        shutil.copy("/etc/resolv.conf", self.path / "etc/resolv.conf")

    def _bootstrap(self, suite, bare):
        """Makes the bare root, with this machine's settings of apt."""
        made = bare.with_suffix(".new")
        shutil.rmtree(made, ignore_errors=True)
        bare.parent.mkdir(parents=True, exist_ok=True)
        print(f"# debootstrap {suite}", flush=True)
        done = subprocess.run(
            ["debootstrap", "--variant=minbase", suite, made, mirror()],
            capture_output=True, text=True, check=False)
        if done.returncode != 0:
            shutil.rmtree(made, ignore_errors=True)
            raise Skip(f"debootstrap can't make {suite} here: "
                       + done.stdout.strip().splitlines()[-1])
        for name in Path("/etc/apt/apt.conf.d").iterdir():
            shutil.copy(name, made / "etc/apt/apt.conf.d")
        subprocess.run(["tar", "-cf", bare, "-C", made, "."], check=True)
        shutil.rmtree(made)

    def run(self, *command, cwd="/root", check=True):
        """Runs a command in the root: (status, what it printed)."""
        done = subprocess.run(
            ["chroot", self.path, "env", "-u", "MAKEFLAGS", "-u", "MAKELEVEL",
             "-C", cwd, *map(str, command)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False)
        assert not check or done.returncode == 0, \
            f"{' '.join(map(str, command))}: status {done.returncode}\n" \
            + "\n".join(done.stdout.splitlines()[-30:])
        return done.returncode, done.stdout

    def apt(self, *words):
        """apt-get, without questions and without services."""
        return self.run(*APT, *words)[1]

    def start(self, name, *command):
        """A program of the root that stays, as a child of this one."""
        return Process(name, ["chroot", str(self.path), *command],
                       self.path / "root")

    def files(self, *patterns):
        """Paths in the root, but those of packages' own records."""
        found = []
        for pattern in patterns:
            found += self.run("find", "/", "-xdev", "-name", pattern,
                              "-not", "-path", "/proc/*", "-not", "-path",
                              "/root/*")[1].split()
        return sorted(path for path in found
                      if not path.startswith(("/var/lib/dpkg", "/var/cache",
                                              "/var/lib/apt")))

    def clean(self, epoch):
        """Leaves only what its packages brought, as at a time: for an image."""
        for pattern in LEFT:
            for path in self.path.glob(pattern):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        for path in (self.path / "etc/apt/apt.conf.d").iterdir():
            if path.name not in APT_CONF:
                path.unlink()
        (self.path / "etc/resolv.conf").write_text("")
        shadow = self.path / "etc/shadow"       # has the day of each account
        shadow.write_text(re.sub(r"^(.*?:.*?:)\d+", rf"\g<1>{epoch // 86400}",
                                 shadow.read_text(), flags=re.M))

    def remove(self):
        """Ends its life."""
        subprocess.run(["umount", self.path / "proc"], check=False)
        if not os.path.ismount(self.path / "proc"):
            shutil.rmtree(self.path, ignore_errors=True)
