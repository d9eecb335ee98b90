# What nobody uses is forgotten: ttl= of kv_router_zone.

use lib 't/lib';
use KVRouter;

scripts(http_config => <<'_EOC_', config => <<'_EOC_');
    kv_router_zone    zone=main:8m block_size=4 ttl=2s;
    kv_router_zone    zone=keep:8m block_size=4;
    kv_router_worker  main w1 127.0.0.1:1;
    kv_router_worker  keep w1 127.0.0.1:1;
_EOC_
    location /kv/ {
        kv_router_api  main;
    }

    location /keep/ {
        kv_router_api  keep;
    }

    location = /status {
        kv_router_status  main;
    }
_EOC_

log_level('info');
no_long_string();
no_shuffle();

plan tests => repeat_each() * blocks() * 5;

run_tests();

__DATA__

=== TEST 1: what is asked for stays, the rest goes and is counted
--- script
            local stored = '{"worker_id":"w1","event":{"event_id":1,"data":'
                .. '{"stored":{"parent_hash":null,"blocks":['
                .. '{"block_hash":%d,"tokens_hash":%d},'
                .. '{"block_hash":%d,"tokens_hash":%d}]}}}}'

            local function store(api, first)
                return ask("POST", api .. "/events",
                           stored:format(first, first, first + 1, first + 1))
            end

            local function depth(api, first)
                local answer = ask("POST", api .. "/query_by_hash",
                                   '{"block_hashes":[' .. first .. ","
                                   .. first + 1 .. "]}")

                return answer.body:match('"device":(%d)') or "0"
            end

            store("/kv", 10)
            store("/kv", 20)
            store("/keep", 10)
            ngx.say("stored: ", depth("/kv", 10), depth("/kv", 20),
                    depth("/keep", 10))

            client.wait(function()
                depth("/kv", 10)

                return client.stats("/kv").index.forgotten > 0
            end)

            ngx.say("later: ", depth("/kv", 10), depth("/kv", 20),
                    depth("/keep", 10))

            local stats = client.stats("/kv")

            ngx.say("forgotten: ", stats.index.forgotten, ", of w1 ",
                    stats.workers[1].counters.blocks_forgotten,
                    ", truncated: ", stats.workers[1].truncated)
--- response_body
stored: 222
later: 202
forgotten: 2, of w1 2, truncated: true
