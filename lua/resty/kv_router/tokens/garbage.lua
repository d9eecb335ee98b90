-- Copyright (C) the nginx-kv-router authors
--
-- The garbage collector while long bodies are read, in several turns of the event
-- loop.  By itself it would do more than a millisecond's work within one turn:
-- the strings of a body are large, and what they owe it is paid by whoever makes
-- the next tables.
--
--     garbage.resume()      before a turn ends
--     garbage.suspend()     when the next one has begun
--     ...                   makes strings and tables
--     garbage.resume()      behind the last turn, in whatever way it ends
--
-- suspend() does a part of the collector's work before, as the collector's own
-- rules are: work begins when memory has doubled since it was last done, and each
-- kilobyte that is made then owes one step.


local collectgarbage = collectgarbage
local cpu_us = require "resty.kv_router.tokens.text_ffi".cpu_us


local _M = {}


local PART_US = 100              -- of processor time; a step takes 3 to 20 us
local OWED_MAX = 4096            -- steps; more than these are done at once

local limit                      -- kilobytes from which on there is work
local busy = false               -- its work has begun, and has not ended
local owed = 0                   -- steps
local last                       -- kilobytes, when these were counted


function _M.suspend()
    local size = collectgarbage("count")

    limit = limit or 2 * size

    if not busy and size > limit then
        busy, owed, last = true, 0, limit
    end

    if busy then
        local till = cpu_us() + PART_US

        owed = owed + size - last

        repeat
            busy = not collectgarbage("step", 0)
            owed = owed - 1
        until not busy or owed <= 0 or cpu_us() > till and owed < OWED_MAX

        last = collectgarbage("count")
        limit = 2 * last
    end

    collectgarbage("stop")
end


function _M.resume()
    -- LuaJIT: goes on when memory has doubled
    collectgarbage("restart", -1)
end


return _M
