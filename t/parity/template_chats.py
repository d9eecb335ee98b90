"""The conversations of the parity test of chat templates: dicts with name,
messages, tools, documents, add_generation_prompt, continue_final_message and
kwargs, as apply_chat_template() takes them."""

import json
import random

ODD = ("tab\t cr\r nl\n\n  <|im_end|> {{ x }} {% if %} <b> & ' \" \\ \u00a0 "
       "\u200b \u2028 \x7f \u00e9 \u00f1 \u6f22\u5b57 \U0001F600")

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a place",
    "parameters": {"type": "object", "properties": {
        "location": {"type": "string", "description": "e.g. \"Oslo, NO\""},
        "unit": {"type": "string", "enum": ["celsius", "kelvin"]}},
        "required": ["location"]}}}
ORDER = {"type": "function", "function": {
    "name": "order",
    "description": "L\u00e4uft: <b> & 'q' \"d\" \\ back\nnew \u6f22 \U0001F600",
    "parameters": {"type": "object", "properties": {
        "items": {"type": "array", "description": "items", "minItems": 1,
                  "items": {"type": "object", "required": ["sku"],
                            "properties": {
                                "sku": {"type": "string"},
                                "qty": {"type": "integer", "default": 1},
                                "price": {"type": "number",
                                          "exclusiveMinimum": 0.5},
                                "opts": {"type": ["string", "null"],
                                         "default": None}}}},
        "mode": {"anyOf": [{"type": "string", "enum": ["a", "b"]},
                           {"type": "integer"}], "description": "either"},
        "flags": {"type": "object", "nullable": True,
                  "additionalProperties": {"type": "boolean"}},
        "ref": {"$ref": "#/$defs/X"}, "get": {"type": "string"},
        "keys": {"type": "array"}, "empty": {},
        "format": {"type": "string", "format": "date", "title": "T"}},
        "required": ["items", "mode"], "additionalProperties": False,
        "$defs": {"X": {"type": "boolean", "const": True}}},
    "strict": True}}
NOW = {"type": "function", "function": {
    "name": "now", "description": "Time",
    "parameters": {"type": "object", "properties": {}}}}
BARE = {"type": "function", "function": {
    "name": "bare", "description": None, "parameters": None}}
RETURNS = {"type": "function", "function": {
    "name": "ret", "description": "d",
    "parameters": {"type": "object", "properties": {
        "x": {"type": "number", "description": "x\ny"}}, "required": ["x"]},
    "return": {"type": "object", "description": "gives",
               "properties": {"y": {"type": "number"}}}}}
FLAT = {"name": "flat", "description": "d", "parameters": {
    "type": "object", "properties": {"p": {"type": "string"}}}}


def user(content, **more):
    """a message of the user"""
    return {"role": "user", "content": content, **more}


def said(content, **more):
    """a message of the assistant"""
    return {"role": "assistant", "content": content, **more}


def system(content):
    """a system message"""
    return {"role": "system", "content": content}


def call(name, arguments, ident="call00001"):
    """a tool call"""
    return {"id": ident, "type": "function",
            "function": {"name": name, "arguments": arguments}}


def result(content, ident="call00001", **more):
    """a message of a tool"""
    return {"role": "tool", "tool_call_id": ident, "content": content, **more}


def text(content):
    """a part of a content"""
    return {"type": "text", "text": content}


def plain():
    """roles and contents: name, messages"""
    return [
        ("user", [user("Hello")]),
        ("system", [system("You help."), user("Hello")]),
        ("turns", [user("Hi"), said("Hello!"), user("How are you?")]),
        ("system-turns", [system("Brief.\n"), user("Hi"), said("Hello!"),
                          user("How?"), said("So."), user("And?")]),
        ("long", [m for i in range(12) for m in (
            user(f"question {i} " + "lorem " * i), said(f"answer {i}\n"))]
         + [user("end")]),
        ("unicode", [system(ODD), user(ODD), said(ODD), user(ODD)]),
        ("spaces", [system("  pad  \n"), user("\n\n both \n\n"),
                    said("  x \u3000"), user("\u00a0nbsp\u00a0\x1c")]),
        ("empty", [system(""), user(""), said(""), user("x")]),
        ("nothing", []),
        ("only-system", [system("alone")]),
        ("only-assistant", [said("alone")]),
        ("two-users", [user("a"), user("b")]),
        ("two-assistants", [user("a"), said("b"), said("c"), user("d")]),
        ("assistant-last", [user("a"), said("b")]),
        ("system-in-between", [user("a"), said("b"), system("l"), user("c")]),
        ("two-systems", [system("1"), system("2"), user("a")]),
        ("wizard", [user("a"), {"role": "wizard", "content": "b"}, user("c")]),
        ("no-role", [{"content": "b"}]),
        ("role-null", [{"role": None, "content": "b"}]),
        ("developer", [{"role": "developer", "content": "dev"}, user("a")]),
        ("null", [user("a"), said(None), user("b")]),
        ("missing", [user("a"), {"role": "assistant"}, user("b")]),
        ("user-missing", [{"role": "user"}]),
        ("int", [user(5)]),
        ("bool-content", [user(True)]),
        ("dict-content", [user({"text": "x"})]),
        ("more-keys", [user("x", items=1, task="query", weight=0.0)]),
        ("names", [user("hi", name="Ann"), said("yo", name="Bot"),
                   user("so", name="Bob")]),
        ("ipython", [user("x"), said("y"),
                     {"role": "ipython", "content": {"o": 1}},
                     {"role": "function", "name": "f", "content": "z"},
                     user("w")]),
        ("parts", [user([text("one"), text("two")])]),
        ("parts-all", [system([text("sys")]), user([text("one")]),
                       said([text("ans")]), user("str")]),
        ("parts-image", [user([{"type": "image"}, text("what?")])]),
        ("parts-url", [user([text("what?"), {
            "type": "image_url", "image_url": {"url": "http://x/y.png"}}])]),
        ("parts-video", [user([{"type": "video"}, {"type": "audio"},
                               text("?")])]),
        ("parts-odd", [user([{"type": "text"}, "bare",
                             text("it's \"q\" \n \u200b")])]),
        ("parts-none", [user([]), said("b"), user("c")]),
        ("reasoning", [user("q1"), said("a1", reasoning_content="since\nso"),
                       user("q2")]),
        ("reasoning-names", [user("q1"), said("a1", reasoning="r1"),
                             user("q2"), said("a2", thinking="t2"),
                             user("q3")]),
        ("reasoning-empty", [user("q1"), said("a1", reasoning_content=""),
                             user("q2")]),
        ("think", [user("q1"), said("<think>\nhm\n</think>\n\nfirst"),
                   user("q2"), said("<think>\n\n</think>\n\nsecond"),
                   user("q3")]),
        ("result-of-user", [user("q1"), said("a1", reasoning_content="r"),
                            user("<result>\nx\n</result>"),
                            said("a2", reasoning_content="r2")]),
        ("result-begun", [user("q1"), said("a1", reasoning_content="r"),
                          user("<result>\nx"),
                          said("a2", reasoning_content="r2")]),
        ("result-ended", [user("q1"), said("a1", reasoning_content="r"),
                          user("x\n</result>"),
                          said("a2", reasoning_content="r2")]),
        ("think-last", [user("q1"), said("<think>\nhm\n</think>\n\nx")]),
        ("think-odd", [user("q1"), said("</think>a</think>b"), user("q2"),
                       said("<think>never ends"), user("q3")]),
    ]


def tools():
    """calls and results: name, messages, tools"""
    out = [
        ("tools", [user("Weather?")], [WEATHER]),
        ("tools-system", [system("S."), user("W?")], [WEATHER, ORDER, NOW]),
        ("tools-bare", [user("x")], [BARE]),
        ("tools-none", [user("x")], []),
        ("tools-returns", [user("x")], [RETURNS, WEATHER]),
        ("tools-flat", [user("x")], [FLAT]),
        ("call-types", [user("x"), said(None, tool_calls=[call("order", {
            "i": 1, "f": 1.0, "e": 1e100, "small": 1e-7, "neg": -0.5,
            "big": 12345678901234567890, "b": True, "n": None,
            "l": [1, "a", [], {}], "o": {"k": {"z": 1, "a": 2}},
            "s": "l1\nl2\t\"q\" \\ \u00e9 \U0001F600", "items": [1],
            "": "empty key"})]), result("ok")], [ORDER]),
        ("call-nothing", [user("x"), said(None, tool_calls=[call("now", {})]),
                          result("12:00", name="now")], [NOW]),
        ("call-no-tools", [user("x"), said(None, tool_calls=[call("now", {})]),
                           result("12:00"), user("more")], None),
        ("call-empty", [user("x"), said("y", tool_calls=[]), user("z")],
         [WEATHER]),
        ("call-null", [user("x"), said("y", tool_calls=None), user("z")],
         [WEATHER]),
        ("call-no-id", [user("x"), said(None, tool_calls=[{
            "type": "function", "function": {"name": "now",
                                             "arguments": {}}}]),
            {"role": "tool", "content": "12:00"}], [NOW]),
        ("call-no-arguments", [user("x"), said(None, tool_calls=[{
            "id": "a23456789", "type": "function",
            "function": {"name": "now"}}]), result("1", "a23456789")], [NOW]),
        ("call-reasoning", [user("x"), said(
            "<think>\nhm\n</think>\n", reasoning_content="so",
            tool_calls=[call("now", {})]), result("12"), said("noon"),
            user("q")], [NOW]),
        ("result-parts", [user("x"), said(None, tool_calls=[call("now", {})]),
                          result([text("12"), text(":00")])], [NOW]),
        ("result-first", [result("orphan"), user("x")], [NOW]),
        ("result-null", [user("x"), said(None, tool_calls=[call("now", {})]),
                         result(None), user("y")], [NOW]),
        ("result-dict", [user("x"), said(None, tool_calls=[call("now", {})]),
                         result({"t": 1.5, "ok": True}), user("y")], [NOW]),
        ("agent", [system("Agent."), user("do it")] + [
            m for i in range(6) for m in (
                said("" if i % 2 else f"step {i}", tool_calls=[call(
                    "get_weather", {"location": f"c{i}"}, f"call{i:05d}")],
                    reasoning_content=f"think {i}\n"),
                result(f"result {i}", f"call{i:05d}"))], [WEATHER, ORDER]),
    ]
    for kind, arguments in (
            ("dict", {"location": "Oslo, <NO> & \"x\" 'y'", "unit": "kelvin"}),
            ("str", json.dumps({"location": "Oslo", "n": 1.0})),
            ("broken", "{\"location\": ")):
        one = said(None, tool_calls=[call("get_weather", arguments)])
        two = said("Let me look.", tool_calls=[
            call("get_weather", arguments, "a23456789"),
            call("order", arguments, "b23456789")])
        out += [
            (f"call-{kind}", [user("W?"), one, result("12 \u00b0C"),
                              said("It is."), user("Thanks")], [WEATHER]),
            (f"call-last-{kind}", [user("W?"), one, result('{"t": 12}')],
             [WEATHER]),
            (f"call-both-{kind}", [system("S"), user("W?"), two,
                                   result("1", "a23456789"),
                                   result("2", "b23456789"), user("and?")],
             [WEATHER, ORDER]),
        ]
    return out


def others():
    """arguments of apply_chat_template: name, messages, what else"""
    documents = [{"title": "T1", "text": "text <1> & \"q\"", "doc_id": 1},
                 {"title": "T2", "text": "two\nlines", "doc_id": "x"}]
    final = [user("q"), said("Once upon a")]
    return [
        ("no-prompt", [user("Hello")], {"add_generation_prompt": False}),
        ("turns-no-prompt", [user("Hi"), said("Hello!")],
         {"add_generation_prompt": False}),
        ("reasoning-last", [user("q1"), said("a1", reasoning_content="r")],
         {"add_generation_prompt": False}),
        ("think-off", [user("q")], {"kwargs": {"enable_thinking": False}}),
        ("think-on", [system("S"), user("q"), said("a"), user("q")],
         {"kwargs": {"enable_thinking": True}}),
        ("thinking", [user("q")], {"kwargs": {"thinking": True}}),
        ("effort", [user("q")], {"kwargs": {"reasoning_effort": "high"}}),
        ("effort-tools", [system("S"), user("q")], {
            "tools": [WEATHER], "kwargs": {"reasoning_effort": "low"}}),
        ("odd", [user("q"), said("a", reasoning_content="r"), user("q")], {
            "kwargs": {"enable_thinking": "no", "custom_tools": [WEATHER],
                       "tools_in_user_message": False,
                       "date_string": "26 Jul 2024",
                       "keep_past_thinking": True, "clear_thinking": False,
                       "preserve_thinking": True, "add_vision_id": True}}),
        ("builtin", [user("q")], {"kwargs": {
            "builtin_tools": ["python", "browser", "brave_search"],
            "model_identity": "Me", "xml_tools": [WEATHER],
            "python_tools": ["def f(): pass"]}}),
        ("documents", [user("q?")], {"documents": documents}),
        ("documents-tools", [system("S"), user("q?")], {
            "documents": documents[:1], "tools": [WEATHER]}),
        ("citations", [user("q?")], {"documents": documents, "kwargs": {
            "enable_citations": True, "citation_mode": "fast",
            "controls": {"citations": True}, "safety_mode": "STRICT"}}),
        ("continue", final, {"continue_final_message": True,
                             "add_generation_prompt": False}),
        ("continue-prompt", final, {"continue_final_message": True}),
        ("continue-space", [user("q"), said("Once upon a \n")], {
            "continue_final_message": True, "add_generation_prompt": False}),
        ("continue-parts", [user("q"), said([text("Once")])], {
            "continue_final_message": True, "add_generation_prompt": False}),
        ("continue-user", [user("q")], {"continue_final_message": True}),
        ("continue-empty", [user("q"), said("")], {
            "continue_final_message": True}),
        ("continue-reasoning", [user("q"), said("a", thinking="t")], {
            "continue_final_message": True}),
    ]


WORDS = ["alpha", "\u03b2eta", "<tag>", "\n", "  ", "'q'", '"dq"', "\\n",
         "&amp;", "</think>", "<think>", "\U0001F600", "\u00a0", "{{x}}",
         "%d", "", "None", "[TOOL_CALLS]", "<|end|>"]


def drawn(draw):
    """messages by chance"""
    def words():
        return " ".join(draw.choice(WORDS) for _ in range(draw.randint(0, 9)))

    def value():
        return draw.choice([1, 2.5, words(), [words()], {"k": words()}, True,
                            None])

    messages = [system(words())] if draw.random() < .5 else []
    for _ in range(draw.randint(1, 4)):
        messages.append(user(words()))
        if draw.random() < .4:
            idents = [f"c{draw.randint(10000000, 99999999)}"
                      for _ in range(draw.randint(1, 2))]
            messages.append(said(
                draw.choice([None, "", words()]),
                tool_calls=[call(draw.choice(["get_weather", "order"]),
                                 {draw.choice(["a", "b", "\u00fc"]): value()},
                                 ident) for ident in idents]))
            messages += [result(words(), ident) for ident in idents]
            if draw.random() < .5:
                messages.append(said(words()))
        else:
            more = {"reasoning_content": words()}
            messages.append(said(words(),
                                 **more if draw.random() < .3 else {}))
    if draw.random() < .7:
        messages.append(user(words()))
    return messages


def chats(seed=7, count=40):
    """all of them"""
    out = []

    def add(name, messages, **given):
        out.append({"name": name, "messages": messages, "tools": None,
                    "documents": None, "add_generation_prompt": True,
                    "continue_final_message": False, "kwargs": {}, **given})

    for name, messages in plain():
        add(name, messages)
    for name, messages, given in tools():
        add(name, messages, tools=given)
    for name, messages, given in others():
        add(name, messages, **given)
    draw = random.Random(seed)
    for i in range(count):
        add(f"drawn-{i}", drawn(draw),
            tools=draw.choice([None, None, [WEATHER], [WEATHER, ORDER]]),
            add_generation_prompt=draw.random() < .8)
    return out
