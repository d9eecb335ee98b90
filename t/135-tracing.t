# The trace that a request belongs to, and the decision, as headers to the
# engine and back to the client.

use lib 't/lib';
use KVRouter;

# two engines: /seen tells what headers came, /first fails on w1

our $Engines = engines(2, engine => <<'_EOC_');
        location /seen {
            content_by_lua_block {
                local headers = ngx.req.get_headers()

                ngx.print(headers.traceparent, " ",
                          tostring(headers.tracestate))
            }
        }

        location /first {
            content_by_lua_block {
                local headers = ngx.req.get_headers()

                if "wNUMBER" == "w1" then
                    return ngx.exit(503)
                end

                ngx.print("w", NUMBER, " was told ", headers["x-kv-worker"],
                          " overlap ", headers["x-kv-overlap"],
                          " best ", headers["x-kv-best"],
                          " prompt ", headers["x-kv-prompt"],
                          " ", headers["x-kv-reason"],
                          " ", headers["x-kv-confidence"],
                          " ", (headers["x-kv-time"]:gsub("%d", "0")))
            }
        }
_EOC_

our $Workers = zone_workers(2);

scripts(http_config => <<"_EOC_", config => <<'_EOC_');
    kv_router_zone  zone=main:16m block_size=4;
$Engines
$Workers

    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none" })
    }

    map \$request_id \$span {
        "~^(?<half>.{16})"  \$half;
    }

    map \$http_traceparent \$traceparent {
        "~^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\$"  \$http_traceparent;
        default  00-\$request_id-\$span-01;
    }
_EOC_
    location /kv/ {
        kv_router_api  main;
    }

    location /v1/ {
        access_by_lua_block  { router:access() }
        log_by_lua_block     { router:log() }
        proxy_pass           http://engines/;
        proxy_http_version   1.1;
        proxy_set_header     Connection "";
        proxy_set_header     traceparent $traceparent;
    }

    location /told/ {
        access_by_lua_block  { router:access() }
        log_by_lua_block     { router:log() }
        proxy_pass           http://engines/;
        proxy_http_version   1.1;
        proxy_next_upstream  error timeout http_503 non_idempotent;
        proxy_set_header     Connection "";
        proxy_set_header     x-kv-worker $kv_router_worker;
        proxy_set_header     x-kv-overlap $kv_router_overlap_blocks;
        proxy_set_header     x-kv-best $kv_router_best_overlap_blocks;
        proxy_set_header     x-kv-prompt $kv_router_prompt_blocks;
        proxy_set_header     x-kv-reason $kv_router_reason;
        proxy_set_header     x-kv-confidence $kv_router_confidence;
        proxy_set_header     x-kv-time $kv_router_time;
        add_header           x-kv-worker $kv_router_worker;
    }
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('script', <<'_EOC_' . $block->script);
            local ID = "4bf92f3577b34da6a3ce929d0e0e4736"
            local PARENT = "00f067aa0ba902b7"
            local NEW = "^00%-" .. ("%x"):rep(32) .. "%-" .. ("%x"):rep(16)
                        .. "%-01$"

            -- what the engine saw of a request with these headers
            local function seen(headers)
                local answer = ask("POST", "/v1/seen/completions",
                                   '{"prompt":[1,2,3,4]}', headers)

                return answer.body:match("^(%S+) (%S+)$"), answer
            end

            -- whether a traceparent gets there as it came, or a new one
            local function passed(value)
                local found = seen("traceparent: " .. value .. "\r\n")

                if found == value then
                    return "as it came"
                end

                return found:match(NEW) and "a new one" or found
            end
_EOC_
});

plan tests => repeat_each() * blocks() * 5;

no_long_string();
run_tests();

__DATA__

=== TEST 1: a valid traceparent gets to the engine as it came
--- script
            for _, flags in ipairs { "00", "01", "ff" } do
                ngx.say(passed("00-" .. ID .. "-" .. PARENT .. "-" .. flags))
            end

            ngx.say(passed("x"))
--- response_body
as it came
as it came
as it came
a new one



=== TEST 2: without a traceparent each request gets one
--- script
            local first = seen()
            local second = seen()

            ngx.say(first:match(NEW) and "new", " ",
                    second:match(NEW) and "new", " ", first ~= second)
--- response_body
new new true



=== TEST 3: the decision goes to the engine, and back to the client
--- script
            local body = '{"prompt":[0,1,2,3,4,5,6,7]}'

            client.cache("w2", "[0,1,2,3]")

            local answer = ask("POST", "/told/first/completions", body)

            ngx.say(answer.body)
            ngx.say(answer.headers["x-kv-worker"])
--- response_body
w2 was told w2 overlap 1 best 1 prompt 2 overlap UNVERIFIED 0.000000
w2



=== TEST 4: the engine of a retry is told the decision, the client the engine
--- script
            client.cache("w1", "[0,1,2,3]")

            local answer = ask("POST", "/told/first/completions",
                               '{"prompt":[0,1,2,3,4,5,6,7]}')

            ngx.say(answer.body)
            ngx.say(answer.headers["x-kv-worker"])
--- response_body
w2 was told w1 overlap 1 best 1 prompt 2 overlap UNVERIFIED 0.000000
w2
