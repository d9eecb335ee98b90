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
        allow                127.0.0.1;
        deny                 all;
    }

    location /v1/ {
        access_by_lua_block  { router:access() }
        log_by_lua_block     { router:log() }
        add_header           x-route "$kv_router_worker" always;
        add_header           x-blocks "$kv_router_prompt_blocks";
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
                local sock = client.send("POST /v1/hold/completions?for=" .. (seconds or 60)
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
                local answer = ask("POST", "/v1/completions")

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

plan tests => repeat_each() * 48;

run_tests();

__DATA__

=== TEST 1: a worker that has its max_active is no candidate
--- http_config
    init_by_lua_block { router = require("resty.kv_router").new("main", { tokenizer = "none" }) }
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
                                                { tokenizer = "none", queue = 10,
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
requests are refused



=== TEST 3: who waits in vain gets the status that is set
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main",
                                                { tokenizer = "none", queue = 10,
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
    init_by_lua_block { router = require("resty.kv_router").new("main", { tokenizer = "none" }) }
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
                                                { tokenizer = "none", queue = 10,
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
requests are refused



=== TEST 7: who waits is let in by priority, the smallest number first
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main",
                                                { tokenizer = "none", queue = 10,
                                                  queue_timeout = 60 })
    }
--- script
            put("a", ',"max_active":1')

            local a = hold()
            local order, threads = {}, {}

            for i, priority in ipairs { 5, 0, -3, 5, -3 } do
                threads[i] = ngx.thread.spawn(function()
                    local answer = ask("POST", "/v1/completions", '{"priority":'
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
requests are refused



=== TEST 8: who waits with a long prompt takes no more memory for it
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main",
                                                { tokenizer = "none", queue = 10,
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

            ngx.say(ask("POST", "/v1/completions", body).status)

            local before = peak()
            local a = hold()

            ngx.say(ask("POST", "/v1/completions", body).status)
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



=== TEST 9: who waits has its body scanned once
--- http_config
    init_by_lua_block {
        local lib = require("resty.kv_router.ffi")
        local candidates = lib.candidates

        looks = 0

        function lib.candidates(...)
            looks = looks + 1

            return candidates(...)
        end

        router = require("resty.kv_router").new("main",
                                                { tokenizer = "none", queue = 10,
                                                  queue_timeout = 60 })
    }
--- script
            put("a", ',"max_active":1')

            local a = hold()
            local waiting = ngx.thread.spawn(function()
                ngx.say(ask("POST", "/v1/completions",
                            '{"prompt":' .. client.tokens(1, 64) .. "}").status)
            end)

            -- each of them is 10 ms after the one before
            ngx.say(client.wait(function() return looks > 20 end))
            a:close()
            ngx.thread.wait(waiting)

            local requests = client.stats().requests

            ngx.say("scanned: ", requests.prompts_scanned, ", blocks: ",
                    requests.prompt_blocks)
            client.idle()
--- response_body
true
200
scanned: 1, blocks: 16
load: none
--- no_error_log eval
["[error]", "[alert]", qr/\[warn\](?!.* pick\(\) took )/]



=== TEST 10: requests that wait together keep what is their own
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main",
                                                { tokenizer = "none", queue = 10, pin = true,
                                                  queue_timeout = 60 })
    }
--- script
            put("a", ',"max_active":1,"model":"m1"')
            put("b", ',"max_active":1,"model":"m2"')

            local a, b = hold(), hold()
            local threads = {}

            for i, case in ipairs {
                { '{"prompt":' .. client.tokens(1, 12) .. ',"model":"m1"}' },
                { '{"prompt":' .. client.tokens(7, 10) .. ',"model":"m2"}' },
                { '{"prompt":' .. client.tokens(1, 8) .. "}",
                  "x-kv-worker: b\r\n" },
            } do
                threads[i] = ngx.thread.spawn(function()
                    local answer = ask("POST", "/v1/completions", case[1], case[2])

                    return answer.headers["x-route"] .. " "
                           .. answer.headers["x-blocks"]
                end)
            end

            ngx.say(client.wait(function()
                return router.gate:waiting() == 3
            end))
            a:close()
            b:close()

            for i = 1, 3 do
                ngx.say(select(2, ngx.thread.wait(threads[i])))
            end

            client.idle()
--- response_body
true
a 3
b 1
b 2
load: none
--- no_error_log eval
["[error]", "[alert]", qr/\[warn\](?!.*( pick\(\) took | the same address ))/]
