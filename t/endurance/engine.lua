-- Copyright (C) the nginx-kv-router authors
--
-- An engine that stands in, within an nginx of one process: it has a prefix
-- cache of blocks of 16 tokens that evicts what was used longest ago, tells what
-- enters and leaves it as vLLM does (ZMQ, with a replay of what it told), and
-- answers how many tokens of a prompt were cached.
--
--     engine.init{ library = "libkvr.so", model = DIR, blocks = 4000,
--                  events = PORT or nil }           -- in init_worker_by_lua
--     engine.serve()                                -- POST /v1/...
--     engine.depth(), engine.clear(), engine.drop(), engine.metrics()
--
-- Hashes of blocks are its own, of xxhash; libkvr makes token ids of texts.


local ffi = require "ffi"
local cjson = require "cjson"

local char = string.char
local concat = table.concat
local copy = ffi.copy
local decode = cjson.decode
local encode = cjson.encode
local floor = math.floor
local min = math.min
local ngx = ngx
local rep = string.rep


ffi.cdef [[
typedef struct kvr_model_s  kvr_model_t;
typedef struct kvr_tokenizer_s  kvr_tokenizer_t;
typedef struct kvr_encoder_s  kvr_encoder_t;
int kvr_model_load(kvr_model_t **out, const char *dir, const char *engine,
    kvr_model_t *const *known, size_t n, char *why);
const kvr_tokenizer_t *kvr_model_tokenizer(const kvr_model_t *m);
kvr_encoder_t *kvr_encoder_new(const kvr_tokenizer_t *t, void *pieces,
    const void *limits);
int kvr_encoder_begin(kvr_encoder_t *e, const char *text, size_t len,
    uint32_t flags);
int kvr_encoder_step(kvr_encoder_t *e, uint64_t budget_ns);
const uint32_t *kvr_encoder_ids(const kvr_encoder_t *e, size_t *n);

uint64_t XXH3_64bits_withSeed(const void *data, size_t len, uint64_t seed);

void *zmq_ctx_new(void);
void *zmq_socket(void *context, int type);
int zmq_setsockopt(void *s, int option, const void *value, size_t len);
int zmq_bind(void *s, const char *address);
int zmq_send(void *s, const void *data, size_t len, int flags);
int zmq_recv(void *s, void *data, size_t len, int flags);
int zmq_getsockopt(void *s, int option, void *value, size_t *len);
]]


local _M = {}


local BLOCK = 16                 -- tokens of a block
local KEPT = 10000               -- messages that a replay has, as vLLM's
local PREFILL = 20e-6            -- seconds for each token that is not cached
local OUTPUT = 8                 -- tokens of an answer
local PIECES = 4                 -- of a stream
local EVENTS_PUB, EVENTS_ROUTER = 1, 6              -- ZMQ_PUB, ZMQ_ROUTER
local LINGER, SEND_MARK, MORE_TO_COME = 17, 23, 13  -- options of zmq.h
local DONT_WAIT, SEND_MORE = 1, 2                   -- flags of zmq.h
local AGAIN, ADD_SPECIAL = 1, 1                     -- of kvr_encoder.h
local FOREVER = rep("\255", 8)   -- the number that ends a replay

local tokens_of = ffi.typeof("uint32_t[?]")
local hash_out = ffi.new("union { uint64_t n; uint8_t b[8]; }")
local scratch = ffi.new("uint8_t[256]")

local kvr, xxhash, zmq
local encoder
local told, replay               -- sockets; nil: nothing is told
local seq = 0                    -- of the next message
local kept = {}                  -- messages by their numbers
local drops = 0                  -- messages that are not sent, but kept
local batch = {}                 -- events that were not told yet

-- The blocks by their hashes, 8 bytes each.  A ring in the order of use; the
-- root is its beginning and its end.  What is used of a prompt is put to the end
-- with its last block first: so a block leaves after all that are behind it.
local blocks = {}
local root = {}
local room = 0                   -- blocks that there may be
local count = 0
local running = 0                -- requests


-- ---- token ids --------------------------------------------------------------

local function ids_of_text(text, flags)
    local rc = kvr.kvr_encoder_begin(encoder, text, #text, flags)

    while rc == AGAIN do
        rc = kvr.kvr_encoder_step(encoder, 0)
    end

    assert(rc == 0, "the text can't be encoded")

    local n = ffi.new("size_t[1]")
    local ids = kvr.kvr_encoder_ids(encoder, n)

    return ids, tonumber(n[0])
end


-- What the template of the model makes of plain messages.
local function text_of_chat(messages)
    local parts = { "<|begin|>" }

    for _, message in ipairs(messages) do
        parts[#parts + 1] = "<|im_start|>" .. message.role .. "\n"
                            .. message.content .. "<|im_end|>\n"
    end

    parts[#parts + 1] = "<|im_start|>assistant\n"

    return concat(parts)
end


local function ids_of_body(body)
    if body.messages then
        return ids_of_text(text_of_chat(body.messages), 0)
    end

    if type(body.prompt) == "string" then
        return ids_of_text(body.prompt, ADD_SPECIAL)
    end

    local n = #body.prompt

    return tokens_of(n, body.prompt), n
end


-- ---- events -----------------------------------------------------------------

local function number(n)
    return n < 128 and char(n)
           or char(0xce, floor(n / 2^24) % 256, floor(n / 2^16) % 256,
                   floor(n / 2^8) % 256, n % 256)
end


local function list(n)
    return char(0xdc, floor(n / 2^8), n % 256)
end


local function text(s)
    return char(0xa0 + #s) .. s
end


local function hashes(keys)
    local parts = { list(#keys) }

    for i, key in ipairs(keys) do
        parts[i + 1] = char(0xcf) .. key
    end

    return concat(parts)
end


local function send(s, data, flags)
    return zmq.zmq_send(s, data, #data, flags + DONT_WAIT) >= 0
end


local function big_endian(n)
    return "\0\0\0\0" .. char(floor(n / 2^24) % 256, floor(n / 2^16) % 256,
                              floor(n / 2^8) % 256, n % 256)
end


-- Tells all events since the last call, in one message.
local function tell()
    if #batch == 0 then
        return
    end

    if told then
        local payload = char(0x93, 0xcb) .. rep("\0", 8) .. list(#batch) .. concat(batch)
                        .. char(0)
        kept[seq] = payload
        kept[seq - KEPT] = nil

        if drops > 0 then
            drops = drops - 1
        else
            send(told, "", SEND_MORE)
            send(told, big_endian(seq), SEND_MORE)
            send(told, payload, 0)
        end

        seq = seq + 1
    end

    batch = {}
end


-- Answers those who ask for what they missed.
local function answer_replays()
    while true do
        local n = zmq.zmq_recv(replay, scratch, 256, DONT_WAIT)

        if n < 0 then
            return
        end

        local peer, first = ffi.string(scratch, n), nil
        local more, len = ffi.new("int[1]"), ffi.new("size_t[1]", 4)

        repeat
            n = zmq.zmq_recv(replay, scratch, 256, DONT_WAIT)

            if n == 8 then
                first = 0

                for i = 0, 7 do
                    first = first * 256 + scratch[i]
                end
            end

            zmq.zmq_getsockopt(replay, MORE_TO_COME, more, len)
        until more[0] == 0

        for i = first or seq, seq - 1 do
            if kept[i] then
                send(replay, peer, SEND_MORE)
                send(replay, "", SEND_MORE)
                send(replay, big_endian(i), SEND_MORE)
                send(replay, kept[i], 0)
            end
        end

        send(replay, peer, SEND_MORE)
        send(replay, "", SEND_MORE)
        send(replay, FOREVER, SEND_MORE)
        send(replay, "", 0)
    end
end


-- ---- the cache --------------------------------------------------------------

local function hash(parent, ids, from)
    copy(scratch, parent, 8)
    copy(scratch + 8, ids + from, BLOCK * 4)
    hash_out.n = xxhash.XXH3_64bits_withSeed(scratch, 8 + BLOCK * 4, 1)

    return ffi.string(hash_out.b, 8)
end


local function unlink(block)
    block.older.newer, block.newer.older = block.newer, block.older
end


-- The block is the one that was used last.
local function use(block)
    block.older, block.newer = root.older, root
    root.older.newer, root.older = block, block
end


-- The hashes of all whole blocks of a prompt, and the number that is cached:
-- the last token is always computed.
local function find(ids, n)
    local keys, key, found = {}, rep("\0", 8), 0

    for i = 1, floor(n / BLOCK) do
        key = hash(key, ids, (i - 1) * BLOCK)
        keys[i] = key

        if found == i - 1 and blocks[key] then
            found = i
        end
    end

    return keys, found, min(found, floor((n - 1) / BLOCK))
end


-- Takes a prompt into the cache; returns the tokens that were there.
local function cache(ids, n)
    local keys, found, used = find(ids, n)

    for i = 1, found do
        unlink(blocks[keys[i]])
    end

    local removed = {}

    while count + #keys - found > room and root.newer ~= root do
        local last = root.newer

        unlink(last)
        blocks[last.key] = nil
        count = count - 1
        removed[#removed + 1] = last.key
    end

    if #removed > 0 then
        batch[#batch + 1] = char(0x92) .. text("BlockRemoved")
                            .. hashes(removed)
    end

    if #keys > found then
        local tokens, stored = {}, {}

        for i = found * BLOCK, #keys * BLOCK - 1 do
            tokens[#tokens + 1] = number(ids[i])
        end

        for i = found + 1, #keys do
            blocks[keys[i]] = { key = keys[i] }
            stored[#stored + 1] = keys[i]
        end

        count = count + #stored
        batch[#batch + 1] = char(0x96) .. text("BlockStored") .. hashes(stored)
                            .. (found > 0 and char(0xcf) .. keys[found]
                                or char(0xc0))
                            .. list(#tokens) .. concat(tokens) .. number(BLOCK)
                            .. char(0xc0)
    end

    for i = #keys, 1, -1 do
        use(blocks[keys[i]])
    end

    return used * BLOCK
end


local function empty()
    blocks, count = {}, 0
    root.older, root.newer = root, root
end


-- ---- what is called ---------------------------------------------------------

local function body_of_request()
    ngx.req.read_body()

    return decode(ngx.req.get_body_data())
end


-- POST /v1/completions and /v1/chat/completions.
function _M.serve()
    running = running + 1

    local body = body_of_request()
    local ids, n = ids_of_body(body)
    local cached = cache(ids, n)
    local usage = { prompt_tokens = n, completion_tokens = OUTPUT,
                    total_tokens = n + OUTPUT,
                    prompt_tokens_details = { cached_tokens = cached } }
    local id = ngx.var.http_x_request_id

    tell()

    local pause = floor((n - cached) * PREFILL * 1000) / 1000

    if pause > 0 then
        ngx.sleep(pause)
    end

    if body.stream then
        ngx.header.content_type = "text/event-stream"

        for _ = 1, PIECES do
            ngx.print('data: {"id":"', id, '","choices":[{"text":"to be "}]}\n\n')
            ngx.flush(true)
            ngx.sleep(0.001)
        end

        ngx.print("data: ", encode { id = id, choices = {}, usage = usage },
                  "\n\ndata: [DONE]\n\n")
    else
        local answer = encode {
            id = id, usage = usage, choices = { body.messages
                and { message = { role = "assistant", content = "so it is" } }
                or { text = "so it is" } } }

        ngx.header.content_type = "application/json"
        ngx.header.content_length = #answer
        ngx.print(answer)
    end
end


-- When a request ends, however it does.
function _M.ended()
    running = running - 1
end


-- POST /depth: the blocks that it has, and those of a prompt of ids.
function _M.depth()
    local body = body_of_request()
    local ids, n = ids_of_body(body)
    local _, found = find(ids, n)

    ngx.print(encode { blocks = count, depth = found, running = running })
end


-- POST /clear: all blocks leave.
function _M.clear()
    empty()
    batch[#batch + 1] = char(0x91) .. text("AllBlocksCleared")
    tell()
    ngx.print("cleared\n")
end


-- POST /drop?n=: the next messages are lost on their way, but for a replay.
function _M.drop()
    drops = tonumber(ngx.var.arg_n)
    ngx.print("so it will be\n")
end


-- GET /metrics, as vLLM has them.
function _M.metrics()
    ngx.print("vllm:num_requests_running ", running,
              "\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc ",
              min(1, count / room), "\n")
end


local function socket(context, kind, port)
    local s = zmq.zmq_socket(context, kind)
    local none, wait = ffi.new("int[1]", 0), 0

    zmq.zmq_setsockopt(s, LINGER, none, 4)
    zmq.zmq_setsockopt(s, SEND_MARK, none, 4)

    while zmq.zmq_bind(s, "tcp://127.0.0.1:" .. port) ~= 0 do
        wait = wait + 1
        assert(wait < 100, "port " .. port .. " can't be listened on")
        os.execute("sleep 0.1")         -- that of an engine which was killed
    end

    return s
end


function _M.init(settings)
    local out, why = ffi.new("kvr_model_t *[1]"), ffi.new("char[512]")

    kvr, xxhash = ffi.load(settings.library), ffi.load("xxhash")
    assert(kvr.kvr_model_load(out, settings.model, "vllm", nil, 0, why) == 0,
           ffi.string(why))
    encoder = kvr.kvr_encoder_new(kvr.kvr_model_tokenizer(out[0]), nil, nil)
    room = settings.blocks
    empty()

    if settings.events then
        zmq = ffi.load("libzmq.so.5")

        local context = zmq.zmq_ctx_new()

        told = socket(context, EVENTS_PUB, settings.events)
        replay = socket(context, EVENTS_ROUTER, settings.events + 1)
        assert(ngx.timer.every(0.02, answer_replays))
    end
end


return _M
