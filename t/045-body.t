# The body of a request: read once, whatever way it comes, found by its tape,
# and passed on as it came.

use lib 't/lib';
use KVRouter;

# Engines answer with the length and the MD5 sum of the body that they got.

our $Engines = engines(2, engine => <<'_EOC_');
        location ~ "^/body|/completions$" {
            client_max_body_size     64m;
            client_body_buffer_size  64m;

            content_by_lua_block {
                ngx.req.read_body()

                local body = ngx.req.get_body_data() or ""

                ngx.say("wNUMBER ", #body, " ", ngx.md5(body))

                if ngx.var.http_x_route then
                    ngx.say("route: ", ngx.var.http_x_route)
                end
            }
        }
_EOC_

our $Workers = zone_workers(2);

# A policy that tells what it finds in the body.

our $Router = <<'_EOC_';
    init_by_lua_block {
        local function told(ctx)
            local request = ctx.request
            local names = {}

            for name, text in pairs(request.fields) do
                names[#names + 1] = name .. "=" .. #text
            end

            table.sort(names)

            return table.concat({ tostring(request.model),
                                  tostring(request.session),
                                  tostring(request.priority),
                                  tostring(request.max_tokens),
                                  table.concat(names, " ") }, "; ")
        end

        router = require("resty.kv_router").new("main", { tokenizer = "none" })
        telling = require("resty.kv_router").new("main", { tokenizer = "none", policy = {
            pick = function(_, ctx)
                ngx.header["x-route"] = told(ctx)
                return 1
            end } })
    }
_EOC_

scripts(http_config => <<"_EOC_", config => <<'_EOC_');
    kv_router_zone  zone=main:16m block_size=4;

$Engines
$Workers
$Router

    client_max_body_size  64m;

    server {
        listen                   127.0.0.1:\$TEST_NGINX_RAND_PORT_4 http2;
        client_body_buffer_size  16k;

        location / {
            access_by_lua_block  { router:access() }
            proxy_set_header     x-route "\$kv_router_overlap_blocks of \$kv_router_prompt_blocks, \$kv_router_reason";
            proxy_pass           http://engines/body;
        }

        location /watched {
            lua_check_client_abort  on;
            access_by_lua_block     { router:access() }
            proxy_pass              http://engines/body;
        }

        location /small {
            access_by_lua_block   { router:access() }
            client_max_body_size  1k;
            proxy_pass            http://engines/body;
        }
    }
_EOC_
    location /kv/ {
        client_max_body_size  10m;
        kv_router_api         main;
    }

    location /v1/ {
        access_by_lua_block     { router:access() }
        add_header              x-route "$kv_router_overlap_blocks of $kv_router_prompt_blocks, $kv_router_reason" always;
        proxy_pass              http://engines/body;
    }

    location /told/ {
        access_by_lua_block     { telling:access() }
        proxy_pass              http://engines/body;
    }
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('script', <<'_EOC_' . $block->script);
            -- the route of an answer, and whether the body came as it was sent
            local function told(what, body, status, route, answer)
                local len, sum = answer:match("^w%d (%d+) (%x+)\n")
                local same = tonumber(len) == #body and sum == ngx.md5(body)

                ngx.say(what, ": ", status, " ", route or "-", ", ",
                        same and "as it came" or "not as it came")
            end

            local function route(what, body, path)
                local answer = ask("POST", path or "/v1/completions", body)

                told(what, body, answer.status, answer.headers["x-route"],
                     answer.body)
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

=== TEST 1: bodies that are no JSON for us pass as they came, by load
--- script
            route("lone surrogate", '{"model":"m","prompt":"\\ud800"}')
            route("ill-formed UTF-8", '{"prompt":"a\255"}')
            route("a control character", '{"prompt":"a\1"}')
            route("64 levels", '{"a":' .. ("["):rep(63) .. ("]"):rep(63) .. "}")
            route("65 levels", '{"a":' .. ("["):rep(64) .. ("]"):rep(64) .. "}")
            route("100000 levels", ("["):rep(100000))
            route("half a chat", '{"messages":[{"role":"user","content":"a')
            route("two values", '{"prompt":[1,2,3,4]} {}')
            route("a number", "12")
            route("binary", ("\0\1\2\255"):rep(5000))
            route("a long string", '{"prompt":"' .. ("x"):rep(3000000) .. '"}')
            route("100000 fields",
                  '{"prompt":[1,2,3,4]' .. (',"a":1'):rep(100000) .. "}")
            client.idle()
--- response_body
lone surrogate: 200 0 of 0, bad_body, as it came
ill-formed UTF-8: 200 0 of 0, bad_body, as it came
a control character: 200 0 of 0, bad_body, as it came
64 levels: 200 0 of 0, no_tokens, as it came
65 levels: 200 0 of 0, bad_body, as it came
100000 levels: 200 0 of 0, bad_body, as it came
half a chat: 200 0 of 0, bad_body, as it came
two values: 200 0 of 0, bad_body, as it came
a number: 200 0 of 0, bad_body, as it came
binary: 200 0 of 0, bad_body, as it came
a long string: 200 0 of 0, no_tokens, as it came
100000 fields: 200 0 of 0, bad_body, as it came
load: none
--- error_log
kv_router: too many members at byte



=== TEST 2: of equal keys the last one counts; long values hide no other field
--- script
            client.cache("w1", client.tokens(1, 8))
            client.cache("w2", client.tokens(101, 112))

            route("two prompts", '{"prompt":' .. client.tokens(1, 8)
                                 .. ',"prompt":' .. client.tokens(101, 112)
                                 .. "}")
            route("an escaped key", '{"prompt":[5],"pr\\u006fmpt":'
                                    .. client.tokens(1, 8) .. "}")

            local many = "[" .. ("null,"):rep(100000) .. "null]"

            route("a prompt behind 100000 values",
                  '{"x":' .. many .. ',"prompt":' .. client.tokens(1, 8) .. "}")
            route("its fields", '{"model":"m","x":' .. many
                                .. ',"session_id":"s"}', "/told/x")
--- response_body
two prompts: 200 3 of 3, overlap, as it came
an escaped key: 200 2 of 2, overlap, as it came
a prompt behind 100000 values: 200 2 of 2, overlap, as it came
its fields: 200 m; s; 0; nil; model=3 session_id=3 x=500006, as it came



=== TEST 3: a policy finds the fields of a body in memory and in a file
--- config
        client_body_buffer_size  1k;
--- script
            local text = ("text "):rep(20000)

            route("memory", '{"model":"a\\u00e9","priority":2.5,'
                            .. '"max_tokens":9}', "/told/x")
            route("a file", '{"messages":[{"role":"user","content":"' .. text
                            .. '"}],"model":"b","session_id":"s"}', "/told/x")
            route("an array", '["model"]', "/told/x")
            route("no JSON", '{"model":"c"', "/told/x")
            route("other types", '{"model":7,"priority":"x","session_id":[],'
                                 .. '"max_completion_tokens":5}', "/told/x")
--- response_body
memory: 200 aé; nil; 2.5; 9; max_tokens=1 model=9 priority=3, as it came
a file: 200 b; s; 0; nil; messages=100030 model=3 session_id=3, as it came
an array: 200 nil; nil; 0; nil; , as it came
no JSON: 200 nil; nil; 0; nil; , as it came
other types: 200 nil; nil; 0; 5; max_completion_tokens=1 model=1 priority=3 session_id=2, as it came



=== TEST 4: over max_body a body is not scanned, and passes as it came
--- zone_params chop
max_body=1m
--- config
        client_body_buffer_size  16k;
--- script
            client.cache("w2", client.tokens(1, 8))

            local start = '{"model":"m","prompt":' .. client.tokens(1, 8)
                          .. ',"x":"'
            local function body(size)
                return start .. ("x"):rep(size - #start - 2) .. '"}'
            end

            route("1 MB", body(2^20))
            route("a byte more", body(2^20 + 1))
            route("16 MB", body(2^24))
            route("its fields", body(2^24), "/told/x")
--- response_body
1 MB: 200 2 of 2, overlap, as it came
a byte more: 200 0 of 0, too_long, as it came
16 MB: 200 0 of 0, too_long, as it came
its fields: 200 nil; nil; 0; nil; , as it came
--- error_log
the body has 1048577 bytes, more than max_body=1048576, routed by load



=== TEST 5: bodies by HTTP/2, with a length and without, at once and slowly
--- script
            local http2 = require "http2"
            local port = $TEST_NGINX_RAND_PORT_4
            local path = "/v1/completions"
            local short = '{"prompt":' .. client.tokens(1, 8) .. "}"
            local long = '{"prompt":' .. client.tokens(1, 50000) .. "}"

            client.cache("w1", client.tokens(1, 50000))

            local function post(what, body, path, length, size)
                local stream = http2.post(port, path, length)

                for at = 1, #body, size do
                    if size < #body then
                        client.turns()
                    end

                    stream:send(body:sub(at, at + size - 1),
                                at + size > #body)
                end

                local answer = stream:answer()

                told(what, body, answer:match("<h1>(%d+)") or 200,
                     answer:match("route: ([^\n]*)"), answer)
            end

            for _, body in ipairs { short, long } do
                local length = tostring(#body)

                post("with a length", body, path, length, #body)
                post("without one", body, path, nil, #body)
                post("in parts", body, path, length, math.ceil(#body / 5))
                post("in parts, without one", body, path, nil,
                     math.ceil(#body / 5))
            end

            post("byte by byte", short, path, nil, 1)
            post("too large", long, "/small", nil, #long)

            -- the client leaves: nothing waits for it, and nothing is routed

            local function routed()
                local n = 0

                for _, requests in pairs(client.stats().requests.by_reason) do
                    n = n + requests
                end

                return n
            end

            local before = routed()

            for i = 1, 40 do
                local stream = http2.post(port, i % 4 < 2 and path or "/watched",
                                          i % 2 == 0 and "9" or nil)

                stream:send("1")
                client.turns()

                if i > 20 then
                    stream:cancel()
                    client.turns()
                end

                stream:close()
            end

            client.idle()
            ngx.say("routed: ", routed() - before)
--- response_body
with a length: 200 2 of 2, overlap, as it came
without one: 200 2 of 2, overlap, as it came
in parts: 200 2 of 2, overlap, as it came
in parts, without one: 200 2 of 2, overlap, as it came
with a length: 200 12500 of 12500, overlap, as it came
without one: 200 12500 of 12500, overlap, as it came
in parts: 200 12500 of 12500, overlap, as it came
in parts, without one: 200 12500 of 12500, overlap, as it came
byte by byte: 200 2 of 2, overlap, as it came
too large: 413 -, not as it came
load: none
routed: 0
--- no_error_log
[alert]
[emerg]



=== TEST 6: bodies that come slowly, in chunks, or not at all
--- config
    location /small {
        client_max_body_size  1k;
        access_by_lua_block   { router:access() }
        proxy_pass            http://engines/body;
    }

    location /impatient {
        client_body_timeout   100ms;
        access_by_lua_block   { router:access() }
        proxy_pass            http://engines/body;
    }
--- script
            client.cache("w1", client.tokens(1, 8))

            local body = '{"prompt":' .. client.tokens(1, 8) .. "}"

            local function begin(path, headers)
                return client.send("POST " .. path .. " HTTP/1.1\r\n"
                                   .. "Host: localhost\r\n"
                                   .. "Connection: close\r\n" .. headers
                                   .. "\r\n")
            end

            local function finish(what, sock)
                local answer = client.receive(sock)

                ngx.say(what, ": ", answer.status, " ",
                        answer.headers["x-route"] or "-")
            end

            local chunked = "Transfer-Encoding: chunked\r\n"
            local length = "Content-Length: " .. #body .. "\r\n"
            local sock = begin("/v1/completions", length)

            for i = 1, #body do
                client.turns()
                sock:send(body:sub(i, i))
            end

            finish("byte by byte", sock)

            sock = begin("/v1/completions", chunked)

            for i = 1, #body do
                client.turns()
                sock:send("1\r\n" .. body:sub(i, i) .. "\r\n")
            end

            sock:send("0\r\n\r\n")
            finish("chunk by chunk", sock)

            sock = begin("/v1/completions", length .. "Expect: 100-continue\r\n")
            ngx.say("Expect: ", (sock:receive()))
            sock:receive()
            sock:send(body)
            finish("continued", sock)

            sock = begin("/small", chunked)
            sock:send("800\r\n" .. ("x"):rep(2048) .. "\r\n")
            finish("a chunk too large", sock)

            sock = begin("/v1/completions", chunked)
            client.turns()
            sock:send("nonsense\r\n")
            finish("no chunk", sock)

            finish("too late", begin("/impatient", length))

            -- the client leaves: nothing waits for it

            for i = 1, 20 do
                sock = begin("/v1/completions", i % 2 == 0 and chunked or length)
                client.turns()
                sock:send("1")
                sock:close()
            end

            client.idle()
            route("afterwards", body)
--- response_body
byte by byte: 200 2 of 2, overlap
chunk by chunk: 200 2 of 2, overlap
Expect: HTTP/1.1 100 Continue
continued: 200 2 of 2, overlap
a chunk too large: 413 -
no chunk: 400  of , 
too late: 0 -
load: none
afterwards: 200 2 of 2, overlap, as it came
--- no_error_log
[alert]
[emerg]



=== TEST 7: a body that was read before, was changed, or comes by a redirect
--- config
    location = /read/completions {
        access_by_lua_block {
            ngx.req.read_body()
            router:access()
        }

        add_header  x-route "$kv_router_overlap_blocks of $kv_router_prompt_blocks, $kv_router_reason" always;
        proxy_pass  http://engines/body;
    }

    location = /changed/completions {
        access_by_lua_block {
            router:access()
            ngx.req.set_body_data('{"prompt":[9]}')
        }

        proxy_pass  http://engines/body;
    }

    location = /before/completions {
        access_by_lua_block {
            ngx.req.read_body()
            ngx.req.set_body_data('{"model":"new","prompt":"text"}')
            telling:access()
        }

        proxy_pass  http://engines/body;
    }

    location = /exec/completions {
        access_by_lua_block {
            router:access()
            ngx.exec("/v1/completions")
        }
    }

    location = /rewritten/completions {
        rewrite  ^ /v1/completions last;
    }

    location = /refused/completions {
        access_by_lua_block {
            router:access()
            ngx.exit(503)
        }

        error_page  503 = @again;
    }

    location @again {
        access_by_lua_block { router:access() }
        add_header          x-route "$kv_router_overlap_blocks of $kv_router_prompt_blocks, $kv_router_reason" always;
        proxy_pass          http://engines;
    }
--- script
            client.cache("w1", client.tokens(1, 8))

            local body = '{"prompt":' .. client.tokens(1, 8) .. "}"

            for _, path in ipairs { "read", "exec", "rewritten", "refused" } do
                route(path, body, "/" .. path .. "/completions")
            end

            ngx.print("changed: ", ask("POST", "/changed/completions", body).body)

            local answer = ask("POST", "/before/completions", body)

            ngx.print("before: ", answer.headers["x-route"], ", ", answer.body)
            client.idle()
--- response_body
read: 200 2 of 2, overlap, as it came
exec: 200 2 of 2, overlap, as it came
rewritten: 200 2 of 2, overlap, as it came
refused: 200 2 of 2, overlap, as it came
changed: w1 14 8d4797a5876962ebf9187ca3bec93bcd
before: new; nil; 0; nil; model=5 prompt=6, w1 31 621c10b0760b8a68f88d4cf600cb11dc
load: none
