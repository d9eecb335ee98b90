-- resty.kv_router.index: arguments, hashes, and what it makes of C's answers.


local tap = require "lib.tap"
local fake = require "lib.fake"
local ffi = require "ffi"
local index = require "resty.kv_router.index"
local lib = require "resty.kv_router.ffi"

local has, is, raises = tap.has, tap.is, tap.raises


-- ---- a zone that remembers what it was told ---------------------------------

local told = { frequencies = {} }
local answer = 0
local found = {}
local text = ""
local c = fake.c

local function string_of(data, len)
    return data and data:sub(1, tonumber(len))
end

local function numbers(array, n)
    local list = {}

    for i = 0, tonumber(n) - 1 do
        list[i + 1] = tostring(array[i]):gsub("ULL", "")
    end

    return table.concat(list, " ")
end

local function refuse(err)
    if answer ~= 0 then
        err[0] = ffi.cast("char *", "the zone says no")
    end

    return answer
end

function c.version()
    return lib.VERSION
end

function c.zone(name)
    told.zones = (told.zones or 0) + 1
    return name ~= "nowhere" and ffi.cast("void *", 1) or nil
end

function c.block_size() return 2 end
function c.max_holders() return 5 end
function c.max_frequencies() return #told.frequencies end

function c.hash(_, tokens, n, lora, lora_len, salt, salt_len, locals, sequence)
    told.tokens = numbers(tokens, n)
    told.lora = string_of(lora, lora_len)
    told.salt = string_of(salt, salt_len)

    local out = locals or sequence

    for i = 0, math.floor(n / 2) - 1 do
        out[i] = 100 + i + (sequence and 100 or 0)
    end

    return ffi.cast("size_t", math.floor(n / 2))
end

function c.find(_, locals, n, tokens, early_exit, out, cap, frequencies,
                nfrequencies)
    told.early_exit = early_exit
    told.tokens = tokens
    told.locals = numbers(locals, n)
    told.cap = cap
    nfrequencies[0] = #told.frequencies

    for i, asked in ipairs(told.frequencies) do
        frequencies[i - 1] = asked
    end

    for i, f in ipairs(found) do
        local o = out[i - 1]

        o.worker_data, o.worker_len = f[1], #f[1]
        o.rank, o.device, o.host, o.disk = f[2], f[3], f[4], f[5]
    end

    return ffi.cast("size_t", #found)
end

function c.store(_, worker, len, rank, tier, parent, handles, locals, n, err)
    told.store = string.format("%s %d %d %s: %s / %s", string_of(worker, len),
                               rank, tier,
                               parent and numbers(parent, 1) or "root",
                               numbers(handles, n), numbers(locals, n))
    return refuse(err)
end

function c.remove(_, worker, len, rank, tier, handles, n, unknown, err)
    told.remove = string.format("%s %d %d: %s", string_of(worker, len), rank,
                                tier, numbers(handles, n))
    unknown[0] = 1
    return refuse(err)
end

function c.clear(_, worker, len, rank, err)
    told.clear = string_of(worker, len) .. " " .. rank
    return refuse(err)
end

function c.remove_worker(_, worker, len, err)
    told.removed = string_of(worker, len)
    return refuse(err)
end

function c.text(_, what, out, len, err)
    told.what = what
    out[0] = ffi.cast("char *", text)
    len[0] = #text
    return refuse(err)
end

function c.free()
    told.freed = (told.freed or 0) + 1
end


local idx = index.new("main")

is(told.zones, nil, "the zone is not looked up when the index is made")


-- ---- tokens -----------------------------------------------------------------

local hashes, n = idx:block_hashes({ 1, 2, 3, 4, 5 })

is(told.zones, 1, "but when it is needed")
is(told.tokens, "1 2 3 4 5", "tokens in a table")
is(n, 2, "whole blocks are hashed")
is(tostring(hashes[1]), "101ULL", "hashes are cdata u64")
is(told.lora, nil, "no LoRA")
is(told.salt, nil, "no salt")

hashes, n = idx:sequence_hashes("\1\0\0\0\2\1\0\0", { lora_name = "l",
                                                     cache_salt = "s" })
is(told.tokens, "1 258", "tokens in a packed string, little endian")
is(told.lora .. told.salt, "ls", "LoRA and salt are passed on")
is(tostring(hashes[0]), "200ULL", "sequence hashes")
is(n, 1, "and their number")

idx:block_hashes({ 1, 2 }, { lora_id = 42 })
is(told.lora, "42", "a LoRA without a name has its number as the name")
idx:block_hashes({ 1, 2 }, { lora_id = 0, lora_name = "l" })
is(told.lora, "l", "a name goes before the number")
raises("whole number up to 2^53 in lora_id", "a number is whole",
       idx.block_hashes, idx, {}, { lora_id = 1.5 })

local u32 = ffi.new("uint32_t[4]", { 7, 8, 9, 4294967295 })

idx:block_hashes(u32)
is(told.tokens, "7 8 9 4294967295", "tokens in a cdata array")
idx:block_hashes(u32, { n = 2 })
is(told.tokens, "7 8", "or in a part of it")
idx:block_hashes(u32 + 1, { n = 3 })
is(told.tokens, "8 9 4294967295", "or behind a pointer")
idx:block_hashes(ffi.cast("const uint32_t *", u32), { n = 1 })
is(told.tokens, "7", "const or not")
idx:block_hashes({})
is(told.tokens, "", "or none at all")

local function refused(part, name, ok, err)
    is(ok, nil, name .. " is refused")
    has(err, part, name .. ": says so")
end

refused("token 2 is no number", "a negative token",
        idx:find_matches({ 1, -1 }))
refused("token 1 is no number", "a token beyond u32",
        idx:find_matches({ 2^32 }))
refused("token 1 is no number", "half a token", idx:find_matches({ 0.5 }))
refused("token 1 is no number", "a token that is none",
        idx:find_matches({ 0 / 0 }))
refused("token 3 is no number", "a string as a token",
        idx:find_matches({ 1, 2, "3" }))
refused("4 bytes for each", "a packed string that is cut",
        idx:find_matches("12345"))

raises("bad argument #1 to 'find_matches' (table, cdata or string expected, "
       .. "got nil)", "no tokens are an error", idx.find_matches, idx)
raises("#2 to 'find_matches' (table expected", "options have to be a table",
       idx.find_matches, idx, {}, "x")
raises("string in lora_name expected, got number",
       "a LoRA has to be a string", idx.find_matches, idx, {},
       { lora_name = 5 })
raises("unsigned int and their number expected",
       "a pointer without a number is an error", idx.find_matches, idx,
       u32 + 0)
raises("unsigned int and their number expected",
       "cdata of another type is an error", idx.find_matches, idx,
       ffi.new("uint64_t[2]"))
raises("an array of 5 expected", "more than the array has is an error",
       idx.find_matches, idx, u32, { n = 5 })

local _, position = pcall(function() idx:find_matches(5) end)

has(position, "test_index.lua", "errors name the caller's line")


-- ---- matches ----------------------------------------------------------------

found = { { "a", 0, 3, 4, 5 }, { "b", 1, 0, 0, 1 }, { "a", 2, 1, 1, 1 } }

local m = assert(idx:find_matches({ 1, 2, 3, 4 }, { early_exit = true }))

is(told.locals, "100 101", "the local hashes are looked up")
is(told.early_exit, 1, "early_exit is handed down")
is(told.tokens, 4, "and the prompt's length")
is(told.cap, 5, "with room for all holders")
is(m.prompt_blocks, 2, "prompt_blocks")

local function all(matches)
    local list = {}

    for worker, rank, device, host, disk in matches:each() do
        list[#list + 1] = table.concat({ worker, rank, device, host, disk },
                                       " ")
    end

    return table.concat(list, ", ")
end

is(all(m), "a 0 3 4 5, b 1 0 0 1, a 2 1 1 1", "each() gives every holder")

local pairs_seen = 0

for _ in m:each() do
    for _ in m:each() do
        pairs_seen = pairs_seen + 1
    end
end

is(pairs_seen, 9, "loops may be nested")

local function blocks(...)
    return table.concat({ m:blocks(...) }, " ")
end

is(blocks("a", 2), "1 1 1", "blocks() of a holder")
is(blocks("a"), "3 4 5", "rank 0 when it is not given")
is(blocks("c", 0), "0 0 0", "nothing for who is not there")

found = { { "z", 0, 1, 1, 1 } }
idx:find_matches({ 1, 2 })
is(all(m), "a 0 3 4 5, b 1 0 0 1, a 2 1 1 1",
   "matches stay what they are after the next lookup")

found = {}
is(all(idx:find_matches({ 1, 2 })), "", "no holders, no matches")

is(m.frequencies, nil, "a zone without frequencies has none")

told.frequencies = { 7, 4294967295, 0 }
idx = index.new("main")
m = idx:find_matches({ 1, 2 })

is(table.concat(m.frequencies, " "), "7 4294967295 0", "all frequencies")

told.frequencies = {}
is(#idx:find_matches({ 1, 2 }).frequencies, 0, "of no match there are none")
is(#m.frequencies, 3, "those of matches stay what they are, too")


-- ---- hashes -----------------------------------------------------------------

idx:find_matches_by_hash({ "18446744073709551615", 5, 7ULL, "0",
                           "10000000000", 2^53, -1LL, "00012" })
is(told.locals, "18446744073709551615 5 7 0 10000000000 9007199254740992 "
                .. "18446744073709551615 12", "hashes of every kind are exact")

hashes, n = idx:block_hashes({ 1, 2, 3, 4 })
m = idx:find_matches_by_hash(hashes, n)
is(told.locals, "100 101", "hashes from block_hashes()")
is(m.prompt_blocks, 2, "and their number")
is(told.early_exit, 0, "all of them are looked at")
is(told.tokens, 0, "a prompt whose length nobody says")

idx:find_matches_by_hash(hashes, n, 5)
is(told.tokens, 5, "and one whose length is said")
raises("bad argument #3 to 'find_matches_by_hash' (number of tokens",
       "which has to be a number", idx.find_matches_by_hash, idx, hashes, n,
       "5")

idx:find_matches_by_hash(hashes, n, nil, { early_exit = true })
is(told.early_exit, 1, "an early exit is allowed")
raises("bad argument #4 to 'find_matches_by_hash' (table expected",
       "the fourth argument is a table", idx.find_matches_by_hash, idx, hashes,
       n, nil, true)

refused("hash 1: a number has to be whole and at most 2^53", "2^53 + 2",
        idx:find_matches_by_hash({ 2^53 + 2 }))
refused("hash 2: a number has to be whole", "a fraction",
        idx:find_matches_by_hash({ 1, 1.5 }))
refused("hash 1: a number has to be whole", "a negative number",
        idx:find_matches_by_hash({ -1 }))
refused('"18446744073709551616" is no decimal u64', "2^64",
        idx:find_matches_by_hash({ "18446744073709551616" }))
refused('"0x5" is no decimal u64', "hexadecimal",
        idx:find_matches_by_hash({ "0x5" }))
refused('"" is no decimal u64', "an empty string",
        idx:find_matches_by_hash({ "" }))
refused("no hash, but a boolean", "true", idx:find_matches_by_hash({ true }))
raises("bad argument #1 to 'find_matches_by_hash' (table or cdata",
       "hashes have to be some", idx.find_matches_by_hash, idx, "5")
raises("uint64_t and their number expected", "and of 64 bits",
       idx.find_matches_by_hash, idx, u32, 4)


-- ---- writing ----------------------------------------------------------------

is(idx:store("w", 1, nil, { { 1, "2" }, { 3ULL, 4 } }), true, "store")
is(told.store, "w 1 0 root: 1 3 / 2 4", "from the root, in device memory")
idx:store("w", nil, "9", {}, "disk")
is(told.store, "w 0 2 9:  / ", "after a parent, on disk, as rank 0")
refused("parent: a number has to be whole", "a parent that is no hash",
        idx:store("w", 0, 0.5, {}))
refused("tokens_hash 2: no hash, but a nil", "half a pair",
        idx:store("w", 0, nil, { { 1, 2 }, { 3 } }))
refused("block 1 is no pair", "a block that is no pair",
        idx:store("w", 0, nil, { 5 }))
raises("bad argument #1 to 'store' (string expected, got number)",
       "a worker has to be a string", idx.store, idx, 7, 0, nil, {})
raises("bad argument #2 to 'store' (rank expected", "a rank a whole number",
       idx.store, idx, "w", 0.5, nil, {})
raises("bad argument #4 to 'store' (table expected", "blocks a table",
       idx.store, idx, "w", 0, nil, nil)
raises("bad argument #5 to 'store' (tier expected", "a tier one of four",
       idx.store, idx, "w", 0, nil, {}, "tape")

is(idx:remove("w", 3, { 1, 2 }, "host"), 1, "remove: how many it didn't hold")
is(told.remove, "w 3 1: 1 2", "remove")
idx:remove("w", 3, ffi.new("uint64_t[3]", { 1, 2, 3 }), nil, 2)
is(told.remove, "w 3 0: 1 2", "remove, with cdata and a number")
raises("bad argument #3 to 'remove'", "remove needs hashes", idx.remove, idx,
       "w", 0)

is(idx:clear("w", 4), true, "clear")
is(told.clear, "w 4", "clear of a rank")
is(idx:remove_worker("w"), true, "remove_worker")
is(told.removed, "w", "remove_worker of a worker")

answer = -1
refused("the zone says no", "a store that C refuses",
        idx:store("w", 0, nil, {}))
refused("the zone says no", "a removal that C refuses",
        idx:remove("w", 0, {}))
refused("the zone says no", "a clear that C refuses", idx:clear("w"))
refused("the zone says no", "a worker that C refuses", idx:remove_worker("w"))
refused("the zone says no", "a dump that C refuses", idx:dump())
refused("the zone says no", "stats that C refuses", idx:stats())

fake.c.clear = function() return -3 end
refused("the zone is busy", "a busy zone", idx:clear("w"))


-- ---- for people -------------------------------------------------------------

answer = 0
text = '{"a":1}'
told.freed = 0
is(idx:dump(), text, "dump is a string")
is(told.what, "dump", "dump asks for a dump")
is(idx:stats().a, 1, "stats is a table")
text = '[{"id":"7"}]'
is(idx:workers()[1].id, "7", "workers is an array")
is(told.freed, 3, "what C allocated is freed")

raises('there is no kv_router_zone "nowhere"', "a zone that is not there",
       index.new("nowhere").clear, index.new("nowhere"), "w")


tap.done()
