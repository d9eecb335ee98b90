# kv_router_saturation: what each pool has to prefill, by what it can.

use lib 't/lib';
use KVRouter;

our $Engines = join('', map { <<"_EOC_" } 1 .. 2);
    server {
        listen 127.0.0.1:\$TEST_NGINX_RAND_PORT_$_;

        location / {
            content_by_lua_block {
                local dict = ngx.shared.engines

                while dict:get("holds") do
                    ngx.sleep(0.01)
                end

                ngx.say "fine"
            }
        }
    }
_EOC_

scripts(http_config => <<"_EOC_", config => <<'_EOC_');
    kv_router_zone      zone=main:32m block_size=4 queue=10;
    lua_shared_dict     engines 1m;

    upstream engines {
        server  0.0.0.1;
        balancer_by_lua_block { router:balance() }
    }
$Engines
_EOC_
    location /kv/ {
        kv_router_api     main;
    }

    location /status {
        kv_router_status  main;
    }

    location /v1/ {
        access_by_lua_block  { router:access() }
        proxy_pass           http://engines;
    }
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;
    my $new = $block->router // '';

    $block->set_value('http_config', ($block->http_config // '') . <<"_EOC_");
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none",
            unknown_model = "404", classes = { default = { wait = 60 } },
            $new })
    }
_EOC_

    $block->set_value('script', <<'_EOC_' . $block->script);
            local dict = ngx.shared.engines
            local PORTS = { "$TEST_NGINX_RAND_PORT_1", "$TEST_NGINX_RAND_PORT_2" }
            local first = 0

            local function put(id, engine, more)
                local answer = ask("PUT", "/kv/workers/" .. id,
                                   '{"address":"127.0.0.1:' .. PORTS[engine]
                                   .. '"' .. (more or "") .. "}")

                assert(answer.status < 300, answer.body)
            end

            -- Sends a prompt of so many ids, which no other has; it is kept.
            local function send(tokens, model)
                first = first + 10000

                local body = '{"model":"' .. (model or "m") .. '","prompt":'
                             .. client.tokens(first, first + tokens - 1) .. "}"

                return client.send("POST /v1/completions HTTP/1.0\r\n"
                                   .. "Content-Length: " .. #body .. "\r\n\r\n"
                                   .. body)
            end

            local function saturation(what)
                local text = ask("GET", "/status?format=prometheus").body
                local all = {}

                for labels, value in text:gmatch
                        '\nkv_router_saturation{zone="main",([^}]*)} ([^\n]*)'
                do
                    all[#all + 1] = labels:gsub("[%w]+=", "") .. " " .. value
                end

                ngx.say(what, ": ", table.concat(all, "; "))
            end

            -- The same; returns when the worker has it.
            local function hold(tokens, model, id)
                dict:set("holds", true)

                local sock = send(tokens, model)

                client.wait(function()
                    return (client.load() or ""):find(id .. "/%d prefill_tokens="
                                                      .. tokens)
                end)

                return sock
            end

            local function waits(n)
                client.wait(function() return client.stats().waiting == n end)
            end
_EOC_
});

log_level('info');
no_long_string();
no_shuffle();

plan tests => repeat_each() * 10;

run_tests();

__DATA__

=== TEST 1: what is in flight and what waits, by the bounds of those that can be used
--- script
            put("a", 1, ',"model":"m","max_prefill_tokens":100')
            put("other", 2, ',"model":"n","max_prefill_tokens":200,"ranks":2')
            put("unbound", 2, ',"model":"o"')
            saturation "none"

            local socks = { hold(100, "m", "a"), hold(50, "n", "other") }

            put("b", 2, ',"model":"m","max_prefill_tokens":300')
            socks[3] = hold(300, "m", "b")
            saturation "full"

            socks[4] = send(200)
            socks[5] = send(600)
            waits(2)
            saturation "two wait"

            ask("POST", "/kv/workers/b/drain", "{}")
            saturation "one of two drains"
            ask("POST", "/kv/workers/a/drain", "{}")
            saturation "both drain"
            ask("POST", "/kv/workers/a/drain", '{"drain":false}')
            ask("POST", "/kv/workers/b/drain", '{"drain":false}')

            dict:delete("holds")

            for _, sock in ipairs(socks) do
                sock:receive "*a"
            end

            client.idle()
            saturation "over"
--- response_body
none: "m","both" 0.000; "n","both" 0.000
full: "m","both" 1.000; "n","both" 0.250
two wait: "m","both" 3.000; "n","both" 0.250
one of two drains: "m","both" 12.000; "n","both" 0.250
both drain: "m","both" 3.000; "n","both" 0.250
load: none
over: "m","both" 0.000; "n","both" 0.000
--- no_error_log
[error]
[alert]
[crit]



=== TEST 2: what waits for a pair waits for who prefills; who decodes has no bound of tokens
--- router: policy = "disaggregated", policy_conf = { local_prefill = 8, timeout = 30 }
--- script
            put("p", 1, ',"role":"prefill","max_prefill_tokens":100')
            put("d", 2, ',"role":"decode","max_prefill_tokens":100')

            local socks = { hold(100, "m", "p") }

            socks[2] = send(150)
            waits(1)
            saturation "one waits"
            dict:delete("holds")

            for _, sock in ipairs(socks) do
                sock:receive "*a"
            end

            client.idle()
--- response_body
one waits: "","prefill" 2.500
load: none
--- no_error_log
[error]
[alert]
[crit]
