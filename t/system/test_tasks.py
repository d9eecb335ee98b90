#!/usr/bin/python3
"""The pages of docs/tasks do what they say when pasted; TAP.

nginx and the relays run as a page has them.  Only ports, addresses and folders
are replaced.  An engine's command starts a stand-in (demo/engine.py), which has
the ports, endpoints, block size, names and adapters of that command.  Then the
commands of "See that it works" must print what the page prints.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import test_docs
import test_fences
from certificates import Authority
from processes import Process, WAIT_SECONDS, free_port, wait_until
from test_docs import BUILD, MODULE, MODULES, NGINX, ROOT, TEMP_PATHS
import tap

TASKS = ROOT / "docs/tasks"
WORDS = 450                     # of a page, but for its blocks
ENGINES = {"vllm": "vllm", "sglang.launch_server": "sglang",
           "trtllm-serve": "vllm"}      # program -> engine.py's --engine
OURS = {"kv-relay": BUILD / "kv-relay", "kv-stand-in": ROOT / "demo/engine.py"}
# What a busy machine does: see test_docs.py's end().
# The first request may come before the first probe of an engine.
LATE = (" pick() took ", "timeout, routed by load", "is not read: timeout",
        "no engine can be asked for their token ids")
PREFIX = "/usr/bin/setpriv"     # runs a unit's program as the unit's user
IDS = {"vllm": 61185, "kv": 61186, "relay": 61187}

wanted = None                   # names of pages on the command line
# Pages that test_tasks_fleets.py tries.
FLEETS = ("several-nginx", "redis-dies", "prefill-decode")


class Page:
    """A page, and what runs of it in a folder of its own."""

    def __init__(self, path, folder):
        self.path, self.folder, self.etc = path, folder, folder / "etc"
        self.text = path.read_text()
        self.fences = test_fences.fences(path.name, self.text)
        self.ports, self.processes, self.units = {}, [], {}

    def blocks(self, language, text=None):
        """The blocks of a language, of the page or of a text."""
        return test_docs.blocks(language, text or self.text)

    def section(self, title):
        """A section of the page."""
        found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", self.text,
                          re.M | re.S)
        assert found, f"no section {title}"
        return found[1]

    # ------------------------------------------------------------ as written

    def port(self, number):
        """The free port that stands for one of the page."""
        return self.ports.setdefault(str(number), free_port())

    def moved(self, text):
        """A text with the ports and folders of this test."""
        def place(found):
            return (f"{found[1] or ''}127.0.0.1:"
                    f"{self.port(found[2] or found[3])}")
        text = re.sub(r"(\blisten +)(?:127\.0\.0\.1:)?(\d+)\b|"
                      r"\b(?:127\.0\.0\.1|localhost|10(?:\.\d+){3}):(\d+)",
                      place, text)
        for folder in ("/etc/nginx/", "/var/log/nginx/", "/run/", "/etc/kv-relay/",
                       "/etc/vllm/"):
            text = re.sub(rf"(?<![\w.]){folder}", f"{self.folder}{folder}", text)
        for module in ("ndk_http_module.so", "ngx_http_lua_module.so"):
            text = text.replace(f"modules/{module}", f"{MODULES}/{module}")
        return text.replace(f"modules/{MODULE}", f"{BUILD}/{MODULE}")

    def below(self):
        """The page to whose configuration this one's is added; or None."""
        link = re.search(r"added to .*?\]\(([\w-]+\.md)\)", self.text, re.S)
        return link and Page(TASKS / link[1], self.folder)

    def configuration(self):
        """The nginx.conf, the whole of it."""
        text = "".join(self.blocks("nginx"))
        if not re.search(r"^http \{", text, re.M):
            text = added(self.below().configuration(), self.blocks("nginx"))
        return text

    def engines(self):
        """The text with the engines: the page's, or that of its base."""
        return self.text if "ExecStart" in self.text or any(
            words[0] in ENGINES for words in commands(self.text)) \
            else self.below().engines()

    # ---------------------------------------------------------------- things

    def spawn(self, name, command):
        process = Process(name, [str(word) for word in command], self.folder)
        self.processes.append(process)
        return process

    def lay(self):
        """What pages find in /etc/nginx, and folders."""
        for name in ("etc/nginx/modules-enabled", "etc/kv-relay",
                     "var/log/nginx", "run/kv"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "etc/nginx/modules-enabled/50.conf").write_text("".join(
            f"load_module {folder}/{name};\n" for folder, name in (
                (MODULES, "ndk_http_module.so"),
                (MODULES, "ngx_http_lua_module.so"), (BUILD, MODULE))))
        model = self.folder / "etc/nginx/qwen3"
        shutil.copytree(ROOT / "t/vectors/model", model)
        # by which the stand-in knows the tokens of the template
        shutil.copy(ROOT / "t/vectors/golden/model/tokenizer_config.json", model)
        authority = Authority(self.folder, "ca")
        for name, file in zip(("nginx.pem", "nginx.key"), authority.issue(
                "nginx", "DNS:llm.example.com,DNS:localhost,IP:127.0.0.1")):
            shutil.copy(file, self.folder / "etc/nginx" / name)
        (self.folder / ".curlrc").write_text(
            f"cacert = {authority.file}\n")

    def start(self):
        """Redis, engines and relays, nginx."""
        conf, starts = self.configuration(), [*commands(self.engines())]
        if "redis://" in conf + self.engines():
            self.start_redis()
        for words in starts:
            if words[0] in ENGINES:
                self.start_engine(words)
        self.start_units()
        for file, text in self.files("/etc/nginx/", "text", self.text).items():
            Path(self.moved(file)).write_text(text)
        for port in re.findall(r"kv_router_worker +\S+ +\S+ +127\.0\.0\.1:"
                               r"(\d+)", conf):
            self.start_engine(["vllm", "--port", port])
        for number, words in enumerate(starts):
            if words[0] == "kv-relay":
                self.spawn(f"relay-{number}", [OURS["kv-relay"], *map(
                    self.moved, words[1:])])
        self.start_nginx(conf)

    def start_redis(self):
        port = self.port(6379)
        if any(process.name == "redis" for process in self.processes):
            return
        self.spawn("redis", ["redis-server", "--bind", "127.0.0.1", "--port",
                             port, "--save", ""])
        wait_until("redis", lambda: subprocess.run(
            ["redis-cli", "-p", str(port), "ping"], check=False,
            capture_output=True).stdout == b"PONG\n")

    def start_engine(self, words, prefix=()):
        """The stand-in for an engine's command; once for each port."""
        name = f"engine-{value(words, '--port')}"
        if any(process.name == name for process in self.processes):
            return None
        block = value(words, "--block-size") or value(words, "--page-size")
        events = json.loads(self.moved(value(words, "--kv-events-config")
                                       or "{}"))
        options = [self.port(value(words, "--port")),
                   "--engine", ENGINES[words[0]], "--block-size", block or 16,
                   "--model", value(words, "--served-model-name") or "demo",
                   "--prefill-us-per-token", 1, "--decode-us-per-token", 1000]
        for ours, theirs in (("--events", "endpoint"),
                             ("--replay", "replay_endpoint")):
            if theirs in events:
                options += [ours, events[theirs].replace("*", "127.0.0.1")]
        if re.search("^kv_router_model", self.text, re.M):
            options += ["--tokenizer", self.folder / "etc/nginx/qwen3"]
        for option in ("--lora-modules", "--lora-paths"):
            for word in words[words.index(option) + 1:] \
                    if option in words else ():
                if "=" not in word:
                    break
                options += ["--lora", word.partition("=")[0]]
        engine = self.spawn(name, [*prefix, sys.executable, "-B",
                                   OURS["kv-stand-in"], *options])

        def ready():
            engine.check_alive()
            return "ready on " in engine.log.read_text()
        wait_until(name, ready)
        return engine

    @staticmethod
    def files(kind, language, page):
        """The blocks that name their file in their first line."""
        return dict(re.findall(rf"\A# ({kind}[\w./@-]+)[^\n]*\n(.*)\Z", text, re.S)[0]
                    for text in test_docs.blocks(language, page)
                    if text.startswith(f"# {kind}"))

    def start_units(self):
        """The systemd units of the page, for w1 and w2, as their users."""
        units = {file.removeprefix("/etc/systemd/system/"): text
                 for file, text in self.files("/etc/systemd/", "ini",
                                                     self.engines()).items()}
        if not units:
            return
        units["kv-relay@.service"] = (
            ROOT / "relay/kv-relay@.service").read_text()
        self.verify(units)
        for file, text in self.files("/etc/", "sh", self.engines()).items():
            # "for w2: w2, 8002, ..."
            for name, old, new in ("w1", "", ""), ("w2", r"(\d{3})1\b", r"\g<1>2"):
                path = Path(self.moved(file.replace("w1", name)))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self.moved(re.sub(
                    old, new, text.replace("w1", name)) if old else text))
        for name in units:
            for instance in ("w1", "w2") if name.endswith("@.service") else ():
                self.start_unit("".join(
                    text for path, text in sorted(units.items())
                    if path == name or path.startswith(f"{name}.d/")), instance)

    def verify(self, units):
        """systemd-analyze has nothing to say against them."""
        there = self.folder / "units"
        for path, text in units.items():
            path = there / path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(re.sub("(?m)^ExecStart=[^ \n]+",
                                   "ExecStart=/bin/true", text))
        if shutil.which("systemd-analyze"):
            done = subprocess.run(
                ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no",
                 *there.glob("*.service")], check=False, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            assert done.returncode == 0 and not done.stdout, done.stdout

    def start_unit(self, text, instance):
        """What a service starts, by the few keys that these pages have."""
        said = {"UMask": "0022", **dict(re.findall(
            r"^(\w+)=(.*)$", text.replace("%i", instance), re.M))}
        user, group = (IDS[name] for name in (
            said.get("User", "relay"), said.get("Group", "relay")))
        assert "User" in said or said["DynamicUser"] == "yes", said
        prefix = ["env", *said.get("Environment", "").split(), *Path(
            self.moved(said["EnvironmentFile"])).read_text().split()]
        if os.geteuid() == 0:
            groups = [IDS[name] for name in said.get(
                "SupplementaryGroups", "").split()]
            prefix = [PREFIX, f"--reuid={user}", f"--regid={group}",
                      f"--groups={','.join(map(str, groups))}" if groups
                      else "--clear-groups", "sh", "-c",
                      'umask "$0"; exec "$@"', said["UMask"], *prefix]
        if "RuntimeDirectory" in said:
            path = self.folder / "run" / said["RuntimeDirectory"]
            path.mkdir(parents=True)
            path.chmod(int(said["RuntimeDirectoryMode"], 8))
            if os.geteuid() == 0:
                os.chown(path, user, group)
        words = shlex.split(re.sub(r"\$\{(\w+)\}", lambda name: next(
            word.partition("=")[2] for word in prefix
            if word.startswith(name[1] + "=")), said["ExecStart"]))
        words[0] = Path(words[0]).name
        if words[0] in ENGINES:
            self.start_engine(words, prefix)
        else:
            self.spawn(f"{words[0]}-{instance}", [*prefix, OURS[words[0]]])

    def start_nginx(self, conf):
        """nginx -t has nothing to say, and nginx runs."""
        text = self.moved(conf)
        if "\npid " not in text:
            text = f"pid {self.folder}/run/nginx.pid;\n" + text
        if os.geteuid() != 0:
            text = re.sub(r"^user .*\n", "", text, flags=re.M)
        paths = "".join(f"    {name}_temp_path {self.folder}/{name};\n"
                        for name in TEMP_PATHS)
        text = text.replace("\nhttp {\n", "\nhttp {\n" + paths, 1)
        (self.folder / "nginx.conf").write_text(text)
        words = [NGINX, "-p", f"{self.folder}/", "-c", "nginx.conf", "-e",
                 f"{self.folder}/var/log/nginx/error.log"]
        said = subprocess.run([*words, "-t"], check=False, text=True,
                              capture_output=True).stderr
        assert "test is successful" in said and "[" not in said, said
        nginx = self.spawn("nginx", [*words, "-g", "daemon off;"])
        pid = self.folder / "run/nginx.pid"         # -t leaves an empty one
        wait_until("nginx", lambda: nginx.check_alive() or (
            pid.exists() and pid.read_text()))

    def stop(self):
        for process in reversed(self.processes):
            process.stop()

    # ---------------------------------------------------------- what is seen

    def see(self):
        """The commands of "See that it works" print what the page prints,
        sooner or later: events and probes take their time."""
        steps = [step for text in self.blocks(
            "console", self.section("See that it works"))
            for step in re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)",
                                   text, re.M)]
        assert steps, "no command"
        wrong = []

        def printed():
            wrong.clear()
            for command, told in steps:
                done = subprocess.run(
                    ["bash", "-c", self.shell() + self.moved(command)],
                    cwd=self.folder, check=False, text=True,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    timeout=WAIT_SECONDS, stdin=subprocess.DEVNULL,
                    env={**os.environ, "CURL_HOME": str(self.folder)})
                try:
                    test_fences.same(usual(told), usual(
                        done.stdout.replace(str(self.folder), "")))
                except test_fences.Wrong as error:
                    wrong.append(f"{command}\n{error}")
            return not wrong
        try:
            wait_until("what the page prints", printed)
        finally:
            assert not wrong, "\n".join([*wrong, self.log(), *(
                f"{process.name}: {process.tail()}"
                for process in self.processes)])

    def shell(self):
        """Functions in the place of programs, and names in the place of the
        page's."""
        relay, redis = OURS["kv-relay"], self.ports.get("6379")
        for name, port in self.ports.items():
            with open(self.folder / ".curlrc", "a", encoding="utf-8") as file:
                file.write(f'connect-to = "llm.example.com:{name}:'
                           f'127.0.0.1:{port}"\n')
        return (f"redis-cli() {{ command redis-cli -p {redis} \"$@\"; }}\n"
                f"kv-relay() {{ {relay} \"$@\"; }}\n"
                f'PATH="{ROOT}/util:$PATH"\n')

    def log(self):
        """nginx's error log."""
        return (self.folder / "var/log/nginx/error.log").read_text()

    def quiet(self):
        """nginx has no fault to tell but those of which the page warns."""
        told = [text for text in re.findall(r"`([^`\n]+)`", prose(self.text))
                if len(text.split()) > 3]
        for line in self.log().splitlines():
            assert any(text in line for text in (*LATE, *told)) \
                or not re.search(r"\[(emerg|alert|crit|error|warn)\]", line), \
                line


def commands(text):
    """The commands of a page that start something: lists of words."""
    for block in test_docs.blocks("sh", text):
        for words in test_fences.commands(block):
            if words[0] == "python3" and "-m" in words:
                words = words[words.index("-m") + 1:]
            if words[0] in (*ENGINES, *OURS):
                yield words


def prose(text):
    """A page without its blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def value(words, option):
    """What follows an option, or ""."""
    for word, after in zip(words, [*words[1:], ""]):
        if word == option:
            return after
        if word.startswith(option + "="):
            return word.partition("=")[2]
    return ""


def usual(text):
    """What is printed, with one worker for all, one address, and no times.  How
    many tokens a text has is learned, so its overlap is some."""
    text = re.sub(r"overlap=[1-9]\d*(?=.* rung=text)", "overlap=1", text)
    text = re.sub(r"\bw[1-9]\b", "w1", text)
    text = re.sub(r"\b127\.0\.0\.1:\d+", "127.0.0.1:0", text)
    return re.sub(r"\b\d+\.\d{3,}\b", "0.0", text)


def statements(text):
    """The statements of a configuration's level: (name, text)."""
    found, depth, statement = [], 0, ""
    for line in text.splitlines(keepends=True):
        statement += line
        code = re.sub(r"'[^']*'|\"[^\"]*\"|#.*", "", line)
        depth += code.count("{") - code.count("}")
        if depth == 0 and re.search(r"[;}]\s*$", code):
            name = re.search(r"^\s*([a-z]\S*)(.*)", statement, re.M)
            found.append((name[1], statement))
            statement = ""
    return found


def added(base, texts):
    """A configuration with blocks added: each says in its first line whether
    it stands in http or in the server.  Of a name that both have at that
    level, the block's take the place of the others."""
    for text in texts:
        place = re.match(r"# in (http|server)\b(?:, without (\w+))?", text)
        assert place, "in http, or in the server?"
        start = re.search(rf"^ *{place[1]} \{{\n", base, re.M)
        rest = base[start.end():]
        size, depth = 0, 1
        for line in rest.splitlines(keepends=True):
            depth += line.count("{") - line.count("}")
            if depth == 0:
                break
            size += len(line)
        key = {"location": 3, "server": 2}
        new = statements(text)
        names = {tuple(one.split()[:key.get(name, 1)]) for name, one in
                 ((name, re.sub("#.*", "", one)) for name, one in new)}
        names.add((place[2],))
        old = [one for name, one in statements(rest[:size])
               if tuple(re.sub("#.*", "", one).split()[:key.get(name, 1)])
               not in names]
        # a zone stands before all that names it
        both = sorted([*(one for _, one in new), *old], key=lambda one:
                      "kv_router_zone" not in one)
        base = base[:start.end()] + "".join(both) + rest[size:]
    return base


# -------------------------------------------------------------------- tests

def pages():
    """The pages that are tried."""
    return [path for path in sorted(TASKS.glob("*.md"))
            if not wanted or path.stem in wanted]


def every_page_is_listed():
    """docs/README.md lists every task and every page of docs"""
    text = (ROOT / "docs/README.md").read_text()
    links = re.findall(r"\]\(([\w./-]+\.md)", text)
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (
        *(ROOT / "docs").glob("*.md"), *TASKS.glob("*.md"))} - {"README.md"}
    assert there <= set(links), there - set(links)


def pages_are_short():
    """every page is one screen: its sections, its rows, its words"""
    for path in pages():
        page = Page(path, Path("/none"))
        words = len(prose(page.text).split())
        assert words <= WORDS, (path.name, words)
        assert page.blocks("console", page.section("See that it works"))
        rows = re.findall(r"^\|.*\|$", page.section("What goes wrong"), re.M)
        assert 3 <= len(rows) - 2 <= 6, (path.name, len(rows))


def tried(path):
    """The test of a page."""
    def test():
        folder = Path(tempfile.mkdtemp(prefix="kvt-"))
        folder.chmod(0o755)             # nginx's workers are another user
        page = Page(path, folder)
        try:
            page.lay()
            page.start()
            page.see()
            page.quiet()
        finally:
            page.stop()
            shutil.rmtree(folder, ignore_errors=True)
    test.__doc__ = f"{path.name} does what it says"
    return test


def main():
    global wanted
    wanted = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.environ["LUA_PATH"] = f"{ROOT}/lua/?.lua;;"
    return tap.run([every_page_is_listed, pages_are_short,
                    *(tried(path) for path in pages()
                      if path.stem not in FLEETS)])


if __name__ == "__main__":
    sys.exit(main())
