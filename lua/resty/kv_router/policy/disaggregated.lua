-- Copyright (C) the nginx-kv-router authors
--
-- disaggregated: one worker computes the prompt (role=prefill), another one
-- takes its KV blocks over and generates (role=decode).  A policy of its own
-- chooses each of the two.  Workers of role both take whole requests, in
-- competition with those of role decode.
--
-- Remote prefill is skipped when the decode worker has so much of the prompt
-- that what is left is computed sooner than it is moved: local_prefill tokens
-- or less.  Engines of protocol "sglang" can't do that: there a short prompt
-- goes to a worker of role both, when there is one.
--
--     protocol = "vllm"     the prefill worker is sent the request first, for
--                           one token; what it answers in kv_transfer_params
--                           goes with the request to the decode worker
--     protocol = "sglang"   both are sent the request at the same time, with
--                           bootstrap_host, bootstrap_port and bootstrap_room
--     protocol = "sidecar"  the decode worker's address is that of llm-d's
--                           sidecar, which is told the prefill worker in the
--                           header x-prefiller-host-port
--
-- resty.kv_router.tokens.prefill says how the first two are carried out.
--
-- Settings:
--
--     protocol         "vllm"
--     local_prefill    512        tokens
--     decode           "kv_cost"  the policy that chooses who generates
--     decode_conf                 its settings
--     prefill          "kv_cost"  the policy that chooses who prefills
--     prefill_conf                its settings
--     timeout          60         seconds for each of sending to the prefill
--                                 worker, and receiving from it
--     connect_timeout  2          seconds for connecting to it, timeout at most
--     bootstrap_port   8998       of prefill workers ("sglang")
--     bootstrap_ports             worker -> port, for those with another one


local ROLE_BITS = require "resty.kv_router.ffi".ROLE_BITS
local band = require "bit".band
local checked = require "resty.kv_router.request.conf".check
local load = require "resty.kv_router.policy".load
local new_subset = require "resty.kv_router.subset".new

local ipairs = ipairs
local max = math.max
local pairs = pairs
local setmetatable = setmetatable
local tostring = tostring
local type = type


local _M = { name = "disaggregated" }
local mt = { __index = _M }


local PORT = { type = "number", min = 1, max = 65535, integer = true,
               default = 8998 }

local SETTINGS = {
    protocol = { type = "string", default = "vllm",
                 words = { "vllm", "sglang", "sidecar" } },
    local_prefill = { type = "number", default = 512 },
    decode = { default = "kv_cost" },
    decode_conf = {},
    prefill = { default = "kv_cost" },
    prefill_conf = {},
    timeout = { type = "number", default = 60, min = 0.001, max = 3600 },
    connect_timeout = { type = "number", default = 2, min = 0.001, max = 3600 },
    bootstrap_port = PORT,
    bootstrap_ports = { type = "table", default = {} },
}

local MAX_TRIES = 2          -- prefill workers
local HEADER = "x-prefiller-host-port"
local NO_HEADER = { headers = { [HEADER] = false } }
local WAIT = { wait = true }


local function load_one(conf, what)
    local policy, err = load(conf[what], conf[what .. "_conf"])

    if not policy then
        return nil, '"' .. what .. '": ' .. err
    end

    if policy.policy.roles then
        return nil, '"' .. what .. '": a policy of pairs can\'t be in another'
    end

    return policy
end


function _M.new(conf)
    local complete, err = checked(conf, SETTINGS)
    if not complete then
        return nil, err
    end

    for worker, port in pairs(complete.bootstrap_ports) do
        local ok

        ok, err = checked({ port = port }, { port = PORT })

        if not ok or type(worker) ~= "string" then
            return nil, '"bootstrap_ports" of "' .. tostring(worker) .. '": '
                        .. (err or "no worker")
        end
    end

    local decode, prefill

    decode, err = load_one(complete, "decode")
    if not decode then
        return nil, err
    end

    prefill, err = load_one(complete, "prefill")
    if not prefill then
        return nil, err
    end

    local self = { conf = complete, decode = decode, prefill = prefill,
                   roles = { "both", "prefill", "decode" },
                   some = new_subset() }

    if decode.done then
        self.done = _M.tell
    end

    return setmetatable(self, mt)
end


-- done(): the policy that chose who generates is told what came of it.
function _M:tell(ctx, outcome)
    self.decode.done(self.decode.policy, ctx, outcome)
end


-- The candidates of which wanted[role] is true, in self.some; their number.
local function select(self, ctx, wanted)
    local candidates = ctx.candidates
    local some = self.some

    some:clear(#candidates)

    for i = 1, #candidates do
        local c = candidates[i]

        if wanted[c.role] then
            some:add(c, i)
        end
    end

    return some.n
end


local GENERATES = { both = true, decode = true }
local WHOLE = { both = true }
local PREFILLS = { prefill = true }


-- How each protocol is told of the workers to prefill at.
local plan = {}


function plan.vllm(self, ctx, list)
    return { protocol = "vllm", prefill = list, timeout = self.conf.timeout,
             connect_timeout = self.conf.connect_timeout }
end


function plan.sglang(self, ctx, list)
    local conf = self.conf
    local ports = {}

    for i, at in ipairs(list) do
        ports[i] = conf.bootstrap_ports[ctx.candidates[at].worker]
                   or conf.bootstrap_port
    end

    return { protocol = "sglang", prefill = list, ports = ports,
             timeout = conf.timeout, connect_timeout = conf.connect_timeout }
end


function plan.sidecar(self, ctx, list)
    local address = ctx.candidates[list[1]].address

    return { headers = { [HEADER] = address } }
end


-- What is to be done without a remote prefill: a client may not name the
-- prefill worker.
local function alone(self)
    return self.conf.protocol == "sidecar" and NO_HEADER or nil
end


-- The workers to prefill at, the best first; nil when there is none.
local function prefillers(self, ctx)
    if select(self, ctx, PREFILLS) == 0 then
        return nil
    end

    local list, k = self.some:ask(self.prefill, ctx)
    local found = {}

    for i = 1, k < MAX_TRIES and k or MAX_TRIES do
        found[i] = list[i - 1]
    end

    return found
end


-- Are all workers of a role full, of one of these?
local function full(ctx, bits)
    return band(ctx.candidates.full_roles or 0, bits) ~= 0
end


-- The choice of who generates, as a table: what policies return is good only
-- until the next one is asked.
local function generator(self, ctx)
    local list, k, reason = self.some:ask(self.decode, ctx)
    local found = {}

    for i = 1, k do
        found[i] = list[i - 1]
    end

    return found, reason
end


-- The reason is "pair" with a remote prefill; else "short" when little was
-- left to prefill, that of the other policy when one worker does it all, and
-- "no pair" when there is nobody to prefill, or to generate; "full" when there
-- is, but without room: the request waits.
function _M:pick(ctx)
    if select(self, ctx, GENERATES) == 0 then
        local list, k = self.decode:pick(ctx)

        if full(ctx, ROLE_BITS.both + ROLE_BITS.decode) then
            return list, k, "full", WAIT
        end

        return list, k, "no pair", alone(self)
    end

    local found, reason = generator(self, ctx)
    local c = ctx.candidates[found[1]]

    if c.role == "both" then
        return found, nil, reason, alone(self)
    end

    local sglang = self.conf.protocol == "sglang"
    local left = max(0, ctx.prompt_tokens - c.device * ctx.block_size)

    -- of a text that nobody has tokenized the length is not known
    if ctx.prompt_tokens > 0 and left <= self.conf.local_prefill then

        if not sglang then
            return found, nil, "short", alone(self)
        end

        if select(self, ctx, WHOLE) > 0 then
            return generator(self, ctx), nil, "short"
        end
    end

    local at = prefillers(self, ctx)

    if not at then
        if sglang and select(self, ctx, WHOLE) > 0 then
            return generator(self, ctx), nil, "no pair"
        end

        if full(ctx, ROLE_BITS.prefill) then
            return found, nil, "full", WAIT
        end

        return found, nil, "no pair", alone(self)
    end

    return found, nil, "pair", plan[self.conf.protocol](self, ctx, at)
end


return _M
