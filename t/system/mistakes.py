"""The mistakes that people make: what is told of each, where, and the remedy.

A row has a name; how it is made (mistakes_made.py); the level; a pattern of the
cause, with the value that is wrong; and a pattern at which the remedy begins,
which stands behind the cause.  Where the words are nginx's or Lua's own there is
no remedy among them: then `hint` is one, for docs/messages.md.
"""

import collections

from mistakes_made import (
    all_down, api, conf, engine_away, engine_down, hangs, local_router,
    missing_engine, new, no_access, no_core_files, no_key, no_lua_files,
    no_template, no_tokenizer, no_tokens, option, other_block_size,
    other_database, password, past, pick, place, redis_away, redis_dies, redis_down,
    registered, relay_dies, same_worker, short_token, unknown_model, NEW)

REDIS = "redis://127.0.0.1:6379"
WORKER = "kv_router_worker main w1 10.0.0.1:8000"
ERROR, WARN, EXIT = "error", "warn", "exit status 1"

Row = collections.namedtuple("Row", "name make level cause remedy hint",
                             defaults=(None, None))


def emerg(name, text, cause, remedy=None, hint=None, **zone):
    """nginx does not accept that."""
    return Row(name, conf(text, **zone), "emerg", cause, remedy, hint)


NGINX_T = (
    emerg("the zone stands behind a directive that names it",
          "kv_router_zone zone=main:8m;",
          'unknown kv_router_zone "main" in "kv_router_redis"',
          "it must be defined before", zone=f"kv_router_redis main {REDIS};"),
    emerg("`mian` in the place of `main`",
          "kv_router_worker mian w1 10.0.0.1:8000;",
          'unknown kv_router_zone "mian" in "kv_router_worker"',
          "it must be defined"),
    emerg("the URL of Redis has no scheme",
          "kv_router_redis main 127.0.0.1:6379;", '"127.0.0.1:6379"',
          "the parameters are URLs"),
    emerg("the database of Redis is no number",
          f"kv_router_redis main {REDIS}/one;", "/one.* has a wrong db",
          "it must be 0"),
    emerg("`zone=main:4m`", "", "4m is too small", "write zone=main:5m",
          zone="kv_router_zone zone=main:4m;"),
    emerg("`zone=main:1g`", "", "zone=main:1g", "it must be a name",
          zone="kv_router_zone zone=main:1g;"),
    emerg("`blocksize=16`", "", "blocksize=16", "the parameters are",
          zone="kv_router_zone zone=main:8m blocksize=16;"),
    emerg("a zone is defined twice", "kv_router_zone zone=main:8m;",
          '"main" is already defined', "each needs a name"),
    Row("two zones have one Redis, and no models", conf(
        "kv_router_zone zone=other:8m; "
        f"kv_router_redis main {REDIS}; kv_router_redis other {REDIS};"),
        WARN, '"main".* and "other".* have the same Redis', 'give each zone'),
    emerg("a worker is there twice", f"{WORKER}; {WORKER};",
          'duplicate worker "w1"', "each needs an id"),
    Row("two workers have one address", conf(
        f"{WORKER}; {WORKER.replace('w1', 'w2')};"), WARN,
        '"w1" and "w2" .* the same address 10.0.0.1:8000',
        "leave one of them out"),
    emerg("a worker's address has a scheme",
          "kv_router_worker main w1 http://10.0.0.1:8000;",
          '"http://10.0.0.1:8000" .* an address has no scheme',
          'write "host:port"'),
    emerg("a worker's address has no port", "kv_router_worker main w1 10.0.0.1;",
          'no port in address "10.0.0.1"', "write "),
    emerg("a worker's port is too large",
          "kv_router_worker main w1 10.0.0.1:99999;",
          'invalid port in worker "10.0.0.1:99999"',
          hint="a port is at most 65535"),
    emerg("a worker has no address", "kv_router_worker main w1;",
          '"kv_router_worker" directive',
          "is missing the worker's address"),
    emerg("a worker's id has another character",
          "kv_router_worker main w/1 10.0.0.1:8000;", '"w/1"', "it must be"),
    emerg("`engine=vlm`", f"{WORKER} engine=vlm;", "engine=vlm", "it must be"),
    emerg("`role=prefil`", f"{WORKER} role=prefil;", "role=prefil",
          "it must be"),
    emerg("`weight=0`", f"{WORKER} weight=0;", "weight=0", "it must be"),
    emerg("`kv_router_health main check=health`",
          "kv_router_health main check=health;", "check=health", "it must be"),
    emerg("`kv_router_health main chek=/health`",
          "kv_router_health main chek=/health;", "chek=/health",
          "the parameters are"),
    emerg("the directory of the model is not there",
          "kv_router_model main nowhere engine=vllm;",
          'nowhere".* No such file', "kv-model-dump makes it"),
    emerg("the Lua module is not loaded", 'lua_package_path ";;";',
          "lua_package_path", load=(),
          hint="use `load_module` for `ndk_http_module.so` and "
          "`ngx_http_lua_module.so`"),
    Row("`kv_router_api main readonly`", place("kv_router_api main readonly;"),
        "emerg", '"readonly"', "the parameters are"),
    Row("the token file is not there", place(
        "kv_router_api main token_file=nowhere;"), "emerg",
        'nowhere" is missing', "it must have"),
    Row("the token is too short", short_token, "emerg", 'short" is too short',
        "it must have"),
)

START = (
    Row('`kv.new("mian")`', lambda bench: bench.refused(
        (NEW % "").replace("main", "mian")), ERROR,
        'no kv_router_zone "mian"', "did you mean"),
    Row('`tokeniser = "auto"`', new('tokeniser = "auto"'), ERROR,
        'setting "tokeniser"', "did you mean"),
    Row('`tokenizer = "autto"`', new('tokenizer = "autto"'), ERROR,
        '"tokenizer"', 'must be .*not "autto"'),
    Row('`tokenizer = "local"` without a model', new('tokenizer = "local"'),
        ERROR, '"local": zone "main" has no model', "add kv_router_model"),
    Row('`tokenizer = "none"` beside `kv_router_redis`', no_tokenizer, WARN,
        '"none" in kv.new.*no overlap', "leave the setting out"),
    Row("`overload_status = 999`", new("overload_status = 999"), ERROR,
        '"overload_status"', "must be from .* not 999"),
    Row('`overlap_credit = "2"`', new(
        'policy_conf = { overlap_credit = "2" }'), ERROR, '"overlap_credit"',
        "must be a number, not string"),
    Row("`overlap_credt = 1`", new("policy_conf = { overlap_credt = 1 }"),
        ERROR, '"overlap_credt"', "did you mean"),
    Row('`policy = "kv_cots"`', new('policy = "kv_cots"'), ERROR,
        'policy "kv_cots"', "did you mean"),
    Row("a policy's module is in no folder of `lua_package_path`", new(
        'policy = "acme.premum"'), ERROR, '"acme.premum"',
        "no file of lua_package_path has it"),
    Row("a policy has no `new`", new('policy = "acme.nonew"', (
        "acme/nonew.lua", "return {}\n")), ERROR, '"acme.nonew"',
        r"has no function new\(conf\)"),
    Row("a policy has a syntax error", new('policy = "acme.typo"', (
        "acme/typo.lua", "return 1 +\n")), ERROR,
        "typo.lua:2: unexpected symbol", hint="correct the line that is named"),
    Row("`lua_package_path` does not have the Lua library", no_lua_files,
        ERROR, "module 'resty.kv_router' not found",
        hint="add the library's folder, and end the path with `;;`"),
    Row("`lua_package_path` without `;;`", no_core_files, "alert",
        "failed to load the 'resty.core' module", hint="end the path with `;;`"),
)

CHECK = (
    Row("`while true do end` in `pick()`", pick("while true do end"), EXIT,
        "context 1 .* more than 2 s", "an endless loop"),
    Row("`ngx.sleep(1)` in `pick()`", pick("ngx.sleep(1) return 1"), EXIT,
        "pick: it yielded", "which a policy may not"),
    Row('`return "w9999"`', pick('return "w9999"'), EXIT,
        'it returned worker "w9999" rank 0, which is no candidate',
        hint="return one of `ctx.candidates`, or its number"),
    Row("`pick()` returns nothing", pick("return"), EXIT,
        "it returned nothing", "pick.. must return"),
    Row("`c.overlap` of a candidate", pick(
        "return ctx.candidates[1].overlap > 3 and 1 or 2"), EXIT,
        'no field "overlap"', "it has"),
    Row("`ctx.tokens`", pick("return ctx.tokens and 1 or 1"), EXIT,
        'ctx has no field "tokens"', "it has"),
    Row("a global variable in `pick()`", pick("count = 1 return 1"), EXIT,
        '"count" is global', 'write "local"'),
)

RUNS = (
    Row("`local router =` in `init_by_lua_block`", local_router, ERROR,
        "attempt to index global 'router'",
        hint="write `router = ...` there, without `local`"),
    Row("a location has no `router:access()`", no_access, ERROR,
        "was not routed in its access phase", "write access_by_lua_block"),
    Row("`proxy_pass` names an engine, not the upstream",
        past("127.0.0.1:ENGINE/"), ERROR,
        '"w1" at .*, but the request went to "127.0.0.1:8001"',
        '"proxy_pass" must name'),
    Row("the upstream has no balancer", past("bare"), ERROR,
        'went to "0.0.0.1:80"', '"proxy_pass" must name'),
    Row("a request names a model that no worker has", unknown_model, WARN,
        'no worker serves the model "demo"', "unknown_model = "),
    Row('texts come, and `tokenizer = "none"`', no_tokens('tokenizer = "none"'),
        WARN, "no tokenizer is configured", "set tokenizer"),
    Row('`tokenizer = "auto"`, and no engine makes token ids',
        no_tokens('tokenizer = "auto"'), WARN, "no engine can be asked",
        "start vLLM with"),
    Row('`tokenizer = "local"`, and the model has no chat template',
        no_template, ERROR, "no chat template", "put the engine's"),
    Row("engines want a key", no_key, ERROR, '"w1" .* status 401',
        "set its key"),
    Row("an engine is down", engine_down, WARN,
        '"w1" is out .* the last one: connect',
        hint="start the engine, or correct its address"),
    Row("all engines are down: what clients get with `conf/nginx.conf`",
        all_down, "status 502", "the engine failed", hint="start an engine"),
    Row("`check=/healthz`, and the engine has none", missing_engine(
        "/healthz", more="kv_router_health main check=/healthz interval=100ms;"
        ), ERROR, '"w1" is down: 3 checks of "/healthz" .* status 404',
        hint="write a URI that the engine has"),
    Row("`kv_router_scrape main uri=/metric`", missing_engine(
        "/metric", more="kv_router_scrape main uri=/metric interval=100ms;"),
        WARN, '"w1" .*"/metric" .* status 404',
        hint="write a URI that the engine has"),
    Row("`pick()` does not end", hangs, ERROR,
        'process 4711 hangs .* "acme.hangs"', "try the policy"),
    Row("the port of Redis is wrong", redis_down, ERROR,
        "Connection refused.* redis: .*127.0.0.1:9999",
        hint="start Redis, or correct the URL of `kv_router_redis`"),
    Row("Redis is down: what the status page says", redis_dies, "DEGRADED",
        "reason redis_down", hint="start Redis"),
    Row("a password for a Redis that has none", password, ERROR,
        "refused the password: .*AUTH.* without any password",
        hint="leave the password out of the URL"),
    Row("engine and relay have another block size than the zone",
        registered(block_size="32"), ERROR, "it is 32, .* block_size=16",
        "start engine and relay with"),
    Row("the relay has another model than the zone",
        registered(model="llama", block_size="16"), ERROR,
        'it is "llama", .* served=qwen3', "correct one of them"),
    Row("the relay has another `--channel`", registered(
        model="qwen3", channel="kv-other:"), ERROR,
        '"w2" .* --channel "kv-other:".*"kv-events:"', "write the same"),
    Row("the relay's URL names another database of Redis", other_database,
        ERROR, '"w1" .* are lost.* "kv-log:{w1}"', "is its kv-relay's database"),
    Row("the relay's `--worker` is another id than that of `kv_router_worker`",
        registered(True, "engine1", model="qwen3", address="0.0.0.1:9"), WARN,
        '"w1" and "engine1" have the same address 0.0.0.1:9',
        "leave one of them out"),
    Row("the relay registers a host name, and nginx has no resolver",
        registered(model="qwen3", address="engine-1:8000"), ERROR,
        'needs the directive "resolver"', "add it"),
    Row("the relay dies", relay_dies, ERROR,
        'nothing was heard of worker "w1" for', "is its kv-relay running"),
)

API = (
    Row("a page of another site calls the HTTP API", api(
        "", "POST", "workers/w1/drain", Origin="http://evil.example"),
        "status 403", '"http://evil.example"', "call it without"),
    Row("the same, by a browser that does not send `Origin`", api(
        "", "DELETE", "workers/w1", Sec_Fetch_Site="cross-site"), "status 403",
        '"cross-site"', "call it without"),
    Row("a change by a name of the API's server that is no `server_name`", api(
        "", "DELETE", "workers/w1", Host="kv.internal"), "status 403",
        '"kv.internal" is no name', "call .* by an address"),
    Row("a change by a location that is `read_only`", api(
        "read_only", "DELETE", "workers/w1"), "status 403",
        '"workers/ID" changes zone "main", .* read_only',
        hint="use a location without `read_only`"),
    Row("a call without the token", api(
        "token_file=token", "GET", "workers"), "status 401",
        "the token is missing or wrong", "send "),
)

RELAY = (
    Row("`--events tcp://*:5557`", option("--events", "tcp://*:5557"),
        "exit status 2", r'"tcp://\*:5557"', "give the engine's host"),
    Row("`--events 127.0.0.1:5557`", option("--events", "127.0.0.1:5557"),
        "exit status 2", '"127.0.0.1:5557"', "is neither tcp://host:port"),
    Row("`--redis http://redis`", option("--redis", "http://redis"),
        "exit status 2", "--redis URL 1", "begins with none of"),
    Row("`--address engine-1`", option("--address", "engine-1"),
        "exit status 2", '"engine-1"', "is not host:port"),
    Row("`--block-size 0`", option("--block-size", "0"), "exit status 2",
        "--block-size", "must be 1 to 1024, not 0"),
    Row("`--engine sgl`", option("--engine", "sgl"), "exit status 2",
        "--engine", 'must be .*, not "sgl"'),
    Row("`--reddis`", option("--reddis", "x"), "exit status 2", "--reddis",
        "see --help"),
    Row("the relay does not reach its engine", engine_away, "level=warn",
        'endpoint="tcp://127.0.0.1:9999".* why=', "remedy="),
    Row("the relay does not reach Redis", redis_away, "level=warn",
        "redis=127.0.0.1:9999.* why=", hint="start Redis, or correct `--redis`"),
    Row("the engine's blocks are no multiple of `--block-size`",
        other_block_size, "level=warn",
        "the engine's is 24, no multiple of --block-size 16",
        hint="give relay and zone a block size that divides the engine's"),
    Row("a second engine's relay has the `--worker` of the first one",
        same_worker, "level=warn",
        'address="10.0.0.2:8000" other="10.0.0.1:8000"', "remedy="),
)

MISTAKES = NGINX_T + START + CHECK + RUNS + API + RELAY
