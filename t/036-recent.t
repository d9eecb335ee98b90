# What the status tells beside the present numbers: the last hour, the last
# decisions, the prefixes that are asked for most often, and the tree.

use lib 't/lib';
use KVRouter;

scripts(http_config => <<'_EOC_', config => <<'_EOC_');
    kv_router_zone  zone=main:16m block_size=4 served=m;

    init_by_lua_block {
        router = require("resty.kv_router").new("main", {
            tokenizer = "none", policy = "round_robin",
        })
    }

    upstream engines {
        server     0.0.0.1;
        balancer_by_lua_block { router:balance() }
    }

    server {
        listen 127.0.0.1:$TEST_NGINX_RAND_PORT_1;

        location / {
            return  200 "fine\n";
        }
    }
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
        proxy_pass           http://engines/;
        proxy_http_version   1.1;
        proxy_set_header     Connection "";
    }
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('script', <<'_EOC_' . $block->script);
            local cjson = require "cjson"

            local function put(id)
                local answer = ask("PUT", "/kv/workers/" .. id,
                                   '{"address":"127.0.0.1:'
                                   .. "$TEST_NGINX_RAND_PORT_1" .. '"}')

                assert(answer.status == 201, answer.body)
            end

            local function part(name)
                return cjson.decode(ask("GET", "/status?part=" .. name).body)
            end

            -- A prompt of n blocks, of which the first 4 are alike.
            local function prompt(n, salt, path, headers)
                local ids = {}

                for i = 1, n * 4 do
                    ids[i] = i <= 16 and i or i + salt * 1000
                end

                return ask("POST", path or "/v1/completions",
                           cjson.encode({ model = "m", prompt = ids }),
                           headers)
            end
_EOC_
});

log_level('info');
no_long_string();
no_shuffle();

plan tests => repeat_each() * blocks() * 4;

run_tests();

__DATA__

=== TEST 1: the last decisions, the newest one first, with their candidates
--- script
            put("a")
            put("b")

            for i = 1, 3 do
                assert(prompt(5 + i, i).status == 200)
            end

            client.idle()

            local list = part("decisions").decisions

            ngx.say(#list, " decisions")

            for _, d in ipairs(list) do
                ngx.say(d.prompt_tokens, " ", d.worker == d.candidates[1].worker,
                        " ", #d.candidates, " ", d.candidates_total, " ",
                        d.policy, " ", d.best.overlap, " ", d.overlap_tokens,
                        " ", d.model, " ", d.session == list[1].session, " ",
                        d.by, " ", d.first_byte_ms > 0)
            end

            ngx.say("they take turns: ", list[1].worker ~= list[2].worker
                                         and list[1].worker == list[3].worker)
            ngx.say("in time: ", list[1].time_ms >= list[3].time_ms
                                 and list[3].time_ms > 1e12)

            ask("DELETE", "/kv/workers/a")

            local gone = 0

            client.wait(function()
                gone = 0

                for _, d in ipairs(part("decisions").decisions) do
                    gone = gone + (d.worker == cjson.null and 1 or 0)
                end

                return gone > 0
            end)
            ngx.say(gone < 3 and "a worker that is gone has no name")
--- response_body
load: none
3 decisions
32 true 2 2 round_robin 0 0 m true policy true
28 true 2 2 round_robin 0 0 m true policy true
24 true 2 2 round_robin 0 0 m true policy true
they take turns: true
in time: true
a worker that is gone has no name
--- no_error_log
[error]
[alert]



=== TEST 2: the prefixes that are asked for most often, without their text
--- script
            put("a")

            for i = 1, 5 do
                assert(prompt(16, i).status == 200)
            end

            client.idle()

            local list = part("prefixes").prefixes

            ngx.say(list[1].requests, " requests, ", list[1].depth_blocks,
                    " blocks, error ", list[1].error)
            ngx.say(list[1].name:find("^m %x+, first seen %d+:%d+:%d+ UTC$")
                    and "named by model, hash and time" or list[1].name)

            for i = 2, #list do
                ngx.say(list[i].requests, " requests, ", list[i].depth_blocks,
                        " blocks")
            end
--- response_body
load: none
5 requests, 4 blocks, error 0
named by model, hash and time
1 requests, 16 blocks
1 requests, 16 blocks
1 requests, 16 blocks
1 requests, 16 blocks
1 requests, 16 blocks
--- no_error_log
[error]
[alert]



=== TEST 3: the last hour has a number for each 15 seconds
--- script
            local h = part("history")

            ngx.say(h.step_s, " s")

            for _, name in ipairs { "requests", "hit_tokens", "prompt_tokens",
                                    "best_tokens", "events", "workers_well",
                                    "pairs", "waiting", "first_byte_p50_ms",
                                    "first_byte_p90_ms" }
            do
                ngx.say(name, " ", #h.series[name])
            end

            local where = cjson.encode(part("places").parts)

            ngx.say(where)
            ngx.say(ask("GET", "/status?part=nope").status)
--- response_body_like chop
^15 s
requests 240
hit_tokens 240
prompt_tokens 240
best_tokens 240
events 240
workers_well 240
pairs 240
waiting 240
first_byte_p50_ms 240
first_byte_p90_ms 240
\[.*"history","decisions","prefixes".*\]
404$
--- no_error_log
[error]
[alert]



=== TEST 4: the tree has runs of blocks, and who holds them
--- script
            put("a")
            put("b")

            local function event(id, hashes, parent)
                local answer = ask("POST", "/kv/events", cjson.encode {
                    worker_id = id, event = {
                        event_id = 1, data = { stored = {
                            parent_hash = parent, blocks = hashes } } } })

                assert(answer.status == 200, answer.body)
            end

            local function blocks(from, to)
                local list = {}

                for i = from, to do
                    list[#list + 1] = { block_hash = i, tokens_hash = i }
                end

                return list
            end

            event("a", blocks(1, 6))
            event("b", blocks(1, 4))
            event("b", blocks(21, 22), 4)

            local tree = part("tree")

            ngx.say(tree.index, " ", tree.block_size, " ", tree.cut, " ",
                    #tree.nodes)

            for i, node in ipairs(tree.nodes) do
                local held = {}

                for k, h in ipairs(node.holders) do
                    held[k] = h.worker .. " " .. h.rank .. " " .. h.blocks
                end

                table.sort(held)

                ngx.say(node.parent == cjson.null and "begins"
                        or node.parent == tree.nodes[1].id and "hangs on it"
                        or "hangs elsewhere", " ", node.offset, " ",
                        node.blocks, " ", node.below, " ", node.holders_total,
                        ": ", table.concat(held, ", "))
            end
--- response_body
radix 4 false 2
begins 0 6 2 2: a 0 6, b 0 4
hangs on it 4 2 0 1: b 0 2
--- no_error_log
[error]
[alert]
