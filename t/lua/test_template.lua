-- Chat templates: what they give, how they fail, and what bounds them.


local tap = require "lib.tap"
local jinja = require "lib.jinja"
local template = require "resty.kv_router.template"

local chat = jinja.chat
local has, is, ok = tap.has, tap.is, tap.ok
local text = jinja.text


-- ---- kinds of failure -------------------------------------------------------

local function fails(kind, part, source, vars, settings)
    local got, err, what = text(source, vars, settings)

    is(got, nil, "no text: " .. source:sub(1, 50):gsub("\n", " "))
    is(what, kind, "it is " .. kind)
    has(err, part, "and told: " .. part)
end


fails("raise", "boom", "{{ raise_exception('boom') }}")
fails("raise", "undefined", "{{ nobody.name }}")
fails("raise", "unknown tag do in line 2", "\n{% do x %}")
fails("raise", "'str' and 'int'", "{{ 'a' + 1 }}")
fails("raise", "refuses append", "{{ l.append(1) }}", '{"l": []}')
fails("raise", "unexpected", "{{ a b }}")
fails("raise", "not JSON serializable", "{{ nobody|tojson }}")
fails("unsupported", "the tag include in line 1", "{% include 'x' %}")
fails("unsupported", "the filter urlize in line 3", "\n\n{{ x|urlize }}")
fails("unsupported", "a recursive loop in line 1",
      "{% for x in [1] recursive %}{% endfor %}")
fails("unsupported", "the test nothing in line 1", "{{ 1 is nothing }}")
fails("unsupported", "the test sameas in line 1", "{{ 1 is sameas 1 }}")
fails("unsupported", "the filter groupby in line 1", "{{ x|groupby('a') }}")
fails("unsupported", "the method partition() in line 2",
      "\n{% if x %}{{ x.partition('=') }}{% endif %}")
fails("unsupported", "the operator // in line 1", "{{ 3 // 2 }}")
fails("unsupported", "% of a str in line 1", "{{ '%5s' % 2 }}")
fails("unsupported", "**kwargs of a call in line 1", "{{ x(**y) }}")
fails("unsupported", "set with , in line 1", "{% set a, b = 1, 2 %}")
fails("unsupported", "a target in brackets in line 1",
      "{% for a, (b, c) in x %}{% endfor %}")
fails("unsupported", "varargs or kwargs of a macro in line 1",
      "{% macro m() %}{{ varargs }}{% endmacro %}")
fails("unsupported", "the tag with in line 1", "{% with x = 1 %}{% endwith %}")
fails("unsupported", "loop.cycle() in line 1",
      "{% for x in [1] %}{{ loop.cycle(1) }}{% endfor %}")
fails("unsupported", "joiner", "{{ joiner() }}")
fails("unsupported", "a slice of this expression", "{{ true[1:] }}")
fails("unsupported", "the text of an object", "{{ namespace() }}")
fails("unsupported", "repr() of the character U+1EC00", "{{ [x] }}", '{"x": "\\ud83b\\udc00"}')
fails("unsupported", "time zone, not known", "{{ strftime_now('%Y') }}")


-- ---- scopes -----------------------------------------------------------------

is(text("{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = i + 5 %}{{ x }}"
        .. "{% endfor %}{{ x }}"), "16171",
   "a variable that is set in a loop begins anew in each round")
is(text("{% if y %}{% set x = 2 %}{% endif %}{{ x }}", '{"x": 1}'), "1",
   "what one branch sets is the request's without it")
is(text("{% macro m() %}{{ x }}{% endmacro %}{% set x = 3 %}{{ m() }}"), "3",
   "a macro sees what is set later")
is(text("{% set n = namespace(a = 1) %}{% for i in [1, 2] %}"
        .. "{% set n.a = n.a + i %}{% endfor %}{{ n.a }}"), "4",
   "a namespace outlives a loop")
is(text("{% macro m(f) %}[{{ caller(2) }}]{% endmacro %}"
        .. "{% call(x) m() %}{{ x }}{% endcall %}"), "[2]",
   "a call block is called")
fails("raise", "no keyword argument caller",
      "{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}")
is(text("{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}"
        .. "{{ m(1, b = 3) }}{{ m(*[1, 2]) }}"), "1312",
   "a macro takes arguments by place, by name and of a list")
is(text("{% for x in [1, 2, 3] %}{{ loop.previtem }}"
        .. "{{ loop.revindex }}{% endfor %}"), "31221",
   "a loop tells where it is")
is(text("{% for a, b in [[1, 2], (3, 4)] %}{{ b }}{% endfor %}"), "24",
   "targets may be several")


-- ---- names are no source ----------------------------------------------------

is(text("{{ x['end'] }}{{ function }}{{ x.nil }}{% set local = 7 %}{{ local }}",
        '{"x": {"end": "a\\"]]", "nil": "\\\\"}, "function": 1}'),
   'a"]]1\\7', "names may be words of Lua")
is(text("{{ '\\n]]\\0\" .. os.exit() .. \"' }}\r\nx"),
   '\n]]\0" .. os.exit() .. "\nx', "a string stays a string")
is(text("{{ os is defined }}{{ _G is defined }}{{ R is defined }}"),
   "FalseFalseFalse", "nothing of Lua is in reach")


-- ---- around the template ----------------------------------------------------

local PLAIN = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
local tpl = jinja.compile(PLAIN)

is(chat(tpl, { messages = '[{"role": "user", "content": "a"},'
                          .. '{"role": "assistant", "content": "b "}]',
               continue_final_message = true }),
   "user:a;assistant:b ", "the final message is continued")
is(chat(jinja.compile("{% for m in messages %}{{ m.content|trim }}!{% endfor %}"),
        { messages = '[{"role": "assistant", "content": "b "}]',
          continue_final_message = true }),
   "b", "if it was trimmed, what is in front of its end is trimmed")
is(select(3, chat(tpl, { messages = "[]", continue_final_message = true })),
   "raise", "no message can't be continued")
is(chat(jinja.compile("{{ messages[0] }}"),
        { messages = '[{"role": "a", "reasoning": "r"}]' }),
   "{'thinking': 'r', 'role': 'a', 'reasoning': 'r', 'reasoning_content': 'r'}",
   "transformers 5.23 gives a reasoning its other names")
is(chat(jinja.compile("{{ messages[0] }}", { transformers = "5.19.1" }),
        { messages = '[{"role": "a", "reasoning": "r"}]' }),
   "{'role': 'a', 'reasoning': 'r'}", "5.19 does not")
fails("raise", "attribute _x", "{{ namespace(_x = 1) }}")
is(text("{{ namespace(_x = 1)._x }}", "{}", { transformers = "4.57.0" }), "1",
   "earlier versions let namespaces have any names")
is(chat(jinja.compile("{{ tools is none }}{{ documents }}{{ bos_token }}"
                      .. "{{ add_generation_prompt }}{{ x }}",
                      { tokens = { bos_token = "<s>" } }),
        { messages = "[]", add_generation_prompt = true, kwargs = '{"x": 5}' }),
   "TrueNone<s>True5", "what transformers hands over is there")


-- ---- dates ------------------------------------------------------------------

local function at(seconds, zone, format)
    return text("{{ strftime_now('" .. format .. "') }}", "{}", {
        zone = zone, now = function() return seconds end })
end

local NOON = 1785067200          -- 26 July 2026, 12:00 UTC

is(at(NOON, "UTC", "%d %b %Y, %A %-m %y %j"), "26 Jul 2026, Sunday 7 26 207",
   "the date is written")
is(at(NOON, "+13:30", "%Y-%m-%d %H"), "2026-07-27 01",
   "in the engine's time zone")
is(select(2, at(NOON - 12 * 3600 + 119, "UTC", "%Y")),
   "strftime_now within two minutes of midnight",
   "around midnight the date is not known")
is(at(NOON - 12 * 3600 + 120, "UTC", "%Y"), "2026", "two minutes later it is")
is(select(3, at(NOON + 60, "UTC", "%H")), "unsupported",
   "around the full hour the hour is not known")
is(select(3, at(NOON + 1800, "UTC", "%H:%M")), "unsupported",
   "the minute never is")
ok(jinja.compile("{{ strftime_now('%Y') }}").dates, "such a template is known")
ok(not tpl.dates, "and others")


-- ---- content formats --------------------------------------------------------

local function formats(source)
    local made = assert(jinja.compile(source))

    return made.format_vllm .. " " .. made.format_sglang
end

is(formats(PLAIN), "string string", "no loop over the content: a string")
is(formats("{% for message in messages %}{% for c in message.content %}"
           .. "{% endfor %}{% endfor %}"), "openai openai",
   "a loop over a message's content: parts")
is(formats("{% set l = messages[1:] %}{% for x in l %}"
           .. "{% for c in x['content']|list %}{% endfor %}{% endfor %}"),
   "openai string", "vLLM follows variables, SGLang knows three names")
is(formats("{% macro m(p) %}{% for c in p %}{% endfor %}{% endmacro %}"
           .. "{% for x in messages %}{{ m(x.content) }}{% endfor %}"),
   "openai string", "vLLM follows a macro's parameters")
is(formats("{% for a, b in messages %}{% endfor %}"
           .. "{% for c in content %}{% endfor %}"), "string string",
   "vLLM gives up at a target that is no name")
is(formats("{# an image #}"), "string openai", "SGLang looks for words")
ok(jinja.compile("{% if m.role == 'developer' %}{% endif %}").developer,
   "the role developer is known by its name")


-- ---- bounds -----------------------------------------------------------------

local function bounded(part, source, vars, settings, as)
    local _, err, kind = text(source, vars, settings)

    is(kind, as or "unsupported", "bounded: " .. source:sub(1, 40))
    has(err, part, "by: " .. part)
end


local FEW = { fuel = 2000 }

bounded("out of fuel", "{% for i in range(90000) %}{% endfor %}", "{}", FEW)
bounded("out of fuel", "{% for i in range(300) %}{% for j in range(300) %}"
        .. "{% endfor %}{% endfor %}", "{}", FEW)
bounded("levels", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}")
bounded("levels", "{% set n = namespace(l = []) %}{% for i in range(200) %}"
        .. "{% set n.l = [n.l] %}{% endfor %}{{ n.l }}")
bounded("levels", "{% set n = namespace(l = []) %}{% for i in range(200) %}"
        .. "{% set n.l = [n.l] %}{% endfor %}{{ n.l|tojson }}")
bounded("levels", "{% set n = namespace(l = [], m = []) %}"
        .. "{% for i in range(200) %}{% set n.l = [n.l] %}{% set n.m = [n.m] %}"
        .. "{% endfor %}{{ n.l == n.m }}")
bounded("the bound", "{{ 'x' * 900000000 }}")
bounded("the bound", "{% set n = namespace(s = 'x') %}{% for i in range(40) %}"
        .. "{% set n.s = n.s + n.s %}{% endfor %}")
bounded("out of fuel", "{% set n = namespace(s = 'x' * 100000) %}"
        .. "{% for i in range(90000) %}{% set n.s = n.s ~ 'y' %}{% endfor %}",
        "{}", { fuel = 200000 })
bounded("out of fuel", "{% for i in range(90000) %}{{ s in t }}{% endfor %}",
        '{"s": "b", "t": "' .. ("a"):rep(100000) .. '"}', { fuel = 200000 })
bounded("over its bound", "{% for i in range(9999) %}{{ s }}{% endfor %}",
        '{"s": "' .. ("a"):rep(100000) .. '"}')
bounded("out of time", "{% for i in range(90000) %}{% for j in range(90000) %}"
        .. "{% endfor %}{% endfor %}", "{}", { cpu_us = 1000, fuel = 1e12 },
        "budget")

local _, err = chat(jinja.compile("{% for i in range(20) %}{{ messages[0].c }}"
                                  .. "{% endfor %}"),
                    { messages = '[{"c": "' .. ("a"):rep(100000) .. '"}]' },
                    100000)

has(err, "over its bound of 1448576", "four times the body and 1 MB go out")
is(text("{{ s.split('a')|length }}", '{"s": "aaa"}'), "4", "and then it works again")


-- ---- compiling --------------------------------------------------------------

is(select(3, template.compile("{{ '\255' }}")), "unsupported",
   "a template is UTF-8")
is(select(2, template.compile("{{ " .. ("("):rep(200) .. "1"
                             .. (")"):rep(200) .. " }}")),
   "nesting over 100 levels in line 1 is not supported",
   "expressions are within each other up to a bound")
ok(template.compile(("{% if x %}"):rep(50) .. ("{% endif %}"):rep(50)),
   "blocks, too")
is(select(3, template.compile(("{% if x %}"):rep(200))), "unsupported",
   "and no further")


tap.done()
