-- Templates give what transformers gave: golden files, which
-- t/parity/templates.py --golden writes, of the templates of
-- t/vectors/templates, and of those beside this tree, where they are.
--
-- A line: a template's name, the hash of its source, how many chats give a text
-- and with how many it fails, the hash of all that, and the chats that are
-- refused.


local tap = require "lib.tap"
local jinja = require "lib.jinja"

local is, ok = tap.is, tap.ok
local format = string.format

local FOLDER = "t/vectors/templates/"
local BESIDE = "../shared/vectors/chat_templates/"


local chats = {}

for line in io.lines(FOLDER .. "chats.jsonl") do
    chats[#chats + 1] = line
end


-- A template's line of what is rendered here.
local function line_of(name, source)
    local tpl = assert(jinja.compile(source, jinja.SETTINGS))
    local hash, texts, errors, left_out = jinja.HASH, 0, 0, {}

    for _, chat in ipairs(chats) do
        local text, err, kind = jinja.case(tpl, chat)

        if kind == "unsupported" then
            assert(not err:find("internal error", 1, true), err)
            left_out[#left_out + 1] = jinja.value(chat).v.name
        else
            texts = texts + (text and 1 or 0)
            errors = errors + (text and 0 or 1)
            hash = jinja.add(hash, text)
        end
    end

    return format("%s\t%s\t%d\t%d\t%s\t%s", name,
                  bit.tohex(jinja.hash(source)), texts, errors,
                  bit.tohex(hash), table.concat(left_out, ","))
end


for line in io.lines(FOLDER .. "ours.golden") do
    local name = line:match("^[^\t]+")

    is(line_of(name, jinja.read(FOLDER .. name .. ".jinja")), line,
       name .. ".jinja gives what it gave with transformers")
end


-- The text of others' models is not part of this tree.
local there, same, other, differing = 0, 0, 0, {}

for line in io.lines(FOLDER .. "shared.golden") do
    local name, hash = line:match("^([^\t]+)\t([^\t]+)")
    local source = jinja.read(BESIDE .. name .. ".jinja")

    if source and bit.tohex(jinja.hash(source)) ~= hash then
        other = other + 1
    elseif source then
        there = there + 1

        if line_of(name, source) == line then
            same = same + 1
        else
            differing[#differing + 1] = name
        end
    end
end

if there == 0 then
    tap.note("%s is not there: no template of a model was rendered", BESIDE)
else
    tap.note("%d templates of models, %d others than those recorded", there,
             other)
    ok(same == there, "templates of models give what they gave with transformers")

    for _, name in ipairs(differing) do
        tap.note("differs: %s", name)
    end
end


-- A byte of literal text that changes is noticed.
local source = jinja.read(FOLDER .. "tools.jinja")
local changed = source:gsub("<|im_end|>", "<|im_enD|>", 1)

ok(changed ~= source, "a template can be changed")

local function golden_hash(text)
    return select(5, line_of("tools", text):match(
        "([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)"))
end

ok(golden_hash(changed) ~= golden_hash(source),
   "one byte of its text makes another hash")


tap.done()
