#!/usr/bin/python3
"""The documentation and conf/nginx.conf do what they say when pasted; TAP.

Each configuration is laid out as `make install` has it, with other ports and
directories, tested by `nginx -t`, started with a Redis and two engine
stand-ins, and sent the commands of the pages.
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
import urllib.error
import urllib.request
from pathlib import Path

import jsonschema
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "demo"))

import tap                                                  # noqa: E402
from processes import (Process, WAIT_SECONDS, free_port,    # noqa: E402
                       wait_until)
from worker import Worker                                   # noqa: E402
from agreement import agreement                             # noqa: E402

BUILD = Path(os.environ.get("KVR_BUILD", ROOT / "build")).resolve()
MODULES = Path(os.environ.get("KVR_MODULES", "/usr/lib/nginx/modules"))
NGINX = os.environ.get("TEST_NGINX_BINARY", "nginx")
MODULE = "ngx_http_kv_router_module.so"
WORKERS = {"w1": "127.0.0.1:8001", "w2": "127.0.0.1:8002"}
URL = "http://127.0.0.1:8080"               # that of the documents
HUNDRED = ",".join(map(str, range(1, 101)))    # $(seq -s, 100)
TEMP_PATHS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")

PAGES = {path.relative_to(ROOT).as_posix(): path.read_text()
         for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")),
                      *sorted((ROOT / "docs/tasks").glob("*.md"))]}
DOCS = "\n".join(PAGES.values())
SAMPLE = (ROOT / "conf" / "nginx.conf").read_text()
ALONE = (ROOT / "conf" / "alone.conf").read_text()

at = None                                   # the Fixture, set by main()


# ---------------------------------------------------------------- documents

def lines(text):
    """Lines of a page: (the level of a heading or 0, the line)."""
    fence = False
    for line in text.splitlines(keepends=True):
        fence ^= line.startswith("```")
        heading = None if fence else re.match("(#+) ", line)
        yield (len(heading[1]) if heading else 0), line


def section(title):
    """A section of a page, or a page, by its title, with those below it."""
    found, level = [], 0
    for mark, line in lines(DOCS):
        if not level and mark and line.strip("# \n") == title:
            level = mark
        elif level and 0 < mark <= level:
            break
        elif level:
            found.append(line)
    assert found, title
    return "".join(found)


def anchor(heading):
    """The name by which GitHub links to a heading."""
    text = re.sub(r"[^\w\- ]", "", heading.strip("# \n").lower())
    return text.replace(" ", "-")


def blocks(language, text):
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text,
                      re.MULTILINE | re.DOTALL)


def shell(title):
    """The commands of a section, those of its consoles behind the others."""
    return ("".join(blocks("sh", section(title))).splitlines()
            + re.findall(r"^\$ (.*)$", "".join(
                blocks("console", section(title))), re.M))


def commands(title):
    """The curl commands of a section: (method, url, headers, body)."""
    found = []
    for line in shell(title):
        line = line.partition(" | ")[0].replace('\'"$(seq -s, 100)"\'', HUNDRED)
        if not line.startswith("curl "):
            continue
        words = iter(shlex.split(line)[1:])
        method, url, headers, body = None, None, {}, None
        for word in words:
            if word == "-X":
                method = next(words)
            elif word == "-d":
                body = next(words)
            elif word == "-H":
                name, value = next(words).split(": ")
                headers[name] = value
            elif not word.startswith("-"):
                url = word
        assert url.startswith(URL + "/"), line
        method = method or ("GET" if body is None else "POST")
        found.append((method, url.removeprefix(URL), headers, body))
    assert found, title
    return found


# ------------------------------------------------------------------ fixture

class Fixture:
    """Redis, two engines, and one nginx at a time, in its own directory."""

    def __init__(self, directory):
        self.directory = directory
        self.redis_port = free_port()
        self.engines = {}
        self.processes = []
        self.nginx = self.prefix = self.log = self.answer = None
        self.port = 0

    def start(self):
        self._spawn("redis", ["redis-server", "--bind", "127.0.0.1", "--port",
                              str(self.redis_port), "--save", ""])
        wait_until("redis", lambda: subprocess.run(
            ["redis-cli", "-p", str(self.redis_port), "ping"],
            capture_output=True, check=False).stdout == b"PONG\n")
        for name in WORKERS:
            worker = Worker(name, self.directory,
                            "--prefill-us-per-token", "1",
                            "--decode-us-per-token", "1000")
            self.processes.append(worker)
            worker.wait_ready()
            self.engines[name] = worker.address
            worker.start_relay(BUILD / "kv-relay",
                               f"redis://127.0.0.1:{self.redis_port}")

    def stop(self):
        for process in reversed(self.processes):
            process.stop()

    def _spawn(self, name, command):
        process = Process(name, command, self.directory)
        self.processes.append(process)
        return process

    # ------------------------------------------------------- configurations

    def install(self, name, text):
        """Lays a configuration out, and has nginx test it."""
        self.lay(name)
        self.port = free_port()
        self.log = self.prefix / "access.log"
        self.write(text)
        self.test()

    def lay(self, name):
        """A directory with the modules, as `make install` has them."""
        self.prefix = self.directory / name
        (self.prefix / "modules").mkdir(parents=True)
        for module in ("ndk_http_module.so", "ngx_http_lua_module.so"):
            (self.prefix / "modules" / module).symlink_to(MODULES / module)
        (self.prefix / "modules" / MODULE).symlink_to(BUILD / MODULE)

    def test(self):
        """nginx -t says that all is well, and warns of nothing."""
        run = subprocess.run([NGINX, "-t", *self._arguments()], check=False,
                             capture_output=True, text=True)
        assert run.returncode == 0 and "[" not in run.stderr, run.stderr
        assert "test is successful" in run.stderr, run.stderr

    def write(self, text):
        """nginx.conf: only ports, directories and a time are replaced."""
        def replace(old, new, times=1):
            nonlocal text
            assert text.count(old) == times, (old, text.count(old))
            text = text.replace(old, new)

        alone = text == ALONE
        replace("listen  8080;", f"listen  127.0.0.1:{self.port};")
        if not alone:
            replace("redis://127.0.0.1:6379",
                    f"redis://127.0.0.1:{self.redis_port}")
        for worker, address in WORKERS.items():
            replace(f"main {worker} {address};",
                    f"main {worker} {self.engines[worker]};")
        if alone:
            replace("/tmp/kv-alone.pid", f"{self.prefix}/nginx.pid")
            replace("/tmp/kv-alone.", f"{self.prefix}/", 2)
            # a busy machine needs more than 50 ms for the token ids
            replace('new("main")', 'new("main", { tokenizer_timeout = 30 })')
        else:
            replace("/var/log/nginx/", f"{self.prefix}/", 2)
        if "\npid " in text:
            text = text.replace("/run/nginx.pid", f"{self.prefix}/nginx.pid")
            if os.geteuid() != 0:       # nginx warns of it
                text = re.sub(r"^user .*\n", "", text, flags=re.MULTILINE)
        else:
            text = f"pid {self.prefix}/nginx.pid;\n" + text
        paths = "".join(f"    {name}_temp_path {self.prefix}/{name};\n"
                        for name in TEMP_PATHS)
        replace("\nhttp {\n", "\nhttp {\n" + paths)
        (self.prefix / "nginx.conf").write_text(text)

    def _arguments(self):
        return ["-p", f"{self.prefix}/", "-c", "nginx.conf",
                "-e", f"{self.prefix}/error.log"]

    def run(self, events=True):
        """Starts nginx with what was installed, and waits for its events, if
        there are to be some."""
        self.nginx = self._spawn(f"nginx-{self.prefix.name}", [
            NGINX, *self._arguments(), "-g", "daemon off;"])

        def subscribed():
            self.nginx.check_alive()
            try:
                status = self.json("GET", "/status")
            except urllib.error.URLError:
                return False
            return not events or status["redis"]["up"] and all(
                worker["counters"]["heartbeats"]
                for worker in status["workers"])
        wait_until("events flow", subscribed)

    def end(self):
        """Stops nginx; what it logged must be harmless.  On a busy machine a
        policy may be interrupted, and told to be slow."""
        self.nginx.stop()
        for line in (self.prefix / "error.log").read_text().splitlines():
            # a busy machine is late: with a decision, token ids, or metrics
            late = (" pick() took ", "timeout, routed by load",
                    "of it is not read: timeout")
            assert any(text in line for text in late) or not re.search(
                r"\[(emerg|alert|crit|error|warn)\]", line), line

    # ------------------------------------------------------------- requests

    def send(self, method, path, headers=None, body=None):
        """Status and body of an answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", method=method,
            data=None if body is None else body.encode(),
            headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as err:
            return err.code, err.read().decode()

    def json(self, *request):
        """The JSON of an answer that is a success."""
        status, text = self.send(*request)
        assert status in (200, 201), (request, status, text)
        return json.loads(text)

    def complete(self, command):
        """Sends a completion; its events have arrived when this returns."""
        before = self.stored()
        answer = self.json(*command)
        if not answer["usage"]["prompt_tokens_details"]["cached_tokens"]:
            wait_until("its blocks are in the index",
                       lambda: self.stored() > before)
        return answer

    def logged_workers(self):
        """The workers that the access log names."""
        return set(re.findall(r" worker=(\w+)", self.log.read_text()))

    def stored(self):
        """Blocks that all workers have ever stored."""
        return sum(worker["counters"]["blocks_stored"]
                   for worker in self.json("GET", "/kv/workers"))

    def line(self, *request):
        """The line of the access log of a request that is a success."""
        before = len(self.log.read_text().splitlines())
        self.answer = self.json(*request)
        (line,) = wait_until("the line in the log", lambda:
                             self.log.read_text().splitlines()[before:])
        return line

    def logged(self, want):
        """Waits until the last line of the access log has this in it."""
        wait_until(f"{want} in the log", lambda: want in (
            self.log.read_text().splitlines() or [""])[-1])


def chat_and_complete():
    """Sends the commands of the synopsis, and checks their answers."""
    first, second, prompt, query, workers, metrics = commands("Synopsis")
    assert first == second
    at.complete(first)
    # a busy machine is late with token ids: that one goes by load
    wait_until("the second chat finds what the first one left", lambda:
               at.complete(second)["usage"]["prompt_tokens_details"][
                   "cached_tokens"])
    wait_until("a chat goes by overlap", lambda:
               'reason="overlap"' in at.log.read_text()
               or at.complete(second) is None)
    at.complete(prompt)
    scores = at.json(*query)["scores"]
    assert [score["device"] for score in scores] == [6], scores
    assert scores[0]["worker_id"] in WORKERS
    assert [worker["worker_id"] for worker in at.json(*workers)] \
        == list(WORKERS)
    status, text = at.send(*metrics)
    assert status == 200
    return text


# -------------------------------------------------------------------- tests

def the_relays_run():
    """the relays of the documentation start with the options they have there"""
    lines = [line for line in "".join(
        blocks("sh", section("Attaching engines"))).splitlines()
        if line.startswith("kv-relay ")]
    assert len(lines) >= 3, lines
    worker = at.processes[-1]
    for number, line in enumerate(lines):
        sockets = line.count("ipc:///run/kv/w1.")
        assert sockets == (0 if "--trtllm" in line else 2), line
        for old, new in (
                ("w1", f"r{number}"), ("127.0.0.1:8001", worker.address),
                ("redis://127.0.0.1:6379",
                 f"redis://127.0.0.1:{at.redis_port}"),
                ("ipc:///run/kv/w1.events", worker.events),
                ("ipc:///run/kv/w1.replay", worker.replay)):
            line = line.replace(old, new)
        relay = Process(f"relay-{number}",
                        [str(BUILD / "kv-relay"), *shlex.split(line)[1:]],
                        at.directory)
        try:
            def ready(relay=relay):
                relay.check_alive()
                return 'msg="ready"' in relay.log.read_text()
            wait_until(line, ready)
            relay.signal(signal.SIGTERM)
            wait_until("it ends", lambda one=relay: one.status() is not None)
        finally:
            relay.stop()
        assert relay.status() == 0, relay.tail()


def failures_are_named():
    """what is seen by the pages when engines are attached wrong is said"""
    said = "".join(path.read_text() for folder in ("src", "ngx_module", "relay")
                   for path in (ROOT / folder).rglob("*.c"))
    said = re.sub(r'"\s*\n\s*"', "", said)
    for text in ("the engine was not reached yet", "an event was refused: ",
                 "no multiple of --block-size", "there is no --replay",
                 "block size is not the zone's",
                 "which is no multiple of the zone's",
                 "stored other blocks than those of the prompts that it "
                 "answered", "was ever received"):
        assert text in said, text
        assert text in section("Do events arrive?"), text


def links_lead_somewhere():
    """every link of every page leads to a file and a heading that are there"""
    anchors, wrong, seen = {}, [], 0
    rooms = [path for path in ROOT.iterdir()
             if path.is_dir() and path.name not in ("build", ".git")]
    for path in [*ROOT.glob("*.md"), *(page for room in rooms
                                       for page in room.rglob("*.md"))]:
        anchors[path] = {anchor(line) for mark, line
                         in lines(path.read_text()) if mark}
    for path in anchors:
        for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
            if re.match("[a-z]+:", link):
                continue
            name, _, where = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            seen += 1
            if not target.exists() \
                    or where and where not in anchors.get(target, ()):
                wrong.append(f"{path.relative_to(ROOT)}: {link}")
    assert not wrong and seen > 100, (seen, wrong)


def messages_are_sorted():
    """the log messages of docs/messages.md are sorted by their text"""
    rows = re.findall(r"^\| (`.*?) \| [a-z, ]+ \|", section("Log messages")
                      .split("## Mistakes")[0], re.M)
    keys = [re.sub("[^a-z0-9 ]", "", re.sub(
        '(kv_router:? ?|_?zone "main":? ?)|^`', "", row.lower())).strip()
        for row in rows]
    assert len(keys) > 40 and keys == sorted(keys), [
        (a, b) for a, b in zip(keys, keys[1:]) if a > b]


def sentences_are_short():
    """sentences of each page have 20 words on average, or fewer"""
    page = at.directory / "sentences.md"
    page.write_text("# A title of no account\n\nOne two three. Four (five) "
                    "six seven,\neight nine? `ten` eleven\n\n| a | b |\n\n"
                    "```\nno words\n```\n* Twelve thirteen.\n")

    def counted(*pages):
        return subprocess.run([ROOT / "util/sentences", *pages], check=True,
                              capture_output=True, text=True).stdout
    assert "    4 sentences,  3.2 words,  0.0 % over 25" in counted(page), \
        counted(page)
    rooms = [ROOT / room / "README.md" for room in ("relay", "demo", "bench")]
    told = counted(*(ROOT / name for name in PAGES), *rooms).splitlines()
    assert len(told) == len(PAGES) + len(rooms) + 1, told
    for line in told:
        assert float(re.search(r"([\d.]+) words", line)[1]) <= 20, line


def the_quick_start_is_accepted():
    """the nginx.conf of the quick start is accepted by nginx -t"""
    (text,) = blocks("nginx", section("Quick start"))
    include = "include /etc/nginx/modules-enabled/*.conf;\n"
    assert text.count(include) == 1
    at.lay("quick")
    text = text.replace(include, "".join(
        f"load_module modules/{name};\n" for name in (
            "ndk_http_module.so", "ngx_http_lua_module.so", MODULE)))
    (at.prefix / "nginx.conf").write_text(
        f"pid {at.prefix}/nginx.pid;\n"
        + text.replace("/var/log/nginx/", f"{at.prefix}/"))
    at.test()


def nginx_alone_is_accepted():
    """conf/alone.conf is accepted by nginx -t"""
    assert "redis" not in re.sub("#.*", "", ALONE)
    assert [line.split("  #")[0].strip() for line in shell("Quick start")
            if line.startswith("nginx ")] == [
                'nginx -c "$PWD/conf/alone.conf"' + more
                for more in (" -s reload", " -s stop", "")]
    assert len("".join(blocks("sh", section("Installation")) + blocks(
        "console", section("Quick start"))).splitlines()) <= 12
    at.install("alone", ALONE)


def nginx_alone_disturbs_no_other():
    """conf/alone.conf has a pid and logs of its own"""
    for mine in (r"pid\s+(\S+);", r"error_log\s+(\S+) warn;",
                 r"access_log\s+(\S+) kv;"):
        path = re.search(mine, ALONE)[1]
        assert path.startswith("/tmp/kv-alone."), path


def samples_tell_what_is_wrong():
    """the samples log warnings, and which engine answered a request when"""
    router = (ROOT / "deploy/chart/nginx.conf").read_text()
    for text in (SAMPLE, ALONE, router, *blocks("nginx", section("Synopsis")),
                 *blocks("nginx", section("Quick start"))):
        assert re.search(r"^ *error_log +\S+ warn;", text, re.M), text
        log = re.search(r"log_format +kv +([^;]*);\s+access_log +\S+ kv;", text)
        for name in ("kv_router_worker", "kv_router_reason", "upstream_addr",
                     "upstream_status", "upstream_header_time"):
            assert log and f"${name}" in log[1], (name, text)


def nginx_alone_runs():
    """nginx alone sends a chat that goes on where its beginning went"""
    at.run(events=False)
    wait_until("the caches' sizes are known, and who can be asked", lambda: all(
        worker["estimates"][0]["source"] == "scraped" and worker["probe"]
        for worker in at.json("GET", "/status")["workers"]))
    first, second = commands("Quick start")
    workers = []
    for overlap, command in (("0", first), ("[1-9][0-9]*", second)):
        line = at.line(*command)
        fields = re.search(rf"worker=(\w+) overlap={overlap} .* "
                           "confidence=ESTIMATED ", line)
        assert fields, line
        workers.append(fields[1])
        assert f'"usage": {json.dumps(at.answer["usage"])}}}\n' \
            in section("Quick start"), at.answer
        wait_until("the estimate knows of it", lambda: at.json(
            "GET", "/status")["routed"]["unread"] == 0)
    assert workers[0] == workers[1], workers
    agreement(line)
    (cut,), (told,) = shell("Does it work?"), blocks(
        "console", section("Does it work?"))
    said = subprocess.run(cut.replace("/tmp/kv-alone.access.log", str(at.log)),
                          shell=True, check=True, capture_output=True,
                          text=True).stdout
    assert f"$ {cut}\n{said}".replace("=w2", "=w1") == told, said
    ids = commands("Synopsis")[2]
    for command, is_there in ((second, True), (ids, False), (ids, True)):
        line = at.line(*command)
        if is_there:
            agreement(line)
        wait_until("the estimate knows of it", lambda: at.json(
            "GET", "/status")["routed"]["unread"] == 0)
    at.end()


def the_synopsis_is_accepted():
    """the synopsis is accepted by nginx -t"""
    texts = blocks("nginx", section("Synopsis"))
    assert len(texts) == 1
    at.install("synopsis", texts[0])


def the_synopsis_runs():
    """the synopsis runs, and its commands do what they say"""
    at.run()
    metrics = chat_and_complete()
    names = set(re.findall(r"^# TYPE (\S+)", metrics, re.MULTILINE))
    assert len(names) > 50, names
    missing = [name for name in sorted(names) if f"`{name}`" not in DOCS]
    assert not missing, missing
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)", metrics, re.MULTILINE):
        assert kind == (
            "counter" if name.endswith("_total") else "histogram" if re.search(
                "_(duration|wait|first_byte)_seconds$", name) else "gauge"), name
    here = DOCS.replace(section("Renamed and removed"), "")
    known = {name for name in re.findall(r"`(kv_router_\w+)", here)
             if re.match(r"kv_router_(worker|redis)_\w|\w+_total$", name)
             and not re.match("kv_router_(turn_cache|local|models|queue)_", name)}
    assert not known - names, known - names


def the_api_answers_as_documented():
    """the commands of the HTTP API do what they say"""
    answers = [at.json(*command) for command in commands("HTTP API")]
    put, events, query, hashes, route, selected, drain, delete = answers
    assert (put["worker_id"], put["origin"]) == ("w3", "api")
    assert events == {"applied": 1, "refused": []}
    assert query["scores"] == [{"worker_id": "w3", "dp_rank": 0, "device": 2,
                                "host": 2, "disk": 2}]
    assert len(hashes["local"]) == len(hashes["sequence"]) == 1
    assert route["policy"] == "kv_cost" and route["chosen"], route
    assert len(selected["id"]) == 36 and selected["address"], selected
    assert drain["draining"] is True
    assert delete == {"worker_id": "w3", "deleted": True}


def the_calls_of_the_api_are_documented():
    """every call of the HTTP API is in docs/api.md"""
    status, text = at.send("GET", "/kv/nothing")
    assert status == 404
    calls = re.findall(r"(GET|POST|PUT|DELETE) ([\w/]+)",
                       json.loads(text)["error"])
    assert len(calls) >= 10
    missing = [call for call in calls
               if f"`{call[0]} /{call[1]}`" not in section("HTTP API")]
    assert not missing, missing


def the_api_is_that_of_openapi():
    """docs/openapi.json has every call, and the answers are as it says"""
    api = json.loads((ROOT / "docs/openapi.json").read_text())
    calls = {(method.upper(), path) for path, item in api["paths"].items()
             for method in item if method != "parameters"}
    told = json.loads(at.send("GET", "/kv/nothing")[1])["error"]
    names = {"ID": "{id}", "ZONE": "{zone}"}
    assert calls == {
        (method, "/" + "/".join(names.get(part, part)
                                for part in path.split("/")))
        for method, path in re.findall(r"(GET|POST|PUT|DELETE) ([\w/]+)",
                                       told)}, (calls, told)
    order = ["putWorker", "events", "drainWorker", "deleteWorker"]
    ask = {item["operationId"]: (method.upper(), path, item)
           for path, items in api["paths"].items()
           for method, item in items.items() if method != "parameters"}
    for name in [*order[:2], *(set(ask) - set(order)), *order[2:]]:
        method, path, call = ask[name]
        path = path.replace("{id}", "w3").replace("{zone}", "none")
        bodies = call.get("requestBody", {}).get("content", {})
        example = bodies.get("application/json", {}).get("example")
        conforms(api, name, call, at.send(
            method, "/kv" + path, None,
            None if example is None else json.dumps(example)))
        # a body that is not JSON is routed by load there
        if bodies and name not in ("route", "select"):
            answer = at.send(method, "/kv" + path, None, "{")
            assert 400 <= answer[0] < 500, (name, answer)
            conforms(api, name, call, answer)


def conforms(api, name, call, answer):
    """Not a test: an answer is one that the call has, by its schema."""
    status, text = answer
    assert str(status) in call["responses"], (name, status, text)
    response = call["responses"][str(status)]
    if "$ref" in response:
        response = api["components"]["responses"][
            response["$ref"].rpartition("/")[2]]
    (kind, content), = response["content"].items()
    body = json.loads(text) if kind == "application/json" else text
    jsonschema.Draft202012Validator(
        {**content["schema"], "components": api["components"]}).validate(body)


def the_publisher_publishes():
    """the publisher in Python feeds the index, and its worker is EXACT"""
    (program,) = blocks("python", section("Feeding events"))
    assert program.count("port=6379") == 1
    exec(compile(program.replace("6379", str(at.redis_port)), "events.md",
                 "exec"), {})
    scores = wait_until("its blocks are found", lambda: [
        score for score in at.json(
            "POST", "/kv/query_by_hash", None,
            '{"block_hashes":[901,902,903]}')["scores"]
        if score["device"] == 2])
    assert scores == [{"worker_id": "w9", "dp_rank": 0, "device": 2,
                       "host": 2, "disk": 2}]
    (worker,) = (worker for worker in at.json("GET", "/kv/workers")
                 if worker["worker_id"] == "w9")
    assert worker["confidence"] == "EXACT", worker


def the_sample_policy_decides():
    """conf/policy/tiers.lua keeps batch jobs and premium tenants apart"""
    shutil.copytree(ROOT / "conf" / "policy", at.directory / "lua" / "policy")
    (text,) = blocks("nginx", section("Synopsis"))
    at.write(text.replace('policy = "kv_cost"', 'policy = "policy.tiers"'))
    at.nginx.signal(signal.SIGHUP)
    method, path, headers, body = commands("Synopsis")[2]

    def served(tier):
        """The workers of ten requests."""
        def lines():
            return at.log.read_text().splitlines()
        before = len(lines())
        for _ in range(10):
            at.json(method, path, {**headers, "x-tier": tier}, body)
        wait_until("ten lines", lambda: len(lines()) >= before + 10)
        return set(re.findall(r" worker=(\w+)", "".join(lines()[before:])))

    def apart():
        return len(served("batch")) == len(served("premium")) == 1 \
            and served("batch") != served("premium")
    wait_until("the sample policy", apart)
    assert served("batch") | served("premium") == set(WORKERS)


def the_policy_decides():
    """the policy of the documentation decides after a reload, with the same index"""
    policy = next(text for text in blocks("lua", section("Writing a policy"))
                  if text.startswith("-- acme/eager.lua:"))
    folder = at.directory / "lua" / "acme"
    folder.mkdir(parents=True)
    (folder / "eager.lua").write_text(policy)
    (text,) = blocks("nginx", section("Synopsis"))
    assert text.count('policy = "kv_cost"') == 1
    at.write(text.replace('policy = "kv_cost"', 'policy = "acme.eager"'))
    prompt, query = commands("Synopsis")[2:4]
    scores = at.json(*query)["scores"]
    at.nginx.signal(signal.SIGHUP)

    def decided():
        at.json(*prompt)
        return 'reason="eager"' in at.log.read_text()
    wait_until("the new policy", decided)
    assert at.json(*query)["scores"] == scores
    at.end()


def the_sample_is_accepted():
    """conf/nginx.conf is accepted by nginx -t"""
    at.install("sample", SAMPLE)


def the_sample_runs():
    """conf/nginx.conf runs, and logs every variable"""
    at.run()
    # what the synopsis left cached would hide what this one does
    for address in at.engines.values():
        urllib.request.urlopen(urllib.request.Request(
            f"http://{address}/reset_prefix_cache", method="POST"),
            timeout=WAIT_SECONDS)
    wait_until("the caches are empty", lambda: not [
        score for score in at.json(*commands("Synopsis")[3])["scores"]
        if score["worker_id"] in WORKERS])
    chat_and_complete()
    workers, query = commands("Do events arrive?")
    assert all(worker["counters"]["blocks_stored"]
               and worker["confidence"] == "EXACT"
               for worker in at.json(*workers)
               if worker["worker_id"] in at.logged_workers())
    assert at.json(*query)["scores"]
    lines = at.log.read_text().splitlines()
    assert len(lines) >= 3, lines
    for line in lines:
        fields = dict(re.findall(r'(\w+)=("[^"]*"|\S+)', line))
        assert fields["worker"] in WORKERS, line
        assert fields["policy"] == "kv_cost", line
        assert fields["confidence"] in ("EXACT", "UNKNOWN"), line
        assert "-" not in fields.values(), line
        assert re.fullmatch(r"\d+\.\d{6}", fields["decided"]), line
    at.end()


def names_are_documented():
    """every directive, variable and policy is in the documentation and CHANGES"""
    sources = "".join(path.read_text()
                      for path in (ROOT / "ngx_module").rglob("*.c"))
    changes = (ROOT / "CHANGES").read_text()
    names = set(re.findall(r'(?:ngx_string|X)\("(kv_router_\w+)"[,)]', sources))
    gone = set(re.findall(r'\{ "(kv_router_\w+)",', sources))
    assert gone, "the directives that are gone"
    for name in gone:
        assert f"| `{name}` |" in section("Renamed and removed"), name
    names -= gone
    assert len(names) > 14, names
    variables = {name for name in names if f"$kv_router_{name[10:]}" in DOCS}
    for name in names - variables:
        assert f"### {name}\n" in DOCS, name
        assert f'"{name}"' in changes, name
    for name in variables:
        assert f"`${name}`" in section("Variables"), name
        assert f"${name}" in changes, name
    policies = list((ROOT / "lua/resty/kv_router/policy").glob("*.lua"))
    assert policies
    for path in policies:
        assert f"| `{path.stem}` |" in section("Policies"), path


def directives_are_whole():
    """every directive has its contexts, its parameters in a table, an example"""
    page, wrong = PAGES["docs/configuration.md"], []
    names = re.findall(r"^### (kv_router_\w+)$", page, re.M)
    assert len(names) > 9, names
    for name in names:
        text = "".join(re.findall(
            rf"^##+ {name}\n(.*?)(?=^##[#]? |\Z)", DOCS, re.M | re.S))
        syntax = re.search(rf"\*\*syntax:\*\* `{name} (.*?);`", text)[1]
        told = re.findall(r"^\*\*(default|context):\*\* \S", text, re.M)
        if told[:2] != ["default", "context"]:
            wrong.append(f"{name}: its default or context")
        if not any(re.search(rf"^ *{name} ", example, re.M)
                   for example in blocks("nginx", text)):
            wrong.append(f"{name}: an example")
        rows = {cell for row in re.findall(r"^\| ([^|]*) \| [^|]+ \| .+ \|$",
                                           text, re.M)
                for cell in re.findall(r"`(\w+)`", row)}
        wrong += [f"{name}: a row of {one or two}" for one, two
                  in re.findall(r"(\w+)=|\[(\w+)\]", syntax)
                  if not {one, two} & rows]
    assert not wrong, wrong


def values_of_the_chart_are_told():
    """docs/kubernetes.md has each value of the chart, with its default"""
    rows = re.findall(r"^\| `([\w.]+)` \| `(.*?)` \| .+ \|$",
                      section("Values"), re.M)
    told = {name: yaml.safe_load(default) for name, default in rows}

    def leaves(values, start=""):
        for name, value in values.items():
            if start + name in told or not isinstance(value, dict):
                yield start + name, value
            else:
                yield from leaves(value, f"{start}{name}.")
    assert told == dict(leaves(yaml.safe_load(
        (ROOT / "deploy/chart/values.yaml").read_text()))), told


def main():
    global at
    directory = Path(tempfile.mkdtemp(prefix="kv-router-test-"))
    directory.chmod(0o755)              # nginx's workers are another user
    os.environ["LUA_PATH"] = f"{directory}/lua/?.lua;{ROOT}/lua/?.lua;;"
    at = Fixture(directory)
    try:
        at.start()
        return tap.run([
            names_are_documented,
            directives_are_whole,
            values_of_the_chart_are_told,
            links_lead_somewhere,
            messages_are_sorted,
            sentences_are_short,
            failures_are_named,
            the_relays_run,
            the_quick_start_is_accepted,
            nginx_alone_is_accepted,
            nginx_alone_disturbs_no_other,
            samples_tell_what_is_wrong,
            nginx_alone_runs,
            the_synopsis_is_accepted,
            the_synopsis_runs,
            the_api_answers_as_documented,
            the_calls_of_the_api_are_documented,
            the_api_is_that_of_openapi,
            the_publisher_publishes,
            the_sample_policy_decides,
            the_policy_decides,
            the_sample_is_accepted,
            the_sample_runs])
    finally:
        at.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
