# The load that engines report of themselves.

use lib 't/lib';
use KVRouter;

# two engines; what they report is set by POST /report of each

our $Engines = engines(2, engine => <<'_EOC_');
        location = /report {
            content_by_lua_block {
                ngx.req.read_body()
                package.loaded.report = package.loaded.report or {}
                package.loaded.report[NUMBER] = ngx.req.get_body_data()
            }
        }

        location = /metrics {
            content_by_lua_block {
                local text = (package.loaded.report or {})[NUMBER] or ""

                if text == "fail" then
                    return ngx.exit(500)

                elseif text == "reset" then
                    return ngx.exit(444)

                elseif text == "hang" then
                    ngx.sleep(60)

                elseif text == "cut" then
                    ngx.header.content_length = 1000
                    ngx.print("vllm:num_requests_waiting 1\n")
                    ngx.flush(true)
                    return ngx.exit(444)

                elseif text == "long" then
                    for _ = 1, 40 do
                        ngx.print(("# a comment\n"):rep(4000))
                    end

                    ngx.print("vllm:num_requests_waiting 1\n")
                    return
                end

                -- in chunks

                for line in text:gmatch("[^\n]+") do
                    ngx.print(line)
                    ngx.flush(true)
                    ngx.print("\n")
                end
            }
        }

        # a regular expression comes before the prefixes that all engines have

        location ~ ^/ {
            content_by_lua_block {
                local text = (package.loaded.report or {})[NUMBER] or ""

                if text == "fail" or text:find("# closed", 1, true) then
                    return ngx.exit(444)
                end

                ngx.say("wNUMBER")
            }
        }
_EOC_

scripts(http_config => <<"_EOC_", config => <<'_EOC_');
$Engines
_EOC_
    location /kv/ {
        kv_router_api         main;
        access_by_lua_block   { router:api() }
    }

    location /status {
        kv_router_status      main;
    }

    location /v1/ {
        access_by_lua_block     { router:access() }
        add_header              x-route "$kv_router_worker" always;
        proxy_pass              http://engines/;
    }
_EOC_

our $Workers = zone_workers(2);

our $Router = <<'_EOC_';
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none",
            policy = "weighted" })
    }
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;

    my $config = $block->http_config // '';

    $config = "    kv_router_zone  zone=main:16m;\n$config$Router";
    $config .= $Workers unless $config =~ /kv_router_worker/;
    $config .= "    kv_router_scrape  main interval=100ms timeout=3s;\n"
        unless $config =~ /kv_router_scrape/ || $block->name =~ /without/;

    $block->set_value('http_config', $config);
    $block->set_value('script', <<'_EOC_' . $block->script);
            local decode = require "cjson.safe".decode
            local ports = { $TEST_NGINX_RAND_PORT_1, $TEST_NGINX_RAND_PORT_2 }

            local function report(i, text)
                ask("POST", "/report", text, nil, ports[i])
            end

            local function text_of(list)
                local parts = {}

                table.sort(list, function(a, b)
                    return a.dp_rank < b.dp_rank
                end)

                for i, r in ipairs(list) do
                    parts[i] = r.dp_rank .. ": "
                               .. tostring(r.waiting_requests) .. " "
                               .. tostring(r.running_requests) .. " "
                               .. tostring(r.kv_usage)
                end

                return (table.concat(parts, ", "):gsub("userdata: NULL", "-"))
            end

            -- Waits until that is what a worker reports.
            local function reported(i, want)
                local got

                client.wait(function()
                    got = text_of(client.stats().workers[i].reported)
                    return got == want
                end)

                ngx.say("w", i, ": ", got == "" and "nothing" or got)
            end
_EOC_
});

log_level('info');
worker_connections(512);
no_long_string();
no_shuffle();

plan tests => repeat_each() * 29;

run_tests();

__DATA__

=== TEST 1: what vLLM and SGLang report is told everywhere
--- script
            report(1, [[
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 17.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
]])
            report(2, 'sglang:num_queue_reqs{model_name="m"} 0\n'
                      .. 'sglang:token_usage{model_name="m"} 0.5\n')

            reported(1, "0: 17 3 0.25")
            reported(2, "0: 0 - 0.5")

            for _, c in ipairs(decode(ask("POST", "/kv/route", "{}").body).
                               candidates) do
                c.reported.dp_rank = 0
                ngx.say(c.worker_id, ": ", text_of { c.reported })
            end

            local text = ask("GET", "/status?format=prometheus").body

            for line in text:gmatch("kv_router_worker_reported_[^\n]*} [^\n]*")
            do
                ngx.say(line)
            end
--- response_body
w1: 0: 17 3 0.25
w2: 0: 0 - 0.5
w1: 0: 17 3 0.25
w2: 0: 0 - 0.5
kv_router_worker_reported_waiting_requests{zone="main",worker="w1",dp_rank="0"} 17.000000
kv_router_worker_reported_waiting_requests{zone="main",worker="w2",dp_rank="0"} 0.000000
kv_router_worker_reported_running_requests{zone="main",worker="w1",dp_rank="0"} 3.000000
kv_router_worker_reported_kv_usage{zone="main",worker="w1",dp_rank="0"} 0.250000
kv_router_worker_reported_kv_usage{zone="main",worker="w2",dp_rank="0"} 0.500000
--- no_error_log
[error]
[alert]



=== TEST 2: policies choose by it
--- script
            local function both(first, second)
                report(1, "vllm:num_requests_waiting " .. first .. "\n")
                report(2, "vllm:num_requests_waiting " .. second .. "\n")
                reported(1, "0: " .. first .. " - -")
                reported(2, "0: " .. second .. " - -")

                ngx.say("chosen: ", ask("POST", "/v1/completions", '{"prompt":[1]}').
                                    headers["x-route"])
            end

            both(5, 4)
            both(5, 6)
            both(7, 6)
--- response_body
w1: 0: 5 - -
w2: 0: 4 - -
chosen: w2
w1: 0: 5 - -
w2: 0: 6 - -
chosen: w1
w1: 0: 7 - -
w2: 0: 6 - -
chosen: w2
--- no_error_log
[alert]



=== TEST 3: each rank has its own
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 ranks=2;
--- script
            report(1, 'vllm:num_requests_waiting{engine="1"} 4\n'
                      .. 'vllm:num_requests_waiting{engine="0"} 3\n'
                      .. 'vllm:num_requests_running 8\n')
            reported(1, "0: 3 4 -, 1: 4 4 -")
--- response_body
w1: 0: 3 4 -, 1: 4 4 -
--- no_error_log
[alert]



=== TEST 4: what can't be read is said once, and the load is not known then
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
--- script
            for _, how in ipairs { "fail", "reset", "hang", "cut", "long",
                                   "nothing that is known\n" }
            do
                report(1, "vllm:num_requests_waiting 1\n")
                reported(1, "0: 1 - -")
                report(1, how)
                reported(1, "")
            end

            ngx.say("failed: ", client.wait(function()
                local stats = client.stats().scrape

                return stats.failed > 6 and stats.scrapes > stats.failed
            end))
--- response_body
w1: 0: 1 - -
w1: nothing
w1: 0: 1 - -
w1: nothing
w1: 0: 1 - -
w1: nothing
w1: 0: 1 - -
w1: nothing
w1: 0: 1 - -
w1: nothing
w1: 0: 1 - -
w1: nothing
failed: true
--- grep_error_log eval
qr/"\/metrics" of it is not read: [\w ]+/
--- grep_error_log_out eval
qr/status 500
.*no answer
.*timeout
.*the answer is no HTTP
.*the answer is too long
.*none of the metrics that are known is in it
/s



=== TEST 5: without the directive nobody is asked
--- script
            ngx.sleep(0.5)
            reported(1, "")
            ngx.say("asked: ", client.stats().scrape and "yes" or "no")
--- response_body
w1: nothing
asked: no
--- no_error_log
[error]
[alert]



=== TEST 6: another URI, and a worker that nobody listens for
--- http_config
    kv_router_scrape  main uri=/nowhere interval=100ms;
    kv_router_worker  main w1 127.0.0.1:9;
    kv_router_worker  main w2 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
--- script
            client.wait(function()
                return client.stats().scrape.failed > 4
            end)

            ngx.say("nothing")
--- response_body
nothing
--- grep_error_log eval
qr/the load of worker "\w+" is not known, "[^"]*" of it is not read: [\w ]+/
--- grep_error_log_out eval
qr/(the load of worker "w1" is not known, "\/nowhere" of it is not read: no \w+
|the load of worker "w2" is not known, "\/nowhere" of it is not read: none of the metrics that are known is in it
){2}/



=== TEST 7: a worker that has failed is tried at once when its load is read again
--- http_config
    kv_router_scrape  main interval=100ms timeout=300ms;
    kv_router_health  main max_fails=1 fail_timeout=1h;
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
--- script
            local function health()
                return client.stats().workers[1].health
            end

            local function becomes(state)
                client.wait(function()
                    return health().state == state
                end)

                local h = health()

                ngx.say(h.state, h.retry_in > 3600 and " for longer" or "")
            end

            -- Waits until the worker was asked for its load so often.
            local function scraped(n, what)
                local before = client.stats().scrape[what]

                client.wait(function()
                    return client.stats().scrape[what] >= before + n
                end)
            end

            local function request()
                ngx.say(ask("POST", "/v1/completions", '{"prompt":[1]}').status)
            end

            report(1, "fail")
            scraped(2, "failed")
            request()
            scraped(2, "failed")
            becomes("failed")

            -- its load can be read, its port for requests is closed
            report(1, "vllm:num_requests_waiting 1\n# closed\n")
            becomes("half_open")
            request()
            scraped(3, "scrapes")
            becomes("failed")

            report(1, "fail")
            scraped(2, "failed")
            report(1, "vllm:num_requests_waiting 1\n")
            becomes("half_open")
            request()
            becomes("ok")
--- response_body
502
failed
half_open
502
failed
half_open
200
ok
--- no_error_log
[alert]
