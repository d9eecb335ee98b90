#!/usr/bin/python3
"""The Debian packages in bare Debians: built, installed, used, upgraded,
removed and purged; and the way of a new user, timed.  TAP.

    t/packages/check.py --build DIR
"""

import argparse
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
from root import Root, can_be_made                              # noqa: E402

EXAMPLES = Path("usr/share/doc/nginx-kv-router/examples")
LINK = "/etc/nginx/modules-enabled/60-mod-http-kv-router.conf"
OURS = ("*kv-router*", "*kv_router*", "*kv-relay*", "*kv-model-*",
        "kv-simulate", "kv-stand-in")
# until the sizes of both caches are known, and both engines can be asked
KNOWN = """until status=$(curl -s http://127.0.0.1:8080/status)
                [ $(grep -o '"scraped"\\|"probe":{' <<< "$status" | wc -l) = 4 ]
          do sleep 0.2; done"""
# until the first chat's answer is in the estimates, 20 ms later as a rule
TOLD = """until curl -s http://127.0.0.1:8080/status | grep -q '"answers":1'
          do sleep 0.2; done"""
LATER = "0.1.0+later"           # the version of an upgrade

build = None                    # where to build, set by main()
directory = None                # of this run
packages = {}                   # the packages of a suite: [path]
user = None                     # the root of the new user, in bookworm


def readme_blocks(title, language):
    """The blocks of README's section that are in a language."""
    text = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)",
                     (ROOT / "README.md").read_text(), re.M | re.S)[1]
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def readme_commands(title):
    """The lines of the shell blocks of README's section."""
    return "".join(readme_blocks(title, "sh")).splitlines()


def source(root):
    """The committed tree in a root, as git has it."""
    (root.path / "root/nginx-kv-router").mkdir()
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{ROOT}",
                    root.path / "root/nginx-kv-router"], check=True)


def built(root):
    """The packages that were built in a root."""
    return sorted((root.path / "root/nginx-kv-router/build/deb").glob("*.deb"))


def routed(root, folder):
    """README's quick start in a folder of the root, word for word, in a network
    of its own: the last line of nginx's log, and what it agrees on."""
    consoles = readme_blocks("Quick start", "console")
    start, chats = (re.findall(r"^\$ (.*)$", console, re.M)
                    for console in consoles)
    (stop,) = (line for line in readme_commands("Quick start")
               if "-s stop" in line)
    log = root.path / "tmp/kv-alone.access.log"
    log.unlink(missing_ok=True)
    # a busy machine needs more than 50 ms for the token ids
    conf = root.path / folder.lstrip("/") / "conf/alone.conf"
    patient = conf.read_text().replace(
        'new("main")', 'new("main", { tokenizer_timeout = 30 })')
    assert "tokenizer_timeout" in patient
    conf.write_text(patient)
    said = root.run(
        "timeout", "120", "unshare", "--net", "--pid", "--fork",
        "--kill-child", "bash", "-c", "\n".join((
            "ip link set lo up", *start, KNOWN, f"\n{TOLD}\n".join(chats),
            "exec 2> /dev/null", stop)), cwd=folder)[1]
    lines = log.read_text()
    assert said == re.sub(r"^\$ .*\n", "", "".join(consoles), flags=re.M), (
        said + lines)
    line = lines.splitlines()[-1]
    return line, agreement(line)


# -------------------------------------------------------------------- tests

def a_user_gets_there():
    """README's commands lead from a bare Debian to a request routed by overlap"""
    global user
    can_be_made()
    user = Root("bookworm", build / "roots", directory / "user")
    user.apt("update")
    user.apt("install", "iproute2")     # of routed()
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
    line, (overlap, cached) = routed(user, "/root/nginx-kv-router")
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


def renamed(folder, paths, to):
    """The same packages with another version, as an upgrade brings them."""
    folder.mkdir()
    for path in paths:
        tree = folder / "tree"
        subprocess.run(["dpkg-deb", "-R", path, tree], check=True)
        control = tree / "DEBIAN/control"
        text = control.read_text()
        version = re.search("^Version: (.*)$", text, re.M)[1]
        control.write_text(re.sub(
            rf"(^Version: |kv-router \(= ){re.escape(version)}",
            rf"\g<1>{to}", text, flags=re.M))
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
        begun = time.monotonic()
        root.apt("update")
        root.apt("install", "curl", "iproute2", *(f"./first/{path.name}"
                                      for path in packages[suite]))
        root.run("nginx", "-t")
        assert "kv-relay" in root.run("kv-relay", "--version")[1]
        root.run("kv-router-check", "kv_cost")
        shutil.copytree(ROOT / "t/vectors/golden/model",
                        root.path / "root/model")
        status, said = root.run("timeout", "10", "kv-stand-in", "--tokenizer",
                                "/root/model", check=False)
        assert status == 124 and "ready on" in said, said
        module = root.run("dpkg-query", "-W", "-f", "${Depends}",
                          "libnginx-mod-http-kv-router")[1]
        provided = root.run("dpkg-query", "-W", "-f", "${Provides}",
                            "nginx")[1]
        (abi,) = re.findall(r"nginx-abi-[\w.-]+", module)
        assert abi in provided, (module, provided)
        shutil.copy(root.path / EXAMPLES / "alone.conf",
                    root.path / "root/first/conf")
        routed(root, "/root/first")
        print(f"# {suite}: {time.monotonic() - begun:.0f} s from a bare Debian, "
              "with the packages at hand, to the second chat by overlap")

        renamed(root.path / "root/later", packages[suite], LATER)
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
        routed(root, "/root/later")

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
