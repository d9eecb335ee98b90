-- Copyright (C) the nginx-kv-router authors
--
-- Which worker a session was at last: a table with a time to live, bounded.
-- In a lua_shared_dict all nginx processes know it, and it outlives a reload;
-- else each process has its own.
--
-- A worker is kept as the numbers of its holder: they name (worker, rank), the
-- same in all processes, and never name another of the zone.  So a session is
-- known by a key that has the zone's name: zones may share a dictionary.


local decode = require "cjson.safe".decode
local policies = require "resty.kv_router.policy"

local ngx = ngx
local md5_bin = ngx.md5_bin
local ngx_now = ngx.now
local setmetatable = setmetatable
local shared = ngx.shared
local tostring = tostring
local type = type


local _M = {}
local mt = { __index = _M }


local MAX_KEY = 64               -- bytes; longer keys are hashed
local HOLDERS = 2^21             -- more than a zone has
local GENERATIONS = 2^31


-- dict: the name of a lua_shared_dict, or nil; ttl: seconds since the session
-- was seen last; entries: bound of a process's own table.  nil and a sentence
-- when there is no such dict.
function _M.new(dict, ttl, entries)
    if not dict then
        return setmetatable({ ttl = ttl, max_entries = entries / 2,
                              young = {}, old = {}, entries = 0 }, mt)
    end

    if not shared or not shared[dict] then
        return nil, 'there is no lua_shared_dict "' .. dict .. '"'
    end

    return setmetatable({ ttl = ttl, dict = shared[dict] }, mt)
end


-- What a session is kept by: short, however long its id is.  zone: the name of
-- the zone, ctx.zone; nil: there is only one.
function _M.key(zone, id)
    local key = (zone or "") .. " " .. id

    return #key > MAX_KEY and md5_bin(key) or key
end


-- The number that names candidate c.
function _M.number(c)
    return c.holder + c.generation % GENERATIONS * HOLDERS
end


-- Remembers the number for the session of that key.
function _M:set(key, number)
    if self.dict then
        -- when it is full, those not used for longest go
        self.dict:set(key, number, self.ttl)
        return
    end

    -- two generations: nearly an LRU
    if self.entries >= self.max_entries then
        self.old = self.young
        self.young = {}
        self.entries = 0
    end

    local entry = self.young[key]

    if not entry then
        entry = {}
        self.young[key] = entry
        self.entries = self.entries + 1
    end

    entry.number = number
    entry.till = ngx_now() + self.ttl
end


-- The number remembered, or nil.
function _M:get(key)
    if self.dict then
        return (self.dict:get(key))
    end

    local entry = self.young[key] or self.old[key]

    if entry and entry.till > ngx_now() then
        return entry.number
    end

    return nil
end


-- Forgets the session.
function _M:drop(key)
    if self.dict then
        self.dict:delete(key)
        return
    end

    if self.young[key] then
        self.young[key] = nil
        self.entries = self.entries - 1
    end

    self.old[key] = nil
end


-- Which candidate, from 1, the session was at last; nil: none of them.
function _M:find(key, candidates)
    local number = self:get(key)

    if not number then
        return nil
    end

    local holder = number % HOLDERS
    local generation = (number - holder) / HOLDERS

    for i = 1, #candidates do
        local c = candidates[i]

        if c.holder == holder and c.generation % GENERATIONS == generation then
            return i
        end
    end

    return nil
end


-- ---- for policies -----------------------------------------------------------

-- The key of the request's session, or nil.
function _M.key_of(ctx, header, field)
    local request = ctx.request
    local id = header ~= "" and request.headers[header]

    if id and id ~= "" then
        return _M.key(ctx.zone, id)
    end

    local text = field ~= "" and request.fields[field]

    if not text then
        return nil
    end

    id = decode(text)

    if type(id) == "number" then
        return _M.key(ctx.zone, tostring(id))
    end

    return type(id) == "string" and id ~= "" and _M.key(ctx.zone, id) or nil
end


-- After a retry the session is where it was served.  policy: one with sessions,
-- of this module, and conf, its settings header and field.
function _M.moved(policy, ctx, outcome)
    if ctx and outcome.tries > 1 then
        local key = _M.key_of(ctx, policy.conf.header, policy.conf.field)
        local candidates = ctx.candidates

        for i = 1, key and #candidates or 0 do
            if candidates[i].holder == outcome.holder then
                policy.sessions:set(key, _M.number(candidates[i]))
            end
        end
    end
end


-- What a policy of that name with the settings next, next_conf, dict, ttl and
-- entries is made of: the next policy, and sessions; or nil and a sentence.
function _M.beside(conf, name)
    local next, err = policies.load(conf.next, conf.next_conf)
    if not next then
        return nil, err
    end

    if next.policy.roles then
        return nil, '"next": a policy of pairs is asked first: give ' .. name
                    .. ' as its "decode"'
    end

    local kept

    kept, err = _M.new(conf.dict, conf.ttl, conf.entries)

    return kept and next, kept or err
end


return _M
