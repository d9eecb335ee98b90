# POST /select: a worker is chosen and reserved for a request that somebody else
# sends to it.

use lib 't/lib';
use KVRouter;

our $Engines = engines(2, engine => <<'_EOC_');
        location /usage {
            content_by_lua_block {
                ngx.header.content_type = "application/json"
                ngx.print('{"choices":[{"text":"x"}],"usage":', ngx.var.http_x_usage, "}")
            }
        }
_EOC_

our $Workers = zone_workers(2);

scripts(http_config => <<"_EOC_", config => <<'_EOC_');
$Engines
_EOC_
    location /kv/ {
        kv_router_api         main;
        access_by_lua_block   { router:api() }
    }

    location /read/ {
        kv_router_api         main read_only;
        access_by_lua_block   { router:api() }
    }

    location /bare/ {
        kv_router_api         main;
    }

    location /v1/ {
        access_by_lua_block     { router:access() }
        add_header              x-route "$kv_router_worker" always;
        proxy_pass              http://engines/;
        proxy_http_version      1.1;
        proxy_set_header        Connection "";
    }
_EOC_

# zone: parameters of the zone; workers: others; router: other settings

add_block_preprocessor(sub {
    my ($block) = @_;

    my $more = $block->router // 'policy_conf = { churn = 0 }';

    $block->set_value('http_config', '    kv_router_zone  zone=main:16m block_size=4 '
                      . ($block->zone // '') . ";\n" . ($block->http_config // '')
                      . ($block->workers // $Workers) . <<"_EOC_");
    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none", $more })
    }
_EOC_

    $block->set_value('script', <<'_EOC_' . $block->script);
            local decode = require "cjson.safe".decode

            local function prompt(first, last, more)
                return '{"prompt":' .. client.tokens(first, last) .. (more or "") .. "}"
            end

            local function choose(body, headers)
                local answer = ask("POST", "/kv/select", body, headers)

                return decode(answer.body), answer
            end

            local function tell_event(what, id, body)
                local answer = ask("POST", "/kv/reservations/" .. id, body)

                ngx.say(what, ": ", answer.status, " ",
                        (answer.body:gsub(id, "ID"):gsub("\n$", "")))
            end

            local function refused(what, answer)
                ngx.say(what, ": ", answer.status, " ", answer.headers["retry-after"] or "-",
                        " ", (answer.body:gsub("\n$", "")))
            end

            local function counted()
                local stats = client.stats()
                local c = stats.requests

                ngx.say("made ", c.reservations, ", expired ", c.reservations_expired, ", full ",
                        c.reservations_full, ", held ", stats.index.selections)
            end
_EOC_
});

log_level('info');
worker_connections(512);
no_long_string();
no_shuffle();

plan tests => repeat_each() * 5 * blocks();

run_tests();

__DATA__

=== TEST 1: a worker is chosen and reserved, and counts as a request of nginx's own
--- script
            client.cache("w2", client.tokens(1, 12))

            local s = choose(prompt(1, 18))

            ngx.say(#s.id, " ", s.worker_id, " ", tostring(s.dp_rank), ", overlap ",
                    s.overlap.device, ", ", s.prompt_tokens, " tokens, ", s.prefill_tokens,
                    " to prefill, ", s.lease, " s")
            ngx.say(s.address:match("^127.0.0.1:%d+$") and "address" or s.address)
            ngx.say(client.load())

            tell_event("first", s.id, '{"event":"first"}')
            ngx.say(client.load())
            tell_event("first again", s.id, '{"event":"first"}')
            ngx.say(client.load())
            tell_event("renew", s.id, '{"event":"renew"}')
            tell_event("end", s.id, '{"event":"end"}')
            ngx.say("load: ", client.load() or "none")

            for _, event in ipairs { "first", "renew", "end" } do
                tell_event(event .. " afterwards", s.id, '{"event":"' .. event .. '"}')
            end

            counted()

            local body = prompt(1, 18)
            local sock = client.send("POST /v1/slow/completions HTTP/1.0\r\nContent-Length: "
                                     .. #body .. "\r\n\r\n" .. body)

            client.wait(function()
                return client.load() and not client.load():find("prefill")
            end)
            ngx.say("its own: ", client.load())
            sock:close()
            client.idle()
--- response_body
36 w2 userdata: NULL, overlap 3, 18 tokens, 6 to prefill, 120 s
address
w2/0 active_requests=1 w2/0 active_prefills=1 w2/0 prefill_tokens=6 w2/0 decode_blocks=4
first: 200 {"id":"ID","event":"first"}
w2/0 active_requests=1 w2/0 decode_blocks=4
first again: 200 {"id":"ID","event":"first"}
w2/0 active_requests=1 w2/0 decode_blocks=4
renew: 200 {"id":"ID","event":"renew"}
end: 200 {"id":"ID","event":"end"}
load: none
first afterwards: 404 {"error":"there is no reservation \"ID\": it has ended, or its lease is over, or its worker has gone"}
renew afterwards: 404 {"error":"there is no reservation \"ID\": it has ended, or its lease is over, or its worker has gone"}
end afterwards: 404 {"error":"there is no reservation \"ID\": it has ended, or its lease is over, or its worker has gone"}
made 1, expired 0, full 0, held 0
its own: w2/0 active_requests=1 w2/0 decode_blocks=4
load: none



=== TEST 2: what is wrong is said, and counts nothing
--- workers
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 events=on;
--- script
            local s = choose(prompt(1, 18))
            local id = s.id

            for _, body in ipairs { "", "[]", "{}", '{"event":"begin"}', '{"event":1}',
                                    '{"event":"end","usage":7}', '{"event":"end","more":1}',
                                    '{"event":"end"' }
            do
                tell_event(body, id, body)
            end

            for _, other in ipairs { "x", id:sub(1, -2), id .. "0", id:upper():gsub("%d", "f"),
                                     ("0"):rep(36), "ffff" .. id:sub(5) }
            do
                ngx.say(ask("POST", "/kv/reservations/" .. other, '{"event":"end"}').status)
            end

            show("GET", "/kv/reservations/x")
            show("GET", "/kv/select")
            ngx.say(client.load())
            tell_event("end", id, '{"event":"end","usage":null}')
--- response_body
: 400 {"error":"body: unexpected end at byte 0"}
[]: 400 {"error":"body: an object was expected at byte 0"}
{}: 400 {"error":"body: \"event\" is missing, \"first\", \"renew\" or \"end\""}
{"event":"begin"}: 400 {"error":"body: \"event\" must be \"first\", \"renew\" or \"end\" at byte 9"}
{"event":1}: 400 {"error":"body: a string was expected at byte 9"}
{"event":"end","usage":7}: 400 {"error":"body: \"usage\" must be the object of an engine's answer at byte 23"}
{"event":"end","more":1}: 400 {"error":"body: unknown field \"more\" at byte 16"}
{"event":"end": 400 {"error":"body: unexpected end at byte 14"}
404
404
404
404
404
404
GET /kv/reservations/x: 405 {"error":"\"reservations/x\" is called by POST, not by GET"}
GET /kv/select: 405 {"error":"\"select\" is called by POST, not by GET"}
w1/0 active_requests=1 w1/0 active_prefills=1 w1/0 prefill_tokens=18 w1/0 decode_blocks=4
end: 200 {"id":"ID","event":"end"}



=== TEST 3: the usage of an answer counts as that of nginx's own
--- script
            client.cache("w1", client.tokens(1, 8))

            local usage = '{"prompt_tokens":18,"completion_tokens":9,"prompt_tokens_details":{"cached_tokens":8}}'

            local function used(what)
                local u = client.stats().workers[1].usage

                ngx.say(what, ": ", u.requests, " answers, prompts ", u.prompt_tokens,
                        ", predicted ", u.predicted_tokens, ", best ", u.best_tokens, ", cached ",
                        u.cached_tokens)
            end

            ask("POST", "/v1/usage/completions", prompt(1, 18), "x-usage: " .. usage .. "\r\n")
            used("its own")

            local s = choose(prompt(1, 18))

            tell_event("first", s.id, '{"event":"first"}')
            tell_event("end", s.id, '{"usage":' .. usage .. ',"event":"end"}')
            used("both")

            s = choose(prompt(1, 18))
            tell_event("without cached tokens", s.id, '{"event":"end","usage":{"prompt_tokens":18}}')
            used("the same")
--- response_body
its own: 1 answers, prompts 18, predicted 8, best 8, cached 8
first: 200 {"id":"ID","event":"first"}
end: 200 {"id":"ID","event":"end"}
both: 2 answers, prompts 36, predicted 16, best 16, cached 16
without cached tokens: 200 {"id":"ID","event":"end"}
the same: 2 answers, prompts 36, predicted 16, best 16, cached 16



=== TEST 4: bounds hold over both, and who finds no room is refused at once
--- workers
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 max_active=2 max_prefill_tokens=30;
--- zone
queue=10
--- script
            local one = choose(prompt(1, 40))
            local _, answer = choose(prompt(101, 110))

            refused("tokens", answer)
            ngx.say(ask("POST", "/v1/completions", prompt(101, 110),
                        "x-request-timeout-ms: 1\r\n").status)
            tell_event("first", one.id, '{"event":"first"}')

            local two = choose(prompt(201, 210))

            ngx.say("the second: ", two.worker_id)
            tell_event("first", two.id, '{"event":"first"}')
            _, answer = choose(prompt(301, 310))
            refused("requests", answer)

            local thread = ngx.thread.spawn(function()
                return ask("POST", "/v1/completions", prompt(401, 410))
            end)

            client.wait(function() return client.stats().waiting == 1 end)
            _, answer = choose(prompt(301, 310))
            refused("another waits", answer)
            tell_event("end", one.id, '{"event":"end"}')

            local _, waited = ngx.thread.wait(thread)

            ngx.say("who waited: ", waited.status, " ", waited.headers["x-route"])
            tell_event("end", two.id, '{"event":"end"}')
            client.idle()
--- response_body_like
tokens: 429 1 \{"error":\{"message":"all workers are busy","type":"overloaded","param":null,"code":"overload"\}\}
429
first: 200 \{"id":"ID","event":"first"\}
the second: w1
first: 200 \{"id":"ID","event":"first"\}
requests: 429 1 \{"error":\{"message":"all workers are busy","type":"overloaded","param":null,"code":"overload"\}\}
another waits: 429 1 \{"error":\{"message":"all workers are busy","type":"overloaded","param":null,"code":"overload"\}\}
end: 200 \{"id":"ID","event":"end"\}
who waited: 200 w1
end: 200 \{"id":"ID","event":"end"\}
load: none



=== TEST 5: a lease ends what nobody ends
--- zone
lease=1s
--- script
            local s = choose(prompt(1, 18))

            ngx.say(s.lease, " s, ", client.load() and "load" or "none")
            client.idle()
            client.wait(function() return client.stats().requests.reservations_expired == 1 end)
            counted()
            tell_event("end", s.id, '{"event":"end"}')
--- response_body
1 s, load
load: none
made 1, expired 1, full 0, held 0
end: 404 {"error":"there is no reservation \"ID\": it has ended, or its lease is over, or its worker has gone"}



=== TEST 6: a worker that goes takes its reservations with it
--- workers
--- script
            local to = '{"address":"127.0.0.1:1"}'

            ngx.say(ask("PUT", "/kv/workers/w1", to).status)

            local s = choose(prompt(1, 18))

            ngx.say(client.load() and "load" or "none")
            ngx.say(ask("DELETE", "/kv/workers/w1").status)
            tell_event("renew", s.id, '{"event":"renew"}')
            client.wait(function() return client.stats().index.selections == 0 end)
            counted()
            ngx.say(ask("PUT", "/kv/workers/w1", to).status)
            client.idle()
            tell_event("end", s.id, '{"event":"end"}')
--- response_body
201
load
200
renew: 404 {"error":"there is no reservation \"ID\": it has ended, or its lease is over, or its worker has gone"}
made 1, expired 0, full 0, held 0
201
load: none
end: 404 {"error":"there is no reservation \"ID\": it has ended, or its lease is over, or its worker has gone"}



=== TEST 7: refusals are those of a request
--- workers
--- zone
unknown_model=404 max_body=1k
--- script
            local _, answer = choose(prompt(1, 18))

            refused("no worker", answer)
            ask("PUT", "/kv/workers/w1", '{"address":"127.0.0.1:1","model":"m"}')
            _, answer = choose(prompt(1, 18, ',"model":"other"'))
            refused("model", answer)
            _, answer = choose(prompt(1, 1000, ',"model":"m"'))
            ngx.say("long: ", answer.status, " ", decode(answer.body).worker_id)
            tell("no load", "POST", "/kv/select?path=/tokenize", "{}")
            tell("read_only", "POST", "/read/select", prompt(1, 18))
            tell("read_only", "POST", "/read/reservations/x", '{"event":"end"}')
            tell("no router", "POST", "/bare/select", prompt(1, 18))
            ngx.say("other site: ", ask("POST", "/kv/select", prompt(1, 18),
                    "Origin: http://example.com\r\nSec-Fetch-Site: cross-site\r\n").status)
            counted()
--- response_body
no worker: 503 1 {"error":{"message":"no worker is available","type":"service_unavailable","param":null,"code":"no_worker"}}
model: 404 - {"error":{"message":"the model does not exist","type":"invalid_request_error","param":"model","code":"model_not_found"}}
long: 200 w1
no load: 400 {"error":"a request to this path infers nothing, so that nothing is reserved for it: send it to any worker"}
read_only: 403 {"error":"\"select\" changes zone \"main\", and this location of kv_router_api is read_only"}
read_only: 403 {"error":"\"reservations/ID\" changes zone \"main\", and this location of kv_router_api is read_only"}
no router: 404 {"error":"\"select\" asks the policy of a router, and none is here: write \"access_by_lua_block { router:api() }\" in this location"}
other site: 403
made 1, expired 0, full 0, held 1



=== TEST 8: another request sees what is in flight
--- workers
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 events=on;
--- script
            client.cache("w1", client.tokens(1, 4))

            local s = choose(prompt(1, 40))
            local c = decode(ask("POST", "/kv/route", prompt(1, 40)).body).candidates[1]

            ngx.say(c.worker_id, ": ", c.load.in_flight, " in flight, ", c.load.additional_blocks,
                    " more")

            local two = choose(prompt(1, 40))

            ngx.say(two.worker_id, ": ", two.prefill_tokens, " to prefill")
            ngx.say(client.load())
            tell_event("end", s.id, '{"event":"end"}')
            tell_event("end", two.id, '{"event":"end"}')
            client.idle()

            c = decode(ask("POST", "/kv/route", prompt(1, 40)).body).candidates[1]
            ngx.say(c.load.in_flight, " in flight")
--- response_body
w1: 8 in flight, 2 more
w1: 8 to prefill
w1/0 active_requests=2 w1/0 active_prefills=2 w1/0 prefill_tokens=44 w1/0 decode_blocks=12
end: 200 {"id":"ID","event":"end"}
end: 200 {"id":"ID","event":"end"}
load: none
0 in flight



=== TEST 9: a worker without events is taken to have the prompt from then on
--- workers
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
--- script
            local s = choose(prompt(1, 40))

            client.wait(function()
                return client.stats().workers[1].confidence == "ESTIMATED"
                       and (client.stats().routed.appended or 0) >= 2
                       and client.stats().routed.unread == 0
            end)
            tell_event("end", s.id, '{"event":"end"}')

            local c = decode(ask("POST", "/kv/route", prompt(1, 40)).body).candidates[1]

            ngx.say(c.confidence, ": ", c.overlap.device > 0 and "has it" or "has it not")
--- response_body
end: 200 {"id":"ID","event":"end"}
ESTIMATED: has it



=== TEST 10: a policy that wants two workers
--- router
policy = "disaggregated", policy_conf = { local_prefill = 8 }
--- workers
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 events=on role=prefill;
    kv_router_worker  main w2 127.0.0.1:$TEST_NGINX_RAND_PORT_2 events=on role=decode;
--- script
            local _, answer = choose(prompt(1, 400))

            refused("a pair", answer)
            ngx.say("load: ", client.load() or "none")
            counted()
--- response_body
a pair: 501 - {"error":{"message":"the policy wants another worker to prefill, and POST /select reserves one: route this model by a policy without roles, or through nginx","type":"not_implemented","param":null,"code":"pair"}}
load: none
made 0, expired 0, full 0, held 0



=== TEST 11: the rank is told if a worker has several
--- workers
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 ranks=2;
    kv_router_worker  main w2 127.0.0.1:$TEST_NGINX_RAND_PORT_2;
--- script
            client.cache("w1", client.tokens(1, 8), { rank = 0 })
            client.cache("w1", client.tokens(1, 16), { rank = 1, first = 2000 })

            local s = choose(prompt(1, 20))

            ngx.say(s.worker_id, " ", s.dp_rank, " ", s.overlap.device)
            tell_event("end", s.id, '{"event":"end"}')
--- response_body
w1 1 4
end: 200 {"id":"ID","event":"end"}



=== TEST 12: who waits in the queue goes before, and a class's part is that of all
--- workers
    kv_router_worker  main w1 127.0.0.1:$TEST_NGINX_RAND_PORT_1 max_active=4;
--- zone
queue=10
--- router
class = "$http_x_class", classes = { default = {}, few = { most = 0.5 } }
--- script
            local ids = {}

            for i = 1, 4 do
                local s, answer = choose(prompt(100 * i, 100 * i + 20), "x-class: few\r\n")

                ids[#ids + 1] = s.id
                ngx.say(i, ": ", answer.status)
            end

            for _, id in ipairs(ids) do
                tell_event("end", id, '{"event":"end"}')
            end

            client.idle()
--- response_body
1: 200
2: 200
3: 200
4: 200
end: 200 {"id":"ID","event":"end"}
end: 200 {"id":"ID","event":"end"}
end: 200 {"id":"ID","event":"end"}
end: 200 {"id":"ID","event":"end"}
load: none
