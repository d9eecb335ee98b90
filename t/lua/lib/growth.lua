-- Does the work for a text grow with it, or with its square?  A text of eight
-- times the length may take GROWTH times the processor's time and KEPT times
-- the memory, and beyond that what arrays of another size take at once.


local clock = os.clock
local collectgarbage = collectgarbage
local huge = math.huge
local min = math.min


local _M = {}


local STEP = 8                   -- between two lengths
local GROWTH = 20                -- of time
local KEPT = 10                  -- of memory

local NOISE = 0.004              -- seconds
local NOISE_KB = 16384

local SURE = 1                   -- seconds: so much is a square

local LENGTHS = { 32768, 262144 }


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


-- What is wrong with the growth of work() between two lengths, the best of three
-- runs at each; nil: nothing.  The second result: it took over a second.
local function compare(make, work, from, to)
    local short, long = make(from), make(to)
    local seconds0, kb0, seconds, kb = huge, huge, huge, huge

    for _ = 1, 3 do
        local s, k = cost(work, long)

        seconds, kb = min(seconds, s), min(kb, k)

        if seconds < NOISE and kb < NOISE_KB then
            return nil
        end

        s, k = cost(work, short)
        seconds0, kb0 = min(seconds0, s), min(kb0, k)

        if seconds <= GROWTH * seconds0 + NOISE
           and kb <= KEPT * kb0 + NOISE_KB
        then
            return nil
        end

        if seconds > SURE then
            break
        end
    end

    return ("%d bytes take %.1f ms and %d KB, %d bytes %.1f ms and %d KB")
           :format(from, seconds0 * 1e3, kb0, to, seconds * 1e3, kb),
           seconds > SURE
end


-- What is wrong with the growth of work(make(length)); nil: nothing.  lengths: a
-- list, LENGTHS by default.
--
-- A first step that is too large is no square yet: memory that does not fit the
-- processor's cache, or which the kernel has to map, costs more a byte.  So the
-- step that follows must be too large as well, and a step that is too large at
-- the end of the list is followed by one more.
function _M.wrong(make, work, lengths)
    lengths = lengths or LENGTHS

    local i, length, before = 1, lengths[1]

    while lengths[i + 1] or before do
        local long = lengths[i + 1] or STEP * length
        local why, sure = compare(make, work, length, long)

        if why and (before or sure) then
            return why
        end

        i, length, before = i + 1, long, why
    end

    return nil
end


return _M
