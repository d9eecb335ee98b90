# Asking engines for token ids: what the router's probe finds they have, and
# what is done without it.

use lib 't/lib';
use KVRouter;

# w1 and w2 answer a path as the block's lua_shared_dict "say" tells them: by
# default all that vLLM has.  An answer that is a number is a status.

our $Servers = join('', map { <<_EOC_ } 1 .. 2);
    server {
        listen 127.0.0.1:\$TEST_NGINX_RAND_PORT_$_;

        location / {
            client_body_buffer_size  1m;

            content_by_lua_block {
                local say, uri = ngx.shared.say, ngx.var.uri
                local answer = say:get("w$_ " .. uri) or say:get(uri)

                ngx.req.read_body()
                say:incr("asked w$_ " .. uri, 1, 0)
                say:set("body " .. uri, ngx.req.get_body_data() or "-")
                say:set("key " .. uri, ngx.var.http_authorization or "no key")

                if ngx.var.http_authorization == "Bearer wrong" then
                    return ngx.exit(401)
                end

                if answer == "hang" then
                    ngx.sleep(60)
                elseif answer == "long" then
                    ngx.header.content_length = 17 * 2^20
                    ngx.print(("x"):rep(65536))
                elseif tonumber(answer) then
                    ngx.exit(tonumber(answer))
                else
                    ngx.say(answer or "w$_")
                end
            }
        }
    }
_EOC_

scripts(http_config => <<"_EOC_", config => <<'_EOC_');
    kv_router_zone      zone=main:16m block_size=4;
    kv_router_worker    main w1 127.0.0.1:\$TEST_NGINX_RAND_PORT_1;
    kv_router_worker    main w2 127.0.0.1:\$TEST_NGINX_RAND_PORT_2;
    lua_shared_dict     say 2m;

    # connections that fail are expected
    lua_socket_log_errors  off;

    init_by_lua_block {
        local say = ngx.shared.say
        local ids = "[1,2,3,4,5,6,7,8,9]"

        say:set("/v1/models", '{"data":[{"id":"m","owned_by":"vllm"}]}')
        say:set("/version", '{"version":"0.32.0"}')
        say:set("/tokenize", '{"count":9,"tokens":' .. ids .. "}")

        for _, form in ipairs { "completions", "chat/completions", "messages",
                                "responses" }
        do
            say:set("/v1/" .. form .. "/render", '{"token_ids":' .. ids .. "}")
        end

        local new = require("resty.kv_router").new

        router = new("main", { tokenizer_timeout = 20 })
        quick = new("main")
        remote = new("main", { tokenizer = "remote", tokenizer_timeout = 20 })
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

    location /status {
        kv_router_status     main;
    }

    client_body_buffer_size  1m;

    location /v1/ {
        access_by_lua_block {
            local name = ngx.var.http_x_router

            if name == "quick" then
                quick:access()
            elseif name == "remote" then
                remote:access()
            else
                router:access()
            end
        }

        add_header  x-route "$kv_router_worker $kv_router_overlap_blocks of $kv_router_prompt_blocks, $kv_router_reason, by $kv_router_rung $kv_router_rung_why" always;
        proxy_pass  http://engines;
    }
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('script', <<'_EOC_' . $block->script);
            local dict = ngx.shared.say
            local COMPLETION, CHAT = "/v1/completions", "/v1/chat/completions"

            local function route(what, path, body, router)
                local answer = ask("POST", path, body, router and "X-Router: "
                                   .. router .. "\r\n" or nil)
                local where = answer.headers["x-route"]

                -- among equals it is anyone
                if where:find(" 0 of ", 1, true) then
                    where = where:gsub("^w%d", "?")
                end

                ngx.say(what, ": ", answer.status, " ", where)
            end

            -- what was found, of both workers: "all", or the names of it
            local function found()
                local parts = {}

                for i, w in ipairs(client.stats().workers) do
                    local p = w.probe

                    parts[i] = p == ngx.null and "-"
                               or p.engine .. " " .. p.version .. ": "
                                  .. (#p.has == 6 and "all"
                                      or table.concat(p.has, " "))
                end

                return table.concat(parts, "; ")
            end

            -- waits until that is what was found
            local function probed(want)
                client.wait(function() return found() == want end)
                ngx.say("found ", found())
            end

            -- these workers are others, from now on
            local function restart()
                for _, w in ipairs(client.stats().workers) do
                    local body = '{"address":"' .. w.address .. '"}'

                    ask("DELETE", "/kv/workers/" .. w.worker_id)
                    ask("PUT", "/kv/workers/" .. w.worker_id, body)
                end
            end

            local ALL = "vllm 0.32.0: all; vllm 0.32.0: all"
_EOC_
});

log_level('info');
no_long_string();
no_shuffle();

plan tests => repeat_each() * 56;

run_tests();

__DATA__

=== TEST 1: an engine that renders is asked with the body as it came
--- script
            probed(ALL)
            client.cache("w2", client.tokens(1, 8))

            local body = '{"stream":true, "messages":[{"role":"user","content":'
                         .. '"Hi"}],"model":"m"}'

            ask("POST", CHAT, body, "Authorization: Bearer client\r\n")
            ngx.say(dict:get("body /v1/chat/completions/render") == body, ", ",
                    dict:get("key /v1/chat/completions/render"))

            route("again", CHAT, body)
            route("a completion", COMPLETION, '{"prompt":["a","b"]}')
            route("messages", "/v1/messages", '{"system":"s","messages":[]}')
            route("responses", "/v1/responses", '{"input":"x"}')
            route("ids", COMPLETION, '{"prompt":[1,2,3,4]}')
            route("a set rung", COMPLETION, '{"prompt":"a"}', "remote")

            -- nobody but the probe said that it is vLLM
            route("ids that vLLM ignores", CHAT, '{"messages":[{"role":"user",'
                  .. '"content":"Ho"}],"input_ids":[1,2,3,4]}')

            local q = client.stats().questions

            ngx.say(q.asked, " asked, ", q.kept, " kept, ", q.failed, " failed")
            client.idle()
--- response_body
found vllm 0.32.0: all; vllm 0.32.0: all
true, no key
again: 200 w2 2 of 2, overlap, by render 
a completion: 200 w2 2 of 2, overlap, by render 
messages: 200 w2 2 of 2, overlap, by render 
responses: 200 w2 2 of 2, overlap, by render 
ids: 200 w2 1 of 1, overlap, by ids 
a set rung: 200 w2 2 of 2, overlap, by remote 
ids that vLLM ignores: 200 w2 2 of 2, overlap, by render 
6 asked, 1 kept, 0 failed
load: none
--- error_log
kv_router zone "main": worker "w1": engine vllm 0.32.0, it has render and tokenize
kv_router zone "main": tokenizer = "auto": an engine is asked for the token ids of each new text, the request waits for 50 ms and 2 us a byte at most
--- no_error_log eval
[qr/\[warn\](?!.* pick\(\) took )/, "[error]", "[alert]", "[emerg]"]



=== TEST 2: an engine that does not render is asked to tokenize
--- script
            probed(ALL)

            for _, form in ipairs { "completions", "chat/completions",
                                    "messages", "responses" }
            do
                dict:set("/v1/" .. form .. "/render", 404)
            end

            dict:set("/v1/models", '{"data":[{"id":"m","owned_by":"sglang"}]}')
            dict:set("/version", 404)
            dict:set("/get_server_info", '{"version":"0.5.23"}')
            restart()
            probed("sglang 0.5.23: tokenize_completions tokenize_chat; "
                   .. "sglang 0.5.23: tokenize_completions tokenize_chat")
            client.cache("w2", client.tokens(1, 8))

            route("a chat", CHAT, '{"messages":[{"role":"user"}]}')
            ngx.say(dict:get("body /tokenize"))
            route("messages", "/v1/messages", '{"messages":[]}')
            route("a set rung", "/v1/messages", '{"messages":[]}', "remote")
            ngx.say("scores ", client.stats().workers[1].scores)

            dict:set("/tokenize", 404)
            dict:set("/get_server_info", '{"version":"0.5.23",'
                     .. '"internal_states":[{"memory_usage":'
                     .. '{"token_capacity_swa":4096}}]}')
            restart()
            probed("sglang 0.5.23: ; sglang 0.5.23: ")
            ngx.say("scores ", client.stats().workers[1].scores)
            client.cache("w2", client.tokens(1, 8))
            dict:set("asked w1 /tokenize", 0)
            dict:set("asked w2 /tokenize", 0)
            route("nothing is left", CHAT, '{"messages":[]}')
            route("a set rung", CHAT, '{"messages":[]}', "remote")
            ngx.say("asked ", dict:get("asked w1 /tokenize"), " and ",
                    dict:get("asked w2 /tokenize"), " times")
--- response_body
found vllm 0.32.0: all; vllm 0.32.0: all
found sglang 0.5.23: tokenize_completions tokenize_chat; sglang 0.5.23: tokenize_completions tokenize_chat
a chat: 200 w2 2 of 2, overlap, by remote no_rung
{"messages":[{"role":"user"}]}
messages: 200 ? 0 of 0, no_rung, by load no_rung
a set rung: 200 ? 0 of 0, no_rung, by load no_rung
scores as_held
found sglang 0.5.23: ; sglang 0.5.23: 
scores upper_bounds
nothing is left: 200 ? 0 of 0, no_rung, by load no_rung
a set rung: 200 ? 0 of 0, no_rung, by load no_rung
asked 0 and 0 times
--- error_log
requests of this process since the last such line had text, and no engine can be asked for their token ids: they were routed by load; start vLLM with --enable-scale-out, TensorRT-LLM with TRTLLM_ENABLE_RENDER_ENDPOINTS=1, or see "probe" of the workers in /status



=== TEST 3: engines that want a key have it by kv_router_engine
--- http_config
    kv_router_engine  main "header=Authorization: Bearer own" "header=X-Other: 1";
--- script
            probed(ALL)

            ask("POST", CHAT, '{"messages":[{"content":"x"}]}',
                "Authorization: Bearer client\r\n")
            ngx.say(dict:get("key /v1/chat/completions/render"))

            for _, format in ipairs { "json", "html", "prometheus" } do
                ngx.say(ask("GET", "/status?format=" .. format).body
                        :find("Bearer") or "not shown")
            end
--- response_body
found vllm 0.32.0: all; vllm 0.32.0: all
Bearer own
not shown
not shown
not shown
--- no_error_log
Bearer own
[error]
[alert]
[emerg]



=== TEST 4: engines that refuse the key are not probed, and it is said why
--- http_config
    kv_router_engine  main "header=Authorization: Bearer wrong";
--- script
            client.logged("was not probed[^\n]*")
            route("a text", CHAT, '{"messages":[]}')
            ngx.say(found())
--- response_body
a text: 200 ? 0 of 0, no_rung, by load no_rung
-; -
--- error_log
not 200, status 401: set its key by kv_router_engine
--- no_error_log
[alert]
[emerg]



=== TEST 5: an engine restarts and loses what it had: the probe finds it out
--- script
            probed(ALL)
            client.cache("w2", client.tokens(1, 8))
            dict:set("/v1/chat/completions/render", 404)
            route("a text", CHAT, '{"messages":[]}')

            local REST = "render_completions render_messages render_responses "
                         .. "tokenize_completions tokenize_chat"

            client.wait(function()
                return found():find(REST, 1, true)
            end)

            -- the other one is told by its own refusal
            dict:set("asked w1 /v1/chat/completions/render", 0)
            dict:set("asked w2 /v1/chat/completions/render", 0)

            for i = 2, 20 do
                ask("POST", CHAT, '{"messages":[{"content":"' .. i .. '"}]}')
            end

            client.wait(function()
                return not found():find("all", 1, true)
            end)
            route("the next rung", CHAT, '{"messages":[{"content":"x"}]}')
--- response_body
found vllm 0.32.0: all; vllm 0.32.0: all
a text: 200 ? 0 of 0, tokenizer, by load tokenizer
the next rung: 200 w2 2 of 2, overlap, by remote no_rung
--- error_log
/v1/chat/completions/render
--- error_log
: status 404, routed by load



=== TEST 6: what a client's request is refused changes nothing
--- script
            probed(ALL)

            -- of an unknown model
            dict:set("/v1/completions/render", 404)
            route("refused", COMPLETION, '{"model":"x","prompt":"a"}')
            dict:set("/v1/completions/render", '{"token_ids":[1,2,3,4]}')

            local probes = client.stats().questions.probes

            client.wait(function()
                return client.stats().questions.probes > probes
            end)
            ngx.say(found() == ALL)
            route("asked again", COMPLETION, '{"prompt":"b"}')
--- response_body
found vllm 0.32.0: all; vllm 0.32.0: all
refused: 200 ? 0 of 0, tokenizer, by load tokenizer
true
asked again: 200 ? 0 of 1, no overlap, by render 



=== TEST 7: hostile answers, and load decides
--- script
            probed(ALL)

            for i, answer in ipairs { "hang", "long", '{"token_ids":["a"]}',
                                      "{}", "[]", "null", "500", "401" }
            do
                dict:set("/v1/completions/render", answer)
                route(answer, COMPLETION, '{"prompt":"' .. i .. '"}', "quick")
            end

            ngx.say(client.stats().questions.failed, " failed")
            client.idle()
--- response_body
found vllm 0.32.0: all; vllm 0.32.0: all
hang: 200 ? 0 of 0, tokenizer, by load tokenizer
long: 200 ? 0 of 0, tokenizer, by load tokenizer
{"token_ids":["a"]}: 200 ? 0 of 0, tokenizer, by load tokenizer
{}: 200 ? 0 of 0, tokenizer, by load tokenizer
[]: 200 ? 0 of 0, tokenizer, by load tokenizer
null: 200 ? 0 of 0, tokenizer, by load tokenizer
500: 200 ? 0 of 0, tokenizer, by load tokenizer
401: 200 ? 0 of 0, tokenizer, by load tokenizer
8 failed
load: none



=== TEST 8: equal questions at the same time are asked once
--- script
            probed(ALL)
            client.cache("w1", client.tokens(1, 8))
            dict:set("/v1/completions/render", "hang")

            local threads = {}
            local n = 0

            for i = 1, 5 do
                threads[i] = ngx.thread.spawn(function()
                    ask("POST", COMPLETION, '{"prompt":"same"}',
                        "X-Router: quick\r\n")
                    n = n + 1
                end)
            end

            for i = 1, 5 do
                ngx.thread.wait(threads[i])
            end

            local s = client.stats()

            ngx.say(n, " requests, ", s.questions.asked + s.questions.joined,
                    " had a question")
            ngx.say(s.requests.by_reason.tokenizer, " over budget")
--- response_body
found vllm 0.32.0: all; vllm 0.32.0: all
5 requests, 5 had a question
5 over budget



=== TEST 9: the status page and the metrics
--- script
            probed(ALL)
            ask("POST", COMPLETION, '{"prompt":"a"}')
            ask("POST", COMPLETION, '{"prompt":[1,2,3,4]}')
            ask("GET", "/v1/completions")

            local text = ask("GET", "/status?format=prometheus").body

            for _, name in ipairs { "tokens_total{",
                                    'asks_total{[^}]*what="tokens"',
                                    'asks_failed_total{[^}]*what="probe"',
                                    "worker_info{" }
            do
                for line in text:gmatch("kv_router_" .. name .. "[^\n]*") do
                    if not line:find("w2", 1, true) then
                        ngx.say((line:gsub('address="[^"]*"', "address")))
                    end
                end
            end

            -- what would become of it
            local e = require("cjson").decode(ask("POST", "/kv/route",
                '{"messages":[{"role":"user","content":"what?"}]}').body)

            ngx.say(e.rung, " ", e.rung_why, ", ", e.prompt_blocks,
                    " blocks")
--- response_body
found vllm 0.32.0: all; vllm 0.32.0: all
kv_router_tokens_total{zone="main",by="load"} 1
kv_router_tokens_total{zone="main",by="ids"} 1
kv_router_tokens_total{zone="main",by="render"} 1
kv_router_tokens_total{zone="main",by="remote"} 0
kv_router_tokens_total{zone="main",by="local"} 0
kv_router_tokens_total{zone="main",by="text"} 0
kv_router_asks_total{zone="main",what="tokens"} 1
kv_router_asks_failed_total{zone="main",what="probe"} 0
kv_router_worker_info{zone="main",worker="w1",address,model="",role="both",origin="static",source="none",engine="vllm",version="0.32.0"} 1
render , 2 blocks



=== TEST 10: a zone for which no router asks is not probed
--- http_config
    kv_router_zone    zone=silent:16m;
    kv_router_worker  silent w3 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
--- config
    location /silent/ {
        kv_router_api  silent;
    }
--- script
            probed(ALL)

            local s = client.stats("/silent")

            ngx.say(s.questions.probes, " ", tostring(s.workers[1].probe))
            ngx.say("asked ", dict:get("asked w1 /v1/models"), " times")
--- response_body
found vllm 0.32.0: all; vllm 0.32.0: all
0 userdata: NULL
asked 1 times
