# How fast workers prefill, measured by the first output of their answers, and
# what ends a prefill.

use lib 't/lib';
use KVRouter;

# four engines: /stream answers after a time that grows with the prompt, an event
# for a token; /created has a stream of the Responses API, whose output waits
# until it is told to begin; /v1/hang has no answer

our $Engines = engines(4, engine => <<'_EOC_');
        location ~ /(stream|whole)/ {
            client_body_buffer_size  1m;
            content_by_lua_block {
                ngx.req.read_body()

                local _, tokens = ngx.req.get_body_data():gsub(",", "")

                ngx.header.content_type = ngx.var[1] == "stream"
                    and "text/event-stream" or "application/json"
                ngx.sleep(tokens / 15000)
                ngx.print('data: {"choices":[{"text":"x"}]}\n\n')
            }
        }

        location ~ /created/ {
            lua_http10_buffering  off;

            content_by_lua_block {
                local say = ngx.shared.say

                ngx.header.content_type = "text/event-stream"
                ngx.header.content_encoding = ngx.var.arg_as
                ngx.print("event: response.created\ndata: {}\n\n: hello\n\n"
                          .. "event: response.in_pro")
                ngx.flush(true)
                ngx.sleep(0.01)
                ngx.print("gress\ndata: {}\n\n")
                ngx.flush(true)

                while not say:get("begin") do
                    ngx.sleep(0.01)
                end

                ngx.print("event: response.output_item.added\ndata: {}\n\n")
                ngx.flush(true)

                while not say:get("end") do
                    ngx.sleep(0.01)
                end
            }
        }

        location /v1/hang/ {
            content_by_lua_block { ngx.sleep(60) }
        }
_EOC_

our $Workers = zone_workers(2);

scripts(http_config => <<"_EOC_", config => <<'_EOC_');
    kv_router_zone    zone=main:16m block_size=16;
    lua_shared_dict   say 1m;

    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none",
            policy = {
                pick = function(self, ctx)
                    local to = ctx.request.headers["x-to"] or "w1"
                    local said, best = "", 1

                    for i = 1, #ctx.candidates do
                        local c = ctx.candidates[i]

                        said = said .. c.worker
                               .. (c.prefill_tps > 0 and " has a speed; "
                                   or " has none; ")
                        best = c.worker == to and i or best
                    end

                    return best, nil, said
                end
            } })
    }

$Engines
$Workers
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
        add_header              x-reason "$kv_router_reason" always;
        client_body_buffer_size 1m;
        proxy_pass              http://engines;
        proxy_buffering         off;
        proxy_read_timeout      120s;
    }

    location /buffered/ {
        access_by_lua_block     { router:access() }
        client_body_buffer_size 1m;
        proxy_pass              http://engines;
        proxy_buffering         on;
    }
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('script', <<'_EOC_' . $block->script);
            local decode = require "cjson.safe".decode
            local sent = 0

            -- A prompt that no other request has, and a header with its worker.
            local function prompt(tokens)
                sent = sent + 1

                return client.tokens(100000 * sent + 1, 100000 * sent + tokens)
            end

            local function send(path, tokens, to, form)
                local body = '{"prompt":' .. (form or prompt(tokens)) .. "}"

                return ask("POST", path, body, "x-to: " .. to .. "\r\n")
            end

            -- A request without an answer; more: of its body.
            local function hang(tokens, more, ids)
                local body = '{"prompt":' .. (ids or prompt(tokens)) .. more
                             .. "}"

                return client.send("POST /v1/hang/completions HTTP/1.0\r\n"
                                   .. "x-to: w1\r\nContent-Length: " .. #body
                                   .. "\r\n\r\n" .. body)
            end

            local function counted()
                return client.stats().workers[1].load[1].prefill_tokens
            end

            -- The load of w1, as a policy is told.
            local function told()
                return decode(ask("POST", "/kv/route", '{"prompt":[1]}').body)
                       .candidates[1].load
            end

            local function speed(i)
                return client.stats().workers[i].speed[1]
            end

            -- Short and long prompts, until there is a speed.
            local function measure(to, i)
                return client.wait(function()
                    send("/v1/stream/completions", 300, to)
                    send("/v1/stream/completions", 3000, to)

                    return speed(i).samples >= 20
                           and speed(i).prefill_tokens_per_second > 0
                end)
            end
_EOC_
});

log_level('info');
worker_connections(512);
no_long_string();
no_shuffle();

plan tests => repeat_each() * 35;

run_tests();

__DATA__

=== TEST 1: the speed of a worker is measured, and stands in for that of others
--- script
            ngx.say("at first: ", send("/v1/stream/completions", 300, "w1")
                                  .headers["x-reason"])
            ngx.say("w1: ", speed(1).samples, " samples, speed ",
                    speed(1).prefill_tokens_per_second)

            ngx.say("measured: ", measure("w1", 1))
            ngx.say("stands in: ", client.wait(function()
                return speed(2).prefill_tokens_per_second
                       == speed(1).prefill_tokens_per_second
            end), ", w2 has ", speed(2).samples, " samples")

            local ids = prompt(100)

            -- each process looks at the speeds once a second

            for i = 1, 2 do
                ngx.say("w", i, ": the candidate has it, too: ",
                        client.wait(function()
                    local route = decode(ask("POST", "/kv/route", '{"prompt":'
                                             .. ids .. "}").body)
                    local told = route.candidates[i].load
                                 .prefill_tokens_per_second

                    return math.floor(tonumber(told) or 0)
                           == speed(i).prefill_tokens_per_second
                end))
            end

            ngx.say("then: ", send("/v1/stream/completions", 300, "w1")
                              .headers["x-reason"])

            local metrics = ask("GET", "/status?format=prometheus").body

            for line in metrics:gmatch("[^\n]+") do
                if line:find("^kv_router_worker_prefill_.*w2") then
                    ngx.say((line:gsub(" %d%d+$", " N")))
                end
            end
--- response_body
at first: w1 has none; w2 has none; 
w1: 1 samples, speed 0
measured: true
stands in: true, w2 has 0 samples
w1: the candidate has it, too: true
w2: the candidate has it, too: true
then: w1 has a speed; w2 has a speed; 
kv_router_worker_prefill_tokens{zone="main",worker="w2",dp_rank="0"} 0
kv_router_worker_prefill_tokens_per_second{zone="main",worker="w2",dp_rank="0"} N



=== TEST 2: answers that don't begin with the first token are no samples
--- script
            local function try(what, path, tokens, form)
                local status = send(path, tokens, "w1", form).status

                ngx.say(what, ": ", status, ", ", speed(1).samples, " samples")
            end

            try("streamed", "/v1/stream/completions", 300)
            try("short", "/v1/stream/completions", 256)
            try("not streamed", "/v1/whole/completions", 300)
            try("buffered", "/buffered/stream/completions", 300)
            try("two prompts", "/v1/stream/completions", 0,
                "[" .. prompt(300) .. "," .. prompt(300) .. "]")
            try("a text", "/v1/stream/completions", 0, '"a, b"')

            local ids = prompt(300)

            client.cache("w1", ids)
            try("cached", "/v1/stream/completions", 0, ids)
            try("streamed again", "/v1/stream/completions", 300)
--- response_body
streamed: 200, 1 samples
short: 200, 1 samples
not streamed: 200, 1 samples
buffered: 200, 1 samples
two prompts: 200, 1 samples
a text: 200, 1 samples
cached: 200, 1 samples
streamed again: 200, 2 samples



=== TEST 3: what is queued becomes less while a prefill runs, by the speed
--- script
            local STREAM = ',"stream":true'
            -- as a policy is told, and as the status counts

            local function queued() return told().prefill_tokens end

            local first = hang(2000, STREAM)

            client.wait(function() return counted() == 2000 end)
            client.turns()
            ngx.say("no speed: ", queued(), " of ", counted())

            first:close()
            client.wait(function() return counted() == 0 end)

            ngx.say("measured: ", measure("w1", 1))

            first = hang(2000, STREAM)
            client.wait(function() return counted() == 2000 end)
            client.wait(function() return queued() < 2000 end)
            client.wait(function() return queued() == 0 end)
            ngx.say("one prefill: ", queued(), " of ", counted())

            local second = hang(4000, STREAM)

            client.wait(function() return counted() == 6000 end)
            client.wait(function() return queued() == 3000 end)
            client.turns()
            ngx.say("two that stand still: ", queued(), " of ", counted())

            -- both workers prefill so fast, as far as one can know
            ngx.say("saturation: ", client.wait(function()
                local said = ask("GET", "/status?format=prometheus").body
                             :match 'saturation{[^}]*role="both"} ([%d.]+)'
                local tps = speed(1).prefill_tokens_per_second

                return said and math.abs(said * 2 * tps - 6000) < 60 + 0.002 * tps
            end))

            first:close()
            second:close()
            client.idle()
--- response_body
no speed: 2000 of 2000
measured: true
one prefill: 0 of 2000
two that stand still: 3000 of 6000
saturation: true
load: none



=== TEST 4: max_prefill_tokens=auto is two seconds of the speed, once there is one
--- script
            local function bound(i)
                return client.stats().workers[i].max_prefill_tokens
            end

            local port = client.stats().workers[1].address:match("%d+$")

            ask("PUT", "/kv/workers/a1", '{"ranks":2,"max_prefill_tokens":'
                .. '"auto","address":"127.0.0.1:' .. port .. '"}')
            ngx.say("at first: ", bound(3))
            ngx.say("measured: ", measure("w1", 1))
            ngx.say("of two ranks: ", client.wait(function()
                local least = 4 * speed(3).prefill_tokens_per_second

                return least > 0 and bound(3) >= least and bound(3) < least + 4
            end))
            client.idle()
--- response_body
at first: 0
measured: true
of two ranks: true
load: none



=== TEST 5: prompts that are all alike show no speed
--- script
            for _ = 1, 30 do
                send("/v1/stream/completions", 257, "w2")
            end

            ngx.say("w2: ", speed(2).samples, " samples, speed ",
                    speed(2).prefill_tokens_per_second)
--- response_body
w2: 30 samples, speed 0



=== TEST 6: the first output ends the prefill, not what is streamed before it
--- http_config
    kv_router_worker  main v1 127.0.0.1:$TEST_NGINX_RAND_PORT_3 events=on engine=vllm;
    kv_router_worker  main s1 127.0.0.1:$TEST_NGINX_RAND_PORT_4 events=on engine=sglang;
--- script
            local say = ngx.shared.say

            local function samples(id)
                for _, worker in ipairs(client.stats().workers) do
                    if worker.worker_id == id then
                        return worker.speed[1].samples
                    end
                end
            end

            local function try(to, path, body)
                local sock = client.send("POST /v1/created" .. path
                                         .. " HTTP/1.0\r\nx-to: " .. to
                                         .. "\r\nContent-Length: " .. #body
                                         .. "\r\n\r\n" .. body)

                sock:receiveuntil("in_progress\ndata: {}\n\n")()
                ngx.say(path, " waits: ", client.load())

                say:set("begin", true)
                sock:receiveuntil("added\ndata: {}\n\n")()
                ngx.say("output: ", client.load())

                say:set("end", true)
                client.receive(sock)
                say:flush_all()
                ngx.say(samples(to), " samples")
            end

            local ids = '{"prompt_token_ids":' .. prompt(300) .. "}"
            local body = '{"input":"x","stream":true,"kv_transfer_params":'
                         .. ids .. "}"

            try("v1", "/v1/responses", body)
            try("s1", "/v1/responses", body)

            -- an encoded answer is not read: its first byte ends the prefill

            for _, path in ipairs { "", "?as=gzip" } do
                try("s1", "/v1/completions" .. path,
                    '{"stream":true,"prompt":' .. prompt(300) .. "}")
            end

            client.idle()
--- response_body
/v1/responses waits: v1/0 active_requests=1 v1/0 active_prefills=1 v1/0 prefill_tokens=300 v1/0 decode_blocks=18
output: v1/0 active_requests=1 v1/0 decode_blocks=18
1 samples
/v1/responses waits: s1/0 active_requests=1 s1/0 active_prefills=1 s1/0 prefill_tokens=300 s1/0 decode_blocks=18
output: s1/0 active_requests=1 s1/0 decode_blocks=18
0 samples
/v1/completions waits: s1/0 active_requests=1 s1/0 active_prefills=1 s1/0 prefill_tokens=300 s1/0 decode_blocks=18
output: s1/0 active_requests=1 s1/0 decode_blocks=18
1 samples
/v1/completions?as=gzip waits: s1/0 active_requests=1 s1/0 decode_blocks=18
output: s1/0 active_requests=1 s1/0 decode_blocks=18
2 samples
load: none



=== TEST 7: a prefill whose answer is not streamed ends by events or the speed
--- script
            -- of the short one no block is looked for: its last token fills one

            local short = hang(16, "")
            local first = hang(400, "")

            client.wait(function() return counted() == 416 end)
            ngx.sleep(0.3)
            ngx.say("no speed: ", counted())
            short:close()
            first:close()
            client.idle()

            -- the last block of the prompt is not whole

            local ids = prompt(410)

            first = hang(410, "", ids)
            client.wait(function() return counted() == 410 end)
            client.cache("w1", ids)
            client.wait(function() return counted() == 0 end)
            ngx.say("stored: ", client.load())
            first:close()
            client.idle()

            ngx.say("measured: ", measure("w1", 1))
            client.wait(function()
                return told().prefill_tokens_per_second ~= ngx.null
            end)

            local streamed = hang(300, ',"stream":true')

            client.wait(function() return counted() == 300 end)

            -- the second one has fewer tokens, but those before it, too

            first = hang(4000, ',"stream":false')
            client.wait(function() return counted() == 4300 end)

            local second = hang(500, "")

            client.wait(function() return counted() == 4800 end)
            client.wait(function() return counted() < 4800 end)
            ngx.say("the first one is over: ", counted())
            client.wait(function() return counted() < 800 end)
            ngx.say("and the second one: ", client.load())

            first:close()
            second:close()
            streamed:close()
            client.idle()
--- response_body
no speed: 416
load: none
stored: w1/0 active_requests=1 w1/0 decode_blocks=25
load: none
measured: true
the first one is over: 800
and the second one: w1/0 active_requests=3 w1/0 active_prefills=1 w1/0 prefill_tokens=300 w1/0 decode_blocks=299
load: none
