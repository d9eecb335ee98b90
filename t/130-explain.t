# Why a request goes where it goes, and what came of what was predicted.

use lib 't/lib';
use KVRouter;

# two engines: /usage answers with the usage that the request's header names,
# /stream with the same in its last events

our $Engines = engines(2, engine => <<'_EOC_');
        location /usage {
            content_by_lua_block {
                ngx.header.content_type = "application/json"
                ngx.print('{"choices":[{"text":"', ("x"):rep(5000),
                          '"}],"usage":', ngx.var.http_x_usage, "}")
            }
        }

        location /one_fails {
            content_by_lua_block {
                ngx.exit(ngx.var.http_x_fails == "NUMBER" and 503 or 200)
            }
        }

        location /stream {
            content_by_lua_block {
                ngx.header.content_type = "text/event-stream"

                for _ = 1, 20 do
                    ngx.print('data: {"choices":[{"text":"x"}]}\n\n')
                    ngx.flush(true)
                end

                ngx.print('data: {"choices":[],"usage":',
                          ngx.var.http_x_usage, "}\n\n")
                ngx.flush(true)
                ngx.print("data: [DONE]\n\n")
            }
        }
_EOC_

our $Workers = zone_workers(2);

our $Router = <<'_EOC_';
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none",
            policy_conf = { churn = 0 } })
    }
_EOC_

scripts(http_config => <<"_EOC_", config => <<'_EOC_');
$Engines
_EOC_
    location /kv/ {
        kv_router_api         main;
        access_by_lua_block   { router:api() }
    }

    location /bare/ {
        kv_router_api         main;
    }

    location /status {
        kv_router_status      main;
    }

    location /v1/ {
        access_by_lua_block     { router:access() }
        add_header              x-route "$kv_router_worker $kv_router_overlap_blocks" always;
        proxy_pass              http://engines/;
        proxy_http_version      1.1;
        proxy_set_header        Connection "";
        proxy_next_upstream     http_503 non_idempotent;
        log_by_lua_block {
            package.loaded.seen = { ngx.var.kv_router_cached_tokens }
        }
    }
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;

    my $config = $block->http_config // '';

    $config = "    kv_router_zone  zone=main:16m block_size=4;\n$config"
        unless $config =~ /kv_router_zone/;
    $config = "$config$Workers" unless $config =~ /kv_router_worker/;
    $config = "$config$Router" unless $config =~ /init_by_lua/;

    $block->set_value('http_config', $config);
    $block->set_value('script', <<'_EOC_' . $block->script);
            local decode = require "cjson.safe".decode

            local function prompt(first, last)
                return '{"prompt":' .. client.tokens(first, last) .. "}"
            end

            local function worker(i)
                return client.stats().workers[i]
            end

            -- Some requests to an engine that says what it had.
            local function served(n, path, body, usage)
                for _ = 1, n do
                    ask("POST", "/v1/" .. path .. "/completions", body,
                        "x-usage: " .. usage .. "\r\n")
                end
            end

            local function details(prompt, cached)
                return '{"prompt_tokens":' .. prompt
                       .. ',"prompt_tokens_details":{"cached_tokens":'
                       .. cached .. "}}"
            end

            local function used(what)
                local u = worker(1).usage

                ngx.say(what, ": ", u.requests, " answers, prompts ",
                        u.prompt_tokens, ", predicted ", u.predicted_tokens,
                        ", best ", u.best_tokens, ", cached ",
                        u.cached_tokens)
            end

            local function trusts(state)
                local function echo()
                    for _, one in ipairs(worker(1).echo) do
                        if one.route == "cached" then
                            return one
                        end
                    end

                    return {}
                end

                client.wait(function() return echo().trust == state end)

                local is = echo()

                ngx.say("cached: ", is.trust, ", ", is.full, " full, ",
                        is.parted, " parted")
            end
_EOC_
});

log_level('info');
worker_connections(512);
no_long_string();
no_shuffle();

plan tests => repeat_each() * 57;

run_tests();

__DATA__

=== TEST 1: POST /route says who would be chosen and why
--- script
            client.cache("w1", client.tokens(1, 8))
            client.cache("w2", client.tokens(1, 12))

            local a = ask("POST", "/kv/route", prompt(1, 18))
            local e = decode(a.body)

            ngx.say(a.status, " ", a.headers["content-type"])
            ngx.say(e.zone, ": ", e.prompt_tokens, " tokens, ",
                    e.prompt_blocks, " blocks of ", e.block_size, ", best ",
                    e.best_overlap_blocks, ", cut ", tostring(e.cut))
            ngx.say(e.policy, ": ", e.reason, ": ", e.chosen.worker_id, "/",
                    e.chosen.dp_rank, ", then ", e.retries[1].worker_id)

            for _, c in ipairs(e.candidates) do
                local o, l = c.overlap, c.load

                ngx.say(c.worker_id, "/", c.dp_rank, " ", c.role, " ",
                        c.weight, ": cost ", c.cost, ", ", o.device, " ",
                        o.host, " ", o.disk, " ", o.predicted, ", ",
                        c.confidence, " ", c.reason, ", ", l.active_requests,
                        " ", l.prefill_tokens, " ", l.decode_blocks, " ",
                        l.additional_blocks, ", stored ", math.ceil(l.churn),
                        ", ", tostring(c.reported.kv_usage))
            end
--- response_body
200 application/json
main: 18 tokens, 4 blocks of 4, best 3, cut false
kv_cost: overlap: w2/0, then w1
w1/0 both 1: cost 24, 2 2 2 0, UNVERIFIED external, 0 0 0 4, stored 2, userdata: NULL
w2/0 both 1: cost 16, 3 3 3 0, UNVERIFIED external, 0 0 0 4, stored 3, userdata: NULL
--- no_error_log
[error]
[alert]



=== TEST 2: it reserves, predicts and counts nothing
--- http_config
    kv_router_zone  zone=main:16m block_size=4 predict=5m frequency=1m;
--- script
            client.cache("w1", client.tokens(1, 8))

            local before = client.stats().requests

            for _ = 1, 5 do
                ask("POST", "/kv/route", prompt(1, 40))
            end

            local after = client.stats().requests

            for _, name in ipairs { "routed", "lookups", "lookups_matched",
                                    "prompt_blocks" }
            do
                ngx.say(name, ": ", after[name] - before[name])
            end

            ngx.say("load: ", client.load() or "none")
            ngx.say("frequencies: ", ask("POST", "/kv/query", '{"tokens":'
                                         .. client.tokens(1, 8) .. "}").body:
                                     match('"frequencies":(%b[])'))
            ngx.say("predicted: ", decode(ask("POST", "/kv/route",
                    prompt(1, 40)).body).candidates[1].overlap.predicted)
--- response_body
routed: 0
lookups: 0
lookups_matched: 0
prompt_blocks: 0
load: none
frequencies: [0,0]
predicted: 0
--- no_error_log
[error]



=== TEST 3: what is predicted and what runs is told
--- http_config
    kv_router_zone  zone=main:16m block_size=4 predict=5m;
--- script
            client.cache("w1", client.tokens(1, 8))

            local body = prompt(1, 40)
            local sock = client.send("POST /v1/slow/completions HTTP/1.0\r\n"
                                     .. "Content-Length: " .. #body
                                     .. "\r\n\r\n" .. body)

            sock:receiveuntil("\r\n\r\n")()
            sock:receive(2)

            local c = decode(ask("POST", "/kv/route", body).body).candidates[1]

            ngx.say(c.overlap.device, " with ", c.overlap.predicted,
                    " predicted, active ", c.load.active_requests, ", ",
                    c.load.decode_blocks, " blocks, ", c.load.in_flight,
                    " of them in flight, would add ",
                    c.load.additional_blocks)
            sock:close()
            client.idle()
--- response_body
8 with 6 predicted, active 1, 10 blocks, 10 of them in flight, would add 0
load: none
--- no_error_log
[error]



=== TEST 4: whatever the body is, there is an answer
--- script
            for _, body in ipairs { "", "{", '{"messages":[]}',
                                    '{"prompt":[1]}' }
            do
                local e = decode(ask("POST", "/kv/route", body).body)

                ngx.say(e.reason, ": ", #e.candidates, " candidates, chosen ",
                        e.chosen and "one" or "none")
            end
--- response_body
no_prompt: 2 candidates, chosen one
bad_body: 2 candidates, chosen one
no_tokens: 2 candidates, chosen one
short: 2 candidates, chosen one
--- no_error_log
[error]



=== TEST 5: where no policy is asked, it is said how to ask one
--- script
            client.tell("no policy", "POST", "/bare/route", prompt(1, 18))
            client.tell("GET", "GET", "/bare/route")
            client.tell("GET", "GET", "/kv/route")
--- response_body
no policy: 404 {"error":"\"route\" asks the policy of a router, and none is here: write \"access_by_lua_block { router:api() }\" in this location"}
GET: 405 {"error":"\"route\" is called by POST, not by GET"}
GET: 405 {"error":"\"route\" is called by POST, not by GET"}
--- no_error_log
[error]



=== TEST 6: without any worker it is said so
--- http_config
    kv_router_worker  main w1 127.0.0.1:9;
--- script
            ask("DELETE", "/kv/workers/w1")

            local a = client.show("POST", "/kv/route", prompt(1, 8))

            ngx.say("retry after ", a.headers["retry-after"])
--- response_body
POST /kv/route: 503 {"error":"no worker"}
retry after 1
--- no_error_log
[error]



=== TEST 7: policies that keep something keep nothing of it
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none", policy = "session",
            policy_conf = { next = "round_robin" } })
    }
--- script
            local function chosen(headers)
                return decode(ask("POST", "/kv/route", prompt(1, 8),
                                  headers).body).chosen.worker_id
            end

            local first = chosen("x-session-id: s\r\n")
            local same = 0

            for _ = 1, 10 do
                if chosen() == first then
                    same = same + 1
                end
            end

            ngx.say("turns: ", same)
            ngx.say("routed: ", ask("POST", "/v1/completions", prompt(1, 8),
                                    "x-session-id: s\r\n").headers["x-route"]:
                                match("^%w+") == first)

            local other = chosen()

            ngx.say("next: ", other ~= first, ", of the session: ",
                    chosen("x-session-id: s\r\n") == first)
--- response_body
turns: 10
routed: true
next: true, of the session: true
--- no_error_log
[error]



=== TEST 8: what an engine had cached is counted beside what was predicted
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
--- script
            client.cache("w1", client.tokens(1, 12))

            served(1, "usage", prompt(1, 18), details(18, 12))
            used("one")
            ngx.say("variable: ", package.loaded.seen[1])

            served(1, "stream", prompt(1, 18), details(18, 8))
            used("streamed")

            served(1, "usage", prompt(1, 18), '{"prompt_tokens":18}')
            served(1, "usage", prompt(1, 18), "null")
            served(1, "x", prompt(1, 18), details(18, 8))
            used("silent ones")
            ngx.say("variable: ", tostring(package.loaded.seen[1]))

            served(1, "usage", '{"messages":[]}', details(9, 8))
            used("without tokens")

            local text = ask("GET", "/status?format=prometheus").body

            for line in text:gmatch("kv_router_worker_usage_[%w_]+_total{[^\n]*")
            do
                ngx.say(line)
            end
--- response_body
one: 1 answers, prompts 18, predicted 12, best 12, cached 12
variable: 12
streamed: 2 answers, prompts 36, predicted 24, best 24, cached 20
silent ones: 2 answers, prompts 36, predicted 24, best 24, cached 20
variable: nil
without tokens: 2 answers, prompts 36, predicted 24, best 24, cached 20
kv_router_worker_usage_prompt_tokens_total{zone="main",worker="w1"} 36
kv_router_worker_usage_predicted_tokens_total{zone="main",worker="w1"} 24
kv_router_worker_usage_cached_tokens_total{zone="main",worker="w1"} 20
--- no_error_log
[error]
in its cache of



=== TEST 9: what engines had cached is judged, as echoes are
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
--- script
            client.cache("w1", client.tokens(1000, 1015))

            served(20, "usage", prompt(1000, 1018), details(18, 8))
            trusts("proven")

            served(11, "usage", prompt(1000, 1018), details(18, 4))
            trusts("mismatch")

            -- the engine has more than is known: nothing was predicted
            served(20, "usage", prompt(1, 18), details(18, 16))
            trusts("mismatch")

            local text = ask("GET", "/status?format=prometheus").body

            for line in text:gmatch('kv_router_[^\n]*"cached"[^\n]*') do
                ngx.say(line)
            end

            served(20, "usage", prompt(1000, 1018), details(18, 16))
            trusts("proven")
            used("told")
--- response_body
cached: proven, 20 full, 0 parted
cached: mismatch, 20 full, 11 parted
cached: mismatch, 20 full, 11 parted
kv_router_worker_trust{zone="main",worker="w1",route="cached",state="shadow"} 0
kv_router_worker_trust{zone="main",worker="w1",route="cached",state="proven"} 0
kv_router_worker_trust{zone="main",worker="w1",route="cached",state="mismatch"} 1
cached: proven, 40 full, 11 parted
told: 71 answers, prompts 1278, predicted 816, best 816, cached 844
--- grep_error_log eval
qr/worker "w1" often has less in its cache than is known here, of the last prompt \d of \d blocks/
--- grep_error_log_out
worker "w1" often has less in its cache than is known here, of the last prompt 1 of 4 blocks
--- no_error_log
[alert]
[emerg]



=== TEST 10: of an upper bound the engine may have less, but not nothing
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 hybrid=on;
--- script
            client.cache("w1", client.tokens(1, 16))

            served(20, "usage", prompt(1, 18), details(18, 4))
            trusts("proven")
            served(11, "usage", prompt(1, 18), details(18, 0))
            trusts("mismatch")
            client.logged("often has less in its cache")
--- response_body
cached: proven, 20 full, 0 parted
cached: mismatch, 20 full, 11 parted
--- grep_error_log eval
qr/worker "w1" often has less in its cache than is known here/
--- grep_error_log_out
worker "w1" often has less in its cache than is known here
--- no_error_log
[alert]
[emerg]



=== TEST 11: an answer that went through a file is not read, and does no harm
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1;

    server {
        listen 127.0.0.1:$TEST_NGINX_RAND_PORT_3;

        location / {
            access_by_lua_block    { router:access() }
            proxy_pass             http://engines/;
            proxy_buffer_size      4k;
            proxy_buffers          2 4k;
            proxy_busy_buffers_size 4k;
        }
    }
--- script
            client.cache("w1", client.tokens(1, 12))

            for _ = 1, 5 do
                local a = ask("POST", "/usage", prompt(1, 18), "x-usage: "
                              .. details(18, 12) .. "\r\n",
                              $TEST_NGINX_RAND_PORT_3)

                ngx.say(a.status, " ", #a.body)
            end

            client.idle()
--- response_body
200 5099
200 5099
200 5099
200 5099
200 5099
load: none
--- no_error_log
[alert]



=== TEST 12: when all are full, nobody would be chosen just now
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 max_active=1;
--- script
            local body = prompt(1, 8)
            local sock = client.send("POST /v1/slow/completions HTTP/1.0\r\n"
                                     .. "Content-Length: " .. #body
                                     .. "\r\n\r\n" .. body)

            sock:receiveuntil("\r\n\r\n")()
            sock:receive(2)

            client.show("POST", "/kv/route", body)
            sock:close()
            client.idle()
--- response_body
POST /kv/route: 503 {"error":"all workers are full, by max_active or max_prefill_tokens"}
load: none
--- no_error_log
[error]



=== TEST 13: several processes say it once
--- workers: 3
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
--- script
            client.cache("w1", client.tokens(1, 16))

            served(60, "usage", prompt(1, 18), details(18, 0))
            trusts("mismatch")
            client.logged("often has less in its cache")
--- response_body
cached: mismatch, 0 full, 60 parted
--- grep_error_log eval
qr/worker "w1" often has less in its cache/
--- grep_error_log_out
worker "w1" often has less in its cache
--- no_error_log
[alert]
[emerg]



=== TEST 14: a lookup that ends at the maximum number of runs says so
--- script
            local tokens = client.tokens(1, 4 * 4200)
            local hashes = decode(ask("POST", "/kv/hash", '{"tokens":'
                                      .. tokens .. "}").body)["local"]
            local events = {}

            -- each block has a sibling, so that every run has one block
            for i, hash in ipairs(hashes) do
                local parent = i > 1 and i - 1 or nil

                events[#events + 1] = client.event("w1",
                    client.stored(parent, { { 1000000 + i, 1000000 + i } }))
                events[#events + 1] = client.event("w1",
                    client.stored(parent, { { i, hash } }))

                if i % 600 == 0 then
                    local a = ask("POST", "/kv/events", "["
                                  .. table.concat(events, ",") .. "]")
                    ngx.say(decode(a.body).applied)
                    events = {}
                end
            end

            local e = decode(ask("POST", "/kv/route", '{"prompt":' .. tokens
                                 .. "}").body)

            ngx.say(e.prompt_blocks, " blocks, best ", e.best_overlap_blocks,
                    ", cut ", tostring(e.cut))
            ngx.say("counted: ", client.stats().index.lookups_cut)

            local function query(call, body)
                local a = decode(ask("POST", "/kv/" .. call, body).body)

                ngx.say(call, ": ", a.scores[1].device, ", cut ",
                        tostring(a.cut))
            end

            query("query", '{"tokens":' .. tokens .. "}")
            query("query_by_hash", '{"block_hashes":['
                  .. table.concat(hashes, ",") .. "]}")

            local index = require("resty.kv_router.index").new("main")

            ngx.say("find_matches: cut ",
                    tostring(index:find_matches(decode(tokens)).cut))
            ngx.say("a short prompt: cut ",
                    tostring(index:find_matches(decode(client.tokens(1, 40)))
                             .cut))
--- response_body
1200
1200
1200
1200
1200
1200
1200
4200 blocks, best 4096, cut true
counted: 1
query: 4096, cut true
query_by_hash: 4096, cut true
find_matches: cut true
a short prompt: cut false



=== TEST 15: who asks for full reports makes the worker's view an upper bound
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
--- script
            local function scores(what)
                ngx.say(what, ": ", worker(1).scores)
            end

            local function with(fields)
                return (prompt(1, 18):gsub("}$", "," .. fields .. "}"))
            end

            local full = '{"kv_cache_report_mode":"full"}'

            client.cache("w1", client.tokens(1, 8))

            served(1, "usage", with('"vllm_xargs":'
                                    .. full:gsub("full", "incremental")),
                   details(18, 8))
            scores("incremental")

            ask("POST", "/kv/route", with('"vllm_xargs":' .. full))
            scores("full, only to be explained")

            served(1, "usage", with('"vllm_xargs":' .. full), details(18, 8))
            scores("full")

            served(1, "usage", prompt(1, 18), details(18, 8))
            scores("a later request")

            ask("POST", "/kv/events", client.event("w1", '"cleared"'))
            scores("cleared")

            client.cache("w1", client.tokens(1, 8))
            served(1, "usage", with('"sampling_params":{"extra_args":' .. full
                                    .. "}"), details(18, 8))
            scores("in sampling_params")
--- response_body
incremental: as_held
full, only to be explained: as_held
full: upper_bounds
a later request: upper_bounds
cleared: as_held
in sampling_params: upper_bounds
