# tokenizer = "remote": text becomes token ids by POST /tokenize of an engine.

use lib 't/lib';
use KVRouter;

# a real one: the demo's engine stand-in, with the demo's tokenizer

my (undef, $port) = start_engine();

$ENV{TEST_NGINX_ENGINE_PORT} = $port;

# w1 and w2 answer /tokenize as the block's lua_shared_dict "say" tells them

our $Servers = join('', map { <<_EOC_ } 1 .. 2);
    server {
        listen 127.0.0.1:\$TEST_NGINX_RAND_PORT_$_;

        location / {
            return  200 "w$_\\n";
        }

        location = /tokenize {
            client_body_buffer_size  1m;

            content_by_lua_block {
                local say = ngx.shared.say

                ngx.req.read_body()
                say:incr("asked", 1, 0)
                say:set("question", ngx.req.get_body_data())

                if say:get("sleep") then
                    ngx.sleep(60)
                end

                ngx.status = say:get("status") or 200
                ngx.print(say:get("answer")
                          or '{"count":9,"tokens":[1,2,3,4,5, 6,7,8,9]}')
            }
        }
    }
_EOC_

scripts(http_config => <<"_EOC_", config => <<'_EOC_');
    kv_router_zone      zone=main:16m block_size=4;
    lua_shared_dict     say 1m;

    init_by_lua_block {
        router = require("resty.kv_router").new("main", {
            tokenizer = "remote",
            tokenizer_timeout = 3,
        })
    }

    upstream engines {
        server  0.0.0.1;
        balancer_by_lua_block { router:balance() }
    }
$Servers
_EOC_
    location /kv/ {
        kv_router_api        main;
        allow                127.0.0.1;
        deny                 all;
        access_by_lua_block  { router:api() }
    }

    client_body_buffer_size  1m;

    location ~ ^/(v1|llama|generate) {
        access_by_lua_block  { router:access() }
        add_header           x-route "$kv_router_worker $kv_router_overlap_blocks of $kv_router_prompt_blocks, $kv_router_reason" always;
        proxy_pass           http://engines;
    }

    # what the engine is asked for counts, not what the client wrote

    location = /chat {
        rewrite  ^ /v1/chat/completions last;
    }

    location = /claude/v1/chat/completions {
        rewrite  ^ /v1/messages last;
    }
_EOC_

our $Workers = <<'_EOC_';
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 events=on;
    kv_router_worker  main w2 127.0.0.1:$TEST_NGINX_RAND_PORT_2 events=on;
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('http_config', $Workers . ($block->http_config // ''))
        unless ($block->http_config // '') =~ /kv_router_worker/;

    $block->set_value('script', <<'_EOC_' . $block->script);
            local dict = ngx.shared.say

            local function route(what, body, path)
                local answer = ask("POST", path or "/v1/completions", body)
                local where = answer.headers["x-route"]

                -- among equals it is anyone
                if where:find(" 0 of ", 1, true) then
                    where = where:gsub("^w%d", "?")
                end

                ngx.say(what, ": ", answer.status, " ", where)
            end
_EOC_
});

log_level('info');
no_long_string();
no_shuffle();

plan tests => repeat_each() * 52;

run_tests();

__DATA__

=== TEST 1: texts and chats are tokenized and go where they are cached
--- script
            client.cache("w2", client.tokens(1, 8))

            route("a text", '{"model":"m","prompt":"Hello"}')
            ngx.say(dict:get("question"))
            route("again", '{"model":"m","prompt":"Hello","max_tokens":5}')
            ngx.say("asked ", dict:get("asked"), " times")
            route("texts", '{"prompt":["one","two"]}')
            ngx.say(dict:get("question"))
            route("a chat", '{"messages":[{"role":"user","content":"Hi"}],'
                  .. '"tools":[],"temperature":0}', "/v1/chat/completions")
            ngx.say(dict:get("question"))
            route("another turn", '{"messages":[{"role":"user","content":"?"}],'
                  .. '"add_generation_prompt":false}', "/v1/chat/completions")
            ngx.say(dict:get("question"))

            -- token ids need no tokenizer, and no text nothing at all
            route("ids", '{"prompt":[1,2,3,4]}')
            route("nothing", '{"model":"m"}')
            ngx.say("asked ", dict:get("asked"), " times")
--- response_body
a text: 200 w2 2 of 2, overlap
{"model":"m","prompt":"Hello"}
again: 200 w2 2 of 2, overlap
asked 1 times
texts: 200 w2 2 of 2, overlap
{"prompt":"one"}
a chat: 200 w2 2 of 2, overlap
{"messages":[{"role":"user","content":"Hi"}],"tools":[]}
another turn: 200 w2 2 of 2, overlap
{"messages":[{"role":"user","content":"?"}],"add_generation_prompt":false}
ids: 200 w2 1 of 1, overlap
nothing: 200 ? 0 of 0, no_tokens
asked 4 times



=== TEST 2: an answer that is none, and load decides
--- script
            for i, answer in ipairs {
                "", "no JSON", "{}", '{"tokens":[1,2', '{"tokens":[1,,2]}',
                '{"tokens":["a"]}', '{"tokens":[1.5]}', '{"tokens":[-1]}',
                '{"tokens":[4294967296]}', '{"tokens":null}',
            } do
                dict:set("answer", answer)
                route(answer, '{"prompt":"' .. i .. '"}')
            end

            dict:set("answer", '{"tokens":[]}')
            route("no tokens", '{"prompt":"empty"}')
            dict:set("answer", '{"tokens":[1,2,3,4]}')
            route("good again", '{"prompt":"1"}')
            client.idle()
--- response_body
: 200 ? 0 of 0, tokenizer
no JSON: 200 ? 0 of 0, tokenizer
{}: 200 ? 0 of 0, tokenizer
{"tokens":[1,2: 200 ? 0 of 0, tokenizer
{"tokens":[1,,2]}: 200 ? 0 of 0, tokenizer
{"tokens":["a"]}: 200 ? 0 of 0, tokenizer
{"tokens":[1.5]}: 200 ? 0 of 0, tokenizer
{"tokens":[-1]}: 200 ? 0 of 0, tokenizer
{"tokens":[4294967296]}: 200 ? 0 of 0, tokenizer
{"tokens":null}: 200 ? 0 of 0, tokenizer
no tokens: 200 ? 0 of 0, short
good again: 200 ? 0 of 1, no overlap
load: none
--- no_error_log
[error]
[alert]
[emerg]



=== TEST 3: an engine that fails, and load decides
--- script
            for _, status in ipairs { 500, 404, 400, 429, 503 } do
                dict:set("status", status)
                dict:set("asked", 0)
                route(status, '{"prompt":"' .. status .. '"}')
                ngx.say("  asked ", dict:get("asked"), " times")
            end

            client.idle()
--- response_body
500: 200 ? 0 of 0, tokenizer
  asked 1 times
404: 200 ? 0 of 0, tokenizer
  asked 1 times
400: 200 ? 0 of 0, tokenizer
  asked 1 times
429: 200 ? 0 of 0, tokenizer
  asked 1 times
503: 200 ? 0 of 0, tokenizer
  asked 1 times
load: none
--- no_error_log
[error]
[alert]
[emerg]



=== TEST 4: an engine that is silent, and load decides
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 events=on;

    # it is expected to be
    lua_socket_log_errors  off;
--- script
            dict:set("sleep", true)
            route("silent", '{"prompt":"Hello"}')
            dict:delete("sleep")
            route("awake", '{"prompt":"Hello"}')
            client.idle()
--- response_body
silent: 200 ? 0 of 0, tokenizer
awake: 200 ? 0 of 2, no overlap
load: none
--- error_log
routed by load
--- no_error_log
[error]
[alert]
[emerg]



=== TEST 5: an engine that is not there: another is asked
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 events=on;
    kv_router_worker  main dead 127.0.0.1:$TEST_NGINX_RAND_PORT_9;

    lua_socket_log_errors  off;
--- script
            client.cache("w1", client.tokens(1, 8))

            for i = 1, 8 do
                route(i, '{"prompt":"' .. i .. '"}')
            end

            client.idle()
--- response_body
1: 200 w1 2 of 2, overlap
2: 200 w1 2 of 2, overlap
3: 200 w1 2 of 2, overlap
4: 200 w1 2 of 2, overlap
5: 200 w1 2 of 2, overlap
6: 200 w1 2 of 2, overlap
7: 200 w1 2 of 2, overlap
8: 200 w1 2 of 2, overlap
load: none
--- no_error_log
[alert]
[emerg]
[crit]



=== TEST 6: a real engine
--- http_config
    kv_router_worker  main e1 127.0.0.1:$TEST_NGINX_ENGINE_PORT;
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 events=on;
--- script
            local decode = require("cjson").decode

            -- what the engine makes of it is cached there
            local chat = '[{"role":"user","content":"'
                         .. ("one two three "):rep(20) .. '"}]'
            local tokens = decode(ask("POST", "/tokenize",
                '{"messages":' .. chat .. "}", nil,
                "$TEST_NGINX_ENGINE_PORT").body).tokens

            client.cache("e1", "[" .. table.concat(tokens, ",") .. "]")
            ngx.say(#tokens > 60)

            -- w1 would say something else: it has to go first
            ask("POST", "/kv/workers/w1/drain")

            local answer = ask("POST", "/v1/chat/completions",
                               '{"messages":' .. chat .. ',"max_tokens":2}')

            ngx.say(answer.status, " ", answer.headers["x-route"]
                    == "e1 " .. math.floor(#tokens / 4) .. " of "
                       .. math.floor(#tokens / 4) .. ", overlap")
            ngx.say(decode(answer.body).usage.prompt_tokens == #tokens)
            client.idle()
--- response_body
true
200 true
true
load: none



=== TEST 7: the path says whether a text can be tokenized
--- script
            client.cache("w2", client.tokens(1, 8))

            local n = 0

            local function try(path)
                n = n + 1
                dict:set("asked", 0)
                route(path, '{"messages":[{"role":"user","content":"'
                      .. n .. '"}],"prompt":"' .. n .. '"}', path)
                ngx.say("  asked ", dict:get("asked") == 1
                        and dict:get("question") or "nothing")
            end

            try("/v1/completions")
            try("/v1/chat/completions")
            try("/llama/v1/chat/completions?x=/v1/messages")
            try("/chat")
            try("/claude/v1/chat/completions")
            try("/v1/messages")
            try("/v1/responses")
            try("/v1/chat/completions/batch")
            try("/v1/embeddings")
            try("/generate")

            -- token ids are read as they are
            route("ids", '{"input_ids":[1,2,3,4]}', "/generate")

            local reasons = client.stats().requests.by_reason

            ngx.say(reasons.unknown_form, " of an unknown form, ",
                    reasons.no_tokens, " without tokens")

            -- what would become of it
            local e = require("cjson").decode(ask("POST", "/kv/route",
                '{"messages":[{"role":"user","content":"what?"}]}').body)

            ngx.say(e.reason, ", ", e.prompt_blocks, " blocks")
            client.idle()
--- response_body
/v1/completions: 200 w2 2 of 2, overlap
  asked {"prompt":"1"}
/v1/chat/completions: 200 w2 2 of 2, overlap
  asked {"messages":[{"role":"user","content":"2"}]}
/llama/v1/chat/completions?x=/v1/messages: 200 w2 2 of 2, overlap
  asked {"messages":[{"role":"user","content":"3"}]}
/chat: 200 w2 2 of 2, overlap
  asked {"messages":[{"role":"user","content":"4"}]}
/claude/v1/chat/completions: 200 ? 0 of 0, no_rung
  asked nothing
/v1/messages: 200 ? 0 of 0, no_rung
  asked nothing
/v1/responses: 200 ? 0 of 0, no_tokens
  asked nothing
/v1/chat/completions/batch: 200 ? 0 of 0, unknown_form
  asked nothing
/v1/embeddings: 200 ? 0 of 0, no_prompt
  asked nothing
/generate: 200 ? 0 of 0, no_tokens
  asked nothing
ids: 200 w2 1 of 1, overlap
1 of an unknown form, 2 without tokens
overlap, 2 blocks
load: none
--- error_log
had text, and no engine can be asked for their token ids
--- no_error_log
[error]
[alert]
[emerg]



=== TEST 8: fields for which the tokens are not those of the prompt
--- script
            client.cache("w2", client.tokens(1, 8))
            dict:set("asked", 0)

            local ids = '"prompt":[1,2,3,4,5,6,7,8]'

            for _, more in ipairs {
                '"truncate_prompt_tokens":4', '"prompt_logprobs":0',
                '"prompt_embeds":"AAAA"', '"echo":true,"logprobs":1',
                '"truncate_prompt_tokens":null,"echo":true'
            } do
                route(more, "{" .. ids .. "," .. more .. "}")
            end

            route("a text that is cut",
                  '{"truncate_prompt_tokens":4,"prompt":"a"}')
            route("a text that is filled in", '{"prompt":"a","suffix":"b"}')

            local function chat(what, more)
                route(what, '{"messages":[{"role":"user","content":"Hi"}],'
                      .. more .. "}", "/v1/chat/completions")
            end

            chat("a chat that is cut", '"truncate_prompt_tokens":-1')
            chat("tools that are left out, or not",
                 '"tools":[{"type":"function"}],"tool_choice":"none"')
            ngx.say("asked ", dict:get("asked"), " times")
            ngx.say(client.stats().requests.by_reason.unknown_form,
                    " with an unknown field")

            chat("an effort", '"reasoning_effort":"none"')

            local asked = require("cjson").decode(dict:get("question"))

            ngx.say(asked.chat_template_kwargs.reasoning_effort, " ",
                    asked.chat_template_kwargs.enable_thinking)
            client.idle()
--- response_body
"truncate_prompt_tokens":4: 200 ? 0 of 1, no overlap
"prompt_logprobs":0: 200 ? 0 of 0, unknown_form
"prompt_embeds":"AAAA": 200 ? 0 of 0, unknown_form
"echo":true,"logprobs":1: 200 ? 0 of 0, unknown_form
"truncate_prompt_tokens":null,"echo":true: 200 w2 2 of 2, overlap
a text that is cut: 200 ? 0 of 0, unknown_form
a text that is filled in: 200 ? 0 of 0, unknown_form
a chat that is cut: 200 ? 0 of 0, unknown_form
tools that are left out, or not: 200 ? 0 of 0, unknown_form
asked 0 times
7 with an unknown field
an effort: 200 w2 2 of 2, overlap
none false
load: none
--- error_log
kv_router: the field "truncate_prompt_tokens" of the body changes what the engine reads, routed by load
kv_router: the field "tool_choice" of the body changes what the engine reads, routed by load
--- no_error_log eval
[qr/\[warn\](?!.* pick\(\) took )/, "[error]", "[alert]", "[emerg]"]



=== TEST 9: texts without a tokenizer are told of, once something is cached
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 events=on;
--- config
    location /mute/ {
        access_by_lua_block {
            local loaded = package.loaded

            -- a minute is over at once
            require("resty.kv_router.request.log").MINUTE = 0
            loaded.mute = loaded.mute
                          or require("resty.kv_router").new("main", {
                                 tokenizer = "none" })
            loaded.mute:access()
        }

        add_header  x-route "$kv_router_worker $kv_router_overlap_blocks of $kv_router_prompt_blocks, $kv_router_reason" always;
        proxy_pass  http://engines;
    }
--- script
            local path = "/mute/v1/completions"

            route("nothing is cached", '{"prompt":"a"}', path)
            client.cache("w1", client.tokens(1, 8))
            route("ids", '{"prompt":[1,2,3,4]}', path)
            route("another form", '{"input":"a"}', "/mute/v1/embeddings")
            route("a text", '{"prompt":"a"}', path)
--- response_body
nothing is cached: 200 ? 0 of 0, no_tokens
ids: 200 w1 1 of 1, overlap
another form: 200 ? 0 of 0, no_prompt
a text: 200 ? 0 of 0, no_tokens
--- error_log
kv_router: zone "main": 2 of 4 requests of this process since the last such line had text, and no tokenizer is configured: they were routed by load; set tokenizer = "auto" in kv.new()
--- no_error_log
kv_router: zone "main": 1 of 1
[error]
[alert]
[emerg]
