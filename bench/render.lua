-- Times one template on one body: JSON read, and rendered.
--
--     luajit bench/render.lua TEMPLATE BODY
--
-- Prints two medians in microseconds of processor time, and the bytes of the
-- text.  BODY is a JSON object with messages and tools.


local kvr = require("ffi").load("kvr", true)

local tape = require "resty.kv_router.template.tape"
local template = require "resty.kv_router.template"

local clock = os.clock

local WARM = 30
local SECONDS = 1.5


local function read(path)
    local file = assert(io.open(path, "rb"))
    local all = file:read("*a")

    file:close()

    return all
end


local body = read(arg[2])
local tpl = assert(template.compile(read(arg[1]), {
    tokens = { bos_token = "<s>", eos_token = "</s>" }, zone = "UTC",
    now = function() return 1785067200 end, cpu_us = 1e12,
}))
local text = template.text()


local function once()
    local begun = clock()
    local vars = assert(tape.decode(body)).v
    local decoded = clock()

    assert(tpl:render({ messages = vars.messages, tools = vars.tools,
                        add_generation_prompt = true }, text, #body))

    return (decoded - begun) * 1e6, (clock() - decoded) * 1e6
end


for _ = 1, WARM do
    once()
end

local decodes, renders = {}, {}
local begun = clock()

while clock() - begun < SECONDS do
    local n = #decodes + 1

    decodes[n], renders[n] = once()
end

table.sort(decodes)
table.sort(renders)

local middle = math.ceil(#decodes / 2)

print(string.format("%.1f %.1f %d", decodes[middle], renders[middle],
                    tonumber(text.len)))

assert(kvr)
