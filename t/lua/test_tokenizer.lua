-- The remote tokenizer: JSON fields, the question, HTTP framing, the answer,
-- and what is kept.


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


-- ---- the form of a request --------------------------------------------------

local FORMS = {
    ["/v1/completions"] = "completion",
    ["/v1/chat/completions"] = "chat",
    ["/completions"] = "completion",
    ["/llama/v1/completions"] = "completion",
    ["/openai/deployments/m/chat/completions"] = "chat",
    ["/v1/messages"] = "none",
    ["/v1/responses"] = "none",
    ["/v1/chat/completions/batch"] = "none",
    ["/v1/completions/"] = "none",
    ["/v1/chatcompletions"] = "none",
    ["/generate"] = "none",
    ["/v1/embeddings"] = "none",
    ["/"] = "none",
    ["completions"] = "none",
}

for uri, form in pairs(FORMS) do
    is(tokenizer.form(uri) or "none", form, "the form of " .. uri)
end


-- ---- the question -----------------------------------------------------------

-- Of a body, in the form that a body without a path is taken for.
local function question(body, form)
    local found = json.fields(body)

    return tokenizer.question(found, form or tokenizer.form_of(found))
end

is(question('{"model":"m","prompt":"a\\nb","stream":true}'),
   '{"model":"m","prompt":"a\\nb"}', "a prompt")
is(question('{"prompt":["a","b"],"add_special_tokens":false}'),
   '{"prompt":"a","add_special_tokens":false}', "the first of several prompts")
is(question('{"model":"m","messages":[{"role":"user","content":[]}],'
            .. '"tools":[],"chat_template_kwargs":{"x":12345678901234567890},'
            .. '"temperature":1}'),
   '{"model":"m","messages":[{"role":"user","content":[]}],"tools":[],'
   .. '"chat_template_kwargs":{"x":12345678901234567890}}',
   "a chat, byte for byte")
is(question('{"messages":[],"add_generation_prompt":false,'
            .. '"continue_final_message":true,"chat_template":"t"}'),
   '{"messages":[],"add_generation_prompt":false,"chat_template":"t",'
   .. '"continue_final_message":true}', "a chat that goes on")
is(question('{"prompt":[1,2]}'), nil, "token ids are no question")
is(question('{"input":"x"}'), nil, "neither is anything else")
is(question('{"messages":[],"prompt":"a"}', "completion"), '{"prompt":"a"}',
   "the path says which field counts")
is(question('{"prompt":"a"}', "chat"), nil, "a chat without messages is none")
is(question('{"messages":null}', "chat"), nil, "nor one with null")

-- Its chat_template_kwargs, sorted.
local function kwargs(more)
    local asked = json.fields(question('{"messages":[],' .. more .. "}"))

    return asked.chat_template_kwargs and fields(asked.chat_template_kwargs)
end

is(kwargs '"reasoning_effort":"high"',
   'enable_thinking=true reasoning_effort="high"',
   "the effort is an argument of the template, and turns thinking on")
is(kwargs '"reasoning_effort":"none"',
   'enable_thinking=false reasoning_effort="none"', "or off")
is(kwargs('"reasoning_effort":"low","chat_template_kwargs":{"x":1e400,'
          .. '"enable_thinking":null,"reasoning_effort":"high"}'),
   'enable_thinking=null reasoning_effort="low" x=1e400',
   "as with vLLM: the effort is the body's, thinking the client's, the rest "
   .. "as it came")
is(kwargs '"documents":[{"text":"a"}]', 'documents=[{"text":"a"}]',
   "documents are an argument")
is(kwargs '"documents":null,"reasoning_effort":null', nil,
   "but not those that are null")
is(kwargs '"documents":null,"chat_template_kwargs":{ "a" : 1 }', "a=1",
   "nor do they change others")
is(kwargs '"documents":[],"chat_template_kwargs":null', "documents=[]",
   "arguments that are null are none")
is(question('{"messages":[],"documents":[],"chat_template_kwargs":7}'),
   '{"messages":[],"chat_template_kwargs":7}',
   "arguments that are no object are for the engine to refuse")
is(question('{"prompt":"a","documents":[],"reasoning_effort":"low"}'),
   '{"prompt":"a"}', "a completion has no template")

local function unknown(body)
    local asked, field = question(body)

    return asked or field
end

is(unknown '{"messages":[],"tools":[{}],"tool_choice":"none"}', "tool_choice",
   "tools that may not be used: some engines leave them out")
is(unknown '{"messages":[],"tools":[{}],"tool_choice":"auto"}',
   '{"messages":[],"tools":[{}]}', "tools that may be")
is(unknown '{"messages":[],"tools":null,"tool_choice":"none"}',
   '{"messages":[],"tools":null}', "no tools")
is(unknown '{"prompt":"a","suffix":"b"}', "suffix", "a text to fill in")
is(unknown '{"prompt":"a","suffix":null}', '{"prompt":"a"}', "no suffix")


-- ---- the answer -------------------------------------------------------------

local function tokens(text)
    local array, n = tokenizer.tokens(text)

    if not array then
        return nil, n
    end

    local list = {}

    for i = 0, n - 1 do
        list[i + 1] = tostring(array[i])
    end

    return table.concat(list, " ")
end

is(tokens('{"count":3,"max_model_len":9,"tokens":[1,2,300]}'), "1 2 300",
   "tokens of an answer")
is(tokens('{"tokens" : [ 1 ,\n 4294967295 ] }'), "1 4294967295",
   "with blanks, and the largest")
is(tokens('{"tokens":[]}'), "", "no tokens at all")

local function wrong(part, text)
    local got, err = tokens(text)

    is(got, nil, "no tokens: " .. text)
    has(err, part, "because: " .. part)
end

wrong("no tokens in the answer", '{"count":3}')
wrong("over 2^32", '{"tokens":[4294967296]}')
wrong("over 2^32", '{"tokens":[00000000001]}')
wrong("without a comma", '{"tokens":[1 2]}')
wrong("a hole", '{"tokens":[1,,2]}')
wrong("a hole", '{"tokens":[1,]}')
wrong("a hole", '{"tokens":[,1]}')
wrong("no number", '{"tokens":[-1]}')
wrong("no number", '{"tokens":["a"]}')
wrong("no number", '{"tokens":[[1]]}')
wrong("without an end", '{"tokens":[1,2')
wrong("without an end", '{"tokens":[')

local many = {}

for i = 1, 100000 do
    many[i] = i
end

local long = '{"tokens":[' .. table.concat(many, ",") .. "]}"

is(tokens(long), table.concat(many, " "), "100000 tokens")

local clock = os.clock()

for _ = 1, 10 do
    tokenizer.tokens(long)
end

tap.note("%.1f ns for a token", (os.clock() - clock) * 1e9 / 1e6)


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

local function ask(t, body)
    fake.body = body

    local array, n, field = t:tokenize(request.new(fake.r), "completion", fleet,
                                       draw)

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
is(s.sent, "POST /tokenize HTTP/1.1\r\nHost: 10.0.0.2:8000\r\n"
   .. "Content-Type: application/json\r\nContent-Length: 30\r\n\r\n"
   .. '{"model":"m","prompt":"hello"}', "with an HTTP request")

sockets()
is(ask(t, '{"model":"m", "prompt":"hello", "n":2}'), "5 6 7",
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
is(ask(t, '{"input":"x"}'), "nothing", "without a text nobody is asked")
is(ask(t, '{"prompt":"x","suffix":"y"}'), "suffix",
   "nor with a field that it would have to know")
is(ask(t, "not JSON"), "nothing", "nor for what is no JSON")
is(ask(t, nil), "nothing", "nor without a body")
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
