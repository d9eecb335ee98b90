# The header that tells an engine which other worker has the prompt.

use lib 't/lib';
use KVRouter;

# three engines that answer with the header that they got

our $Engines = engines(3, engine => <<'_EOC_');
        location ~ completions {
            if ($http_x_fail = wNUMBER) {
                return  444;
            }

            return  200 "wNUMBER is told: $http_x_kv_cache_source\n";
        }
_EOC_

our $Workers = zone_workers(3);

scripts(http_config => <<"_EOC_", config => <<'_EOC_');
    init_by_lua_block {
        -- the header x-to says which worker and rank gets the request

        router = require("resty.kv_router").new("main", { tokenizer = "none",
            policy = {
                pick = function(self, ctx)
                    for i = 1, #ctx.candidates do
                        local c = ctx.candidates[i]

                        if ctx.request.headers["x-to"] == c.worker .. "/"
                                                          .. c.rank
                        then
                            return i
                        end
                    end

                    return 1
                end
            } })
    }

$Engines
_EOC_
    location /kv/ {
        kv_router_api         main;
    }

    location /v1/ {
        access_by_lua_block   { router:access() }
        add_header            x-source "$kv_router_cache_source" always;
        proxy_pass            http://engines/;
        proxy_set_header      x-kv-cache-source $kv_router_cache_source;
        proxy_next_upstream   error timeout non_idempotent;
    }
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;

    my $config = $block->http_config // '';

    $config = "    kv_router_zone  zone=main:16m block_size=4;\n$config"
        unless $config =~ /kv_router_zone/;
    $config .= $Workers unless $config =~ /kv_router_worker/;

    $block->set_value('http_config', $config);
    $block->set_value('script', <<'_EOC_' . $block->script);
            local names = {
                ["127.0.0.1:$TEST_NGINX_RAND_PORT_1"] = "the address of w1",
                ["127.0.0.1:$TEST_NGINX_RAND_PORT_2"] = "the address of w2",
                ["127.0.0.1:$TEST_NGINX_RAND_PORT_3"] = "the address of w3",
            }

            -- Sends a prompt of tokens 1 to 16 to a worker and its rank.
            local function told(what, to, prompt, more)
                local answer = ask("POST", "/v1/completions", '{"prompt":'
                                   .. (prompt or client.tokens(1, 16)) .. "}",
                                   "x-to: " .. to .. "\r\n" .. (more or ""))

                local text = answer.body:gsub("127[%d.:]+", names)

                ngx.print(what, ": ", text)

                if answer.body ~= answer.body:sub(1, 12)
                                  .. (answer.headers["x-source"] or "") .. "\n"
                then
                    ngx.say("but the client: ", answer.headers["x-source"])
                end
            end
_EOC_
});

log_level('info');
worker_connections(256);
no_long_string();
no_shuffle();

plan tests => repeat_each() * 25;

run_tests();

__DATA__

=== TEST 1: the worker with the most of the prompt is named to any other one
--- script
            told("nothing is cached", "w2/0")

            client.cache("w1", client.tokens(1, 8))
            told("w1 has two blocks", "w2/0")
            told("w1 itself", "w1/0")

            client.cache("w3", client.tokens(1, 12))
            told("w3 has three", "w2/0")
            told("w3 has more than w1", "w1/0")
            told("w3 itself", "w3/0")

            client.cache("w2", client.tokens(1, 12))
            told("w2 has as many", "w2/0")
            told("a text", "w2/0", '"Hello"')
            told("another prompt", "w2/0", client.tokens(101, 108))
            told("what the client says", "w2/0", nil,
                 "x-kv-cache-source: 10.0.0.1:22\r\n")
--- response_body
nothing is cached: w2 is told: 
w1 has two blocks: w2 is told: the address of w1
w1 itself: w1 is told: 
w3 has three: w2 is told: the address of w3
w3 has more than w1: w1 is told: the address of w3
w3 itself: w3 is told: 
w2 has as many: w2 is told: 
a text: w2 is told: 
another prompt: w2 is told: 
what the client says: w2 is told: 



=== TEST 2: blocks that are only predicted are not named
--- http_config
    kv_router_zone  zone=main:16m block_size=4 predict=5m;
--- script
            told("first", "w1/0")
            told("predicted at w1", "w2/0")

            client.cache("w1", client.tokens(1, 4))
            told("one block is there", "w3/0")
--- response_body
first: w1 is told: 
predicted at w1: w2 is told: 
one block is there: w3 is told: the address of w1



=== TEST 3: another rank of the chosen worker is not named
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 ranks=2 events=on;
    kv_router_worker  main w2 127.0.0.1:$TEST_NGINX_RAND_PORT_2 events=on;
--- script
            client.cache("w1", client.tokens(1, 8), { rank = 1 })
            told("the other rank", "w1/0")
            told("another worker", "w2/0")
--- response_body
the other rank: w1 is told: 
another worker: w2 is told: the address of w1



=== TEST 4: a worker that drains is not named, the next best one is
--- script
            client.cache("w1", client.tokens(1, 8))
            client.cache("w3", client.tokens(1, 4))
            told("before", "w2/0")
            ask("POST", "/kv/workers/w1/drain")
            told("w1 drains", "w2/0")
--- response_body
before: w2 is told: the address of w1
w1 drains: w2 is told: the address of w3



=== TEST 5: a retry has the header of the first try
--- script
            client.cache("w1", client.tokens(1, 8))

            local answer = ask("POST", "/v1/completions", '{"prompt":'
                               .. client.tokens(1, 16) .. "}",
                               "x-to: w2/0\r\nx-fail: w2\r\n")

            ngx.print((answer.body:gsub("127[%d.:]+", names)))
            ngx.say("the client: ", answer.headers["x-source"] or "nothing")
--- response_body
w1 is told: the address of w1
the client: nothing
--- no_error_log
[alert]
[emerg]
[crit]
