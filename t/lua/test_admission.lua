-- resty.kv_router.request.admission: who waits, in what order, and for how long.


local tap = require "lib.tap"
local fake = require "lib.fake"
local admission = require "resty.kv_router.request.admission"

local is, ok = tap.is, tap.ok


-- ---- time, and requests that are in it --------------------------------------

local room                       -- requests that may still be let in
local looks                      -- how often somebody looked
local done                       -- names in the order in which they ended
local requests                   -- that wait
local gate

local function begin(conf)
    gate = admission.new { queue = conf.queue or 10,
                           queue_timeout = conf.queue_timeout or 5 }
    room, looks, done, requests = conf.room or 0, 0, {}, {}
end

local go

function go(request, ...)
    local alive, semaphore, seconds = coroutine.resume(request.co, ...)

    assert(alive, semaphore)

    if coroutine.status(request.co) == "dead" then
        for i = 1, #requests do
            if requests[i] == request then
                table.remove(requests, i)
                break
            end
        end

        return
    end

    request.semaphore, request.at = semaphore, fake.time + seconds
end

local function come(name, priority)
    local request = {}

    request.co = coroutine.create(function()
        local asked = { priority = priority or 0, r = request }
        local place, why = gate:wait(nil, asked)

        while place do
            looks = looks + 1

            if room > 0 then
                room = room - 1
                break
            end

            place, why = gate:wait(place, asked)
        end

        gate:leave(place)
        done[#done + 1] = why and name .. " " .. why or name
    end)

    requests[#requests + 1] = request
    go(request)

    return request
end

-- Time goes on; who is woken goes on, the first of all that are.
local function pass(seconds)
    local finish = fake.time + seconds

    while true do
        local next, at

        for i = 1, #requests do
            local request = requests[i]
            local when = request.semaphore.n > 0 and fake.time or request.at

            if not at or when < at then
                next, at = request, when
            end
        end

        if not next or at > finish then
            fake.time = finish
            return
        end

        fake.time = at

        if next.semaphore.n > 0 then
            next.semaphore.n = next.semaphore.n - 1
            go(next, true)
        else
            go(next, nil, "timeout")
        end
    end
end

-- Its client left, nginx ended it.
local function leave(request)
    fake.gone(request)

    for i = 1, #requests do
        if requests[i] == request then
            table.remove(requests, i)
            return
        end
    end
end

local function ended()
    return table.concat(done, ", ")
end


-- ---- tests ------------------------------------------------------------------

begin { room = 1 }
come("a")
is(ended(), "a", "who finds room does not wait")

come("b")
pass(0.1)
is(ended(), "a", "who finds none does")
is(gate:waiting(), 1, "and is counted")
room = 1
pass(0.02)
is(ended(), "a, b", "until there is some")
is(gate:waiting(), 0, "and then no more")

begin {}
for i = 1, 5 do
    come("w" .. i)
end
looks = 0
pass(1)
ok(looks >= 90 and looks <= 110, "only the first looks, each 10 ms")
room = 5
pass(1)
is(ended(), "w1, w2, w3, w4, w5", "in the order of their coming")

begin {}
come("late", 1)
come("early", -1)
come("usual")
come("usual 2")
room = 4
pass(1)
is(ended(), "early, usual, usual 2, late",
   "in the order of priority, the smallest first")

begin {}
come("first")
room = 1
come("second")
is(ended(), "", "who comes later does not pass the queue")
pass(0.02)
is(ended(), "first", "but waits for its turn")

begin { queue = 2 }
come("a")
come("b")
come("c")
is(ended(), "c full", "a full queue takes no more")

begin { queue = 0 }
come("a")
is(ended(), "a full", "without a queue nobody waits")

begin { queue_timeout = 0.5 }
come("a")
pass(0.4)
come("b")
pass(0.2)
is(ended(), "a timeout", "nobody waits longer than may be")
room = 1
pass(0.05)
is(ended(), "a timeout, b", "and the next one is the first then")

begin {}
leave(come("gone"))
come("b")
room = 1
pass(1)
is(ended(), "b", "who is gone holds nobody up for long")

begin {}

for _ = 1, 8 do
    leave(come("gone"))
end

come("b")
room = 1
pass(1)
is(ended(), "b", "nor do many who are")
is(gate:waiting(), 0, "none of them is counted then")

begin { queue = 3 }
come("a")
leave(come("gone"))
leave(come("gone"))
come("b")
come("c")
come("d")
is(ended(), "d full", "their places are for others at once")
is(gate:waiting(), 3, "and only theirs")
room = 2
pass(1)
is(ended(), "d full, a, b", "who waited before is before them")

begin {}

local first, second = come("first"), come("second")

come("third")
leave(second)
leave(first)
room = 1
pass(0.02)
is(ended(), "third", "who follows those that are gone is woken")

begin { queue = 1000 }

local many, held = {}, fake.held()

for i = 1, 1000 do
    many[i] = come("w" .. i, i % 7)
end

local resumed = 0
local resume = go

go = function(...)
    resumed = resumed + 1
    return resume(...)
end

pass(1)
ok(resumed <= 110, "only the first of many is ever woken")
go = resume

for i = 1, 1000, 3 do
    leave(many[i])
end

room = 1000
pass(1)
is(#done, 666, "a third is gone, the others are let in")

local sorted = true

for i = 2, #done do
    local a, b = tonumber(done[i - 1]:sub(2)), tonumber(done[i]:sub(2))

    sorted = sorted and (a % 7 < b % 7 or a % 7 == b % 7 and a < b)
end

ok(sorted, "by priority, then in the order of their coming")
is(fake.held(), held, "and nothing is held any more")

begin {}
come("a")
pass(0.001)
looks = 0
gate:ended()
pass(0)
is(looks, 1, "when a request ends, the first looks at once")


tap.done()
