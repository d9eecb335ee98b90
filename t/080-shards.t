# Zones of several shards: they are used as one.

use lib 't/lib';
use KVRouter;

master_on();
workers(2);

# each block is a reload of the one before

use_hup();

$ENV{TEST_NGINX_ENGINE_PORT} = free_port();

our $HttpConfig = <<'_EOC_';
    kv_router_zone  zone=copy:32m block_size=4 shards=3;

    server {
        listen    127.0.0.1:$TEST_NGINX_ENGINE_PORT;
        location  / { return 200 "engine\n"; }
    }

    upstream engines {
        server  0.0.0.1;
        balancer_by_lua_block { router:balance() }
    }

    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none" })
    }
_EOC_

scripts(config => <<'_EOC_');
    location /kv/ {
        kv_router_api  main;
    }

    location /copy/ {
        kv_router_api  copy;
    }

    location = /status {
        kv_router_status  main;
    }

    location /v1/ {
        access_by_lua_block { router:access() }
        add_header          x-route "$kv_router_worker $kv_router_overlap_blocks" always;
        proxy_pass          http://engines/;
    }
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;

    # behind the zone of the block

    $block->set_value('http_config', $block->http_config . $HttpConfig);

    $block->set_value('script', <<'_EOC_' . $block->script);
            local ADDRESS = '{"address":"127.0.0.1:$TEST_NGINX_ENGINE_PORT"}'

            -- Workers w1 .. w12 hold as many blocks of the prompt.
            local prompt = client.tokens(1, 48)

            local function scores(path)
                local list = {}
                local answer = ask("POST", path .. "/query",
                                   '{"tokens":' .. prompt .. "}").body

                for id, device in answer:gmatch('"worker_id":"(%w+)".-'
                                                .. '"device":(%d+)')
                do
                    list[#list + 1] = id .. "=" .. device
                end

                return table.concat(list, " ")
            end

            local function route()
                return ask("POST", "/v1/completions", '{"prompt":' .. prompt .. "}")
                       .headers["x-route"]
            end

            -- In how many shards there are workers.
            local function spread()
                local n = 0

                for _, shard in ipairs(client.stats().shards) do
                    n = n + (shard.workers > 0 and 1 or 0)
                end

                return n
            end
_EOC_
});

log_level('notice');
no_long_string();
no_shuffle();

plan tests => repeat_each() * 25;

run_tests();

__DATA__

=== TEST 1: workers of all shards are found, routed to, and go
--- http_config
    kv_router_zone    zone=main:32m block_size=4 shards=4;
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_ENGINE_PORT;
    kv_router_worker  main w2 127.0.0.1:$TEST_NGINX_ENGINE_PORT;
--- script
            for i = 3, 12 do
                ask("PUT", "/kv/workers/w" .. i, ADDRESS)
            end

            for i = 1, 12 do
                client.cache("w" .. i, client.tokens(1, 4 * i))
            end

            ngx.say(#client.stats().shards, " shards, workers in ", spread())
            ngx.say("workers: ", client.stats().index.workers)
            ngx.say(scores("/kv"))
            ngx.say(route())
            ngx.say(ask("POST", "/kv/workers/w12/drain").status, ", then ",
                    route())
            ngx.say(ask("DELETE", "/kv/workers/w11").status, ", then ",
                    route())
            ngx.say(ask("DELETE", "/kv/workers/w11").status, ", and ",
                    ask("POST", "/kv/workers/w13/drain").status)
            ngx.say(scores("/kv"))
            client.idle()
--- response_body
4 shards, workers in 4
workers: 12
w12=12 w11=11 w10=10 w9=9 w8=8 w7=7 w6=6 w5=5 w4=4 w3=3 w2=2 w1=1
w12 12
200, then w11 11
200, then w10 10
404, and 404
w12=12 w10=10 w9=9 w8=8 w7=7 w6=6 w5=5 w4=4 w3=3 w2=2 w1=1
load: none



=== TEST 2: a reload keeps all of it, a dump makes the same in another zone
--- http_config
    kv_router_zone    zone=main:32m block_size=4 shards=4;
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_ENGINE_PORT;
--- script
            ngx.say(scores("/kv"))
            ngx.say(route())

            local lines = ask("GET", "/kv/dump").body

            for i = 1, 12 do
                ask("PUT", "/copy/workers/w" .. i, ADDRESS)
            end

            for line in lines:gmatch("[^\n]+") do
                ask("POST", "/copy/events", line)
            end

            ngx.say(scores("/copy") == scores("/kv"))

            -- w2 has left the configuration

            for _, w in ipairs(client.stats().workers) do
                if w.worker_id == "w2" then
                    ngx.say(w.worker_id, " ", w.origin, " at \"", w.address,
                            "\"")
                end
            end
--- response_body
w12=12 w10=10 w9=9 w8=8 w7=7 w6=6 w5=5 w4=4 w3=3 w2=2 w1=1
w10 10
true
w2 events at ""



=== TEST 3: Lua writes and reads all shards
--- http_config
    kv_router_zone    zone=main:32m block_size=4 shards=4;
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_ENGINE_PORT;
--- script
            local index = require("resty.kv_router").index("main")
            local tokens = { 9, 9, 9, 9 }
            local locals = index:block_hashes(tokens)

            ask("PUT", "/kv/workers/w3", ADDRESS)

            for i = 1, 10 do
                assert(index:store("w" .. i, 0, nil, { { 77, locals[0] } }))
            end

            local list = {}

            for worker, rank, device in index:find_matches(tokens):each() do
                list[#list + 1] = worker .. "/" .. rank .. "=" .. device
            end

            table.sort(list)
            ngx.say(table.concat(list, " "))

            assert(index:remove("w1", 0, { 77 }))
            assert(index:clear("w2", 0))
            assert(index:remove_worker("w3"))

            local n = 0

            for _ in index:find_matches(tokens):each() do
                n = n + 1
            end

            ngx.say(n)
--- response_body
w1/0=1 w10/0=1 w2/0=1 w3/0=1 w4/0=1 w5/0=1 w6/0=1 w7/0=1 w8/0=1 w9/0=1
7



=== TEST 4: a reload with another number of shards is refused
--- http_config
    kv_router_zone    zone=main:32m block_size=4 shards=2;
    kv_router_worker  main w9 127.0.0.1:$TEST_NGINX_ENGINE_PORT;
--- reload_fails
--- script
            -- what answers is the configuration of TEST 3, and its script
--- response_body
w1/0=1 w10/0=1 w2/0=1 w3/0=1 w4/0=1 w5/0=1 w6/0=1 w7/0=1 w8/0=1 w9/0=1
7
--- error_log
kv_router_zone "main" can't be used: it was made with shards=4, not 2
--- no_error_log
[alert]
exited on signal



=== TEST 5: the fixed tables of many shards need more room
--- http_config
    kv_router_zone    zone=main:32m block_size=4 shards=4;
    kv_router_zone    zone=small:12m block_size=4 shards=64;
    kv_router_worker  main w9 127.0.0.1:$TEST_NGINX_ENGINE_PORT;
--- reload_fails
--- script
            -- as before
--- response_body
w1/0=1 w10/0=1 w2/0=1 w3/0=1 w4/0=1 w5/0=1 w6/0=1 w7/0=1 w8/0=1 w9/0=1
7
--- error_log
12m is too small for max_workers=384, shards=64 and worker_processes=2: write zone=small:87m in
--- no_error_log
[alert]
exited on signal
