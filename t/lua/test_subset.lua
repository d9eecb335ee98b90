-- Some of the candidates.


local tap = require "lib.tap"
local fake = require "lib.fake"
local policy = require "resty.kv_router.policy"
local subset = require "resty.kv_router.subset"

local is = tap.is


local ctx = fake.ctx({ { worker = "a", device = 9 }, { worker = "b" },
                       { worker = "c", device = 4, active_requests = 2 },
                       { worker = "d", active_requests = 1 } })
local some = subset.new()

local function take(...)
    some:clear(#ctx.candidates)

    for _, i in ipairs { ... } do
        some:add(ctx.candidates[i], i)
    end

    return some:ctx(ctx)
end

local c = take(2, 3)

is(#c.candidates, 2, "it is a list of its own")
is(c.candidates[1].worker .. c.candidates[2].worker, "bc", "of those added")
is(c.candidates[0], nil, "with nothing before")
is(c.candidates[3], nil, "and nothing after")
is(c.best, 4, "the best overlap is among them")
is(c.block_size, 16, "the rest of ctx is that of all")
is(#take().candidates, 0, "it may be empty")
is(#some:all(ctx):ctx(ctx).candidates, 4, "or have all of them")

local forgotten = subset.new()

tap.raises("clear", "what has no room is not written: it is an error",
           forgotten.add, forgotten, ctx.candidates[1], 1)

local function ask(what, ...)
    take(...)

    local list, k, reason = some:ask(assert(policy.load(what)), ctx)
    local order = {}

    for i = 0, k - 1 do
        order[i + 1] = list[i]
    end

    return table.concat(order, " ") .. " " .. reason
end

is(ask("least_loaded", 3, 4), "4 3 load",
   "a policy that is asked answers with their own numbers")
is(ask("kv_cost", 2, 3), "3 2 overlap", "however it answers")
is(ask({ pick = function() return "c", nil, "so" end }, 2, 3), "3 so",
   "such as with a worker")
tap.raises('worker "a" rank 0, which is no candidate',
           "who is not among them can't be chosen", ask,
           { pick = function() return "a" end }, 2, 3)

local inner = subset.new()
local outer = take(2, 3, 4)

inner:clear(#outer.candidates)
inner:add(outer.candidates[3], 3)
is(inner:ctx(outer).candidates[1].worker, "d", "a subset may have a subset")

local many = {}

for i = 1, 500 do
    many[i] = { worker = "w" .. i }
end

local big = fake.ctx(many)

some:clear(500)

for i = 1, 500 do
    some:add(big.candidates[i], i)
end

is(#some:ctx(big).candidates, 500, "it grows")
is(some:ctx(big).candidates[500].worker, "w500", "as far as it must")


tap.done()
