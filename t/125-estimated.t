# Workers without events: they are taken to have what they answered.

use lib 't/lib';
use KVRouter;

# /usage answers with as many cached tokens as the request's header says

our $Engines = engines(2, engine => <<'_EOC_');
        location /usage {
            content_by_lua_block {
                ngx.header.content_type = "application/json"
                ngx.print('{"choices":[{"text":"a"}],"usage":',
                          '{"prompt_tokens":32,"completion_tokens":1,',
                          '"prompt_tokens_details":{"cached_tokens":',
                          ngx.var.http_x_cached, "}}}")
            }
        }

        location = /report {
            content_by_lua_block {
                ngx.req.read_body()
                package.loaded.report = package.loaded.report or {}
                package.loaded.report[NUMBER] = ngx.req.get_body_data()
            }
        }

        location = /metrics {
            content_by_lua_block {
                ngx.print((package.loaded.report or {})[NUMBER]
                          or "vllm:num_requests_running 0\\n")
            }
        }

        location /bad {
            return  400 '{"error":"no"}';
        }
_EOC_

scripts(http_config => <<"_EOC_", config => <<'_EOC_');
    init_by_lua_block {
        router = require("resty.kv_router").new("main", {
                     tokenizer = "none" })
    }

$Engines
_EOC_
    location /kv/ {
        kv_router_api        main;
        access_by_lua_block  { router:api() }
    }

    location /v1/ {
        access_by_lua_block  { router:access() }
        add_header           x-route "$kv_router_worker $kv_router_overlap_blocks of $kv_router_prompt_blocks, $kv_router_confidence" always;
        proxy_pass           http://engines/;
    }
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;

    my $config = $block->http_config // '';
    my $events = $block->events // 'events=off capacity=4k';
    my $more = $block->zone_config // '';

    $config = "    kv_router_zone  zone=main:16m block_size=4;\n$more"
              . join('', map { <<"_EOC_" } 1 .. 2) . $config;
    kv_router_worker  main w$_ 127.0.0.1:\$TEST_NGINX_RAND_PORT_$_ $events;
_EOC_

    $block->set_value('http_config', $config);
    $block->set_value('script', <<'_EOC_' . ($block->script // ''));
            local cjson = require "cjson.safe"

            -- sends a prompt; answers the worker, and what was said of it
            local function route(path, first, last, cached)
                local answer = ask("POST", "/v1/" .. path .. "/completions",
                                   '{"prompt":' .. client.tokens(first, last)
                                   .. "}", "x-cached: " .. (cached or 0)
                                           .. "\r\n")
                local to, rest = answer.headers["x-route"]:match(
                                     "^(%w+) (.+)$")

                client.wait(function()
                    return client.stats().routed.unread == 0
                end)

                return to, rest
            end

            -- How often the estimates of all workers were forgotten.
            local function forgotten(why)
                local n = 0

                for _, w in ipairs(client.stats().workers) do
                    for _, rank in ipairs(w.estimates) do
                        n = n + rank.cleared[why]
                    end
                end

                return n
            end

            -- The blocks of a prompt that a worker is estimated to have.
            local function held(id, first, last)
                local answer = ask("POST", "/kv/query?estimated=1",
                                   '{"tokens":' .. client.tokens(first, last)
                                   .. "}")

                for _, score in ipairs(cjson.decode(answer.body).scores) do
                    if score.worker_id == id and score.estimated then
                        return score.device
                    end
                end

                return 0
            end

            local function worker(id)
                for _, w in ipairs(cjson.decode(ask("GET",
                                                    "/kv/workers").body)) do
                    if w.worker_id == id then
                        return w
                    end
                end
            end
_EOC_
});

log_level('info');
no_long_string();
no_shuffle();

plan tests => repeat_each() * 53;

run_tests();

__DATA__

=== TEST 1: a conversation stays where it was answered
--- script
            local first, said = route("usage", 1, 32)
            ngx.say("first: ", said)

            local same, again = 0

            for i = 1, 8 do
                local to
                to, again = route("usage", 1, 32 + 4 * i, 32)
                same = same + (to == first and 1 or 0)
            end

            ngx.say("later: ", again, ", ", same, " of 8 at the same worker")
            ngx.say("another prompt: ", (select(2, route("usage", 100, 131))))

            local w = worker(first)
            ngx.say(w.confidence, " ", w.reason, " ", tostring(w.events))
            ngx.say("dump: ", #ask("GET", "/kv/dump").body, " bytes")
--- response_body
first: 0 of 8, ESTIMATED
later: 15 of 16, ESTIMATED, 8 of 8 at the same worker
another prompt: 0 of 8, ESTIMATED
ESTIMATED none false
dump: 0 bytes
--- no_error_log
[error]



=== TEST 2: what was refused is not cached
--- script
            ngx.say("refused: ", (select(2, route("bad", 1, 32))))
            ngx.say("again: ", (select(2, route("usage", 1, 32))))
            ngx.say("answered: ", (select(2, route("usage", 1, 32))))

            -- two records make one end of a chain
            client.wait(function()
                return #ask("GET", "/kv/dump?estimated=1").body > 0
            end)

            local dump = ask("GET", "/kv/dump?estimated=1").body
            local event = cjson.decode(dump)

            ngx.say("dumped: ", event.worker_id, " ",
                    #event.event.data.stored.blocks, " blocks")
            ngx.say("unasked: ", #ask("GET", "/kv/dump").body, " bytes")
--- response_body_like chop
^refused: 0 of 8, ESTIMATED
again: 0 of 8, ESTIMATED
answered: 8 of 8, ESTIMATED
dumped: \w+ 8 blocks
unasked: 0 bytes
--- no_error_log
[error]



=== TEST 3: a worker that has nothing of what it answered has restarted
--- script
            local first = route("usage", 1, 32)
            local other = route("usage", 100, 131)

            for i = 1, 9 do
                route("usage", 1, 32, 0)
            end

            route("usage", 1, 32, 28)

            for i = 1, 9 do
                route("usage", 1, 32, 0)
            end

            local to, said = route("usage", 1, 32, 0)
            ngx.say("the tenth: ", said, " ", to == first)

            ngx.say("forgotten: ", forgotten("restarted"))
            client.wait(function()
                return client.logged("is forgotten: the worker was restarted")
            end)
            ngx.say("this one: ", held(first, 1, 32))
            ngx.say("another one: ",
                    other == first and held(first, 100, 131) or 0)
--- response_body
the tenth: 8 of 8, ESTIMATED true
forgotten: 1
this one: 8
another one: 0
--- error_log
it had nothing cached of 10 prompts in a row
--- no_error_log
[error]



=== TEST 4: a worker with events is not estimated
--- events: events=on
--- script
            route("usage", 1, 32)
            ngx.say((select(2, route("usage", 1, 32))))
            ngx.say(worker("w1").confidence, " ", tostring(worker("w1").events))
--- response_body
0 of 8, UNKNOWN
UNKNOWN true
--- no_error_log
[error]



=== TEST 5: what is written of a worker takes over
--- script
            local first = route("usage", 1, 32)
            ngx.say("estimated: ", (select(2, route("usage", 1, 32))))

            for _, id in ipairs({ "w1", "w2" }) do
                local answer = ask("POST", "/kv/events", cjson.encode({
                                       worker_id = id,
                                       event = { event_id = 1,
                                                 data = "cleared",
                                                 dp_rank = 0 } }))
                ngx.say(answer.status)
            end

            ngx.say("written: ", (select(2, route("usage", 1, 32))))
--- response_body
estimated: 8 of 8, ESTIMATED
200
200
written: 0 of 8, UNVERIFIED
--- no_error_log
[error]



=== TEST 6: PUT makes a worker one without events
--- script
            local function put(events)
                local answer = ask("PUT", "/kv/workers/w3",
                                   '{"address":"127.0.0.1:1","events":'
                                   .. events .. "}")
                local w = cjson.decode(answer.body)
                ngx.say(answer.status, " ", tostring(w.events), " ",
                        w.confidence or w.error)
            end

            put("false")
            put("true")
            put('false,"capacity":4096')
            ngx.say(worker("w3").capacity)
            put('false,"capacity":0')
--- response_body
201 false ESTIMATED
200 true UNKNOWN
200 false ESTIMATED
4096
400 nil body: "capacity" must be 1..1000000000 tokens at byte 51
--- no_error_log
[error]



=== TEST 7: in a zone without Redis configured workers are estimated by themselves
--- events: capacity=4k
--- script
            route("usage", 1, 32)
            ngx.say((select(2, route("usage", 1, 32))))
            ngx.say(worker("w1").confidence, " ", tostring(worker("w1").events))
--- response_body
8 of 8, ESTIMATED
ESTIMATED false
--- no_error_log
[error]



=== TEST 8: in one with Redis they wait for their events
--- events: capacity=4k
--- zone_config
    kv_router_redis  main redis://127.0.0.1:1;
--- script
            ngx.say(worker("w1").confidence, " ", tostring(worker("w1").events))
--- response_body
UNKNOWN true
--- no_error_log
[alert]



=== TEST 9: the log says once what events would add
--- script
            client.wait(function()
                return client.logged('"w1" has cached is estimated')
                       and client.logged('"w2" has cached is estimated')
            end)

            ngx.say("said")
--- response_body
said
--- grep_error_log eval
qr/what worker "\w+" has cached is estimated from its answers/
--- grep_error_log_out
what worker "w1" has cached is estimated from its answers
what worker "w2" has cached is estimated from its answers



=== TEST 10: a worker whose process has another start was restarted
--- zone_config
    kv_router_scrape  main interval=100ms timeout=3s;
--- script
            local ports = { w1 = $TEST_NGINX_RAND_PORT_1,
                            w2 = $TEST_NGINX_RAND_PORT_2 }

            local function report(id, started)
                ask("POST", "/report", "vllm:num_requests_running 1\n"
                                       .. "process_start_time_seconds "
                                       .. started .. "\n", nil, ports[id])

                local before = client.stats().scrape.scrapes

                client.wait(function()
                    return client.stats().scrape.scrapes > before + 4
                end)
            end

            local first = route("usage", 1, 32)

            report(first, "1.76386160345e+09")
            report(first, "1.76386160345e+09")
            ngx.say("running: ", (select(2, route("usage", 1, 32))), ", ",
                    forgotten("restarted"))

            report(first, "1.76386170345e+09")
            client.wait(function()
                return forgotten("restarted") == 1
            end)
            ngx.say("restarted: ", (select(2, route("usage", 1, 32))))
--- response_body
running: 8 of 8, ESTIMATED, 0
restarted: 0 of 8, ESTIMATED
--- error_log eval
qr/worker "\w+" was restarted: "\/metrics" of it reports another process_start_time_seconds/
--- no_error_log
[error]



=== TEST 11: queries tell of estimates when they are asked for them
--- script
            local first = route("usage", 1, 32)
            local body = '{"tokens":' .. client.tokens(1, 32) .. "}"

            ngx.say(first == "w1" or first == "w2")
            ngx.say((ask("POST", "/kv/query", body).body:gsub("%s", "")))
            ngx.say("asked: ", held(first, 1, 32))
            ngx.say("dump: ", #ask("GET", "/kv/dump").body, " bytes")
--- response_body
true
{"block_size":4,"blocks":8,"scores":[]}
asked: 8
dump: 0 bytes
--- no_error_log
[error]



=== TEST 12: while the size of the cache is not known, half counts
--- events: events=off
--- script
            local first = route("usage", 1, 32)

            ngx.say((select(2, route("usage", 1, 32))), ", ",
                    held(first, 1, 32))
            ngx.say(worker(first).estimates[1].source)
--- response_body
4 of 8, ESTIMATED, 8
none
--- no_error_log
[error]



=== TEST 13: what was not used for longest goes first, tail first
--- events: events=off capacity=64
--- script
            ask("POST", "/kv/workers/w2/drain")

            route("usage", 1, 32)
            route("usage", 101, 120)
            route("usage", 1, 32)
            route("usage", 201, 216)

            client.wait(function()
                return worker("w1").estimates[1].held <= 64
            end)

            ngx.say(held("w1", 1, 32), " ", held("w1", 101, 120), " ",
                    held("w1", 201, 216))
            ngx.say(worker("w1").estimates[1].capacity, " ",
                    worker("w1").estimates[1].source)
--- response_body
8 4 4
64 configured
--- no_error_log
[error]



=== TEST 14: a chat in text goes where its beginning went
--- script
            local function chat(...)
                local messages = {}

                for i, text in ipairs { ... } do
                    messages[i] = '{"role":"' .. (i % 2 == 1 and "user"
                                                  or "assistant")
                                  .. '","content":"' .. text .. '"}'
                end

                local answer = ask("POST", "/v1/usage/chat/completions",
                                   '{"messages":['
                                   .. table.concat(messages, ",") .. "]}",
                                   "x-cached: 0\r\n")

                client.wait(function()
                    return client.stats().routed.unread == 0
                end)

                return answer.headers["x-route"]
            end

            local first = ("What is a cache? "):rep(40)
            local one = chat(first)
            local two = chat(first, ("It keeps. "):rep(20), "And now?")

            ngx.say(one:match("(%d+) of"), " then ",
                    tonumber(two:match("(%d+) of")) > 0)
            ngx.say(one:sub(1, 2) == two:sub(1, 2), " ",
                    two:match("ESTIMATED"))
            ngx.say(client.stats().requests.by_rung.text, " ",
                    client.stats().requests.by_reason.no_tokens)
            ngx.say(chat("Short."):match("(%d+ of %d+)"))
--- response_body
0 then true
true ESTIMATED
2 0
0 of 0
--- no_error_log
[error]



=== TEST 15: workers with events have nothing of a text
--- events: events=on
--- script
            local body = '{"messages":[{"role":"user","content":"'
                         .. ("What is a cache? "):rep(40) .. '"}]}'

            for i = 1, 2 do
                ngx.say((ask("POST", "/v1/usage/chat/completions", body,
                             "x-cached: 0\r\n").headers["x-route"]:gsub(
                             "w%d ", "")))
            end

            ngx.say(client.stats().requests.by_rung.text, " ",
                    client.stats().routed.appended)
--- response_body
0 of 0, UNKNOWN
0 of 0, UNKNOWN
0 0
--- no_error_log
[error]



=== TEST 16: events that are switched on and off
--- script
            local first = route("usage", 1, 32)

            local function put(events)
                local answer = ask("PUT", "/kv/workers/" .. first,
                                   '{"address":"' .. worker(first).address
                                   .. '","capacity":4096,"events":' .. events
                                   .. "}")
                ngx.say(answer.status, " ", worker(first).confidence)
            end

            put("true")
            ngx.say(worker(first).confidence, " ", held(first, 1, 32))
            put("false")

            ask("POST", "/kv/workers/" .. (first == "w1" and "w2" or "w1")
                        .. "/drain")
            route("usage", 1, 32)
            ngx.say((select(2, route("usage", 1, 32))))
--- response_body
200 UNKNOWN
UNKNOWN 0
200 ESTIMATED
8 of 8, ESTIMATED
--- no_error_log
[error]
