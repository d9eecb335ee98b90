# max_prefill_tokens: what a prompt costs, and the room that a worker has.

use lib 't/lib';
use KVRouter;

use Cwd qw( abs_path );

$ENV{TEST_NGINX_MODEL} = abs_path('t/vectors/model');

master_on();
workers(2);

# This port is served by both processes, each with an accept queue of its own.

$ENV{TEST_NGINX_BOTH_PORT} = free_port();

our $Engines = join('', map { <<"_EOC_" } 1 .. 3);
    server {
        listen 127.0.0.1:\$TEST_NGINX_RAND_PORT_$_;

        location / {
            content_by_lua_block {
                local dict = ngx.shared.engines

                if dict:get("fails") == "w$_" then
                    ngx.exit(444)
                end

                while dict:get("holds") do
                    ngx.sleep(0.01)
                end

                ngx.print("w$_")
            }
        }
    }
_EOC_

scripts(http_config => <<"_EOC_", config => <<'_EOC_');
    lua_shared_dict     engines 1m;

    upstream engines {
        server  0.0.0.1;
        balancer_by_lua_block { router:balance() }
    }

    server {
        listen  127.0.0.1:\$TEST_NGINX_BOTH_PORT reuseport;

        location /v1/ {
            access_by_lua_block  { router:access() }
            add_header           x-pid \$pid always;
            add_header           x-why "\$kv_router_reason" always;
            proxy_pass           http://engines;
            proxy_buffering      off;
            proxy_next_upstream  error timeout non_idempotent;
        }
    }
$Engines
_EOC_
    location /kv/ {
        kv_router_api  main;
        allow          127.0.0.1;
        deny           all;
    }
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;
    my $config = $block->http_config // '';

    $config = '    kv_router_zone  zone=main:16m block_size=4 '
              . ($block->zone // '') . ";\n$config";
    $config .= <<'_EOC_' unless $config =~ /init_by_lua/;
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none" })
    }
_EOC_

    $block->set_value('http_config', $config);
    $block->set_value('script', <<'_EOC_' . $block->script);
            local PORT = $TEST_NGINX_BOTH_PORT
            local dict = ngx.shared.engines
            local threads = {}

            -- Paths, and bodies of 100 words with a field that nobody knows.
            local TEXT = ("word "):rep(100)
            local SAID = '[{"role":"user","content":"' .. TEXT .. '"}]'
            local UNKNOWN = {
                { "/v1/completions", '"prompt":"' .. TEXT .. '"' },
                { "/v1/chat/completions", '"messages":' .. SAID },
                { "/v1/messages", '"max_tokens":9,"messages":' .. SAID },
                { "/v1/responses", '"input":"' .. TEXT .. '"' },
            }

            for _, form in ipairs(UNKNOWN) do
                form[2] = '{"model":"m",' .. form[2] .. ',"surprise":1}'
            end

            local function put(id, port, more)
                local answer = ask("PUT", "/kv/workers/" .. id,
                                   '{"address":"127.0.0.1:' .. port .. '"'
                                   .. (more or "") .. "}")

                assert(answer.status < 300, answer.body)
            end

            local function worker(id)
                for _, w in ipairs(client.stats().workers) do
                    if w.worker_id == id then
                        return w
                    end
                end
            end

            local function tokens(id)
                return worker(id or "w1").load[1].prefill_tokens
            end

            local function post(body, path)
                return ask("POST", path or "/v1/completions", body, nil, PORT)
            end

            -- Sends a request that its engine keeps; returns the tokens that it
            -- adds to a worker.
            local function hold(body, path, id)
                local before = tokens(id)

                dict:set("holds", true)
                threads[#threads + 1] = ngx.thread.spawn(post, body, path)
                client.wait(function() return tokens(id) > before end)

                return tokens(id) - before
            end

            -- All that is held is answered; returns the last answer.
            local function release()
                local answer

                dict:delete("holds")

                for i = 1, #threads do
                    answer = select(2, ngx.thread.wait(threads[i]))
                    threads[i] = nil
                end

                client.wait(function() return not client.load() end)

                return answer
            end

            -- The statuses and workers that requests get of both processes.
            local function both(body)
                local found, pids, twice = {}, {}, 0

                client.wait(function()
                    local answer = post(body)
                    local pid = answer.headers["x-pid"]
                    local what = answer.status == 200 and answer.body
                                 or answer.status

                    pids[pid] = (pids[pid] or 0) + 1
                    twice = twice + (pids[pid] == 2 and 1 or 0)
                    found[what] = true

                    return twice == 2
                end)

                local list = {}

                for what in pairs(found) do
                    list[#list + 1] = what
                end

                table.sort(list, function(a, b)
                    return tostring(a) < tostring(b)
                end)

                return table.concat(list, " ")
            end
_EOC_
});

log_level('info');
worker_connections(512);
no_long_string();
no_shuffle();

plan tests => repeat_each() * 41;

run_tests();

__DATA__

=== TEST 1: a field that nobody knows is no free pass, in any form of request
--- http_config
    kv_router_model  main $TEST_NGINX_MODEL engine=vllm;
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "local" })
    }
--- script
            put("w1", $TEST_NGINX_RAND_PORT_1,
                ',"engine":"vllm","max_prefill_tokens":100')

            for _, form in ipairs(UNKNOWN) do
                local body = form[2]
                local cost = hold(body, form[1])
                local full = both(body)

                ngx.say(form[1], ": ", cost >= 125 and cost < 150 and "by bytes"
                                       or cost, ", then ", full, ", ",
                        release().headers["x-why"])
            end
--- response_body
/v1/completions: by bytes, then 429, tokenizer
/v1/chat/completions: by bytes, then 429, tokenizer
/v1/messages: by bytes, then 429, tokenizer
/v1/responses: by bytes, then 429, tokenizer
--- error_log
unsupported: the field "surprise" of the body
requests are refused: all workers are busy
--- no_error_log
[error]
[alert]
[emerg]



=== TEST 2: what costs, where ids are not known
--- zone: max_body=4k
--- script
            put("w1", $TEST_NGINX_RAND_PORT_1)

            local function cost(what, body, path)
                ngx.say(what, ": ", hold(body, path))
                release()
            end

            local image = '"data:image/png;base64,' .. ("A"):rep(2000) .. '"'

            cost("ids", '{"prompt":' .. client.tokens(1, 9) .. "}")
            cost("a short text", '{"prompt":"a"}')
            cost("a text", '{"prompt":"' .. ("x"):rep(986) .. '"}')
            cost("two texts", '{"prompt":["' .. ("x"):rep(384) .. '","'
                              .. ("x"):rep(600) .. '"]}')
            cost("ids with a field that changes them", '{"prompt":'
                 .. client.tokens(1, 500) .. ',"prompt_logprobs":0}')
            cost("no JSON", ("x"):rep(1000))
            cost("a long body", '{"prompt":"' .. ("x"):rep(7987) .. '"}')
            cost("another form", ("x"):rep(400), "/v1/embeddings")
            cost("none", "")
            cost("an image", '{"messages":[{"content":[{"image_url":{"url":'
                 .. image .. "}}]}]}", "/v1/chat/completions")
            cost("a picture", '{"messages":[{"content":[{"type":"image",'
                 .. '"source":{"type":"base64","data":' .. image
                 .. "}}]}]}", "/v1/messages")
            cost("text in a tool", '{"messages":[{"content":"a"}],"tools":'
                 .. '[{"image_url":"' .. ("x"):rep(2000) .. '"}]}',
                 "/v1/chat/completions")

            put("w1", $TEST_NGINX_RAND_PORT_1, ',"events":false')
            cost("an estimated text", '{"prompt":"' .. ("x"):rep(2048) .. '"}')
            client.wait(function()
                return client.stats().routed.unread == 0
            end)
            ngx.say("and again: ", hold('{"prompt":"' .. ("x"):rep(2048)
                                        .. '"}') < 512 and "less")
            release()
            cost("with what is not known", '{"prompt":"' .. ("x"):rep(2048)
                 .. '","more":["' .. ("y"):rep(2100) .. '"]}')
--- response_body
ids: 9
a short text: 4
a text: 249
two texts: 250
ids with a field that changes them: 507
no JSON: 250
a long body: 2000
another form: 100
none: 4
an image: 7
a picture: 10
text in a tool: 513
an estimated text: 512
and again: less
with what is not known: 1043
--- no_error_log
[alert]
[emerg]



=== TEST 3: a worker has room while it is below the bound, in both processes
--- script
            put("w1", $TEST_NGINX_RAND_PORT_1, ',"max_prefill_tokens":20')
            put("w2", $TEST_NGINX_RAND_PORT_2, ',"max_prefill_tokens":20')

            local function load()
                return math.min(tokens("w1"), tokens("w2")) .. " and "
                       .. math.max(tokens("w1"), tokens("w2"))
            end

            local function more(first, n, want)
                dict:set("holds", true)
                threads[#threads + 1] = ngx.thread.spawn(
                    post, '{"prompt":' .. client.tokens(first, first + n - 1)
                          .. "}")
                client.wait(function() return load() == want end)
                ngx.say(load())
            end

            more(100, 19, "0 and 19")
            more(200, 999, "19 and 999")
            more(2000, 1, "20 and 999")
            ngx.say("full: ", both('{"prompt":[1]}'))
            release()
            ngx.say("again: ", both('{"prompt":[1]}'))
--- response_body_like
^0 and 19
19 and 999
20 and 999
full: 429
again: (w\d ?)+$
--- error_log: requests are refused: all workers are busy
--- no_error_log
[error]
[alert]
[emerg]



=== TEST 4: the zone has the bound of workers without one of their own
--- zone: max_prefill_tokens=20
--- http_config
    kv_router_worker  main s1 127.0.0.1:$TEST_NGINX_RAND_PORT_3 role=prefill;
    kv_router_worker  main s2 127.0.0.1:$TEST_NGINX_RAND_PORT_2 role=prefill max_prefill_tokens=auto;
--- script
            put("w1", $TEST_NGINX_RAND_PORT_1)
            put("w2", $TEST_NGINX_RAND_PORT_2, ',"max_prefill_tokens":0')
            put("w3", $TEST_NGINX_RAND_PORT_3,
                ',"max_prefill_tokens":7,"role":"decode"')
            put("w4", $TEST_NGINX_RAND_PORT_3,
                ',"max_prefill_tokens":"7","role":"prefill"')

            for _, w in ipairs(client.stats().workers) do
                ngx.say(w.worker_id, ": ", w.max_prefill_tokens)
            end

            ask("DELETE", "/kv/workers/w2")
            ask("DELETE", "/kv/workers/w3")
            ngx.say(hold('{"prompt":' .. client.tokens(1, 20) .. "}"))
            ngx.say("full: ", both('{"prompt":[1]}'))
            release()
--- response_body
s1: 20
s2: 0
w1: 20
w2: 0
w3: 0
w4: 7
20
full: 429
--- error_log: requests are refused: all workers are busy
--- no_error_log
[error]
[alert]
[emerg]



=== TEST 5: a retry passes the bound of tokens, and no bound of requests
--- script
            put("w1", $TEST_NGINX_RAND_PORT_1, ',"max_prefill_tokens":5')
            hold('{"prompt":' .. client.tokens(1, 9) .. "}")
            put("w2", $TEST_NGINX_RAND_PORT_2)
            dict:set("fails", "w2")

            -- w1 is full, and w2 fails
            ngx.say("adds ", hold('{"prompt":' .. client.tokens(20, 26)
                                  .. "}"))

            local answer = release()

            ngx.say(answer.status, " ", answer.body, " ",
                    answer.headers["x-why"])

            put("w1", $TEST_NGINX_RAND_PORT_1, ',"max_active":1')
            hold('{"prompt":' .. client.tokens(40, 49) .. "}")
            ngx.say(post('{"prompt":[1]}').status)
            release()
--- response_body
adds 7
200 w1 retry
502
--- no_error_log
[alert]
[emerg]
[crit]



=== TEST 6: who waits is let in by tokens, too
--- zone: queue=10
--- http_config
    init_by_lua_block {
        router = require("resty.kv_router").new("main", {
            tokenizer = "none", classes = { default = { wait = 60 } } })
    }
--- script
            put("w1", $TEST_NGINX_RAND_PORT_1, ',"max_prefill_tokens":5')
            hold('{"prompt":' .. client.tokens(1, 9) .. "}")

            local waiting = ngx.thread.spawn(post, '{"prompt":"text"}')

            client.wait(function()
                return client.stats().waiting == 1
            end)
            ngx.say("tokens: ", tokens())
            release()
            ngx.say(select(2, ngx.thread.wait(waiting)).body)
--- response_body
tokens: 9
w1
--- no_error_log
[error]
[alert]
[emerg]
requests are refused



=== TEST 7: nor is it one where others wait, in any form of request
--- zone: queue=10
--- http_config
    kv_router_model  main $TEST_NGINX_MODEL engine=vllm;
    init_by_lua_block {
        router = require("resty.kv_router").new("main", {
            tokenizer = "local", class = "$http_x_class",
            classes = { long = { wait = 60 }, short = { wait = 0.2 } } })
    }
--- script
            put("w1", $TEST_NGINX_RAND_PORT_1,
                ',"engine":"vllm","max_prefill_tokens":100')

            for _, form in ipairs(UNKNOWN) do
                local body = form[2]

                hold(body, form[1])

                local waiting = ngx.thread.spawn(ask, "POST", form[1], body,
                                                 "x-class: long\r\n", PORT)

                client.wait(function()
                    return client.stats().waiting == 1
                end)
                ngx.say(form[1], ": ",
                        ask("POST", form[1], body, "x-class: short\r\n", PORT).status,
                        ", ", tokens() < 150)
                release()
                ngx.say(select(2, ngx.thread.wait(waiting)).status)
            end
--- response_body
/v1/completions: 429, true
200
/v1/chat/completions: 429, true
200
/v1/messages: 429, true
200
/v1/responses: 429, true
200
--- error_log
unsupported: the field "surprise" of the body
requests are refused: all workers are busy
--- no_error_log
[error]
[alert]
[emerg]
