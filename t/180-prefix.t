
# Prefix caches: the Lua library, the API's calls, and several processes.

use lib 't/lib';
use KVRouter;

scripts(http_config => <<'_EOC_', config => <<'_EOC_');
    kv_router_zone          zone=main:16m;
    kv_router_prefix_cache  zone=tokens:4m;
    kv_router_prefix_cache  zone=pages:4m page_size=4 evict=priority;
    kv_router_prefix_cache  zone=hashes:4m key=hashes;
    kv_router_prefix_cache  zone=bytes:4m key=bytes max_entries=3;
    kv_router_prefix_cache  zone=small:2m full=refuse;
    kv_router_prefix_cache  zone=off:2m enabled=off;
_EOC_
    location /kv/ {
        kv_router_api  main;
    }
_EOC_

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('script', <<'_EOC_' . $block->script);
            local prefix_cache = require "resty.kv_router.prefix_cache"
            local cache = prefix_cache.new("tokens")
            local ffi = require "ffi"

            -- packed values, as numbers
            local function values(packed)
                if not packed then
                    return "none"
                end

                local out = {}
                local list = ffi.new("uint32_t[?]", #packed / 4 + 1)

                ffi.copy(list, packed, #packed)

                for i = 1, #packed / 4 do
                    out[i] = tostring(list[i - 1])
                end

                return table.concat(out, " ")
            end

            local function sizes(name)
                local s = prefix_cache.new(name or "tokens"):stats()

                ngx.say("tokens ", s.tokens, ", evictable ", s.evictable,
                        ", protected ", s.protected, ", locks ", s.locks)
            end
_EOC_
});

log_level('info');
no_long_string();
no_shuffle();

plan tests => repeat_each() * blocks() * 5;

run_tests();

__DATA__

=== TEST 1: keys in all forms are matched, with their values
--- script
            local packed = ffi.string(ffi.new("uint32_t[4]", 1, 2, 3, 4), 16)

            ngx.say((cache:insert({ 1, 2, 3 }, { 10, 20, 30 })))

            local length, node, found = cache:match({ 1, 2, 3, 4 },
                                                    { values = true })

            ngx.say(length, ": ", values(found))
            ngx.say("packed: ", (cache:match(packed)))
            ngx.say("an array: ", (cache:match(ffi.new("uint32_t[2]", 1, 2))))
            ngx.say("a part: ", (cache:match(ffi.new("uint32_t[3]", 1, 2, 3),
                                            { n = 1 })))
            ngx.say("another extra key: ",
                    (cache:match({ 1, 2, 3 }, { extra_key = "tenant" })))
            ngx.say("from the node: ",
                    (cache:insert({ 1, 2, 3, 4 }, nil, node)))

            length, node, found = cache:match(packed, { values = true })
            ngx.say(length, ": ", values(found))
            sizes()

            local hashes = prefix_cache.new("hashes")

            hashes:insert({ 1, "18446744073709551615", 3ULL })
            ngx.say("hashes: ", (hashes:match(
                ffi.new("uint64_t[2]", 1, 18446744073709551615ULL))))

            local bytes = prefix_cache.new("bytes")

            bytes:insert("You are a helpful assistant.")
            ngx.say("bytes: ", (bytes:match("You are a hat.")))
--- response_body
0
3: 10 20 30
packed: 3
an array: 2
a part: 1
another extra key: 0
from the node: 3
4: 10 20 30 4
tokens 4, evictable 4, protected 0, locks 0
hashes: 2
bytes: 11



=== TEST 2: a request begins, ends, and goes on
--- script
            cache:insert({ 1, 2, 3, 4 })

            local r = cache:begin({ 1, 2, 3, 4 }, { values = true })

            ngx.say(r.length, " cached: ", values(r.values), "; ",
                    r.uncached, " to compute")
            sizes()
            ngx.say("evicted: ", (cache:evict(10)))
            ngx.say(cache:unlock(r.lock))
            ngx.say(cache:unlock(r.lock))

            local length, node = cache:match({ 1, 2, 3 })
            local lock = cache:lock(node)

            sizes()
            ngx.say(cache:unlock(lock))

            local n, freed = cache:evict(1)

            ngx.say(n, " evicted: ", values(freed))
            ngx.say(cache:lock(node))
--- response_body
3 cached: 1 2 3; 1 to compute
tokens 4, evictable 1, protected 3, locks 1
evicted: 1
true
nilnot found: the node, lock or entry is gone, or was never there
tokens 3, evictable 0, protected 3, locks 1
true
3 evicted: 1 2 3
nilnot found: the node, lock or entry is gone, or was never there



=== TEST 3: pages, priorities, reset
--- script
            local pages = prefix_cache.new("pages")

            ngx.say((pages:insert({ 1, 2, 3, 4, 5, 6 }, nil, nil,
                                  { priority = 7 })))
            ngx.say((pages:insert({ 9, 8, 7, 6 }, nil, nil, { priority = 3 })))
            ngx.say("a page: ", (pages:match({ 1, 2, 3, 4, 5, 6 })))
            ngx.say("less than a page: ", (pages:match({ 1, 2, 3 })))
            ngx.say("the lowest priority: ", values(select(2, pages:evict(1))))
            ngx.say("all values: ", values(pages:values()))
            ngx.say("reset: ", values(pages:reset()))
            sizes("pages")
--- response_body
0
0
a page: 4
less than a page: 0
the lowest priority: 9 8 7 6
all values: 1 2 3 4
reset: 1 2 3 4
tokens 0, evictable 0, protected 0, locks 0



=== TEST 4: entries, and the longest stored prefix
--- script
            local bytes = prefix_cache.new("bytes")

            ngx.say(bytes:put("/v1", "a"))
            ngx.say(bytes:put("/v1/chat", "b"))
            ngx.say(bytes:get("/v1"), " ", bytes:get("/v1/chat"), " ",
                    tostring(bytes:get("/v1/ch")))
            ngx.say(bytes:longest_prefix("/v1/chat/completions"))
            ngx.say(bytes:longest_prefix("/v1/chat"))
            ngx.say(bytes:longest_prefix("/v1/chat", { strict = true }))
            ngx.say(tostring(bytes:longest_prefix("/v1",
                                                  { strict = true })))
            bytes:put("/v2", "c")
            bytes:get("/v1")
            bytes:put("/v3", "d")
            ngx.say("of 4: ", tostring(bytes:get("/v1")), " ",
                    tostring(bytes:get("/v1/chat")))
            ngx.say(bytes:delete("/v1"))
            ngx.say(bytes:delete("/v1"))
            ngx.say(bytes:stats().entries)
            ngx.say(bytes:clear())
            ngx.say(bytes:stats().entries)
--- response_body
true
true
a b nil
8b
8b
3a
nil
of 4: a nil
true
false
2
true
0



=== TEST 5: an item stands for several tokens
--- script
            local function key(hash)
                return { 1, { hash = hash, n = 5 }, 2 }
            end

            cache:insert(key(77))
            ngx.say("the same: ", (cache:match(key("77"))))
            ngx.say("another one: ", (cache:match(key(78ULL))))
            ngx.say(cache:insert({ { hash = 1.5, n = 1 } }))
            ngx.say(cache:insert({ { hash = 1, n = 0 } }))
--- response_body
the same: 7
another one: 1
nilitem 1: a number has to be whole and at most 2^53; pass larger hashes as decimal strings or cdata
nilitem 1: n is 0, it must be a number from 1 to 2^20



=== TEST 6: the API shows what there is
--- script
            cache:insert({ 1, 2, 3 })
            cache:insert({ 1, 2, 4, 5 })
            cache:match({ 1, 2, 3, 9 })
            cache:begin({ 1, 2, 4, 5 })

            local answer = ask("GET", "/kv/prefix_cache")
            local caches = require "cjson.safe".decode(answer.body)
            local one = caches[1]

            ngx.say(answer.status, ": ", #caches, " ", one.zone, " ",
                    one.key, " ", one.page_size, " ", one.evict, " ",
                    tostring(one.enabled), " tokens ", one.tokens,
                    " locks ", one.locks, " hit rate ", one.hit_rate)

            ngx.print(ask("GET", "/kv/prefix_cache/tokens/dump").body)
            ngx.print(cache:dump(1))
            show("GET", "/kv/prefix_cache/nowhere/dump")
            tell("PUT", "PUT", "/kv/prefix_cache", "{}")
--- response_body
200: 6 tokens tokens 1 lru true tokens 5 locks 1 hit rate 0.75
tree ""
  2: 1 2 locks=1
    1: 4 locks=1
      1: 5
    1: 3
tree ""
more nodes are not shown: the first 1 are
GET /kv/prefix_cache/nowhere/dump: 404 {"error":"there is no kv_router_prefix_cache \"nowhere\""}
PUT: 405 {"error":"\"prefix_cache\" is called by GET, HEAD, not by PUT"}



=== TEST 7: a cache that is full refuses, one that is off finds nothing
--- script
            local small = prefix_cache.new("small")
            local tokens = {}
            local existing, err, node

            for i = 1, 2^19 do
                tokens[i] = i
            end

            existing, err, node = small:insert(tokens)
            ngx.say(tostring(existing), ": ", err)
            ngx.say(node.length > 0 and node.length < 2^19, " ",
                    node.length == small:match(tokens), " ",
                    small:stats().full)

            local off = prefix_cache.new("off")

            ngx.say((off:insert({ 1, 2 })), " ", (off:match({ 1, 2 })), " ",
                    off:put({ 1 }, "x"), " ", tostring(off:get({ 1 })))
--- response_body
nil: the prefix cache is full: no memory or no lock is left, and nothing can be evicted
true true 1
0 0 true nil



=== TEST 8: wrong arguments are errors, wrong values are told
--- script
            local function wrong(f, ...)
                local _, err = pcall(f, cache, ...)

                ngx.say(err)
            end

            wrong(cache.match, 7)
            wrong(cache.match, { 1 }, 7)
            wrong(cache.match, { 1 }, { extra_key = 7 })
            wrong(cache.insert, { 1 }, nil, 7)
            wrong(cache.insert, { 1 }, nil, nil, { priority = 256 })
            wrong(cache.lock, {})
            wrong(cache.unlock, {})
            wrong(cache.evict, "all")
            wrong(cache.put, { 1 }, 7)
            wrong(cache.dump, 0)
            cache = prefix_cache.new("nowhere")
            wrong(cache.match, { 1 })
            cache = prefix_cache.new("tokens")
            ngx.say(cache:match({ -1 }))
            ngx.say(cache:insert({ 1, 2 }, { 1 }))
            ngx.say(cache:put({}, "x"))
            ngx.say(cache:put({ 1 }, ("x"):rep(65537)))
            ngx.say(cache:get(ffi.new("uint32_t[65537]")))
            ngx.say(cache:match(ffi.new("uint32_t[1048577]")))
            ngx.say(cache:match({ 1 }, { extra_key = ("x"):rep(1025) }))
--- response_body_like chomp
^.*bad argument #1 to 'match' \(table, cdata or string expected, got number\)
.*bad argument #2 to 'match' \(table expected, got number\)
.*bad argument #2 to 'match' \(string in extra_key expected, got number\)
.*bad argument #3 to 'insert' \(node expected, got number\)
.*bad argument #4 to 'insert' \(priority from 0 to 255 expected, got number\)
.*bad argument #1 to 'lock' \(node expected, got table\)
.*bad argument #1 to 'unlock' \(lock expected, got table\)
.*bad argument #1 to 'evict' \(number of units expected, got string\)
.*bad argument #2 to 'put' \(string expected, got number\)
.*bad argument #1 to 'dump' \(number from 1 to 4096 expected, got number\)
there is no kv_router_prefix_cache "nowhere"
niltoken 1 is no number from 0 to 2\^32 - 1: -1
nilthere are 1 values, and 2 units: each unit must have one
nilthe key of an entry must not be empty
nilthe value has 65537 bytes, the maximum is 65536
nilthe key has 65537 units, the maximum is 65536
nilthe key has 1048577 units, the maximum is 1048576
nilthe extra key has 1025 bytes, the maximum is 1024$

