# The way of a request: from its body to the engine that has most of it.

use lib 't/lib';
use KVRouter;

# w1, w2 and w3 are servers of the same nginx; nobody listens on port 9.

our $Engines = engines(3, upstream => "        keepalive  4;\n",
                      engine => <<'_EOC_');
        location /cut {
            content_by_lua_block {
                ngx.header.content_length = 100
                ngx.print("wNUMBER")
                ngx.flush(true)
                ngx.exit(444)
            }
        }

        location /rank {
            return  200 "wNUMBER is told $http_x_data_parallel_rank\n";
        }

        location /fail {
            return  503 "wNUMBER fails\n";
        }

        location /body {
            client_max_body_size     10m;
            client_body_buffer_size  10m;

            content_by_lua_block {
                ngx.req.read_body()
                ngx.say("wNUMBER ", #(ngx.req.get_body_data() or ""))
            }
        }
_EOC_

our $Workers = zone_workers(3);

our $Router = <<'_EOC_';
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none" })
    }
_EOC_

scripts(http_config => <<"_EOC_", config => <<'_EOC_');
    kv_router_zone  zone=main:16m block_size=4;

$Engines
_EOC_
    location /kv/ {
        client_max_body_size  10m;
        kv_router_api         main;
    }

    location /v1/ {
        access_by_lua_block     { router:access() }
        log_by_lua_block        { router:log() }
        add_header              x-route "$kv_router_worker/$kv_router_rank $kv_router_overlap_blocks of $kv_router_best_overlap_blocks of $kv_router_prompt_blocks, $kv_router_reason" always;
        client_max_body_size    10m;
        proxy_pass              http://engines/;
        proxy_http_version      1.1;
        proxy_set_header        Connection "";
        proxy_next_upstream     error timeout http_503 non_idempotent;
    }
_EOC_

# unless a block has its own, all workers and a router of the defaults

add_block_preprocessor(sub {
    my ($block) = @_;

    my $config = $block->http_config // '';

    $config = "$Workers$config" unless $config =~ /kv_router_worker/;
    $config = "$Router$config" unless $config =~ /init_by_lua/;

    $block->set_value('http_config', $config);

    # what a script needs most: one request, and where it went

    if (defined $block->script) {
        $block->set_value('script', <<'_EOC_' . $block->script);
            local function route(what, body, path, headers)
                local answer = ask(body and "POST" or "GET",
                                   "/v1/" .. (path and path .. "/completions"
                                             or "completions"), body,
                                   headers)

                ngx.say(what, ": ", answer.status, " ",
                        answer.headers["x-route"] or "-", ": ",
                        (answer.body:gsub("\n.*$", "")))

                return answer
            end
_EOC_
    }
});

log_level('info');
worker_connections(512);
no_long_string();
no_shuffle();

plan tests => repeat_each() * 138;

run_tests();

__DATA__

=== TEST 1: prompts of token ids go where most of them is cached
--- script
            client.cache("w1", client.tokens(1, 8))
            client.cache("w2", client.tokens(1, 12))
            client.cache("w3", client.tokens(1, 4))

            local prompt = client.tokens(1, 18)

            route("prompt", '{"prompt":' .. prompt .. "}")
            route("prompts", '{"prompt":[' .. prompt .. "]}")

            -- the next block of w2 is another: what counts is the prefix
            client.cache("w3", client.tokens(1, 16), { first = 2000 })
            route("w3 has more", '{"prompt":' .. prompt .. "}")

            ask("POST", "/kv/events", event("w3", removed(2002)))
            route("w3 has a hole", '{"prompt":' .. prompt .. "}")
            client.idle()
--- response_body
prompt: 200 w2/0 3 of 3 of 4, overlap: w2
prompts: 200 w2/0 3 of 3 of 4, overlap: w2
w3 has more: 200 w3/0 4 of 4 of 4, overlap: w3
w3 has a hole: 200 w2/0 3 of 3 of 4, overlap: w2
load: none



=== TEST 2: every rank of a worker is a candidate of its own
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 ranks=3;
    kv_router_worker  main w2 127.0.0.1:$TEST_NGINX_RAND_PORT_2;
--- script
            client.cache("w1", client.tokens(1, 8), { rank = 1 })
            client.cache("w2", client.tokens(1, 4))
            client.cache("w1", client.tokens(1, 4), { rank = 2 })

            route("the second rank", '{"prompt":' .. client.tokens(1, 9) .. "}")
--- response_body
the second rank: 200 w1/1 2 of 2 of 2, overlap: w1



=== TEST 3: salts and adapters are namespaces of their own
--- config
    location /lora/ {
        access_by_lua_block {
            router:access({ lora_name = ngx.var.arg_lora,
                            lora_id = tonumber(ngx.var.arg_id),
                            cache_salt = ngx.var.arg_salt })
        }

        add_header  x-route "$kv_router_worker $kv_router_overlap_blocks" always;
        proxy_pass  http://engines/;
    }
--- script
            local prompt = client.tokens(1, 8)

            client.cache("w1", prompt)
            client.cache("w2", prompt, { more = '"cache_salt":"s"' })
            client.cache("w3", prompt, { more = '"lora_name":"a"' })
            client.cache("w2", prompt, { more = '"lora_id":7',
                                           first = 2000 })

            prompt = '{"prompt":' .. prompt

            route("plain", prompt .. "}")
            route("salted", prompt .. ',"cache_salt":"s"}')
            route("no salt", prompt .. ',"cache_salt":null}')

            for _, args in ipairs { "lora=a", "salt=s", "x=y", "id=7",
                                    "id=7&lora=a" } do
                ngx.say(args, ": ", ask("POST", "/lora/completions?"
                                          .. args,
                                        prompt .. "}").headers["x-route"])
            end

            -- the one that is given goes before the body's
            ngx.say("both: ", ask("POST", "/lora/completions?salt=s",
                                  prompt .. ',"cache_salt":"other"}')
                              .headers["x-route"])
--- response_body
plain: 200 w1/0 2 of 2 of 2, overlap: w1
salted: 200 w2/0 2 of 2 of 2, overlap: w2
no salt: 200 w1/0 2 of 2 of 2, overlap: w1
lora=a: w3 2
salt=s: w2 2
x=y: w1 2
id=7: w2 2
id=7&lora=a: w3 2
both: w2 2



=== TEST 4: the model of a request goes to workers of that model, or of none
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 model=a;
    kv_router_worker  main w2 127.0.0.1:$TEST_NGINX_RAND_PORT_2 model=b;
--- script
            client.cache("w1", client.tokens(1, 8))

            local prompt = '{"prompt":' .. client.tokens(1, 8)

            route("a", prompt .. ',"model":"a"}')
            route("b", prompt .. ',"model":"b"}')
            route("none", prompt .. "}")
            route("unknown", prompt .. ',"model":"c"}')
--- response_body
a: 200 w1/0 2 of 2 of 2, overlap: w1
b: 200 w2/0 0 of 0 of 2, no overlap: w2
none: 200 w1/0 2 of 2 of 2, overlap: w1
unknown: 200 w1/0 2 of 2 of 2, no_eligible: w1



=== TEST 5: what has no token ids is routed all the same, with the reason
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
--- zone_params chop
max_tokens=16
--- script
            route("a short prompt", '{"prompt":[1,2,3]}')
            route("a text", '{"prompt":"Hello"}')
            route("a chat", '{"messages":[{"role":"user","content":"Hi"}]}')
            route("no prompt", '{"model":"m"}')
            route("an empty prompt", '{"prompt":[]}')
            route("no body", nil)
            route("an empty body", "")
            route("no JSON", "Hello")
            route("half of it", '{"prompt":[1,2,3')
            route("no object", "[1,2,3]")
            route("a token too large", '{"prompt":[4294967296]}')
            route("16 tokens", '{"prompt":' .. client.tokens(1, 16) .. "}")
            route("17 tokens", '{"prompt":' .. client.tokens(1, 17) .. "}")
            client.idle()
--- response_body
a short prompt: 200 w1/0 0 of 0 of 0, short: w1
a text: 200 w1/0 0 of 0 of 0, no_tokens: w1
a chat: 200 w1/0 0 of 0 of 0, no_tokens: w1
no prompt: 200 w1/0 0 of 0 of 0, no_tokens: w1
an empty prompt: 200 w1/0 0 of 0 of 0, short: w1
no body: 200 w1/0 0 of 0 of 0, no_load: w1
an empty body: 200 w1/0 0 of 0 of 0, no_prompt: w1
no JSON: 200 w1/0 0 of 0 of 0, bad_body: w1
half of it: 200 w1/0 0 of 0 of 0, bad_body: w1
no object: 200 w1/0 0 of 0 of 0, bad_body: w1
a token too large: 200 w1/0 0 of 0 of 0, bad_body: w1
16 tokens: 200 w1/0 0 of 0 of 4, no overlap: w1
17 tokens: 200 w1/0 0 of 0 of 0, too_long: w1
load: none



=== TEST 6: the variables, in the log and in a header
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    log_format  all  '$uri worker=$kv_router_worker rank=$kv_router_rank '
                     'policy=$kv_router_policy '
                     'overlap=$kv_router_overlap_blocks '
                     'best=$kv_router_best_overlap_blocks '
                     'blocks=$kv_router_prompt_blocks '
                     'confidence=$kv_router_confidence '
                     'reason=$kv_router_reason '
                     'hashes=$kv_router_block_hashes '
                     'time=$kv_router_time';
--- config
    location /logged/ {
        access_by_lua_block { router:access() }
        access_log          logs/routing.log all;
        proxy_pass          http://engines/;
    }

    location = /logged/not {
        access_log          logs/routing.log all;
        return              204;
    }
--- script
            client.cache("w1", "[0,1,2,3]")
            ask("POST", "/logged/ids/completions", '{"prompt":[0,1,2,3,4,5,6,7]}')
            ask("POST", "/logged/text/completions", '{"prompt":"Hello"}')
            ask("GET", "/logged/not")

            local log = client.wait(function()
                local file = io.open(ngx.config.prefix() .. "logs/routing.log")
                local text = file:read("*a")

                file:close()

                return text:find("/not.*\n") and text
            end)

            ngx.print((log:gsub("time=%d+%.%d%d%d%d%d%d\n", "time=ok\n")))
--- response_body
/logged/ids/completions worker=w1 rank=0 policy=kv_cost overlap=1 best=1 blocks=2 confidence=UNVERIFIED reason=overlap hashes=7ee2cbedc694ab46,a8416cfd935bdb13 time=ok
/logged/text/completions worker=w1 rank=0 policy=kv_cost overlap=0 best=0 blocks=0 confidence=UNVERIFIED reason=no_tokens hashes=- time=ok
/logged/not worker=- rank=- policy=- overlap=- best=- blocks=- confidence=- reason=- hashes=- time=-



=== TEST 7: long bodies: in a file, in chunks, and passed on whole
--- config
        client_body_buffer_size  1k;
--- script
            local prompt = client.tokens(1, 100000)

            client.cache("w2", client.tokens(1, 90000))

            local body = '{"prompt":' .. prompt .. ',"model":"m"}'

            ngx.say(#body)
            route("a file", body, "body")

            local sock = client.send("POST /v1/body/completions HTTP/1.1\r\n"
                                     .. "Host: localhost\r\n"
                                     .. "Connection: close\r\n"
                                     .. "Transfer-Encoding: chunked\r\n\r\n")

            for i = 1, #body, 50000 do
                local piece = body:sub(i, i + 49999)

                assert(sock:send(string.format("%x\r\n%s\r\n", #piece, piece)))
            end

            sock:send("0\r\n\r\n")
            ngx.say("chunks: ", client.receive(sock).headers["x-route"])

            -- the header first, the body later
            sock = client.send("POST /v1/body/completions HTTP/1.0\r\n"
                               .. "Content-Length: " .. #body .. "\r\n\r\n")
            client.turns()
            sock:send(body)
            ngx.say("late: ", client.receive(sock).headers["x-route"])
            client.idle()
--- response_body
588919
a file: 200 w2/0 22500 of 22500 of 25000, overlap: w2 588919
chunks: w2/0 22500 of 22500 of 25000, overlap
late: w2/0 22500 of 22500 of 25000, overlap
load: none



=== TEST 8: a draining worker gets nothing new
--- script
            local prompt = '{"prompt":' .. client.tokens(1, 8) .. "}"

            client.cache("w1", client.tokens(1, 8))
            client.cache("w2", client.tokens(1, 4))
            route("both", prompt)
            ask("POST", "/kv/workers/w1/drain")
            route("w1 drains", prompt)
            ask("POST", "/kv/workers/w2/drain")
            route("w2 too", prompt)
            ask("POST", "/kv/workers/w1/drain", '{"drain":false}')
            route("w1 is back", prompt)
            ask("DELETE", "/kv/workers/w1")
            route("w1 is gone", prompt)
--- response_body
both: 200 w1/0 2 of 2 of 2, overlap: w1
w1 drains: 200 w2/0 1 of 1 of 2, overlap: w2
w2 too: 200 w3/0 0 of 0 of 2, no overlap: w3
w1 is back: 200 w1/0 2 of 2 of 2, overlap: w1
w1 is gone: 200 w3/0 0 of 0 of 2, no overlap: w3



=== TEST 9: without any worker the answer is 503, and when to come back
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
--- script
            local body = '{"prompt":[1,2,3,4]}'

            route("one", body)
            ask("POST", "/kv/workers/w1/drain")

            local answer = route("none", body)

            ngx.say(answer.headers["retry-after"], " ",
                    answer.headers["content-type"])

            ask("DELETE", "/kv/workers/w1")
            route("none at all", body)
            ask("PUT", "/kv/workers/new",
                '{"address":"127.0.0.1:$TEST_NGINX_RAND_PORT_1"}')
            route("a new one", body)
            client.idle()
--- response_body
one: 200 w1/0 0 of 0 of 1, no overlap: w1
none: 503 /  of  of , : {"error":{"message":"no worker is available","type":"service_unavailable","param":null,"code":"no_worker"}}
1 application/json
none at all: 503 /  of  of , : {"error":{"message":"no worker is available","type":"service_unavailable","param":null,"code":"no_worker"}}
a new one: 200 new/0 0 of 0 of 1, no overlap: w1
load: none



=== TEST 10: a worker that refuses connections: the next best, and no load is left
--- http_config
    kv_router_worker  main dead 127.0.0.1:$TEST_NGINX_RAND_PORT_9 ranks=1;
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    kv_router_worker  main w2 127.0.0.1:$TEST_NGINX_RAND_PORT_2;
--- script
            client.cache("dead", client.tokens(1, 12))
            client.cache("w2", client.tokens(1, 8))
            client.cache("w1", client.tokens(1, 4))

            route("dead has most", '{"prompt":' .. client.tokens(1, 12) .. "}")
            route("w2 fails too", '{"prompt":' .. client.tokens(1, 12) .. "}",
                  "completions/../fail")
            client.idle()

            local stats = client.stats().requests

            ngx.say("routed ", stats.routed, ", retries ", stats.retries)
--- response_body
dead has most: 200 w2/0 2 of 3 of 3, retry: w2
w2 fails too: 503 w1/0 1 of 3 of 3, retry: w1 fails
load: none
routed 2, retries 3
--- no_error_log
[alert]
[emerg]
[crit]



=== TEST 11: all fail
--- http_config
    kv_router_worker  main dead 127.0.0.1:$TEST_NGINX_RAND_PORT_9;
    kv_router_worker  main late 127.0.0.1:$TEST_NGINX_RAND_PORT_8;
--- script
            for _ = 1, 2 do
                local answer = ask("POST", "/v1/completions", '{"prompt":[1,2,3,4]}')
                local where = answer.headers["x-route"]:gsub("^%a+", "?")

                ngx.say(answer.status, " ", where)
                client.idle()
            end

            ngx.say(client.stats().requests.retries)
--- response_body
502 ?/0 0 of 0 of 1, retry
load: none
502 ?/0 0 of 0 of 1, retry
load: none
2
--- no_error_log
[alert]
[emerg]
[crit]



=== TEST 12: max_tries bounds the tries, 0 forbids them
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    kv_router_worker  main w2 127.0.0.1:$TEST_NGINX_RAND_PORT_2;
    kv_router_worker  main w3 127.0.0.1:$TEST_NGINX_RAND_PORT_3;

    init_by_lua_block {
        local kv = require "resty.kv_router"

        router = kv.new("main", { tokenizer = "none", max_tries = tonumber(1) })
        once = kv.new("main", { tokenizer = "none", max_tries = 0 })
    }

    upstream once {
        server  0.0.0.1;
        balancer_by_lua_block { once:balance() }
    }
--- config
    location /once/ {
        access_by_lua_block  { once:access() }
        proxy_pass           http://once/;
        proxy_next_upstream  error timeout http_503 non_idempotent;
    }
--- script
            local function tries(what, path)
                local before = client.stats().requests.retries
                local status = ask("POST", path, "{}").status

                ngx.say(what, ": ", status, " after ",
                        client.stats().requests.retries - before, " retries")
            end

            tries("one more", "/v1/fail/completions")
            tries("no more", "/once/fail/completions")
            tries("no need", "/v1/completions")
            client.idle()
--- response_body
one more: 503 after 1 retries
no more: 503 after 0 retries
no need: 200 after 0 retries
load: none
--- no_error_log
[alert]
[emerg]
[crit]



=== TEST 13: while a request runs its load is there, and goes with its client
--- script
            client.cache("w1", client.tokens(1, 4))

            local sock = client.send("POST /v1/slow/completions HTTP/1.0\r\n"
                                     .. "Content-Length: 31\r\n\r\n"
                                     .. '{"prompt":[1,2,3,4,5,6,7,8,9]} ')

            -- the first byte of the body ends the prefill
            sock:receiveuntil("\r\n\r\n")()
            sock:receive(2)
            ngx.say("streaming: ", client.load())
            sock:close()
            client.idle()
--- response_body
streaming: w1/0 active_requests=1 w1/0 decode_blocks=2
load: none



=== TEST 14: a client that leaves before the first byte
--- config
        proxy_ignore_client_abort  off;
--- http_config
    kv_router_worker  main silent 127.0.0.1:$TEST_NGINX_RAND_PORT_4;

    server {
        listen    127.0.0.1:$TEST_NGINX_RAND_PORT_4;
        location  / { content_by_lua_block { ngx.sleep(60) } }
    }
--- script
            local sock = client.send("POST /v1/slow/completions HTTP/1.0\r\n"
                                     .. "Content-Length: 31\r\n\r\n"
                                     .. '{"prompt":[1,2,3,4,5,6,7,8,9]} ')

            ngx.say("waiting: ", client.wait(client.load))
            sock:close()
            client.idle()
--- response_body
waiting: silent/0 active_requests=1 silent/0 active_prefills=1 silent/0 prefill_tokens=9 silent/0 decode_blocks=2
load: none



=== TEST 15: load goes when a worker resets, cuts its answer or fails
--- script
            local body = '{"prompt":[1,2,3,4,5]}'

            for _, path in ipairs { "reset", "cut", "fail", "nothing" } do
                ngx.say(path, " ", ask("POST", "/v1/" .. path .. "/completions",
                                          body).status)
                client.idle()
            end

            ngx.say(client.stats().requests.routed)
--- response_body
reset 502
load: none
cut 200
load: none
fail 503
load: none
nothing 200
load: none
4
--- no_error_log
[alert]
[emerg]
[crit]



=== TEST 16: load goes once, whatever way error_page sends the request
--- config
    location /paged/ {
        access_by_lua_block     { router:access() }
        proxy_pass              http://engines/;
        proxy_intercept_errors  on;
        error_page              503 502 /page;
    }

    location = /page {
        return  200 "sorry: $kv_router_worker $kv_router_reason\n";
    }

    location /missing/ {
        access_by_lua_block     { router:access() }
        proxy_pass              http://engines/fail;
        proxy_intercept_errors  on;
        error_page              503 = @again;
    }

    location @again {
        access_by_lua_block     { router:access() }
        add_header              x-route "$kv_router_reason" always;
        proxy_pass              http://engines;
    }

    location /moved/ {
        rewrite_by_lua_block { ngx.exec("/v1/moved/completions") }
    }

    location /routed_twice/ {
        access_by_lua_block  { router:access() }
        content_by_lua_block { ngx.exec("/v1/twice/completions") }
    }
--- script
            local body = '{"prompt":[1,2,3,4,5]}'
            local function go(path)
                local answer = ask("POST", path .. "/completions", body)

                ngx.say(path, ": ", answer.status, " ",
                        (answer.headers["x-route"] or "-"):gsub("w%d", "w?"),
                        " ", (answer.body:gsub("\n", ""):gsub("w%d", "w?")))
                client.idle()
            end

            go("/paged/fail")
            go("/paged/reset")
            go("/paged/fine")
            go("/missing/x")
            go("/moved/x")
            go("/routed_twice/x")
            ngx.say(client.stats().requests.routed)
--- response_body
/paged/fail: 503 - sorry: w? no overlap
load: none
/paged/reset: 502 - sorry: w? no overlap
load: none
/paged/fine: 200 - w?
load: none
/missing/x: 200 retry w?
load: none
/moved/x: 200 w?/0 0 of 0 of 1, no overlap w?
load: none
/routed_twice/x: 200 w?/0 0 of 0 of 1, no overlap w?
load: none
6
--- no_error_log
[alert]
[emerg]
[crit]



=== TEST 17: two zones in one nginx know nothing of each other
--- http_config
    kv_router_zone    zone=other:8m block_size=2;
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    kv_router_worker  main w2 127.0.0.1:$TEST_NGINX_RAND_PORT_2;
    kv_router_worker  other w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    kv_router_worker  other w2 127.0.0.1:$TEST_NGINX_RAND_PORT_2;

    init_by_lua_block {
        local kv = require "resty.kv_router"

        router = kv.new("main", { tokenizer = "none" })
        second = kv.new("other", { tokenizer = "none" })
    }

    upstream second {
        server  0.0.0.1;
        balancer_by_lua_block { second:balance() }
    }
--- config
    location /other/ {
        kv_router_api  other;
    }

    location /v2/ {
        access_by_lua_block { second:access() }
        add_header          x-route "$kv_router_worker $kv_router_overlap_blocks of $kv_router_prompt_blocks" always;
        proxy_pass          http://second/;
    }

    location /both/ {
        # the one that is asked last routes, and nothing is left of the first
        access_by_lua_block {
            router:access()
            second:access()
        }

        add_header          x-route "$kv_router_worker $kv_router_overlap_blocks of $kv_router_prompt_blocks" always;
        proxy_pass          http://second/;
    }
--- script
            local prompt = client.tokens(1, 8)

            client.cache("w1", prompt)
            client.cache("w2", prompt, { api = "/other" })

            prompt = '{"prompt":' .. prompt .. "}"

            route("main", prompt)
            ngx.say("other: ", ask("POST", "/v2/completions", prompt).headers["x-route"])
            ngx.say("both: ", ask("POST", "/both/completions", prompt).headers["x-route"])
            client.idle()
            client.idle("/other")
            ngx.say(client.stats().requests.routed, " ",
                    client.stats("/other").requests.routed)
--- response_body
main: 200 w1/0 2 of 2 of 2, overlap: w1
other: w2 4 of 4
both: w2 4 of 4
load: none
load: none
2 2



=== TEST 18: round_robin takes turns by weight, whatever is cached
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 weight=2;
    kv_router_worker  main w2 127.0.0.1:$TEST_NGINX_RAND_PORT_2;
    kv_router_worker  main w3 127.0.0.1:$TEST_NGINX_RAND_PORT_3;

    init_by_lua_block {
        router = require("resty.kv_router").new("main",
                                                { tokenizer = "none", policy = "round_robin" })
    }
--- script
            client.cache("w1", "[1,2,3,4]")

            local count = { w1 = 0, w2 = 0, w3 = 0 }

            for _ = 1, 40 do
                local answer = ask("POST", "/v1/completions", '{"prompt":[1,2,3,4]}')
                local worker = answer.body:sub(1, 2)

                count[worker] = count[worker] + 1

                if not answer.headers["x-route"]:find(", turn$") then
                    ngx.say(answer.headers["x-route"])
                end
            end

            -- turns begin at a random place
            for worker, turns in pairs { w1 = 20, w2 = 10, w3 = 10 } do
                if math.abs(count[worker] - turns) > 1 then
                    ngx.say(worker, " had ", count[worker], " turns")
                end
            end
--- response_body



=== TEST 19: least_loaded goes where the fewest requests run
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main",
                                                { tokenizer = "none", policy = "least_loaded" })
    }
--- script
            local socks, seen = {}, {}

            for i = 1, 3 do
                socks[i] = client.send("POST /v1/slow/completions HTTP/1.0\r\n\r\n")
                socks[i]:receiveuntil("\r\n\r\n")()
                seen[#seen + 1] = socks[i]:receive("*l")
            end

            table.sort(seen)
            ngx.say(table.concat(seen, " "))

            -- one of them is free again
            socks[2]:close()

            client.wait(function()
                local _, n = client.load():gsub("active_requests=1", "")

                return n == 2
            end)

            local free = route("the free one", nil).headers["x-route"]

            ngx.say(not client.load():find(free:sub(1, 2), 1, true))
            socks[1]:close()
            socks[3]:close()
            client.idle()
--- response_body_like
^w1 w2 w3
the free one: 200 w[123]/0 0 of 0 of 0, no_load: w[123]
true
load: none$



=== TEST 20: a policy of one's own, a table
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none", policy = {
            name = "mine",

            pick = function(self, ctx)
                local wanted = ctx.request.headers["x-want"]

                if wanted == "list" then
                    return { 3, 2, 1 }, nil, "in a list"
                end

                return wanted, 0, "of " .. #ctx.candidates .. ", "
                                  .. ctx.prompt_tokens .. " tokens"
            end,

            done = function(self, ctx, outcome)
                ngx.log(ngx.WARN, "done: ", outcome.worker, " status ",
                        outcome.status, " tries ", outcome.tries)
            end,
        } })
    }
--- script
            local body = '{"prompt":[1,2,3,4,5]}'

            for _, want in ipairs { "w1", "w3", "list" } do
                route(want, body, nil, "x-want: " .. want .. "\r\n")
            end

            route("a list is what retries follow", body, "fail",
                  "x-want: list\r\n")
            client.turns()
--- response_body
w1: 200 w1/0 0 of 0 of 1, of 3, 5 tokens: w1
w3: 200 w3/0 0 of 0 of 1, of 3, 5 tokens: w3
list: 200 w3/0 0 of 0 of 1, in a list: w3
a list is what retries follow: 503 w1/0 0 of 0 of 1, retry: w1 fails
--- error_log
done: w1 status 200 tries 1
done: w3 status 200 tries 1
done: w1 status 503 tries 3
--- no_error_log
[alert]
[emerg]



=== TEST 21: a policy that fails is told once, and load decides
--- user_files
>>> my/moody.lua
local _M = {}

function _M.new(conf)
    return { pick = function(self, ctx)
        local mood = ctx.request.headers["x-mood"]

        if mood == "error" then
            error("I can't")
        end

        if mood == "nobody" then
            return "nobody"
        end

        if mood == "nothing" then
            return nil
        end

        return conf.favourite, nil, "my favourite"
    end }
end

return _M
--- http_config
    init_by_lua_block {
        package.path = "$TEST_NGINX_HTML_DIR/?.lua;" .. package.path
        router = require("resty.kv_router").new("main", { tokenizer = "none",
            policy = "my.moody",
            policy_conf = { favourite = "w2" },
        })
    }
--- script
            for _, mood in ipairs { "good", "error", "error", "nobody",
                                    "nothing" }
            do
                local answer = ask("POST", "/v1/completions", '{"prompt":[1,2,3,4]}',
                                   "x-mood: " .. mood .. "\r\n")

                ngx.say(mood, ": ", answer.status, " ",
                        answer.headers["x-route"]:match(", (.*)"))
            end

            ngx.say(client.stats().requests.policy_errors)
            client.idle()
--- response_body
good: 200 my favourite
error: 200 policy_error
error: 200 policy_error
nobody: 200 policy_error
nothing: 200 policy_error
4
load: none
--- grep_error_log eval: qr/policy "my\.moody": pick: (?:.*moody\.lua:\d+: I can't|it returned [^,\n]*)/
--- grep_error_log_out eval
qr/^policy "my\.moody": pick: \S*moody\.lua:8: I can't
policy "my\.moody": pick: it returned worker "nobody" rank 0
policy "my\.moody": pick: it returned nothing: pick\(\) must return a worker's id
\z/
--- no_error_log
[alert]
[emerg]
[crit]



=== TEST 22: a zone that isn't there is a mistake to be seen at once
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none" })
    }
--- script
            local _, err = pcall(require("resty.kv_router").new, "nowhere")

            ngx.say(err)
--- response_body
bad argument #1 to 'new' (there is no kv_router_zone "nowhere": there are main)
--- no_error_log
[error]
[alert]
[emerg]



=== TEST 23: balance() without access() answers 502, and says why
--- config
    location /forgotten/ {
        proxy_pass  http://engines/;
    }
--- script
            ngx.say(ask("POST", "/forgotten/x", "{}").status)
--- response_body
502
--- error_log
no peer: the request was not routed in its access phase: write access_by_lua_block { router:access() } into its location
--- no_error_log
[alert]
[emerg]



=== TEST 24: many at once, all ends at zero
--- script
            client.cache("w1", client.tokens(1, 40))

            local threads = {}
            local paths = { "x", "reset", "cut", "fail", "slow" }

            for i = 1, 60 do
                threads[i] = ngx.thread.spawn(function()
                    local body = '{"prompt":' .. client.tokens(1, i) .. "}"
                    local sock = client.send("POST /v1/" .. paths[i % 5 + 1]
                                             .. "/completions HTTP/1.0\r\n"
                                             .. "Content-Length: " .. #body
                                             .. "\r\n\r\n" .. body)

                    if i % 5 + 1 == 5 then
                        sock:receive(50)

                    else
                        sock:receive("*a")
                    end

                    sock:close()
                end)
            end

            for i = 1, 60 do
                ngx.thread.wait(threads[i])
            end

            client.idle()
            ngx.say(client.stats().requests.routed)
--- response_body
load: none
60
--- no_error_log
[alert]
[emerg]
[crit]



=== TEST 25: of several ranks the engine is told which, by retries as well
--- http_config
    kv_router_worker  main w1 127.0.0.1:9 ranks=2 max_fails=0;
    kv_router_worker  main w2 127.0.0.1:$TEST_NGINX_RAND_PORT_2 ranks=2;
    kv_router_worker  main w3 127.0.0.1:$TEST_NGINX_RAND_PORT_3;
    kv_router_worker  main w4 127.0.0.1:9 max_fails=0;
--- script
            local mine = "x-data-parallel-rank: 7\r\n"
            local function prompt(from, to)
                return '{"prompt":' .. client.tokens(from, to) .. "}"
            end

            client.cache("w2", client.tokens(1, 8), { rank = 1 })
            route("one of two", prompt(1, 8), "rank")
            route("whatever a client says", prompt(1, 8), "rank", mine)

            client.cache("w2", client.tokens(21, 28),
                         { rank = 0, first = 2000 })
            route("the other one", prompt(21, 28), "rank")

            client.cache("w3", client.tokens(41, 48), { first = 3000 })
            route("only one", prompt(41, 48), "rank")
            route("a client's own", prompt(41, 48), "rank", mine)

            -- the next best has it at another rank
            client.cache("w1", client.tokens(61, 76),
                         { rank = 1, first = 4000 })
            client.cache("w2", client.tokens(61, 72),
                         { rank = 0, first = 5000 })
            client.cache("w3", client.tokens(61, 68), { first = 6000 })
            route("a retry", prompt(61, 76), "rank")

            -- and its load is there
            local sock = client.send("POST /v1/slow/completions HTTP/1.0\r\n"
                                     .. "Content-Length: "
                                     .. #prompt(61, 76) .. "\r\n\r\n"
                                     .. prompt(61, 76))

            sock:receiveuntil("\r\n\r\n")()
            sock:receive(1)
            ngx.say(client.load())
            sock:close()
            client.idle()

            ask("POST", "/kv/workers/w2/drain", "")
            route("nobody else has several", prompt(61, 76), "rank")

            -- a worker with one rank was not told: the next one is
            client.cache("w4", client.tokens(81, 88), { first = 7000 })
            ask("POST", "/kv/workers/w2/drain", '{"drain":false}')
            ask("POST", "/kv/workers/w3/drain", "")
            client.cache("w2", client.tokens(81, 84),
                         { rank = 1, first = 8000 })
            route("a client's own goes", prompt(81, 88), "rank", mine)
            client.idle()
--- response_body
one of two: 200 w2/1 2 of 2 of 2, overlap: w2 is told 1
whatever a client says: 200 w2/1 2 of 2 of 2, overlap: w2 is told 1
the other one: 200 w2/0 2 of 2 of 2, overlap: w2 is told 0
only one: 200 w3/0 2 of 2 of 2, overlap: w3 is told 
a client's own: 200 w3/0 2 of 2 of 2, overlap: w3 is told 7
a retry: 200 w2/0 3 of 4 of 4, retry: w2 is told 0
w2/0 active_requests=1 w2/0 decode_blocks=4
load: none
nobody else has several: 200 w3/0 2 of 4 of 4, retry: w3 is told 0
a client's own goes: 200 w2/1 1 of 2 of 2, retry: w2 is told 1
load: none
--- error_log
Connection refused
--- no_error_log
[alert]
[emerg]



=== TEST 26: a zone with one rank has not the rank of another zone before it
--- http_config
    kv_router_zone    zone=other:8m block_size=4;
    kv_router_worker  main w2 127.0.0.1:$TEST_NGINX_RAND_PORT_2 ranks=2;
    kv_router_worker  other w3 127.0.0.1:$TEST_NGINX_RAND_PORT_3;

    init_by_lua_block {
        local kv = require "resty.kv_router"

        router = kv.new("main", { tokenizer = "none" })
        second = kv.new("other", { tokenizer = "none" })
    }

    upstream second {
        server  0.0.0.1;
        balancer_by_lua_block { second:balance() }
    }
--- config
    location /second/ {
        access_by_lua_block { second:access() }
        proxy_pass          http://second/;
    }

    location /both/ {
        access_by_lua_block {
            router:access()
            second:access()
        }

        proxy_pass          http://second/;
    }
--- script
            local prompt = client.tokens(1, 8)

            client.cache("w2", prompt, { rank = 1 })

            prompt = '{"prompt":' .. prompt .. "}"

            route("main", prompt, "rank")
            ngx.print(ask("POST", "/both/rank", prompt).body)
            ngx.print(ask("POST", "/second/rank", prompt).body)
--- response_body
main: 200 w2/1 2 of 2 of 2, overlap: w2 is told 1
w3 is told 0
w3 is told 
--- no_error_log
[alert]
[emerg]
[crit]



=== TEST 27: a reason of several lines is one header
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1;

    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none",
            policy = { pick = function() return 1, nil, "a\r\nx-b: c" end }
        })
    }
--- script
            local answer = ask("POST", "/v1/completions", '{"prompt":[1,2,3,4]}')

            ngx.say(answer.status, " ", answer.headers["x-route"], " ",
                    tostring(answer.headers["x-b"]))
--- response_body
200 w1/0 0 of 0 of 1, a  x-b: c nil
--- no_error_log
[alert]
[emerg]
[crit]
