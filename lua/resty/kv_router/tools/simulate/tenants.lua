-- Copyright (C) the nginx-kv-router authors
--
-- Tenants of kv-simulate: what each asks for, and what each gets.
--
-- A tenant begins conversations at its own times, whether earlier ones are
-- answered or not; a turn follows the answer before it.  All are customers of
-- one product: they share its system prompts and documents.


local figures = require "resty.kv_router.tools.simulate.figures"
local new_random = require "resty.kv_router.request.random".new
local workload = require "resty.kv_router.tools.simulate.workload"

local floor = math.floor
local format = string.format
local huge = math.huge
local log = math.log
local max = math.max
local min = math.min
local percent = figures.percent
local percentile = figures.percentile
local sort = table.sort


local _M = {}


-- Clients of one model in production: part of its requests, coefficient of
-- variation of the gaps between them, median tokens of prompt and answer.
-- These are the largest of "m-large" that were active in at least half of the
-- windows: ServeGen, Xiang et al. 2025, arXiv 2505.09999.
local CLIENTS = {
    { 0.1000, 1.17, 658, 3 }, { 0.0859, 2.69, 582, 37 },
    { 0.0708, 0.93, 63, 13 }, { 0.0422, 0.91, 610, 1 },
    { 0.0372, 2.15, 573, 4 }, { 0.0325, 0.97, 979, 68 },
    { 0.0230, 1.18, 1847, 160 }, { 0.0191, 0.37, 793, 61 },
    { 0.0109, 1.73, 286, 37 },
}
local LARGEST = 1.05             -- cv of the largest one of all

-- A tenant's lengths are those of the workload times its medians by PROMPT and
-- ANSWER, the medians of the nine, within bounds.
local PROMPT, ANSWER = 610, 37
local LEAST, MOST = 0.5, 2

local SMALL, GREEDY = 0.1, 5     -- of what the fleet can serve
local WARM = 0.25                -- of the time, which does not count


local function scale(median, usual)
    return min(MOST, max(LEAST, median / usual))
end


-- Tenants { load, cv, add, output, group, class }; add and output: by which
-- lengths are multiplied.  On average of all requests that is 1, so that what
-- is served does not depend on who is.  what: "noisy", nine small ones and a
-- greedy one; "quiet", the nine alone; or a number of tenants.
local function tenants_of(what, load, classes)
    local list, all, adds, outputs = {}, 0, 0, 0
    local n = tonumber(what) or #CLIENTS

    for i = 1, n do
        local part, cv, prompt, answer = unpack(CLIENTS[(i - 1) % #CLIENTS + 1])
        local add, output = scale(prompt, PROMPT), scale(answer, ANSWER)

        all, adds = all + part, adds + part * add
        outputs = outputs + part * output
        list[i] = { part = part, cv = cv, add = add, output = output,
                    group = "small", class = 0 }
    end

    for i, tenant in ipairs(list) do
        tenant.load = load * tenant.part / all
        tenant.add = tenant.add * all / adds
        tenant.output = tenant.output * all / outputs

        if tonumber(what) then
            tenant.class = (i - 1) % classes
            tenant.group = "class " .. tenant.class + 1

        else
            tenant.load = SMALL * tenant.load
        end
    end

    if what == "noisy" then
        list[n + 1] = { cv = LARGEST, load = GREEDY * load, add = 1,
                        output = 1, group = "greedy", class = classes - 1 }
    end

    return list
end


-- The conversations of a tenant: `wanted' seconds of engines, in `seconds'.
-- seen: parts that are cached already.
local function draw(kind, number, tenant, seconds, wanted, seen, options)
    local random = new_random(options.seed * 1024 + number)
    local size = options.block_size
    local list = {}

    -- a Weibull distribution has about this coefficient of variation
    local function gap()
        return (-log(1 - random())) ^ (tenant.cv ^ 0.86)
    end

    local at = gap()

    while wanted > 0 do
        local one = {}

        workload.conversation(kind, random, one, at, size)

        for _, talk in ipairs(one) do
            talk.tenant, talk.class = number, tenant.class
            talk.group = tenant.group
            list[#list + 1] = talk

            for _, turn in ipairs(talk.turns) do
                turn.add = max(1, floor(turn.add * tenant.add))
                turn.output = max(1, floor(turn.output * tenant.output))
            end
        end

        wanted = wanted - workload.work(one, options.times, size, seen)
        at = at + gap()
    end

    for _, talk in ipairs(list) do
        talk.at = talk.at * seconds / at
    end

    return list
end


-- options: workload, seconds, load, workers, block_size, times, seed, classes
-- (how many).  Returns all conversations.
function _M.draw(what, options)
    local talks, seen = {}, {}

    for i, tenant in ipairs(tenants_of(what, options.load, options.classes)) do
        local wanted = tenant.load * options.workers * options.seconds

        for _, talk in ipairs(draw(options.workload, i, tenant,
                                   options.seconds, wanted, seen, options))
        do
            talks[#talks + 1] = talk
        end
    end

    return workload.number(talks, options.seed)
end


-- ---- what they get ----------------------------------------------------------

local Tally = {}
Tally.__index = Tally


-- The figures of a run; conf: of world.run().
function _M.tally(conf)
    return setmetatable({
        from = WARM * conf.seconds, seconds = conf.seconds,
        times = conf.times, workers = conf.workers,
        open = {},               -- requests without a first token, by talk
        groups = {}, names = {},
        tenants = {}, served = {}, requests = {}, all = 0,
    }, Tally)
end


local function group_of(self, talk)
    local group = self.groups[talk.group]

    if not group then
        group = { name = talk.group, waits = {}, ttfts = {}, answered = 0,
                  work = 0, prompt = 0, had = 0 }
        self.groups[talk.group] = group
        self.names[#self.names + 1] = talk.group
    end

    if not self.served[talk.tenant] then
        self.tenants[#self.tenants + 1] = talk.tenant
        self.served[talk.tenant], self.requests[talk.tenant] = 0, 0
    end

    return group
end


-- One that failed after its first token is not counted twice.
function Tally:came(request)
    group_of(self, request.talk)

    if not request.asked.first_at and not self.open[request.talk] then
        self.open[request.talk] = { arrived = request.arrived,
                                    waits = true }
    end
end


function Tally:begun(request, now)
    local open = self.open[request.talk]

    if open and open.waits then
        open.waits = false

        if open.arrived >= self.from then
            local waits = group_of(self, request.talk).waits

            waits[#waits + 1] = now - open.arrived
        end
    end
end


function Tally:first(request, now)
    local open, group = self.open[request.talk], group_of(self, request.talk)

    self.open[request.talk] = nil

    if open and open.arrived >= self.from then
        group.ttfts[#group.ttfts + 1] = now - open.arrived
    end

    if now >= self.from then
        group.prompt = group.prompt + request.prompt
        group.had = group.had + request.hit
    end
end


-- Seconds of an engine, when all is cached that the conversation had before
-- and eight requests decode at once.
local function work(request, times)
    local add = request.talk.turns[request.turn].add

    return add * (times.prefill
                  + times.prefill_context * (request.prompt - add / 2))
           + request.output * (times.base / 8 + times.decode
                               + times.decode_context * request.prompt)
end


function Tally:ended(request, now)
    local group, tenant = group_of(self, request.talk), request.talk.tenant

    if now >= self.from then
        group.answered = group.answered + request.output
        group.work = group.work + work(request, self.times)
        self.served[tenant] = self.served[tenant] + (request.cost or 0)
        self.requests[tenant] = self.requests[tenant] + 1
    end
end


-- What each would have of all if it were shared evenly, and nobody had more
-- than it asked for.
local function even(asked, all)
    local list, shares = {}, {}

    for tenant, tokens in pairs(asked) do
        list[#list + 1] = { tenant = tenant, tokens = tokens }
    end

    sort(list, function(a, b) return a.tokens < b.tokens end)

    for i, it in ipairs(list) do
        shares[it.tenant] = min(it.tokens, all / (#list - i + 1))
        all = all - shares[it.tenant]
    end

    return shares
end


-- Jain's index of what each tenant had, by its even share.  Who still waits
-- has asked for as much as those of its tenant cost that were served.
local function jain(self)
    local all, n, asked = 0, 0, {}

    for _, tenant in ipairs(self.tenants) do
        all = all + self.served[tenant]
        n = n + self.requests[tenant]
        asked[tenant] = self.served[tenant]
    end

    for talk in pairs(self.open) do
        local tenant = talk.tenant
        local served, requests = self.served[tenant], self.requests[tenant]

        asked[tenant] = asked[tenant] + (requests > 0 and served / requests
                                         or all / max(1, n))
    end

    local shares, sum, squares, asking = even(asked, all), 0, 0, 0

    for _, tenant in ipairs(self.tenants) do
        if shares[tenant] > 0 then
            local x = self.served[tenant] / shares[tenant]

            sum, squares, asking = sum + x, squares + x * x, asking + 1
        end
    end

    return squares > 0 and sum * sum / asking / squares or nil
end


-- Returns a list of the groups' figures, and Jain's index.  Who still waits
-- has waited until the end at least.
function Tally:figures()
    local list, index = {}, jain(self)

    for talk, open in pairs(self.open) do
        local group = group_of(self, talk)

        if open.arrived >= self.from then
            local waited = self.seconds - open.arrived

            group.ttfts[#group.ttfts + 1] = waited
            group.waits[#group.waits + 1] = open.waits and waited or nil
        end
    end

    sort(self.names)

    for i, name in ipairs(self.names) do
        local group = self.groups[name]

        sort(group.waits)
        sort(group.ttfts)
        list[i] = {
            name = name, requests = #group.ttfts,
            wait_p50 = percentile(group.waits, 50),
            wait_p90 = percentile(group.waits, 90),
            ttft_p90 = percentile(group.ttfts, 90),
            throughput = group.answered / (self.seconds - self.from),
            work = group.work / (self.seconds - self.from) / self.workers,
            had = group.had / max(1, group.prompt),
        }
    end

    return list, index
end


-- The table of all policies' groups.
function _M.table(policies, results)
    local rows = {}

    for i, policy in ipairs(policies) do
        for k, group in ipairs(results[i][1].groups) do
            local function mean(name)
                local values = {}

                for _, run in ipairs(results[i]) do
                    values[#values + 1] = run.groups[k]
                                          and run.groups[k][name]
                end

                return figures.mean(values)
            end

            local jains = {}

            for _, run in ipairs(results[i]) do
                jains[#jains + 1] = run.jain
            end

            rows[#rows + 1] = {
                policy.title, group.name, format("%.0f", mean("requests")),
                figures.milliseconds(mean("wait_p50")),
                figures.milliseconds(mean("wait_p90")),
                figures.milliseconds(mean("ttft_p90")),
                format("%.0f", mean("throughput")),
                format("%.3f", mean("work")), percent(mean("had")),
                format("%.3f", figures.mean(jains) or huge) }
        end
    end

    return figures.columns({ "policy", "tenants", "requests", "wait p50",
                             "p90", "TTFT p90", "tokens/s", "work", "hit rate",
                             "Jain's index" }, rows)
end


return _M
