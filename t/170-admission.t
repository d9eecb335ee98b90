# max_active: workers that are full, and who waits for them.

use lib 't/lib';
use KVRouter;

scripts(http_config => <<'_EOC_', config => <<'_EOC_');
    upstream engines {
        server     0.0.0.1;
        balancer_by_lua_block { router:balance() }
    }

    server {
        listen 127.0.0.1:$TEST_NGINX_RAND_PORT_1;

        location / {
            return  200 "fine\n";
        }

        location /hold {
            content_by_lua_block {
                ngx.say("held")
                ngx.flush(true)
                ngx.sleep(tonumber(ngx.var.arg_for) or 60)
            }
        }
    }
_EOC_
    location /kv/ {
        kv_router_api  main;
    }

    location /v1/ {
        access_by_lua_block  { router:access() }
        log_by_lua_block     { router:log() }
        add_header           x-route "$kv_router_worker" always;
        proxy_pass           http://engines/;
        proxy_http_version   1.1;
        proxy_set_header     Connection "";
        proxy_buffering      off;
    }
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('http_config', '    kv_router_zone  zone=main:16m '
                      . 'block_size=4 ' . ($block->zone // '') . ";\n"
                      . $block->http_config);

    $block->set_value('script', <<'_EOC_' . $block->script);
            -- Begins a request that its worker holds, after the first line.
            local function hold(seconds)
                local sock = client.send("GET /v1/hold?for=" .. (seconds or 60)
                                         .. " HTTP/1.0\r\n\r\n")

                sock:receiveuntil("\r\n\r\n")()
                sock:receive(4)

                return sock
            end

            local function put(id, more)
                local answer = ask("PUT", "/kv/workers/" .. id,
                                   '{"address":"127.0.0.1:'
                                   .. "$TEST_NGINX_RAND_PORT_1" .. '"'
                                   .. more .. "}")

                assert(answer.status == 201, answer.body)
            end

            local function tell_route(what)
                local answer = ask("GET", "/v1/x")

                ngx.say(what, ": ", answer.status, " ",
                        answer.headers["x-route"] or "-", " ",
                        answer.headers["retry-after"] or "-", " ",
                        (answer.body:gsub("\n$", "")))
            end
_EOC_
});

log_level('info');
worker_connections(512);
no_long_string();
no_shuffle();

plan tests => repeat_each() * 38;

run_tests();

__DATA__

=== TEST 1: a worker that has its max_active is no candidate
--- http_config
    init_by_lua_block { router = require("resty.kv_router").new("main") }
--- script
            put("a", ',"max_active":1')

            local a = hold()

            tell_route("all are full")
            put("b", ',"max_active":2')

            local b, c = hold(), hold()

            tell_route("all again")
            b:close()
            client.wait(function()
                return not client.load():find("active_requests=2")
            end)
            tell_route("one left")
            a:close()
            c:close()
            client.idle()
            ngx.say("refused: ", client.stats().requests.by_reason.overload)
--- response_body
all are full: 503 - 1 {"error":{"message":"all workers are busy","type":"overloaded","param":null,"code":"overload"}}
all again: 503 - 1 {"error":{"message":"all workers are busy","type":"overloaded","param":null,"code":"overload"}}
one left: 200 b - fine
load: none
refused: 2
--- error_log: all workers are busy, requests are refused: no more may wait
--- no_error_log
[error]
[alert]



=== TEST 2: with a queue requests wait for room
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main",
                                                { queue = 10,
                                                  queue_timeout = 60 })
    }
--- script
            put("a", ',"max_active":1')

            local a = hold(1)

            tell_route("after a while")
            a:close()
            client.idle()
--- response_body
after a while: 200 a - fine
load: none
--- no_error_log
[error]
[alert]
[warn]



=== TEST 3: who waits in vain gets the status that is set
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main",
                                                { queue = 10,
                                                  queue_timeout = 0.2,
                                                  overload_status = 429 })
    }
--- script
            put("a", ',"max_active":1,"ranks":2')

            local a = hold()

            tell_route("a bound is for all ranks together")
            a:close()
            client.idle()
--- response_body
a bound is for all ranks together: 429 - 1 {"error":{"message":"all workers are busy","type":"overloaded","param":null,"code":"overload"}}
load: none
--- error_log: all workers are busy, requests are refused: they waited in vain
--- no_error_log
[error]
[alert]



=== TEST 4: settings that make no sense are refused
--- http_config
    init_by_lua_block { kv = require("resty.kv_router") }
--- script
            for _, conf in ipairs { { queue = -1 }, { queue = 1.5 },
                                    { queue_timeout = 0 },
                                    { overload_status = 200 } }
            do
                ngx.say(select(2, pcall(kv.new, "main", conf)))
            end
--- response_body_like
^.*"queue" .*
.*"queue" .*
.*"queue_timeout" .*
.*"overload_status" .*$
--- no_error_log
[alert]



=== TEST 5: a bound for all workers together
--- zone: max_active=2
--- http_config
    init_by_lua_block { router = require("resty.kv_router").new("main") }
--- script
            put("a", "")
            put("b", "")

            local a = hold()

            tell_route("one of two")

            local b = hold()

            tell_route("both")
            a:close()
            b:close()
            client.idle()
            tell_route("none")
--- response_body_like
^one of two: 200 . - fine
both: 503 - 1 .*"overload".*
load: none
none: 200 . - fine$
--- error_log: all workers are busy
--- no_error_log
[error]
[alert]



=== TEST 6: who waits goes to a worker that comes, and to none that has left
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main",
                                                { queue = 10,
                                                  queue_timeout = 60 })
    }
--- script
            put("a", ',"max_active":1')

            local a = hold()
            local waiting = ngx.thread.spawn(tell_route, "to the new one")

            client.turns()
            put("b", ',"max_active":1')
            ngx.thread.wait(waiting)

            local b = hold()

            waiting = ngx.thread.spawn(tell_route, "to its successor")
            client.turns()
            ask("DELETE", "/kv/workers/b")
            client.turns()
            put("c", "")
            ngx.thread.wait(waiting)
            a:close()
            b:close()
            client.idle()
--- response_body
to the new one: 200 b - fine
to its successor: 200 c - fine
load: none
--- no_error_log
[error]
[alert]
[warn]



=== TEST 7: who waits is let in by priority, the smallest number first
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main",
                                                { queue = 10,
                                                  queue_timeout = 60 })
    }
--- script
            put("a", ',"max_active":1')

            local a = hold()
            local order, threads = {}, {}

            for i, priority in ipairs { 5, 0, -3, 5, -3 } do
                threads[i] = ngx.thread.spawn(function()
                    local answer = ask("POST", "/v1/x", '{"priority":'
                                       .. priority .. "}")

                    assert(answer.status == 200)
                    order[#order + 1] = priority .. "/" .. i
                end)

                -- each is in the queue before the next one comes
                client.turns()
            end

            a:close()

            for i = 1, #threads do
                ngx.thread.wait(threads[i])
            end

            ngx.say(table.concat(order, " "))
            client.idle()
--- response_body
-3/3 -3/5 0/2 5/1 5/4
load: none
--- no_error_log
[error]
[alert]
[warn]



=== TEST 8: who waits with a long prompt takes no more memory for it
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main",
                                                { queue = 10,
                                                  queue_timeout = 1.5 })
    }
--- script
            put("a", ',"max_active":1')

            local function peak()
                local text = io.open("/proc/self/status"):read("*a")

                return tonumber(text:match("VmHWM:%s*(%d+)"))
            end

            -- in a file, while it waits
            local body = '{"prompt":[1' .. (",1"):rep(300000) .. "]}"

            ngx.say(ask("POST", "/v1/x", body).status)

            local before = peak()
            local a = hold()

            ngx.say(ask("POST", "/v1/x", body).status)
            ngx.say(peak() - before < 8192 and "no more" or peak() - before)
            a:close()
            client.idle()
--- response_body
200
503
no more
load: none
--- no_error_log
[error]
[alert]
[emerg]
