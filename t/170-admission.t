# Bounds of workers and of the zone, and the queue of who finds no room.

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

        location /brief {
            content_by_lua_block {
                ngx.sleep(0.02)
                ngx.say("fine")
            }
        }

        location /hold {
            content_by_lua_block {
                ngx.say("held")
                ngx.flush(true)
                ngx.sleep(tonumber(ngx.var.arg_for) or 60)
            }
        }
    }

    server {
        listen 127.0.0.1:$TEST_NGINX_RAND_PORT_2 http2;

        location / {
            access_by_lua_block  { router:access() }
            proxy_pass           http://engines/;
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
        add_header           x-as "$kv_router_class/$kv_router_tenant" always;
        add_header           x-wait "$kv_router_wait" always;
        proxy_pass           http://engines/;
        proxy_http_version   1.1;
        proxy_set_header     Connection "";
        proxy_buffering      off;
    }

    location /watched/ {
        lua_check_client_abort  on;
        access_by_lua_block     { router:access() }
        proxy_pass              http://engines/;
    }
_EOC_

# router: what kv.new() has besides, which makes the router

add_block_preprocessor(sub {
    my ($block) = @_;

    my $new = $block->router // '';

    $block->set_value('http_config', '    kv_router_zone  zone=main:16m '
                      . 'block_size=4 ' . ($block->zone // '') . ";\n"
                      . ($block->http_config // <<"_EOC_"));
    init_by_lua_block {
        kv = require("resty.kv_router")
        router = kv.new("main", { tokenizer = "none", $new })
    }
_EOC_

    $block->set_value('script', <<'_EOC_' . $block->script);
            -- Begins a request that its worker holds, after the first line.
            local function hold(headers, seconds)
                local sock = client.send("POST /v1/hold/completions?for=" .. (seconds or 60)
                                         .. " HTTP/1.0\r\n" .. (headers or "") .. "\r\n")

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

            local function tell_route(what, headers)
                local answer = ask("POST", "/v1/completions", nil, headers)

                ngx.say(what, ": ", answer.status, " ",
                        answer.headers["x-route"] or "-", " ",
                        answer.headers["retry-after"] or "-", " ",
                        (answer.body:gsub("\n$", "")))

                return answer
            end

            -- A header of class and tenant.
            local function as(class, tenant)
                return "x-class: " .. class .. "\r\nx-tenant: " .. (tenant or "") .. "\r\n"
            end

            -- Requests of classes and tenants, "a/t", come one after the other
            -- and wait; done() frees a place, and prints who went when.
            local function in_order(done, ...)
                local order, threads = {}, {}

                for i, name in ipairs { ... } do
                    local class, tenant = name:match("(.*)/(.*)")

                    threads[i] = ngx.thread.spawn(function()
                        local answer = ask("POST", "/v1/completions", "{}",
                                           as(class, tenant))

                        order[#order + 1] = answer.status == 200 and name
                                            or answer.status
                    end)

                    client.turns()
                end

                done()

                for i = 1, #threads do
                    ngx.thread.wait(threads[i])
                end

                ngx.say(table.concat(order, " "))
            end
_EOC_
});

log_level('info');
worker_connections(512);
no_long_string();
no_shuffle();

plan tests => repeat_each() * 115;

run_tests();

__DATA__

=== TEST 1: a worker that has its max_active is no candidate
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
all are full: 429 - 1 {"error":{"message":"all workers are busy","type":"overloaded","param":null,"code":"overload"}}
all again: 429 - 1 {"error":{"message":"all workers are busy","type":"overloaded","param":null,"code":"overload"}}
one left: 200 b - fine
load: none
refused: 2
--- error_log: requests are refused: all workers are busy
--- no_error_log
[error]
[alert]



=== TEST 2: with a queue requests wait for room
--- zone: queue=10
--- router: classes = { default = { wait = 60 } }
--- script
            put("a", ',"max_active":1')

            local a = hold("", 1)
            local answer = tell_route("after a while")

            ngx.say(tonumber(answer.headers["x-wait"]) > 0.2 and "waited"
                    or answer.headers["x-wait"])
            a:close()
            client.idle()
            ngx.say(tell_route("at once").headers["x-wait"])
--- response_body
after a while: 200 a - fine
waited
load: none
at once: 200 a - fine
0.000
--- no_error_log
[error]
[alert]
requests are refused



=== TEST 3: who waits in vain gets the status that is set
--- zone: queue=10
--- router: classes = { default = { wait = 0.2 } }, overload_status = 529
--- script
            put("a", ',"max_active":1,"ranks":2')

            local a = hold()

            tell_route("a bound is for all ranks together")
            a:close()
            client.idle()
--- response_body
a bound is for all ranks together: 529 - 1 {"error":{"message":"all workers are busy","type":"overloaded","param":null,"code":"overload"}}
load: none
--- error_log: requests are refused: all workers are busy
--- no_error_log
[error]
[alert]



=== TEST 4: settings that make no sense are refused
--- script
            for _, conf in ipairs { { queue = 10 }, { queue_timeout = 1 },
                                    { overload_status = 200 },
                                    { classes = { a = { wait = 0 } } },
                                    { class = 1 } }
            do
                ngx.say(select(2, pcall(kv.new, "main", conf)))
            end
--- response_body_like
^.*"queue".* write "queue=NUMBER" in kv_router_zone.*
.*"queue_timeout".* write "wait" in "classes".*
.*"overload_status" .*
.*"classes" of "a": .*"wait" .*
.*"class" must be a string or a function.*$
--- no_error_log
[alert]



=== TEST 5: a bound for all workers together
--- zone: max_active=2
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
both: 429 - 1 .*"overload".*
load: none
none: 200 . - fine$
--- error_log: all workers are busy
--- no_error_log
[error]
[alert]



=== TEST 6: who waits for the place of another worker gets it, by the zone's bound, too
--- zone: queue=10 max_active=1
--- router: classes = { default = { wait = 60 } }
--- script
            put("a", "")
            put("b", "")

            local a = hold()

            in_order(function() a:close() end, "/", "/")
            client.idle()
--- response_body
/ /
load: none
--- no_error_log
[error]
[alert]
requests are refused



=== TEST 7: who waits goes to a worker that comes, and to none that has left
--- zone: queue=10
--- router: classes = { default = { wait = 60 } }
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



=== TEST 8: and to one that is undrained, or whose bound grows
--- zone: queue=10
--- router: classes = { default = { wait = 60 } }
--- script
            put("a", ',"max_active":1')
            put("b", "")
            ask("POST", "/kv/workers/b/drain", '{"drain":true}')

            local a = hold()
            local waiting = ngx.thread.spawn(tell_route, "undrained")

            client.turns()
            ask("POST", "/kv/workers/b/drain", '{"drain":false}')
            ngx.thread.wait(waiting)
            ask("DELETE", "/kv/workers/b")
            waiting = ngx.thread.spawn(tell_route, "grown")
            client.turns()
            ask("PUT", "/kv/workers/a", '{"address":"127.0.0.1:'
                .. "$TEST_NGINX_RAND_PORT_1" .. '","max_active":2}')
            ngx.thread.wait(waiting)
            a:close()
            client.idle()
--- response_body
undrained: 200 b - fine
grown: 200 a - fine
load: none
--- no_error_log
[error]
[alert]
requests are refused



=== TEST 9: without any worker a request waits for one, as long as it may
--- zone: queue=10
--- router: class = "$http_x_class", tenant = "$http_x_tenant", classes = { long = { wait = 60 }, short = { wait = 0.2 } }
--- script
            local waiting = ngx.thread.spawn(tell_route, "one came", as("long"))

            tell_route("none came", as("short"))
            put("a", "")
            ngx.thread.wait(waiting)
            client.idle()
--- response_body
none came: 503 - 1 {"error":{"message":"no worker is available","type":"service_unavailable","param":null,"code":"no_worker"}}
one came: 200 a - fine
load: none
--- no_error_log
[error]
[alert]



=== TEST 10: a later request of a heavy class goes before, and others in their order
--- zone: queue=10 queue_quantum=0
--- router: class = "$http_x_class", tenant = "$http_x_tenant", classes = { chat = { weight = 200, wait = 60 }, batch = { wait = 60 } }
--- script
            put("a", ',"max_active":1')

            local a = hold(as("batch"))

            in_order(function() a:close() end, "batch/", "batch/x", "batch/", "chat/",
                     "chat/")
            client.idle()
--- response_body
chat/ chat/ batch/x batch/ batch/
load: none
--- no_error_log
[error]
[alert]
requests are refused



=== TEST 11: a tenant with many requests holds no other up
--- zone: queue=10 queue_quantum=0
--- router: class = "$http_x_class", tenant = "$http_x_tenant", classes = { default = { wait = 60 } }
--- script
            put("a", ',"max_active":1')

            local a = hold(as("", "greedy"))

            in_order(function() a:close() end, "/greedy", "/greedy", "/greedy",
                     "/x", "/greedy", "/y", "/x")
            client.idle()
--- response_body
/x /y /greedy /x /greedy /greedy /greedy
load: none
--- no_error_log
[error]
[alert]
requests are refused



=== TEST 12: a tenant has its max_active, over all classes
--- zone: queue=10
--- router: class = "$http_x_class", tenant = "$http_x_tenant", classes = { chat = { weight = 200, wait = 60 }, batch = { wait = 60 } }, tenants = { team = { weight = 4, max_active = 2 } }
--- script
            put("a", "")

            local one, two = hold(as("chat", "team")), hold(as("batch", "team"))

            tell_route("two of two", as("chat", "team"))
            tell_route("another", as("chat", "other"))
            one:close()
            client.wait(function()
                return not client.load():find("active_requests=2")
            end)
            tell_route("one of two", as("batch", "team"))
            two:close()
            client.idle()
--- response_body
two of two: 429 - 1 {"error":{"message":"the tenant has its maximum number of requests","type":"overloaded","param":null,"code":"tenant_limit"}}
another: 200 a - fine
one of two: 200 a - fine
load: none
--- error_log: requests are refused: the tenant has its maximum
--- no_error_log
[error]
[alert]



=== TEST 13: a class has its part of the places
--- zone: queue=10
--- router: class = "$http_x_class", tenant = "$http_x_tenant", classes = { chat = {}, batch = { wait = 60, most = 0.5 } }
--- script
            put("a", ',"max_active":4')

            local one, two = hold(as("batch")), hold(as("batch"))
            local waiting = ngx.thread.spawn(tell_route, "a batch", as("batch"))

            client.turns()
            tell_route("a chat", as("chat"))
            one:close()
            ngx.thread.wait(waiting)
            two:close()
            client.idle()
--- response_body
a chat: 200 a - fine
a batch: 200 a - fine
load: none
--- no_error_log
[error]
[alert]
requests are refused



=== TEST 14: as many wait as may
--- zone: queue=1
--- router: classes = { default = { wait = 60 } }
--- script
            put("a", ',"max_active":1')

            local a = hold()
            local waiting = ngx.thread.spawn(tell_route, "the first")

            client.turns()
            tell_route("the second")
            a:close()
            ngx.thread.wait(waiting)
            client.idle()
--- response_body
the second: 429 - 1 {"error":{"message":"too many requests wait","type":"overloaded","param":null,"code":"queue_full"}}
the first: 200 a - fine
load: none
--- error_log: requests are refused: too many requests wait
--- no_error_log
[error]
[alert]



=== TEST 15: who can't be in time is refused at once, once the pace is known
--- zone: queue=1000
--- router: classes = { default = { wait = 60 } }
--- script
            local late = "x-request-timeout-ms: 1\r\n"

            put("a", ',"max_active":1')

            local a, threads = hold(), {}

            for i = 1, 90 do
                threads[i] = ngx.thread.spawn(ask, "POST", "/v1/brief/completions")
            end

            client.wait(function() return client.stats().waiting == 90 end)
            a:close()
            client.wait(function() return client.stats().waiting < 35 end)
            tell_route("it can't be", late)

            for i = 1, 90 do
                ngx.thread.wait(threads[i])
            end

            client.idle()
            tell_route("it can", late)
--- response_body
it can't be: 429 - 1 {"error":{"message":"the request could not be served in time","type":"overloaded","param":null,"code":"too_late"}}
load: none
it can: 200 a - fine
--- error_log: requests are refused: the request could not be
--- no_error_log
[error]
[alert]



=== TEST 16: the pace is not that of those who came while none waited
--- zone: queue=1000
--- router: classes = { default = { wait = 6 } }
--- script
            put("a", ',"max_active":1')

            for _ = 1, 50 do
                ask("POST", "/v1/brief/completions")
                ngx.sleep(0.1)
            end

            -- by that pace the last ones would wait for ten seconds, or more

            local threads, fine = {}, 0

            for i = 1, 80 do
                threads[i] = ngx.thread.spawn(ask, "POST", "/v1/brief/completions")
            end

            for i = 1, 80 do
                local _, answer = ngx.thread.wait(threads[i])

                fine = fine + (answer.status == 200 and 1 or 0)
            end

            ngx.say(fine)
            client.idle()
--- response_body
80
load: none
--- no_error_log
[error]
[alert]
requests are refused



=== TEST 17: x-request-timeout-ms shortens the wait, and never lengthens it
--- zone: queue=10
--- router: class = "$http_x_class", tenant = "$http_x_tenant", classes = { long = { wait = 60 }, short = { wait = 0.2 } }
--- script
            put("a", ',"max_active":1')

            local a = hold()

            for _, case in ipairs { { "long", 200 }, { "short", 60000 },
                                    { "short", "soon" }, { "short", -1 } }
            do
                local answer = ask("POST", "/v1/completions", nil, as(case[1])
                                   .. "x-request-timeout-ms: " .. case[2] .. "\r\n")
                local wait = tonumber(answer.headers["x-wait"])

                ngx.say(case[1], " ", case[2], ": ", answer.status, " ",
                        wait > 0.15 and wait < 30)
            end

            a:close()
            client.idle()
--- response_body
long 200: 429 true
short 60000: 429 true
short soon: 429 true
short -1: 429 true
load: none
--- no_error_log
[error]
[alert]



=== TEST 18: a client that leaves waits no longer, however it is connected
--- zone: queue=1
--- router: classes = { default = { wait = 60 } }
--- script
            local http2 = require "http2"
            local head = "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"

            put("a", ',"max_active":1')

            local a = hold()

            -- one may wait: the next one could not, if it had not left

            local function left(what, sock)
                client.turns()

                local full = ask("POST", "/v1/completions").status

                sock:close()

                local waits = client.wait(function()
                    local again = client.send(head:format("/v1/x"))

                    again:settimeout(100)

                    local line, err = again:receive()

                    again:close()

                    return not line and err == "timeout"
                end)

                ngx.say(what, ": ", full, " ", waits)
                client.turns()
            end

            left("HTTP/1", client.send(head:format("/v1/x")))
            left("watched", client.send(head:format("/watched/x")))

            local stream = http2.post("$TEST_NGINX_RAND_PORT_2", "/x", "2")

            stream:send("{}", true)
            left("HTTP/2", stream)

            stream = http2.post("$TEST_NGINX_RAND_PORT_2", "/x", "2")
            stream:send("{}", true)
            left("a stream", { close = function() stream:cancel() end })
            stream:close()

            a:close()
            client.idle()
            tell_route("at last")
--- response_body
HTTP/1: 429 true
watched: 429 true
HTTP/2: 429 true
a stream: 429 true
load: none
at last: 200 a - fine
--- no_error_log
[alert]



=== TEST 19: classes and tenants are what the configuration asks for
--- zone: queue=10
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main", {
            tokenizer = "none",
            class = function(request)
                local name = ngx.var.http_x_class

                if name == "error" then
                    error("oh")
                end

                return name ~= "none" and (name == "number" and 7 or name) or nil
            end,
            tenant = function(request)
                return tostring(#request.headers["x-tenant"] + 1)
            end,
            classes = { chat = { weight = 20 }, batch = {} } })
    }
--- script
            put("a", ',"max_active":9')

            for _, class in ipairs { "chat", "batch", "made-up", "none", "number", "error" } do
                ngx.say(class, ": ", ask("POST", "/v1/completions", '{"prompt":[1,2]}',
                                         as(class, "t")).headers["x-as"])
            end
--- response_body
chat: chat/2
batch: batch/2
made-up: batch/2
none: batch/2
number: batch/2
error: batch/2
--- error_log: the function "class" of kv.new() returned
--- no_error_log
[error]
[alert]



=== TEST 20: with queue_mode=observe nobody waits, and no bound is applied
--- zone: queue=10 queue_mode=observe max_active=1
--- script
            put("a", ',"max_active":1')

            local a = hold()

            tell_route("as if there was room")
            a:close()
            client.idle()
--- response_body
as if there was room: 200 a - fine
load: none
--- no_error_log
[error]
[alert]
requests are refused



=== TEST 21: routers of a zone have the same classes and tenants
--- script
            for _, conf in ipairs {
                {},
                { classes = { a = { weight = 2 } } },
                { classes = { a = { weight = 2, wait = 5 } } },
                { classes = { a = { weight = 3 } } },
                { classes = { a = { weight = 2 } }, tenants = { t = {} } },
            } do
                local ok, err = pcall(kv.new, "main", conf)

                ngx.say(ok or err)
            end
--- response_body
true
true
true
bad argument #2 to 'new' (the classes or tenants are not those of another kv.new() of the zone "main": give both the same, or give them once)
bad argument #2 to 'new' (the classes or tenants are not those of another kv.new() of the zone "main": give both the same, or give them once)
--- no_error_log
[alert]



=== TEST 22: who waits with a long prompt takes no more memory for it
--- zone: queue=10
--- router: classes = { default = { wait = 1.5 } }
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
429
no more
load: none
--- no_error_log
[error]
[alert]
[emerg]



=== TEST 23: who waits has its body scanned once
--- zone: queue=10
--- router: classes = { default = { wait = 60 } }
--- script
            put("a", ',"max_active":1')

            local a = hold()
            local waiting = ngx.thread.spawn(function()
                ngx.say(ask("POST", "/v1/completions",
                            '{"prompt":' .. client.tokens(1, 64) .. "}").status)
            end)

            client.turns()
            a:close()
            ngx.thread.wait(waiting)

            local requests = client.stats().requests

            ngx.say("scanned: ", requests.prompts_scanned, ", blocks: ",
                    requests.prompt_blocks)
            client.idle()
--- response_body
200
scanned: 1, blocks: 16
load: none
--- no_error_log
[error]
[alert]



=== TEST 24: requests that wait together keep what is their own
--- zone: queue=10
--- router: pin = true, classes = { default = { wait = 60 } }
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

            client.turns()
            a:close()
            b:close()

            for i = 1, 3 do
                ngx.say(select(2, ngx.thread.wait(threads[i])))
            end

            client.idle()
--- response_body
a 3
b 1
b 2
load: none
--- no_error_log eval
["[error]", "[alert]", qr/\[warn\](?!.*( pick\(\) took | the same address ))/]



=== TEST 25: if all workers are out, requests try them all the same
--- zone: queue=10
--- router: classes = { default = { wait = 30 } }
--- script
            ask("PUT", "/kv/workers/a", '{"address":"127.0.0.1:1","max_active":1}')

            for _ = 1, 3 do
                ngx.say(ask("POST", "/v1/completions").status)
            end

            client.idle()
--- response_body
502
502
502
load: none
--- error_log
is out for
--- no_error_log
[alert]
