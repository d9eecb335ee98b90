-- Remote prefill: what engines are sent, and what goes on when they fail.


local tap = require "lib.tap"
local fake = require "lib.fake"
local sock = require "lib.sock"
local decode = require "cjson".decode
local ffi = require "ffi"
local json = require "resty.kv_router.tokens.json"
local lib = require "resty.kv_router.ffi"
local engines = require "resty.kv_router.tokens.engines"
local prefill = require "resty.kv_router.tokens.prefill"
local random = require "resty.kv_router.request.random"

local FAILED = lib.FAILED
local has, is = tap.has, tap.is


-- ---- objects of fields ------------------------------------------------------

local fields = json.fields '{"a":1, "b":[1, 2],"c":"x"}'
local made = json.object(fields, { b = "2", c = false, d = '{"e":[]}' })

is(made:sub(1, 1) .. made:sub(-1), "{}", "object: an object")

local t = decode(made)

is(t.a, 1, "object: fields that don't change")
is(t.b, 2, "object: fields that do")
is(t.c, nil, "object: fields that go")
is(#t.d.e, 0, "object: fields that come")
is(json.object({}, {}), "{}", "object: empty")


-- ---- a request --------------------------------------------------------------

local held = {}

-- candidate numbers that are not to be asked
local out = {}

-- how each went, as in lib.FAILED; 6: it has answered
local ends = {}

function fake.c.prefill(_, _, i, err)
    if out[i] then
        err[0] = ffi.cast("char *", "it is out")
        return -5
    end

    held[#held + 1] = tostring(i)

    return 0
end

function fake.c.prefill_ended(_, _, how)
    held[#held + 1] = "-"
    ends[#ends + 1] = how

    return 0
end

-- candidate number -> its rank, of workers that have several
local ranks = {}

function fake.c.rank(_, _, i, rank)
    rank[0] = ranks[i] or 0

    return ranks[i] and 0 or -5
end

local function run(plan, body, sockets, vars)
    held, ends, fake.set, fake.new_body = {}, {}, {}, nil
    fake.ngx.ctx = {}
    fake.sockets = {}
    fake.vars = { uri = "/v1/completions", request_id = "0a1b" }

    for name, value in pairs(vars or {}) do
        fake.vars[name] = value
    end

    for i, s in ipairs(sockets or {}) do
        fake.sockets[i] = s
    end

    return prefill.run(plan, {
        r = 1, zone = 2, random = random.new(3),
        request = { fields = json.fields(body) or {} },
        found = fake.match { {}, {}, {} },
        engine = engines.engine(),
    })
end

local function answer(body, status)
    return sock.new("HTTP/1.1 " .. (status or 200) .. " X\r\nContent-Length: "
                    .. #body .. "\r\n\r\n" .. body)
end

local function sent(s)
    local head, body = s.sent:match("^(.-\r\n)\r\n(.*)$")

    return head, decode(body)
end


-- ---- headers ----------------------------------------------------------------

is(run({ headers = { ["X-A"] = "b", ["X-C"] = false } }, ""), true,
   "a plan may have headers alone")
is(fake.set["X-A"], "b", "they are set")
is(fake.set["X-C"], false, "or removed")


-- ---- vLLM -------------------------------------------------------------------

local BODY = '{"model":"m","prompt":[1,2,3],"max_tokens":50,"stream":true,'
             .. '"stream_options":{"include_usage":true},"min_tokens":4}'
local VLLM = { prefill = { 2, 3 }, protocol = "vllm", timeout = 5 }
local PARAMS = '{"do_remote_prefill":true,"remote_block_ids":[18446744073709551615],'
               .. '"remote_host":"10.0.0.2"}'

local one = answer('{"id":"x","kv_transfer_params":' .. PARAMS .. "}")

is(run(VLLM, BODY, { one }), true, "vllm: it goes well")

local head, asked = sent(one)

is(one.host .. ":" .. one.port, "10.0.0.2:8000",
   "vllm: the first of those planned is asked")
is(one.timeout, 5000, "vllm: for as long as planned")
is(one.connect_timeout, 2000, "vllm: not so long for connecting")
has(head, "POST /v1/completions HTTP/1.1\r\n", "vllm: at the request's path")
has(head, "X-Request-Id: 0a1b\r\n", "vllm: with an id")
is(fake.set["X-Request-Id"], "0a1b", "vllm: which the decoder gets, too")
is(asked.kv_transfer_params.do_remote_decode, true,
   "vllm: for somebody else to decode")
is(asked.kv_transfer_params.do_remote_prefill, false,
   "vllm: and nobody else to prefill")
is(asked.max_tokens, 1, "vllm: one token")
is(asked.stream, false, "vllm: not streamed")
is(asked.stream_options, nil, "vllm: nor with options of streams")
is(asked.min_tokens, nil, "vllm: nor with more than one token at least")
is(asked.max_completion_tokens, nil, "vllm: without what was not there")
is(#asked.prompt, 3, "vllm: the same prompt")
has(fake.new_body, '"kv_transfer_params":' .. PARAMS,
    "vllm: what it answered goes to the decoder, as it is")
is(decode(fake.new_body).max_tokens, 50, "vllm: with the client's own fields")
is(table.concat(held, " "), "1 -", "vllm: its load counts meanwhile")

one = answer('{"kv_transfer_params":{}}')
run(VLLM, '{"prompt":"x","max_completion_tokens":9}', { one },
    { http_authorization = "Bearer k", http_x_request_id = "mine" })
head, asked = sent(one)
has(head, "Authorization: Bearer k\r\n", "vllm: the client's key is passed on")
has(head, "X-Request-Id: mine\r\n", "vllm: so is its own id")
is(fake.set["X-Request-Id"], nil, "vllm: which needs not be set")
is(asked.max_completion_tokens, 1, "vllm: one token in the newer field")

fake.headers = "X-A: 1\r\nAuthorization: Bearer own\r\n"
one = answer('{"kv_transfer_params":{}}')
run(VLLM, BODY, { one }, { http_authorization = "Bearer k" })
head = sent(one)
has(head, "X-A: 1\r\n", "vllm: with the headers of engines")
has(head, "Authorization: Bearer own\r\n", "vllm: a key is one of them")
is(head:find("Bearer k", 1, true), nil, "vllm: the client's is not sent then")
fake.headers = ""

is(head:find("x-data-parallel-rank", 1, true), nil,
   "vllm: a worker with one rank is told none")

ranks[1] = 3
one = answer('{"kv_transfer_params":{}}')
run(VLLM, BODY, { one })
has(sent(one), "x-data-parallel-rank: 3\r\n",
    "vllm: one with several is told which")
ranks[1] = nil

local dead = sock.new("", { connect = "connection refused" })

one = answer('{"kv_transfer_params":{"a":1}}')
is(run(VLLM, BODY, { dead, one }), true, "vllm: one fails, the next is asked")
is(one.host, "10.0.0.3", "vllm: which is the next")
is(table.concat(held, " "), "1 - 2 -", "vllm: the load goes with it")
is(table.concat(ends, " "), FAILED.connect .. " 6",
   "vllm: the health of both is told")

out[1] = true
one = answer('{"kv_transfer_params":{"a":1}}')
is(run(VLLM, BODY, { one }), true, "vllm: one is out, the next is asked")
is(one.host, "10.0.0.3", "vllm: and the one that is out is not")
out[2] = true
local none, why = run(VLLM, BODY, {})
is(none, nil, "vllm: all are out")
has(why, "10.0.0.3:8000: it is out", "vllm: all are out: says so")
out = {}

one = answer('{"kv_transfer_params":{"a":1}}')
one.dead = 3
is(run(VLLM, BODY, { one }), true,
   "vllm: kept connections that are dead are no failure")
is(table.concat(ends, " "), "6", "vllm: nor for its health")
is(one.dead, 0, "vllm: each is tried")

for _, case in ipairs {
    { "a connection that is cut", sock.new(""), FAILED.reset },
    { "what is no HTTP", sock.new("what?\r\n\r\n"), FAILED.invalid },
    { "a 500", answer("{}", 500), FAILED.status },
    { "a 429", answer("{}", 429), 6 },
    { "a 400", answer("{}", 400), 6 },
    { "no JSON", answer("what?"), FAILED.invalid },
    { "nothing to take over", answer("{}"), 6 },
} do
    run({ prefill = { 2 }, protocol = "vllm" }, BODY, { case[2] })
    is(table.concat(ends, " "), tostring(case[3]), "vllm: health: " .. case[1])
end

local function fails(part, name, sockets, vars, body)
    local ok, err = run(VLLM, body or BODY, sockets, vars)

    is(ok, nil, "vllm: " .. name)
    has(err, part, "vllm: " .. name .. ": says so")
    is(fake.new_body, nil, "vllm: " .. name .. ": the body stays")
    is(#held % 2, 0, "vllm: " .. name .. ": no load stays")
end

fails("10.0.0.3:8000: connect: connection refused", "all fail", { dead, dead })
fails("10.0.0.2:8000: status 400", "a refusal is not tried again",
      { answer("{}", 400) })
fails("10.0.0.3:8000: status 503", "an overload is", { answer("{}", 503),
                                                     answer("{}", 503) })
fails("no kv_transfer_params", "an answer without what is needed",
      { answer("{}"), answer("{}") })
fails("no kv_transfer_params", "an answer with nothing of it",
      { answer('{"kv_transfer_params":null}'), answer("no JSON") })
fails("a path", "a path with a line end", {},
      { uri = "/v1\r\nX: y" })
fails("no JSON object", "a body that is none", {}, nil, "x")


-- ---- SGLang -----------------------------------------------------------------

local SGLANG = { prefill = { 1, 3 }, ports = { 9000, 9100 },
                 protocol = "sglang" }

one = sock.new("")
is(run(SGLANG, '{"text":"Hi","stream":true}', { one },
       { uri = "/generate" }), true, "sglang: it goes well")
head, asked = sent(one)
has(head, "POST /generate ", "sglang: at the request's path")
is(one.timeout, 60000, "sglang: for a minute at most")
is(asked.bootstrap_host, "10.0.0.1", "sglang: the prefill worker's host")
is(asked.bootstrap_port, 9000, "sglang: and its port")
is(asked.bootstrap_room >= 0 and asked.bootstrap_room < 2^53
   and asked.bootstrap_room % 1, 0, "sglang: a room, which is a number")
is(asked.stream, true, "sglang: the rest as it was")
is(one.sent:match("\r\n\r\n(.*)$"), fake.new_body,
   "sglang: the decoder gets the same")
is(fake.ngx.ctx[prefill], one, "sglang: the connection stays with the request")
is(table.concat(held, " "), "0", "sglang: and its load")
is(#ends, 0, "sglang: the answer to the request says how it went")

one = sock.new("")
run(SGLANG, '{"text":["a","b"]}', { one })
asked = select(2, sent(one))
is(table.concat(asked.bootstrap_host, " "), "10.0.0.1 10.0.0.1",
   "sglang: hosts for several prompts")
is(table.concat(asked.bootstrap_port, " "), "9000 9000", "sglang: ports")
is(#asked.bootstrap_room, 2, "sglang: rooms")
is(asked.bootstrap_room[1] ~= asked.bootstrap_room[2], true,
   "sglang: each its own")

for body, n in pairs { ['{"input_ids":[[1],[2],[3]]}'] = 3,
                       ['{"input_ids":[1,2]}'] = 0, ['{"text":[]}'] = 0,
                       ['{"prompt":["a","b"]}'] = 0 }
do
    one = sock.new("")
    run(SGLANG, body, { one })

    local room = select(2, sent(one)).bootstrap_room

    is(type(room) == "table" and #room or 0, n, "sglang: rooms of " .. body)
end

one = sock.new("")
is(run(SGLANG, '{"text":"x"}', { dead, one }), true,
   "sglang: one fails, the next is taken")
is(decode(fake.new_body).bootstrap_port, 9100, "sglang: with its own port")
is(table.concat(held, " "), "0 - 2", "sglang: the load goes with it")
is(table.concat(ends, " "), tostring(FAILED.connect),
   "sglang: the health of the first is told")

local ok, err = run(SGLANG, '{"text":"x"}', { dead, dead })

is(ok, nil, "sglang: all fail")
has(err, "10.0.0.3:8000: connect: connection refused", "sglang: says so")
is(fake.new_body, nil, "sglang: the body stays")
is(table.concat(held, " "), "0 - 2 -", "sglang: no load stays")


tap.done()
