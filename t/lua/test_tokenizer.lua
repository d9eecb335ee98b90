-- The remote tokenizer: JSON fields, HTTP framing, asking, and what is kept.  The
-- questions and answers themselves are C's: t/unit/test_question.c.


local ffi = require "ffi"
local tap = require "lib.tap"
local fake = require "lib.fake"
local http = require "resty.kv_router.http"
local json = require "resty.kv_router.json"
local random = require "resty.kv_router.random"
local request = require "resty.kv_router.request"
local sock = require "lib.sock"
local tokenizer = require "resty.kv_router.tokenizer"

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

is(json.first_string('"x"'), '"x"', "the first string is a string itself")
is(json.first_string('[ "x\\"", "y"]'), '"x\\""', "or an array's first")
is(json.first_string("[1]"), nil, "an array of numbers has none")
is(json.first_string("5"), nil, "a number is none")
is(json.first_string('["x'), nil, "a string without an end is none")


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

    if json.first_string(text) ~= (stop and text:sub(1, stop - 1)) then
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

local load_json = loadfile(package.searchpath("resty.kv_router.json",
                                              package.path))

setfenv(load_json, setmetatable({ string = counting }, { __index = _G }))

local counted = load_json()

local function looks(text)
    seen = 0
    counted.first_string(text)

    return seen
end

for what, part in pairs { ["backslashes"] = "\\", ["escaped quotes"] = '\\"',
                          ["long escapes"] = ("\\"):rep(63) .. '"' }
do
    for _, stop in ipairs { "", '"', '\\"' } do
        local text = '"' .. part:rep(20000) .. stop

        tap.ok(looks(text) < 4 * #text, "no byte is looked at often: "
               .. what .. ", then " .. (stop == "" and "nothing" or stop))
    end
end


-- ---- HTTP -------------------------------------------------------------------

local function read(input, limit)
    local status, body, keep = http.read(sock.new(input), limit or 1000)

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


-- ---- asking -----------------------------------------------------------------

local ANSWER = OK .. "Content-Length: 19\r\n\r\n" .. '{"tokens":[5,6,7] }'

local fleet = fake.match { { active_requests = 2 }, { active_requests = 1 },
                           { active_requests = 3 } }
local draw = random.new(1)
local engine, declined
local three = ffi.new("uint32_t[3]", 5, 6, 7)

function fake.c.question_body(_, _, _, kind, path, body, len, field)
    engine = kind

    if declined then
        field[0] = declined ~= true and declined or nil
        return -5
    end

    path[0], body[0], len[0] = "/tokenize", fake.body, #fake.body

    return 0
end

function fake.c.answer_ids(_, answer, len, ids, n, err)
    if not ffi.string(answer, len):find("tokens") then
        err[0] = ffi.cast("char *", "no tokens in the answer")
        return -1
    end

    ids[0], n[0] = three, 3

    return 0
end

local function ask(t, body)
    fake.body = body

    local array, n, field = t:tokenize(fake.r, fake.r, fleet, draw)

    if not array then
        return n or field or "nothing"
    end

    local list = {}

    for i = 0, n - 1 do
        list[i + 1] = tostring(array[i])
    end

    return table.concat(list, " ")
end

local function sockets(...)
    fake.sockets = { ... }

    return ...
end

local t = tokenizer.new(1.5, 2^20)
local s = sockets(sock.new(ANSWER))

is(ask(t, '{"model":"m","prompt":"hello"}'), "5 6 7", "an engine is asked")
is(s.host .. ":" .. s.port, "10.0.0.2:8000", "the least loaded")
is(s.timeout, 1500, "within the timeout")
tap.ok(s.kept and not s.closed, "its connection is kept")
is(engine, 0, "of an unknown kind")
is(s.sent, "POST /tokenize HTTP/1.1\r\nHost: 10.0.0.2:8000\r\n"
   .. "Content-Type: application/json\r\nContent-Length: 30\r\n\r\n"
   .. '{"model":"m","prompt":"hello"}', "with an HTTP request")

sockets()
is(ask(t, '{"model":"m","prompt":"hello"}'), "5 6 7",
   "the same text is not asked again")

local first = sock.new("", { connect = "refused" })
local second = sock.new(ANSWER)

sockets(first, second)
is(ask(t, '{"prompt":"two"}'), "5 6 7", "when one fails another is asked")
is(second.host, "10.0.0.1", "the second least loaded")

sockets(sock.new("", { connect = "refused" }), sock.new(""), sock.new(ANSWER))
is(ask(t, '{"prompt":"three"}'), "10.0.0.1:8000: receive: closed",
   "but not a third")

s = sockets(sock.new("", { send = "broken" }), sock.new(ANSWER))
is(ask(t, '{"prompt":"four"}'), "5 6 7", "sending may fail")
tap.ok(s.closed and not s.kept, "a connection that failed is closed")

sockets(sock.new("HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n"),
        sock.new(ANSWER))
is(ask(t, '{"prompt":"five"}'), "10.0.0.2:8000: status 400",
   "what one refuses another is not asked")

sockets(sock.new("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"),
        sock.new(ANSWER))
is(ask(t, '{"prompt":"six"}'), "5 6 7", "what one has no time for another is")

sockets(sock.new(OK .. "Content-Length: 2\r\n\r\n{}"))
is(ask(t, '{"prompt":"seven"}'), "no tokens in the answer",
   "an answer without tokens")

sockets()
declined = true
is(ask(t, '{"input":"x"}'), "nothing", "without a text nobody is asked")
declined = "suffix"
is(ask(t, '{"prompt":"x","suffix":"y"}'), "suffix",
   "nor with a field that it would have to know")
declined = nil

fleet = fake.match { { active_requests = 2, engine_id = 1 },
                     { active_requests = 1, engine_id = 2 } }
sockets(sock.new("", { connect = "refused" }), sock.new(ANSWER))
is(ask(t, '{"prompt":"eight"}'), "10.0.0.2:8000: connect: refused",
   "an engine of another kind would have to be asked otherwise")
is(engine, 2, "the question is for the kind of the engine")
has(ask(t, '{"prompt":"' .. ("x"):rep(9 * 2^20) .. '"}'), "too long",
    "nor for a text beyond all measure")


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
