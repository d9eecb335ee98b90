# disaggregated: one worker prefills, another one generates.

use lib 't/lib';
use KVRouter;

# What engines are asked is kept in the dict "say": "p1" -> body.  Both prefill
# workers answer as the dict tells them; the decode workers say what they got.

our $Engines = join('', map { <<_EOC_ } 1, 2);
    server {
        listen    127.0.0.1:\$TEST_NGINX_RAND_PORT_$_;

        location / {
            client_body_buffer_size  1m;

            content_by_lua_block {
                local say = ngx.shared.say

                ngx.req.read_body()
                say:incr("asked p$_", 1, 0)
                say:set("p$_", ngx.req.get_body_data())
                say:set("id p$_", ngx.var.http_x_request_id)
                say:set("rank p$_", ngx.var.http_x_data_parallel_rank or "-")

                -- the load while it prefills
                local stats = require("resty.kv_router").index("main"):stats()

                for _, w in ipairs(stats.workers) do
                    say:set("active " .. w.worker_id,
                            w.load[1].active_requests .. "/"
                            .. w.load[1].prefill_tokens)
                end

                if say:get("sleep") then
                    ngx.sleep(say:get("sleep"))
                end

                ngx.status = say:get("status") or 200

                local answer = say:get("answer") or '{"kv_transfer_params":'
                               .. '{"remote_host":"p$_","remote_port":5600,'
                               .. '"remote_block_ids":[1,2]}}'

                ngx.header.content_length = #answer
                ngx.print(answer)
            }
        }
    }
_EOC_

our $Decoders = join('', map { my $port = $_ + 2; <<_EOC_ } 1, 2);
    server {
        listen    127.0.0.1:\$TEST_NGINX_RAND_PORT_$port;

        location / {
            client_body_buffer_size  1m;

            content_by_lua_block {
                local say = ngx.shared.say

                ngx.req.read_body()
                say:set("d$_", ngx.req.get_body_data())
                say:set("id d$_", ngx.var.http_x_request_id)
                say:set("rank d$_", ngx.var.http_x_data_parallel_rank or "-")
                say:set("header d$_", ngx.var.http_x_prefiller_host_port
                                      or "-")

                -- the load until it answers
                local stats = require("resty.kv_router").index("main"):stats()

                for _, w in ipairs(stats.workers) do
                    if w.worker_id == "d$_" then
                        say:set("load d$_", w.load[1].active_requests .. "/"
                                            .. w.load[1].active_prefills .. "/"
                                            .. w.load[1].prefill_tokens)
                    end
                end

                if say:get("fail d$_") then
                    ngx.exit(503)
                end

                ngx.print("d$_")
            }
        }
    }
_EOC_

our $Workers = <<'_EOC_';
    kv_router_worker  main p1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 role=prefill events=on;
    kv_router_worker  main p2 127.0.0.1:$TEST_NGINX_RAND_PORT_2 role=prefill events=on;
    kv_router_worker  main d1 127.0.0.1:$TEST_NGINX_RAND_PORT_3 role=decode events=on;
    kv_router_worker  main d2 127.0.0.1:$TEST_NGINX_RAND_PORT_4 role=decode events=on;
_EOC_

our $Vllm = <<'_EOC_';
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none",
            policy = "disaggregated",
            policy_conf = { local_prefill = 8, timeout = 3 },
        })
    }
_EOC_

scripts(http_config => <<"_EOC_", config => <<'_EOC_');
    kv_router_zone      zone=main:16m block_size=4 queue=10;
    lua_shared_dict     say 1m;

    upstream engines {
        server  0.0.0.1;
        balancer_by_lua_block { router:balance() }
    }
$Engines
$Decoders
_EOC_
    location /kv/ {
        kv_router_api  main;
    }

    location /v1/ {
        access_by_lua_block      { router:access() }
        log_by_lua_block         { router:log() }
        add_header               x-route "$kv_router_worker<$kv_router_prefill_worker: $kv_router_reason" always;
        client_body_buffer_size  1m;
        proxy_pass               http://engines;
        proxy_next_upstream      error timeout http_503 non_idempotent;
    }
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;
    my $config = $block->http_config // '';

    $config = "$Workers$config" unless $config =~ /kv_router_worker/;
    $config = "$Vllm$config" unless $config =~ /init_by_lua/;

    $block->set_value('http_config', $config);
    $block->set_value('script', <<'_EOC_' . $block->script);
            local dict = ngx.shared.say
            local cjson = require "cjson"
            local long = client.tokens(1, 16)

            local function route(what, body, headers, path)
                local answer = ask("POST", path or "/v1/completions", body,
                                   headers)

                ngx.say(what, ": ", answer.status, " ", answer.body, " ",
                        answer.headers["x-route"])

                return answer.body
            end
_EOC_
});

no_long_string();
no_shuffle();

plan tests => repeat_each() * 55;

run_tests();

__DATA__

=== TEST 1: vLLM: the prompt is prefilled first, and what that says goes on
--- script
            client.cache("p2", client.tokens(1, 8))
            client.cache("d1", client.tokens(1, 4))

            route("a pair", '{"model":"m","prompt":' .. long
                            .. ',"max_tokens":9,"stream":true}')

            local asked = cjson.decode(dict:get("p2"))

            ngx.say(asked.max_tokens, " ", asked.stream, " ",
                    asked.kv_transfer_params.do_remote_decode, " ",
                    #asked.prompt)

            local got = cjson.decode(dict:get("d1"))

            ngx.say(got.max_tokens, " ", got.stream, " ", #got.prompt, " ",
                    got.kv_transfer_params.remote_host, " ",
                    got.kv_transfer_params.remote_port)
            ngx.say(#dict:get("id d1"), " ",
                    dict:get("id d1") == dict:get("id p2"))
            ngx.say("while it prefills: p1 ", dict:get("active p1"), ", p2 ",
                    dict:get("active p2"), ", d1 ", dict:get("active d1"),
                    ", d2 ", dict:get("active d2"))
            client.idle()

            route("short", '{"prompt":' .. client.tokens(1, 12) .. "}")
            ngx.say(cjson.decode(dict:get("d1")).kv_transfer_params)
            ngx.say("asked ", dict:get("asked p2"), " times")
            route("its own id", '{"prompt":' .. long .. "}",
                  "x-request-id: mine\r\n")
            ngx.say(dict:get("id p2"), " ", dict:get("id d1"))
            client.idle()
--- response_body
a pair: 200 d1 d1<p2: pair
1 false true 16
9 true 16 p2 5600
32 true
while it prefills: p1 0/0, p2 1/8, d1 1/0, d2 0/0
load: none
short: 200 d1 d1<: short
nil
asked 1 times
its own id: 200 d1 d1<p2: pair
mine mine
load: none



=== TEST 2: a prefill worker that fails is replaced, and when all fail the decoder prefills
--- http_config
    kv_router_worker  main p0 127.0.0.1:9 role=prefill events=on;
    kv_router_worker  main p2 127.0.0.1:$TEST_NGINX_RAND_PORT_2 role=prefill events=on;
    kv_router_worker  main d1 127.0.0.1:$TEST_NGINX_RAND_PORT_3 role=decode events=on;
    lua_socket_log_errors  off;
--- script
            client.cache("p0", client.tokens(1, 8))

            local body = '{"prompt":' .. long .. "}"

            route("one is away", body)
            ngx.say(cjson.decode(dict:get("d1")).kv_transfer_params
                    .remote_host)
            ngx.say("while d1 decodes: ", dict:get("load d1"))
            dict:set("status", 500)
            route("the other one fails", body)
            ngx.say("while d1 does both: ", dict:get("load d1"))
            ngx.say(cjson.decode(dict:get("d1")).kv_transfer_params)
            dict:set("status", 200)
            dict:set("answer", "what?")
            route("it talks nonsense", body)
            dict:delete("answer")
            dict:set("sleep", 30)
            route("it is too slow", body)
            dict:delete("sleep")
            client.idle()
--- response_body
one is away: 200 d1 d1<p2: pair
p2
while d1 decodes: 1/0/0
the other one fails: 200 d1 d1<p2: pair
while d1 does both: 1/1/16
nil
it talks nonsense: 200 d1 d1<p2: pair
it is too slow: 200 d1 d1<p2: pair
load: none
--- error_log eval
qr/\[warn\] .* remote prefill: 127.0.0.1:\d+: status 500/



=== TEST 3: a decode worker that fails is replaced by another one, never by one that only prefills
--- script
            client.cache("d1", client.tokens(1, 4))
            dict:set("fail d1", true)
            route("another decoder", '{"prompt":' .. long .. "}")
            ngx.say(cjson.decode(dict:get("d2")).kv_transfer_params
                    .remote_port)
            dict:set("fail d2", true)
            route("no other", '{"prompt":' .. long .. "}")
            client.idle()
--- response_body_like chop
another decoder: 200 d2 d2<p\d: retry
5600
no other: 503 .*load: none
--- no_error_log
[alert]
[emerg]



=== TEST 4: SGLang: both are asked at once, with a room in common
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none",
            policy = "disaggregated",
            policy_conf = { protocol = "sglang",
                            bootstrap_ports = { p2 = 9111 } },
        })
    }
--- script
            client.cache("p2", client.tokens(1, 8))

            -- it prefills for longer than the decoder takes here
            dict:set("sleep", 0.5)
            route("a pair", '{"input_ids":' .. long .. "}", nil,
                  "/v1/generate"):match("d%d")

            -- the prefill worker may get it a moment later
            client.wait(function() return dict:get("p2") end)

            local got = dict:get("d1") or dict:get("d2")
            local fields = cjson.decode(got)

            ngx.say(got == dict:get("p2"))
            ngx.say(fields.bootstrap_host, " ", fields.bootstrap_port, " ",
                    type(fields.bootstrap_room), " ", #fields.input_ids)
            client.idle()
--- response_body_like chop
a pair: 200 d\d d\d<p2: pair
true
127.0.0.1 9111 number 16
load: none



=== TEST 5: a sidecar is told who prefills, and a client can't tell it
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none",
            policy = "disaggregated",
            policy_conf = { protocol = "sidecar", local_prefill = 8 },
        })
    }
--- script
            local evil = "x-prefiller-host-port: 10.1.1.1:22\r\n"

            client.cache("p2", client.tokens(1, 8))
            client.cache("d1", client.tokens(1, 4))
            route("a pair", '{"prompt":' .. long .. "}", evil)

            for _, w in ipairs(require("resty.kv_router").index("main")
                               :workers())
            do
                if w.worker_id == "p2" then
                    ngx.say(dict:get("header d1") == w.address)
                end
            end

            route("short", '{"prompt":' .. client.tokens(1, 12) .. "}", evil)
            ngx.say(dict:get("header d1"))
            ngx.say(dict:get("p2"))
--- response_body
a pair: 200 d1 d1<: pair
true
short: 200 d1 d1<: short
-
nil



=== TEST 6: text, streams and other workers are routed as ever
--- http_config
    kv_router_worker  main p1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 role=prefill;
    kv_router_worker  main d1 127.0.0.1:$TEST_NGINX_RAND_PORT_3 role=decode;
    kv_router_worker  main d2 127.0.0.1:$TEST_NGINX_RAND_PORT_4;
--- script
            client.cache("d1", client.tokens(1, 16))
            client.cache("d2", client.tokens(17, 32))
            route("cached at one who decodes", '{"prompt":' .. long .. "}")
            route("cached at one who does both",
                  '{"prompt":' .. client.tokens(17, 32) .. "}")
            ngx.say(dict:get("asked p1"))

            client.ask("POST", "/kv/workers/d2/drain", "")
            route("text", '{"prompt":"Hello"}')
            ngx.say(cjson.decode(dict:get("p1")).prompt)
            route("no JSON", "Hello")
            client.ask("POST", "/kv/workers/d1/drain", "")
            route("nobody decodes", '{"prompt":"Hello"}')
--- response_body_like chop
cached at one who decodes: 200 d1 d1<: short
cached at one who does both: 200 d2 d2<: overlap
nil
text: 200 d1 d1<p1: no_tokens
Hello
no JSON: 200 d1 d1<: bad_body
nobody decodes: 200 .*p1<: no_tokens



=== TEST 7: of several ranks both are told their own
--- http_config
    kv_router_worker  main p1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 role=prefill ranks=2;
    kv_router_worker  main d1 127.0.0.1:$TEST_NGINX_RAND_PORT_3 role=decode ranks=3;
--- script
            client.cache("p1", client.tokens(1, 8), { rank = 1 })
            client.cache("d1", client.tokens(1, 4),
                         { rank = 2, first = 2000 })
            route("a pair", '{"prompt":' .. long .. "}")
            ngx.say("p1 ", dict:get("rank p1"), ", d1 ", dict:get("rank d1"))
            client.idle()
--- response_body
a pair: 200 d1 d1<p1: pair
p1 1, d1 2
load: none



=== TEST 8: a prefill worker that fails is out, and comes back, as any other
--- http_config
    kv_router_health  main max_fails=2 fail_timeout=5s;
    lua_socket_log_errors  off;
--- script
            local function health_of(id)
                for _, w in ipairs(require("resty.kv_router").index("main")
                                   :workers())
                do
                    if w.worker_id == id then
                        return w.health
                    end
                end
            end

            local function wait_for(state)
                ngx.say("p2 is ", client.wait(function()
                    return health_of("p2").state == state and state
                end))
            end

            local body = '{"prompt":' .. long .. "}"

            client.cache("p2", client.tokens(1, 8))
            client.cache("d1", client.tokens(1, 4), { first = 2000 })
            ask("DELETE", "/kv/workers/p1")
            route("well", body)

            -- it hangs: a request has to wait for it but twice
            dict:set("sleep", 30)
            route("hangs", body)
            ngx.say("fails: ", health_of("p2").fails)
            route("hangs again", body)

            local health = health_of("p2")

            ngx.say(health.state, " ", health.failures.timeout, " ",
                    health.opened)
            ngx.say("asked: ", dict:get("asked p2"))
            route("out", body)
            ngx.say("asked: ", dict:get("asked p2"))
            client.idle()

            -- of two requests one is the probe, which fails
            wait_for("half_open")
            route("a probe", body)
            ngx.say(health_of("p2").state, " after ", health_of("p2").probes)

            -- the next one does not
            dict:delete("sleep")
            wait_for("half_open")
            route("another probe", body)
            ngx.say(health_of("p2").state)

            dict:set("status", 500)
            route("a status", body)
            ngx.say(health_of("p2").failures.status, " ",
                    health_of("p2").fails)
            dict:set("status", 400)
            route("no failure of its own", body)
            ngx.say(health_of("p2").fails)
            client.idle()
--- response_body
well: 200 d1 d1<p2: pair
hangs: 200 d1 d1<p2: pair
fails: 1
hangs again: 200 d1 d1<p2: pair
failed 2 1
asked: 3
out: 200 d1 d1<: no pair
asked: 3
load: none
p2 is half_open
a probe: 200 d1 d1<p2: pair
failed after 1
p2 is half_open
another probe: 200 d1 d1<p2: pair
ok
a status: 200 d1 d1<p2: pair
1 1
no failure of its own: 200 d1 d1<p2: pair
1
load: none
--- error_log eval
[qr/\[warn\] .* worker "p2" is out for 5000 ms after 2 failures, the last one: timeout/,
 qr/\[notice\] .* worker "p2" answers again/]
--- no_error_log
[alert]
[emerg]



=== TEST 9: SGLang: who prefilled is well when the decode worker answers
--- http_config
    kv_router_health  main max_fails=1 fail_timeout=1h;
    kv_router_worker  main p0 127.0.0.1:9 role=prefill;
    kv_router_worker  main d1 127.0.0.1:$TEST_NGINX_RAND_PORT_3 role=decode;
    lua_socket_log_errors  off;
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none",
            policy = "disaggregated",
            policy_conf = { protocol = "sglang" },
        })
    }
--- script
            local function tell()
                for _, w in ipairs(require("resty.kv_router").index("main")
                                   :workers())
                do
                    if w.worker_id == "p0" then
                        ngx.say(w.health.state, " ", w.health.failures.connect,
                                " ", w.health.aborted)
                    end
                end
            end

            local body = '{"input_ids":' .. long .. "}"

            route("refused", body, nil, "/v1/generate")
            tell()
            route("out", body, nil, "/v1/generate")

            ask("PUT", "/kv/workers/p0", '{"role":"prefill","address":'
                .. '"127.0.0.1:' .. "$TEST_NGINX_RAND_PORT_1" .. '"}')
            route("it is there", body, nil, "/v1/generate")
            client.idle()
            tell()
--- response_body
refused: 200 d1 d1<p0: pair
failed 1 0
out: 200 d1 d1<: no pair
it is there: 200 d1 d1<p0: pair
load: none
ok 1 0
--- no_error_log
[alert]
[emerg]



=== TEST 10: a prefill elsewhere shows the speed of who prefilled
--- script
            local function tell(what)
                local said = {}

                for i, w in ipairs(client.stats().workers) do
                    said[i] = w.worker_id .. " " .. w.speed[1].samples
                end

                ngx.say(what, ": ", table.concat(said, ", "), " samples")
            end

            client.cache("p2", client.tokens(1, 8))
            client.cache("d1", client.tokens(1, 4))

            route("a pair", '{"prompt":' .. client.tokens(1, 300) .. "}")
            tell("prefilled")

            dict:set("status", 500)
            route("nobody prefills", '{"prompt":' .. client.tokens(1, 300)
                                     .. "}")
            tell("not prefilled")
--- response_body
a pair: 200 d1 d1<p2: pair
prefilled: p1 0, p2 1, d1 0, d2 0 samples
nobody prefills: 200 d1 d1<p1: pair
not prefilled: p1 0, p2 1, d1 0, d2 0 samples
--- no_error_log
[alert]
[emerg]
[crit]



=== TEST 11: who prefills is full: the request waits, and the decoder does not prefill
--- http_config
    kv_router_worker  main p1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 role=prefill events=on max_prefill_tokens=10;
    kv_router_worker  main d1 127.0.0.1:$TEST_NGINX_RAND_PORT_3 role=decode events=on max_prefill_tokens=1;
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none",
            policy = "disaggregated", classes = { default = { wait = 60 } },
            policy_conf = { local_prefill = 8, timeout = 30 },
        })
    }
--- script
            -- bodies of 64k and more are read in several turns
            dict:set("sleep", 1)

            local threads = {}

            for i = 1, 3 do
                threads[i] = ngx.thread.spawn(route, "a pair", '{"prompt":'
                                 .. client.tokens(100000 * i, 100000 * i + 11999)
                                 .. "}")
            end

            ngx.say(client.wait(function()
                return client.stats().waiting == 2
            end))
            ngx.say(client.load())
            dict:delete("sleep")
            route("short", '{"prompt":[1,2,3,4,5]}')

            for i = 1, 3 do
                ngx.thread.wait(threads[i])
            end

            client.idle()
--- response_body
true
p1/0 active_requests=1 p1/0 active_prefills=1 p1/0 prefill_tokens=12000 p1/0 decode_blocks=3000 d1/0 active_requests=1 d1/0 decode_blocks=3000
short: 200 d1 d1<: short
a pair: 200 d1 d1<p1: pair
a pair: 200 d1 d1<p1: pair
a pair: 200 d1 d1<p1: pair
load: none
--- no_error_log
[error]
[alert]
[emerg]
