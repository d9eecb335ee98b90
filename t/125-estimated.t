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
    my $events = $block->events // 'events=off';
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

                return to, rest
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

plan tests => repeat_each() * 35;

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
later: 12 of 16, ESTIMATED, 8 of 8 at the same worker
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
--- response_body
refused: 0 of 8, ESTIMATED
again: 0 of 8, ESTIMATED
answered: 8 of 8, ESTIMATED
--- no_error_log
[error]



=== TEST 3: a worker that has nothing of what it answered has restarted
--- script
            local first = route("usage", 1, 32)

            for i = 1, 9 do
                route("usage", 1, 32, 0)
            end

            route("usage", 1, 32, 28)

            for i = 1, 9 do
                route("usage", 1, 32, 0)
            end

            local to, said = route("usage", 1, 32, 0)
            ngx.say("the tenth: ", said, " ", to == first)

            ngx.say("forgotten: ", ask("GET", "/kv/stats").body:match(
                                       '"estimates_void":(%d+)'))
            ngx.say("next: ", (select(2, route("usage", 1, 32))))
--- response_body
the tenth: 8 of 8, ESTIMATED true
forgotten: 1
next: 0 of 8, ESTIMATED
--- error_log
had nothing cached of 10 prompts in a row
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
written: 0 of 8, EXTERNAL
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
--- events
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
--- events
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
                local file = io.open(ngx.config.prefix() .. "logs/error.log")
                local text = file:read("*a")

                file:close()

                return select(2, text:gsub("is estimated from its answers",
                                           "")) == 2
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

            local function forgotten()
                return ask("GET", "/kv/stats").body:match(
                           '"estimates_void":(%d+)')
            end

            local first = route("usage", 1, 32)

            report(first, "1.76386160345e+09")
            report(first, "1.76386160345e+09")
            ngx.say("running: ", (select(2, route("usage", 1, 32))), ", ",
                    forgotten())

            report(first, "1.76386170345e+09")
            ngx.say("restarted: ", (select(2, route("usage", 1, 32))), ", ",
                    forgotten())
--- response_body
running: 8 of 8, ESTIMATED, 0
restarted: 0 of 8, ESTIMATED, 1
--- error_log eval
qr/worker "\w+" was restarted: "\/metrics" of it reports another process_start_time_seconds/
--- no_error_log
[error]
