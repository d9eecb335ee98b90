# Policies in nginx: sessions, prefixes, workers that a request is pinned to,
# and policies that fail, wait, or are slow.

use lib 't/lib';
use KVRouter;

our $Workers = join('', map { <<_EOC_ } 1 .. 3);
    kv_router_worker  main w$_ 127.0.0.1:\$TEST_NGINX_RAND_PORT_$_ events=on;

    server {
        listen    127.0.0.1:\$TEST_NGINX_RAND_PORT_$_;

        location  / {
            return  200 "w$_";
        }
    }
_EOC_

scripts(http_config => <<"_EOC_", config => <<'_EOC_');
    kv_router_zone      zone=main:16m block_size=4;
    lua_package_path    "$KVRouter::Root/lua/?.lua;$KVRouter::Root/t/lib/?.lua;$KVRouter::Root/conf/?.lua;\$TEST_NGINX_HTML_DIR/?.lua;;";
    lua_shared_dict     sessions 1m;

    upstream engines {
        server  0.0.0.1;
        balancer_by_lua_block { router:balance() }
    }
$Workers
_EOC_
    location /kv/ {
        kv_router_api  main;
    }

    location /status {
        kv_router_status  main;
    }

    location /v1/ {
        access_by_lua_block  { router:access() }
        log_by_lua_block     { router:log() }
        add_header           x-route "$kv_router_policy: $kv_router_reason" always;
        proxy_pass           http://engines/;
    }
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('script', <<'_EOC_' . $block->script);
            local ids = '{"prompt":[1,2,3,4,5,6,7,8]}'

            -- the worker, and why
            local function route(headers, body)
                local answer = ask("POST", "/v1/completions", body or ids,
                                   headers)

                return answer.body, answer.headers["x-route"]
            end

            -- how many different workers n requests go to, and the last of them
            local function spread(n, headers, body)
                local seen, count, last = {}, 0, nil

                for _ = 1, n do
                    last = route(headers, body)

                    if not seen[last] then
                        seen[last] = true
                        count = count + 1
                    end
                end

                return count, last
            end

            -- why each of n requests was routed; more than one: joined
            local function whys(n, headers)
                local seen, list = {}, {}

                for _ = 1, n do
                    local _, why = route(headers)

                    if not seen[why] then
                        seen[why] = true
                        list[#list + 1] = why
                    end
                end

                return table.concat(list, ", ")
            end

            -- the lines of the log that have what, shown if show is true.  On
            -- a busy machine any pick can be slow: lines of that kind count
            -- only where what names them
            local function logged(what, show)
                local slow = what:find("pick() took", 1, true)
                local n = 0

                for line in io.lines(ngx.config.prefix() .. "logs/error.log")
                do
                    if line:find(what, 1, true)
                       and (slow or not line:find("pick() took", 1, true))
                    then
                        n = n + 1

                        if show then
                            ngx.say((line:match("kv_router: (.*)")
                                         :gsub(", client: .*", "")))
                        end
                    end
                end

                return n
            end

            local function requests()
                return require("resty.kv_router").index("main"):stats().requests
            end
_EOC_
});

no_long_string();
no_shuffle();

plan tests => repeat_each() * 39;

run_tests();

__DATA__

=== TEST 1: a session stays where it was
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none",
            policy = "session",
            policy_conf = { next = "random", dict = "sessions" },
        })
    }
--- script
            local one, at = spread(20, "x-session-id: s1\r\n")

            ngx.say(one, " worker")
            ngx.say(select(2, route("x-session-id: s1\r\n")))
            ngx.say(select(2, route("x-session-id: s2\r\n")))
            ngx.say(spread(60) == 3)
            ngx.say(spread(20, nil, '{"session_id":"s1","prompt":"x"}') == 1)
            ngx.say(route(nil, '{"session_id":"s1","prompt":"x"}') == at)

            -- gone: another one, and that for good
            client.ask("POST", "/kv/workers/" .. at .. "/drain", "")

            local two, there = spread(20, "x-session-id: s1\r\n")

            ngx.say(two, " worker, another one: ", there ~= at)
--- response_body
1 worker
session: session
session: random
true
true
true
1 worker, another one: true



=== TEST 2: prompts that begin alike go to one worker, with tokens or without
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none",
            policy = "prefix_hash",
            policy_conf = { tokens = 8 },
        })
    }
--- script
            local count = spread(20)

            ngx.say(count)
            ngx.say(select(2, route()))

            local at = route()

            for i = 9, 40 do
                if route(nil, '{"prompt":[1,2,3,4,5,6,7,8,' .. i .. ',1,2,3]}')
                   ~= at
                then
                    ngx.say("not for ", i)
                end
            end

            local seen = {}

            for i = 1, 40 do
                seen[route(nil, '{"prompt":[' .. i .. ',2,3,4,5]}')] = true
            end

            ngx.say(seen.w1 and seen.w2 and seen.w3)

            count = spread(20, nil, '{"prompt":"Once upon a time"}')
            ngx.say(count, " ",
                    select(2, route(nil, '{"prompt":"Once upon a time"}')))
            ngx.say(select(2, route(nil, '{"input":[]}')))
            ngx.say(select(2, route(nil, '{"x":1}')))
--- response_body
1
prefix_hash: prefix
true
1 prefix_hash: no_tokens
prefix_hash: no_tokens
prefix_hash: no_tokens



=== TEST 3: a request is pinned to workers by its header, when that is allowed
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none", pin = true })
    }
--- script
            local count, at = spread(20, "x-kv-worker: w2\r\n")

            ngx.say(count, " ", at)
            ngx.say(spread(60, "x-kv-worker: w1, w3\r\n") == 2)

            client.cache("w2", "[1,2,3,4,5,6,7,8]")
            ngx.say(route())
            ngx.say(route("x-kv-worker: w3\r\n"))
            ngx.say(select(2, route("x-kv-worker: w3\r\n")))
            ngx.say((route("X-KV-Worker: w3,w2\r\n")))

            -- nobody is left: all are
            ngx.say(select(2, route("x-kv-worker: w9\r\n")))
            ngx.say(select(2, route("x-kv-worker: w\r\n")))
            ngx.say(select(2, route("x-kv-worker: w22, ,\r\n")))
--- response_body
1 w2
true
w2kv_cost: overlap
w3kv_cost: no overlap
kv_cost: no overlap
w2
kv_cost: no_eligible
kv_cost: no_eligible
kv_cost: no_eligible



=== TEST 4: it is not, when that is not allowed
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none" })
    }
--- script
            client.cache("w2", "[1,2,3,4,5,6,7,8]")
            ngx.say((route("x-kv-worker: w3\r\n")))
--- response_body
w2



=== TEST 5: a policy that fails is logged once, with a traceback, and counted
--- http_config
    init_by_lua_block {
        local n = 0

        router = require("resty.kv_router").new("main", { tokenizer = "none",
            policy = {
                name = "moody",
                pick = function(self, ctx)
                    n = n + 1

                    if n % 3 == 0 then
                        error("mood " .. n)
                    end

                    if n % 3 == 1 then
                        return "w" .. n * 100
                    end

                    return 0 / 0
                end
            }
        })
    }
--- script
            for _ = 1, 30 do
                local answer = ask("POST", "/v1/completions", ids)

                if answer.status ~= 200
                   or answer.headers["x-route"] ~= "moody: policy_error"
                then
                    ngx.say(answer.status, " ", answer.headers["x-route"])
                end
            end

            ngx.say(requests().policy_errors)
            ngx.say(logged('policy "moody":'), " lines, ",
                    logged("stack traceback"), " tracebacks")
--- response_body
30
3 lines, 3 tracebacks
--- no_error_log
[alert]
[emerg]



=== TEST 6: a policy that yields is not waited for, and is said once
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none",
            policy = "acme.waits"
        })
    }
--- user_files
>>> acme/waits.lua
local _M = {}

local sleep = ngx.sleep

local kinds = {
    sleeps = function() sleep(3600) end,
    blinks = function() sleep(0) end,
    connects = function()
        local sock = ngx.socket.tcp()

        sock:settimeout(3600 * 1000)
        sock:connect("127.0.0.1", ngx.var.http_x_port)
        sock:receive()
    end,
    locks = function()
        require("ngx.semaphore").new():wait(3600)
    end,
    yields = function() coroutine.yield() end,
    fails = function() coroutine.wrap(error)("of a coroutine") end,
}

function _M.new() return _M end

function _M:pick(ctx)
    local kind = ctx.request.headers["x-kind"]

    if kind then
        kinds[kind]()
    end

    -- a coroutine that doesn't wait is as good as any other function
    local next = coroutine.wrap(function() coroutine.yield(2) end)

    return next(), nil, "mine"
end

return _M
--- script
            ngx.say(whys(20))

            for _, kind in ipairs { "sleeps", "blinks", "connects", "locks",
                                    "yields" }
            do
                ngx.say(kind, ": ", whys(2, "x-kind: " .. kind .. "\r\n"
                                            .. "x-port: "
                                            .. ngx.var.server_port .. "\r\n"),
                        ", then ", whys(20))
            end

            ngx.say(logged('policy "acme.waits":', true))

            -- no pcall() catches this error
            ngx.say(whys(3, "x-kind: fails\r\n"), ", then ", whys(20))
            ngx.say(logged('policy "acme.waits":'))
            ngx.say(requests().policy_errors)
--- response_body
acme.waits: mine
sleeps: acme.waits: policy_error, then acme.waits: mine
blinks: acme.waits: policy_error, then acme.waits: mine
connects: acme.waits: policy_error, then acme.waits: mine
locks: acme.waits: policy_error, then acme.waits: mine
yields: acme.waits: policy_error, then acme.waits: mine
policy "acme.waits": pick: it yielded, which a policy may not
1
acme.waits: policy_error, then acme.waits: mine
2
13
--- no_error_log
[alert]
[emerg]



=== TEST 7: a policy that is slow is said once a minute, and counted each time
--- http_config
    init_by_lua_block {
        local now_us = require("resty.kv_router.ffi").now_us

        router = require("resty.kv_router").new("main", { tokenizer = "none",
            policy = {
                name = "slow",
                pick = function()
                    local till = now_us() + 11000

                    while now_us() < till do end

                    return 1, nil, "mine"
                end
            }
        })
    }
--- script
            ngx.say(whys(3))
            ngx.say(logged('policy "slow": pick() took '))
            ngx.say(requests().policy_slow, " ", requests().policy_errors)
            ngx.say(ask("GET", "/status?format=prometheus").body
                    :match("\nkv_router_policy_slow_total{[^}]*} (%d+)"))
--- response_body
slow: mine
1
3 0
3
--- grep_error_log eval: qr/pick\(\) took [\d.]+ ms for 3 candidates; requests of this nginx process wait meanwhile: make it do linear work, and try it by kv-router-check/
--- grep_error_log_out eval
qr/^pick\(\) took \d\d+\.\d ms for 3 .*\n\z/



=== TEST 8: the sample policy does in nginx what it says
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none",
            policy = "policy.tiers"
        })
    }
--- script
            local function workers(tier)
                local seen, list = {}, {}

                for _ = 1, 40 do
                    local at = route(tier and "x-tier: " .. tier .. "\r\n")

                    if not seen[at] then
                        seen[at] = true
                        list[#list + 1] = at
                    end
                end

                table.sort(list)
                return table.concat(list, " ")
            end

            ngx.say("batch: ", workers("batch"))
            ngx.say("premium: ", workers("premium"))
            ngx.say("others: ", workers())
            ngx.say(requests().policy_errors)
--- response_body
batch: w1 w3
premium: w2
others: w1 w2 w3
0
