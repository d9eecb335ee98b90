# Forms of requests: which path has a prompt where, for which engine; what the
# load of a request is; what makes an overlap unknown.

use lib 't/lib';
use KVRouter;


our $Engines = engines(3, engine => <<'_EOC_');
        location /usage {
            default_type  application/json;
            return  200 '{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":8}}}';
        }

        location /anthropic {
            default_type  application/json;
            return  200 '{"usage":{"input_tokens":4,"cache_read_input_tokens":16}}';
        }

        location /zipped {
            default_type  application/json;
            add_header    Content-Encoding gzip;
            return  200 '{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":8}}}';
        }
_EOC_

our $Router = <<'_EOC_';
    init_by_lua_block {
        router = require("resty.kv_router").new("main", {
                     tokenizer = "none" })
        strict = require("resty.kv_router").new("main",
                                                { tokenizer = "none", unknown_model = "404" })
        zoned = require("resty.kv_router").new("refusing", { tokenizer = "none" })
        lenient = require("resty.kv_router").new("refusing",
                                                 { tokenizer = "none", unknown_model = "any" })
    }
_EOC_

scripts(http_config => <<"_EOC_", config => <<'_EOC_');
    kv_router_zone  zone=main:16m block_size=4;
    kv_router_zone  zone=refusing:16m block_size=4 unknown_model=404;

$Engines
$Router
_EOC_
    location /kv/ {
        kv_router_api        main;
        access_by_lua_block  { router:api() }
    }

    location /any/ {
        proxy_buffering      off;
        proxy_http_version   1.1;
        access_by_lua_block  { router:access() }
        add_header           x-route "$kv_router_worker $kv_router_overlap_blocks of $kv_router_prompt_blocks, $kv_router_reason" always;
        proxy_pass           http://engines/;
    }

    location /zoned/ {
        access_by_lua_block  { zoned:access() }
        content_by_lua_block { ngx.say("routed") }
    }

    location /lenient/ {
        access_by_lua_block  { lenient:access() }
        content_by_lua_block { ngx.say("routed") }
    }

    location /strict/ {
        access_by_lua_block  { strict:access() }
        add_header           x-route "$kv_router_worker $kv_router_overlap_blocks of $kv_router_prompt_blocks, $kv_router_reason" always;
        proxy_pass           http://engines;
    }
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;

    my $kind = $block->engine // '';
    my $config = $block->http_config // '';

    $kind = "engine=$kind" if $kind;
    $config = join('', map { <<"_EOC_" } 1 .. 3) . $config
    kv_router_worker  main w$_ 127.0.0.1:\$TEST_NGINX_RAND_PORT_$_ $kind;
_EOC_
        unless $config =~ /kv_router_worker/;

    $block->set_value('http_config', $config);
    $block->set_value('script', <<'_EOC_' . $block->script);
            local ids = client.tokens(1, 8)

            -- one request: its path, and what became of it
            local function route(path, body, headers, what)
                local prefix = path:match("^/strict") and "" or "/any"
                local answer = ask(body and "POST" or "GET", prefix .. path,
                                   body, headers)

                local to = answer.status == 200 and answer.headers["x-route"]
                           or "-"

                ngx.say(what or path, ": ", answer.status, " ",
                        (to:gsub("w%d 0 of 0", "? 0 of 0")))

                return answer
            end
_EOC_
});

log_level('info');
worker_connections(512);
no_long_string();
no_shuffle();

plan tests => repeat_each() * 57;

run_tests();

__DATA__

=== TEST 1: vLLM: each path has its ids in its own field
--- engine: vllm
--- script
            client.cache("w2", ids)

            local handed = '"kv_transfer_params":{"prompt_token_ids":' .. ids
                           .. "}"

            route("/v1/completions", '{"prompt":' .. ids .. "}")
            route("/v1/completions", '{"prompt":[' .. ids .. ",[1]]}")
            route("/v1/chat/completions", '{"messages":[],' .. handed .. "}")
            route("/v1/messages", '{"messages":[],' .. handed .. "}")
            route("/v1/responses", '{"input":"x",' .. handed .. "}")
            route("/inference/v1/generate", '{"token_ids":' .. ids .. "}")
            route("/v1/chat/completions", '{"messages":[{"role":"user",'
                  .. '"content":[{"type":"image_url"}]}],' .. handed .. "}",
                  nil, "with an image")
            route("/v1/chat/completions", '{"messages":[],"input_ids":' .. ids
                  .. "}", nil, "where SGLang has them")
            route("/v1/completions", '{"prompt_token_ids":' .. ids .. "}", nil,
                  "where nobody has them")
            route("/generate", '{"input_ids":' .. ids .. "}")
            client.idle()
--- response_body
/v1/completions: 200 w2 2 of 2, overlap
/v1/completions: 200 w2 2 of 2, overlap
/v1/chat/completions: 200 w2 2 of 2, overlap
/v1/messages: 200 w2 2 of 2, overlap
/v1/responses: 200 w2 2 of 2, overlap
/inference/v1/generate: 200 w2 2 of 2, overlap
with an image: 200 ? 0 of 0, no_tokens
where SGLang has them: 200 ? 0 of 0, no_tokens
where nobody has them: 200 ? 0 of 0, no_tokens
/generate: 200 ? 0 of 0, unknown_form
load: none



=== TEST 2: SGLang: the same
--- engine: sglang
--- script
            client.cache("w2", ids)

            route("/v1/completions", '{"prompt":' .. ids .. "}")
            route("/v1/chat/completions", '{"messages":[],"input_ids":' .. ids
                  .. "}")
            route("/generate", '{"input_ids":' .. ids .. "}")
            route("/generate", '{"input_ids":[' .. ids .. "]}")
            route("/v1/chat/completions", '{"messages":[],'
                  .. '"kv_transfer_params":{"prompt_token_ids":' .. ids
                  .. "}}", nil, "where vLLM has them")
            route("/inference/v1/generate", '{"token_ids":' .. ids .. "}")
            route("/generate", '{"input_ids":' .. ids
                  .. ',"session_params":{"id":"s"}}', nil, "in a session")
            route("/generate", '{"input_ids":' .. ids .. ',"extra_key":"k"}',
                  nil, "with a namespace that no event names")
            route("/v1/completions", '{"prompt":' .. ids
                  .. ',"truncate_prompt_tokens":4}', nil, "not cut")
            client.idle()
--- response_body
/v1/completions: 200 w2 2 of 2, overlap
/v1/chat/completions: 200 w2 2 of 2, overlap
/generate: 200 w2 2 of 2, overlap
/generate: 200 w2 2 of 2, overlap
where vLLM has them: 200 ? 0 of 0, no_tokens
/inference/v1/generate: 200 ? 0 of 0, unknown_form
in a session: 200 ? 0 of 0, unknown_form
with a namespace that no event names: 200 ? 0 of 0, unknown_form
not cut: 200 w2 2 of 2, overlap
load: none



=== TEST 3: TensorRT-LLM, and engines of which nobody knows the kind
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 engine=trtllm;
--- script
            client.cache("w1", ids)

            route("/v1/chat/completions", '{"messages":[],"prompt_token_ids":'
                  .. ids .. "}")
            route("/v1/completions", '{"prompt":' .. ids
                  .. ',"truncate_prompt_tokens":4}', nil, "a cut")

            -- one that may be vLLM or SGLang comes
            ask("PUT", "/kv/workers/w2", '{"address":"127.0.0.1:'
                .. "$TEST_NGINX_RAND_PORT_2" .. '"}')
            client.cache("w2", ids)
            client.cache("w2", client.tokens(9, 16))

            route("/v1/chat/completions", '{"messages":[],"input_ids":'
                  .. client.tokens(9, 16) .. "}", nil, "SGLang's field")
            route("/generate", '{"input_ids":' .. client.tokens(9, 16) .. "}")

            -- it says its kind
            ngx.say(ask("PUT", "/kv/workers/w2", '{"address":"127.0.0.1:'
                        .. "$TEST_NGINX_RAND_PORT_2"
                        .. '","engine":"vllm"}').body:match('"engine":"%a+"'))
            route("/v1/chat/completions", '{"messages":[],"input_ids":'
                  .. client.tokens(9, 16) .. "}", nil, "SGLang's field")
            ngx.say(ask("PUT", "/kv/workers/w2", '{"address":"127.0.0.1:1",'
                        .. '"engine":"mlc"}').body)
            client.idle()
--- response_body
/v1/chat/completions: 200 w1 2 of 2, overlap
a cut: 200 ? 0 of 0, unknown_form
SGLang's field: 200 w2 2 of 2, overlap
/generate: 200 w2 2 of 2, overlap
"engine":"vllm"
SGLang's field: 200 ? 0 of 0, no_tokens
{"error":"body: \"engine\" must be one of \"vllm\", \"sglang\", \"trtllm\", \"unknown\" at byte 34"}

load: none



=== TEST 4: what is cached nowhere, and what is no load
--- engine: vllm
--- script
            client.cache("w2", ids)

            local body = '{"prompt":' .. ids .. ',"input":"x","messages":[]}'

            for _, path in ipairs {
                "/v1/embeddings", "/v1/rerank", "/v1/score",
                "/v1/audio/transcriptions", "/invocations", "/api/generate",
                "/v1/messages/count_tokens", "/tokenize", "/detokenize",
                "/v1/completions/render", "/v1/chat/completions/batch",
                "/nobody/knows"
            } do
                route(path, body)
            end

            route("/v1/audio/transcriptions", "--x\r\n\r\nno JSON\r\n--x--",
                  nil, "a form with a file")
            route("/v1/models")
            route("/v1/completions", nil, nil, "a GET of a path with a prompt")

            local reasons = client.stats().requests.by_reason

            ngx.say(reasons.no_prompt, " without a prompt, ", reasons.no_load,
                    " no load, ", reasons.unknown_form, " unknown")
            client.idle()
--- response_body
/v1/embeddings: 200 ? 0 of 0, no_prompt
/v1/rerank: 200 ? 0 of 0, no_prompt
/v1/score: 200 ? 0 of 0, no_prompt
/v1/audio/transcriptions: 200 ? 0 of 0, no_prompt
/invocations: 200 ? 0 of 0, no_prompt
/api/generate: 200 ? 0 of 0, no_prompt
/v1/messages/count_tokens: 200 ? 0 of 0, no_load
/tokenize: 200 ? 0 of 0, no_load
/detokenize: 200 ? 0 of 0, no_load
/v1/completions/render: 200 ? 0 of 0, no_load
/v1/chat/completions/batch: 200 ? 0 of 0, unknown_form
/nobody/knows: 200 ? 0 of 0, unknown_form
a form with a file: 200 ? 0 of 0, no_prompt
/v1/models: 200 ? 0 of 0, no_load
a GET of a path with a prompt: 200 ? 0 of 0, no_load
7 without a prompt, 6 no load, 2 unknown
load: none



=== TEST 5: the load of several sequences, and of none
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 max_active=6;
--- script
            -- what w1 has while such a request is open
            local function load(what, path, body)
                local sock = client.send("POST /any/slow" .. path
                                         .. " HTTP/1.0\r\n"
                                         .. "Content-Length: " .. #body
                                         .. "\r\n\r\n" .. body)

                sock:receiveuntil("\r\n\r\n")()
                sock:receive(2)

                local l = client.stats().workers[1].load[1]

                ngx.say(what, ": ", l.active_requests, " active, ",
                        l.decode_blocks, " blocks")

                return sock
            end

            local function one(...)
                load(...):close()
                client.idle()
            end

            one("one prompt", "/completions", '{"prompt":' .. ids .. "}")
            one("n", "/completions", '{"n":3,"prompt":' .. ids .. "}")
            one("two prompts", "/completions", '{"n":2,"prompt":[' .. ids
                .. "," .. client.tokens(1, 12) .. "]}")
            one("two texts", "/completions", '{"prompt":["a","b"]}')
            one("n of SGLang's generate", "/generate",
                '{"sampling_params":{"n":4},"input_ids":' .. ids .. "}")
            one("a question", "/tokenize", '{"prompt":' .. ids .. "}")

            -- what has no load has no bound
            local sock = load("six", "/completions", '{"n":6,"prompt":[1]}')

            route("/v1/completions", '{"prompt":[1]}', nil, "a seventh")
            route("/tokenize", '{"prompt":"a"}')
            sock:close()
            client.idle()
--- response_body
one prompt: 1 active, 2 blocks
load: none
n: 3 active, 2 blocks
load: none
two prompts: 4 active, 5 blocks
load: none
two texts: 2 active, 0 blocks
load: none
n of SGLang's generate: 4 active, 2 blocks
load: none
a question: 0 active, 0 blocks
load: none
six: 6 active, 0 blocks
a seventh: 429 -
/tokenize: 200 ? 0 of 0, no_load
load: none



=== TEST 6: a body in another coding, and a response to an earlier one
--- engine: vllm
--- script
            client.cache("w2", ids)

            local body = '{"prompt":' .. ids .. "}"

            route("/v1/completions", body, "Content-Encoding: gzip\r\n", "gzip")
            route("/v1/completions", body, "Content-Encoding: identity\r\n",
                  "identity")
            route("/v1/completions", body, "content-encoding: BR\r\n", "BR")
            route("/v1/responses", '{"input":"x","previous_response_id":"r1"}')
            route("/v1/responses",
                  '{"input":"x","previous_response_id":null}')
            client.idle()
--- response_body
gzip: 200 ? 0 of 0, bad_body
identity: 200 w2 2 of 2, overlap
BR: 200 ? 0 of 0, bad_body
/v1/responses: 200 ? 0 of 0, unknown_form
/v1/responses: 200 ? 0 of 0, no_tokens
load: none
--- error_log
the field "previous_response_id" of the body changes what the engine reads



=== TEST 7: adapters, as the model and behind it
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 engine=vllm model=base lora=sql,law;
    kv_router_worker  main w2 127.0.0.1:$TEST_NGINX_RAND_PORT_2 engine=sglang model=base lora=sql;
    kv_router_worker  main w3 127.0.0.1:$TEST_NGINX_RAND_PORT_3 engine=vllm model=other;
--- script
            client.cache("w1", ids)
            client.cache("w2", ids, { more = '"lora_name":"sql"' })

            local function try(model, more)
                route("/v1/completions", '{"model":"' .. model .. '","prompt":'
                      .. ids .. (more or "") .. "}", nil, model .. (more or ""))
            end

            try("base")
            try("sql")
            try("law")
            try("base:sql")
            try("base:law")
            try("base:")
            try("base", ',"lora_path":"sql"')
            try("base", ',"lora_path":["sql","law"]')
            try("other")
            try("other:sql")
            client.idle()
--- response_body
base: 200 w1 2 of 2, overlap
sql: 200 w2 2 of 2, overlap
law: 200 w1 0 of 2, no overlap
base:sql: 200 w2 2 of 2, overlap
base:law: 200 w1 0 of 2, no overlap
base:: 200 w1 2 of 2, no_eligible
base,"lora_path":"sql": 200 w2 2 of 2, overlap
base,"lora_path":["sql","law"]: 200 w2 2 of 2, overlap
other: 200 w3 0 of 2, no overlap
other:sql: 200 w3 0 of 2, no overlap
load: none



=== TEST 8: a model that nobody serves
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 model=base lora=sql events=on;
    kv_router_worker  refusing w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 model=base;
--- script
            local function of_zone(path, model)
                local answer = ask("POST", path, '{"model":"' .. model
                                   .. '","prompt":' .. ids .. "}")

                ngx.print(path, " ", model, ": ", answer.status, " ",
                          answer.body)
            end

            local function try(path, model)
                local answer = route(path, '{"model":"' .. model
                                     .. '","prompt":' .. ids .. "}", nil,
                                     path .. " " .. model)

                if answer.status ~= 200 then
                    ngx.print(answer.body)
                end
            end

            try("/v1/completions", "gpt")
            try("/strict/completions", "gpt")
            try("/strict/completions", "base")
            try("/strict/completions", "sql")
            route("/strict/completions", '{"prompt":[1]}', nil, "no model")
            ngx.say(client.stats().requests.by_reason.unknown_model, " refused")

            -- what the zone says, and kv.new() overrides
            of_zone("/zoned/v1/completions", "gpt")
            of_zone("/zoned/v1/completions", "base")
            of_zone("/lenient/v1/completions", "gpt")

            -- without any worker that is what is wrong
            ask("DELETE", "/kv/workers/w1")
            try("/strict/completions", "gpt")
            client.idle()
--- response_body
/v1/completions gpt: 200 w1 0 of 2, no_eligible
/strict/completions gpt: 404 -
{"error":{"message":"the model does not exist","type":"invalid_request_error","param":"model","code":"model_not_found"}}
/strict/completions base: 200 w1 0 of 2, no overlap
/strict/completions sql: 200 w1 0 of 2, no overlap
no model: 200 ? 0 of 0, short
1 refused
/zoned/v1/completions gpt: 404 {"error":{"message":"the model does not exist","type":"invalid_request_error","param":"model","code":"model_not_found"}}
/zoned/v1/completions base: 200 routed
/lenient/v1/completions gpt: 200 routed
/strict/completions gpt: 503 -
{"error":{"message":"no worker is available","type":"service_unavailable","param":null,"code":"no_worker"}}
load: none



=== TEST 9: hostile bodies are routed by load, with the reason
--- engine: vllm
--- script
            client.cache("w2", ids)

            route("/v1/chat/completions", '{"messages":[],'
                  .. '"kv_transfer_params":{"prompt_token_ids":[-1]}}', nil,
                  "ids below 0")
            route("/v1/chat/completions", '{"messages":' .. ("["):rep(100)
                  .. ("]"):rep(100) .. "}", nil, "too deep")
            route("/v1/chat/completions", '{"messages":[{"content":'
                  .. ("[]"):rep(1) .. ',"content":[{"type":"image_url"}]}],'
                  .. '"kv_transfer_params":{"prompt_token_ids":' .. ids
                  .. "}}", nil, "a key twice")
            route("/v1/completions", '{"prompt":' .. ids
                  .. ',"prompt":"text"}', nil, "a prompt twice")
            route("/v1/completions", '{"n":1e999,"prompt":' .. ids .. "}", nil,
                  "n without measure")
            route("/v1/completions", '{"model":{"a":1},"cache_salt":[],'
                  .. '"lora_path":7,"prompt":' .. ids .. "}", nil,
                  "names that are none")
            route("/inference/v1/generate", '{"token_ids":' .. ids
                  .. ',"sampling_params":[]}', nil, "parameters that are none")
            route("/v1/completions", '{"prompt":"\255"}', nil, "no UTF-8")
            client.idle()
--- response_body
ids below 0: 200 ? 0 of 0, bad_body
too deep: 200 ? 0 of 0, bad_body
a key twice: 200 ? 0 of 0, no_tokens
a prompt twice: 200 ? 0 of 0, no_tokens
n without measure: 200 w2 2 of 2, overlap
names that are none: 200 w2 2 of 2, overlap
parameters that are none: 200 w2 2 of 2, overlap
no UTF-8: 200 ? 0 of 0, bad_body
load: none



=== TEST 10: POST /route takes the path as an argument, or the body's looks
--- script
            client.cache("w2", ids)

            local function explain(args, body)
                local e = require("cjson").decode(ask("POST", "/kv/route"
                                                      .. args, body).body)

                ngx.say(args, " ", body:match("%a+"), ": ", e.reason, ", ",
                        e.prompt_blocks, " blocks")
            end

            explain("", '{"prompt":' .. ids .. "}")
            explain("", '{"input_ids":' .. ids .. "}")
            explain("", '{"token_ids":' .. ids .. "}")
            explain("", '{"messages":[]}')
            explain("?path=/v1/completions", '{"prompt":' .. ids .. "}")
            explain("?path=%2Fv1%2Fembeddings", '{"prompt":' .. ids .. "}")
            explain("?path=/v1/messages/count_tokens", '{"messages":[]}')
            explain("?path=/x", '{"prompt":' .. ids .. "}")
            client.idle()
--- response_body
 prompt: overlap, 2 blocks
 input: overlap, 2 blocks
 token: overlap, 2 blocks
 messages: no_tokens, 0 blocks
?path=/v1/completions prompt: overlap, 2 blocks
?path=%2Fv1%2Fembeddings prompt: no_prompt, 0 blocks
?path=/v1/messages/count_tokens messages: no_load, 0 blocks
?path=/x prompt: unknown_form, 0 blocks
load: none



=== TEST 11: what the engine had cached is read in the words of each API
--- http_config
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
--- config
    location /cached/ {
        access_by_lua_block  { router:access() }
        log_by_lua_block     {
            ngx.log(ngx.NOTICE, "cached: ", ngx.var.kv_router_cached_tokens)
        }
        proxy_pass           http://engines/;
    }
--- script
            local body = '{"prompt":' .. ids .. ',"messages":[]}'

            for _, path in ipairs { "usage/completions", "usage/v1/embeddings",
                                    "anthropic/v1/messages",
                                    "anthropic/completions",
                                    "zipped/completions" }
            do
                ask("POST", "/cached/" .. path, body)
            end

            client.idle()
--- response_body
load: none
--- grep_error_log eval: qr/cached: [^ ]*/
--- grep_error_log_out
cached: 8
cached: nil
cached: 16
cached: nil
cached: nil
