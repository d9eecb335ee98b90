-- Copyright (C) the nginx-kv-router authors
--
-- A member of a group of routers of kv-simulate: what one router tells the
-- others of its load, and what it makes of what they tell.
--
--     added(), changed(), ended() ─► tell() ─► lost?  no: hear() after `share`
--
-- Load is told as absolute rows, by worker: requests, prefills, their tokens,
-- when the running prefill began, blocks that decode.  For each request the
-- chains of at most 33 beginnings of its uncached part are told, and that it is
-- over.  A message goes at once when a request was added, 2 ms after the last
-- one at the earliest; 20 ms after it when other rows have changed; and 50 ms
-- after it while the router has load.  A row with load is told again each
-- 500 ms, and the share each second.
--
-- Nothing is repaired.  Each second, a row that its router has not told for 1.5 s
-- becomes 0.
--
-- What a peer tells counts while its newest message was sent at most 150 ms
-- ago.
--
-- What is in flight at peers counts until it has ended, and for 60 s at the
-- most; what runs is told again each 30 s.


local ffi = require "ffi"
local homes = require "resty.kv_router.tools.simulate.homes"

local ceil = math.ceil
local ffi_new = ffi.new
local floor = math.floor
local max = math.max


ffi.cdef [[
typedef struct {
    double    active;
    double    prefills;
    double    queued;
    double    begun;
    double    decode;
} kvr_simulate_row_t;
]]

local rows_t = ffi.typeof("kvr_simulate_row_t[?]")
local times_t = ffi.typeof("double[?]")


local _M = {
    rows = rows_t,               -- rows(n): n rows without load
}
local mt = { __index = _M }


-- seconds
local TOGETHER = 0.002
local ROWS = 0.020
local ALIVE = 0.050
local ABOUT = 1
local AGAIN = 0.5
local LOST = 1.5
local FRESH = 0.150
local UNTIL = 60
local RENEW = 30
local WINDOW = 30                -- of the share

local SAMPLES = 32
local LOOKUPS = 128
local UNIT = 4                   -- blocks
local RUN = 20                   -- messages that are lost together, on average


-- ---- samples ----------------------------------------------------------------

-- The least power of 2 that is at least UNIT and `blocks`.
local function stride(blocks)
    local step = UNIT

    while step < blocks do
        step = 2 * step
    end

    return step
end


-- The multiples of step in (from, n], and the last multiple of UNIT, the
-- deepest first.
local function multiples(from, n, step)
    local list, last = {}, n - n % UNIT

    if last > from then
        list[1] = last
    end

    for depth = n - n % step, from + 1, -step do
        if depth ~= last then
            list[#list + 1] = depth
        end
    end

    return list
end


-- The depths that are told of a prompt of n blocks, of which `from` are cached.
function _M.samples(from, n)
    return multiples(from, n, stride(ceil((n - from) / SAMPLES)))
end


-- The depths that are looked up for a prompt of n blocks.
function _M.lookups(n)
    return multiples(0, n, stride(n / LOOKUPS))
end


-- ---- a member ---------------------------------------------------------------

-- number: of the router, from 0.  conf: routers, workers, share (seconds),
-- share_loss (of messages).  read(worker, row): writes the router's own row.
-- plan(at, act, what): has "tell" (member) or "renew" ({ member, add }) done at
-- a time.
function _M.new(number, conf, read, plan)
    local self = setmetatable({
        number = number, conf = conf, read = read, plan = plan,
        last = -1, about = -ABOUT,       -- when they were told
        open = 0,                -- requests
        changes = {}, changed_is = {}, adds = {}, ends = {},
        told = {},               -- when a row was, which has load; by worker
        tokens = {},             -- uncached ones, by second
        shares = {},             -- by router
        foreign = ffi_new("uint8_t[?]", conf.workers),
        peers = {},              -- a list
        peer_of = {},            -- by router
        flying = {},             -- chain -> worker -> { count, till }
        sums = rows_t(conf.workers),
        losing = {},             -- by router that tells
    }, mt)

    for i = 0, conf.routers - 1 do
        self.shares[i] = 0

        if i ~= number then
            local peer = { at = -1, looked = 0, tokens = 0, adds = {},
                           rows = rows_t(conf.workers),
                           told = times_t(conf.workers) }

            self.peers[#self.peers + 1] = peer
            self.peer_of[i] = peer
        end
    end

    return self
end


local function want(self, at)
    if not self.due or at < self.due then
        self.due = at
        self.plan(at, "tell", self)
    end
end


-- The row of a worker has changed.
function _M:changed(worker, now)
    if not self.changed_is[worker] then
        self.changed_is[worker] = true
        self.changes[#self.changes + 1] = worker
    end

    want(self, max(now, self.last + ROWS))
end


-- A request goes to a worker that has so many of its blocks, and as many of its
-- tokens are not cached.
function _M:added(request, had, now)
    local names, chains = request.names, {}

    for i, depth in ipairs(_M.samples(had, request.prompt_blocks)) do
        chains[i] = names[depth - 1]
    end

    local add = { worker = request.worker, chains = chains }
    local second = floor(now)

    request.add = add
    self.open = self.open + 1
    self.adds[#self.adds + 1] = add
    self.tokens[second] = (self.tokens[second] or 0) + request.prefill_tokens
    self:changed(request.worker, now)
    want(self, max(now, self.last + TOGETHER))
    self.plan(now + RENEW, "renew", { member = self, add = add })
end


function _M:renew(add, now)
    if not add.over then
        self.adds[#self.adds + 1] = add
        want(self, max(now, self.last + TOGETHER))
        self.plan(now + RENEW, "renew", { member = self, add = add })
    end
end


function _M:ended(request, now)
    request.add.over = true
    self.open = self.open - 1
    self.ends[#self.ends + 1] = request.add
    self:changed(request.worker, now)
end


-- The router goes, when its requests are over, or comes.
function _M:leaves(gone, now)
    self.gone, self.tokens, self.about = gone, {}, -ABOUT
    want(self, now)
end


-- ---- telling ----------------------------------------------------------------

local function assign(self)
    homes.assign(self.shares, self.conf.routers, self.number,
                 self.conf.workers, self.foreign)
end


-- The uncached tokens of the last seconds; sets the router's own share by them.
local function measure(self, now)
    local own, second = 0, floor(now)

    for i = second - WINDOW + 1, second do
        own = own + (self.tokens[i] or 0)
    end

    local all, last = own, self.shares[self.number]

    for _, peer in ipairs(self.peers) do
        all = all + peer.tokens
    end

    local share = self.gone and 0 or homes.share(own, all, last)

    if share ~= last then
        self.shares[self.number] = share
        assign(self)
    end

    return own
end


-- Returns a message, or nil: one has gone since this was planned.
function _M:tell(now)
    if self.due ~= now then
        return nil
    end

    local workers, told = self.changes, self.told
    local m = { from = self.number, at = now, workers = workers,
                adds = self.adds, ends = self.ends }

    if now - self.about >= ABOUT then
        m.tokens = measure(self, now)
        m.share = self.shares[self.number]
        self.about = now
    end

    for worker = 0, self.conf.workers - 1 do
        if not self.changed_is[worker] and told[worker]
           and now - told[worker] >= AGAIN
        then
            workers[#workers + 1] = worker
        end
    end

    m.rows = rows_t(#workers)

    for i, worker in ipairs(workers) do
        local row = m.rows[i - 1]

        self.read(worker, row)
        told[worker] = row.active > 0 and now or nil
    end

    self.last, self.due = now, nil
    self.changes, self.changed_is, self.adds, self.ends = {}, {}, {}, {}

    if self.open > 0 then
        want(self, now + ALIVE)
    end

    return m
end


-- Is the next message of that router lost on its way to this one?  Losses come
-- in runs.
function _M:loses(from, random)
    local loss = self.conf.share_loss
    local losing = self.losing[from]

    if loss > 0 then
        local change = losing and 1 / RUN or loss / (1 - loss) / RUN

        if random() < change then
            losing = not losing
        end
    end

    self.losing[from] = losing

    return losing
end


-- ---- hearing ----------------------------------------------------------------

local function add(self, peer, it, now)
    local first = not peer.adds[it]

    peer.adds[it] = true

    for _, chain in ipairs(it.chains) do
        local at = self.flying[chain] or {}
        local entry = at[it.worker]

        if not entry or entry.till <= now then
            entry = { count = 0 }
        end

        entry.count = entry.count + (first and 1 or 0)
        entry.till = now + UNTIL
        at[it.worker] = entry
        self.flying[chain] = at
    end
end


local function remove(self, peer, it)
    if not peer.adds[it] then
        return
    end

    peer.adds[it] = nil

    for _, chain in ipairs(it.chains) do
        local at = self.flying[chain]
        local entry = at and at[it.worker]

        if entry then
            entry.count = entry.count - 1

            if entry.count <= 0 then
                at[it.worker] = nil
                self.flying[chain] = next(at) and at
            end
        end
    end
end


-- Rows that were not told for long are 0: it was lost that they are.
local function expire(self, peer)
    for worker = 0, self.conf.workers - 1 do
        if peer.at - peer.told[worker] > LOST then
            ffi.fill(peer.rows + worker, ffi.sizeof(peer.rows[worker]))
        end
    end

    peer.looked = peer.at
end


-- A message has come.
function _M:hear(m, now)
    local peer = self.peer_of[m.from]

    peer.at = m.at

    for i, worker in ipairs(m.workers) do
        peer.rows[worker], peer.told[worker] = m.rows[i - 1], m.at
    end

    if m.at - peer.looked >= ABOUT then
        expire(self, peer)
    end

    for _, it in ipairs(m.adds) do
        add(self, peer, it, now)
    end

    for _, it in ipairs(m.ends) do
        remove(self, peer, it)
    end

    if m.share then
        peer.tokens = m.tokens

        if self.shares[m.from] ~= m.share then
            self.shares[m.from] = m.share
            assign(self)
        end
    end
end


-- ---- asking -----------------------------------------------------------------

-- The load of all peers whose news are fresh, by worker, and whether there is
-- any such peer.
function _M:load(now)
    local sums, any = self.sums, false
    local workers = self.conf.workers

    ffi.fill(sums, ffi.sizeof(sums))

    for _, peer in ipairs(self.peers) do
        if now - peer.at <= FRESH then
            local rows = peer.rows

            any = true

            for i = 0, workers - 1 do
                local sum, row = sums[i], rows[i]

                sum.active = sum.active + row.active
                sum.prefills = sum.prefills + row.prefills
                sum.queued = sum.queued + row.queued
                sum.decode = sum.decode + row.decode

                if row.prefills > 0 then
                    sum.begun = max(sum.begun, row.begun)
                end
            end
        end
    end

    return sums, any
end


-- Raises depths[w] to the number of a prompt's blocks that peers have in flight
-- at the worker.
function _M:raise(names, n, depths, now)
    for _, depth in ipairs(_M.lookups(n)) do
        local at = self.flying[names[depth - 1]]

        for worker, entry in pairs(at or {}) do
            if entry.till > now then
                depths[worker] = max(depths[worker], depth)
            end
        end
    end
end


return _M
