# What Prometheus reads beyond counters: histograms of times, the policy and its
# reasons, who waits, what each worker answered; and OpenMetrics.

use lib 't/lib';
use KVRouter;

scripts(http_config => <<'_EOC_', config => <<'_EOC_');
    kv_router_zone  zone=main:16m block_size=4 queue=10;

    init_by_lua_block {
        router = require("resty.kv_router").new("main", {
            tokenizer = "none", classes = { default = { wait = 60 } },
            policy = "kv_cost", policy_conf = { temperature = 0 },
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

        location /missing {
            return  404;
        }

        location /hold {
            content_by_lua_block {
                ngx.say("held")
                ngx.flush(true)
                ngx.sleep(tonumber(ngx.var.arg_for) or 60)
            }
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
        proxy_buffering      off;
    }
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('script', <<'_EOC_' . $block->script);
            local function put(id)
                local answer = ask("PUT", "/kv/workers/" .. id,
                                   '{"address":"127.0.0.1:'
                                   .. "$TEST_NGINX_RAND_PORT_1"
                                   .. '","max_active":1}')

                assert(answer.status == 201, answer.body)
            end

            local function metrics()
                return ask("GET", "/status?format=prometheus").body
            end

            -- The samples whose names begin so, without the zone.
            local function show(text, name)
                for line in text:gmatch("[^\n]+") do
                    if line:find("^kv_router_" .. name) then
                        ngx.say((line:gsub('zone="main",?', "")))
                    end
                end
            end
_EOC_
});

log_level('info');
no_long_string();
no_shuffle();

plan tests => repeat_each() * 16;

run_tests();

__DATA__

=== TEST 1: what a worker answered, by status, and how long its first bytes took
--- script
            put("a")
            ask("POST", "/v1/completions", '{"prompt":[1,2,3,4,5]}')
            ask("POST", "/v1/completions", '{"prompt":[1,2,3,4,5]}')
            ask("POST", "/v1/missing", '{"prompt":[1,2,3,4,5]}')
            client.idle()

            local text = metrics()

            show(text, "worker_responses_total")
            show(text, "worker_first_byte_seconds_count")
            show(text, 'worker_first_byte_seconds_bucket.-le="%+Inf"')
            show(text, "decide_duration_seconds_count")

            local last = 0

            for n in text:gmatch('worker_first_byte_seconds_bucket%b{} (%d+)') do
                assert(tonumber(n) >= last, text)
                last = tonumber(n)
            end

            local worker = client.stats().workers[1]

            ngx.say("JSON: ", worker.responses["2xx"], " ",
                    worker.responses["4xx"], " ", #worker.first_byte.bounds,
                    " ", #worker.first_byte.counts)
--- response_body
load: none
kv_router_worker_responses_total{worker="a",status="1xx"} 0
kv_router_worker_responses_total{worker="a",status="2xx"} 2
kv_router_worker_responses_total{worker="a",status="3xx"} 0
kv_router_worker_responses_total{worker="a",status="4xx"} 1
kv_router_worker_responses_total{worker="a",status="5xx"} 0
kv_router_worker_responses_total{worker="a",status="none"} 0
kv_router_worker_first_byte_seconds_count{worker="a"} 3
kv_router_worker_first_byte_seconds_bucket{worker="a",le="+Inf"} 3
kv_router_decide_duration_seconds_count{} 3
JSON: 2 1 14 15
--- no_error_log
[error]
[alert]



=== TEST 2: the policy, its settings and its reasons
--- script
            put("a")
            ask("POST", "/v1/completions", '{"prompt":[1,2,3,4,5]}')
            client.idle()

            local text = metrics()

            show(text, "policy_info")
            show(text, "policy_reasons_total")

            local at = client.stats().policy.loaded

            ngx.say("loaded before now: ", at <= ngx.time() and at > ngx.time() - 3600)

            local policy = client.stats().policy

            ngx.say(policy.name, " ", policy.settings, " ",
                    policy.reasons[1].policy, " ", policy.reasons[1].requests)
            ngx.say("versions: ", text:match('build_info{zone="main",version="([%d.]+)",nginx="[%d.]+"} 1')
                                  == client.stats().version)
--- response_body_like chop
^load: none
kv_router_policy_info\{policy="kv_cost",settings="temperature=0"\} 1
kv_router_policy_reasons_total\{policy="kv_cost",reason="[^"]+"\} 1
loaded before now: true
kv_cost temperature=0 kv_cost 1
versions: true$
--- no_error_log
[error]
[alert]



=== TEST 3: requests that wait are counted while they wait, and if they leave
--- script
            put("a")

            local hold = client.send("POST /v1/hold/completions?for=60 HTTP/1.0\r\n\r\n")

            hold:receiveuntil("\r\n\r\n")()
            hold:receive(4)

            local one = client.send("POST /v1/completions HTTP/1.0\r\n\r\n")
            local two = client.send("POST /v1/completions HTTP/1.0\r\n\r\n")

            client.wait(function()
                return metrics():find("waiting_requests{[^}]*} 2\n")
            end)
            ngx.say("two wait")

            hold:close()
            one:receive("*a")
            two:receive("*a")
            client.idle()

            local text = metrics()

            show(text, "waiting_requests")
            show(text, "wait_duration_seconds_count")
--- response_body
two wait
load: none
kv_router_waiting_requests{} 0
kv_router_wait_duration_seconds_count{} 2
--- no_error_log
[error]
[alert]



=== TEST 4: OpenMetrics for those that ask for it, and the page for browsers
--- script
            local function get(path, accept)
                local sock = client.send("GET " .. path .. " HTTP/1.0\r\nAccept: "
                                         .. accept .. "\r\n\r\n")

                return sock:receive("*a")
            end

            local open = get("/status?format=prometheus",
                             "application/openmetrics-text;version=1.0.0,*/*;q=0.1")

            ngx.say(open:match("Content%-Type: ([^\r]*)"))
            ngx.say("ends: ", open:sub(-6) == "# EOF\n")
            ngx.say("family: ", open:match("# TYPE (kv_router_requests%a*) counter"))
            ngx.say("sample: ", open:match("\n(kv_router_requests_total)"))
            ngx.say("none with _total: ", open:find("# TYPE [^\n]*_total counter") == nil)

            ngx.say(get("/status", "application/openmetrics-text")
                    :match("Content%-Type: ([^\r]*)"))
            ngx.say(get("/status", "text/html,application/xhtml+xml")
                    :match("Content%-Type: ([^\r]*)"))
            ngx.say(get("/status", "*/*"):match("Content%-Type: ([^\r]*)"))
            ngx.say(get("/status?format=json", "text/html")
                    :match("Content%-Type: ([^\r]*)"))
--- response_body
application/openmetrics-text; version=1.0.0; charset=utf-8
ends: true
family: kv_router_requests
sample: kv_router_requests_total
none with _total: true
application/openmetrics-text; version=1.0.0; charset=utf-8
text/html; charset=utf-8
application/json
application/json
--- no_error_log
[error]
[alert]
