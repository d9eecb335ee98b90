-- Copyright (C) the nginx-kv-router authors
--
-- What a router could reach that knew the future: for each request it tries
-- every worker, each in a copy of the simulation, and takes the one with the
-- least sum of the times to first token of this request and those that come
-- next.  In the copy another policy chooses for these, and its choice for this
-- one stands where none is better.
--
-- A copy is a child process, by fork(): it has the caches, the index and the
-- heap of the run as they are, runs on with one choice made, and ends.


local ffi = require "ffi"
local policy = require "resty.kv_router.policy"
local settings = require "resty.kv_router.request.conf".check

local C = ffi.C
local decide = policy.decide


ffi.cdef [[
int kv_router_fork(void) __asm__("fork");
int kv_router_wait(int pid, int *status, int options) __asm__("waitpid");
void kv_router_exit(int status) __asm__("_exit");
void *kv_router_map(void *at, size_t size, int protection, int flags, int fd,
    long offset) __asm__("mmap");
]]


local _M = { name = "look_ahead" }
local mt = { __index = _M }


local SETTINGS = {
    requests = { type = "number", default = 16, integer = true, max = 1e6 },
    next = { type = "string", default = "kv_cost" },
}

local READ_WRITE, SHARED_ANONYMOUS = 3, 33   -- of mmap(), by Linux

local current                    -- the request for which a policy is asked
local branch                     -- of a copy: what is left, open and summed up
local sums                       -- what a copy found, for its parent


-- conf: requests, how many next ones count; next: the policy that chooses for
-- them.
function _M.new(conf)
    local complete, err = settings(conf, SETTINGS)
    if not complete then
        return nil, err
    end

    local other

    other, err = policy.load(complete.next)
    if not other then
        return nil, err
    end

    sums = sums or ffi.cast("double *", C.kv_router_map(
        nil, 4096, READ_WRITE, SHARED_ANONYMOUS, -1, 0))

    return setmetatable({ requests = complete.requests, other = other }, mt)
end


local function done()
    sums[0] = branch.sum
    C.kv_router_exit(0)
end


-- Returns what a copy finds with a choice made; nil: this is the copy.
local function try(requests)
    assert(current, "kv-simulate alone can look ahead")

    local child = C.kv_router_fork()

    if child < 0 then
        error("fork() failed: is there memory for a copy of the process?")
    end

    if child > 0 then
        local status = ffi.new("int[1]")

        C.kv_router_wait(child, status, 0)

        if status[0] ~= 0 then
            error("a copy of the simulation failed")
        end

        return sums[0]
    end

    -- collecting garbage would write to all pages that the two share
    collectgarbage("stop")
    branch = { left = requests, open = 1, sum = 0 }
    current.branch = branch
end


function _M:pick(ctx)
    if branch then
        return self.other:pick(ctx)
    end

    local chosen = decide(self.other, ctx)
    local best, least = chosen[0] + 1, math.huge
    local order = { best }

    for i = 1, #ctx.candidates do
        order[#order + 1] = i ~= best and i or nil
    end

    for _, i in ipairs(order) do
        local sum = try(self.requests)

        if not sum then
            return i, nil, "copy"
        end

        if sum < least - 1e-9 then
            best, least = i, sum
        end
    end

    return best, nil, "look-ahead"
end


-- ---- what the run tells -------------------------------------------------------

-- A policy is about to be asked for a request.
function _M.asked(request)
    current = request

    if branch and branch.left > 0 then
        branch.left = branch.left - 1
        branch.open = branch.open + 1
        request.branch = branch
    end
end


-- Its first token has come.
function _M.first(request, now)
    if request.branch then
        branch.open = branch.open - 1
        branch.sum = branch.sum + now - request.arrived

        if branch.open == 0 and branch.left == 0 then
            done()
        end
    end
end


-- The run has ended.
function _M.over()
    if branch then
        done()
    end
end


return _M
