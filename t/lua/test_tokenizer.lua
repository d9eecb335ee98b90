-- Asking engines for token ids: JSON fields, HTTP framing, rungs, bounds, and what
-- is kept.  Questions and answers themselves are C's: t/unit/test_question.c.


local tap = require "lib.tap"
local fake = require "lib.fake"
local ffi = require "ffi"
local engines = require "resty.kv_router.tokens.engines"
local http = require "resty.kv_router.tokens.http"
local json = require "resty.kv_router.tokens.json"
local random = require "resty.kv_router.request.random"
local request = require "resty.kv_router.request.request"
local sock = require "lib.sock"
local tokenizer = require "resty.kv_router.tokens.tokenizer"
local lib = require "resty.kv_router.ffi"

local WHY = lib.WHY

local has, is = tap.has, tap.is


-- ---- fields of a JSON object ------------------------------------------------

local function fields(text)
    local found = json.fields(text)

    if not found then
        return nil
    end

    local list = {}

    for name, value in pairs(found) do
        list[#list + 1] = name .. "=" .. value
    end

    table.sort(list)

    return table.concat(list, " ")
end

is(fields('{"a":1,"b":"x"}'), 'a=1 b="x"', "fields of an object")
is(fields(' {\n"a" : [1, {"b": "]}"}] ,"c":{"d":[]}}\n'),
   'a=[1, {"b": "]}"}] c={"d":[]}', "brackets in strings don't count")
is(fields('{"a":"x\\"y","b":"\\\\"}'), 'a="x\\"y" b="\\\\"',
   "neither do escaped quotes")
is(fields('{"a":-1.5e+3,"b":true,"c":null}'), "a=-1.5e+3 b=true c=null",
   "numbers and words")
is(fields('{"a":1,"a":2}'), "a=2", "of a name that comes twice the last")
is(fields("{}"), "", "an empty object")
is(fields(" { } "), "", "with blanks")
is(fields("[1]"), nil, "an array is no object")
is(fields(""), nil, "neither is nothing")

for _, text in ipairs { '{', '{"a', '{"a"', '{"a":', '{"a":1', '{"a":1,',
                        '{"a":1,}', '{a:1}', '{"a" 1}', '{"a":"x', '{"a":[1}',
                        '{"a":1}}', '{"a":1} x', '{"a":}', '{"a":[',
                        '{"a":"\\' }
do
    is(fields(text), nil, "not an object: " .. text)
end


-- A value as a state machine reads it, a byte after the other: the position
-- behind the string, array or object that begins at pos, or nil.
local function plain_end(text, pos)
    local depth, quoted, escaped = 0, false, false

    for i = pos, #text do
        local c = text:sub(i, i)

        if escaped then
            escaped = false
        elseif quoted then
            escaped = c == "\\"
            quoted = c ~= '"'
        elseif c == '"' then
            quoted = true
        elseif c == "[" or c == "{" then
            depth = depth + 1
        elseif c == "]" or c == "}" then
            depth = depth - 1
        end

        if depth == 0 and not quoted then
            return i + 1
        end
    end
end

-- all strings of up to 8 of these, so that each escape is at each place
local LETTERS = { "\\", '"', "x" }
local wrong_ends, tried = 0, 0

local function try(text)
    local stop = plain_end(text, 1)

    tried = tried + 1

    if fields('{"a":' .. text .. "}")
       ~= (stop == #text + 1 and "a=" .. text or nil)
    then
        wrong_ends = wrong_ends + 1
        tap.note("wrong end: %s", text)
    end

    if #text < 9 then
        for _, letter in ipairs(LETTERS) do
            try(text .. letter)
        end
    end
end

try('"')
is(tried, (3^9 - 1) / 2, "strings with escapes at all places")
is(wrong_ends, 0, "end where they should")

-- arrays of anything
local BYTES = { "\\", '"', '"', '"', "[", "]", "{", "}", "x", ",", " ", "1" }
local roll = random.new(3)
local held = 0

wrong_ends = 0

for _ = 1, 20000 do
    local s = {}

    for i = 1, roll() * 16 do
        s[i] = BYTES[math.floor(roll() * #BYTES) + 1]
    end

    local text = '{"v":[' .. table.concat(s) .. "]}"
    local stop = plain_end(text, 6)
    local found = json.fields(text)

    if stop == #text then
        held = held + 1
        wrong_ends = wrong_ends
                     + (found and found.v == text:sub(6, -2) and 0 or 1)
    elseif not stop then
        wrong_ends = wrong_ends + (found and 1 or 0)
    end
end

tap.ok(held > 1000, "random arrays: many are whole")
is(wrong_ends, 0, "random arrays: end where they should")

-- How many bytes are looked at, of texts that are made to cost much.
local seen = 0

local counting = setmetatable({
    find = function(s, pattern, pos, plain)
        local a, b = string.find(s, pattern, pos, plain)

        seen = seen + (b or #s) - (pos or 1) + 2

        return a, b
    end,

    byte = function(...)
        seen = seen + 1
        return string.byte(...)
    end,
}, { __index = string })

local load_json = loadfile(package.searchpath("resty.kv_router.tokens.json",
                                              package.path))

setfenv(load_json, setmetatable({ string = counting }, { __index = _G }))

local counted = load_json()

local function looks(text)
    seen = 0
    counted.fields(text)

    return seen
end

for what, part in pairs { ["backslashes"] = "\\", ["escaped quotes"] = '\\"',
                          ["long escapes"] = ("\\"):rep(63) .. '"' }
do
    for _, stop in ipairs { "", '"', '\\"' } do
        local text = '{"a":"' .. part:rep(20000) .. stop

        tap.ok(looks(text) < 4 * #text, "no byte is looked at often: "
               .. what .. ", then " .. (stop == "" and "nothing" or stop))
    end
end


-- ---- HTTP -------------------------------------------------------------------

local function read(input, limit)
    local status, body, keep = http.read(sock.new(input), {
        limit = limit or 1000, timeout = 1000 })

    if not status then
        return body
    end

    return status .. " " .. body .. (keep and " kept" or " closed")
end

local OK = "HTTP/1.1 200 OK\r\n"

is(read(OK .. "Content-Length: 2\r\n\r\nhi"), "200 hi kept",
   "an answer with a length")
is(read(OK .. "content-length:2 \r\nCONNECTION: Close\r\n\r\nhi"),
   "200 hi closed", "names and words in any case")
is(read("HTTP/1.0 404 X\r\nContent-Length: 0\r\n\r\n"), "404  closed",
   "HTTP/1.0, and an empty body")
is(read(OK .. "Transfer-Encoding: chunked\r\n\r\n"
        .. "2\r\nhi\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n"),
   "200 hi0123456789 kept", "chunks")
is(read(OK .. "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n"),
   "200  kept", "trailers")
is(read(OK .. "Content-Length: 20\r\n\r\nhi"), "closed", "a body that is cut")
is(read(OK .. "Content-Length: 20\r\n\r\nhi", 10), "the answer is too long",
   "a body beyond the limit")
is(read(OK .. "Transfer-Encoding: chunked\r\n\r\n8\r\n01234567\r\n8\r\n", 10),
   "the answer is too long", "chunks beyond the limit")
is(read(OK .. "Transfer-Encoding: chunked\r\n\r\nx\r\n"),
   "a chunk without a size", "a chunk without a size")
is(read(OK .. "Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n"),
   "a chunk without an end", "a chunk that is longer than it says")
is(read(OK .. "Transfer-Encoding: gzip\r\n\r\n"),
   "unknown transfer-encoding", "another coding")
is(read(OK .. "\r\n"), "an answer without a length", "no length")
is(read(OK .. "Content-Length: -1\r\n\r\n"), "an answer without a length",
   "a length that is none")
is(read(OK .. "Content-Length: 2\r\n\r\nhiHTTP/1.1 200 OK"), "200 hi closed",
   "more than one answer: nobody reads it")
is(read("SSH-2.0-x\r\n\r\n"), "no HTTP/1 answer", "another protocol")
is(read(OK .. "X: " .. ("y"):rep(20000) .. "\r\n\r\n"),
   "the header is too long", "a header beyond all measure")
is(read(OK), "closed", "a header that is cut")
is(read(OK .. "Transfer-Encoding: chunked\r\n\r\n0\r\n"
        .. ("A: bcdefgh\r\n"):rep(200)), "the header is too long",
   "trailers beyond all measure")

local function split(address)
    local host, port, err = http.split(address)

    return err or host .. " " .. tostring(port)
end

is(split("10.0.0.1:8000"), "10.0.0.1 8000", "host and port")
is(split("[::1]:80"), "[::1] 80", "an IPv6 address")
is(split("unix:/run/x.sock"), "unix:/run/x.sock nil", "a socket")
is(split("https://h:443"), "only plain host:port is supported",
   "https is not supported")
is(split("h"), "no port in the address", "no port")


-- ---- connections ------------------------------------------------------------

local PLAIN = { headers = "", key = "" }

-- Posts to that engine over a socket; returns the status, or what is wrong.
local function post(s, engine, opts)
    local o = { timeout = 1000, limit = 100, engine = engine or PLAIN,
                r = fake.r }

    for key, value in pairs(opts or {}) do
        o[key] = value
    end

    local status, body = http.post(s, "h:1", "/x", "{}", o)

    return status or body
end

local HI = OK .. "Content-Length: 2\r\n\r\nhi"
local s = sock.new(HI)

is(post(s, { headers = "A: b\r\n", key = "" }), 200, "a POST")
has(s.sent, "Content-Length: 2\r\nA: b\r\n\r\n{}",
    "with the headers that the zone has for its engines")
is(s.tls, nil, "without TLS")
is(s.pool, "h:1", "its connection is kept with those of this engine")

local TLS = { headers = "", key = "tls n ", tls = true, verify = true,
              name = "n" }

s = sock.new(HI)
is(post(s, TLS), 200, "by TLS")
is(s.tls, "n true", "with a name, which is verified")
is(s.pool, "tls n h:1", "its connection is kept apart from others")

s = sock.new(HI, { tls = "certificate host mismatch" })
is(post(s, TLS), "connect: TLS: certificate host mismatch",
   "a certificate that is another's")
is(s.sent, "", "gets no word")
tap.ok(s.closed, "and the connection is closed")

is(post(sock.new(""), PLAIN, { deadline = lib.now_us() }), "connect: timeout",
   "after the deadline nobody is asked")

-- an answer of which a byte comes each 40 ms
local slow = sock.new(HI)
local any = slow.receiveany

slow.at_once = 1

function slow:receiveany(size)
    fake.time = fake.time + 0.04
    return any(self, size)
end

is(post(slow, PLAIN, { deadline = lib.now_us() + 100000 }), "receive: timeout",
   "an answer that drips is over at the deadline")

-- ---- asking -----------------------------------------------------------------

local ANSWER = OK .. "Content-Length: 19\r\n\r\n" .. '{"tokens":[5,6,7] }'
local RENDERED = OK .. "Content-Length: 22\r\n\r\n" .. '{"token_ids":[8,9,10]}'
local fleet = fake.match { { active_requests = 2 }, { active_requests = 1 },
                           { active_requests = 3 } }
local draw = random.new(1)

-- the question of a request: its body, at a path by the rung; or none, because of
-- a field
local declined
local PATHS = { [0] = "/v1/chat/completions/render", "/tokenize" }

function fake.c.question_body(_, _, ask, _, path, body, len, field)
    if declined then
        field[0] = declined ~= true and declined or nil
        return -5
    end

    path[0], body[0], len[0] = PATHS[ask], fake.body, #fake.body

    return 0
end

-- the numbers of its first list
local numbers

function fake.c.answer_ids(_, answer, len, ids, n, err)
    local list = ffi.string(answer, len):match("%[([%d,]+)%]")
    local found = {}

    if not list then
        err[0] = ffi.cast("char *", "no token ids in the answer")
        return -1
    end

    for number in list:gmatch("%d+") do
        found[#found + 1] = tonumber(number)
    end

    numbers = ffi.new("uint32_t[?]", #found, found)
    ids[0], n[0] = numbers, #found

    return 0
end

local words = {}

for name, number in pairs(WHY) do
    words[number] = name:lower()
end

local function form_of(name)
    for id, row in ipairs(fake.FORMS) do
        if row[1] == name then
            return engines.form(id)
        end
    end
end

-- What becomes of a body: its ids, or why there are none, and a sentence.
local function ask(t, body, form, list, r)
    fake.body = body

    local entry, why, err, field = t:tokenize({
        r = r or fake.r, zone = fake.r, form = form_of(form or "completions"),
        request = request.new(fake.r), found = list or fleet, random = draw,
        engine = engines.engine(),
    })

    if not entry then
        return (words[why] or "nothing") .. (err and ": " .. err or "")
               .. (field and ": " .. field or "")
    end

    local ids = {}

    for i = 0, entry.n - 1 do
        ids[i + 1] = tostring(entry.tokens[i])
    end

    return table.concat(ids, " ")
end

local function sockets(...)
    fake.sockets = { ... }

    return ...
end

local t = tokenizer.new("remote", 1.5, 2^20)

s = sockets(sock.new(ANSWER))
is(ask(t, '{"model":"m","prompt":"hello"}'), "5 6 7", "an engine is asked")
is(s.host .. ":" .. s.port, "10.0.0.2:8000", "the least loaded")
tap.ok(s.connect_timeout <= 1500 and s.connect_timeout > 1400,
       "within the timeout")
tap.ok(s.kept and not s.closed, "its connection is kept")
is(s.sent, "POST /tokenize HTTP/1.1\r\nHost: 10.0.0.2:8000\r\n"
   .. "Content-Type: application/json\r\nContent-Length: 30\r\n\r\n"
   .. '{"model":"m","prompt":"hello"}', "with an HTTP request")

fake.asked = {}
sockets()
is(ask(t, '{"model":"m","prompt":"hello"}'), "5 6 7",
   "the same text is not asked again")
is(fake.asked["questions.kept"], 1, "which is counted")

local first = sock.new("", { connect = "connection refused" })
local second = sock.new(ANSWER)

sockets(first, second)
is(ask(t, '{"prompt":"two"}'), "5 6 7",
   "when one accepts no connection another is asked")
is(second.host, "10.0.0.1", "the second least loaded")

sockets(sock.new("", { connect = "connection refused" }),
        sock.new("", { connect = "connection refused" }), sock.new(ANSWER))
is(ask(t, '{"prompt":"three"}'),
   "tokenizer: 10.0.0.1:8000: connect: connection refused", "but not a third")

s = sockets(sock.new("", { send = "broken" }), sock.new(ANSWER))
is(ask(t, '{"prompt":"four"}'), "tokenizer: 10.0.0.2:8000: send: broken",
   "what fails later is not tried elsewhere")
tap.ok(s.closed and not s.kept, "a connection that failed is closed")

for _, status in ipairs { 400, 401, 404, 429, 500, 503 } do
    fake.doubted = nil
    sockets(sock.new("HTTP/1.1 " .. status .. " X\r\nContent-Length: 0\r\n\r\n"),
            sock.new(ANSWER))
    is(ask(t, '{"prompt":"' .. status .. '"}'),
       "tokenizer: 10.0.0.2:8000: status " .. status,
       "what one refuses another is not asked: " .. status)
    is(fake.doubted, 1, "but that engine is probed again")
end

sockets(sock.new("", { receive = "timeout" }))
is(ask(t, '{"prompt":"slow"}'), "tokenizer: 10.0.0.2:8000: receive: timeout",
   "one that does not answer in time")

sockets(sock.new(OK .. "Content-Length: 2\r\n\r\n{}"))
is(ask(t, '{"prompt":"seven"}'),
   "tokenizer: 10.0.0.2:8000: no token ids in the answer",
   "an answer without tokens")

fake.sockets = {}
has(ask(t, '{"prompt":"bug"}'), "tokenizer: ", "an error of ours is no more")

sockets()
declined = true
is(ask(t, '{"input":"x"}'), "nothing", "without a text nobody is asked")
declined = "suffix"
is(ask(t, '{"prompt":"x","suffix":"y"}'), "unknown_form: suffix",
   "nor with a field that it would have to know")
declined = nil
is(ask(t, '{"prompt":"' .. ("x"):rep(9 * 2^20) .. '"}'), "too_long",
   "nor for a text beyond all measure")


-- ---- rungs ------------------------------------------------------------------

local auto = tokenizer.new("auto", nil, 0)
local CHAT = '{"messages":[{"role":"user","content":"hi"}]}'

s = sockets(sock.new(RENDERED))
is(ask(auto, CHAT, "chat"), "8 9 10", "auto: an engine that renders is asked to")
is(s.sent:match("^POST (%S+)"), "/v1/chat/completions/render", "at its path")
is(s.sent:match("\r\n\r\n(.*)$"), CHAT, "with the question")

fake.rungs = { [0] = 0x60, 0x60, 0x42 }
s = sockets(sock.new(RENDERED))
is(ask(auto, CHAT, "chat"), "8 9 10", "auto: of several")
is(s.host, "10.0.0.3", "the one that renders, however loaded")

fake.rungs[2] = 0x40
s = sockets(sock.new(ANSWER))
is(ask(auto, CHAT, "chat"), "5 6 7", "auto: where none renders")
is(s.sent:match("^POST (%S+)"), "/tokenize", "the next rung is asked")
is(s.host, "10.0.0.2", "the least loaded one that has it")
is(ask(auto, '{"prompt":"x"}'), "no_rung", "a form that none of them can do")

fake.rungs = { [0] = 0, 0, 0 }
is(ask(auto, CHAT, "chat"), "no_rung",
   "auto: before the probe has ended nobody is asked")
sockets(sock.new(ANSWER))
is(ask(tokenizer.new("remote", 1, 0), CHAT, "chat"), "5 6 7",
   "a rung that is set is tried even then")
fake.rungs = { [0] = 0x4f, 0x4f, 0x4f }
is(ask(tokenizer.new("remote", 1, 0), CHAT, "chat"), "no_rung",
   "but not when the probe has not found it")
fake.rungs = {}

sockets(sock.new(RENDERED))
is(ask(auto, '{"messages":[]}', "messages"), "8 9 10",
   "auto: messages can be rendered")
is(ask(tokenizer.new("remote", 1, 0), '{"messages":[]}', "messages"), "no_rung",
   "but are not for /tokenize")

local kinds = fake.match { { active_requests = 2, engine_id = 1 },
                           { active_requests = 1, engine_id = 2 } }

sockets(sock.new("", { connect = "connection refused" }), sock.new(ANSWER))
is(ask(t, '{"prompt":"kinds"}', "chat", kinds),
   "tokenizer: 10.0.0.2:8000: connect: connection refused",
   "an engine of another kind would have to be asked otherwise")

s = sockets(sock.new(RENDERED))
ask(auto, CHAT, "chat")
tap.ok(s.connect_timeout <= 50 and s.connect_timeout > 40,
       "by itself a text may wait for 50 ms")
s = sockets(sock.new(RENDERED))
ask(auto, ("x"):rep(100000))
tap.ok(s.connect_timeout <= 251 and s.connect_timeout > 240,
       "and for 2 us a byte")


-- ---- many at a time ---------------------------------------------------------

-- A socket on which no answer comes until it is resumed.
local function waiting(answer)
    local w = sock.new(answer or ANSWER)

    function w:receiveany(size)
        if not self.went_on then
            self.went_on = true
            coroutine.yield("engine")
        end

        return any(self, size)
    end

    return w
end

-- Asks in a thread of its own: the thread, and what it waits for or has.
local function start(asker, body, list, r)
    local thread = coroutine.create(function()
        return ask(asker, body, "completions", list, r)
    end)
    local _, got, seconds = coroutine.resume(thread)

    return thread, got, seconds
end

local function resume(thread, ...)
    return select(2, coroutine.resume(thread, ...))
end

t = tokenizer.new("remote", 5, 2^20)
fake.asked = {}
sockets(waiting())

local leader = start(t, '{"prompt":"same"}')
local sema, follower, seconds

follower, sema, seconds = start(t, '{"prompt":"same"}')
is(type(sema), "table", "an equal question is not asked, but waited for")
tap.ok(seconds > 4.9 and seconds <= 5, "as long as the text may wait")

local other, late = start(t, '{"prompt":"same"}')

is(resume(other, nil), "tokenizer: 10.0.0.2:8000: timeout",
   "one whose time is over goes by load")
is(late ~= nil, true, "having waited for the same")
is(resume(leader), "5 6 7", "then the answer comes")
is(sema:count(), 1, "for all that still wait")
is(resume(follower, true), "5 6 7", "which have it too")
is(fake.asked["questions.asked"] .. " "
   .. fake.asked["questions.joined"], "1 2",
   "one question, two waited")

sockets(waiting("HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"))
leader = start(t, '{"prompt":"fails"}')
follower = start(t, '{"prompt":"fails"}')
has(resume(leader), "tokenizer: ", "a question that fails")
is(resume(follower, true), "tokenizer: 10.0.0.2:8000: status 500",
   "fails for all that waited")

local BUSY = "tokenizer: too many questions for token ids are on their way"

-- four of an engine, of which there are three
local started = {}

for i = 1, 12 do
    sockets(waiting())
    started[i] = start(t, '{"prompt":"many ' .. i .. '"}')
end

is(ask(t, '{"prompt":"one more"}'), BUSY,
   "a thirteenth question to three engines: they are busy")

for i = 1, 12 do
    is(resume(started[i]), "5 6 7", "the answer of question " .. i)
end

sockets(sock.new(ANSWER))
is(ask(t, '{"prompt":"one more"}'), "5 6 7", "afterwards it is asked")

-- 64 of a process
local big = {}

for i = 1, 30 do
    big[i] = {}
end

local wide = fake.match(big)

for i = 1, 64 do
    sockets(waiting())
    started[i] = { i }
    start(t, '{"prompt":"wide ' .. i .. '"}', wide, started[i])
end

is(ask(t, '{"prompt":"wide"}', "completions", wide), BUSY,
   "a 65th question of a process: it is busy")

-- the requests that ask are killed
local before = fake.held() - 64

for i = 1, 64 do
    fake.gone(started[i])
end

for i = 1, 64 do
    sockets(waiting())
    started[i] = start(t, '{"prompt":"again ' .. i .. '"}', wide)
end

is(ask(t, '{"prompt":"again"}', "completions", wide), BUSY,
   "requests that end while they ask give their questions back, once")

for i = 1, 64 do
    is(resume(started[i]), "5 6 7", "question " .. i .. " in such a place")
end

-- four of one engine: no other is asked
local one = fake.match { {} }

for i = 1, 4 do
    sockets(waiting())
    start(t, '{"prompt":"one ' .. i .. '"}', one, started)
end

is(ask(t, '{"prompt":"one"}', "completions", one), BUSY, "a busy engine")
fake.gone(started)
sockets(sock.new(ANSWER))
is(ask(t, '{"prompt":"one"}', "completions", one), "5 6 7",
   "is not busy when the requests that ask it have ended")
is(fake.held(), before, "and nothing of them is held")

-- others wait for the question of a request that ends
local asker, waiter, third = {}, {}, {}
local next_one, last_one

sockets(waiting())
start(t, '{"prompt":"left"}', nil, asker)
start(t, '{"prompt":"left"}', nil, waiter)
next_one, sema = start(t, '{"prompt":"left"}', nil, third)
last_one = start(t, '{"prompt":"left"}')
fake.gone(waiter)
fake.gone(asker)
is(sema:count(), 1, "when a request ends, one that waits for it is woken")
sockets(waiting())
is(resume(next_one, true), "engine", "and asks the engine itself")
is(type(resume(last_one, true)), "table", "the others wait for that one then")
is(resume(next_one), "5 6 7", "which has an answer")
is(resume(last_one, true), "5 6 7", "for all of them")
is(fake.held(), before, "and nothing is held afterwards")

-- the bound of those that wait
sockets(waiting())
leader = start(t, '{"prompt":"crowd"}')

for _ = 1, 256 do
    start(t, '{"prompt":"crowd"}')
end

is(ask(t, '{"prompt":"crowd"}'), BUSY, "256 wait for an answer at most")
resume(leader)


-- ---- what is kept -----------------------------------------------------------

local cache = tokenizer.cache(10 * (4 * 64 + 256), 1000)

local function put(from, to)
    for i = from, to do
        cache:put(i, { n = 64 })
    end
end

local function kept()
    local n = 0

    for i = 1, 100 do
        if cache.young[i] or cache.old[i] then
            n = n + 1
        end
    end

    return n
end

put(1, 5)
is(kept(), 5, "entries are kept")
put(6, 10)
is(kept(), 10, "up to the bound in bytes")
put(11, 11)
is(kept(), 6, "beyond it the older half goes")
tap.ok(cache:get(6), "what is used")
put(12, 15)
tap.ok(cache:get(6), "stays")
is(cache:get(7), nil, "what is not used goes")
cache:put("big", { n = 10000 })
is(cache:get("big"), nil, "what is larger than all is not kept")

cache = tokenizer.cache(2^30, 10)
put(1, 100)
tap.ok(kept() <= 10, "the number of entries is bounded, too")

cache = tokenizer.cache(0, 10)
put(1, 2)
is(kept(), 0, "0 bytes keep nothing")


-- ---- the request ------------------------------------------------------------

fake.vars = { uri = "/v1/chat", http_x_session_id = "s1", http_a_b = "c" }
fake.body = '{"model":"m","priority":3,"max_tokens":9,"cache_salt":"salt",'
            .. '"session_id":"s2","messages":[1]}'

local r = request.new(fake.r, "lora")

is(r.method, "POST", "method")
is(r.uri, "/v1/chat", "uri")
is(r.headers["A-b"], "c", "headers, in any case")
is(r.headers.nothing, nil, "a header that is not there")
is(r.model, "m", "model")
is(r.session, "s1", "session, by the header")
is(r.priority, 3, "priority")
is(r.max_tokens, 9, "max_tokens")
is(r.lora, "lora", "lora, as given")
is(r.salt, "salt", "salt, of the body")
is(r.json.messages[1], 1, "json, decoded")
is(r.json, r.json, "once")
is(r.nonsense, nil, "what it has not is nil")

fake.vars = {}
is(request.new(fake.r).session, "s2", "session, by the body")
is(request.new(fake.r, nil, "given").salt, "given", "salt, as given")

fake.body = '{"input":"x","previous_response_id":"resp_1"}'
is(request.new(fake.r).session, "resp_1", "session, by the response before")

fake.body = '{"model":5,"priority":"high","max_completion_tokens":7}'
r = request.new(fake.r)
is(r.model, nil, "a model that is no string is none")
is(r.priority, 0, "a priority that is no number is 0")
is(r.max_tokens, 7, "max_completion_tokens")

fake.body = nil
fake.body_file = os.tmpname()

local file = io.open(fake.body_file, "wb")

file:write('{"model":"on disk"}')
file:close()

is(request.new(fake.r).json.model, "on disk", "a body in a file")
os.remove(fake.body_file)
is(request.new(fake.r).body, "", "a file that is gone")
is(request.new(fake.r).json, nil, "which is no JSON")


tap.done()
