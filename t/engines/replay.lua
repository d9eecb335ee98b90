-- The engine of kv-simulate, with the requests that calibrate.py has recorded
-- of a real one:
--
--     luajit replay.lua CLIENTS BLOCKS BLOCK_SIZE MAX_TOKENS MAX_REQUESTS
--         BASE PREFILL PREFILL_CONTEXT DECODE DECODE_CONTEXT < REQUESTS
--
-- REQUESTS are JSON objects, one a line, in the order in which they were sent;
-- what it reads of them is n, ids and output_ids.  So many clients send the
-- next one as soon as the last one has ended.  Prints for each request n, the
-- tokens that were cached, and the seconds until the first token.


local decode = require "cjson".decode
local ffi = require "ffi"
local new_cache = require "resty.kv_router.tools.simulate.vllm_cache".new
local new_engine = require "resty.kv_router.tools.simulate.engine".new

local clients, blocks, size = tonumber(arg[1]), tonumber(arg[2]),
                              tonumber(arg[3])
local cache = new_cache(blocks, function() end, function() end)
local engine = new_engine({
    block_size = size,
    max_tokens = tonumber(arg[4]),
    max_requests = tonumber(arg[5]),
    times = {
        base = tonumber(arg[6]),
        prefill = tonumber(arg[7]),
        prefill_context = tonumber(arg[8]),
        decode = tonumber(arg[9]),
        decode_context = tonumber(arg[10]),
    },
}, cache)

local names, known = {}, 0
local now = 0


-- A number for a block and all before it.
local function name_of(parent, ids)
    local key = parent .. ":" .. table.concat(ids, ",")

    if not names[key] then
        known = known + 1
        names[key] = known
    end

    return names[key]
end


local function request_of(record)
    local ids, n = record.ids, #record.ids
    local all = {}

    for i = 1, n do
        all[i] = ids[i]
    end

    for i = 1, #record.output_ids do
        all[n + i] = record.output_ids[i]
    end

    local room = math.ceil(#all / size)
    local chain, parent = ffi.new("double[?]", room), 0

    for i = 1, math.floor(#all / size) do
        parent = name_of(parent, { unpack(all, (i - 1) * size + 1, i * size) })
        chain[i - 1] = parent
    end

    return {
        n = record.n, prompt = n, output = #record.output_ids,
        names = chain, locals = chain, blocks = ffi.new("int32_t[?]", room),
        on_first = function(self, at) self.first = at - self.at end,
        on_block = function() end,
        on_done = function(self)
            print(self.n, self.hit, self.first)
            clients = clients + 1
        end,
    }
end


local lines = io.lines()
local line = lines()

while line or not engine:idle() do
    while line and clients > 0 do
        local request = request_of(decode(line))

        request.at = now
        clients = clients - 1
        engine:submit(request)
        line = lines()
    end

    now = now + assert(engine:step(), "the cache is too small for a request")
    engine:finish(now)
end
