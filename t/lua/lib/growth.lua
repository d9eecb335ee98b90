-- Does the work for a text grow with it, or with its square?  A text of eight
-- times the length may take GROWTH times the processor's time and KEPT times
-- the memory, and beyond that what arrays of another size take at once.


local clock = os.clock
local collectgarbage = collectgarbage
local huge = math.huge
local ipairs = ipairs
local min = math.min


local _M = {}


_M.STEP = 8                      -- between two lengths
local GROWTH = 20                -- of time
local KEPT = 10                  -- of memory

local NOISE = 0.004              -- seconds
local NOISE_KB = 16384

_M.PAIRS = { { 8192, 65536 }, { 65536, 524288 } }


-- The seconds and the KB that work(given) takes.
local function cost(work, given)
    collectgarbage()
    collectgarbage "stop"

    local memory, began = collectgarbage "count", clock()

    work(given)

    local seconds, kb = clock() - began, collectgarbage "count" - memory

    collectgarbage "restart"

    return seconds, kb
end


-- What is wrong with the growth of work(make(size)), the best of three runs at
-- each size; nil: nothing.  pairs: of sizes, PAIRS by default.
function _M.wrong(make, work, pairs)
    for _, pair in ipairs(pairs or _M.PAIRS) do
        local short, long = make(pair[1]), make(pair[2])
        local seconds0, kb0, seconds, kb = huge, huge, huge, huge
        local good

        for _ = 1, 3 do
            local s, k = cost(work, long)

            seconds, kb = min(seconds, s), min(kb, k)

            if seconds < NOISE and kb < NOISE_KB then
                seconds0, kb0 = 0, 0
            else
                s, k = cost(work, short)
                seconds0, kb0 = min(seconds0, s), min(kb0, k)
            end

            good = seconds <= GROWTH * seconds0 + NOISE
                   and kb <= KEPT * kb0 + NOISE_KB

            if good then
                break
            end
        end

        if not good then
            return ("%d bytes take %.1f ms and %d KB, %d bytes %.1f ms and "
                    .. "%d KB"):format(pair[1], seconds0 * 1e3, kb0,
                                       pair[2], seconds * 1e3, kb)
        end
    end

    return nil
end


return _M
