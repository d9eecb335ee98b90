# What requests weigh where they run, and what they leave there.

use lib 't/lib';
use KVRouter;

# two engines whose answers stay open; /stream has an event for each token

our $Engines = engines(2, engine => <<'_EOC_');
        location /stream {
            content_by_lua_block {
                ngx.header.content_type = "text/event-stream; charset=utf-8"

                -- cut where it hurts: between the two ends of line

                for _ = 1, 10 do
                    ngx.print("data: x\n")
                    ngx.flush(true)
                    ngx.print("\n")
                end

                ngx.flush(true)
                ngx.sleep(60)
            }
        }
_EOC_

our $Workers = zone_workers(2);

scripts(http_config => <<"_EOC_", config => <<'_EOC_');
    init_by_lua_block {
        -- additional_blocks of the candidates, for the client to see

        router = require("resty.kv_router").new("main", { tokenizer = "none", policy = {
            pick = function(self, ctx)
                local pin = ctx.request.headers["x-to"]
                local best, said = 1, ""

                for i = 1, #ctx.candidates do
                    local c = ctx.candidates[i]

                    said = said .. c.worker .. "+" .. c.additional_blocks
                           .. " "

                    if (pin and c.worker == pin)
                       or (not pin and c.device > ctx.candidates[best].device)
                    then
                        best = i
                    end
                end

                return best, nil, said
            end
        } })

        cost = require("resty.kv_router").new("main", { tokenizer = "none" })
    }

$Engines
_EOC_
    location /kv/ {
        kv_router_api         main;
    }

    location /lingering/ {
        lingering_close         always;
        lingering_time          60s;
        lingering_timeout       60s;
        access_by_lua_block     { router:access() }
        proxy_pass              http://engines/;
    }

    location /fallback/ {
        access_by_lua_block     { router:access() }
        error_page              502 = @elsewhere;
        proxy_pass              http://engines/;
    }

    location @elsewhere {
        rewrite                 ^ /slow break;
        proxy_buffering         off;
        proxy_http_version      1.1;
        proxy_pass              http://127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    }

    location /cost/ {
        access_by_lua_block     { cost:access() }
        add_header              x-route "$kv_router_worker $kv_router_overlap_blocks, $kv_router_reason" always;
        rewrite                 ^/cost/(.*) /$1 break;
        proxy_pass              http://engines;
        proxy_buffering         off;
    }

    location /v1/ {
        access_by_lua_block     { router:access() }
        add_header              x-route "$kv_router_worker $kv_router_overlap_blocks of $kv_router_best_overlap_blocks, $kv_router_reason" always;
        proxy_pass              http://engines/;
        proxy_buffering         off;
        proxy_http_version      1.1;
        proxy_set_header        Connection "";
    }
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;

    my $config = $block->http_config // '';

    $config = "    kv_router_zone  zone=main:16m block_size=4;\n$config"
        unless $config =~ /kv_router_zone/;

    $block->set_value('http_config', "$config$Workers");
    $block->set_value('script', <<'_EOC_' . $block->script);
            -- Begins a request, reads its first lines, leaves it open.
            local function begin(path, first, last, to)
                local body = '{"prompt":' .. client.tokens(first, last) .. "}"
                local sock = client.send("POST /v1/" .. path
                                         .. "/completions HTTP/1.0\r\n"
                                         .. "x-to: " .. to .. "\r\n"
                                         .. "Content-Length: " .. #body
                                         .. "\r\n\r\n" .. body)

                sock:receiveuntil("\r\n\r\n")()
                sock:receive(2)

                return sock
            end

            local function route(what, first, last, to)
                local answer = ask("POST", "/v1/completions", '{"prompt":'
                                   .. client.tokens(first, last) .. "}",
                                   to and "x-to: " .. to .. "\r\n")

                ngx.say(what, ": ", answer.headers["x-route"])
            end
_EOC_
});

log_level('info');
worker_connections(512);
no_long_string();
no_shuffle();

plan tests => repeat_each() * 37;

run_tests();

__DATA__

=== TEST 1: blocks that several requests share count once at a worker
--- script
            local a = begin("slow", 1, 16, "w1")
            ngx.say("one: ", client.load())

            local b = begin("slow", 1, 24, "w1")
            ngx.say("two: ", client.load())

            local c = begin("slow", 1, 16, "w2")
            ngx.say("three: ", client.load())

            route("what each would add", 1, 20)

            b:close()
            client.wait(function()
                return not client.load():find("active_requests=2")
            end)
            ngx.say("without the second: ", client.load())

            a:close()
            c:close()
            client.idle()
--- response_body
one: w1/0 active_requests=1 w1/0 decode_blocks=4
two: w1/0 active_requests=2 w1/0 decode_blocks=6
three: w1/0 active_requests=2 w1/0 decode_blocks=6 w2/0 active_requests=1 w2/0 decode_blocks=4
what each would add: w1 0 of 0, w1+0 w2+1 
without the second: w1/0 active_requests=1 w1/0 decode_blocks=4 w2/0 active_requests=1 w2/0 decode_blocks=4
load: none
--- no_error_log
[error]
[alert]



=== TEST 2: an answer that is streamed grows
--- script
            local a = begin("stream", 1, 8, "w1")

            ngx.say("grown: ", client.wait(function()
                local load = client.load()
                return load and load:find("decode_blocks=4") and load
            end))

            a:close()
            client.idle()
--- response_body
grown: w1/0 active_requests=1 w1/0 decode_blocks=4
load: none
--- no_error_log
[error]
[alert]



=== TEST 3: without predict= nobody follows before the events
--- script
            route("first", 1, 16, "w2")
            route("second", 1, 16)
--- response_body
first: w2 0 of 0, w1+4 w2+4 
second: w1 0 of 0, w1+4 w2+4 
--- no_error_log
[error]



=== TEST 4: with predict= siblings follow the first, and no answer says more than the events
--- http_config
    kv_router_zone  zone=main:16m block_size=4 predict=5m;
--- script
            route("first", 1, 40, "w2")
            route("sibling", 1, 40)
            route("another", 101, 140)
            ngx.say("query: ", ask("POST", "/kv/query", '{"tokens":'
                                   .. client.tokens(1, 40) .. "}").body)
            ngx.say("dump: ", #ask("GET", "/kv/dump").body)

            client.cache("w1", client.tokens(1, 60))
            route("a real one is longer", 1, 60)
--- response_body
first: w2 0 of 0, w1+10 w2+10 
sibling: w2 0 of 0, w1+10 w2+10 
another: w1 0 of 0, w1+10 w2+10 
query: {"block_size":4,"blocks":10,"scores":[]}

dump: 0
a real one is longer: w1 15 of 15, w1+15 w2+15 
--- no_error_log
[error]



=== TEST 5: predictions end
--- http_config
    kv_router_zone  zone=main:16m block_size=4 predict=100ms;
--- script
            route("first", 1, 16, "w2")
            ngx.sleep(0.5)
            route("second", 1, 16)
--- response_body
first: w2 0 of 0, w1+4 w2+4 
second: w1 0 of 0, w1+4 w2+4 
--- no_error_log
[error]




=== TEST 6: who comes after a deleted worker does not share its requests
--- http_config
    kv_router_zone  zone=main:16m block_size=4 max_workers=3;
--- script
            local function put(id)
                local answer = ask("PUT", "/kv/workers/" .. id,
                                   '{"address":"127.0.0.1:'
                                   .. "$TEST_NGINX_RAND_PORT_1" .. '"}')

                assert(answer.status == 201, answer.body)
            end

            put("a")

            local a = begin("slow", 1, 16, "a")

            ask("DELETE", "/kv/workers/a")
            put("b")
            route("what each would add", 1, 16)

            local b = begin("slow", 1, 16, "b")

            ngx.say("one: ", client.load())
            a:close()

            local c = begin("slow", 1, 24, "b")

            ngx.say("two: ", client.load())
            b:close()
            c:close()
            client.idle()
            ngx.say("below zero: ", client.stats().index.load_below_zero)
--- response_body
what each would add: w1 0 of 0, w1+4 w2+4 b+4 
one: b/0 active_requests=1 b/0 decode_blocks=4
two: b/0 active_requests=2 b/0 decode_blocks=6
load: none
below zero: 0
--- no_error_log
[error]
[alert]



=== TEST 7: a connection that lingers has no load
--- script
            local function linger(method, path)
                local sock = client.send(method .. " /lingering/" .. path
                                         .. " HTTP/1.0\r\n"
                                         .. "Content-Length: 2\r\n\r\n{}")
                local head = sock:receiveuntil("\r\n\r\n")()

                ngx.say(method, " ", path, ": ", head:match("%d%d%d"))
                client.idle()

                -- nginx reads on, for a minute

                ngx.say("lingers: ", sock:send("more") == 4, " ",
                        ngx.var.connections_active)
                sock:close()
                client.wait(function()
                    return ngx.var.connections_active == "1"
                end)
            end

            linger("POST", "x")
            linger("POST", "reset")
            linger("HEAD", "x")
            linger("HEAD", "reset")
--- response_body
POST x: 200
load: none
lingers: true 2
POST reset: 502
load: none
lingers: true 2
HEAD x: 200
load: none
lingers: true 2
HEAD reset: 502
load: none
lingers: true 2
--- no_error_log
[alert]
[emerg]



=== TEST 8: an answer from elsewhere is no load of the worker that failed
--- script
            local sock = client.send("POST /fallback/reset/completions HTTP/1.0\r\n\r\n")

            local head = sock:receiveuntil("\r\n\r\n")()

            ngx.say(head:match(" (%d%d%d)"))
            ngx.say((sock:receive(2)))
            client.idle()
            sock:close()
--- response_body
200
w1
load: none
--- no_error_log
[alert]
[emerg]



=== TEST 9: a prompt goes where another request of it runs, before there is an event
--- script
            local a = begin("slow", 1, 4000, "w2")

            for _ = 1, 3 do
                local answer = ask("POST", "/cost/completions", '{"prompt":'
                                   .. client.tokens(1, 4000) .. "}")

                ngx.say(answer.headers["x-route"])
            end

            a:close()
            client.idle()
--- response_body
w2 0, in flight
w2 0, in flight
w2 0, in flight
load: none
--- no_error_log
[error]
[alert]



=== TEST 10: what a random worker, and the least loaded one, would have had
--- script
            client.cache("w1", client.tokens(1, 24))

            local function had(what)
                local r = client.stats().requests

                ngx.say(what, ": ", r.overlap_blocks, " of ", r.prompt_blocks,
                        ", random ", r.random_overlap_blocks,
                        ", least loaded ", r.least_loaded_overlap_blocks)
            end

            -- both idle: half of 6 blocks
            route("both are idle", 1, 32)
            had("both are idle")

            -- w1 is busy, w2 is not
            local a = begin("slow", 101, 104, "w1")
            had("of which nobody has anything")
            route("w1 is busy", 1, 32)
            had("w1 is busy")

            -- on average the mean is right: of 1 block, half of the requests
            for _ = 1, 200 do
                ask("POST", "/v1/completions", '{"prompt":'
                    .. client.tokens(1, 4) .. "}")
            end

            local random = client.stats().requests.random_overlap_blocks - 6
            ngx.say("halves: ", random > 50 and random < 150 or random)

            a:close()
            client.idle()
--- response_body
both are idle: w1 6 of 6, w1+8 w2+8 
both are idle: 6 of 8, random 3, least loaded 3
of which nobody has anything: 6 of 9, random 3, least loaded 3
w1 is busy: w1 6 of 6, w1+8 w2+8 
w1 is busy: 12 of 17, random 6, least loaded 3
halves: true
load: none
--- no_error_log
[error]
[alert]
