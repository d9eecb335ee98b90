# Policies that never end, that wait, or that take too long: each costs a log
# line, and no request.

use lib 't/lib';
use KVRouter;

our $Workers = join('', map { <<_EOC_ } 1 .. 3);
    kv_router_worker  main w$_ 127.0.0.1:\$TEST_NGINX_RAND_PORT_$_;

    server {
        listen    127.0.0.1:\$TEST_NGINX_RAND_PORT_$_;
        location  / { return 200 "w$_"; }
    }
_EOC_

scripts(http_config => <<"_EOC_", config => <<'_EOC_');
    kv_router_zone      zone=main:16m block_size=4;
    lua_package_path    "$KVRouter::Root/lua/?.lua;$KVRouter::Root/t/lib/?.lua;$KVRouter::Root/conf/?.lua;\$TEST_NGINX_HTML_DIR/?.lua;;";

    upstream engines {
        server  0.0.0.1;
        balancer_by_lua_block { router:balance() }
    }
$Workers
_EOC_
    location /v1/ {
        access_by_lua_block  { router:access() }
        log_by_lua_block     { router:log() }
        add_header           x-reason $kv_router_reason always;
        proxy_pass           http://engines/;
    }

    location /kv/ {
        kv_router_api        main;
        access_by_lua_block  { router:api() }
    }
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('http_config', ($block->http_config // '') . <<"_EOC_")
    init_by_lua_block {
        router = require("resty.kv_router").new("main", {
            policy = "acme.@{[$block->policy]}"
        })
    }
_EOC_
        if defined $block->policy;

    $block->set_value('script', <<'_EOC_' . $block->script);
            -- whether to forget that the policy was stopped
            local patient = true

            -- "200 reason", and whether a worker has answered
            local function route(headers)
                if patient then
                    router.policy.lost = 0
                end

                local a = ask("POST", "/v1/x", '{"prompt":[1,2,3,4,5]}',
                              headers)

                return a.status .. " " .. tostring(a.headers["x-reason"])
                       .. (a.body:find("^w%d$") and "" or " " .. a.body)
            end

            -- the answers to n requests, those that differ
            local function routes(n, headers)
                local seen, list = {}, {}

                for _ = 1, n do
                    local got = route(headers)

                    if not seen[got] then
                        seen[got] = true
                        list[#list + 1] = got
                    end
                end

                return table.concat(list, ", ")
            end

            -- lines of the log with that in it, from its "policy" on
            local function logged(what, show)
                local n = 0

                for line in io.lines(ngx.config.prefix() .. "logs/error.log")
                do
                    if line:find(what, 1, true) then
                        n = n + 1

                        if show then
                            ngx.say((line:match("kv_router: (.*)")
                                         :gsub("%d+ ms", "N ms")
                                         :gsub(", client: .*", "")))
                        end
                    end
                end

                return n
            end

            local function errors()
                return require("resty.kv_router").index("main"):stats()
                       .requests.policy_errors
            end
_EOC_
});

no_long_string();
no_shuffle();

plan tests => repeat_each() * 4 * blocks();

run_tests();

__DATA__

=== TEST 1: a policy that loops for ever is stopped, each time, and said once
--- policy: endless
--- user_files
>>> acme/endless.lua
local _M = {}

function _M.new() return _M end
function _M:pick() while true do end end

return _M
--- script
            ngx.say(routes(3))

            ngx.say(logged('policy "acme.endless"', true))
            ngx.say(errors())
--- response_body
200 policy_error
policy "acme.endless": pick: it has run for more than N ms
1
3
--- no_error_log
[alert]
[emerg]



=== TEST 2: however it loops, and requests that it doesn't loop for are its own
--- policy: loops
--- user_files
>>> acme/loops.lua
local _M = {}

local function repeats()
    local n = 0

    repeat n = n + 1 until false
end

local function jumps()
    ::again::
    goto again
end

local function nested(n)
    ::top::

    do
        if n then
            goto top
        end
    end
end

local function tail(n)
    return tail(n + 1)
end

function _M:last(n)
    return self:last(n + 1)
end

local function counts()
    local sum = 0

    for i = 1, math.huge do
        sum = sum + i
    end

    return sum
end

local function caught()
    while true do
        pcall(repeats)
    end
end

local function handled()
    while true do
        xpcall(repeats, tostring)
    end
end

local function grows()
    local s = ""

    while true do
        s = s .. "ever longer"
    end
end

local function sorts()
    table.sort({ 3, 2, 1 }, function() while true do end end)
end

local function later()
    while true do
        local n = 0

        for _ = 1, 100 do
            n = n + 1
        end
    end
end

local kinds = { repeats = repeats, jumps = jumps, nested = nested, tail = tail,
                counts = counts, caught = caught, handled = handled,
                grows = grows, sorts = sorts, later = later }

function _M.new() return _M end

function _M:pick(ctx)
    local kind = ctx.request.headers["x-kind"]

    if kind == "last" then
        self:last(1)

    elseif kind then
        kinds[kind](1)
    end

    -- the usual loop, which stays compiled
    for i = 1, #ctx.candidates do
        if ctx.candidates[i].worker == "w2" then
            return i, nil, "mine"
        end
    end
end

return _M
--- script
            -- let it be hot
            ngx.say(routes(200))

            for _, kind in ipairs { "repeats", "jumps", "nested", "tail",
                                    "last", "counts", "caught", "handled",
                                    "grows", "sorts", "later" }
            do
                ngx.say(kind, ": ", routes(1, "x-kind: " .. kind .. "\r\n"),
                        ", then ", routes(20))
            end

            ngx.say(logged('policy "acme.loops"', true))
            ngx.say(errors())
--- response_body
200 mine
repeats: 200 policy_error, then 200 mine
jumps: 200 policy_error, then 200 mine
nested: 200 policy_error, then 200 mine
tail: 200 policy_error, then 200 mine
last: 200 policy_error, then 200 mine
counts: 200 policy_error, then 200 mine
caught: 200 policy_error, then 200 mine
handled: 200 policy_error, then 200 mine
grows: 200 policy_error, then 200 mine
sorts: 200 policy_error, then 200 mine
later: 200 policy_error, then 200 mine
policy "acme.loops": pick: it has run for more than N ms
1
11
--- no_error_log
[alert]
[emerg]
--- timeout: 60



=== TEST 3: one that ends late is logged, and interpreted from then on
--- policy: late
--- user_files
>>> acme/late.lua
local _M = {}

function _M.new() return _M end

function _M:pick(ctx)
    local n, sum = #ctx.candidates, 0

    for i = 1, n * (ctx.request.headers["x-rounds"] or 100) do
        for j = 1, n * 10 do
            sum = (sum + i * j) % 65521
        end
    end

    return sum % n + 1, nil, "squares"
end

return _M
--- script
            local slow = "x-rounds: 1000000\r\n"

            ngx.say(routes(200))
            ngx.say(routes(1, slow))
            ngx.say(routes(20))
            ngx.say(routes(1, slow))
            ngx.say(routes(20))
            ngx.say(logged("it has run for more than") == 1)
            ngx.say(logged('"acme.late": it could', true))
            ngx.say(errors())
--- response_body
200 squares
200 policy_error
200 squares
200 policy_error
200 squares
true
policy "acme.late": it could not be stopped for a while, and is interpreted from now on
1
2
--- no_error_log
[alert]
[emerg]
--- timeout: 60



=== TEST 4: one that has to be stopped each time is asked for a tenth of the time
--- policy: always
--- user_files
>>> acme/always.lua
local _M = {}

function _M.new() return _M end
function _M:pick(ctx)
    while not ctx.request.headers["x-end"] do end
    return 1, nil, "mine"
end

return _M
--- script
            patient = false

            client.wait(function()
                ask("POST", "/v1/x", '{"prompt":[1,2,3,4,5]}')
                return logged("it was stopped too often") == 1
            end)

            ngx.say(routes(100))
            ngx.say(logged('policy "acme.always"', true))

            client.wait(function()
                return route("x-end: 1\r\n") == "200 mine"
            end)

            ngx.say(route("x-end: 1\r\n"))
--- response_body
200 policy_error
policy "acme.always": pick: it has run for more than N ms
policy "acme.always": pick: it is not asked for a while, as it was stopped too often
2
200 mine
--- no_error_log
[alert]
[emerg]
--- timeout: 60



=== TEST 5: a policy that yields is not waited for
--- policy: waits
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
            local silent = ngx.var.server_port

            ngx.say(routes(20))

            for _, kind in ipairs { "sleeps", "blinks", "connects", "locks",
                                    "yields" }
            do
                ngx.say(kind, ": ", routes(2, "x-kind: " .. kind .. "\r\n"
                                              .. "x-port: " .. silent
                                              .. "\r\n"),
                        ", then ", routes(20))
            end

            ngx.say(logged('policy "acme.waits"', true))

            -- which no pcall() catches
            ngx.say(routes(3, "x-kind: fails\r\n"), ", then ", routes(20))
            ngx.say(logged('policy "acme.waits"'))
            ngx.say(errors())
--- response_body
200 mine
sleeps: 200 policy_error, then 200 mine
blinks: 200 policy_error, then 200 mine
connects: 200 policy_error, then 200 mine
locks: 200 policy_error, then 200 mine
yields: 200 policy_error, then 200 mine
policy "acme.waits": pick: it yielded, which a policy may not
1
200 policy_error, then 200 mine
2
13
--- no_error_log
[alert]
[emerg]



=== TEST 6: so it is with a policy that another one asks, done() and explain()
--- http_config
    init_by_lua_block {
        local policy = {
            name = "odd",
            pick = function(self, ctx)
                while ctx.request.headers["x-loop"] do end
                return 1, nil, "mine"
            end,
            done = function() while true do end end,
            explain = function() repeat until false end,
        }

        router = require("resty.kv_router").new("main", {
            policy = "session", policy_conf = { next = policy },
        })
    }
--- script
            ngx.say(routes(3), ", ", route("x-loop: 1\r\n"))
            ngx.say(logged('policy "session": pick', true))
            router.policy.lost = 0

            local a = ask("POST", "/kv/route", '{"prompt":[1,2,3,4,5]}')
            local answer = require("cjson").decode(a.body)

            ngx.say(a.status, " ", answer.reason, " ",
                    answer.candidates[1].cost == ngx.null)

            -- its own, not as another's
            router = require("resty.kv_router").new("main", {
                policy = router.policy.policy.next.policy,
            })

            ngx.say(route())
            client.wait(function()
                return logged('policy "odd": done') == 1
            end)

            ngx.say(route("x-loop: 1\r\n"))

            router.policy.lost = 0
            a = ask("POST", "/kv/route", '{"prompt":[1,2,3,4,5]}')
            ngx.say(a.status, " ", logged('policy "odd"', true))
--- response_body
200 mine, 200 policy_error
policy "session": pick: it has run for more than N ms
1
200 mine true
200 mine
200 policy_error
policy "odd": explain: it has run for more than N ms
policy "odd": done: it has run for more than N ms
policy "odd": pick: it has run for more than N ms
200 3
--- no_error_log
[alert]
[emerg]
--- timeout: 20



=== TEST 7: the sample policy does in nginx what it says
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main", {
            policy = "policy.tiers"
        })
    }
--- script
            local function workers(tier)
                local seen, list = {}, {}

                for _ = 1, 40 do
                    local body = ask("POST", "/v1/x", '{"prompt":[1,2,3,4,5]}',
                                     tier and "x-tier: " .. tier .. "\r\n")
                                 .body

                    if not seen[body] then
                        seen[body] = true
                        list[#list + 1] = body
                    end
                end

                table.sort(list)
                return table.concat(list, " ")
            end

            ngx.say("batch: ", workers("batch"))
            ngx.say("premium: ", workers("premium"))
            ngx.say("others: ", workers())
            ngx.say(errors(), " ", router.policy.guarded, " ",
                    router.policy.apart)
--- response_body
batch: w1 w3
premium: w2
others: w1 w2 w3
0 true false
--- no_error_log
[error]
[alert]



=== TEST 8: a policy whose coroutines never end is stopped with all of them
--- policy: breeds
--- user_files
>>> acme/breeds.lua
local _M = {}

local create = coroutine.create
local resume = coroutine.resume

local function forever()
    while true do end
end

local function breeds()
    while true do
        resume(create(forever))
    end
end

local function breeds_twice()
    while true do
        resume(create(breeds))
    end
end

local kinds = { one = function() resume(create(forever)) end,
                ever = breeds, twice = breeds_twice }

function _M.new() return _M end

function _M:pick(ctx)
    local kind = ctx.request.headers["x-kind"]

    if kind then
        kinds[kind]()
    end

    return 1, nil, "mine"
end

return _M
--- script
            for _, kind in ipairs { "one", "ever", "twice" } do
                ngx.say(kind, ": ", routes(1, "x-kind: " .. kind .. "\r\n"),
                        ", then ", routes(20))
            end
--- response_body
one: 200 policy_error, then 200 mine
ever: 200 policy_error, then 200 mine
twice: 200 policy_error, then 200 mine
--- no_error_log
[alert]
[emerg]
--- timeout: 20
