-- Copyright (C) the nginx-kv-router authors
--
-- vLLM's prefix cache, as its v1 scheduler has it: a fixed number of blocks,
-- and a queue of those that no request uses.
--
--     queue   [oldest ... youngest]   not used, and cached while they last
--     held    name -> block           each copy of a name links to the next one
--
-- A request that ends puts its blocks into the queue in reverse: the tail of a
-- prompt is evicted before its head.  Blocks that are not whole have no name,
-- and can't be found: they are put at the queue's old end, to be taken first.  A
-- block that is computed twice is there twice.
--
-- Of a request the cache uses: names (double[]), blocks (int32_t[], written
-- here), nblocks (how many of these it has), cached (how many have names).


local ffi = require "ffi"

local ffi_new = ffi.new


local _M = {}
local mt = { __index = _M }


-- capacity: blocks.  on_stored(request, from, n), on_removed(name): called
-- when the first copy of a block comes, and when the last copy goes.
function _M.new(capacity, on_stored, on_removed)
    local self = setmetatable({
        capacity = capacity,
        free = capacity,
        on_stored = on_stored,
        on_removed = on_removed,
        held = {},
        name = ffi_new("double[?]", capacity + 1),
        refs = ffi_new("int32_t[?]", capacity + 1),
        -- the queue is a ring through block 0, which is no block
        newer = ffi_new("int32_t[?]", capacity + 1),
        older = ffi_new("int32_t[?]", capacity + 1),
        -- copies of one name
        left = ffi_new("int32_t[?]", capacity + 1),
        right = ffi_new("int32_t[?]", capacity + 1),
    }, mt)

    for i = 0, capacity do
        self.newer[i] = i < capacity and i + 1 or 0
        self.older[i] = i > 0 and i - 1 or capacity
    end

    return self
end


-- How many blocks of a prompt are cached, up to limit.
function _M:match(request, limit)
    local held, names = self.held, request.names

    for i = 0, limit - 1 do
        if not held[names[i]] then
            return i
        end
    end

    return limit
end


-- Puts a block into the queue, before the block `younger`; 0: as the youngest.
local function enqueue(self, block, younger)
    local older, newer = self.older, self.newer
    local last = older[younger]

    newer[last], older[block] = block, last
    newer[block], older[younger] = younger, block
    self.free = self.free + 1
end


local function dequeue(self, block)
    local older, newer = self.older, self.newer

    newer[older[block]], older[newer[block]] = newer[block], older[block]
    self.free = self.free - 1
end


-- Begins a request: the first k blocks of its prompt are found, not computed.
function _M:acquire(request, k)
    local held, refs = self.held, self.refs

    for i = 0, k - 1 do
        local block = held[request.names[i]]

        if refs[block] == 0 then
            dequeue(self, block)
        end

        refs[block] = refs[block] + 1
        request.blocks[i] = block
    end

    request.nblocks, request.cached = k, k
end


local function forget(self, block)
    local name = self.name[block]

    if name == 0 then
        return
    end

    local left, right = self.left[block], self.right[block]

    if right ~= 0 then
        self.left[right] = left
    end

    if left ~= 0 then
        self.right[left] = right

    elseif right ~= 0 then
        self.held[name] = right

    else
        self.held[name] = nil
        self.on_removed(name)
    end

    self.name[block] = 0
end


-- Gives a request blocks until it has n.  False: there are not enough; nothing
-- has changed.
function _M:grow(request, n)
    local fresh = n - request.nblocks

    if fresh > self.free then
        return false
    end

    for i = request.nblocks, n - 1 do
        local block = self.newer[0]

        dequeue(self, block)
        forget(self, block)
        self.refs[block] = 1
        request.blocks[i] = block
    end

    if fresh > 0 then
        request.nblocks = n
    end

    return true
end


-- Blocks of a request up to n are computed.
function _M:commit(request, n)
    local held = self.held
    local from = request.cached

    for i = from, n - 1 do
        local block, name = request.blocks[i], request.names[i]
        local first = held[name]

        self.name[block] = name

        if first then
            -- a copy: behind the first one
            local right = self.right[first]

            self.left[block], self.right[block] = first, right
            self.right[first] = block

            if right ~= 0 then
                self.left[right] = block
            end

            if from < i then
                self.on_stored(request, from, i)
            end

            from = i + 1

        else
            self.left[block], self.right[block] = 0, 0
            held[name] = block
        end
    end

    if from < n then
        self.on_stored(request, from, n)
    end

    request.cached = n
end


-- Ends a request, or takes all blocks from a preempted one.
function _M:release(request)
    local oldest = self.newer[0]

    for i = request.nblocks - 1, 0, -1 do
        local block = request.blocks[i]

        self.refs[block] = self.refs[block] - 1

        if self.refs[block] == 0 then
            enqueue(self, block, self.name[block] == 0 and oldest or 0)
        end
    end

    request.nblocks, request.cached = 0, 0
end


return _M
