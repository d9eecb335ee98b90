-- Copyright (C) the nginx-kv-router authors
--
-- SGLang's prefix cache, in pages of one block: a radix tree whose leaves are
-- evicted, the least recently used one first.
--
--     held    name -> { parent, children, refs, used }
--
-- A running request locks the nodes of its prompt.  A block that is computed
-- twice is kept once: the copy is given back at once.
--
-- The methods are those of resty.kv_router.tools.simulate.vllm_cache.  Of a request
-- the cache uses: names, nblocks, cached.


local new_heap = require "resty.kv_router.tools.simulate.heap".new
local vllm_cache = require "resty.kv_router.tools.simulate.vllm_cache"


local _M = {}
local mt = { __index = _M }


local function before(a, b)
    return a.used < b.used
end


function _M.new(capacity, on_stored, on_removed)
    return setmetatable({
        capacity = capacity,
        free = capacity,         -- blocks without a node and without a request
        idle = 0,                -- nodes that no request locks
        on_stored = on_stored,
        on_removed = on_removed,
        held = {},
        clock = 0,               -- counts uses
        leaves = new_heap(before),   -- name, and use when it came
    }, mt)
end


-- ---- leaves: one whose node was used since is out of date --------------------

local function offer(self, name, node)
    if node.refs == 0 and node.children == 0 then
        self.leaves:push({ name = name, used = node.used })
    end
end


-- Evicts the oldest leaf that no request locks.  False: there is none.
local function evict(self)
    local nodes = self.held

    while self.leaves.n > 0 do
        local leaf = self.leaves:pop()
        local node = nodes[leaf.name]

        if node and node.refs == 0 and node.children == 0
           and node.used == leaf.used
        then
            local parent = nodes[node.parent]

            nodes[leaf.name] = nil
            self.on_removed(leaf.name)
            self.free, self.idle = self.free + 1, self.idle - 1

            if parent then
                parent.children = parent.children - 1
                offer(self, node.parent, parent)
            end

            return true
        end
    end

    return false
end


-- ---- the cache --------------------------------------------------------------

_M.match = vllm_cache.match


local function lock(self, node)
    if node.refs == 0 then
        self.idle = self.idle - 1
    end

    node.refs = node.refs + 1
    node.used = self.clock
end


function _M:acquire(request, k)
    self.clock = self.clock + 1

    for i = 0, k - 1 do
        lock(self, self.held[request.names[i]])
    end

    request.nblocks, request.cached = k, k
end


function _M:grow(request, n)
    local fresh = n - request.nblocks

    if fresh <= 0 then
        return true
    end

    if fresh > self.free + self.idle then
        return false
    end

    while self.free < fresh do
        evict(self)
    end

    self.free = self.free - fresh
    request.nblocks = n

    return true
end


function _M:commit(request, n)
    local nodes, names = self.held, request.names
    local from = request.cached

    self.clock = self.clock + 1

    for i = from, n - 1 do
        local node = nodes[names[i]]

        if node then
            lock(self, node)
            self.free = self.free + 1

            if from < i then
                self.on_stored(request, from, i)
            end

            from = i + 1

        else
            local parent = i > 0 and names[i - 1] or 0

            nodes[names[i]] = { parent = parent, children = 0, refs = 1,
                                used = self.clock }

            if parent ~= 0 then
                nodes[parent].children = nodes[parent].children + 1
            end
        end
    end

    if from < n then
        self.on_stored(request, from, n)
    end

    request.cached = n
end


function _M:release(request)
    local nodes, names = self.held, request.names

    self.clock = self.clock + 1
    self.free = self.free + request.nblocks - request.cached

    for i = request.cached - 1, 0, -1 do
        local node = nodes[names[i]]

        node.refs = node.refs - 1
        node.used = self.clock

        if node.refs == 0 then
            self.idle = self.idle + 1
            offer(self, names[i], node)
        end
    end

    request.nblocks, request.cached = 0, 0
end


return _M
