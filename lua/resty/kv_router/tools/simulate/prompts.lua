-- Copyright (C) the nginx-kv-router authors
--
-- The blocks of conversations.  All turns of a conversation are beginnings of
-- one row of blocks, which is made at its first turn and dropped after its last
-- one.


local ffi = require "ffi"
local index = require "resty.kv_router.tools.simulate.index"
local workload = require "resty.kv_router.tools.simulate.workload"

local ffi_new = ffi.new
local floor = math.floor
local min = math.min


local _M = {}


-- The local hashes and the names of a conversation's blocks, as arrays.  The
-- first prompt has so many tokens.
function _M.of(talk, prompt, size)
    if talk.locals then
        return talk.locals, talk.names
    end

    local n = workload.blocks_of(talk, size)
    local whole = floor(prompt / size)
    local at = 0

    talk.locals = ffi_new("uint64_t[?]", n)
    talk.names = ffi_new("double[?]", n)

    -- the last of the parts may be cut in the middle of a block: what follows
    -- is the conversation's own
    for _, p in ipairs(talk.parts) do
        local blocks = min(p[2], whole - at)

        index.locals(tonumber(p[1]) % 2^53, 0, blocks, talk.locals + at)
        at = at + blocks
    end

    index.locals(talk.own, at, n - at, talk.locals + at)
    index.names(talk.locals, 0, n, talk.names)

    return talk.locals, talk.names
end


function _M.drop(talk)
    talk.locals, talk.names = nil, nil
end


return _M
