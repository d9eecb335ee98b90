# What Lua sees of the index, and what LuaJIT makes of the request path.

use lib 't/lib';
use KVRouter;

scripts(http_config => <<'_EOC_', config => <<'_EOC_');
    kv_router_zone    zone=main:16m block_size=4 max_workers=8;
    kv_router_zone    zone=pairs:16m block_size=4 eagle=on;
    kv_router_worker  main a 127.0.0.1:$TEST_NGINX_RAND_PORT_1 ranks=2 events=on;
    kv_router_worker  main b 127.0.0.1:$TEST_NGINX_RAND_PORT_1 events=on;
_EOC_
    location /kv/ {
        kv_router_api  main;
    }
_EOC_

# every script has the index and a way to print what was found

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('script', <<'_EOC_' . $block->script);
            local index = require("resty.kv_router").index("main")

            local function found(what, m, err)
                if not m then
                    return ngx.say(what, ": nil ", err)
                end

                local parts = {}

                for worker, rank, device, host, disk in m:each() do
                    parts[#parts + 1] = worker .. "/" .. rank .. "=" .. device
                                        .. "," .. host .. "," .. disk
                end

                table.sort(parts)
                ngx.say(what, ": ", table.concat(parts, " "), " of ",
                        m.prompt_blocks)
            end
_EOC_
});

log_level('info');
no_long_string();
no_shuffle();

plan tests => repeat_each() * blocks() * 5;

run_tests();

__DATA__

=== TEST 1: hashes are those of the vectors, whatever tokens are given in
--- script
            local ffi = require "ffi"
            local tokens = { 0, 1, 2, 3, 4, 5, 6, 7, 8 }
            local array = ffi.new("uint32_t[9]", tokens)
            local packed = ffi.string(array, 36)

            local function say(what, hashes, n)
                local parts = {}

                for i = 0, n - 1 do
                    parts[i + 1] = tostring(hashes[i]):sub(1, -4)
                end

                ngx.say(what, ": ", table.concat(parts, " "))
            end

            say("a table", index:block_hashes(tokens))
            say("packed", index:block_hashes(packed))
            say("an array", index:block_hashes(array))
            say("a part of it", index:block_hashes(array, { n = 4 }))
            say("a pointer", index:block_hashes(
                ffi.cast("const uint32_t *", array), { n = 8 }))
            say("an adapter", index:block_hashes(tokens,
                                                 { lora_name = "adapter-a" }))
            say("sequence", index:sequence_hashes(tokens))
            say("sequence of the adapter",
                index:sequence_hashes(tokens, { lora_name = "adapter-a" }))
            say("a number", index:block_hashes(tokens, { lora_id = 2^53 }))
            say("the name of it", index:block_hashes(
                tokens, { lora_name = "9007199254740992" }))
            say("a name goes first", index:block_hashes(
                tokens, { lora_name = "adapter-a", lora_id = 7 }))
            say("a salt", index:block_hashes({ 0, 1, 2, 3 },
                                             { cache_salt = "s" }))
            say("no whole block", index:block_hashes({ 0, 1, 2 }))

            index = require("resty.kv_router").index("pairs")

            say("pairs", index:block_hashes(tokens))
            say("no whole block of pairs", index:block_hashes({ 0, 1, 2, 3 }))
--- response_body
a table: 9143094415614847814 12124091508212882195
packed: 9143094415614847814 12124091508212882195
an array: 9143094415614847814 12124091508212882195
a part of it: 9143094415614847814
a pointer: 9143094415614847814 12124091508212882195
an adapter: 6665157333201000639 11721812545976571723
sequence: 9143094415614847814 9510318385840434533
sequence of the adapter: 6665157333201000639 13351519314849170528
a number: 94765419686173310 9240060986844244230
the name of it: 94765419686173310 9240060986844244230
a name goes first: 6665157333201000639 11721812545976571723
a salt: 555386108965864115
no whole block: 
pairs: 14562210786876287112 15916330181359808192
no whole block of pairs: 



=== TEST 2: what is stored is found, by tokens and by hashes, for each holder
--- script
            local ffi = require "ffi"
            local tokens = { 0, 1, 2, 3, 4, 5, 6, 7, 8 }
            local hashes = index:block_hashes(tokens)

            found("nothing", index:find_matches(tokens))

            ngx.say(index:store("a", 1, nil, { { 1, hashes[0] },
                                               { 2, hashes[1] } }))
            ngx.say(index:store("b", nil, nil, { { "18446744073709551615",
                                                   hashes[0] } }, "host"))

            found("a table", index:find_matches(tokens))
            found("packed", index:find_matches(
                ffi.string(ffi.new("uint32_t[9]", tokens), 36)))
            found("cdata", index:find_matches(ffi.new("uint32_t[9]", tokens),
                                              { n = 7 }))
            found("early exit", index:find_matches(tokens,
                                                   { early_exit = true }))
            found("hashes", index:find_matches_by_hash(hashes, 2))
            found("hashes, early exit", index:find_matches_by_hash(
                hashes, 2, nil, { early_exit = true }))
            found("hashes in a table", index:find_matches_by_hash(
                { hashes[0], "12124091508212882195", 7, 7ULL }))
            found("salted", index:find_matches(tokens, { cache_salt = "s" }))

            -- what was found stays what it was
            local m = index:find_matches(tokens)

            index:clear("a", 1)
            index:find_matches({ 9, 9, 9, 9 })
            found("still there", m)
            ngx.say(table.concat({ m:blocks("a", 1) }, " "), ", ",
                    table.concat({ m:blocks("b") }, " "), ", ",
                    table.concat({ m:blocks("a") }, " "), ", ",
                    table.concat({ m:blocks("nobody", 7) }, " "))
            found("cleared", index:find_matches(tokens))

            -- loops may be nested
            local n = 0

            for _ in m:each() do
                for _ in m:each() do
                    n = n + 1
                end
            end

            ngx.say(n)
--- response_body
nothing:  of 2
true
true
a table: a/1=2,2,2 b/0=0,1,1 of 2
packed: a/1=2,2,2 b/0=0,1,1 of 2
cdata: a/1=1,1,1 b/0=0,1,1 of 1
early exit: a/1=2,2,2 b/0=0,1,1 of 2
hashes: a/1=2,2,2 b/0=0,1,1 of 2
hashes, early exit: a/1=2,2,2 b/0=0,1,1 of 2
hashes in a table: a/1=2,2,2 b/0=0,1,1 of 4
salted:  of 2
still there: a/1=2,2,2 b/0=0,1,1 of 2
2 2 2, 0 1 1, 0 0 0, 0 0 0
cleared: b/0=0,1,1 of 2
4



=== TEST 3: store, remove, clear and remove_worker
--- script
            local hashes = { 1, 2, 3, 4 }

            local function say(what, result, err)
                ngx.say(what, ": ", result, " ", err)
            end

            ngx.say("store: ", index:store("a", 0, nil, { { 11, 1 }, { 12, 2 },
                                                          { 13, 3 } }))
            ngx.say("behind: ", index:store("a", 0, 13, { { 14, 4 } }))
            found("all", index:find_matches_by_hash(hashes))
            ngx.say("remove: ", index:remove("a", 0, { 12, 99 }))
            found("a hole", index:find_matches_by_hash(hashes))
            ngx.say("refill: ", index:store("a", 0, 11, { { 12, 2 } }))
            found("filled", index:find_matches_by_hash(hashes))
            ngx.say("a tier: ", index:remove("a", 0, { 11 }, "host"))
            found("not there", index:find_matches_by_hash(hashes))
            ngx.say("cdata: ", index:remove("a", 0, require("ffi").new(
                "uint64_t[2]", { 13, 14 }), nil, 1))
            found("up to the second", index:find_matches_by_hash(hashes))
            ngx.say("clear: ", index:clear("a"))
            found("cleared", index:find_matches_by_hash(hashes))

            index:store("b", 0, nil, { { 11, 1 } })
            ngx.say("remove_worker: ", index:remove_worker("b"))
            found("removed", index:find_matches_by_hash(hashes))

            say("no such parent", index:store("a", 0, 77, { { 11, 1 } }))
            say("no such worker", index:store("c", 0, nil, { { 11, 1 } }))
            say("no such worker", index:remove("c", 0, { 11 }))
            say("no such worker", index:clear("c"))
            say("no such worker", index:remove_worker("c"))
--- response_body
store: true
behind: true
all: a/0=4,4,4 of 4
remove: 1
a hole: a/0=1,1,1 of 4
refill: true
filled: a/0=4,4,4 of 4
a tier: 1
not there: a/0=4,4,4 of 4
cdata: 0
up to the second: a/0=2,2,2 of 4
clear: true
cleared:  of 4
remove_worker: true
removed:  of 4
no such parent: nil the parent is not held by this worker and rank
no such worker: nil no such worker
no such worker: nil no such worker
no such worker: nil no such worker
no such worker: nil no such worker



=== TEST 4: bad arguments are errors of the caller's, bad values are answers
--- script
            local function try(what, ...)
                local args = { ... }

                local ok, err = pcall(function()
                    local _, why = index[what](index, unpack(args, 1, 5))

                    return why
                end)

                -- an error is at the line that called
                ngx.say((err:gsub("^content_by_lua%S+:%d+:", ok and "" or "!")))
            end

            try("find_matches")
            try("find_matches", 7)
            try("find_matches", {}, "opts")
            try("find_matches", {}, { lora_name = 7 })
            try("find_matches", {}, { lora_id = -1 })
            try("find_matches", {}, { cache_salt = {} })
            try("find_matches", require("ffi").new("double[1]"))
            try("find_matches", require("ffi").new("uint32_t[1]"), { n = 2 })
            try("block_hashes", nil)
            try("find_matches_by_hash", "1")
            try("store", 7)
            try("store", "a", -1, nil, {})
            try("store", "a", 0, nil, nil)
            try("store", "a", 0, nil, {}, "cloud")
            try("remove", "a", 0.5, {})
            try("remove", "a", 0, 7)
            try("clear", nil)
            try("remove_worker", {})
            ngx.say("-")
            try("find_matches", "12345")
            try("find_matches", { 1, 2, -1 })
            try("find_matches", { 1, 4294967296 })
            try("find_matches", { 1, "2" })
            try("find_matches_by_hash", { 2 ^ 53 + 2 })
            try("find_matches_by_hash", { "18446744073709551616" })
            try("find_matches_by_hash", { 1, true })
            try("store", "a", 0, 1.5, {})
            try("store", "a", 0, nil, { 7 })
            try("store", "a", 0, nil, { { 1, 1 }, { 2 } })
            try("store", "a", 0, nil, { { 1, 1 }, { "x", 1 } })
            found("nothing was applied", index:find_matches_by_hash({ 1 }))

            local kv = require "resty.kv_router"

            for _, args in ipairs { { 7 }, { "main", 7 },
                                    { "main", { polcy = "x" } },
                                    { "main", { policy = "nope" } },
                                    { "main", { tokenizer = "magic" } },
                                    { "main", { max_tries = 1.5 } },
                                    { "main", { max_tries = -1 } } }
            do
                ngx.say((select(2, pcall(kv.new, unpack(args)))))
            end

            ngx.say((select(2, pcall(kv.index))))
--- response_body
! bad argument #1 to 'find_matches' (table, cdata or string expected, got nil)
! bad argument #1 to 'find_matches' (table, cdata or string expected, got number)
! bad argument #2 to 'find_matches' (table expected, got string)
! bad argument #2 to 'find_matches' (string in lora_name expected, got number)
! bad argument #2 to 'find_matches' (whole number up to 2^53 in lora_id expected, got number)
! bad argument #2 to 'find_matches' (string in cache_salt expected, got table)
! bad argument #1 to 'find_matches' (unsigned int and their number expected, got cdata)
! bad argument #1 to 'find_matches' (an array of 2 expected, got cdata)
! bad argument #1 to 'block_hashes' (table, cdata or string expected, got nil)
! bad argument #1 to 'find_matches_by_hash' (table or cdata expected, got string)
! bad argument #1 to 'store' (string expected, got number)
! bad argument #2 to 'store' (rank expected, got number)
! bad argument #4 to 'store' (table expected, got nil)
! bad argument #5 to 'store' (tier expected, got string)
! bad argument #2 to 'remove' (rank expected, got number)
! bad argument #3 to 'remove' (table or cdata expected, got number)
! bad argument #1 to 'clear' (string expected, got nil)
! bad argument #1 to 'remove_worker' (string expected, got table)
-
a packed string of tokens has 4 bytes for each
token 3 is no number from 0 to 2^32 - 1: -1
token 2 is no number from 0 to 2^32 - 1: 4294967296
token 2 is no number from 0 to 2^32 - 1: 2
hash 1: a number has to be whole and at most 2^53; pass larger hashes as decimal strings or cdata
hash 1: "18446744073709551616" is no decimal u64
hash 2: no hash, but a boolean
parent: a number has to be whole and at most 2^53; pass larger hashes as decimal strings or cdata
block 1 is no pair of hashes
tokens_hash 2: no hash, but a nil
block_hash 2: "x" is no decimal u64
nothing was applied:  of 1
bad argument #1 to 'new' (string expected, got number)
bad argument #2 to 'new' (a table is expected, not number)
bad argument #2 to 'new' (unknown setting "polcy": did you mean "policy"? There are class, classes, max_tries, overload_status, pin, policy, policy_conf, tenant, tenants, tokenizer, tokenizer_cache, tokenizer_timeout, unknown_model)
bad argument #2 to 'new' (unknown policy "nope": there are affinity_gate, agent, cache_aware, disaggregated, kv_cost, least_loaded, lmetric, p2c, prefix_hash, random, round_robin, session, weighted; a module of your own has a dot in its name, as "acme.nope")
bad argument #2 to 'new' ("tokenizer" must be "auto", "local", "render", "remote" or "none", not "magic")
bad argument #2 to 'new' (the value of "max_tries" must be a whole number)
bad argument #2 to 'new' (the value of "max_tries" must be from 0 to 100, not -1)
bad argument #1 to 'index' (string expected, got nil)



=== TEST 5: dump, stats and workers are what the API says
--- script
            index:store("a", 1, nil, { { 11, 1 }, { "18446744073709551615",
                                                    2 } })
            ngx.say(index:dump() == ask("GET", "/kv/dump").body)
            ngx.print(index:dump())

            local stats, workers = index:stats(), index:workers()

            ngx.say(stats.zone, " ", stats.block_size, " ",
                    stats.index.handles, " ", #stats.workers)

            for _, w in ipairs(workers) do
                ngx.say(w.worker_id, " ", w.address:match("^127"), " ",
                        w.ranks, " ", w.confidence)
            end
--- response_body
true
{"worker_id":"a","event":{"event_id":1,"data":{"stored":{"parent_hash":null,"blocks":[{"block_hash":11,"tokens_hash":1},{"block_hash":18446744073709551615,"tokens_hash":2}]}},"dp_rank":1}}
main 4 2 2
a 127 2 UNVERIFIED
b 127 1 UNKNOWN



=== TEST 6: the zone may be named before nginx has forked, and is looked up later
--- http_config
    init_by_lua_block {
        local kv = require "resty.kv_router"

        early = kv.index("main")
        wrong = kv.index("nowhere")
    }
--- script
            found("early", early:find_matches({ 1, 2, 3, 4 }))
            ngx.say((select(2, pcall(wrong.find_matches, wrong, {}))))
            ngx.say((select(2, pcall(wrong.stats, wrong))))
--- response_body
early:  of 1
there is no kv_router_zone "nowhere"
there is no kv_router_zone "nowhere"



=== TEST 7: the request path compiles
--- http_config
    init_worker_by_lua_block {
        if ngx.worker.id() == 0 then
            require("jit.v").on(ngx.config.prefix() .. "logs/jit.log")
        end
    }

    init_by_lua_block {
        router = require("resty.kv_router").new("main", { tokenizer = "none" })
    }

    upstream engines {
        server     0.0.0.1;
        balancer_by_lua_block { router:balance() }
        keepalive  4;
    }

    server {
        listen    127.0.0.1:$TEST_NGINX_RAND_PORT_1;
        location  / { return 200; }
    }
--- config
    location /v1/ {
        access_by_lua_block  { router:access() }
        log_by_lua_block     { router:log() }
        proxy_pass           http://engines/;
        proxy_http_version   1.1;
        proxy_set_header     Connection "";
    }
--- script
            local body = '{"prompt":' .. client.tokens(1, 100) .. "}"
            local status = {}

            for _ = 1, 300 do
                local answer = ask("POST", "/v1/completions", body)

                status[answer.status] = (status[answer.status] or 0) + 1
            end

            ngx.say(status[200], " answers")

            -- a side trace that ends where pick() returns into xpcall() is no
            -- NYI of ours; the client of this test runs in the same process
            local traces, lost = 0, {}

            require("jit.v").off()

            for line in io.lines(ngx.config.prefix() .. "logs/jit.log") do
                if line:find("^%[TRACE +%d+.* kv_router.lua") then
                    traces = traces + 1
                end

                if line:find("NYI", 1, true)
                   and not line:find("NYI: return to lower frame", 1, true)
                   and not line:find("client.lua", 1, true)
                   and not line:find("content_by_lua", 1, true)
                then
                    lost[#lost + 1] = line
                end
            end

            ngx.say(traces > 0, " ", table.concat(lost, "\n"))
--- response_body
300 answers
true 
