# The HTTP API.  Each block is a transcript: what was called, what came back.

use lib 't/lib';
use KVRouter;

scripts(http_config => <<'_EOC_', config => <<'_EOC_');
    kv_router_zone  zone=main:16m block_size=4;
    kv_router_zone  zone=copy:16m block_size=4 index=positional;
    kv_router_zone  zone=pairs:16m block_size=4 eagle=on;
_EOC_
    location /kv/ {
        kv_router_api  main;
    }

    location /copy/ {
        kv_router_api  copy;
    }

    location /pairs/ {
        kv_router_api  pairs;
    }
_EOC_

log_level('info');
no_long_string();
no_shuffle();

plan tests => repeat_each() * blocks() * 5;

run_tests();

__DATA__

=== TEST 1: hashes are those of the vectors
--- script
            for _, more in ipairs { "", ',"lora_name":"adapter-a"',
                                    ',"lora_name":"","cache_salt":null' }
            do
                show("POST", "/kv/hash", '{"tokens":[0,1,2,3,4,5,6,7]' .. more
                                         .. "}")
            end

            tell("salted", "POST", "/kv/hash",
                 '{"cache_salt":"s","tokens":[0,1,2,3]}')
            tell("salted, escaped", "POST", "/kv/hash",
                 '{"tokens":[0,1,2,3,9],"cache_salt":"\\u0073"}')
            tell("no whole block", "POST", "/kv/hash", '{"tokens":[0,1,2]}')
            tell("nothing", "POST", "/kv/hash", '{"tokens":[]}')
--- response_body
POST /kv/hash: 200 {"local":["9143094415614847814","12124091508212882195"],"sequence":["9143094415614847814","9510318385840434533"]}
POST /kv/hash: 200 {"local":["6665157333201000639","11721812545976571723"],"sequence":["6665157333201000639","13351519314849170528"]}
POST /kv/hash: 200 {"local":["9143094415614847814","12124091508212882195"],"sequence":["9143094415614847814","9510318385840434533"]}
salted: 200 {"local":["555386108965864115"],"sequence":["555386108965864115"]}
salted, escaped: 200 {"local":["555386108965864115"],"sequence":["555386108965864115"]}
no whole block: 200 {"local":[],"sequence":[]}
nothing: 200 {"local":[],"sequence":[]}



=== TEST 2: workers come, change, are drained and go
--- script
            local function list()
                for _, w in ipairs(client.stats().workers) do
                    ngx.say("  ", w.worker_id, " ", w.address, " ", w.role,
                            " ranks=", w.ranks, " weight=", w.weight,
                            " model=", w.model, " max=", w.max_active, " ",
                            #w.lora > 0 and table.concat(w.lora, "+") .. " "
                            or "",
                            w.origin, " ", w.confidence,
                            w.draining and " draining" or "")
                end
            end

            local function call(method, path, body)
                ngx.say(method, " ", path, ": ",
                        ask(method, path, body).status)
                list()
            end

            call("PUT", "/kv/workers/a", '{"address":"127.0.0.1:1"}')
            call("PUT", "/kv/workers/a", '{"address":"[::1]:2","ranks":2,'
                 .. '"role":"prefill","weight":0.5,"model":"m/\\u00e9",'
                 .. '"max_active":9,"lora":["sql"," chat ",""]}')
            call("PUT", "/kv/workers/b", '{"address":"unix:/tmp/b.sock"}')
            call("POST", "/kv/workers/a/drain")
            call("POST", "/kv/workers/a/drain", '{"drain":true}')
            call("POST", "/kv/workers/a/drain", '{"drain":false}')
            call("DELETE", "/kv/workers/a")
            tell("again", "DELETE", "/kv/workers/a")
            tell("drained", "POST", "/kv/workers/a/drain")
            call("PUT", "/kv/workers/a", '{"address":"127.0.0.1:3"}')
--- response_body
PUT /kv/workers/a: 201
  a 127.0.0.1:1 both ranks=1 weight=1 model= max=0 api UNKNOWN
PUT /kv/workers/a: 200
  a [::1]:2 prefill ranks=2 weight=0.5 model=m/é max=9 sql+chat api UNKNOWN
PUT /kv/workers/b: 201
  a [::1]:2 prefill ranks=2 weight=0.5 model=m/é max=9 sql+chat api UNKNOWN
  b unix:/tmp/b.sock both ranks=1 weight=1 model= max=0 api UNKNOWN
POST /kv/workers/a/drain: 200
  a [::1]:2 prefill ranks=2 weight=0.5 model=m/é max=9 sql+chat api UNKNOWN draining
  b unix:/tmp/b.sock both ranks=1 weight=1 model= max=0 api UNKNOWN
POST /kv/workers/a/drain: 200
  a [::1]:2 prefill ranks=2 weight=0.5 model=m/é max=9 sql+chat api UNKNOWN draining
  b unix:/tmp/b.sock both ranks=1 weight=1 model= max=0 api UNKNOWN
POST /kv/workers/a/drain: 200
  a [::1]:2 prefill ranks=2 weight=0.5 model=m/é max=9 sql+chat api UNKNOWN
  b unix:/tmp/b.sock both ranks=1 weight=1 model= max=0 api UNKNOWN
DELETE /kv/workers/a: 200
  b unix:/tmp/b.sock both ranks=1 weight=1 model= max=0 api UNKNOWN
again: 404 {"error":"unknown worker \"a\""}
drained: 404 {"error":"unknown worker \"a\""}
PUT /kv/workers/a: 201
  a 127.0.0.1:3 both ranks=1 weight=1 model= max=0 api UNKNOWN
  b unix:/tmp/b.sock both ranks=1 weight=1 model= max=0 api UNKNOWN



=== TEST 3: a worker that is wrong in one word is not there
--- script
            local function put(body, id)
                local answer = ask("PUT", "/kv/workers/" .. (id or "bad"), body)

                ngx.say(body:sub(1, 60), ": ", answer.status, " ",
                        (answer.body:gsub("\n$", "")))
            end

            local function with(more)
                put('{"address":"127.0.0.1:80",' .. more .. "}")
            end

            put('')
            put('[]')
            put('{"address":"127.0.0.1:80"} x')
            put('{"address":null}')
            put('{"address":1}')
            put('{"address":"engine.example:80"}')
            put('{"address":"127.0.0.1"}')
            put('{"address":"127.0.0.1:0"}')
            put('{"address":"127.0.0.1:65536"}')
            put('{"address":"::1:80"}')
            put('{"address":"[::1:80"}')
            put('{"address":"unix:relative"}')
            put('{"address":"http://127.0.0.1:80"}')
            with('"addres":1')
            with('"ranks":0')
            with('"ranks":1025')
            with('"ranks":1.0')
            with('"weight":0')
            with('"weight":1e9')
            with('"role":"boss"')
            with('"max_active":-1')
            with('"max_prefill_tokens":1000000001')
            with('"max_prefill_tokens":"all"')
            with('"max_prefill_tokens":null')
            with('"max_fails":1001')
            with('"fail_timeout":0')
            with('"slow_start":"1s"')
            with('"model":"\\u0001"')
            with('"lora":"a"')
            with('"lora":[1]')
            with('"lora":["a,b"]')
            with('"lora":["\\u00e9"]')
            with('"lora":["' .. ("x"):rep(256) .. '","' .. ("x"):rep(255)
                 .. '"]')
            put('{"address":"127.0.0.1:80"}', "b%20d")
            put('{"address":"127.0.0.1:80"}', ("x"):rep(64))
            show("GET", "/kv/workers")
--- response_body
: 400 {"error":"body: unexpected end at byte 0"}
[]: 400 {"error":"body: an object was expected at byte 0"}
{"address":"127.0.0.1:80"} x: 400 {"error":"body: nothing more was expected at byte 27"}
{"address":null}: 400 {"error":"invalid address \"\" of worker \"bad\": the address is missing"}
{"address":1}: 400 {"error":"body: a string was expected at byte 11"}
{"address":"engine.example:80"}: 400 {"error":"invalid address \"engine.example:80\" of worker \"bad\": a host name needs the directive \"resolver\" in the http block: add it, or write an IP address"}
{"address":"127.0.0.1"}: 400 {"error":"invalid address \"127.0.0.1\" of worker \"bad\": the port is missing: \"host:port\" was expected"}
{"address":"127.0.0.1:0"}: 400 {"error":"invalid address \"127.0.0.1:0\" of worker \"bad\": the port must be 1..65535"}
{"address":"127.0.0.1:65536"}: 400 {"error":"invalid address \"127.0.0.1:65536\" of worker \"bad\": the port must be 1..65535"}
{"address":"::1:80"}: 400 {"error":"invalid address \"::1:80\" of worker \"bad\": an IPv6 address needs brackets: \"[::1]:8000\""}
{"address":"[::1:80"}: 400 {"error":"invalid address \"[::1:80\" of worker \"bad\": the IPv6 address needs a ] at its end"}
{"address":"unix:relative"}: 400 {"error":"invalid address \"unix:relative\" of worker \"bad\": the path of a unix: address must be absolute"}
{"address":"http://127.0.0.1:80"}: 400 {"error":"invalid address \"http://127.0.0.1:80\" of worker \"bad\": an address has no scheme, as all workers of a zone have the scheme of \"proxy_pass\": write \"host:port\" alone"}
{"address":"127.0.0.1:80","addres":1}: 400 {"error":"body: unknown field \"addres\" at byte 27"}
{"address":"127.0.0.1:80","ranks":0}: 400 {"error":"body: \"ranks\" must be 1..1024 at byte 34"}
{"address":"127.0.0.1:80","ranks":1025}: 400 {"error":"body: \"ranks\" must be 1..1024 at byte 34"}
{"address":"127.0.0.1:80","ranks":1.0}: 400 {"error":"body: \"ranks\" must be 1..1024 at byte 34"}
{"address":"127.0.0.1:80","weight":0}: 400 {"error":"body: \"weight\" must be 0.001..1000 at byte 35"}
{"address":"127.0.0.1:80","weight":1e9}: 400 {"error":"body: \"weight\" must be 0.001..1000 at byte 35"}
{"address":"127.0.0.1:80","role":"boss"}: 400 {"error":"body: \"role\" must be \"both\", \"prefill\" or \"decode\" at byte 33"}
{"address":"127.0.0.1:80","max_active":-1}: 400 {"error":"body: \"max_active\" must be 0..1000000 at byte 39"}
{"address":"127.0.0.1:80","max_prefill_tokens":1000000001}: 400 {"error":"body: \"max_prefill_tokens\" must be 0..1000000000, or \"auto\" at byte 47"}
{"address":"127.0.0.1:80","max_prefill_tokens":"all"}: 400 {"error":"body: \"max_prefill_tokens\" must be 0..1000000000, or \"auto\" at byte 47"}
{"address":"127.0.0.1:80","max_prefill_tokens":null}: 400 {"error":"body: a value was expected at byte 47"}
{"address":"127.0.0.1:80","max_fails":1001}: 400 {"error":"body: \"max_fails\" must be 0..1000 at byte 38"}
{"address":"127.0.0.1:80","fail_timeout":0}: 400 {"error":"body: \"fail_timeout\" must be 0.001..3600 seconds at byte 41"}
{"address":"127.0.0.1:80","slow_start":"1s"}: 400 {"error":"body: a value was expected at byte 39"}
{"address":"127.0.0.1:80","model":"\u0001"}: 400 {"error":"body: a control character in the string at byte 34"}
{"address":"127.0.0.1:80","lora":"a"}: 400 {"error":"body: an array was expected at byte 33"}
{"address":"127.0.0.1:80","lora":[1]}: 400 {"error":"body: a string was expected at byte 34"}
{"address":"127.0.0.1:80","lora":["a,b"]}: 400 {"error":"body: \"lora\" must be names of printable ASCII without a comma, of 511 bytes together at byte 34"}
{"address":"127.0.0.1:80","lora":["\u00e9"]}: 400 {"error":"body: \"lora\" must be names of printable ASCII without a comma, of 511 bytes together at byte 34"}
{"address":"127.0.0.1:80","lora":["xxxxxxxxxxxxxxxxxxxxxxxxx: 400 {"error":"body: \"lora\" must be names of printable ASCII without a comma, of 511 bytes together at byte 293"}
{"address":"127.0.0.1:80"}: 400 {"error":"invalid worker id \"b d\": 1..63 characters A-Z a-z 0-9 . _ : - were expected"}
{"address":"127.0.0.1:80"}: 400 {"error":"invalid worker id \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\": 1..63 characters A-Z a-z 0-9 . _ : - were expected"}
GET /kv/workers: 200 []



=== TEST 4: an event is applied, and queries see it
--- script
            local L1, L2 = "9143094415614847814", "12124091508212882195"
            local prompt = '{"tokens":[0,1,2,3,4,5,6,7,8]}'

            ask("PUT", "/kv/workers/a", '{"address":"127.0.0.1:1"}')
            ask("PUT", "/kv/workers/7", '{"address":"127.0.0.1:2","ranks":2}')

            show("POST", "/kv/query", prompt)

            -- the largest numbers stay exact, and ids may be numbers
            show("POST", "/kv/events",
                 event("a", stored(nil, { { "18446744073709551615", L1 } })))
            show("POST", "/kv/events",
                 event("a", stored("18446744073709551615",
                                   { { "18446744073709551614", L2 } })))
            show("POST", "/kv/events", '{"worker_id":7,"event":{"event_id":1,'
                 .. '"data":{"stored":{"blocks":[{"block_hash":1,'
                 .. '"tokens_hash":' .. L1 .. '}]}},"dp_rank":1}}')
            show("POST", "/kv/query", prompt)
            show("POST", "/kv/query_by_hash",
                 '{"block_hashes":[' .. L1 .. ',"' .. L2 .. '"]}')
            show("POST", "/kv/query_by_hash",
                 '{"early_exit":true,"block_hashes":[' .. L1 .. ',' .. L2
                 .. ']}')
            show("POST", "/kv/query_by_hash",
                 '{"block_hashes":["5"],"early_exit":1}')
            show("POST", "/kv/query_by_hash",
                 '{"block_hashes":["5"],"early_exit":null}')
            show("POST", "/kv/query_by_hash", '{"block_hashes":[]}')

            -- another namespace is another prompt
            show("POST", "/kv/query", '{"tokens":[0,1,2,3],"cache_salt":"s"}')
            show("POST", "/kv/query",
                 '{"tokens":[0,1,2,3],"early_exit":true,"lora_name":null}')

            ask("PUT", "/kv/workers/n", '{"address":"127.0.0.1:3"}')

            -- an object of Mooncake's store, of which nothing can be indexed
            show("POST", "/kv/events?worker=n",
                 '{"event_type":"stored","object_key":"m@tp_rank:0@ff",'
                 .. '"seq_hashes":[],"token_ids":null,"medium":"cpu"}')

            -- an adapter that events name by its number alone
            show("POST", "/kv/events?worker=n",
                 '{"type":"BlockStored","block_hashes":[9],'
                 .. '"parent_block_hash":null,"token_ids":[7,7,7,7],'
                 .. '"block_size":4,"lora_id":42}')

            for _, lora in ipairs { '"lora_id":42', '"lora_id":"42"',
                                    '"lora_name":"42"',
                                    '"lora_id":42,"lora_name":"a"',
                                    '"lora_id":43', '"lora_id":null',
                                    '"lora_id":-1' }
            do
                ngx.say(lora)
                show("POST", "/kv/query", '{"tokens":[7,7,7,7],' .. lora .. "}")
            end
--- response_body
POST /kv/query: 200 {"block_size":4,"blocks":2,"scores":[]}
POST /kv/events: 200 {"applied":1,"refused":[]}
POST /kv/events: 200 {"applied":1,"refused":[]}
POST /kv/events: 200 {"applied":1,"refused":[]}
POST /kv/query: 200 {"block_size":4,"blocks":2,"scores":[{"worker_id":"a","dp_rank":0,"device":2,"host":2,"disk":2},{"worker_id":"7","dp_rank":1,"device":1,"host":1,"disk":1}]}
POST /kv/query_by_hash: 200 {"block_size":4,"blocks":2,"scores":[{"worker_id":"a","dp_rank":0,"device":2,"host":2,"disk":2},{"worker_id":"7","dp_rank":1,"device":1,"host":1,"disk":1}]}
POST /kv/query_by_hash: 200 {"block_size":4,"blocks":2,"scores":[{"worker_id":"a","dp_rank":0,"device":2,"host":2,"disk":2},{"worker_id":"7","dp_rank":1,"device":1,"host":1,"disk":1}]}
POST /kv/query_by_hash: 400 {"error":"body: true or false was expected at byte 35"}
POST /kv/query_by_hash: 200 {"block_size":4,"blocks":1,"scores":[]}
POST /kv/query_by_hash: 200 {"block_size":4,"blocks":0,"scores":[]}
POST /kv/query: 200 {"block_size":4,"blocks":1,"scores":[]}
POST /kv/query: 200 {"block_size":4,"blocks":1,"scores":[{"worker_id":"7","dp_rank":1,"device":1,"host":1,"disk":1},{"worker_id":"a","dp_rank":0,"device":1,"host":1,"disk":1}]}
POST /kv/events?worker=n: 200 {"applied":0,"filtered":1,"refused":[]}
POST /kv/events?worker=n: 200 {"applied":1,"refused":[]}
"lora_id":42
POST /kv/query: 200 {"block_size":4,"blocks":1,"scores":[{"worker_id":"n","dp_rank":0,"device":1,"host":1,"disk":1}]}
"lora_id":"42"
POST /kv/query: 200 {"block_size":4,"blocks":1,"scores":[{"worker_id":"n","dp_rank":0,"device":1,"host":1,"disk":1}]}
"lora_name":"42"
POST /kv/query: 200 {"block_size":4,"blocks":1,"scores":[{"worker_id":"n","dp_rank":0,"device":1,"host":1,"disk":1}]}
"lora_id":42,"lora_name":"a"
POST /kv/query: 200 {"block_size":4,"blocks":1,"scores":[]}
"lora_id":43
POST /kv/query: 200 {"block_size":4,"blocks":1,"scores":[]}
"lora_id":null
POST /kv/query: 200 {"block_size":4,"blocks":1,"scores":[]}
"lora_id":-1
POST /kv/query: 400 {"error":"body: an integer 0..18446744073709551615 was expected at byte 30"}



=== TEST 5: a removal in the middle ends the match there, and a refill restores it
--- script
            local function score(what)
                tell(what, "POST", "/kv/query_by_hash",
                     '{"block_hashes":[1,2,3,4,5]}')
            end

            local function send(data)
                return ask("POST", "/kv/events", event("a", data)).body
            end

            ask("PUT", "/kv/workers/a", '{"address":"127.0.0.1:1"}')
            send(stored(nil, { { 11, 1 }, { 12, 2 }, { 13, 3 }, { 14, 4 } }))
            score("all four")
            send(removed(12))
            score("without the second")
            send(stored(14, { { 15, 5 } }))
            score("and with a fifth")
            send(stored(11, { { 12, 2 } }))
            score("refilled")
            send(removed(11, 13))
            score("without the first")
            ngx.print("gone already: ", send(removed(11, 13, 99)))
            send(stored(nil, { { 11, 1 } }))
            score("up to the third")
            send('"cleared"')
            score("cleared")
            ngx.print("behind what was cleared: ",
                      send(stored(11, { { 12, 2 } })))
--- response_body
all four: 200 {"block_size":4,"blocks":5,"scores":[{"worker_id":"a","dp_rank":0,"device":4,"host":4,"disk":4}]}
without the second: 200 {"block_size":4,"blocks":5,"scores":[{"worker_id":"a","dp_rank":0,"device":1,"host":1,"disk":1}]}
and with a fifth: 200 {"block_size":4,"blocks":5,"scores":[{"worker_id":"a","dp_rank":0,"device":1,"host":1,"disk":1}]}
refilled: 200 {"block_size":4,"blocks":5,"scores":[{"worker_id":"a","dp_rank":0,"device":5,"host":5,"disk":5}]}
without the first: 200 {"block_size":4,"blocks":5,"scores":[]}
gone already: {"applied":1,"unknown_blocks":3,"refused":[]}
up to the third: 200 {"block_size":4,"blocks":5,"scores":[{"worker_id":"a","dp_rank":0,"device":2,"host":2,"disk":2}]}
cleared: 200 {"block_size":4,"blocks":5,"scores":[]}
behind what was cleared: {"applied":0,"refused":[{"at":0,"why":"parent: the parent is not held by this worker and rank"}]}



=== TEST 6: tiers are cumulative, each without a break from the root
--- script
            local function send(tier, data)
                ask("POST", "/kv/events", event("a", data, 0, tier))
            end

            local function score(what)
                tell(what, "POST", "/kv/query_by_hash",
                     '{"block_hashes":[1,2,3,4,5]}')
            end

            ask("PUT", "/kv/workers/a", '{"address":"127.0.0.1:1"}')

            send("host_pinned", stored(nil, { { 11, 1 }, { 12, 2 }, { 13, 3 } }))
            score("three in host")
            send("device", stored(nil, { { 11, 1 } }))
            score("the first in device too")
            send("disk", stored(13, { { 14, 4 } }))
            score("a fourth on disk")
            send("external", stored(14, { { 15, 5 } }))
            score("a fifth somewhere else")
            send("host_pinned", removed(11))
            score("the first in device alone")
            send("device", removed(11))
            score("the first nowhere")
--- response_body
three in host: 200 {"block_size":4,"blocks":5,"scores":[{"worker_id":"a","dp_rank":0,"device":0,"host":3,"disk":3}]}
the first in device too: 200 {"block_size":4,"blocks":5,"scores":[{"worker_id":"a","dp_rank":0,"device":1,"host":3,"disk":3}]}
a fourth on disk: 200 {"block_size":4,"blocks":5,"scores":[{"worker_id":"a","dp_rank":0,"device":1,"host":3,"disk":4}]}
a fifth somewhere else: 200 {"block_size":4,"blocks":5,"scores":[{"worker_id":"a","dp_rank":0,"device":1,"host":3,"disk":4}]}
the first in device alone: 200 {"block_size":4,"blocks":5,"scores":[{"worker_id":"a","dp_rank":0,"device":1,"host":3,"disk":4}]}
the first nowhere: 200 {"block_size":4,"blocks":5,"scores":[]}



=== TEST 7: of several events the wrong ones are refused and the others applied
--- script
            ask("PUT", "/kv/workers/a", '{"address":"127.0.0.1:1"}')
            ask("PUT", "/kv/workers/b", '{"address":"127.0.0.1:2"}')

            show("POST", "/kv/events", "[" .. table.concat({
                event("a", stored(nil, { { 11, 1 } })),
                event("a", stored(99, { { 12, 2 } })),
                event("nobody", stored(nil, { { 11, 1 } })),
                event("a", stored(nil, { { 18, 8 } }), 1),
                event("b", stored(11, { { 12, 2 } })),
                event("a", stored(nil, { { 13, 3 } }), 0, "cloud"),
                event("a", stored(11, { { 12, 2 } })),
                event("b", stored(nil, { { 11, 1 }, { 12, 2 } })),
            }, ",") .. "]")
            show("POST", "/kv/query_by_hash", '{"block_hashes":[1,2]}')
            show("POST", "/kv/events", "[]")
--- response_body
POST /kv/events: 200 {"applied":4,"filtered":1,"refused":[{"at":1,"why":"parent: the parent is not held by this worker and rank"},{"at":2,"why":"unknown worker \"nobody\": PUT /workers/nobody first"},{"at":4,"why":"parent: the parent is not held by this worker and rank"}]}
POST /kv/query_by_hash: 200 {"block_size":4,"blocks":2,"scores":[{"worker_id":"a","dp_rank":0,"device":2,"host":2,"disk":2},{"worker_id":"b","dp_rank":0,"device":2,"host":2,"disk":2}]}
POST /kv/events: 200 {"applied":0,"refused":[]}



=== TEST 8: what can't be read to its end is refused as a whole
--- script
            local good = event("a", stored(nil, { { 11, 1 } }))

            ask("PUT", "/kv/workers/a", '{"address":"127.0.0.1:1"}')

            for _, body in ipairs {
                "", "null", "[" .. good, "[" .. good .. ",{]", good .. "x",
                good:sub(1, -2), "\129\162",
            } do
                show("POST", "/kv/events", body)
            end

            show("POST", "/kv/query_by_hash", '{"block_hashes":[1]}')

            -- what is JSON, but no event, is refused alone
            for _, body in ipairs {
                "{}", "[7," .. good:gsub("11", "1.0") .. ","
                .. good:gsub("11", "18446744073709551616") .. "," .. good .. "]",
            } do
                show("POST", "/kv/events", body)
            end

            show("POST", "/kv/query_by_hash", '{"block_hashes":[1]}')
--- response_body
POST /kv/events: 400 {"error":"body: it is empty"}
POST /kv/events: 400 {"error":"body: syntax: not a batch"}
POST /kv/events: 400 {"error":"body: JSON syntax error behind event 1, nothing was applied"}
POST /kv/events: 400 {"error":"body: JSON syntax error behind event 1, nothing was applied"}
POST /kv/events: 400 {"error":"body: JSON syntax error behind event 1, nothing was applied"}
POST /kv/events: 400 {"error":"body: JSON syntax error behind event 0, nothing was applied"}
POST /kv/events: 400 {"error":"body: syntax: broken msgpack"}
POST /kv/query_by_hash: 200 {"block_size":4,"blocks":1,"scores":[]}
POST /kv/events: 200 {"applied":0,"refused":[{"at":0,"why":"worker: no worker_id"}]}
POST /kv/events: 200 {"applied":1,"refused":[{"at":0,"why":"type: event is not an object"},{"at":1,"why":"syntax: not an unsigned 64 bit integer"},{"at":2,"why":"syntax: not an unsigned 64 bit integer"}]}
POST /kv/query_by_hash: 200 {"block_size":4,"blocks":1,"scores":[{"worker_id":"a","dp_rank":0,"device":1,"host":1,"disk":1}]}



=== TEST 9: a dump, replayed elsewhere, gives the same answers
--- script
            local function both(path, body)
                local one = ask("POST", "/kv/" .. path, body).body
                local two = ask("POST", "/copy/" .. path, body).body

                ngx.print(one == two and "same: " or "OTHER: " .. two, one)
            end

            local function send(api, ...)
                return ask("POST", api .. "/events", event(...)).body
            end

            for _, api in ipairs { "/kv", "/copy" } do
                ask("PUT", api .. "/workers/a",
                    '{"address":"127.0.0.1:1","ranks":2}')
                ask("PUT", api .. "/workers/b", '{"address":"127.0.0.1:2"}')
            end

            -- chains that fork, holes, tiers, the largest number
            send("/kv", "a", stored(nil, { { 11, 1 }, { 12, 2 }, { 13, 3 } }))
            send("/kv", "a", stored(11, { { 22, 22 }, { 23, 23 } }))
            send("/kv", "a", stored(13, { { "18446744073709551615", 4 } }),
                 0, "host_pinned")
            send("/kv", "a", removed(12))
            send("/kv", "a", stored(nil, { { 11, 1 } }), 1, "disk")
            send("/kv", "b", stored(nil, { { 7, 1 }, { 8, 2 }, { 9, 3 } }))

            local dump = ask("GET", "/kv/dump")
            local lines = {}

            for line in dump.body:gmatch("[^\n]+") do
                lines[#lines + 1] = line
            end

            ngx.say(dump.headers["content-type"])

            local answer = require "cjson".decode(ask("POST", "/copy/events",
                "[" .. table.concat(lines, ",") .. "]").body)

            ngx.say(answer.applied == #lines, " ", #answer.refused)

            both("query_by_hash", '{"block_hashes":[1,2,3,4]}')
            both("query_by_hash", '{"block_hashes":[1,22,23]}')

            -- what is behind the hole is there again when it is filled
            for _, api in ipairs { "/kv", "/copy" } do
                send(api, "a", stored(11, { { 12, 2 } }))
            end

            both("query_by_hash", '{"block_hashes":[1,2,3,4]}')

            ask("DELETE", "/copy/workers/a")
            ask("DELETE", "/copy/workers/b")
            ask("GET", "/copy/dump")
            tell("empty", "GET", "/copy/dump")
--- response_body
application/x-ndjson
true 0
same: {"block_size":4,"blocks":4,"scores":[{"worker_id":"b","dp_rank":0,"device":3,"host":3,"disk":3},{"worker_id":"a","dp_rank":0,"device":1,"host":1,"disk":1},{"worker_id":"a","dp_rank":1,"device":0,"host":0,"disk":1}]}
same: {"block_size":4,"blocks":3,"scores":[{"worker_id":"a","dp_rank":0,"device":3,"host":3,"disk":3},{"worker_id":"b","dp_rank":0,"device":1,"host":1,"disk":1},{"worker_id":"a","dp_rank":1,"device":0,"host":0,"disk":1}]}
same: {"block_size":4,"blocks":4,"scores":[{"worker_id":"a","dp_rank":0,"device":3,"host":4,"disk":4},{"worker_id":"b","dp_rank":0,"device":3,"host":3,"disk":3},{"worker_id":"a","dp_rank":1,"device":0,"host":0,"disk":1}]}
empty: 200 



=== TEST 10: unknown paths and wrong methods
--- script
            for _, path in ipairs { "", "nope", "workers/", "workers/a/b",
                                    "workers/a/drain/x" }
            do
                local answer = ask("POST", "/kv/" .. path, "{}")

                ngx.say(answer.status, " ", answer.body:sub(1, 60))
            end

            for _, call in ipairs {
                { "GET", "/kv/query" }, { "PUT", "/kv/events", "{}" },
                { "POST", "/kv/dump", "" }, { "DELETE", "/kv/workers" },
                { "GET", "/kv/workers/a" }, { "PUT", "/kv/workers/a/drain", "" },
            } do
                local answer = show(unpack(call))

                ngx.say("  Allow: ", answer.headers.allow)
            end
--- response_body
404 {"error":"there is no call \"\", only POST query, POST query
404 {"error":"there is no call \"nope\", only POST query, POST q
404 {"error":"there is no call \"workers/\", only POST query, PO
404 {"error":"there is no call \"workers/a/b\", only POST query,
404 {"error":"there is no call \"workers/a/drain/x\", only POST 
GET /kv/query: 405 {"error":"\"query\" is called by POST, not by GET"}
  Allow: POST
PUT /kv/events: 405 {"error":"\"events\" is called by POST, not by PUT"}
  Allow: POST
POST /kv/dump: 405 {"error":"\"dump\" is called by GET, HEAD, not by POST"}
  Allow: GET, HEAD
DELETE /kv/workers: 405 {"error":"\"workers\" is called by GET, HEAD, not by DELETE"}
  Allow: GET, HEAD
GET /kv/workers/a: 405 {"error":"\"workers/a\" is called by PUT, DELETE, not by GET"}
  Allow: PUT, DELETE
PUT /kv/workers/a/drain: 405 {"error":"\"workers/a/drain\" is called by POST, not by PUT"}
  Allow: POST



=== TEST 11: a query that is wrong says where
--- script
            for _, body in ipairs {
                '', '{}', '{"tokens":"x"}', '{"tokens":[1.5]}',
                '{"tokens":[-1]}', '{"tokens":[4294967296]}',
                '{"tokens":[1],"lora":"x"}', '{"tokens":[1],"lora_name":1}',
                '{"tokens":[1],"early_exit":1}', '{"tokens":[1]',
                '{"tokens":[1]}]', '{"tokens":[1] "a":2}', '["tokens"]',
                '{"tokens":[1,]}', '{"tokens":[01]}',
            } do
                tell(body, "POST", "/kv/query", body)
            end

            tell("deep", "POST", "/kv/query", ("["):rep(100000))

            for _, body in ipairs {
                '{}', '{"block_hashes":[18446744073709551616]}',
                '{"block_hashes":[1.0]}', '{"block_hashes":["a"]}',
                '{"block_hashes":{}}', '{"hashes":[1]}',
            } do
                tell(body, "POST", "/kv/query_by_hash", body)
            end
--- response_body
: 400 {"error":"body: unexpected end at byte 0"}
{}: 400 {"error":"body: \"tokens\" is missing"}
{"tokens":"x"}: 400 {"error":"body: an array was expected at byte 10"}
{"tokens":[1.5]}: 400 {"error":"body: a token id 0..4294967295 was expected at byte 11"}
{"tokens":[-1]}: 400 {"error":"body: a token id 0..4294967295 was expected at byte 11"}
{"tokens":[4294967296]}: 400 {"error":"body: a token id 0..4294967295 was expected at byte 11"}
{"tokens":[1],"lora":"x"}: 400 {"error":"body: unknown field \"lora\" at byte 15"}
{"tokens":[1],"lora_name":1}: 400 {"error":"body: a string was expected at byte 26"}
{"tokens":[1],"early_exit":1}: 400 {"error":"body: true or false was expected at byte 27"}
{"tokens":[1]: 400 {"error":"body: unexpected end at byte 13"}
{"tokens":[1]}]: 400 {"error":"body: nothing more was expected at byte 14"}
{"tokens":[1] "a":2}: 400 {"error":"body: a comma or } was expected at byte 14"}
["tokens"]: 400 {"error":"body: an object was expected at byte 0"}
{"tokens":[1,]}: 400 {"error":"body: a token id 0..4294967295 was expected at byte 13"}
{"tokens":[01]}: 400 {"error":"body: a token id 0..4294967295 was expected at byte 11"}
deep: 400 {"error":"body: an object was expected at byte 0"}
{}: 400 {"error":"body: \"block_hashes\" is missing"}
{"block_hashes":[18446744073709551616]}: 400 {"error":"body: an integer 0..18446744073709551615 was expected at byte 17"}
{"block_hashes":[1.0]}: 400 {"error":"body: an integer 0..18446744073709551615 was expected at byte 17"}
{"block_hashes":["a"]}: 400 {"error":"body: an integer 0..18446744073709551615 was expected at byte 17"}
{"block_hashes":{}}: 400 {"error":"body: an array was expected at byte 16"}
{"hashes":[1]}: 400 {"error":"body: unknown field \"hashes\" at byte 2"}



=== TEST 12: long bodies go to a file, and are read from there
--- config
        client_body_buffer_size  1k;
--- script
            local n = 131072
            local prompt = client.tokens(0, n - 1)
            local blocks = {}

            for i = 1, 5000 do
                blocks[i] = { 10000000000000000000ULL + i, i }
                blocks[i][1] = tostring(blocks[i][1]):sub(1, -4)
            end

            ask("PUT", "/kv/workers/a", '{"address":"127.0.0.1:1"}')
            show("POST", "/kv/query", '{"tokens":' .. prompt .. "}")
            show("POST", "/kv/events", event("a", stored(nil, blocks)))

            local hashes = {}

            for i = 1, 5001 do
                hashes[i] = i
            end

            show("POST", "/kv/query_by_hash", '{"block_hashes":['
                 .. table.concat(hashes, ",") .. "]}")

            -- in pieces, without a length
            local sock = client.send("POST /kv/query HTTP/1.1\r\n"
                                     .. "Host: localhost\r\n"
                                     .. "Connection: close\r\n"
                                     .. "Transfer-Encoding: chunked\r\n\r\n")

            for _, piece in ipairs { '{"tok', 'ens":', prompt, "}" } do
                sock:send(string.format("%x\r\n%s\r\n", #piece, piece))
            end

            sock:send("0\r\n\r\n")
            ngx.print(client.receive(sock).body)
--- response_body
POST /kv/query: 200 {"block_size":4,"blocks":32768,"scores":[]}
POST /kv/events: 200 {"applied":1,"refused":[]}
POST /kv/query_by_hash: 200 {"block_size":4,"blocks":5001,"scores":[{"worker_id":"a","dp_rank":0,"device":5000,"host":5000,"disk":5000}]}
{"block_size":4,"blocks":32768,"scores":[]}



=== TEST 13: a prompt over max_tokens
--- zone_params chop
max_tokens=8
--- script
            tell("eight", "POST", "/kv/query", '{"tokens":[1,2,3,4,5,6,7,8]}')
            tell("nine", "POST", "/kv/query", '{"tokens":[1,2,3,4,5,6,7,8,9]}')
            tell("nine", "POST", "/kv/hash", '{"tokens":[1,2,3,4,5,6,7,8,9]}')
--- response_body
eight: 200 {"block_size":4,"blocks":2,"scores":[]}
nine: 400 {"error":"body: 9 tokens are more than max_tokens=8"}
nine: 400 {"error":"body: 9 tokens are more than max_tokens=8"}



=== TEST 14: HEAD is GET without the body
--- script
            for _, path in ipairs { "/kv/dump", "/kv/workers", "/kv/stats" } do
                local head = ask("HEAD", path)
                local get = ask("GET", path)

                ngx.say(path, " ", head.status, " ", #head.body, " ",
                        head.headers["content-type"], " ",
                        tonumber(get.headers["content-length"]) == #get.body)
            end
--- response_body
/kv/dump 200 0 application/x-ndjson true
/kv/workers 200 0 application/json true
/kv/stats 200 0 application/json true



=== TEST 15: a batch as engines publish it
--- script
            local function u32(n)
                return string.char(0xce, bit.band(bit.rshift(n, 24), 255),
                                   bit.band(bit.rshift(n, 16), 255),
                                   bit.band(bit.rshift(n, 8), 255),
                                   bit.band(n, 255))
            end

            local function str(s)
                return "\217" .. string.char(#s) .. s
            end

            -- [1, [["BlockStored", [21, 22], nil, [0 .. 7], 4, nil],
            --      ["BlockStored", [23], nil, [0 .. 3], 4, nil, "ODD"]]]
            local batch = "\146\1\146"
                .. "\150" .. str("BlockStored") .. "\146" .. u32(21) .. u32(22)
                .. "\192\152\0\1\2\3\4\5\6\7\4\192"
                .. "\151" .. str("BlockStored") .. "\145\23\192\148\0\1\2\3\4"
                .. "\192" .. str("ODD")

            ask("PUT", "/kv/workers/a", '{"address":"127.0.0.1:1"}')
            show("POST", "/kv/events", batch)
            show("POST", "/kv/events?worker=a%2F", batch)
            show("POST", "/kv/events?worker=a", batch)
            show("POST", "/kv/query", '{"tokens":[0,1,2,3,4,5,6,7]}')
            show("POST", "/kv/events?worker=b", batch)
--- response_body
POST /kv/events: 400 {"error":"an engine's own events need the worker's id in the argument \"worker\""}
POST /kv/events?worker=a%2F: 400 {"error":"an engine's own events need the worker's id in the argument \"worker\""}
POST /kv/events?worker=a: 200 {"applied":1,"filtered":1,"refused":[]}
POST /kv/query: 200 {"block_size":4,"blocks":2,"scores":[{"worker_id":"a","dp_rank":0,"device":2,"host":2,"disk":2}]}
POST /kv/events?worker=b: 200 {"applied":0,"filtered":1,"refused":[{"at":0,"why":"unknown worker \"b\": PUT /workers/b first"}]}



=== TEST 16: engines' own events in JSON
--- script
            local tensorrt = [=[[
                {"event_id":0,"window_size":64,"data":{"type":"created",
                 "num_blocks_per_cache_level":[10,10]}},
                {"event_id":1,"window_size":64,"data":{"type":"stored",
                 "parent_hash":null,"blocks":[
                    {"type":"stored_block","block_hash":18446744073709551615,
                     "tokens":[{"token_id":0},{"token_id":1},{"token_id":2},
                               {"token_id":3}],"cache_level":0},
                    {"block_hash":"7","tokens":[{"token_id":4},{"token_id":5},
                     {"token_id":6},{"token_id":7}],"cache_level":0},
                    {"block_hash":8,"tokens":[{"token_id":9}]}]}},
                {"event_id":2,"window_size":32,"data":{"type":"removed",
                 "block_hashes":[18446744073709551615]}},
                {"event_id":3,"window_size":64,"data":{"type":"updated",
                 "block_hash":7,"cache_level":{"type":"event_diff",
                 "old_value":0,"new_value":1}}}
            ]]=]

            ask("PUT", "/kv/workers/a", '{"address":"127.0.0.1:1"}')
            ask("PUT", "/kv/workers/b", '{"address":"127.0.0.1:2"}')
            show("POST", "/kv/events?worker=a", tensorrt)
            show("POST", "/kv/query", '{"tokens":[0,1,2,3,4,5,6,7]}')
            show("POST", "/kv/events?worker=b", '{"event_type":"stored",'
                 .. '"seq_hashes":[5],"base_block_idx":0,"parent_hash":null,'
                 .. '"token_ids":[0,1,2,3],"block_size":4,"medium":"cpu"}')
            show("POST", "/kv/query", '{"tokens":[0,1,2,3]}')
            show("POST", "/kv/events?worker=a",
                 '[1.5,[["AllBlocksCleared"],7]]')
            show("POST", "/kv/events?worker=a", '{"type":"BlockRemoved",')
--- response_body
POST /kv/events?worker=a: 200 {"applied":4,"filtered":2,"refused":[]}
POST /kv/query: 200 {"block_size":4,"blocks":2,"scores":[{"worker_id":"a","dp_rank":0,"device":1,"host":2,"disk":2}]}
POST /kv/events?worker=b: 200 {"applied":1,"refused":[]}
POST /kv/query: 200 {"block_size":4,"blocks":1,"scores":[{"worker_id":"a","dp_rank":0,"device":1,"host":1,"disk":1},{"worker_id":"b","dp_rank":0,"device":0,"host":1,"disk":1}]}
POST /kv/events?worker=a: 200 {"applied":1,"refused":[{"at":1,"why":"type: event is neither an array nor a map"}]}
POST /kv/events?worker=a: 400 {"error":"body: syntax: JSON syntax error"}



=== TEST 17: a salted worker's extra key is its salt
--- script
            -- [1, [["BlockStored", [21], nil, [0, 1, 2, 3], 4, nil, nil, nil,
            --       [["s"]]]]]
            local batch = "\146\1\145\153\217\11BlockStored\145\21\192"
                .. "\148\0\1\2\3\4\192\192\192\145\145\161s"

            ask("PUT", "/kv/workers/a", '{"address":"127.0.0.1:1"}')
            show("POST", "/kv/events?worker=a", batch)
            ask("PUT", "/kv/workers/a",
                '{"address":"127.0.0.1:1","salted":true}')
            show("POST", "/kv/events?worker=a", batch)
            show("POST", "/kv/query", '{"tokens":[0,1,2,3]}')
            show("POST", "/kv/query", '{"tokens":[0,1,2,3],"cache_salt":"s"}')
--- response_body
POST /kv/events?worker=a: 200 {"applied":0,"filtered":1,"refused":[]}
POST /kv/events?worker=a: 200 {"applied":1,"refused":[]}
POST /kv/query: 200 {"block_size":4,"blocks":1,"scores":[]}
POST /kv/query: 200 {"block_size":4,"blocks":1,"scores":[{"worker_id":"a","dp_rank":0,"device":1,"host":1,"disk":1}]}



=== TEST 18: a full zone forgets, goes on storing, and is empty when cleared
--- http_config
    kv_router_zone  zone=tiny:8m block_size=4 max_workers=1;
--- config
    location /tiny/ {
        kv_router_api  tiny;
    }
--- script
            local function fill(first)
                local blocks = {}

                for i = first, first + 9999 do
                    blocks[#blocks + 1] = { i, i }
                end

                return ask("POST", "/tiny/events",
                           event("a", stored(nil, blocks))).body
            end

            ask("PUT", "/tiny/workers/a", '{"address":"127.0.0.1:1"}')

            local answer

            for i = 0, 99 do
                answer = fill(i * 10000 + 1)

                if client.stats("/tiny").index.forgotten > 0 then
                    break
                end
            end

            ngx.print(answer)

            local query = '{"block_hashes":[1,2,3]}'

            tell("the first", "POST", "/tiny/query_by_hash", query)
            ngx.say("stores that found no room: ",
                    client.stats("/tiny").index.stores_full)

            local worker = client.stats("/tiny").workers[1]

            ngx.say("truncated: ", worker.truncated, ", told of all: ",
                    worker.counters.blocks_forgotten
                    == client.stats("/tiny").index.forgotten)

            ask("POST", "/tiny/events", event("a", '"cleared"'))
            tell("cleared", "POST", "/tiny/query_by_hash", query)

            client.wait(function()
                return client.stats("/tiny").index.views_dying == 0
            end)

            ngx.say("handles: ", client.stats("/tiny").index.handles)
            ngx.print(fill(1))
            tell("the first", "POST", "/tiny/query_by_hash", query)
--- response_body
{"applied":1,"refused":[]}
the first: 200 {"block_size":4,"blocks":3,"scores":[{"worker_id":"a","dp_rank":0,"device":3,"host":3,"disk":3}]}
stores that found no room: 0
truncated: true, told of all: true
cleared: 200 {"block_size":4,"blocks":3,"scores":[]}
handles: 0
{"applied":1,"refused":[]}
the first: 200 {"block_size":4,"blocks":3,"scores":[{"worker_id":"a","dp_rank":0,"device":3,"host":3,"disk":3}]}



=== TEST 19: "if" and "limit_except" inside the location go on with its zone
--- config
    location /if/ {
        kv_router_api  main;

        if ($arg_x) {
            set $y 1;
        }
    }

    location /limited/ {
        kv_router_api  main;

        limit_except GET {
            allow 127.0.0.1;
            deny  all;
        }
    }

    location /denied/ {
        kv_router_api  main;

        limit_except GET {
            deny  all;
        }
    }

    location = /status {
        kv_router_status  main;

        if ($arg_x) {
            set $y 1;
        }
    }
--- script
            local hash = '{"tokens":[0,1,2,3]}'

            for _, path in ipairs { "/if/workers", "/if/workers?x=1",
                                    "/limited/workers", "/denied/workers",
                                    "/status", "/status?x=1" }
            do
                ngx.say("GET ", path, ": ", ask("GET", path).status)
            end

            for _, path in ipairs { "/if/hash?x=1", "/limited/hash",
                                    "/denied/hash" }
            do
                ngx.say("POST ", path, ": ", ask("POST", path, hash).status)
            end
--- response_body
GET /if/workers: 200
GET /if/workers?x=1: 200
GET /limited/workers: 200
GET /denied/workers: 200
GET /status: 200
GET /status?x=1: 200
POST /if/hash?x=1: 200
POST /limited/hash: 200
POST /denied/hash: 403
--- no_error_log
[alert]
[emerg]
exited on signal



=== TEST 20: a zone of pairs of tokens
--- script
            show("POST", "/pairs/hash", '{"tokens":[0,1,2,3,4,5,6,7,8,9]}')
            show("POST", "/pairs/hash", '{"tokens":[0,1,2,3]}')
            show("POST", "/pairs/hash", '{"tokens":[]}')

            ask("PUT", "/pairs/workers/a", '{"address":"127.0.0.1:1"}')
            show("POST", "/pairs/events?worker=a",
                 '[1.5,[["BlockStored",[7],null,[[0,1],[1,2],[2,3],[3,4]],4]]]')
            show("POST", "/pairs/events?worker=a",
                 '[1.5,[["BlockStored",[8],null,[0,1,2,3],4]]]')
            show("POST", "/pairs/events?worker=a",
                 '[1.5,[["BlockStored",[8],null,[[0,1],[1,2],[9,3],[3,4]],4]]]')
            show("POST", "/pairs/query", '{"tokens":[0,1,2,3,4]}')
            show("POST", "/pairs/query", '{"tokens":[0,1,2,3]}')

            ask("PUT", "/kv/workers/a", '{"address":"127.0.0.1:1"}')
            show("POST", "/kv/events?worker=a",
                 '[1.5,[["BlockStored",[7],null,[[0,1],[1,2],[2,3],[3,4]],4]]]')

            ngx.say(client.stats("/pairs").eagle, " ",
                    client.stats().eagle)
--- response_body
POST /pairs/hash: 200 {"local":["14562210786876287112","15916330181359808192"],"sequence":["14562210786876287112","11643125693293304894"]}
POST /pairs/hash: 200 {"local":[],"sequence":[]}
POST /pairs/hash: 200 {"local":[],"sequence":[]}
POST /pairs/events?worker=a: 200 {"applied":1,"refused":[]}
POST /pairs/events?worker=a: 200 {"applied":0,"filtered":1,"refused":[]}
POST /pairs/events?worker=a: 200 {"applied":0,"refused":[{"at":0,"why":"syntax: a pair that doesn't begin where the one before it ends"}]}
POST /pairs/query: 200 {"block_size":4,"blocks":1,"scores":[{"worker_id":"a","dp_rank":0,"device":1,"host":1,"disk":1}]}
POST /pairs/query: 200 {"block_size":4,"blocks":0,"scores":[]}
POST /kv/events?worker=a: 200 {"applied":0,"filtered":1,"refused":[]}
true false



=== TEST 21: what is not UTF-8 is in no name
--- script
            local function put(bytes)
                ngx.say(ask("PUT", "/kv/workers/w", '{"model":"' .. bytes
                            .. '","address":"127.0.0.1:80"}').status)
            end

            -- two, three and four bytes
            put("\xc2\x80 \xe2\x82\xac \xf0\x9f\x98\x80")

            -- of a later byte alone, of too few, too long, a surrogate, no
            -- character any more, and no such byte
            for _, bytes in ipairs { "a\x80", "\xc3", "\xe2\x82 ", "\xc0\xaf",
                                     "\xe0\x80\xaf", "\xed\xa0\x80",
                                     "\xf4\x90\x80\x80", "\xff" }
            do
                put(bytes)
            end

            show("PUT", "/kv/workers/w", '{"model":"m\xff"}')
            ngx.say(client.stats().workers[1].model)
--- response_body eval
"201
" . "400
" x 8 . "PUT /kv/workers/w: 400 {\"error\":\"body: the string is not UTF-8 at byte 9\"}
\xc2\x80 \xe2\x82\xac \xf0\x9f\x98\x80
"



=== TEST 22: of many events that are refused the first are listed
--- script
            local function post(n)
                local answer = require "cjson".decode(ask("POST", "/kv/events",
                    "[" .. ("0,"):rep(n - 1) .. "0]").body)

                ngx.say(n, ": ", #answer.refused, " ",
                        answer.refused[#answer.refused].at, " ",
                        tostring(answer.more_refused))
            end

            post(100)
            post(101)
            post(5000)
--- response_body
100: 100 99 nil
101: 100 99 1
5000: 100 99 4900



=== TEST 23: an engine that drafts tokens is told a block less
--- script
            ask("PUT", "/kv/workers/a", '{"address":"127.0.0.1:1"}')
            ask("POST", "/kv/events",
                event("a", stored(nil, { { 1, 1 }, { 2, 2 }, { 3, 3 } })))
            show("POST", "/kv/query_by_hash", '{"block_hashes":[1,2,3]}')
            ask("PUT", "/kv/workers/a",
                '{"address":"127.0.0.1:1","spec_drop":true}')
            show("POST", "/kv/query_by_hash",
                 '{"block_hashes":[1,2,3],"prompt_tokens":13}')
            show("POST", "/kv/query_by_hash", '{"block_hashes":[1,2,3]}')
            show("POST", "/kv/query_by_hash",
                 '{"block_hashes":[1],"prompt_tokens":5}')
            show("POST", "/kv/query_by_hash",
                 '{"block_hashes":[1],"prompt_tokens":-1}')
--- response_body
POST /kv/query_by_hash: 200 {"block_size":4,"blocks":3,"scores":[{"worker_id":"a","dp_rank":0,"device":3,"host":3,"disk":3}]}
POST /kv/query_by_hash: 200 {"block_size":4,"blocks":3,"scores":[{"worker_id":"a","dp_rank":0,"device":2,"host":2,"disk":2}]}
POST /kv/query_by_hash: 200 {"block_size":4,"blocks":3,"scores":[{"worker_id":"a","dp_rank":0,"device":1,"host":1,"disk":1}]}
POST /kv/query_by_hash: 200 {"block_size":4,"blocks":1,"scores":[]}
POST /kv/query_by_hash: 400 {"error":"body: an integer 0..18446744073709551615 was expected at byte 36"}



=== TEST 24: what no event tells of KV cache groups
--- script
            local function put(fields)
                local answer = ask("PUT", "/kv/workers/a",
                                   '{"address":"127.0.0.1:1"' .. fields .. "}")
                local worker = require "cjson".decode(answer.body)

                ngx.say(answer.status, " ", worker.error
                        or table.concat({ tostring(worker.spec_drop),
                                          worker.attention_chunk,
                                          tostring(worker.hybrid),
                                          worker.scores }, " "))
            end

            put("")
            put(',"spec_drop":true,"attention_chunk":8192')
            put(',"hybrid":true')
            put(',"attention_chunk":1048577')
--- response_body
201 false 0 false as_held
200 true 8192 false as_held
200 false 0 true upper_bounds
400 body: "attention_chunk" must be 0..1048576 at byte 43



=== TEST 25: who finds no place is told which bound is reached
--- http_config
    kv_router_zone  zone=tiny:8m block_size=4 max_workers=2;
--- config
    location /tiny/ {
        kv_router_api  tiny;
    }
--- script
            local function put(id, ranks)
                local answer = ask("PUT", "/tiny/workers/" .. id,
                                   '{"address":"127.0.0.1:1","ranks":' .. ranks
                                   .. "}")

                ngx.print(answer.status, answer.status == 507 and " "
                                         .. answer.body or "\n")
            end

            put("a", 60)
            put("b", 9)
            put("b", 8)
            put("c", 1)

            -- a deleted worker gives its place and its ranks away
            ask("DELETE", "/tiny/workers/a")
            put("c", 60)
            put("a", 1)
--- response_body
201
507 {"error":"zone \"tiny\": all (worker, rank) pairs are taken: 68; raise max_workers"}
201
507 {"error":"zone \"tiny\": all workers are taken: 2; raise max_workers"}
201
507 {"error":"zone \"tiny\": all workers are taken: 2; raise max_workers"}
