-- Copyright (C) the nginx-kv-router authors
--
-- The door to C of the rung `local`: the functions of src/token and the tape
-- of src/wire.  Within nginx they are the module's; a program of its own loads
-- libkvr.so before: ffi.load("kvr", true).
--
-- Strings are of well-formed UTF-8.  Offsets are bytes and begin with 0, as in
-- C.


local ffi = require "ffi"

local C = ffi.C
local ffi_cast = ffi.cast
local ffi_gc = ffi.gc
local ffi_new = ffi.new
local ffi_string = ffi.string
local tonumber = tonumber

local chars_t = ffi.typeof("const char *")


ffi.cdef [[
typedef struct {
    char    *data;
    size_t   len;
    size_t   cap;
    size_t   bound;
} kvr_text_t;

void kvr_text_init(kvr_text_t *t, size_t bound);
void kvr_text_free(kvr_text_t *t);
void kvr_text_reset(kvr_text_t *t, size_t bound);
int kvr_text_append(kvr_text_t *t, const char *data, size_t len);
int kvr_text_append_json(kvr_text_t *t, const char *data, size_t len,
    bool ascii);
void kvr_text_cut(kvr_text_t *t, size_t len);

size_t kvr_string_chars(const char *s, size_t len);
size_t kvr_string_offset(const char *s, size_t len, size_t i);
size_t kvr_string_wide(const char *s, size_t len);
size_t kvr_string_odd(const char *s, size_t len);
size_t kvr_string_lstrip(const char *s, size_t len);
size_t kvr_string_rstrip(const char *s, size_t len);
size_t kvr_string_space_at(const char *s, size_t len, size_t from);
size_t kvr_string_line_end(const char *s, size_t len, size_t from);
size_t kvr_string_find(const char *s, size_t len, const char *part,
    size_t part_len, size_t from);
size_t kvr_string_rfind(const char *s, size_t len, const char *part,
    size_t part_len);

size_t kvr_utf8_valid(const char *text, size_t len);

typedef struct {
    const char  *data;
    size_t       len;
    bool         escaped;
    bool         wide;
    bool         surrogates;
} kvr_json_text_t;

typedef struct {
    uint32_t  at;
    uint32_t  end;
    uint32_t  len;
    uint32_t  next;
    uint32_t  first;
    uint16_t  kind;
    uint16_t  flags;
} kvr_tape_entry_t;

typedef struct {
    const void        *way;
    const char        *text;
    size_t             text_len;
    kvr_tape_entry_t  *entries;
    uint32_t           cap;
    uint32_t           n;
    uint32_t          *ids;
    size_t             ids_cap;
    size_t             nids;
    const char        *error;
    size_t             error_at;
} kvr_tape_t;

void kvr_tape_init(kvr_tape_t *t, kvr_tape_entry_t *entries, uint32_t cap,
    uint32_t *ids, size_t ids_cap);
int kvr_tape_scan(kvr_tape_t *t, const char *text, size_t len);
size_t kvr_json_decode(const kvr_json_text_t *s, char *out, size_t size);

typedef struct {
    long  sec;
    long  nsec;
} kvr_timespec_t;

int clock_gettime(int clock, kvr_timespec_t *ts);
int snprintf(char *out, size_t size, const char *text, ...);
]]


local _M = {}


-- ---- texts ------------------------------------------------------------------

-- An empty text of at most bound bytes; its memory is freed with it.
function _M.text(bound)
    local text = ffi_new("kvr_text_t")

    C.kvr_text_init(text, bound)

    return ffi_gc(text, C.kvr_text_free)
end


function _M.reset(text, bound)
    C.kvr_text_reset(text, bound)
end


function _M.cut(text, len)
    C.kvr_text_cut(text, len)
end


-- true, or false: it would be longer than its bound, or there is no memory.
function _M.append(text, s)
    return C.kvr_text_append(text, s, #s) == 0
end


function _M.append_json(text, s, ascii)
    return C.kvr_text_append_json(text, s, #s, ascii) == 0
end


-- The text as a Lua string: a copy.
function _M.string(text)
    return ffi_string(text.data, text.len)
end


-- The offset of a part in a text, of its first or last place; nil: none.
function _M.find_in(text, part)
    local at = tonumber(C.kvr_string_find(text.data, text.len, part, #part, 0))

    return at <= tonumber(text.len) and at or nil
end


function _M.rfind_in(text, part)
    local at = tonumber(C.kvr_string_rfind(text.data, text.len, part, #part))

    return at <= tonumber(text.len) and at or nil
end


-- The length of the text without white space at the end of its first len
-- bytes.
function _M.stripped(text, len)
    return tonumber(C.kvr_string_rstrip(text.data, len))
end


-- ---- strings ----------------------------------------------------------------

-- The number of characters.
function _M.chars(s)
    return tonumber((C.kvr_string_chars(s, #s)))
end


-- The offset of a character; #s: there are not so many.
function _M.offset(s, i)
    return tonumber((C.kvr_string_offset(s, #s, i)))
end


-- Is it well-formed UTF-8?
function _M.valid(s)
    return tonumber((C.kvr_utf8_valid(s, #s))) == #s
end


-- Is there no byte over 0x7f?
function _M.ascii(s)
    return tonumber((C.kvr_string_wide(s, #s))) == #s
end


-- Would repr() write the string as it is?
function _M.plain(s)
    return tonumber((C.kvr_string_odd(s, #s))) == #s
end


-- The length of the white space at and behind the offset from.
function _M.lstrip(s, from)
    return tonumber((C.kvr_string_lstrip(ffi_cast(chars_t, s) + from,
                                         #s - from)))
end


-- The length without the white space at the end.
function _M.rstrip(s)
    return tonumber((C.kvr_string_rstrip(s, #s)))
end


-- The offset of the first white space, or line's end, at or behind from; #s:
-- none.
function _M.space_at(s, from)
    return tonumber((C.kvr_string_space_at(s, #s, from)))
end


function _M.line_end(s, from)
    return tonumber((C.kvr_string_line_end(s, #s, from)))
end


-- The offset of a part's first place at or behind from; nil: none.
function _M.find(s, part, from)
    local at = tonumber((C.kvr_string_find(s, #s, part, #part, from)))

    if at <= #s then
        return at
    end
end


local number = ffi_new("char[512]")

-- A double by a format such as "%.3e", rounded as C does; LuaJIT rounds a tie
-- away from zero.
function _M.format(text, x)
    return ffi_string(number, C.snprintf(number, 512, text,
                                         ffi_new("double", x)))
end


-- ---- the tape ---------------------------------------------------------------

-- An array of entries, and one of ids.
function _M.entries(n)
    return ffi_new("kvr_tape_entry_t[?]", n)
end


function _M.ids(n)
    return ffi_new("uint32_t[?]", n)
end


local scanned = ffi_new("kvr_tape_t")

-- Scans a text into these arrays: the tape, good until the next scan, or nil,
-- a sentence and the offset of the error; the sentence is nil when the array
-- of entries was too short.  The text must be kept as long as the tape.
local FULL = -3

function _M.scan(text, entries, cap, ids, ids_cap)
    C.kvr_tape_init(scanned, entries, cap, ids, ids_cap)

    local rc = C.kvr_tape_scan(scanned, text, #text)

    if rc == 0 then
        return scanned
    end

    if rc ~= FULL then
        return nil, ffi_string(scanned.error), tonumber(scanned.error_at)
    end
end


local escaped = ffi_new("kvr_json_text_t")
local decoded_cap = 4096
local decoded = ffi_new("char[?]", decoded_cap)
local KEPT = 1048576

escaped.escaped = true
escaped.wide = true
escaped.surrogates = true

-- A string of JSON with escapes, without its quotes, decoded.
function _M.decode(data, len)
    local out = decoded

    if len > decoded_cap then
        out = ffi_new("char[?]", len)

        if len <= KEPT then
            decoded, decoded_cap = out, len
        end
    end

    escaped.data = data
    escaped.len = len

    return ffi_string(out, C.kvr_json_decode(escaped, out, len))
end


-- ---- the clock --------------------------------------------------------------

local now = ffi_new("kvr_timespec_t")
local THREAD = 3                 -- CLOCK_THREAD_CPUTIME_ID

-- Microseconds of processor time that this thread has taken.
function _M.cpu_us()
    C.clock_gettime(THREAD, now)

    return tonumber(now.sec) * 1e6 + tonumber(now.nsec) / 1e3
end


return _M
