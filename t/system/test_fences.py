#!/usr/bin/python3
"""Every block of code of the documentation is tried, by its language; TAP.

nginx -t reads the configurations, policies are asked, programs in Lua run, and
each command must name programs, options, targets, files and paths that exist.
test_docs.py sends the requests of the pages to engines.
"""

import configparser
import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import jsonschema
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "demo"))

import tap                                                  # noqa: E402
from certificates import Authority                          # noqa: E402
from processes import Process, free_port, wait_until        # noqa: E402

BUILD = Path(os.environ.get("KVR_BUILD", ROOT / "build")).resolve()
MODULES = Path(os.environ.get("KVR_MODULES", "/usr/lib/nginx/modules"))
NGINX = os.environ.get("TEST_NGINX_BINARY", "nginx")
LUAJIT = os.environ.get("TEST_LUAJIT_BINARY", "luajit")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")),
         *sorted((ROOT / "docs/tasks").glob("*.md")),
         *(ROOT / folder / "README.md"
           for folder in ("relay", "demo", "bench", "t"))]
NOWHERE = "203.0.113.1:9"                   # an address of no machine
HANGS = 300                                 # seconds: no command takes so long
TEMP_PATHS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
DEBUG = "error_log  /var/log/nginx/error.log debug;"

# Our own programs: what they are called with is in their --help.

PROGRAMS = {"kv-relay": BUILD / "kv-relay",
            "kv-stand-in": ROOT / "demo/engine.py",
            **{name: ROOT / "util" / name
               for name in ("kv-simulate", "kv-router-check", "kv-model-dump",
                            "kv-model-check")}}

# Commands that are not ours, and are not run: why.

FOREIGN = {
    "apt": "installs packages: t/packages/check.py runs it",
    "podman": "builds images: t/packages/deploy.py runs their steps",
    "helm": "renders the chart: t/packages/chart.py runs it",
    "kubectl": "needs a cluster: t/packages/chart.py merges the patch",
    "docker": "needs an engine in a container",
    "vllm": "an engine: make engines runs it",
    "trtllm-serve": "an engine, which needs a GPU",
    "sglang.launch_server": "an engine: make engines runs it",
    "./configure": "nginx's sources: make module builds by its headers",
    "groupadd": "adds a group", "useradd": "adds a user",
    "systemctl": "needs systemd: t/system/test_tasks.py starts the units",
    "echo": "writes to /sys", "printf": "writes a file of the engine",
    "grep": "a part of what curl prints", "tail": "the end of a log",
    "cut": "a part of what others print",
    "jq": "the same, of JSON", "service": "an upgrade: test_upgrade.py",
    "tar": "unpacks what kv-model-dump wrote: t/system/test_model_dump.py",
}

# Blocks in Lua that are a part of a configuration, by their first lines: the
# directive to which they belong, and what they find there.

PIECES = {
    "-- access_by_lua_block: in place of router:access() alone":
        ("access_by_lua_block", ""),
    "for worker, rank, device, host, disk in m:each() do end":
        ("content_by_lua_block",
         'local m = assert(require("resty.kv_router").index("main")'
         ':find_matches({ 1, 2 }))\nlocal worker, rank, i = "w1", 0, 1\n'),
    'local cache = require("resty.kv_router.prefix_cache").new("cache")':
        ("content_by_lua_block",
         "local tokens, slots = { 1, 2, 3 }, { 7, 8, 9 }\n"),
}

at = None                                   # a Place, set by main()


class Wrong(Exception):
    """What is wrong with a block."""


class Block:
    """A block of a page: its language, its text, and where it stands."""

    def __init__(self, page, line, language):
        self.where = f"{page}:{line}"
        self.page, self.language, self.text = page, language, ""


def fences(page, text):
    """The blocks of a page, those in lists too."""
    found, block, fence, before = [], None, "", ""
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        mark = re.match(r"( *)(`{3,}|~{3,})(.*)", line)
        if block is None and mark:
            fence = mark[1]
            block = Block(page, number, mark[3].strip())
        elif block is not None and mark:
            found.append(block)
            block = None
        elif block is not None:
            block.text += line.removeprefix(fence)
        elif line.startswith("    ") and not before.strip():
            raise Wrong(f"{page}:{number}: a block without a fence")
        before = line
    if block is not None:
        raise Wrong(f"{block.where}: the block has no end")
    return found


def run(*command, **more):
    """Status and what was said of a command, its outputs together."""
    done = subprocess.run([str(word) for word in command], check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=HANGS, **more)
    return done.returncode, done.stdout


def demand(truth, *why):
    """Raises Wrong unless something is true."""
    if not truth:
        raise Wrong(": ".join(map(str, why)))


# -------------------------------------------------------------------- nginx

class Place:
    """A folder with what the pages' files and servers stand for."""

    def __init__(self, folder):
        self.folder, self.etc = folder, folder / "etc"
        self.lua = self.etc / "lua"
        self.policies, self.programs, self.processes = [], [], []
        self.redis_port = free_port()

    def fill(self):
        """What a page says is in /etc/nginx, and a Redis."""
        (self.lua / "acme").mkdir(parents=True)
        (self.etc / "modules-enabled").mkdir()
        (self.etc / "modules-enabled/50.conf").write_text("".join(
            f"load_module {module};\n" for module in self.modules()))
        shutil.copytree(ROOT / "t/vectors/model", self.etc / "qwen3")
        authority = Authority(self.folder, "ca")
        shutil.copy(authority.file, self.etc / "ca.pem")
        for name, file in zip(("nginx.pem", "nginx.key"),
                              authority.issue("nginx", "DNS:nginx")):
            shutil.copy(file, self.etc / name)
        (self.etc / "kv-api.token").write_text("0123456789abcdef\n")
        self.spawn("redis", "redis-server", "--bind", "127.0.0.1", "--port",
                   str(self.redis_port), "--save", "")
        wait_until("redis", lambda: self.redis("ping") == (0, "PONG\n"))

    def spawn(self, name, *command):
        process = Process(name, list(command), self.folder)
        self.processes.append(process)
        return process

    def redis(self, *words_):
        return run("redis-cli", "-p", self.redis_port, *words_)

    @staticmethod
    def modules():
        return [MODULES / "ndk_http_module.so",
                MODULES / "ngx_http_lua_module.so",
                BUILD / "ngx_http_kv_router_module.so"]

    def moved(self, text):
        """A configuration whose files are in this folder."""
        for module in self.modules():
            text = text.replace(f"modules/{module.name}", str(module))
        return text.replace("/etc/nginx/", f"{self.etc}/").replace(
            "/var/log/nginx/", f"{self.folder}/")

    def accepts(self, text):
        """Has nginx -t read a whole nginx.conf; what it says against it."""
        paths = "".join(f"{name}_temp_path {self.folder}/{name};\n"
                        for name in TEMP_PATHS)
        text = self.moved(text).replace("http {\n", f"http {{\n{paths}", 1)
        path = self.folder / "nginx.conf"
        path.write_text(f"pid {self.folder}/nginx.pid;\n{text}")
        status, said = run(NGINX, "-t", "-p", f"{self.folder}/", "-c", path,
                           "-e", self.folder / "error.log")
        if status == 0 and "init_by_lua_block" in text:
            # init_by_lua runs before nginx listens, which it cannot there
            nowhere = self.folder / "nowhere.conf"
            nowhere.write_text(path.read_text().replace(
                "http {\n", f"http {{\nserver {{ listen {NOWHERE}; }}\n", 1))
            status, said = run(NGINX, "-p", f"{self.folder}/", "-c", nowhere,
                               "-e", self.folder / "error.log", env=lua_env())
            ran = re.fullmatch(rf".*\[emerg\].* bind\(\) to {NOWHERE} .*\n",
                               said)
            return "" if ran else said or f"status {status}"
        if status != 0 or re.search(r"\[(warn|error|alert)\]", said):
            return said or f"status {status}"
        return ""


def whole(level, text):
    """A whole nginx.conf with a text at one of its levels."""
    if level == "main":
        return text
    has = "kv_router_zone" in text
    text = {"http": "%s", "server": "server { listen 127.0.0.1:9; %s }",
            "location": "server { listen 127.0.0.1:9; location / { %s } }"
            }[level] % text
    return ("include /etc/nginx/modules-enabled/*.conf;\nevents {}\nhttp {\n"
            + ("" if has else "kv_router_zone zone=main:8m;\n")
            + "upstream engines { server 127.0.0.1:9; }\n" + text + "\n}\n")


def try_nginx(block):
    """nginx -t accepts it, whole, or where its directives can stand."""
    if block.page.startswith("docs/tasks/"):
        return                              # test_tasks.py runs them
    text = block.text
    if "ngx_otel_module" in text and not (
            MODULES / "ngx_otel_module.so").exists():
        # Debian has no such module: what is ours in the block is tried
        text = re.sub(r"load_module modules/ngx_otel_module.so;\n|"
                      r"otel_exporter \{[^}]*\}|otel_\w+ [^;]*;", "", text)
    if re.search(r"^(events|load_module) ", text, re.M) \
            and "events" in text:
        levels = ["main"]
    elif re.search("^http ", text, re.M):
        text = re.search(r"^http \{\n(.*)^\}", text, re.M | re.S)[1]
        levels = ["http"]
    else:
        levels = ["http", "server", "location"]
    if "proxy_pass" not in text and block.language == "nginx" \
            and "proxy_set_header" in text:
        text += "proxy_pass http://engines;\n"
    said = [at.accepts(whole(level, text)) for level in levels]
    demand("" in said, "nginx accepts it at no level",
           *(f"{level}: {one}" for level, one in zip(levels, said)))


# ---------------------------------------------------------------------- Lua

def try_lua(block):
    """A policy is asked, a program runs, a piece runs in its directive."""
    path = at.folder / "block.lua"
    path.write_text(block.text)
    status, said = run(LUAJIT, "-bl", path, os.devnull)
    demand(status == 0, said)
    first = block.text.partition("\n")[0]
    module = re.match(r"-- (acme/(\w+)\.lua)\b", first)
    program = re.match(r"-- (test_\w+\.lua)\b", first)
    piece = [value for line, value in PIECES.items() if first.startswith(line)]
    if module:
        (at.lua / module[1]).write_text(block.text)
        status, said = run(PROGRAMS["kv-router-check"], "--lua-path",
                           f"{at.lua}/?.lua", f"acme.{module[2]}")
        demand((status == 0) == (": a mistake" not in first), said)
        at.policies.append(module[2])
    elif program:
        (at.folder / program[1]).write_text(block.text)
        status, said = run(LUAJIT, program[1], cwd=at.folder, env=lua_env())
        demand(status == 0, said)
        at.programs.append(program[1])
    elif re.match(r"router = require\(", first):
        said = at.accepts(whole("http", f"init_by_lua_block {{\n{block.text}}}"))
        demand(not said, said)
    else:
        demand(piece, "no way to run it is known: it is no policy "
               '("-- acme/NAME.lua"), no program ("-- test_NAME.lua"), and '
               "not in PIECES", first)
        run_in_nginx(block.text, *piece[0])


def lua_env():
    """The environment in which a program finds policies and the library."""
    return {**os.environ, "LUA_PATH": f"{at.lua}/?.lua;{ROOT}/lua/?.lua;;"}


def run_in_nginx(text, directive, before):
    """Runs a piece in nginx: it must answer."""
    port = free_port()
    behind = "ngx.say('done')" if directive.startswith("content") else ""
    configuration = whole("http", f"""
        lua_package_path "{ROOT}/lua/?.lua;;";
        kv_router_zone zone=main:8m frequency=10m;
        kv_router_prefix_cache zone=cache:2m;
        kv_router_worker main w1 127.0.0.1:9;
        init_by_lua_block {{
            router = require("resty.kv_router").new("main",
                                                    {{ tokenizer = "none" }})
        }}
        server {{
            listen 127.0.0.1:{port};
            location / {{
                {directive} {{
                    {before}
                    {text}
                    {behind}
                }}
                {"" if behind else "return 204;"}
            }}
        }}""")
    if not behind:
        configuration = configuration.replace(
            "return 204;", "proxy_pass http://rest;").replace(
            "upstream engines", "upstream rest { server 0.0.0.1; "
            "balancer_by_lua_block { router:balance() } }\nupstream engines")
    said = at.accepts(configuration)
    demand(not said, said)
    log = at.folder / "error.log"
    log.write_text("")
    nginx = at.spawn("nginx", NGINX, "-p", f"{at.folder}/", "-c",
                     at.folder / "nginx.conf", "-e", log, "-g", "daemon off;")

    def ask(body=b"{}"):
        nginx.check_alive()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/x",
                                        body) as answer:
                return answer.status
        except urllib.error.HTTPError as err:
            return err.code
    try:
        # behind what is asked for access there is no engine: a 502
        good = {200} if behind else {502}
        status = wait_until("nginx", ask)
        demand(status in good, status, log.read_text())
        demand("lua" not in re.sub(r"(?m)^.*\[notice\].*$", "",
                                   log.read_text()), log.read_text())
        if not behind:
            demand(ask(b'{"kv_cache_report_mode":"full"}') == 400,
                   "kv_cache_report_mode is let through")
    finally:
        nginx.stop()


# ----------------------------------------------------------------- commands

def commands(text):
    """The commands of shell lines, each a list of words."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words_, quiet = [], False
        for word in [*lexer, ";"]:
            if set(word) <= set("();<>|&"):
                if "<" in word or ">" in word:
                    quiet = True            # the file's name is no argument
                elif words_:
                    yield words_
                    words_ = []
            elif quiet:
                quiet = False
            else:
                words_.append(word)


@functools.cache
def help_of(path):
    """What a program of ours says with --help."""
    status, said = run(path, "--help")
    demand(status == 0, path, "--help failed", said)
    return said


def options(name, path, words_):
    """Options of a program of ours are those of its --help."""
    for word in words_:
        if re.match("--?[a-z]", word):
            demand(re.search(rf"(?<![\w-]){re.escape(word.partition('=')[0])}"
                             r"(?![\w-])", help_of(path)),
                   f"{name} has no option {word}")


def target(words_):
    """make's words: targets, variables of the Makefile, files of T."""
    makefile = "".join((ROOT / folder / "Makefile").read_text()
                       for folder in ("", "bench"))
    for word in words_:
        name, is_variable, value = word.partition("=")
        if is_variable:
            demand(re.search(rf"\b{name}\b", makefile),
                   f"the Makefile has no variable {name}")
            for file in value.split() if name == "T" else ():
                demand((ROOT / file).exists(), f"there is no {file}")
        elif name != "modules" and not name.startswith("-j"):
            demand(re.search(rf"^\.PHONY:.* {re.escape(name)}\b", makefile,
                             re.M), f"make has no target {name}")


def request(words_):
    """curl's words: a path of the API, the status, or an engine's."""
    data = [words_[n + 1] for n, word in enumerate(words_) if word == "-d"]
    (url,) = [word for word in words_ if re.match("https?://", word)]
    method = (words_[words_.index("-X") + 1] if "-X" in words_
              else "POST" if data else "GET")
    path = re.sub(r"https?://[^/]+|\?.*", "", url)
    for body in data:
        json.loads(re.sub(r"\$\(seq -s, \d+\)", "1,2", body))
    if path.startswith("/kv/"):
        api = json.loads((ROOT / "docs/openapi.json").read_text())["paths"]
        demand(any(re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", one),
                                path.removeprefix("/kv"))
                   and method.lower() in api[one] for one in api),
               f"openapi.json has no {method} {path}")
    else:
        demand(path in ("/status", "/metrics", "/health", "/ready",
                        "/drain")
               or path.startswith("/v1/"), f"nothing answers {path}")


def redis(words_):
    """redis-cli's words: run, unless Redis would not end them."""
    if words_[0].upper() in ("PSUBSCRIBE", "MONITOR"):
        demand("" != at.redis("COMMAND", "INFO", words_[0])[1].strip(),
               f"Redis has no {words_[0]}")
        return
    status, said = at.redis(*words_)
    demand(status == 0 and not re.match("ERR|WRONG|NO", said), said)


def command(words_):
    """One command: what it names exists."""
    while words_ and re.match(r"\w+=", words_[0]):
        name = words_.pop(0).partition("=")[0]
        if name.startswith("KV_RELAY_"):
            options("kv-relay", PROGRAMS["kv-relay"],
                    ["--" + name[9:].lower().replace("_", "-")])
    if words_ and words_[0] == "sudo":
        del words_[0]
    if not words_:
        return
    name, *rest = words_
    if name in ("docker", "podman", "helm", "kubectl"):
        for word in rest:
            demand("deploy/" not in word or (ROOT / word).exists(),
                   f"there is no {word}")
    if name in ("python3", "luajit"):
        if rest[0] != "-m":
            demand(rest[0] in at.programs, f"no page has a program {rest[0]}")
            return
        name = rest[1]
    if name in ("vllm", "sglang.launch_server"):
        json.loads(next((word for word in rest if word.startswith("{")), "{}"))
    if name in PROGRAMS:
        options(name, PROGRAMS[name], rest)
    elif (ROOT / name).is_file():
        options(name, ROOT / name, rest)
    elif name == "make":
        target(rest)
    elif name == "curl":
        request(rest)
    elif name == "redis-cli":
        redis(rest)
    elif name == "nginx":
        demand(rest in (["-t"], ["-s", "reload"])
               or rest[0] == "-c" and Path(rest[1].replace(
                   "$PWD", str(ROOT))).is_file(), "nginx", rest)
    else:
        demand(name in FOREIGN, f'the command "{name}" is not known here')


def try_sh(block):
    """Its syntax is right, and what its commands name exists."""
    shell(block.text)


def shell(text):
    """The same of a text."""
    status, said = run("bash", "-n", "-c", text)
    demand(status == 0, said)
    for words_ in commands(text):
        command(words_)


def try_console(block):
    """Its commands are as in sh; some programs say the same."""
    steps = re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block.text,
                       re.M)
    demand(steps and block.text.startswith("$ "), "no command in it")
    for line, told in steps:
        shell(line)
        name = next(word for word in shlex.split(line) if "=" not in word)
        if name in ("kv-router-check", "luajit") \
                or name == "kv-simulate" and told:
            line = line.replace(name, str(PROGRAMS.get(name, name)), 1)
            said = run("bash", "-c", re.sub("LUA_PATH='.*?' ", "", at.moved(
                line)), cwd=at.folder, env=lua_env())[1]
            same(told, said.replace(f"{at.etc}/", "/etc/nginx/"))


def same(told, said):
    """What a page tells was said, but for times and lines of dots."""
    pattern = "".join(
        "(?:.*\n)*?" if line == "...\n" else
        re.sub(r"\d+\\\.\d+\\ ms", r"\\d+\\.\\d+ ms(?:, SLOW)?",
               re.sub(r"(ms:\\ )\d+", r"\1\\d+", re.escape(line)))
        for line in told.splitlines(keepends=True))
    demand(re.fullmatch(pattern, re.sub(r"(?m)^.*pick\(\) took.*\n", "", said)),
           "it says something else", said)


# ------------------------------------------------------------------- others

def try_json(block):
    """It is JSON, or JSON lines; an answer of POST /route by its schema."""
    try:
        values = [json.loads(block.text)]
    except json.JSONDecodeError:
        values = [json.loads(line) for line in block.text.splitlines()]
    demand(values, "it is empty")
    if "best_overlap_blocks" in values[0]:
        api = json.loads((ROOT / "docs/openapi.json").read_text())
        schema = api["paths"]["/route"]["post"]["responses"]["200"]["content"]
        jsonschema.Draft202012Validator(
            {**schema["application/json"]["schema"],
             "components": api["components"]}).validate(values[0])


def try_python(block):
    """It is Python; test_docs.py runs it."""
    compile(block.text, block.where, "exec")


def try_yaml(block):
    """It is a YAML mapping."""
    demand(isinstance(yaml.safe_load(block.text), dict), "it is no mapping")


def try_ini(block):
    """Its sections have settings."""
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(block.text)
    demand(parser.sections() and all(map(parser.options, parser.sections())),
           "a section has no settings")


def try_promql(block):
    """Its metrics are those of the pages."""
    text = "".join(page.read_text() for page in PAGES)
    for name in re.findall(r"kv_router_\w+?(?=_bucket\b|\b)", block.text):
        demand(f"`{name}`" in text, f"no page has {name}")


def try_text(block):
    """Pictures, formats and what programs say: nothing that can be run."""
    demand(block.text.strip(), "it is empty")
    name = re.match(r"[\w./-]*", block.text)[0]
    rest = re.match(r"[^\n]*", block.text)[0]
    demand(not rest.startswith("$ "), 'a command: mark it "console"')
    demand(name not in ("make", "curl", "nginx", "redis-cli", "apt", "sudo"),
           'a command: mark it "sh"')


LANGUAGES = {"nginx": try_nginx, "lua": try_lua, "sh": try_sh,
             "console": try_console, "json": try_json, "python": try_python,
             "yaml": try_yaml, "ini": try_ini, "promql": try_promql,
             "text": try_text}


def faults(blocks):
    """What is wrong with blocks: a line for each."""
    found = []
    for block in blocks:
        try:
            demand(block.language in LANGUAGES,
                   f'the language "{block.language}" is none of '
                   f"{', '.join(LANGUAGES)}")
            LANGUAGES[block.language](block)
        except Exception as error:
            found.append(f"{block.where}: {type(error).__name__}: {error}")
    return found


# -------------------------------------------------------------------- tests

def every_block_is_good():
    """every block of code of every page is what it says"""
    blocks = [block for page in PAGES for block in fences(
        page.relative_to(ROOT).as_posix(), page.read_text())]
    assert len(blocks) > 60, len(blocks)
    wrong = faults(blocks)
    assert not wrong, "\n".join(wrong)
    seen = {language: sum(block.language == language for block in blocks)
            for language in LANGUAGES}
    print("#", len(blocks), "blocks:", ", ".join(
        f"{count} {language}" for language, count in seen.items()))
    text = "".join(block.text for block in blocks)
    assert all(line in text for line in PIECES), "a piece that no page has"
    assert all(name in text for name in FOREIGN), "a command that no page has"
    assert at.policies and at.programs


def broken_blocks_are_found():
    """a block that is broken is found, in each language, and an unknown one"""
    broken = [
        ("nginx", "kv_router_zone zone=main:1;\n", "too small"),
        ("nginx", "kv_router_zome zone=main:8m;\n", "unknown directive"),
        ("nginx", "location /kv/ { kv_router_api main; }\nlocation /kv/ {}\n",
         "duplicate location"),
        ("lua", "local a =\n", "unexpected symbol"),
        ("lua", "return 1\n", "no way to run it"),
        ("lua", "-- test_wrong.lua\nassert(false, 'seen')\n", "seen"),
        ("lua", "-- acme/wrong.lua\nreturn {}\n", "no function new"),
        ("lua", 'router = require("resty.kv_router").new("main", '
                '{ polcy = "p2c" })\n', "polcy"),
        ("sh", "if\n", "syntax error"),
        ("sh", "kv-relay --worke w1\n", "no option --worke"),
        ("sh", "make chek\n", "no target chek"),
        ("sh", "make check T=t/none.py\n", "no t/none.py"),
        ("sh", "make bench ROW=main\n", "no variable ROW"),
        ("sh", "curl http://127.0.0.1:8080/kv/wokers\n", "no GET /kv/wokers"),
        ("sh", "curl http://127.0.0.1:8080/kv/query -d '{'\n", "JSONDecode"),
        ("sh", "redis-cli SADD kv-workers\n", "wrong number of arguments"),
        ("sh", "KV_RELAY_REDDIS=x\n", "no option --reddis"),
        ("sh", "minikube start\n", '"minikube" is not known'),
        ("sh", "helm lint deploy/none\n", "no deploy/none"),
        ("sh", "bench/run.py --bild build\n", "no option --bild"),
        ("sh", "nginx -c none.conf\n", "none.conf"),
        ("console", "$ kv-router-check p2c\nall is well\n", "something else"),
        ("console", "no command\n", "no command in it"),
        ("json", '{"a":1,}\n', "JSONDecodeError"),
        ("json", '{"best_overlap_blocks":1}\n', "required property"),
        ("python", "print(\n", "SyntaxError"),
        ("yaml", "a: [\n", "ParserError"),
        ("ini", "[Service]\n", "no settings"),
        ("promql", "rate(kv_router_none_total[1h])\n", "no page has"),
        ("text", "$ make demo\n", "console"),
        ("text", "make demo\n", '"sh"'),
        ("", "make demo\n", 'language ""'),
        ("toml", "a = 1\n", 'language "toml"')]
    page = "".join(f"```{language}\n{text}```\n" for language, text, _ in broken)
    blocks = fences("page.md", page)
    assert len(blocks) == len(broken)
    for block, (_, _, why) in zip(blocks, broken):
        (fault,) = faults([block]) or ("nothing",)
        assert why in fault, (block.text, why, fault)
    for page in ("```sh\nmake\n", "A line.\n\n    make\n"):
        try:
            fences("page.md", page)
        except Wrong:
            continue
        raise AssertionError(page)


def main():
    global at
    folder = Path(tempfile.mkdtemp(prefix="kv-router-test-"))
    folder.chmod(0o755)                     # nginx's workers are another user
    os.environ["LUA_PATH"] = f"{folder}/etc/lua/?.lua;{ROOT}/lua/?.lua;;"
    at = Place(folder)
    try:
        at.fill()
        return tap.run([every_block_is_good, broken_blocks_are_found])
    finally:
        for process in reversed(at.processes):
            process.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
