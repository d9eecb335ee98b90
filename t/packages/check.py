#!/usr/bin/python3
"""The Debian packages in bare Debians: built, installed, used, upgraded,
removed and purged; and the way of a new user, timed.  TAP.

    t/packages/check.py --build DIR
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "demo"), str(ROOT / "t/system"),
                str(Path(__file__).resolve().parent)]

# pylint: disable=wrong-import-position
import tap                                                      # noqa: E402
from agreement import agreement                                 # noqa: E402
from processes import free_port, wait_until                     # noqa: E402
from root import Root, can_be_made                              # noqa: E402
from worker import Worker                                       # noqa: E402

EXAMPLES = Path("usr/share/doc/nginx-kv-router/examples")
LINK = "/etc/nginx/modules-enabled/60-mod-http-kv-router.conf"
OURS = ("*kv-router*", "*kv_router*", "*kv-relay*", "*kv-model-*",
        "kv-simulate")
LATER = "0.1.0+later"           # the version of an upgrade

build = None                    # where to build, set by main()
directory = None                # of this run
packages = {}                   # the packages of a suite: [path]
user = None                     # the root of the new user, in bookworm


def readme_commands(title):
    """The lines of the shell blocks of README's section."""
    text = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)",
                     (ROOT / "README.md").read_text(), re.M | re.S)[1]
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)
    return [line for line in "".join(blocks).splitlines() if line]


def source(root):
    """The committed tree in a root, as git has it."""
    (root.path / "root/nginx-kv-router").mkdir()
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{ROOT}",
                    root.path / "root/nginx-kv-router"], check=True)


def built(root):
    """The packages that were built in a root."""
    return sorted((root.path / "root/nginx-kv-router/build/deb").glob("*.deb"))


def routed(root, name, folder):
    """README's quick start in a folder of the root, with free ports, and its
    last request until it is routed by overlap: a line of nginx's log."""
    lines = readme_commands("Quick start")
    start, stop = (line for line in lines if line.startswith("nginx -c")
                   and "reload" not in line)
    chats = [line for line in lines if line.startswith("curl")]
    assert len(chats) > 1 and "-s stop" in stop, lines
    workers = [Worker(f"{name}-w{number}", directory,
                      "--prefill-us-per-token", "1",
                      "--decode-us-per-token", "100") for number in (1, 2)]
    begun = False
    try:
        for worker in workers:
            worker.wait_ready()
        port = free_port()
        config = root.path / folder.lstrip("/") / "conf/alone.conf"
        text = config.read_text()
        for old, new in (("listen  8080;", f"listen  127.0.0.1:{port};"),
                         ("127.0.0.1:8001", workers[0].address),
                         ("127.0.0.1:8002", workers[1].address)):
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        config.write_text(text)
        log = root.path / "tmp/kv-alone.access.log"
        log.write_text("")
        begun = True
        root.run("sh", "-ec", start, cwd=folder)

        def ask(line):
            return root.run("sh", "-ec", line.replace(
                "127.0.0.1:8080", f"127.0.0.1:{port}"))[1]

        wait_until("the sizes of the caches are known", lambda: all(
            worker["estimates"][0]["source"] == "scraped" for worker in
            json.loads(ask("curl -s http://127.0.0.1:8080/status"))["workers"]))
        for line in chats[:-1]:
            assert "choices" in ask(line), log.read_text()

        def overlap():
            ask(chats[-1])
            lines = [line for line in log.read_text().splitlines()
                     if re.search(r"/chat/.* overlap=[1-9]", line)]
            return lines and lines[-1]
        line = wait_until("a request that is routed by overlap", overlap)
        return line, agreement(line)
    finally:
        if begun:
            pid = root.path / "tmp/kv-alone.pid"
            root.run("sh", "-ec", stop, cwd=folder, check=False)
            wait_until("nginx to end", lambda: not pid.exists())
        for worker in workers:
            worker.stop()


# -------------------------------------------------------------------- tests

def a_user_gets_there():
    """README's commands lead from a bare Debian to a request routed by overlap"""
    global user
    can_be_made()
    user = Root("bookworm", build / "roots", directory / "user")
    user.apt("update")
    source(user)
    begun = time.monotonic()
    for line in readme_commands("Installation"):
        line = line.removeprefix("sudo ")
        if not line.startswith(("git clone", "cd ")):
            user.run("sh", "-ec", f"export DEBIAN_FRONTEND=noninteractive\n"
                     f"alias apt='apt-get -qy'\n{line}",
                     cwd="/root/nginx-kv-router")
    installed = time.monotonic() - begun
    packages["bookworm"] = built(user)
    line, (overlap, cached) = routed(user, "user", "/root/nginx-kv-router")
    print(f"# {installed:.0f} s to install, {time.monotonic() - begun:.0f} s "
          f"to a request that was routed by overlap:\n# {line}\n"
          f"# overlap: {overlap} tokens, cached by the engine: {cached}")
    confidence = re.search("confidence=([A-Z]+)", line)[1]
    print(f"# {confidence}: " + (
        "the next step is a kv-relay beside each engine, and a Redis"
        if confidence == "ESTIMATED" else "nothing is left to do"))


def lintian_finds_no_error():
    """lintian finds no error in the packages"""
    if not packages:
        raise tap.Skip("no packages were built")
    if not shutil.which("lintian"):
        raise tap.Skip("lintian is not installed")
    done = subprocess.run(
        ["lintian", "--fail-on", "error", *packages["bookworm"]],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def later(folder, paths):
    """The same packages with a later version, as an upgrade brings them."""
    folder.mkdir()
    for path in paths:
        tree = folder / "tree"
        subprocess.run(["dpkg-deb", "-R", path, tree], check=True)
        control = tree / "DEBIAN/control"
        text = control.read_text()
        version = re.search("^Version: (.*)$", text, re.M)[1]
        control.write_text(re.sub(
            rf"(^Version: |kv-router \(= ){re.escape(version)}",
            rf"\g<1>{LATER}", text, flags=re.M))
        subprocess.run(["dpkg-deb", "-b", tree, folder / path.name],
                       check=True, capture_output=True)
        shutil.rmtree(tree)


def lives(suite):
    """Installs, uses, upgrades, removes and purges in a root of a suite."""
    if suite not in packages:
        raise tap.Skip(f"no packages were built for {suite}")
    root = Root(suite, build / "roots", directory / f"life-{suite}")
    try:
        (root.path / "root/first/conf").mkdir(parents=True)
        for path in packages[suite]:
            shutil.copy(path, root.path / "root/first")
        root.apt("update")
        root.apt("install", "curl", *(f"./first/{path.name}"
                                      for path in packages[suite]))
        root.run("nginx", "-t")
        assert "kv-relay" in root.run("kv-relay", "--version")[1]
        root.run("kv-router-check", "kv_cost")
        module = root.run("dpkg-query", "-W", "-f", "${Depends}",
                          "libnginx-mod-http-kv-router")[1]
        provided = root.run("dpkg-query", "-W", "-f", "${Provides}",
                            "nginx")[1]
        (abi,) = re.findall(r"nginx-abi-[\w.-]+", module)
        assert abi in provided, (module, provided)
        shutil.copy(root.path / EXAMPLES / "alone.conf",
                    root.path / "root/first/conf")
        routed(root, f"first-{suite}", "/root/first")

        later(root.path / "root/later", packages[suite])
        (root.path / "root/later/conf").mkdir()
        root.apt("install", *(f"./later/{path.name}"
                              for path in packages[suite]))
        version = root.run("dpkg-query", "-W", "-f", "${Version}",
                           "libnginx-mod-http-kv-router")[1]
        assert version == LATER, version
        root.run("nginx", "-t")
        assert (root.path / LINK.lstrip("/")).is_symlink(), LINK
        shutil.copy(root.path / EXAMPLES / "alone.conf",
                    root.path / "root/later/conf")
        routed(root, f"later-{suite}", "/root/later")

        names = [path.name.split("_")[0] for path in packages[suite]]
        root.apt("remove", *names)
        assert not (root.path / LINK.lstrip("/")).is_symlink(), LINK
        root.run("nginx", "-t")
        root.run("dpkg", "--purge", *names)
        assert not root.files(*OURS), root.files(*OURS)
        root.run("nginx", "-t")
    finally:
        root.remove()


def bookworm():
    """installed, used, upgraded, removed and purged in Debian 12"""
    lives("bookworm")


def trixie():
    """built, installed, used, upgraded, removed and purged in Debian 13"""
    root = Root("trixie", build / "roots", directory / "build-trixie")
    try:
        root.apt("update")
        root.apt("install", "git", "make")
        source(root)
        root.run("make", "deb", cwd="/root/nginx-kv-router")
        keep = directory / "trixie"
        keep.mkdir()
        for path in built(root):
            shutil.copy(path, keep)
        packages["trixie"] = sorted(keep.glob("*.deb"))
    finally:
        root.remove()
    lives("trixie")


def main():
    global build, directory
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=ROOT / "build", type=Path)
    build = parser.parse_args().build.resolve() / "deb"
    build.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="test-", dir=build))
    directory.chmod(0o755)
    try:
        return tap.run([a_user_gets_there, lintian_finds_no_error, bookworm,
                        trixie])
    finally:
        if user:
            user.remove()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
