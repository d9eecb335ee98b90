-- prefix_hash: what begins alike goes to one place, within bounds.


local tap = require "lib.tap"
local testing = require "resty.kv_router.testing"
local ffi = require "ffi"
local policy = require "resty.kv_router.policy"

local is, near = tap.is, tap.near


local PROMPTS = 4000

local function new(conf)
    return assert(policy.load("prefix_hash", conf))
end

-- Prompts are numbers: the block hashes of number p, n of them.
local kept = {}

local function match_of(p, n)
    local hashes = ffi.new("uint64_t[?]", n)

    for i = 0, n - 1 do
        hashes[i] = p * 7919ULL + i
    end

    kept[#kept % 64 + 1] = hashes

    return { prompt_tokens = 16 * n, prompt_blocks = n, hashes = hashes }
end

local function workers(names)
    local list = {}

    for name in names:gmatch("%S+") do
        list[#list + 1] = { worker = name }
    end

    return list
end

-- The worker's name for each prompt.
local function places(loaded, list, n)
    local at, match = {}, testing.ctx(list)

    for p = 1, PROMPTS do
        local given = match_of(p, n or 16)

        match.prompt_blocks, match.hashes = given.prompt_blocks, given.hashes
        match.prompt_tokens = given.prompt_tokens
        at[p] = list[loaded:pick(match)[0]].worker
    end

    return at
end

local function moved(a, b)
    local n = 0

    for p = 1, PROMPTS do
        if a[p] ~= b[p] then
            n = n + 1
        end
    end

    return n / PROMPTS
end


-- ---- consistent -------------------------------------------------------------

local five = workers("a b c d e")
local at = places(new(), five)

is(moved(at, places(new(), workers("a b c d e"))), 0,
   "another process decides alike")
is(moved(at, places(new(), workers("e c a d b"))), 0,
   "whatever order the workers have, and whatever their numbers")

local counts = {}

for _, name in ipairs(at) do
    counts[name] = (counts[name] or 0) + 1
end

tap.even(counts, 5, "prompts are spread evenly")

local four = places(new(), workers("a b c d"))
local lost = 0

for p = 1, PROMPTS do
    if at[p] ~= four[p] and at[p] ~= "e" then
        lost = lost + 1
    end
end

is(lost, 0, "a worker that goes moves only what it had")
near(moved(at, places(new(), workers("a b c d e f"))), 1 / 6, 0.03,
     "a worker that comes takes only its share")

local heavy = workers("a b c d")

heavy[2].weight = 2
counts = {}

for _, name in ipairs(places(new(), heavy)) do
    counts[name] = (counts[name] or 0) + 1
end

near(counts.b / PROMPTS, 0.4, 0.03, "weight 2 has two shares")

local ranks = workers("a a")

ranks[2].rank = 1

local ctx = testing.ctx(ranks, match_of(1, 16))
local drawn = {}

for p = 1, 100 do
    ctx.hashes = match_of(p, 16).hashes
    drawn[new().policy:pick(ctx)[0]] = true
end

is(#drawn, 2, "ranks of one worker are two places")


-- ---- which part of the prompt -----------------------------------------------

local function pick(loaded, list, match, more)
    local got, k, reason = loaded:pick(
                                       testing.ctx(list, match, more))

    return got[0], reason, k
end

local function same(conf, from)
    local loaded = new(conf)
    local n = 0

    for p = 1, 200 do
        local a, b = match_of(p, 16), match_of(p, 16)

        -- they differ from that block on
        b.hashes[from] = 1
        n = n + (pick(loaded, five, a) == pick(loaded, five, b) and 1 or 0)
    end

    return n
end

is(same({ tokens = 64 }, 4), 200, "what follows the first tokens is no matter")
tap.ok(same({ tokens = 64 }, 3) < 100, "what is in them is")
is(same({ tokens = 1 }, 1), 200, "one block at least counts")

local short = match_of(7, 2)

is(pick(new(), five, short), pick(new(), five, short),
   "a prompt shorter than that is hashed as it is")

local function text(body)
    local request = { headers = {}, fields = body }

    return pick(new({ tokens = 4 }), five, nil, { request = request })
end

is(text { prompt = '"once upon a time"' },
   text { prompt = '"once upon a timber raft"' },
   "without tokens the first bytes of the prompt count")
is(select(2, text { messages = '[{"role":"user","content":"Hi"}]' }), "prefix",
   "or those of a chat")

local seen = {}

for i = 1, 50 do
    seen[text { prompt = '"' .. i .. ' bottles of beer"' }] = true
end

is(#seen, 5, "texts are spread, too")
is(select(2, text {}), "load", "a request without any text goes by load")

local one, why, k = pick(new(), { { active_requests = 3 }, {} }, nil)

is(one .. why .. k, "2load2", "to the least loaded worker")


-- ---- bounds -----------------------------------------------------------------

local loaded = new()
local list = workers("a b c d")
local own = pick(loaded, list, match_of(9, 16))

-- 1.25 * (8 + 1) / 4 = 2.8: 3 requests with this one
for i = 1, 4 do
    list[i].active_requests = 2
end

is(select(2, pick(loaded, list, match_of(9, 16))), "prefix",
   "the prefix's own worker serves it while it has room")
list[own].active_requests = 4

local other, reason = pick(loaded, list, match_of(9, 16))

tap.ok(other ~= own, "beyond its share another one does")
is(reason, "bounded", "which is the reason")
is(pick(loaded, list, match_of(9, 16)), other, "always the same other one")
is(pick(new({ load_factor = 100 }), list, match_of(9, 16)), own,
   "a large factor is no bound")

for i = 1, 4 do
    list[i].active_requests = 0
end

is(pick(new({ load_factor = 1 }), list, match_of(9, 16)), own,
   "an idle fleet has room, however small the factor")

-- one prompt alone, each request staying: the bound holds for every worker
local worst = 0

for n = 1, 400 do
    local i = pick(loaded, list, match_of(9, 16))

    list[i].active_requests = list[i].active_requests + 1
    worst = math.max(worst, list[i].active_requests
                            - math.ceil(1.25 * n / 4))
end

is(worst, 0, "one hot prefix never loads a worker beyond its bound")

local _, _, ranked = pick(loaded, list, match_of(9, 16))

is(ranked, 3, "as many are ranked as are wanted")

local many = {}

for i = 1, 300 do
    many[i] = { worker = "w" .. i, holder = i * 3 }
end

is(#places(new(), many), PROMPTS, "holders' numbers may be any")

local reused = new()

pick(reused, { { worker = "x" }, { worker = "y" } }, match_of(1, 16))

local before = places(reused, { { worker = "p", generation = 2 },
                                { worker = "q", generation = 2 } })

is(moved(before, places(new(), workers("p q"))), 0,
   "a number that is another worker's now has that one's place")

for _, case in ipairs {
    { { tokens = 0 }, '"tokens" must be from 1' },
    { { load_factor = 0.9 }, '"load_factor" must be from 1' },
    { { bytes = 1 }, 'unknown setting "bytes"' },
} do
    tap.has(select(2, policy.load("prefix_hash", case[1])), case[2],
            "refused: " .. case[2])
end


tap.done()
