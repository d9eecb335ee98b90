# How often blocks were asked for lately: frequency= of kv_router_zone.

use lib 't/lib';
use KVRouter;

scripts(http_config => <<'_EOC_', config => <<'_EOC_');
    kv_router_zone    zone=main:16m block_size=4 frequency=1h;
    kv_router_zone    zone=short:16m block_size=4 frequency=1s;
    kv_router_zone    zone=plain:16m block_size=4;
    kv_router_zone    zone=texts:16m block_size=4 frequency=1h;
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    kv_router_worker  main w2 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    kv_router_worker  short w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    kv_router_worker  plain w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    kv_router_worker  texts w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1
                      events=off capacity=4k;

    upstream engines {
        server  0.0.0.1;
        balancer_by_lua_block { router:balance() }
    }

    upstream unknown {
        server  0.0.0.1;
        balancer_by_lua_block { texts:balance() }
    }

    init_by_lua_block {
        local kv = require "resty.kv_router"

        local policy = {
            name = "asked",

            pick = function(self, ctx)
                local list = ctx.matches.frequencies
                local one = ctx.candidates[1]
                local reason = "asked " .. table.concat(list, " ")

                if not ctx.hashes then
                    reason = reason .. "without hashes, has some: "
                             .. tostring(one.device > 0)
                end

                return one.worker, 0, reason
            end,
        }

        router = kv.new("main", { tokenizer = "none", policy = policy })
        texts = kv.new("texts", { tokenizer = "none", policy = policy })
    }

    server {
        listen    127.0.0.1:$TEST_NGINX_RAND_PORT_1;
        location  / { return 200 "w1\n"; }
        location  /fail { return 503 "w1 fails\n"; }
    }
_EOC_
    location /kv/ {
        kv_router_api  main;
    }

    location /short/ {
        kv_router_api  short;
    }

    location /plain/ {
        kv_router_api  plain;
    }

    location = /status {
        kv_router_status  main;
    }

    location /v1/ {
        access_by_lua_block  { router:access() }
        add_header           x-reason $kv_router_reason always;
        proxy_pass           http://engines/;
        proxy_next_upstream  error timeout http_503 non_idempotent;
    }

    location /texts/ {
        kv_router_api  texts;
    }

    location /v1/texts/ {
        access_by_lua_block  { texts:access() }
        add_header           x-reason $kv_router_reason always;
        proxy_pass           http://unknown/;
    }
_EOC_

# every script may ask for a chain of local hashes

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('script', <<'_EOC_' . $block->script);
            local function query(what, hashes, api)
                local answer = ask("POST", (api or "/kv") .. "/query_by_hash",
                                   '{"block_hashes":[' .. hashes .. "]}")

                ngx.say(what, ": ", answer.body:match('"frequencies":%b[]'))
            end
_EOC_
});

log_level('info');
no_long_string();
no_shuffle();

plan tests => repeat_each() * blocks() * 5;

run_tests();

__DATA__

=== TEST 1: a query says how often others asked before it, for each matched block
--- script
            client.cache("w1", client.tokens(1, 12))

            local prompt = '{"tokens":' .. client.tokens(1, 16) .. "}"

            show("POST", "/kv/query", prompt)
            show("POST", "/kv/query", prompt)
            show("POST", "/kv/query", '{"tokens":' .. client.tokens(1, 8) .. "}")
            show("POST", "/kv/query", prompt)
            show("POST", "/kv/query", '{"tokens":[7,7,7,7]}')
            show("POST", "/kv/query", '{"tokens":[]}')
            query("a part of it elsewhere", "135165725823939817")
            show("POST", "/kv/query", prompt)
--- response_body
POST /kv/query: 200 {"block_size":4,"blocks":4,"scores":[{"worker_id":"w1","dp_rank":0,"device":3,"host":3,"disk":3}],"frequencies":[0,0,0]}
POST /kv/query: 200 {"block_size":4,"blocks":4,"scores":[{"worker_id":"w1","dp_rank":0,"device":3,"host":3,"disk":3}],"frequencies":[1,1,1]}
POST /kv/query: 200 {"block_size":4,"blocks":2,"scores":[{"worker_id":"w1","dp_rank":0,"device":2,"host":2,"disk":2}],"frequencies":[2,2]}
POST /kv/query: 200 {"block_size":4,"blocks":4,"scores":[{"worker_id":"w1","dp_rank":0,"device":3,"host":3,"disk":3}],"frequencies":[3,3,2]}
POST /kv/query: 200 {"block_size":4,"blocks":1,"scores":[],"frequencies":[]}
POST /kv/query: 200 {"block_size":4,"blocks":0,"scores":[],"frequencies":[]}
a part of it elsewhere: "frequencies":[]
POST /kv/query: 200 {"block_size":4,"blocks":4,"scores":[{"worker_id":"w1","dp_rank":0,"device":3,"host":3,"disk":3}],"frequencies":[4,4,3]}



=== TEST 2: what anybody holds, in any tier, is counted, and only that
--- script
            local function send(worker, data, tier)
                return ask("POST", "/kv/events",
                           event(worker, data, 0, tier)).body
            end

            send("w1", stored(nil, { { 11, 1 } }))
            send("w2", stored(nil, { { 11, 1 }, { 12, 2 }, { 13, 3 } }),
                 "disk")
            send("w1", stored(11, { { 12, 9 } }))

            query("the deepest of them", "1,2,3,4")
            query("a branch", "1,9,3,4")
            query("both", "1,2,3,4")
            send("w2", removed(12), "disk")
            query("a hole", "1,2,3,4")
            send("w2", stored(11, { { 12, 2 } }), "disk")
            query("refilled", "1,2,3,4")
            send("w1", '"cleared"')
            ask("DELETE", "/kv/workers/w2")
            query("nobody", "1,2,3,4")
            send("w1", stored(nil, { { 11, 1 } }))
            query("again", "1,2,3,4")
--- response_body
the deepest of them: "frequencies":[0,0,0]
a branch: "frequencies":[1,0]
both: "frequencies":[2,1,1]
a hole: "frequencies":[3]
refilled: "frequencies":[4,2,2]
nobody: "frequencies":[]
again: "frequencies":[5]



=== TEST 3: what was asked before the window is not counted
--- script
            ask("POST", "/short/events",
                event("w1", stored(nil, { { 11, 1 } })))

            query("first", "1", "/short")
            ngx.sleep(1.5)
            query("later", "1", "/short")
            ngx.say("window: ", client.stats("/short").frequency.window_ms)
--- response_body
first: "frequencies":[0]
later: "frequencies":[0]
window: 1000



=== TEST 4: Lua's matches have them; without the parameter nothing has
--- script
            local kv = require "resty.kv_router"
            local main, plain = kv.index("main"), kv.index("plain")

            local function say(what, m)
                local list = m.frequencies

                ngx.say(what, ": ", list and #list .. " of " .. m.prompt_blocks
                                    .. ": " .. table.concat(list, " "))
            end

            main:store("w1", 0, nil, { { 11, 1 }, { 12, 2 } })
            plain:store("w1", 0, nil, { { 11, 1 } })

            local first = main:find_matches_by_hash({ 1, 2, 3 })

            say("second", main:find_matches_by_hash({ 1, 3 }))
            say("third", main:find_matches_by_hash({ 1, 2, 3 }))
            say("the first one's own", first)
            say("nothing", main:find_matches({ 7, 7, 7, 7 }))
            say("none", main:find_matches({}))
            query("the API sees the same", "1,2")

            say("plain", plain:find_matches_by_hash({ 1 }))
            query("plain", "1", "/plain")
            ngx.say("plain: ", client.stats("/plain").frequency.window_ms, " ",
                    client.stats("/plain").frequency.blocks_max)
--- response_body
second: 1 of 2: 1
third: 2 of 3: 2 1
the first one's own: 2 of 3: 0 0
nothing: 0 of 1: 
none: 0 of 0: 
the API sees the same: "frequencies":[3,2]
plain: nil
plain: nil
plain: 0 0



=== TEST 5: a request is counted once, and its policy sees the counts
--- script
            client.cache("w1", client.tokens(1, 8))

            local function route(what, body, path)
                local answer = ask("POST", "/v1/" .. (path or "")
                                   .. "/completions", body)

                ngx.say(what, ": ", answer.status, " ",
                        answer.headers["x-reason"])
            end

            local body = '{"prompt":' .. client.tokens(1, 14) .. "}"

            route("first", body)
            route("second", body)
            route("with a retry", body, "fail")
            route("after it", body)
            route("another prompt", '{"prompt":[1,2,3,4,1,2,3,4]}')
            route("less than a block", '{"prompt":[1,2,3]}')
            route("a text", '{"prompt":"1 2 3 4"}')
            route("no body", "")

            ask("POST", "/kv/workers/w1/drain")
            route("a drained worker has them, too", body)
--- response_body
first: 200 asked 0 0
second: 200 asked 1 1
with a retry: 503 retry
after it: 200 asked 3 3
another prompt: 200 asked 4
less than a block: 200 short
a text: 200 no_tokens
no body: 200 no_prompt
a drained worker has them, too: 200 asked 5 4



=== TEST 6: long prompts are counted to a bound, and the status says so
--- script
            local index = require("resty.kv_router").index("main")
            local hashes, blocks = {}, {}

            for i = 1, 4097 do
                hashes[i] = i
                blocks[i] = { 10000 + i, i }
            end

            index:store("w1", 0, nil, blocks)
            index:find_matches_by_hash(hashes)

            local m = index:find_matches_by_hash(hashes)

            ngx.say(m:blocks("w1"), " blocks, ", #m.frequencies,
                    " frequencies, the last is ", m.frequencies[4096])

            local f = client.stats().frequency

            ngx.say("an eighth of the zone, at 72 bytes: ",
                    f.blocks_max > 22000 and f.blocks_max < 29128)
            ngx.say("replaced ", f.replaced, " cut ", f.cut)
--- response_body
4097 blocks, 4096 frequencies, the last is 1
an eighth of the zone, at 72 bytes: true
replaced 0 cut 2



=== TEST 7: of a text nothing is counted, and its policy sees that it has no hashes
--- script
            local body = '{"messages":[{"role":"user","content":"'
                         .. ("What is a cache? "):rep(200) .. '"}]}'

            for i = 1, 3 do
                local answer = ask("POST", "/v1/texts/chat/completions", body)

                client.wait(function()
                    return client.stats("/texts").routed.unread == 0
                end)

                ngx.say(answer.status, " ", answer.headers["x-reason"])
            end

            ngx.say(client.stats("/texts").requests.by_rung.text)
--- response_body
200 asked without hashes, has some: false
200 asked without hashes, has some: true
200 asked without hashes, has some: true
3
