-- Which functions of a policy are kept out of the compiler, and which policies
-- may yield.


local tap = require "lib.tap"
require "lib.fake"

local policy = require "resty.kv_router.policy"

local is = tap.is


-- The functions that jit.off() is told of, by the line that they begin at.
local function switched_off(text)
    local off = {}
    local jit_off = jit.off

    rawset(jit, "off", function(f)
        off[#off + 1] = require("jit.util").funcinfo(f).linedefined
        jit_off(f)
    end)

    package.loaded["resty.kv_router.scan"] = nil

    local prepare = require("resty.kv_router.scan").prepare
    local chunk = assert(loadstring(text, "@acme/test.lua"))
    local yields = prepare(chunk())

    rawset(jit, "off", jit_off)
    table.sort(off)

    return table.concat(off, " "), yields
end


-- ---- loops ------------------------------------------------------------------

-- the body of the function in line 2
for _, case in ipairs {
    { "for i = 1, #ctx.candidates do n = n + i end", false },
    { "for i, c in ipairs(ctx.candidates) do n = n + i end", false },
    { "for k in pairs(ctx) do n = n + 1 end", false },
    { "for i = 1, 1e6 do n = n + i end", false },
    { "if ctx then goto over end n = 1 ::over::", false },
    { "return ask(ctx)", false },
    { "return ctx.candidates:find(1)", false },
    { "return string.lower(ctx.name)", false },
    { "while n < 10 do n = n + 1 end", true },
    { "repeat n = n + 1 until n > 10", true },
    { "::again:: n = n + 1 goto again", true },
    { "::again:: do if n < 9 then n = n + 1 goto again end end", true },
    { "for i = 1, math.huge do n = n + i end", true },
    { "for i = 1, 1 / 0 do n = n + i end", true },
    { "for i = 1, forever do n = n + i end", true },
    { "for i = 1, 9 do while n do n = n + 1 end end", true },
    { "return helper(ctx)", true },
    { "return self:pick(ctx)", true },
    { "return ctx.pick(self, ctx, n)", true },
    { "return known(ctx)", true },
} do
    local off = switched_off([[
        local n, ask, forever = 0, string.lower, math.huge
        local function helper(ctx) n = n + 1 end
        function known(ctx) n = 0 end
        return { pick = function(self, ctx)
            ]] .. case[1] .. [[

        end, helper = helper }]])

    is(off, case[2] and "4" or "", case[1])
end

rawset(_G, "known", nil)

is(switched_off [[
    local function inner()
        return function(n)
            while n do n = n - 1 end
        end
    end
    local object = { by = { name = { deep = inner } } }
    return setmetatable({}, { __index = {
        pick = function() return object.by.name.deep()(1) end
    } })]], "2", "functions of tables, of upvalues, of metatables, and those "
               .. "that they make")

is(switched_off [[
    local lrucache = { new = function() while true do end end }
    local order = require "resty.kv_router.order"
    return { pick = function() return order.costs(1), lrucache end }]],
   "1", "but not those of libraries")


-- ---- yielding ---------------------------------------------------------------

for _, case in ipairs {
    { "return math.floor(ctx.random() * #ctx.candidates) + 1", false },
    { "return ctx.request.headers['x-a']:byte() % 2 + 1", false },
    { "return usual(ctx)", false },
    { "local t = {} table.sort(t) return pcall(ask, t)", false },
    { "ngx.sleep(1)", true },
    { "sleep(1)", true },
    { "local function later() ngx.sleep(1) end later()", true },
    { "coroutine.yield()", true },
    { "return require 'acme'.pick(ctx)", true },
    { "return ctx.params.choose(ctx)", true },
} do
    local _, yields = switched_off([[
        local ask = require "resty.kv_router.policy".ask
        local usual = require "resty.kv_router.order".costs
        local sleep = ngx.now
        return { pick = function(self, ctx)
            ]] .. case[1] .. [[

        end }]])

    is(yields, case[2], case[1] .. (case[2] and ": may yield"
                                             or ": does not"))
end

package.path = package.path .. ";conf/?.lua"

local tiers = assert(policy.load("policy.tiers"))

tap.ok(tiers.guarded and not tiers.apart,
       "the sample policy is guarded, and does not yield")
is(assert(policy.load("kv_cost")).guarded, false, "ours are not guarded")

local custom = { pick = function() ngx.sleep(1) end }
local sticky = assert(policy.load("session", { next = custom }))

tap.ok(sticky.guarded and sticky.apart,
       "but when they ask one that is not ours")
is(assert(policy.load("session")).guarded, false, "and only then")


tap.done()
