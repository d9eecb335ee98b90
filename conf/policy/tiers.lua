-- tiers: premium tenants never wait behind batch jobs (header x-tier), long
-- prompts prefer idle workers, and the rest is kv_cost.
local load = require("resty.kv_router.policy").load
local subset = require "resty.kv_router.subset"
local _M = {}

function _M.new()
    local long = { active_request_weight = 1000 }

    return setmetatable({ usual = load("kv_cost"), idle = load("kv_cost", long),
                          some = subset.new() }, { __index = _M })
end

function _M:pick(ctx)
    local tier, some = ctx.request.headers["x-tier"], self.some
    local cost = ctx.prompt_tokens > 16384 and self.idle or self.usual

    some:clear(#ctx.candidates)
    for i = 1, #ctx.candidates do
        -- w2, w4 and so on are kept free of batch jobs while others are there
        local quiet = ctx.candidates[i].worker:byte(-1) % 2 == 0
        if tier ~= (quiet and "batch" or "premium") then
            some:add(ctx.candidates[i], i)
        end
    end
    return (some.n > 0 and some or some:all(ctx)):ask(cost, ctx)
end

return _M
