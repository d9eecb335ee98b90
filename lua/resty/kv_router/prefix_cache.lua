-- Copyright (C) the nginx-kv-router authors
--
-- A prefix cache: a zone of kv_router_prefix_cache, for Lua.
--
--     local cache = require("resty.kv_router.prefix_cache").new("cache")
--
-- key         of tokens: a table of numbers and items, a packed string (u32,
--             little endian), or cdata uint32_t; of hashes: a table of
--             hashes, or cdata uint64_t; of bytes: a string
-- an item     { hash = a hash, n = tokens }: a picture, say, in a key of
--             tokens; it stands for n tokens
-- a hash      cdata uint64_t, a decimal string, or a number up to 2^53
-- values      one a unit: a table of numbers, a packed string or cdata, as
--             tokens are; the library returns packed strings
-- opts        a table or nil: extra_key, a string, "" when nil; n, the number
--             of elements of cdata; and what is said below
-- a node, a lock   cdata, to be passed back as they are
--
-- Arguments of a wrong type are errors; wrong values in them, and what goes
-- wrong in the zone, give nil and a sentence.  Nothing here yields: a call
-- that is long gives the zone's lock back each half of a millisecond, but not
-- the nginx process.


local decode = require "cjson.safe".decode
local ffi = require "ffi"
local input = require "resty.kv_router.request.input"
local lib = require "resty.kv_router.prefix_ffi"

local ffi_new = ffi.new
local ffi_string = ffi.string
local ipairs = ipairs
local istype = ffi.istype
local setmetatable = setmetatable
local tostring = tostring
local type = type

local bad = input.bad


local _M = {}
local mt = { __index = _M }

local LEVELS = 256               -- KVR_PREFIX_LEVELS
local KEY_MAX = 2^20             -- KVR_PREFIX_KEY_MAX
local KEY_BYTES_MAX = 2^22
local ENTRY_MAX = 65536          -- KVR_PREFIX_ENTRY_MAX
local EXTRA_MAX = 1024           -- KVR_PREFIX_EXTRA_MAX
local VALUE_MAX = 65536          -- KVR_PREFIX_VALUE_MAX
local SHOWN = 1000               -- nodes of a dump
local SHOWN_MAX = 4096           -- KVR_PREFIX_DUMP_MAX


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
        self.unit = lib.unit(zone)
    end

    return zone
end


-- ---- arguments --------------------------------------------------------------

-- A table of tokens with all items written out, or nil and a sentence.
local function expand(key)
    local out = {}

    for i, token in ipairs(key) do
        if type(token) ~= "table" then
            out[#out + 1] = token

        else
            local hash, err = input.hash(token.hash, "item " .. i)
            local n = token.n

            if not hash then
                return nil, err
            end

            if type(n) ~= "number" or n < 1 or n > KEY_MAX or n % 1 ~= 0 then
                return nil, "item " .. i .. ": n is " .. tostring(n)
                            .. ", it must be a number from 1 to 2^20"
            end

            local units = ffi_new("uint32_t[?]", n)

            lib.item(hash, units, n)

            for k = 0, n - 1 do
                out[#out + 1] = units[k]
            end
        end
    end

    return out
end


local function has_items(key)
    for _, token in ipairs(key) do
        if type(token) == "table" then
            return true
        end
    end

    return false
end


-- The sentence for what has too much of something, or nil.
local function too_much(what, n, unit, most)
    return n > most and what .. " has " .. n .. " " .. unit
                        .. ", the maximum is " .. most or nil
end


-- The units of a key, and their number; or nil and a sentence.
local function units_of(self, what, key, opts)
    if self.unit == 1 then
        if type(key) ~= "string" then
            bad(1, what, "string", key)
        end

        return key, #key
    end

    if self.unit == 8 then
        return input.hashes(1, what, key, opts and opts.n)
    end

    if type(key) == "table" and has_items(key) then
        local err

        key, err = expand(key)
        if not key then
            return nil, err
        end
    end

    return input.tokens(what, key, opts)
end


-- The zone, the key's units (or nil), their number (or a sentence), and the
-- extra key.  most: units, KEY_MAX when nil.
local function key_of(self, what, key, opts, most)
    if opts ~= nil and type(opts) ~= "table" then
        bad(2, what, "table", opts)
    end

    local extra = opts and opts.extra_key
    local zone = zone_of(self)

    if extra ~= nil and type(extra) ~= "string" then
        bad(2, what, "string in extra_key", extra)
    end

    local units, n = units_of(self, what, key, opts)

    if not units then
        return zone, nil, n
    end

    local err = too_much("the key", n, "units", most or KEY_MAX)
                or too_much("the key", n * self.unit, "bytes", KEY_BYTES_MAX)
                or too_much("the extra key", #(extra or ""), "bytes",
                            EXTRA_MAX)
    if err then
        return zone, nil, err
    end

    return zone, units, n, extra
end


-- The same of an entry.
local function entry_of(self, what, key, opts)
    local zone, units, n, extra = key_of(self, what, key, opts, ENTRY_MAX)

    if units and n == 0 then
        return zone, nil, "the key of an entry must not be empty"
    end

    return zone, units, n, extra
end


-- Room for n values, if they are wanted.
local function room(n, opts)
    return opts and opts.values and ffi_new("uint32_t[?]", n) or nil
end


local function packed(values, n)
    return values and ffi_string(values, n * 4) or nil
end


local function check_node(n, what, node)
    if not istype(lib.node, node) then
        bad(n, what, "node", node)
    end
end


-- ---- the tree ---------------------------------------------------------------

-- The longest prefix of a key that is in the tree.  opts.values: true: the
-- values are wanted.  Returns its length in units, the node, and the values.
function _M:match(key, opts)
    local zone, units, n, extra = key_of(self, "match", key, opts)
    if not units then
        return nil, n
    end

    local values = room(n, opts)
    local node, err = lib.match(zone, units, n, extra, values)
    if not node then
        return nil, err
    end

    return node.length, node, packed(values, node.length)
end


-- A request begins: matches all but the key's last unit, and locks what was
-- found.  Returns { length, uncached, node, lock, values }: uncached units
-- are to be computed; the lock is to be given back by unlock().
function _M:begin(key, opts)
    local zone, units, n, extra = key_of(self, "begin", key, opts)
    if not units then
        return nil, n
    end

    local values = room(n, opts)
    local node, lock = lib.begin(zone, units, n, extra, values)
    if not node then
        return nil, lock
    end

    return { length = node.length, uncached = n - node.length, node = node,
             lock = lock, values = packed(values, node.length) }
end


-- Inserts a key.  values: one a unit, nil: the units are the values; from: a
-- node of an earlier match of the same key, or nil; opts.priority: 0 (when
-- nil) to 255.  Returns how many units were there before, the node of the
-- whole key, and the values of what was evicted for room; or nil, a sentence,
-- the node as far as it has come, and the values.
function _M:insert(key, values, from, opts)
    local zone, units, n, extra = key_of(self, "insert", key, opts)
    if not units then
        return nil, n
    end

    local priority = opts and opts.priority or 0

    if type(priority) ~= "number" or priority < 0 or priority >= LEVELS
       or priority % 1 ~= 0
    then
        bad(4, "insert", "priority from 0 to 255", priority)
    end

    if from ~= nil then
        check_node(3, "insert", from)
    end

    if values ~= nil then
        local count

        values, count = input.tokens("insert", values, { n = n })
        if not values then
            return nil, count
        end

        if count ~= n then
            return nil, "there are " .. count .. " values, and " .. n
                        .. " units: each unit must have one"
        end
    end

    return lib.insert(zone, units, n, extra, values, from, priority)
end


-- Protects a node and all above it until unlock(), or until this process has
-- ended.  Returns a lock; nil, err: the node is gone, or there is no room.
function _M:lock(node)
    check_node(1, "lock", node)

    return lib.lock(zone_of(self), node)
end


-- Gives a lock back, once.  Returns true; nil, err: it was given back, or
-- voided by a reset, or another process has taken it.
function _M:unlock(lock)
    if not istype(lib.lock_type, lock) then
        bad(1, "unlock", "lock", lock)
    end

    return lib.unlock(zone_of(self), lock)
end


-- Evicts at least n units, if so many are not locked.  Returns how many, and
-- their values.
function _M:evict(n)
    if type(n) ~= "number" or n < 0 or n > 2^53 then
        bad(1, "evict", "number of units", n)
    end

    return lib.evict(zone_of(self), n)
end


-- Drops the whole tree, and voids all locks.  Returns the values.
function _M:reset()
    return lib.reset(zone_of(self))
end


-- The values of all nodes, in no order.
function _M:values()
    return lib.values(zone_of(self))
end


-- ---- entries ----------------------------------------------------------------

-- Stores a value, a string, with a key.  Returns true.
function _M:put(key, value, opts)
    if type(value) ~= "string" then
        bad(2, "put", "string", value)
    end

    local zone, units, n, extra = entry_of(self, "put", key, opts)
    if not units then
        return nil, n
    end

    local err = too_much("the value", #value, "bytes", VALUE_MAX)
    if err then
        return nil, err
    end

    return lib.put(zone, units, n, extra, value)
end


-- The value of a key; nil: there is none.
function _M:get(key, opts)
    local zone, units, n, extra = entry_of(self, "get", key, opts)
    if not units then
        return nil, n
    end

    return lib.get(zone, units, n, extra)
end


-- The longest stored key that this key begins with, with opts.strict: a
-- shorter one.  Returns its length in units, and its value; nil: there is none.
function _M:longest_prefix(key, opts)
    local zone, units, n, extra = key_of(self, "longest_prefix", key, opts)
    if not units then
        return nil, n
    end

    return lib.longest(zone, units, n, extra, opts and opts.strict)
end


-- Returns true; false: there is no such entry.
function _M:delete(key, opts)
    local zone, units, n, extra = entry_of(self, "delete", key, opts)
    if not units then
        return nil, n
    end

    return lib.delete(zone, units, n, extra)
end


-- Deletes all entries.  Returns true.
function _M:clear()
    return lib.clear(zone_of(self))
end


-- ---- for people -------------------------------------------------------------

-- The numbers, a table.
function _M:stats()
    local text, err = lib.text(zone_of(self), 0)
    if not text then
        return nil, err
    end

    return decode(text)
end


-- The tree and the entries as text, a line a node.  limit: nodes, 1000 when
-- nil, up to 4096.
function _M:dump(limit)
    if limit ~= nil and (type(limit) ~= "number" or limit < 1
                         or limit > SHOWN_MAX)
    then
        bad(1, "dump", "number from 1 to 4096", limit)
    end

    return lib.text(zone_of(self), limit or SHOWN)
end


return _M
