# The status page, for people and for Prometheus.

use lib 't/lib';
use KVRouter;

scripts(http_config => <<'_EOC_', config => <<'_EOC_');
    kv_router_zone    zone=main:16m block_size=4 served=llama;
    kv_router_zone    zone=other:8m;
    kv_router_prefix_cache  zone=texts:2m;
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 ranks=2 events=on;

    upstream engines {
        server  0.0.0.1;
        balancer_by_lua_block { router:balance() }
    }

    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none" })
    }

    server {
        listen    127.0.0.1:$TEST_NGINX_RAND_PORT_1;
        location  / { return 200 "w1\n"; }
    }
_EOC_
    location /kv/ {
        kv_router_api  main;
    }

    location = /status {
        kv_router_status  main;
    }

    location /zones/other {
        kv_router_status  other;
    }

    # no link leads to these

    location ~ ^/by-name$ {
        kv_router_status  other;
    }

    location @named {
        kv_router_status  other;
    }

    location /v1/ {
        access_by_lua_block { router:access() }
        proxy_pass          http://engines;
    }
_EOC_

log_level('info');
no_long_string();
no_shuffle();

plan tests => repeat_each() * blocks() * 5;

run_tests();

__DATA__

=== TEST 1: the page has every field, in this order
--- script
            local function names(text)
                -- of the JSON object itself, not of what is in it
                local list = {}

                text = text:sub(2, -2):gsub("%b{}", ""):gsub("%b[]", "")

                for name in text:gmatch('"([^"]+)":') do
                    list[#list + 1] = name
                end

                return table.concat(list, " ")
            end

            local answer = ask("GET", "/status")
            local body = answer.body:gsub("\n$", "")

            ngx.say(answer.headers["content-type"])
            ngx.say(names(body))

            for _, part in ipairs { "memory", "index", "frequency", "lease",
                                    "requests", "by_reason" }
            do
                ngx.say(part, ": ", names(body:match('"' .. part
                                                     .. '":(%b{})')))
            end

            local worker = body:match('"workers":%[(%b{})')

            ngx.say("shard: ", names(body:match('"shards":%[(%b{})')))
            ngx.say("worker: ", names(worker))
            ngx.say("counters: ", names(worker:match('"counters":(%b{})')))
            ngx.say("load: ", names(worker:match('"load":%[(%b{})')))
--- response_body
application/json
zone model block_size eagle max_workers memory index frequency lease shards uptime version warnings policy waiting times requests questions echoes names routed workers
memory: zone_bytes used_bytes arena_bytes arena_used
index: workers holders blocks pairs handles handles_max runs runs_max holes views_dying forgotten stores_full lookups_torn lookups_cut rollbacks lock_breaks load_reclaimed load_uncounted load_below_zero selections
frequency: window_ms blocks_max replaced cut
lease: pid token
requests: routed retries policy_errors policy_slow prompts_scanned lookups lookups_matched prompt_blocks overlap_blocks best_overlap_blocks random_overlap_blocks least_loaded_overlap_blocks unshared unordered reservations reservations_expired reservations_full by_reason by_rung
by_reason: policy no_tokens no_prompt bad_body too_long short unknown_form no_load tokenizer no_rung unproven unknown_model policy_error no_worker no_eligible overload retry
shard: lease workers blocks used_bytes
worker: worker_id address model lora ranks role weight engine spec_drop attention_chunk max_prefill_tokens salted hybrid events capacity max_active resolved origin draining draining_by truncated scores confidence reason publisher_reason source epoch seq at age ttl engine_block_size probe health counters filtered refused forgotten usage echo load speed reported held estimates responses first_byte
counters: messages heartbeats duplicates gaps repairs restarts snapshots stores removes clears blocks_stored blocks_removed blocks_unknown blocks_forgotten
load: dp_rank active_requests active_prefills prefill_tokens decode_blocks peers_requests



=== TEST 2: the page, the API's stats and the formats
--- script
            local function age(text)
                return (text:gsub('"age":[^,]*', ""):gsub('"time":[^,]*', "")
                            :gsub('"since":[^,]*', ""))
            end

            local page = ask("GET", "/status").body

            ngx.say(age(page) == age(ask("GET", "/kv/stats").body))
            ngx.say(age(page) == age(ask("GET", "/status?format=json").body))
            ngx.say(ask("GET", "/status?format=prometheus")
                    .headers["content-type"])
            tell("xml", "GET", "/status?format=xml")
            tell("nothing", "GET", "/status?format=")

            local answer = tell("POST", "POST", "/status", "{}")

            ngx.say(answer.headers.allow)

            local head = ask("HEAD", "/status")

            ngx.say(head.status, " ", #head.body, " ",
                    -- ages have more digits, or fewer
                    math.abs(head.headers["content-length"] - #page) < 16)
--- response_body
true
true
text/plain; version=0.0.4
xml: 400 {"error":"unknown format \"xml\": it is \"json\", \"prometheus\" or \"html\""}
nothing: 400 {"error":"unknown format \"\": it is \"json\", \"prometheus\" or \"html\""}
POST: 405 {"error":"the status page is read by GET or HEAD"}
GET, HEAD
200 0 true



=== TEST 3: what Prometheus reads is well formed
--- script
            local text = ask("GET", "/status?format=prometheus").body
            local seen, name, kind, wrong, n = {}, nil, nil, 0, 0

            local function bad(line, what)
                wrong = wrong + 1
                ngx.say(what, ": ", line)
            end

            for line in text:gmatch("([^\n]*)\n") do
                local help, of = line:match("^# HELP ([%w_]+) .+%.$"),
                                 line:match("^# TYPE ([%w_]+) ")

                if help then
                    name, kind, n = help, nil, n + 1

                    if seen[name] or not name:find("^kv_router_[a-z_]+$") then
                        bad(line, "name")
                    end

                    seen[name] = true

                elseif of then
                    kind = line:match(" (%a+)$")

                    if of ~= name or (kind == "counter")
                                     ~= (name:find("_total$") ~= nil)
                       or kind ~= "counter" and kind ~= "gauge"
                          and kind ~= "histogram"
                    then
                        bad(line, "type")
                    end

                else
                    local of, labels, value =
                        line:match("^([%w_]+)(%b{}) ([%d.]+)$")

                    local part = kind == "histogram"
                                 and of:match("^" .. name .. "_(%l+)$")

                    if of ~= name and part ~= "bucket" and part ~= "sum"
                          and part ~= "count"
                       or not kind or not tonumber(value)
                       or not labels:find('^{zone="main"')
                       or (labels:find(',le="') ~= nil) ~= (part == "bucket")
                       or labels:gsub('[{,][%a_]+="[^"]*"', "") ~= "}"
                    then
                        bad(line, "sample")
                    end
                end
            end

            ngx.say(wrong, " wrong, more than 50: ", n > 50)
            ngx.say("ends: ", text:sub(-1) == "\n")
--- response_body
0 wrong, more than 50: true
ends: true



=== TEST 4: counters increase, by requests and by events
--- script
            local function metric(text, name)
                local value = text:match("\nkv_router_" .. name
                                         .. " ([%d.]+)\n")

                return tonumber(value)
            end

            local function report(what)
                local text = ask("GET", "/status?format=prometheus").body
                local stats = client.stats()

                ngx.say(what, ": requests ",
                        metric(text, 'requests_total{zone="main"}'), " = ",
                        stats.requests.routed, ", prompt ",
                        metric(text, 'prompt_blocks_total{zone="main"}'),
                        ", overlap ",
                        metric(text, 'overlap_blocks_total{zone="main"}'),
                        ", by policy ",
                        metric(text, 'decisions_total{zone="main",'
                                     .. 'reason="policy"}'),
                        ", no body ",
                        metric(text, 'decisions_total{zone="main",'
                                     .. 'reason="no_prompt"}'),
                        ", stored ",
                        metric(text, 'worker_blocks_stored_total{zone="main",'
                                     .. 'worker="w1"}') or 0,
                        ", handles ",
                        metric(text, 'handles{zone="main"}'), ", active ",
                        metric(text, 'worker_active_requests{zone="main",'
                                     .. 'worker="w1",dp_rank="0"}'))
            end

            report("at first")
            client.cache("w1", client.tokens(1, 12))
            report("stored")
            ask("POST", "/v1/completions", '{"prompt":[1,2,3,4,5,6,7,8,9,'
                                           .. '10,11,12,13,14,15,16]}')
            ask("POST", "/v1/completions", "")
            report("asked")

            local time = client.stats().times.decide.sum

            ngx.say("time: ", time > 0 and time < 10)
            ask("POST", "/kv/events", event("w1", stored(5, { { 6, 7 } })))
            ask("POST", "/kv/events", event("w1", removed(1, 1001)))

            local text = ask("GET", "/status?format=prometheus").body

            for _, name in ipairs { "events_skipped", "blocks_removed" }
            do
                ngx.say(text:match("\n(kv_router_worker_[a-z_]*" .. name
                                   .. "_total{[^\n]*)"))
            end
--- response_body
at first: requests 0 = 0, prompt 0, overlap 0, by policy 0, no body 0, stored 0, handles 0, active 0
stored: requests 0 = 0, prompt 0, overlap 0, by policy 0, no body 0, stored 3, handles 3, active 0
asked: requests 2 = 2, prompt 4, overlap 3, by policy 1, no body 1, stored 3, handles 3, active 0
time: true
kv_router_worker_events_skipped_total{zone="main",worker="w1",reason="parent"} 1
kv_router_worker_blocks_removed_total{zone="main",worker="w1"} 1



=== TEST 5: labels are escaped
--- script
            ask("PUT", "/kv/workers/x", [[{"address":"127.0.0.1:1",]]
                .. [["model":"a\"b\\c{d}é","ranks":2,"role":"decode"}]])

            local text = ask("GET", "/status?format=prometheus").body

            ngx.say(text:match('\n(kv_router_worker_info[^\n]*worker="x"'
                               .. "[^\n]*)"))

            for line in text:gmatch('\n(kv_router_worker_confidence[^\n]*'
                                    .. 'worker="x"[^\n]*)')
            do
                ngx.say(line)
            end

            ask("POST", "/kv/workers/x/drain")

            text = ask("GET", "/status?format=prometheus").body
            ngx.say(text:match('\n(kv_router_worker_draining[^\n]*worker="x"'
                               .. "[^\n]*)"))
--- response_body
kv_router_worker_info{zone="main",worker="x",address="127.0.0.1:1",model="a\"b\\c{d}é",role="decode",origin="api",source="none"} 1
kv_router_worker_confidence{zone="main",worker="x",state="UNKNOWN"} 1
kv_router_worker_confidence{zone="main",worker="x",state="EXACT"} 0
kv_router_worker_confidence{zone="main",worker="x",state="DEGRADED"} 0
kv_router_worker_confidence{zone="main",worker="x",state="SYNCING"} 0
kv_router_worker_confidence{zone="main",worker="x",state="UNVERIFIED"} 0
kv_router_worker_confidence{zone="main",worker="x",state="BOUND"} 0
kv_router_worker_confidence{zone="main",worker="x",state="ESTIMATED"} 0
kv_router_worker_draining{zone="main",worker="x"} 1



=== TEST 6: the table that was removed is told by name
--- script
            client.show("GET", "/status?format=table")
--- response_body
GET /status?format=table: 400 {"error":"unknown format \"table\": it is \"json\", \"prometheus\" or \"html\"; \"json\" has the numbers of the table"}



=== TEST 7: a page for people, whose script and style alone may run
--- script
            local answer = ask("GET", "/status?format=html")
            local page = answer.body

            ngx.say(answer.status, " ", answer.headers["content-type"])
            ngx.say((answer.headers["content-security-policy"]
                     :gsub("'sha256%-[%w+/]*='", "HASH")))
            ngx.say(page:match("^<!DOCTYPE html>") ~= nil, " ",
                    page:sub(-8, -2), " ",
                    page == ask("GET", "/zones/other?format=html").body)
            ngx.say(page:find("://", 1, true)
                    == page:find("://www.w3.org/2000/svg", 1, true))

            local ffi = require("ffi")

            ffi.cdef[[
                const void *EVP_sha256(void);
                int EVP_Digest(const char *, size_t, unsigned char *,
                               unsigned *, const void *, void *);
            ]]

            for _, tag in ipairs { "script", "style" } do
                local text = page:match("<" .. tag .. ">(.-)</" .. tag .. ">")
                local hash = ffi.new("unsigned char[64]")

                ffi.C.EVP_Digest(text, #text, hash, nil, ffi.C.EVP_sha256(),
                                 nil)

                ngx.say(answer.headers["content-security-policy"]
                        :find(tag .. "-src 'sha256-"
                              .. ngx.encode_base64(ffi.string(hash, 32)) .. "'",
                              1, true) ~= nil)
            end
--- response_body
200 text/html; charset=utf-8
default-src 'none'; script-src HASH; style-src HASH; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'
true </html> true
true
true
true



=== TEST 8: the parts that there are, the locations, and the prefix caches
--- script
            local places = ask("GET", "/status?part=places").body

            ngx.say((places:gsub('"parts":%b[]', '"parts":[]')
                           :gsub('("zone":"texts"),.*}\n?', "%1}")))

            for part in places:match('"parts":(%b[])'):gmatch('"(.-)"') do
                local answer = ask("GET", "/status?part=" .. part)

                ngx.say(part, ": ", answer.status, " ",
                        answer.headers["content-type"], " ",
                        type(require("cjson").decode(answer.body)))
            end

            tell("nothing", "GET", "/status?part=")
            tell("all", "GET", "/status?part=all&format=json")
--- response_body
{"parts":[],"places":[{"zone":"main","path":"/status"},{"zone":"other","path":"/zones/other"}],"prefix_caches":[{"zone":"texts"}
status: 200 application/json table
places: 200 application/json table
history: 200 application/json table
decisions: 200 application/json table
prefixes: 200 application/json table
tree: 200 application/json table
nothing: 404 {"error":"unknown part \"\": ?part=places lists the parts"}
all: 404 {"error":"unknown part \"all\": ?part=places lists the parts"}
