-- What is supported: docs/templates.md names it, and the templates of models
-- need no more, where they are beside this tree.


local tap = require "lib.tap"
local jinja = require "lib.jinja"
local filters = require "resty.kv_router.template.filters"
local methods = require "resty.kv_router.template.methods"
local template = require "resty.kv_router.template"

local is = tap.is

local BESIDE = "../shared/vectors/chat_templates/"

local page = assert(jinja.read "docs/templates.md")


-- The words of a line of the list "What is supported", in order.
local function told(what)
    local line = assert(page:match("\n%* " .. what .. ": (.-)%.\n"))
    local words = {}

    for word in line:gmatch "`([%w_]+)`" do
        words[#words + 1] = word
    end

    return table.concat(words, " ")
end


local function names(...)
    local all = {}

    for _, set in ipairs { ... } do
        for name in pairs(set) do
            all[#all + 1] = name
        end
    end

    table.sort(all)

    return table.concat(all, " ")
end


is(told "Filters", names(filters.ARGUMENTS, filters.OTHERS),
   "docs/templates.md names the filters")
is(told "Methods", names(methods.MOST),
   "docs/templates.md names the methods")


local refused, there = {}, 0

for line in io.lines("t/vectors/templates/shared.golden") do
    local name = line:match("^[^\t]+")
    local source = jinja.read(BESIDE .. name .. ".jinja")

    if source then
        local made, err = template.compile(source)

        there = there + 1

        if not made and not err:find("the filter from_json", 1, true) then
            refused[#refused + 1] = name .. ": " .. err
        end
    end
end

if there == 0 then
    tap.note("%s is not there: no template of a model was compiled", BESIDE)
end

is(table.concat(refused, "\n"), "",
   "each template of the corpus is supported but for from_json")


tap.done()
