#!/usr/bin/python3
"""make install puts everything where packages look, and uninstall takes it
away again; TAP."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "demo"))

import tap                                                  # noqa: E402

TIMEOUT = 600                   # seconds that a program may take

BUILD = Path(os.environ.get("KVR_BUILD", ROOT / "build")).resolve()

EXPECTED = (
    "usr/lib/nginx/modules/ngx_http_kv_router_module.so",
    "usr/share/nginx/modules-available/mod-http-kv-router.conf",
    "usr/share/lua/5.1/resty/kv_router.lua",
    "usr/share/lua/5.1/resty/kv_router/policy/kv_cost.lua",
    "usr/share/doc/nginx-kv-router/examples/nginx.conf",
    "usr/share/doc/nginx-kv-router/examples/policy/tiers.lua",
    "usr/bin/kv-relay",
    "usr/bin/kv-router-check",
    "usr/bin/kv-model-check",
    "usr/bin/kv-model-dump",
    "usr/lib/nginx-kv-router/libkvr.so",
    "usr/bin/kv-simulate",
    "usr/bin/kv-stand-in",
    "usr/share/kv-stand-in/template.py",
    "usr/lib/nginx-kv-router/libkvr_simulate.so",
)

at = None                                   # the DESTDIR, set by main()


def make(target):
    """Runs it, with a DESTDIR whose name has a blank."""
    subprocess.run(["make", "-s", "-C", ROOT, target, f"BUILD={BUILD}",
                    f"DESTDIR={at}"], check=True, timeout=TIMEOUT, env={
                        name: value for name, value in os.environ.items()
                        if not name.startswith(("MAKE", "MFLAGS"))},
                   stdout=subprocess.DEVNULL)


def files():
    """Those that are below the DESTDIR."""
    return sorted(str(path.relative_to(at)) for path in at.rglob("*")
                  if path.is_file())


def all_is_there():
    """make install: the module, its load file, Lua, samples, and programs"""
    make("install")
    missing = [name for name in EXPECTED if name not in files()]
    assert not missing, (missing, files())


def pictures_are_there():
    """the pictures of the pages that are installed are installed, too"""
    pages = list((at / "usr/share/doc/nginx-kv-router").rglob("*.md"))
    names = [page.parent / name for page in pages for name in re.findall(
        r"!\[[^\]]*\]\(([^)#]+)\)", page.read_text())]
    assert len(names) >= 3, names
    assert all(name.is_file() for name in names), names


def the_unit_is_there():
    """and a systemd unit that starts the relay that was installed"""
    units = [name for name in files() if name.endswith("kv-relay@.service")]
    assert len(units) == 1, files()
    text = (at / units[0]).read_text()
    assert "/usr/bin/kv-relay" in text
    said = dict(re.findall(r"^(\w+)=(.*)$", text, re.M))
    program = at / said["ExecStart"].split()[0].lstrip("/")
    assert os.access(program, os.X_OK), said
    assert (at / said["Documentation"].partition("file:///")[2]).is_file()
    assert said["Environment"] == "KV_RELAY_WORKER=%i"
    assert said["EnvironmentFile"] == "/etc/kv-relay/%i.env"
    readme = (at / "usr/share/doc/nginx-kv-router/relay/README.md").read_text()
    assert "copy `kv-relay.env` to `/etc/kv-relay/w1.env`" in readme


def the_sample_starts_it():
    """with the environment of the sample that is installed beside it"""
    sample = at / "usr/share/doc/nginx-kv-router/examples/kv-relay.env"
    settings = dict(re.findall(r"^(\w+)=(.*)$", sample.read_text(), re.M))
    assert "KV_RELAY_EVENTS" in settings, settings
    names = {"KV_RELAY_" + name.upper().replace("-", "_")
             for name in re.findall(r"^  --(\S+)", subprocess.run(
                 [at / "usr/bin/kv-relay", "--help"], check=True, timeout=TIMEOUT,
                 capture_output=True, text=True).stdout, re.M)}
    said = set(re.findall(r"^#?(KV_\w+)=", sample.read_text(), re.M))
    assert said <= names, said - names
    settings |= {"KV_RELAY_WORKER": "w1", "KV_RELAY_LISTEN": "127.0.0.1:0",
                 "KV_RELAY_REDIS": "redis://127.0.0.1:1"}
    with subprocess.Popen([at / "usr/bin/kv-relay"], env=settings,
                          stderr=subprocess.PIPE, text=True) as relay:
        line = relay.stderr.readline()
        relay.terminate()
        assert 'worker=w1 msg="started"' in line, line
        assert relay.wait(30) == 0


def the_relay_runs():
    """the relay that was installed tells what it can do"""
    text = subprocess.run([at / "usr/bin/kv-relay", "--help"], check=True,
                          timeout=TIMEOUT, capture_output=True, text=True).stdout
    assert "--events" in text, text


def the_check_runs():
    """kv-router-check that was installed tries a policy that was installed"""
    command = at / "usr/bin/kv-router-check"
    text = subprocess.run([command, "--help"], check=True, timeout=30,
                          capture_output=True, text=True).stdout
    assert "Usage: kv-router-check" in text, text
    text = command.read_text()
    assert text.count("lua_dir='/usr/share/") == 1, text
    run = subprocess.run(
        ["/bin/sh", "-s", "kv_cost"], check=True, timeout=60, text=True,
        input=text.replace("lua_dir='", f"lua_dir='{at}"), cwd="/",
        capture_output=True)
    assert re.search(r"\d{3} contexts, kinds of faults: 0", run.stdout), run


def the_relay_needs_little():
    """it needs libzmq, libcurl and libmicrohttpd where it runs, and of the
    others only what can't be linked into it"""
    may = {"libzmq", "libcurl", "libmicrohttpd", "libssl", "libcrypto",
           "libc", "libm", "ld-linux-x86-64", "ld-linux-aarch64"}
    static = (BUILD / "relay-static").read_text()
    may |= {name for name in ("libhiredis", "libmpack", "libyajl")
            if f"-l{name[3:]}\\>" not in static}
    needs = {line.split()[1].partition(".so")[0] for line in subprocess.run(
        ["objdump", "-p", at / "usr/bin/kv-relay"], check=True, timeout=TIMEOUT,
        capture_output=True, text=True).stdout.splitlines()
             if "NEEDED" in line}
    assert "libzmq" in needs and needs <= may, (needs, static)


def nothing_is_left():
    """make uninstall: nothing of it is left"""
    make("uninstall")
    assert files() == [], files()


def main():
    """Runs all of it."""
    global at
    with tempfile.TemporaryDirectory(prefix="kv-router install-") as path:
        at = Path(path)
        return tap.run([all_is_there, pictures_are_there, the_unit_is_there,
                        the_sample_starts_it, the_relay_runs, the_check_runs,
                        the_relay_needs_little, nothing_is_left])


if __name__ == "__main__":
    sys.exit(main())
