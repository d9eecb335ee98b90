-- Templates rendered here beside what the oracle made of them.
--
--     luajit t/parity/templates.lua chats TEMPLATES CASES ORACLE [DETAILS
--         [GOLDEN]]
--     luajit t/parity/templates.lua snippets ORACLE [DETAILS]
--
-- CASES: a conversation a line; ORACLE: {"t", "c", "text" or "error"} a line,
-- of one template after the other; or, of snippets, the variables in the first
-- line, and {"src", "text" or "error"} in the others.  DETAILS: a file for what
-- differs and what is unsupported; GOLDEN: a golden file to write, see
-- t/lua/test_template_golden.lua, of what the oracle says.  The exit status is 1
-- when anything differs or fails on one side only.


local jinja = require "lib.jinja"

local compile = jinja.compile
local decode = jinja.value
local format = string.format


local counts = { same = 0, both_raise = 0, unsupported = 0, refused = 0,
                 differ = 0, we_raise = 0, they_raise = 0 }
local reasons = {}
local details
local golden


local function tell(what, where, message)
    if details then
        details:write(format("%s\t%s\t%s\n", what, where, message))
    end
end


-- One rendering, ours or nil with a sentence and a kind; theirs is a dict with
-- text or error.
local function count(where, ours, err, kind, theirs)
    local wanted = theirs.v.text
    local what

    if ours then
        if wanted == nil then
            what = "they_raise"
            tell(what, where, tostring(theirs.v.error))
        elseif ours == wanted then
            what = "same"
        else
            local at = 1

            while ours:byte(at) == wanted:byte(at) do
                at = at + 1
            end

            what = "differ"
            tell(what, where, format("at byte %d\n  ours   %q\n  theirs %q", at,
                                     ours:sub(math.max(1, at - 40), at + 60),
                                     wanted:sub(math.max(1, at - 40), at + 60)))
        end

    elseif kind == "unsupported" then
        -- an error of ours is no refusal
        what = err:find("internal error", 1, true) and "differ" or "unsupported"
        reasons[err] = (reasons[err] or 0) + 1
        tell(what, where, err)

    elseif wanted == nil then
        what = "both_raise"

    else
        what = "we_raise"
        tell(what, where, err .. " | " .. wanted:sub(1, 80))
    end

    counts[what] = counts[what] + 1

    return what
end


-- What a golden file has of one template.
local template = {}


local function begin(name, source)
    template = { name = name, source = source, hash = jinja.HASH, texts = 0,
                 errors = 0, left_out = {} }
end


local function ends()
    if golden and template.name and not template.refused then
        golden:write(format("%s\t%s\t%d\t%d\t%s\t%s\n", template.name,
                            bit.tohex(jinja.hash(template.source)),
                            template.texts, template.errors,
                            bit.tohex(template.hash),
                            table.concat(template.left_out, ",")))
    end
end


local function add(theirs, what)
    local wanted = theirs.v.text

    if what == "unsupported" then
        template.left_out[#template.left_out + 1] = theirs.v.c
        return
    elseif wanted then
        template.texts = template.texts + 1
    else
        template.errors = template.errors + 1
    end

    template.hash = jinja.add(template.hash, wanted)
end


local function chats(folder, cases_file, oracle_file)
    local cases, tpl = {}, nil

    for line in io.lines(cases_file) do
        cases[decode(line).v.name] = line
    end

    for line in io.lines(oracle_file) do
        local theirs = decode(line)
        local name = theirs.v.t

        if name ~= template.name then
            local err

            ends()
            begin(name, jinja.read(folder .. "/" .. name .. ".jinja"))
            tpl, err = compile(template.source, jinja.SETTINGS)
            template.refused = not tpl

            if not tpl then
                print(format("refused: %s: %s", name, err))
            end
        end

        if not tpl then
            counts.refused = counts.refused + 1
        else
            local ours, err, kind = jinja.case(tpl, cases[theirs.v.c])

            add(theirs, count(name .. "\t" .. theirs.v.c, ours, err, kind,
                              theirs))
        end
    end

    ends()
end


local function snippets(oracle_file)
    local vars

    for line in io.lines(oracle_file) do
        if not vars then
            vars = line
        else
            local theirs = decode(line)
            local ours, err, kind = jinja.text(theirs.v.src, vars,
                                               jinja.SETTINGS)

            count(theirs.v.src, ours, err, kind, theirs)
        end
    end
end


local mode = arg[1]
local where = arg[mode == "chats" and 5 or 3]

details = where and assert(io.open(where, "w"))
golden = mode == "chats" and arg[6] and assert(io.open(arg[6], "w"))

if mode == "chats" then
    chats(arg[2], arg[3], arg[4])
else
    snippets(arg[2])
end

if details then
    details:close()
end

if golden then
    golden:close()
end

for reason, n in pairs(reasons) do
    print(format("unsupported %d: %s", n, reason))
end

local total = 0

for _, n in pairs(counts) do
    total = total + n
end

print(format("%s: %d cases: %d same, %d both raise, %d unsupported, %d refused "
             .. "at load, %d differ, %d only we raise, %d only they raise", mode,
             total, counts.same, counts.both_raise, counts.unsupported,
             counts.refused, counts.differ, counts.we_raise,
             counts.they_raise))

os.exit(counts.differ + counts.we_raise + counts.they_raise == 0 and 0 or 1)
