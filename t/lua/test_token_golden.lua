-- Token ids beside Hugging Face's library: t/vectors/token/golden.json, which
-- util/token_golden.py has written.


local ffi = require "ffi"
local json = require "cjson"
local tap = require "lib.tap"

local is, ok = tap.is, tap.ok

ffi.cdef [[
typedef struct kvr_tokenizer_s  kvr_tokenizer_t;
typedef struct kvr_encoder_s  kvr_encoder_t;
typedef struct kvr_pieces_s  kvr_pieces_t;
typedef struct { size_t byte; size_t ids; } kvr_encoder_cut_t;

kvr_tokenizer_t *kvr_tokenizer_load(const char *json, size_t len, int age,
    char *why, size_t why_len);
void kvr_tokenizer_free(kvr_tokenizer_t *t);
size_t kvr_tokenizer_bytes(const kvr_tokenizer_t *t);
kvr_pieces_t *kvr_pieces_new(uint32_t slots);
void kvr_pieces_free(kvr_pieces_t *p);
kvr_encoder_t *kvr_encoder_new(const kvr_tokenizer_t *t, kvr_pieces_t *p,
    const void *limits);
void kvr_encoder_free(kvr_encoder_t *e);
int kvr_encoder_begin(kvr_encoder_t *e, const char *text, size_t len,
    uint32_t flags);
int kvr_encoder_begin_at(kvr_encoder_t *e, const char *text, size_t len,
    size_t cut, const uint32_t *ids, size_t n, uint32_t flags);
int kvr_encoder_step(kvr_encoder_t *e, uint64_t budget_ns);
const uint32_t *kvr_encoder_ids(const kvr_encoder_t *e, size_t *n);
const kvr_encoder_cut_t *kvr_encoder_cuts(const kvr_encoder_t *e, size_t *n);
bool kvr_encoder_next_cut(kvr_encoder_t *e, const char *text, size_t len,
    size_t *at, size_t size);
]]

local BUILD = os.getenv("KVR_BUILD") or "build"
local C = ffi.load((BUILD:sub(1, 1) == "/" and "" or "./") .. BUILD
                   .. "/libkvr.so")
local UNICODE_14, UNICODE_16 = 0, 1
local AGAIN = 1

local why = ffi.new("char[200]")
local n_out = ffi.new("size_t[1]")

local file = assert(io.open("t/vectors/token/golden.json"))
local golden = json.decode(file:read("*a"))

file:close()


-- ---- helpers ----------------------------------------------------------------

local function object(parts)
    local list = {}

    for name, text in pairs(parts) do
        list[#list + 1] = '"' .. name .. '":' .. text
    end

    return "{" .. table.concat(list, ",") .. "}"
end


-- The text of a variant's tokenizer.json.
local function text_of(base, parts, model)
    local all, of = {}, {}

    for name, text in pairs(golden.models[base]) do
        of[name] = model and model[name] or text
    end

    for name, text in pairs(golden.bases[base]) do
        all[name] = text
    end

    for name, text in pairs(parts or {}) do
        all[name] = text
    end

    all.model = object(of)

    return object(all)
end


local function load(text, age)
    local t = C.kvr_tokenizer_load(text, #text, age or UNICODE_16, why, 200)

    if t == nil then
        return nil, ffi.string(why)
    end

    return ffi.gc(t, C.kvr_tokenizer_free)
end


local function encoder(t, pieces)
    return ffi.gc(C.kvr_encoder_new(t, pieces, nil), C.kvr_encoder_free)
end


-- The ids as one text; budget: nanoseconds of a step, 0: all at once.
local function encode(e, text, flags, budget, cut)
    local rc = C.kvr_encoder_begin_at(e, text, #text, cut or 0, nil, 0, flags)

    while rc == AGAIN do
        rc = C.kvr_encoder_step(e, budget or 0)
    end

    if rc ~= 0 then
        return "error " .. rc
    end

    local ids = C.kvr_encoder_ids(e, n_out)
    local list = {}

    for i = 1, tonumber(n_out[0]) do
        list[i] = ids[i - 1]
    end

    return table.concat(list, " "), list
end


-- How many texts differ in each way of encoding them.
local function differences(t, ids)
    local pieces = ffi.gc(C.kvr_pieces_new(16), C.kvr_pieces_free)
    local plain, cached = encoder(t), encoder(t, pieces)
    local wrong, first = 0, nil

    for i, text in ipairs(golden.texts) do
        local wanted = table.concat(ids[i], " ")
        -- the texts with an odd index from 0 have the ids around them
        local flags = (i + 1) % 2

        -- one that is not carried to its end
        C.kvr_encoder_begin(cached, golden.texts[#golden.texts - i + 1],
                            #golden.texts[#golden.texts - i + 1], 0)
        C.kvr_encoder_step(cached, 1)

        for _, way in ipairs { { plain, 0 }, { plain, 1 }, { cached, 0 },
                               { cached, 1 } }
        do
            local got = encode(way[1], text, flags, way[2])

            if got ~= wanted then
                wrong = wrong + 1
                first = first or string.format("%q: %s, wanted %s", text, got,
                                               wanted)
            end
        end
    end

    return wrong, first
end


-- ---- all variants -----------------------------------------------------------

local used = 0

for _, variant in ipairs(golden.variants) do
    local t, err = load(text_of(variant.base, variant.parts, variant.model))

    if ok(t, variant.name .. ": is taken") then
        local wrong, first = differences(t, variant.ids)

        is(wrong, 0, variant.name .. ": the library's ids, whole, in steps, "
                     .. "with few slots and with none")

        if first then
            tap.note("%s", first)
        end

        used = used + tonumber(C.kvr_tokenizer_bytes(t))

    else
        tap.note("%s", err)
    end
end

ok(#golden.variants > 50, "there are many variants")
ok(used > 0, "a tokenizer tells its bytes")


-- ---- what the tables are for ------------------------------------------------

do
    local old = load(text_of("bytes"), UNICODE_14)
    local wrong = differences(old, golden.variants[1].ids)

    ok(wrong > 0, "without the repair of newer characters ids differ")
end


-- ---- cuts -------------------------------------------------------------------

do
    local t = load(text_of("bytes"))
    local e = encoder(t)
    local chat = {}

    for i = 1, 9 do
        chat[i] = "<|im_start|>user\nturn " .. i .. (" and on"):rep(40 * i)
                  .. "<|im_end|>\n"
    end

    local text = table.concat(chat)
    local _, all = encode(e, text, 1)
    local cuts = C.kvr_encoder_cuts(e, n_out)
    local list, at = {}, ffi.new("size_t[1]")

    for i = 1, tonumber(n_out[0]) do
        list[i] = { tonumber(cuts[i - 1].byte), tonumber(cuts[i - 1].ids) }
    end

    is(#list, 18, "the end of each special token is a cut")

    local found, wrong = 0, 0

    while tonumber(at[0]) < #text do
        if C.kvr_encoder_next_cut(e, text, #text, at, 100) then
            found = found + 1
            wrong = wrong + (list[found][1] == tonumber(at[0]) and 0 or 1)
        end
    end

    is(found, 18, "which are found without encoding, a part at a time")
    is(wrong, 0, "at the same bytes")

    for _, cut in ipairs(list) do
        local got = encode(e, text, 1, 0, cut[1])
        -- the first id is that of the beginning of texts
        local wanted = table.concat(all, " ", cut[2] + 2)

        wrong = wrong + (got == wanted and 0 or 1)
    end

    is(wrong, 0, "from each of them on the ids are the same")
end


-- ---- long pieces, and texts that are none -----------------------------------

do
    local t = load(text_of("bytes"))
    local e = encoder(t)
    local long = ("ab"):rep(50000) .. " " .. ("="):rep(30000)
    local whole = encode(e, long, 0)

    is(encode(e, long, 0, 1), whole, "a long piece in steps, the same ids")
    is(encode(e, ("a"):rep(300000), 0), "error -4",
       "a piece of over 256 KB is too long")
    is(encode(e, "a\xff", 0), "error -1", "a text that is no UTF-8")
    is(encode(e, ("é"):rep(100000) .. "\xc3", 0), "error -1",
       "nor at its end")
    is(encode(e, ("é"):rep(100000), 0, 1),
       encode(e, ("é"):rep(100000), 0), "characters at the ends of parts")
    is(encode(e, "fine", 0), encode(encoder(t), "fine", 0),
       "after an error it goes on")
end


-- ---- what is refused --------------------------------------------------------

local function refused(what, words, parts, model, base)
    local t, err = load(text_of(base or "bytes", parts, model))

    ok(t == nil and err:find(words, 1, true), what .. " is refused: "
       .. tostring(err))
end

local function pattern(text)
    return { pre_tokenizer = json.encode {
        type = "Split", behavior = "Isolated", invert = false,
        pattern = { Regex = text } } }
end

refused("another model", "only \"BPE\" is supported", nil,
        { type = '"WordPiece"' })
refused("dropout", "dropout", nil, { dropout = "0.1" })
refused("a prefix of subwords", "continuing_subword_prefix", nil,
        { continuing_subword_prefix = '"##"' })
refused("a suffix", "end_of_word_suffix", nil,
        { end_of_word_suffix = '"</w>"' })
refused("an unknown normalizer", 'the normalizer "Precompiled"',
        { normalizer = '{"type":"Precompiled"}' })
refused("an unknown pre-tokenizer", 'the pre-tokenizer "Punctuation"',
        { pre_tokenizer = '{"type":"Punctuation","behavior":"Isolated"}' })
refused("an unknown post-processor", 'the post-processor "BertProcessing"',
        { post_processor = '{"type":"BertProcessing"}' })
refused("something behind ByteLevel", 'behind "ByteLevel"',
        { pre_tokenizer = '{"type":"Sequence","pretokenizers":[{"type":'
                          .. '"ByteLevel"},{"type":"Digits"}]}' })
refused("an empty vocabulary", "empty", nil, { vocab = "{}" })
refused("a token twice", "twice", nil, { vocab = '{"a":0,"a":1}' })
refused("a token without an id", "has no id", nil, { vocab = '{"a":"b"}' })
refused("far ids", "far beyond", nil, { vocab = '{"a":900000}' })
refused("a merge of unknown tokens", "not in the vocabulary", nil,
        { merges = '[["xq","qx"]]' })
refused("a merge that is none", "not two tokens", nil, { merges = '["ab"]' })
refused("an unknown unk_token", "unk_token", nil, { unk_token = '"nobody"' })
refused("bytes that are missing", "byte_fallback", nil,
        { vocab = '{"a":0}', merges = "[]" }, "characters")
refused("an added token of another id", "gets", {
    added_tokens = '[{"id":5000,"content":"<new>","special":true}]' })
refused("an added token twice", "twice", {
    added_tokens = '[{"id":700,"content":"<n>"},{"id":701,"content":"<n>"}]' })
refused("a long added token", "1024", {
    added_tokens = '[{"id":700,"content":"' .. ("x"):rep(2000) .. '"}]' })
refused("two added tokens that are normalized to one", "when they", {
    added_tokens = '[{"id":700,"content":"\197\187","special":false},'
                   .. '{"id":701,"content":"Z\204\135","special":false}]' })
refused("two templates", "two templates", {
    post_processor = '{"type":"Sequence","processors":['
                     .. golden.bases.bytes.post_processor .. ","
                     .. golden.bases.bytes.post_processor .. "]}" })

for _, case in ipairs {
    { "^a", "an anchor" }, { "a$", "an anchor" }, { "\\w+", "an escape" },
    { "\\bx", "an escape" }, { "(?i)x", "a group" }, { "(?i:ss)", "fold" },
    { "(?i:é)", "beyond ASCII" }, { "a{2}+", "repetition" },
    { "a{,3}", "a brace" }, { "[[a]]", "class in a class" },
    { "[a&&b]", "intersection" }, { "a*", "match nothing" },
    { "\\p{Greek}", "a property" }, { "(a", "without an end" },
    { "a)", "too many" }, { "[]a]", "without members" },
    { "[a", "without an end" }, { "\\", "backslash" },
    { "[\240\144\151\128-\240\144\151\144]", "a range" }, { "\\u12", "an escape" },
    { ("("):rep(99) .. "a" .. (")"):rep(99), "too many groups" },
} do
    refused("the pattern " .. case[1]:sub(1, 20), case[2], pattern(case[1]))
end

is(select(2, load("{")), "it is no JSON: unexpected end at byte 1",
   "a text that is no JSON is refused")
ok(load('{"model":{}}') == nil, "a model without anything")
ok(load("[]") == nil, "no object")
ok(load("\xff") == nil, "no UTF-8")

tap.done()
