-- What kv-simulate replays that others have recorded or published: sessions
-- with texts, and workloads by their numbers.


local host = require "resty.kv_router.tools.host"

local clock = { now = 0 }

host.install(function() end, function() return clock.now end)

local json = require "cjson"
local tap = require "lib.tap"
local ceiling = require "resty.kv_router.tools.simulate.ceiling"
local draws = require "resty.kv_router.tools.simulate.draws"
local index = require "resty.kv_router.tools.simulate.index"
local new_random = require "resty.kv_router.request.random".new
local prompts = require "resty.kv_router.tools.simulate.prompts"
local sessions = require "resty.kv_router.tools.simulate.sessions"
local workload = require "resty.kv_router.tools.simulate.workload"
local world = require "resty.kv_router.tools.simulate.world"

local is, near, ok = tap.is, tap.near, tap.ok

local BUILD = os.getenv("KVR_BUILD") or "build"
local LIBRARIES = (BUILD:sub(1, 1) == "/" and "" or "./") .. BUILD
local MODEL = "t/vectors/model"
local SIZE, SYSTEM = 16, 100
local TIMES = { base = 4e-3, prefill = 3.5e-5, prefill_context = 1.5e-9,
                decode = 3e-5, decode_context = 4e-8 }

index.load(LIBRARIES .. "/libkvr_simulate.so")
sessions.library = LIBRARIES .. "/libkvr.so"


-- ---- an archive -------------------------------------------------------------

local HEAD = "You mend what is broken. "

local function text(seed, words)
    local list = {}

    for i = 1, words do
        list[i] = "word " .. i * seed % 97 .. (i % 7 == 0 and "\n" or " ")
    end

    return table.concat(list) .. "end"
end

local long, other = text(3, 200), text(5, 90)

-- a line of the second session comes too early, and its third prompt goes back
-- to the first one
local LINES = {
    { 1, "a", HEAD .. other },
    { 3, "a", HEAD .. other .. "\nThen " .. text(7, 40) },
    { 11, "b", HEAD .. long .. "\nThen " .. text(11, 50) },
    { 10, "b", HEAD .. long },
    { 12.5, "b", HEAD .. long .. "\nOr " .. text(13, 60) },
}

local folder = os.tmpname()

os.remove(folder)
assert(os.execute("mkdir -p '" .. folder .. "/it'\"'\"'s'"))

local function archive(name, lines)
    local file = assert(io.open(folder .. "/it's/lines.jsonl", "w"))

    for _, line in ipairs(lines) do
        file:write(type(line) == "string" and line or json.encode {
            timestamp = line[1] * 1e6, session_id = line[2], input = line[3],
            output = "It is mended." }, "\n")
    end

    file:close()
    name = folder .. "/it's/" .. name
    os.execute("cd '" .. folder .. "' && tar -cf '" .. name:gsub("'", "'\\''")
               .. "' --exclude '*.tar' it*")

    return name
end

local name = archive("sessions.tar", LINES)
local list = assert(sessions.read(name, MODEL))
local a, b = list[1], list[2]

is(#list, 2, "two sessions")
is(#a .. " " .. #b, "2 3", "with their requests")
is(b[1].at .. " " .. b[2].at .. " " .. b[3].at, "10 11 12.5", "by their times")
is(a[2].like .. " " .. a[2].common, "1 " .. a[1].n,
   "a prompt that goes on has all of the one before it")
is(b[3].like .. " " .. b[3].common - b[1].n, "2 1",
   "one that goes back has what it shares with the one most like it")
ok(list.shared > 4 and list.shared < 30,
   "all sessions begin with the same " .. list.shared .. " tokens")


-- ---- drawn sessions ---------------------------------------------------------

-- how many blocks two requests begin with alike
local function alike(one, two)
    local x, y = one.turns[1], two.turns[1]
    local _, mine = prompts.of(one, x.prompt, SIZE)
    local _, theirs = prompts.of(two, y.prompt, SIZE)
    local n = math.floor(math.min(x.prompt, y.prompt) / SIZE)

    for i = 0, n - 1 do
        if mine[i] ~= theirs[i] then
            return i
        end
    end

    return n
end

local drawn = sessions.draw(list, 60, SIZE, 1, SYSTEM)
local firsts, head = {}, math.floor((SYSTEM + list.shared) / SIZE)
local wrong, shared, all = 0, 0, 0

for i, talk in ipairs(drawn) do
    local before, prompt = talk.after, talk.turns[1].prompt

    all = all + prompt

    if not before then
        firsts[#firsts + 1] = talk
        shared = shared + (i > 1 and head or 0)

    else
        local of = prompt == SYSTEM + a[2].n and a[2]
                   or before.after and b[3] or b[2]
        local blocks = math.floor((SYSTEM + of.common) / SIZE)

        wrong = wrong + (alike(talk, before) == blocks and 0 or 1)
                + (before.following == talk and 0 or 1)
                + (talk.session == before.session and 0 or 1)
        shared = shared + blocks
    end
end

is(wrong, 0, "a prompt shares whole blocks with the one before it, in one session")
is(alike(firsts[1], firsts[2]), head,
   "two sessions share the system prompt and their common beginning")
is(sessions.draw(list, 9, SIZE, 1, 0)[1].turns[1].prompt + SYSTEM,
   firsts[1].turns[1].prompt, "the system prompt comes before all")
near(ceiling.of(drawn, 1e5, SIZE), shared * SIZE / all, 1e-9,
     "a cache without a bound has what was shared")

workload.spread(drawn, 0.5, 2, TIMES, SIZE)

local told = assert(world.run({
    engine = "vllm", workers = 2, blocks = 4000, block_size = SIZE,
    max_tokens = 8192, max_requests = 64, times = TIMES, routers = 1,
    event_delay = 0.001, event_loss = 0, repair_delay = 0, share_loss = 0,
    restart_time = 1, seed = 1, policy = { name = "kv_cost" },
    weights = { 1 }, order = "fair", quantum = 0,
}, drawn, clock, function() end))

is(told.requests, #drawn, "each request is answered")
is(told.unfinished + told.refused + told.faults, 0, "and none is lost")
ok(told.seconds > firsts[#firsts].at + 2,
   "what follows an answer waits as long as it has waited in the archive")
ok(told.had > 0.5, "sessions find their blocks")

local refused = assert(world.run({
    engine = "vllm", workers = 2, blocks = 40, block_size = SIZE,
    max_tokens = 8192, max_requests = 64, times = TIMES, routers = 1,
    event_delay = 0, event_loss = 0, repair_delay = 0, share_loss = 0,
    restart_time = 1, seed = 1, policy = { name = "round_robin" },
    weights = { 1 }, order = "fair", quantum = 0,
}, drawn, clock, function() end))

is(refused.requests + refused.refused, #drawn,
   "what is behind a request that no cache holds comes all the same")


-- ---- mistakes ---------------------------------------------------------------

local function told_of(what, file, model, words)
    local found, err = sessions.read(file, model)

    ok(found == nil and err:find(words, 1, true), what .. " is told: " .. err)
end

told_of("a line of another form", archive("wrong.tar", { LINES[1], '{"at":1}' }),
        MODEL, "line 2 is no { timestamp, input, output, session_id }")
told_of("no archive", folder .. "/none.tar", MODEL, "tar finds no line in it")
told_of("no tokenizer", name, folder, folder .. ": ")

os.execute("rm -r '" .. folder .. "'")


-- ---- published numbers ------------------------------------------------------

-- mean, deviation, least and most of so many draws
local function figures(n, draw)
    local sum, squares, least, most = 0, 0, math.huge, -math.huge

    for _ = 1, n do
        local x = draw()

        sum, squares = sum + x, squares + x * x
        least, most = math.min(least, x), math.max(most, x)
    end

    local mean = sum / n

    return mean, math.sqrt(squares / n - mean * mean), least, most
end

local random = new_random(1)

for _, shape in ipairs {
    { "lognormal", 1, 1e6, 4000, 2500 }, { "normal", 0, 1e6, 500, 100 },
    { "bimodal", 1000, 80000, 15000, 22000 },
    { "uniform", 500, 8000, 4250, 2165 },
    { "exponential", 500, 1e6, 8000, 7500 },
} do
    local mean, deviation, least, most = figures(50000, function()
        return draws.of(random, shape)
    end)

    near(mean / shape[4], 1, 0.03, shape[1] .. ": the mean")
    near(deviation / shape[5], 1, 0.05, shape[1] .. ": the deviation")
    ok(least >= shape[2] and most <= shape[3], shape[1] .. ": the bounds")
end

local points = { { 10, 147 }, { 50, 1469 }, { 90, 5186 } }
local below = 0

figures(50000, function()
    local x = draws.percentile(random, points)

    below = below + (x < 1469 and 1 or 0)

    return x
end)
near(below / 50000, 0.5, 0.01, "half of the draws are below the median")

local talks = workload.draw("azure-code", 8800, SIZE, 1)
local at = 1
local _, deviation = figures(#talks - 1, function()
    at = at + 1
    return talks[at].at - talks[at - 1].at
end)
local seconds = talks[#talks].at - talks[1].at

near(seconds / 3436, 1, 0.2, "Azure's hour of code takes an hour")
ok(deviation / (seconds / #talks) > 7, "and its requests come in bursts")

for _, kind in ipairs(workload.KINDS) do
    local _, longest = workload.working_set(workload.draw(kind, 3000, SIZE, 2),
                                            SIZE)

    ok(kind == "agents" or longest <= 131072 / SIZE + 1,
       kind .. ": no conversation is too long for its engine")
end

tap.done()
