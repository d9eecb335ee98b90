-- What text_ffi.lua declares is what the headers of src say.


local tap = require "lib.tap"
local jinja = require "lib.jinja"

local has, ok = tap.has, tap.ok


-- Without comments, and in one way of writing.
local function plain(text)
    text = text:gsub("/%*.-%*/", " ")
    text = text:gsub("const kvr_json_way_t", "const void")
    text = text:gsub("kvr_rc_t", "int")

    return (text:gsub("%s+", " "):gsub(" ?([%*%(%),;{}]) ?", "%1"))
end

local headers = ""

for _, name in ipairs { "token/kvr_text.h", "token/kvr_string.h",
                        "wire/kvr_tape.h", "wire/kvr_json.h",
                        "wire/kvr_utf8.h" }
do
    headers = headers .. plain(assert(jinja.read("src/" .. name)))
end

local lua = assert(jinja.read("lua/resty/kv_router/tokens/text_ffi.lua"))
local declared = plain(lua:match("ffi%.cdef %[%[(.-)%]%]"))
local functions, structures = 0, 0

for declaration in declared:gmatch("[%w_]+[ %*]kvr_[%w_]+%b();") do
    has(headers, declaration, declaration:match("kvr_[%w_]+%f[(]")
                              .. "() is declared as the header has it")
    functions = functions + 1
end

for fields, name in declared:gmatch("typedef struct(%b{})(kvr_[%w_]+);") do
    if name ~= "kvr_timespec_t" then
        has(headers, fields .. name .. ";",
            name .. " has the fields of the header")
        structures = structures + 1
    end
end

ok(functions == 20 and structures == 4,
   functions .. " functions and " .. structures .. " structures were looked at")


tap.done()
