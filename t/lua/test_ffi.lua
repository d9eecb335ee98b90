-- What ffi.lua, admission.lua, body.lua, engines.lua, tokenizer.lua, held.lua and
-- prefix_ffi.lua declare is what their headers say.


local tap = require "lib.tap"
local fake = require "lib.fake"
local ffi = require "ffi"
local engines = require "resty.kv_router.tokens.engines"
local lib = require "resty.kv_router.ffi"
local prefixes = require "resty.kv_router.prefix_ffi"
require "resty.kv_router.request.admission"

local has, is = tap.has, tap.is


local function read(path)
    local file = assert(io.open(path))
    local text = file:read("*a")

    file:close()

    return text
end

-- Without comments, and in the types that Lua has.
local function plain(text)
    text = text:gsub("/%*.-%*/", " "):gsub("%-%-[^\n]*", " ")
    text = text:gsub("ngx_uint_t", "uintptr_t")
    text = text:gsub("u_char", "unsigned char")
    text = text:gsub("KVR_WORKER_ID_MAX %+ 1", "64")

    return (text:gsub("%s+", " "):gsub(" ?([%*%(%),;{}]) ?", "%1"))
end


-- ---- structures and functions ----------------------------------------------

-- fields with another name here, so that theirs can be Lua values
local RENAMED = { worker = "worker_data", address = "address_data",
                  model = "model_data", lora = "lora_data",
                  headers = "headers_data", name = "name_data",
                  role = "role_id",
                  confidence = "confidence_id", reason = "reason_text",
                  health = "health_id", policy = "policy_data",
                  engine = "engine_id", form = "form_id",
                  salt = "salt_data", allowed = "allowed_data" }

local function structure(name, body)
    local copy = name:gsub("^ngx_", "header_")

    ffi.cdef("typedef struct" .. body .. copy .. ";")

    local theirs = ffi.typeof(copy)
    local mine = ffi.typeof(name)

    is(ffi.sizeof(mine), ffi.sizeof(theirs), name .. ": size")

    local fields = 0
    local wrong = {}

    for field in body:gmatch("([%w_]+)[%[%d%]]*;") do
        local here = RENAMED[field] or field

        fields = fields + 1

        if ffi.offsetof(mine, here) ~= ffi.offsetof(theirs, field) then
            wrong[#wrong + 1] = field
        end
    end

    tap.ok(fields > 0, name .. ": has fields")
    is(table.concat(wrong, " "), "", name .. ": all are where they should be")
end

-- A header and the Lua files that declare the same.
local function door(room, name, declares, wanted, files)
    local header = plain(read("ngx_module/" .. room .. "/ngx_http_kv_router_"
                              .. name .. ".h"))
    local ours = ""

    for _, file in ipairs(files) do
        ours = ours .. plain(read("lua/resty/kv_router/" .. file .. ".lua"))
    end

    local structs, functions = 0, 0

    for body, struct in header:gmatch("typedef struct(%b{})([%w_]+);") do
        structs = structs + 1
        structure(struct, body)
    end

    is(structs, wanted, name .. ": structures in the header")

    for prototype
        in header:gmatch("[%w_ ]+%*?ngx_http_kv_router_[%w_]+%b();")
    do
        functions = functions + 1
        has(ours, prototype:gsub("^ +", ""), prototype:match("ffi_[%w_]+")
            .. " is declared as in the header")
    end

    local _, called = header:gsub("ngx_http_kv_router_" .. name
                                  .. "_[%w_]+%(", "")

    is(functions, called, name .. ": every function of the header was found")
    is(declares, tonumber(header:match("_FFI_VERSION (%d+)")),
       name .. ": the version is the header's")
end

door("module", "ffi", lib.VERSION, 10, {
    "ffi", "request/admission", "request/body", "request/log", "tokens/engines", "tokens/held",
    "tokens/times", "tokens/tokenizer" })
door("lua", "prefix_ffi", prefixes.VERSION, 4, { "prefix_ffi" })


-- ---- numbers ----------------------------------------------------------------

local text = read("ngx_module/module/ngx_http_kv_router_ffi.h")

for name, value in pairs(engines.BY) do
    is(tonumber(text:match("#define NGX_HTTP_KV_ROUTER_BY_" .. name:upper()
                           .. "%s+(%d+)")), value,
       name .. " has the header's number")
end

local function enum(path, prefix, known)
    local body = read(path):match("typedef enum (%b{}) " .. prefix .. "_t;")
    local value = -1

    for name, given in plain(body):gmatch("KVR_([%w_]+) ?=? ?(%d*)") do
        value = tonumber(given) or value + 1

        if known[name] then
            is(known[name], value, prefix .. ": " .. name)
            known[name] = nil
        end
    end

    is(next(known), nil, prefix .. ": all are there")
end

-- The list of an enum whose names are made of it, X(NAME) for each.
local function list(path, name, known)
    local rows = read(path):match("#define " .. name .. "%(X%)(.-[^\\])\n")
    local value = -1

    for word in rows:gmatch("X%(([%w_]+)") do
        value = value + 1
        is(known[word], value, name .. ": " .. word)
        known[word] = nil
    end

    is(next(known), nil, name .. ": no other is known")
end

local confidences = {}

for id = 0, #lib.CONFIDENCES do
    confidences[lib.CONFIDENCES[id]] = id
end

list("src/fleet/kvr_fleet.h", "KVR_CONFIDENCES", confidences)

local whys = {}

for name, value in pairs(lib.WHY) do
    whys[name] = value
end

list("ngx_module/module/ngx_http_kv_router_module.h",
     "NGX_HTTP_KV_ROUTER_WHY_LIST", whys)

local healths = {}

for id = 0, #lib.HEALTHS do
    healths["HEALTH_" .. lib.HEALTHS[id]:upper()] = id
end

enum("src/traffic/kvr_health.h", "kvr_health_state", healths)

local failures = { FAILURES = lib.FAILURES }

for name, id in pairs(lib.FAILED) do
    failures["FAILED_" .. name:upper()] = id
end

enum("src/traffic/kvr_health.h", "kvr_failure", failures)

local roles = {}

for id = 0, 2 do
    roles["ROLE_" .. fake.match({ { role_id = id } })[1].role:upper()] = id
end

enum("src/wire/kvr_worker_conf.h", "kvr_role", roles)

local tiers = {}

for name, id in pairs(lib.TIERS) do
    tiers[name:upper()] = id
end

enum("src/kvr.h", "kvr_tier", tiers)


tap.done()
