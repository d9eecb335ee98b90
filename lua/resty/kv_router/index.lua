-- Copyright (C) the nginx-kv-router authors
--
-- A zone's index for Lua: what resty.kv_router's index() returns.
--
-- tokens      a table of numbers, a packed string (u32, little endian), or
--             cdata uint32_t with opts.n (arrays may go without)
-- hashes      a table of hashes, or cdata uint64_t and their number after it
-- a hash      cdata uint64_t, a decimal string, or a number up to 2^53:
--             beyond, Lua numbers are not exact, and are refused
-- worker      the id, a string; rank: a number, 0 when nil
-- tier        "device" (when nil), "host", "disk" or "external"
--
-- Arguments of a wrong type are errors; wrong values in them, and what goes
-- wrong in the zone, give nil and a sentence.  Nothing is then half-applied.
-- Nothing here yields; results are the caller's own and live as long as it
-- likes.


local decode = require "cjson.safe".decode
local ffi = require "ffi"
local input = require "resty.kv_router.request.input"
local lib = require "resty.kv_router.ffi"
local matches = require "resty.kv_router.request.matches"

local copy = ffi.copy
local setmetatable = setmetatable
local sizeof = ffi.sizeof
local type = type
local typeof = ffi.typeof
local TIERS = lib.TIERS


local bad = input.bad
local lora_of = input.lora
local read_hash = input.hash
local read_hashes = input.hashes
local read_tokens = input.tokens

local _M = {}
local mt = { __index = _M }

local u32s = typeof("uint32_t[?]")
local u64s = typeof("uint64_t[?]")
local founds = typeof("ngx_http_kv_router_found_t[?]")
local found_size = sizeof("ngx_http_kv_router_found_t")

local MAX_U32 = 2^32 - 1


-- name: of a zone; not looked up until it is needed, so that this may be
-- called in init_by_lua.
function _M.new(name)
    return setmetatable({ name = name }, mt)
end


local function zone_of(self)
    local zone = self.zone

    if not zone then
        zone = lib.zone(self.name)
        self.zone = zone
    end

    return zone
end


-- ---- arguments --------------------------------------------------------------

local function check_worker(what, worker, rank)
    if type(worker) ~= "string" then
        bad(1, what, "string", worker)
    end

    if rank ~= nil and (type(rank) ~= "number" or rank < 0 or rank % 1 ~= 0
                        or rank > MAX_U32)
    then
        bad(2, what, "rank", rank)
    end
end


local function check_tier(n, what, tier)
    if tier ~= nil and not TIERS[tier] then
        bad(n, what, "tier", tier)
    end

    return TIERS[tier or "device"]
end


-- { lora_name, lora_id, cache_salt, n, early_exit }
local function check_opts(what, opts)
    if opts == nil then
        return nil, nil
    end

    if type(opts) ~= "table" then
        bad(2, what, "table", opts)
    end

    local lora, id, salt = opts.lora_name, opts.lora_id, opts.cache_salt

    if lora ~= nil and type(lora) ~= "string" then
        bad(2, what, "string in lora_name", lora)
    end

    if id ~= nil and (type(id) ~= "number" or not (id >= 0 and id <= 2^53)
                      or id % 1 ~= 0)
    then
        bad(2, what, "whole number up to 2^53 in lora_id", id)
    end

    if salt ~= nil and type(salt) ~= "string" then
        bad(2, what, "string in cache_salt", salt)
    end

    return lora_of(lora, id), salt
end


-- ---- reading ----------------------------------------------------------------

-- Looks hashes up, in a buffer for all there may be, and keeps what was found.
local function find_locals(self, zone, locals, n, tokens, early_exit)
    local cap = self.cap

    if not cap then
        cap = lib.max_holders(zone)
        self.cap = cap
        self.buffer = founds(cap)

        local depth = lib.max_frequencies(zone)

        if depth > 0 then
            self.frequencies = u32s(depth)
        end
    end

    local found, nfrequencies = lib.find(zone, locals, n, tokens or 0,
                                         early_exit, self.buffer, cap,
                                         self.frequencies)
    local list = founds(found)

    copy(list, self.buffer, found * found_size)

    local cut = false

    for i = 0, found - 1 do
        cut = cut or list[i].cut == 1
    end

    return matches.new(list, found, n, self.frequencies, nfrequencies, cut)
end


-- Local hashes, sequence hashes, of the whole blocks of tokens; the number of
-- the blocks, and that of the tokens.
local function hash(self, what, tokens, opts, sequence)
    local lora, salt = check_opts(what, opts)
    local data, n = read_tokens(what, tokens, opts)
    if not data then
        return nil, n
    end

    local zone = zone_of(self)
    local out = u64s(n / lib.block_size(zone) + 1)

    if sequence then
        return out, lib.hash(zone, data, n, lora, salt, nil, out), n
    end

    return out, lib.hash(zone, data, n, lora, salt, out, nil), n
end


-- opts: { lora_name, lora_id, cache_salt, n, early_exit }.  lora_id counts where
-- lora_name is nil: the number of a LoRA whose events have no name.  early_exit
-- allows an answer below the exact one where a single holder is left: less to
-- look at.  Returns resty.kv_router.request.matches.
function _M:find_matches(tokens, opts)
    local locals, n, ntokens = hash(self, "find_matches", tokens, opts, false)
    if not locals then
        return nil, n
    end

    return find_locals(self, zone_of(self), locals, n, ntokens,
                       opts ~= nil and opts.early_exit)
end


-- hashes: local ones, from the prompt's beginning.  tokens: the number of the
-- prompt's tokens, or nil, when it is not known: then an engine with several
-- KV-cache groups is taken to compute the last of these blocks.  opts:
-- { early_exit }, as for find_matches().
function _M:find_matches_by_hash(hashes, n, tokens, opts)
    local locals

    if tokens ~= nil and (type(tokens) ~= "number" or tokens < 0
                          or tokens % 1 ~= 0)
    then
        bad(3, "find_matches_by_hash", "number of tokens", tokens)
    end

    locals, n = read_hashes(1, "find_matches_by_hash", hashes, n)
    if not locals then
        return nil, n
    end

    if opts ~= nil and type(opts) ~= "table" then
        bad(4, "find_matches_by_hash", "table", opts)
    end

    return find_locals(self, zone_of(self), locals, n, tokens,
                       opts ~= nil and opts.early_exit)
end


-- Local hashes of the whole blocks: cdata uint64_t, from 0, and their number.
function _M:block_hashes(tokens, opts)
    local out, n = hash(self, "block_hashes", tokens, opts, false)

    return out, n
end


-- The same, of the chain up to and with each block.
function _M:sequence_hashes(tokens, opts)
    local out, n = hash(self, "sequence_hashes", tokens, opts, true)

    return out, n
end


-- ---- writing ----------------------------------------------------------------

-- (worker, rank) now holds blocks, an array of { block_hash, tokens_hash }:
-- the engine's name for the block and its local hash; they follow the block
-- named parent_hash, or begin a prompt when that is nil.  Returns true.
function _M:store(worker, rank, parent_hash, blocks, tier)
    check_worker("store", worker, rank)

    if type(blocks) ~= "table" then
        bad(4, "store", "table", blocks)
    end

    tier = check_tier(5, "store", tier)

    local parent, err

    if parent_hash ~= nil then
        parent, err = read_hash(parent_hash, "parent")
        if not parent then
            return nil, err
        end
    end

    local n = #blocks
    local handles = u64s(n)
    local locals = u64s(n)

    for i = 1, n do
        local block = blocks[i]

        if type(block) ~= "table" then
            return nil, "block " .. i .. " is no pair of hashes"
        end

        local value

        value, err = read_hash(block[1], "block_hash " .. i)
        if not value then
            return nil, err
        end

        handles[i - 1] = value

        value, err = read_hash(block[2], "tokens_hash " .. i)
        if not value then
            return nil, err
        end

        locals[i - 1] = value
    end

    return lib.store(zone_of(self), worker, rank or 0, tier, parent, handles,
                     locals, n)
end


-- (worker, rank) no longer holds the blocks of those block hashes (a table,
-- or cdata and opts n last).  Returns how many of them it didn't hold.
function _M:remove(worker, rank, hashes, tier, n)
    check_worker("remove", worker, rank)
    tier = check_tier(4, "remove", tier)

    local handles

    handles, n = read_hashes(3, "remove", hashes, n)
    if not handles then
        return nil, n
    end

    return lib.remove(zone_of(self), worker, rank or 0, tier, handles, n)
end


-- (worker, rank) holds nothing any more.  Returns true.
function _M:clear(worker, rank)
    check_worker("clear", worker, rank)

    return lib.clear(zone_of(self), worker, rank or 0)
end


-- The worker is gone, with all that its ranks held.  Returns true.
function _M:remove_worker(worker)
    check_worker("remove_worker", worker)

    return lib.remove_worker(zone_of(self), worker)
end


-- ---- for people -------------------------------------------------------------

-- RouterEvents, one a line, which replayed into an empty index give the same
-- answers.  May take tens of milliseconds.
function _M:dump()
    return lib.text(zone_of(self), "dump")
end


local function decoded(self, what)
    local text, err = lib.text(zone_of(self), what)
    if not text then
        return nil, err
    end

    return decode(text)
end


-- What the status page shows, a table.
function _M:stats()
    return decoded(self, "stats")
end


-- The fleet, an array of tables.
function _M:workers()
    return decoded(self, "workers")
end


return _M
