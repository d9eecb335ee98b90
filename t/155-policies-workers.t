# Policies over several nginx processes, and over a reload.

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
    kv_router_zone    zone=main:16m block_size=4;
    lua_shared_dict   sessions 1m;

    server {
        listen  127.0.0.1:$TEST_NGINX_BOTH_PORT reuseport;

        location /v1/ {
            access_by_lua_block { router:access() }
            log_by_lua_block    { router:log() }
            add_header          x-pid $pid always;
            add_header          x-worker $kv_router_worker always;
            proxy_pass          http://engines/;
        }
    }

    upstream engines {
        server  0.0.0.1;
        balancer_by_lua_block { router:balance() }
    }

    server {
        listen    127.0.0.1:$TEST_NGINX_ENGINE_PORT;
        location  / { return 200 "ok\n"; }
    }
_EOC_

$HttpConfig .= "    kv_router_worker  main w$_ "
               . "127.0.0.1:\$TEST_NGINX_ENGINE_PORT;\n" for 1 .. 8;

scripts(http_config => $HttpConfig);

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('script', <<'_EOC_' . $block->script);
            local PORT = $TEST_NGINX_BOTH_PORT

            -- The workers that a request goes to when it is sent until both
            -- processes have had it twice: how many, and the last one.
            local function both(body, headers)
                local pids, workers, full, count = {}, {}, 0, 0
                local at

                client.wait(function()
                    local answer = ask("POST", "/v1/completions", body, headers, PORT)
                    local pid = answer.headers["x-pid"]

                    at = answer.headers["x-worker"]
                    pids[pid] = (pids[pid] or 0) + 1
                    full = full + (pids[pid] == 2 and 1 or 0)
                    count = count + (workers[at] and 0 or 1)
                    workers[at] = true

                    return full == 2
                end)

                return count, at
            end
_EOC_
});

no_long_string();
no_shuffle();

plan tests => repeat_each() * 15;

run_tests();

__DATA__

=== TEST 1: both processes know the same sessions
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none",
            policy = "session",
            policy_conf = { next = "random", dict = "sessions" },
        })
    }
--- script
            for i = 1, 20 do
                local n, at = both('{"prompt":"x"}',
                                   "x-session-id: s" .. i .. "\r\n")

                ngx.shared.sessions:set("was " .. i, at)

                if n ~= 1 then
                    ngx.say("session ", i, ": ", n, " workers")
                end
            end

            ngx.say("done")
--- response_body
done



=== TEST 2: and know them after a reload
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none",
            policy = "session",
            policy_conf = { next = "least_loaded", dict = "sessions" },
        })
    }
--- script
            for i = 1, 20 do
                local n, at = both('{"prompt":"x"}',
                                   "x-session-id: s" .. i .. "\r\n")

                if n ~= 1 or at ~= ngx.shared.sessions:get("was " .. i) then
                    ngx.say("session ", i, ": ", n, " workers")
                end
            end

            ngx.say("done")
--- response_body
done



=== TEST 3: both processes send a prefix to the same worker
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none",
            policy = "prefix_hash",
        })
    }
--- script
            local seen, n = {}, 0

            for i = 1, 30 do
                local count, at = both('{"prompt":[' .. i .. ',2,3,4,5]}')

                if count ~= 1 then
                    ngx.say("prompt ", i, ": ", count, " workers")
                end

                n = n + (seen[at] and 0 or 1)
                seen[at] = true
            end

            ngx.say(n > 4)
--- response_body
true
