# Several nginx processes, and what a reload keeps.

use lib 't/lib';
use KVRouter;

master_on();
workers(2);

# each block is a reload of the one before

use_hup();

# This port is served by both processes, each with an accept queue of its own:
# who asks often enough is answered by both.

$ENV{TEST_NGINX_BOTH_PORT} = free_port();
$ENV{TEST_NGINX_ENGINE_PORT} = free_port();

our $HttpConfig = <<'_EOC_';
    server {
        listen  127.0.0.1:$TEST_NGINX_BOTH_PORT reuseport;

        location /kv/ {
            kv_router_api  main;
            add_header     x-pid $pid always;
        }

        location /v1/ {
            access_by_lua_block { router:access() }
            add_header          x-pid $pid always;
            add_header          x-route "$kv_router_worker $kv_router_overlap_blocks" always;
            proxy_pass          http://engines/;
        }

        location /flight/ {
            access_by_lua_block { flight:access() }
            add_header          x-pid $pid always;
            add_header          x-route "$kv_router_worker $kv_router_reason" always;
            proxy_pass          http://engines/;
        }
    }

    upstream engines {
        server  0.0.0.1;
        balancer_by_lua_block { router:balance() }
    }

    server {
        listen    127.0.0.1:$TEST_NGINX_ENGINE_PORT;
        location  / {
            content_by_lua_block {
                ngx.req.read_body()

                -- held until the test says "go"
                local hold, name = ngx.shared.hold, ngx.var.http_x_hold

                if name then
                    hold:set(name, "here")

                    while hold:get(name) ~= "go" do
                        ngx.sleep(0.01)
                    end
                end

                ngx.say("w1")
            }
        }
    }

    lua_shared_dict  hold 1m;

    init_by_lua_block {
        router = require("resty.kv_router").new("main", {
            tokenizer = "none", policy_conf = { in_flight = false },
        })

        flight = require("resty.kv_router").new("main", { tokenizer = "none" })
    }
_EOC_

scripts(config => <<'_EOC_');
    location /kv/ {
        kv_router_api  main;
    }
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;

    # behind the zone of the block

    $block->set_value('http_config', $block->http_config . $HttpConfig);

    $block->set_value('script', <<'_EOC_' . $block->script);
            local PORT = $TEST_NGINX_BOTH_PORT

            -- Asks until two processes have answered; prints each answer, in
            -- what it differs from those before.
            local function both(what, method, path, body, header)
                local pids, seen, n = {}, {}, 0

                client.wait(function()
                    local answer = ask(method, path, body, nil, PORT)
                    local pid = answer.headers["x-pid"]
                    local text = answer.status .. " " .. (header
                                 and answer.headers[header] or answer.body)

                    if not pids[pid] then
                        pids[pid] = true
                        n = n + 1
                    end

                    if not seen[text] then
                        seen[text] = true
                        ngx.say(what, ": ", (text:gsub("\n$", "")))
                    end

                    return n == 2
                end)

                ngx.say("  by ", n, " processes")
            end
_EOC_
});

log_level('notice');
no_long_string();
no_shuffle();

plan tests => repeat_each() * 36;

run_tests();

__DATA__

=== TEST 1: what one process stores both of them see
--- http_config
    kv_router_zone    zone=main:16m block_size=4;
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_ENGINE_PORT events=on;
    kv_router_worker  main w2 127.0.0.1:$TEST_NGINX_ENGINE_PORT events=on;
    kv_router_worker  main w3 127.0.0.1:$TEST_NGINX_ENGINE_PORT events=on;
--- script
            local prompt = client.tokens(1, 16)

            both("nothing", "POST", "/kv/query", '{"tokens":' .. prompt .. "}")
            ask("PUT", "/kv/workers/api",
                '{"address":"127.0.0.1:$TEST_NGINX_ENGINE_PORT"}')
            client.cache("w1", prompt)
            client.cache("w2", client.tokens(1, 12))
            client.cache("api", client.tokens(1, 8))
            client.cache("w3", client.tokens(1, 4))
            both("stored", "POST", "/kv/query", '{"tokens":' .. prompt .. "}")
            both("routed", "POST", "/v1/completions", '{"prompt":' .. prompt .. "}",
                 "x-route")
            client.idle()
            ask("POST", "/kv/workers/w1/drain")
            both("drained", "POST", "/v1/completions", '{"prompt":' .. prompt .. "}",
                 "x-route")
            ask("POST", "/kv/events", event("w2", removed(1002)))
            both("removed", "POST", "/v1/completions", '{"prompt":' .. prompt .. "}",
                 "x-route")
--- response_body
nothing: 200 {"block_size":4,"blocks":4,"scores":[]}
  by 2 processes
stored: 200 {"block_size":4,"blocks":4,"scores":[{"worker_id":"w1","dp_rank":0,"device":4,"host":4,"disk":4},{"worker_id":"w2","dp_rank":0,"device":3,"host":3,"disk":3},{"worker_id":"api","dp_rank":0,"device":2,"host":2,"disk":2},{"worker_id":"w3","dp_rank":0,"device":1,"host":1,"disk":1}]}
  by 2 processes
routed: 200 w1 4
  by 2 processes
load: none
drained: 200 w2 3
  by 2 processes
removed: 200 api 2
  by 2 processes



=== TEST 2: a reload keeps the index, drains and workers of the API
--- http_config
    # stale, so that it isn't the same
    kv_router_zone    zone=main:16m block_size=4 stale=7s;
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_ENGINE_PORT events=on;
    kv_router_worker  main w2 127.0.0.1:$TEST_NGINX_ENGINE_PORT events=on;
    kv_router_worker  main w3 127.0.0.1:$TEST_NGINX_ENGINE_PORT events=on;
--- script
            local prompt = client.tokens(1, 16)

            both("query", "POST", "/kv/query", '{"tokens":' .. prompt .. "}")
            both("routed", "POST", "/v1/completions", '{"prompt":' .. prompt .. "}",
                 "x-route")

            for _, w in ipairs(client.stats().workers) do
                ngx.say(w.worker_id, " ", w.origin,
                        w.draining and " draining" or "")
            end

            client.idle()
--- response_body
query: 200 {"block_size":4,"blocks":4,"scores":[{"worker_id":"w1","dp_rank":0,"device":4,"host":4,"disk":4},{"worker_id":"api","dp_rank":0,"device":2,"host":2,"disk":2},{"worker_id":"w2","dp_rank":0,"device":1,"host":1,"disk":1},{"worker_id":"w3","dp_rank":0,"device":1,"host":1,"disk":1}]}
  by 2 processes
routed: 200 api 2
  by 2 processes
w1 static draining
w2 static
w3 static
api api
load: none



=== TEST 3: a configured worker that a reload drops gets nothing, a new one does
--- http_config
    kv_router_zone    zone=main:16m block_size=4;
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_ENGINE_PORT events=on;
    kv_router_worker  main w3 127.0.0.1:$TEST_NGINX_ENGINE_PORT events=on;
    kv_router_worker  main w4 127.0.0.1:$TEST_NGINX_ENGINE_PORT events=on;
--- script
            local prompt = client.tokens(1, 16)

            ask("DELETE", "/kv/workers/api")
            both("query", "POST", "/kv/query", '{"tokens":' .. prompt .. "}")
            both("routed", "POST", "/v1/completions", '{"prompt":' .. prompt .. "}",
                 "x-route")
            client.cache("w4", prompt)
            both("the new one", "POST", "/v1/completions", '{"prompt":' .. prompt .. "}",
                 "x-route")

            for _, w in ipairs(client.stats().workers) do
                ngx.say(w.worker_id, " ", w.origin,
                        w.draining and " draining" or "")
            end
--- response_body
query: 200 {"block_size":4,"blocks":4,"scores":[{"worker_id":"w1","dp_rank":0,"device":4,"host":4,"disk":4},{"worker_id":"w2","dp_rank":0,"device":1,"host":1,"disk":1},{"worker_id":"w3","dp_rank":0,"device":1,"host":1,"disk":1}]}
  by 2 processes
routed: 200 w3 1
  by 2 processes
the new one: 200 w4 4
  by 2 processes
w1 static draining
w2 events
w3 static
w4 static



=== TEST 4: a reload with another block size is refused, and the old goes on
--- http_config
    kv_router_zone    zone=main:16m block_size=8;
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_ENGINE_PORT events=on;
--- reload_fails
--- script
            -- what answers is the configuration of TEST 3, and its script
--- response_body
query: 200 {"block_size":4,"blocks":4,"scores":[{"worker_id":"w1","dp_rank":0,"device":4,"host":4,"disk":4},{"worker_id":"w4","dp_rank":0,"device":4,"host":4,"disk":4},{"worker_id":"w2","dp_rank":0,"device":1,"host":1,"disk":1},{"worker_id":"w3","dp_rank":0,"device":1,"host":1,"disk":1}]}
  by 2 processes
routed: 200 w4 4
  by 2 processes
the new one: 200 w4 4
  by 2 processes
w1 static draining
w2 events
w3 static
w4 static
--- error_log
[emerg]
kv_router_zone "main" can't be used
--- no_error_log
[alert]
exited on signal



=== TEST 5: and can be made good again
--- http_config
    kv_router_zone    zone=main:16m block_size=4;
    kv_router_worker  main w4 127.0.0.1:$TEST_NGINX_ENGINE_PORT events=on;
--- script
            both("routed", "POST", "/v1/completions", '{"prompt":'
                 .. client.tokens(1, 16) .. "}", "x-route")
--- response_body
routed: 200 w4 4
  by 2 processes



=== TEST 6: a zone of another size is a new one
--- http_config
    kv_router_zone    zone=main:17m block_size=8;
    kv_router_worker  main w4 127.0.0.1:$TEST_NGINX_ENGINE_PORT events=on;
--- script
            both("routed", "POST", "/v1/completions", '{"prompt":'
                 .. client.tokens(1, 16) .. "}", "x-route")
--- response_body
routed: 200 w4 0
  by 2 processes



=== TEST 7: what one process has sent is in flight for both of them
--- http_config
    kv_router_zone    zone=main:16m block_size=4;
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_ENGINE_PORT events=on;
    kv_router_worker  main w3 127.0.0.1:$TEST_NGINX_ENGINE_PORT events=on;
    kv_router_worker  main w4 127.0.0.1:$TEST_NGINX_ENGINE_PORT events=on;
--- script
            for i = 5, 8 do
                local body = '{"prompt":' .. client.tokens(i * 1000, i * 1000 + 63)
                             .. "}"
                local first = client.send(table.concat {
                    "POST /flight/completions HTTP/1.0\r\nHost: localhost\r\n",
                    "X-Hold: ", i, "\r\nContent-Length: ", #body, "\r\n\r\n",
                    body }, PORT)
                local again, workers = {}, {}

                assert(client.wait(function()
                    return ngx.shared.hold:get(tostring(i)) == "here"
                end), "not at the engine")

                -- while it is on its way, both processes say so
                assert(client.wait(function()
                    local answer = ask("POST", "/flight/completions", body, nil,
                                       PORT)
                    local route = answer.headers["x-route"]
                    local worker = route:match("^(%S+) in flight")

                    if worker then
                        again[answer.headers["x-pid"]] = true
                        workers[worker] = true
                    end

                    return next(again, next(again))
                end), "not in flight for both")

                ngx.shared.hold:set(tostring(i), "go")

                local worker, why = client.receive(first).headers["x-route"]
                                    :match("^(%S+) (.+)")

                assert(workers[worker] and not next(workers, next(workers)))
                ngx.say(why)
            end

            client.idle()
--- response_body
no overlap
no overlap
no overlap
no overlap
load: none
