"""Small templates of the parity test: corners written by hand, white space and
expressions by chance; and the variables that they read."""

import random

DATA = {
    "n": None, "t": True, "f": False, "i": 7, "neg": -3, "z": 0, "fl": 2.5,
    "f1": 1.0, "big": 12345678901234567890, "e": 1e16, "tiny": 1e-5,
    "s": "Hello, W\u00f6rld \u6f22\u5b57\U0001F600", "a": "abcabc", "e0": "",
    "sp": " \t x y \n\u00a0", "el": [], "ed": {},
    "l": [1, "a", None, True, 2.0, [3], {"k": "v'\""}],
    "d": {"b": 1, "a": [1, 2], "items": "it", "get": 3, "C": {"x": None},
          "\u00e9": "\u00fc"},
    "msgs": [{"role": "user", "content": "q", "n": 1},
             {"role": "assistant", "content": "r", "n": 2, "tool_calls": []},
             {"role": "user", "content": None}],
    "nl": "a\r\nb\nc\n\n", "html": "<a href='x'>&\"</a>",
    "odd": "\u200b\u00ad\ufeff\ue000\U000e0001\x00\x1f\x7f\x85\u2028\u00e9",
    "k": "b", "ints": [3, 1, 2], "strs": ["b", "A", "c", "a"],
    "case": "stra\u00dfe \u01c6 \u00cf \u0391\u03b1 \u0130 \ufb01"}

# one a line; "\n" in them stands for a line's end
CORNERS = r"""
{{ n }}|{{ t }}|{{ f }}|{{ i }}|{{ fl }}|{{ f1 }}|{{ big }}|{{ e }}|{{ tiny }}
{{ l }}|{{ d }}|{{ el }}|{{ ed }}|{{ (1,) }}|{{ (1, 2) }}|{{ () }}|{{ [s, sp]}}
{{ odd|tojson }}{{ [odd, html] }}{{ nl|tojson }}{{ [nl] }}{{ ["it's", 'a"b'] }}
{{ d|tojson(indent=2) }}|{{ d|tojson(indent=0) }}|{{ l|tojson }}
{{ d|tojson(separators=(',', ':')) }}|{{ s|tojson(ensure_ascii=true) }}
{{ {'b': 1, 'a': [1]}|tojson(indent='--') }}|{{ l|tojson(true)}}
{{ undefd|tojson }}
{{ [fl, f1, tiny, e, 1e22, 0.1, 5e-324, 1e15, -0.0, 123456789.125] }}
{{ d.items() }}|{{ d.keys() }}|{{ d.values() }}|{{ d.items is defined }}
{{ d['items'] }}{{ d.get('b') }}{{ d.get('zz') }}{{ d.get('zz', 5) }}
{{ d['keys'] is defined }}{{ d.nope is defined }}{{ n.x }}{{ i.x }}{{ a.x }}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{{ d|items|list }}
{% for k, v in {'b': 1, 'A': 2, 'a': 3}|dictsort %}{{ k }}{{ v }}{% endfor %}
{{ d|dictsort }}
{{ s[0] }}{{ s[-1] }}{{ s[7:12] }}{{ s[::-1] }}{{ s[100] }}{{ s[5:1:-1] }}
{{ l[1:3] }}{{ l[::-1] }}{{ l[-2:] }}{{ l[10:] }}{{ l[4:0:-2] }}{{ l[99] }}
{{ a.split('b') }}{{ a.split('b', 1) }}{{ ''.split(',') }}{{ ' a  b '.split() }}
{{ sp.split() }}
{{ a.split('') }}
{{ [sp.strip(), sp.lstrip(), sp.rstrip(), sp|trim, 'xyaxy'.lstrip('yx')] }}
{{ a.startswith('ab') }}{{ a.endswith(('x', 'c')) }}{{ a.replace('b', 'X') }}
{{ a.upper() }}
{{ "it's a-b".title() }}{{ "it's a-b (cd) [x"|title }}{{ 'hELLO'|capitalize }}
{{ case.upper() }}{{ case.lower() }}{{ case|upper }}{{ case|capitalize }}
{{ '12'.isdigit() }}{{ ''.isdigit() }}{{ 'a1'.isalnum() }}{{ 'a1'.isalpha() }}
{{ l|join(',') }}|{{ msgs|map(attribute='content')|join('-') }}|{{ s|join(' ') }}
{{ nl.splitlines() }}{{ 'a\x0bb\x1cc\u2028d\x85e'.splitlines() }}
{{ nl|indent }}|{{ 'a\nb\n\nc'|indent(2) }}|{{ 'a\nb'|indent(2, true) }}
{{ ''|indent(first=true) }}|{{ 'a'|indent }}
{{ -7 % 3 }}{{ 2 * 3.0 }}
{{ 7 % -2 }}{{ 1e300 * 10 }}{{ 'ab' * 3 }}
{{ 1 % 0 }}
{{ t + 1 }}{{ t == 1 }}{{ 1.0 == 1 }}{{ '1' == 1 }}{{ none == false }}
{{ [1, 2] == [1, 2.0] }}{{ {'a': 1} == {'a': 1} }}{{ undefd == undefd }}
{{ 1 < 2 < 3 }}{{ 1 < 2 > 5 }}{{ 'a' < 'b' }}{{ '\u00e9' > 'z' }}{{ 3 >= 3.0 }}
{{ i in [7] }}{{ 'b' in a }}{{ 'z' not in a }}{{ 'b' in d }}{{ none in l }}
{{ 1 < 'a' }}
{{ 1 in 'abc' }}
{{ a + 1 }}
{{ undefd.x }}
{{ a ~ 1 ~ none ~ true ~ 2.0 ~ undefd ~ l }}{{ 'a' 'b' ~ 'c' }}
{{ i and a }}{{ z or a }}{{ not z }}{{ (z or e0) is string }}{{ i or undefd.x }}
{{ a if t }}{{ a if f }}{{ a if f else 'no' }}{{ 'x' if 0 else 'y' if 0 else 'z'}}
{{ n is none }}{{ undefd is none }}{{ undefd is iterable }}{{ d is mapping }}
{{ t is number }}{{ t is integer }}{{ fl is float }}{{ 1 is true }}{{ z is false}}
{{ i is odd }}{{ i is even }}{{ i is eq 7 }}{{ i is in [7] }}
{{ i is ge 7 }}{{ i is lt(8) }}{{ i is gt 8 }}{{ i is ne 3 }}
{{ undefd|default('x') }}{{ n|default('x') }}{{ n|default('x', true) }}
{{ e0|d('x', boolean=true) }}{{ undefd|length }}{{ s|count }}{{ d|length }}
{{ n|length }}
{{ l|first }}{{ l|last }}{{ el|first }}{{ ints|sort }}{{ strs|sort }}
{{ msgs|sort(attribute='role')|map(attribute='role')|list }}{{ ints|min }}
{{ ints|max }}{{ strs|unique|list }}
{{ msgs|selectattr('role', 'equalto', 'user')|list|length }}{{ l|select|list }}
{{ msgs|selectattr('tool_calls', 'defined')|map(attribute='n')|list }}
{{ msgs|rejectattr('role', 'eq', 'user')|list }}{{ l|reject('none')|list }}
{{ msgs|selectattr('content')|list|length }}{{ ints|select('gt', 1)|list }}
{{ strs|map('upper')|list }}{{ none|map('upper')|list }}{{ l|map('string')|list }}
{{ msgs|selectattr('role') }}
{% if el|map('upper') %}T{% endif %}{{ msgs|selectattr('role')|length }}
{% set g = msgs|map(attribute='role') %}{{ g|list }}{{ g|list }}
{{ '5'|int }}{{ 'x'|int }}{{ 3.9|int }}{{ '3.9'|int }}{{ n|int }}{{ '1.'|int}}
{{ html|safe }}|{{ html|safe + '<' }}|{{ '<' + html|safe }}
{{ (html|safe)|trim }}|{{ (html|safe)|length }}|{{ html|safe == html }}
{{ [html|safe]|join('<') }}|{{ (html|safe) is string }}
{{ (msgs|selectattr('role')).type is defined }}{{ d.items().x is defined }}
{{ 'a{}b{}'.format(1, none) }}{{ '{}'.format(1, 2) }}
{{ '{}{}'.format(1) }}
{% set x = 1 %}{% for q in [1, 2] %}{{ x }}{% set x = x + 1 %}{% endfor %}{{ x }}
{% for q in [1, 2] %}{{ y is defined }}{% set y = q %}{{ y }}{% endfor %}
{% set ns = namespace(a=1, b='x') %}{% set ns.a = 2 %}{{ ns.a }}{{ ns.c }}
{% set ns = namespace(a=5, c=2) %}{{ ns.a + ns.c }}{{ ns['a'] }}
{% set ns = namespace(m=namespace(v=[])) %}{% set ns.m = 3 %}{{ ns.m }}
{% set d.x = 1 %}
{{ namespace(_x=1) }}
{% if f %}{% set q = 1 %}{% endif %}{{ q is defined }}
{% if t %}{{ a }}{% set a = 1 %}{% elif f %}{% set a = 2 %}{% else %}{% set a=3 %}{% endif %}{{ a }}
{% if not i is defined %}{% set i = 1 %}{% endif %}{{ i }}
{% macro m(a, b=2, c=a) %}[{{ a }},{{ b }},{{ c }}]{% endmacro %}{{ m(1) }}{{ m() }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, z=2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}
{% macro r(n) %}{{ n }}{% if n > 0 %}{{ r(n - 1) }}{% endif %}{% endmacro %}{{ r(5) }}
{% macro o() %}{{ later }}{{ x }}{% endmacro %}{% set x = 3 %}{{ o() }}
{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}
{% macro m() %}{{ caller('p') }}{% endmacro %}{% call(v) m() %}<{{ v }}>{% endcall %}
{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}
{% macro m() %}x{% endmacro %}{% call m() %}{% endcall %}
{% for x in l %}{{ loop.index }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}
{% for x in [1, 2, 3, 4] if x is odd %}{{ x }}{{ loop.last }}{% else %}no{% endfor %}
{% for x in [1, 2, 3, 4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in [1, 2] %}{% for y in [3, 4] %}{{ loop.index }}{% else %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}
{% for x in [1, 2] %}{% for y in [] %}{% else %}{{ loop.index }}{% endfor %}{% endfor %}
{% for x in [1, 2] %}{% macro m() %}{{ loop.index }}{{ x }}{% endmacro %}{{ m() }}{% endfor %}
{% for x in [1, 2] %}{% for y in [1, 2] if y == loop.index %}{{ y }}{% endfor %}{% endfor %}
{% for a, b in [[1, 2], (3, 4), 'xy'] %}{{ a }}{{ b }}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{% endfor %}
{% for x in n %}{% endfor %}
{% set c = (1, 2) %}{{ c }}{% set d2 = 1, %}{{ d2 }}
{% set x %}a{{ i }}b{% endset %}{{ x }}
{% filter upper|replace('A', 'z') %}abc{{ a }}{% endfilter %}
{% generation %}x{% set inner = 1 %}{{ inner }}{% endgeneration %}{{ inner }}
{% raw %}{{ x }}{% if %}{% endraw %}|{%- raw -%} a {%- endraw -%} b
{{ '\x41\u00e9\U0001F600\101\q\\\'\"\t' }}{{ 1_000 }}{{ 1.5e3 }}{{ 0 }}
{{ range(5, 0, -2)|list }}{{ range(3)|length }}{{ range(2, 4)[0] }}{{ range(3) is sequence }}
{{ dict(a=1, b=2) }}
{{ l.append(1) }}
{{ d.__class__ }}
{{ undefd() }}
{{ a.nope() }}
{{ a|nosuch }}
{% include 'x' %}
{% for loop in [1] %}{% endfor %}
{{ strftime_now is defined }}
{{ raise_exception('boom') }}
{{ {'a': {'b': (1,)}} }}{{ [true, none, undefd] }}{{ {1: 'x'}[1.0] }}{{ d[1.5] }}
""".strip("\n").split("\n")

SPACES = ["", " ", "\n", "\n\n", "  \n", "\n  ", " \n \n ", "\t", "\u00a0",
          "x", "x\n", " y ", "\r\n", "\n\u00a0", "{", "}", "%", "-"]
METHODS = ["strip()", "split()", 'split("b")', "upper()", "items()",
           'get("b")', "keys()", 'lstrip("a")', "rstrip()", "title()",
           'startswith("a")', 'replace("a","b")', 'endswith("c")',
           "lower()"]
FILTERS = ["length", "trim", "string", "list", "first", "last", "tojson",
           "upper", "lower", "join", 'join(",")', "default(1)",
           "default(2,true)", "int", "items|list", "dictsort",
           "tojson(indent=2)", "capitalize", 'map("string")|list',
           'selectattr("role")|list', "select|list", "sort", "unique|list",
           "safe", "string|length", "title", "min", "max",
           'replace("a","x")', "indent(2)", 'map(attribute="role")|list']
TESTS = ["defined", "none", "string", "mapping", "iterable", "sequence",
         "boolean", "number", "integer", "float", "true", "false", "odd",
         "undefined", 'in ["b", 1]']
LITERALS = ["1", "0", "-1", "2.5", "'b'", "''", "'abc'", "none", "true", "[]",
            "{}", "'a\\n'", "'role'"]


class Drawn:
    """templates by chance"""

    def __init__(self, seed):
        self.draw = random.Random(seed)

    def sign(self, signs=("", "-", "", "+")):
        """a tag's sign"""
        return self.draw.choice(signs)

    def tag(self):
        """a tag, with its end"""
        left, right = self.sign(), self.sign()
        kind = self.draw.randint(0, 5)
        if kind == 0:
            return ("{{" + left.replace("+", "") + " i "
                    + right.replace("+", "") + "}}")
        if kind == 1:
            return "{#" + left + " c " + right + "#}"
        if kind == 2:
            return ("{%" + left + " if t " + right + "%}" + self.body(2)
                    + "{%" + self.sign() + " endif " + self.sign() + "%}")
        if kind == 3:
            return ("{%" + left + " for q in [1,2] " + right + "%}"
                    + self.body(2) + "{%" + self.sign() + " endfor "
                    + self.sign() + "%}")
        if kind == 4:
            return "{%" + left + " set w = 1 " + right + "%}"
        return ("{%" + self.sign() + " raw " + self.sign(("", "-")) + "%}"
                + self.draw.choice(SPACES) + "{%" + left + " endraw " + right
                + "%}")

    def body(self, most):
        """tags with white space around them"""
        return "".join(self.draw.choice(SPACES) + self.tag()
                       + self.draw.choice(SPACES)
                       for _ in range(self.draw.randint(0, most)))

    def expression(self, depth):
        """an expression"""
        draw = self.draw
        kind = draw.randint(0, 21) if depth else draw.randint(0, 3)

        def one():
            return self.expression(depth - 1)

        if kind <= 2:
            return draw.choice([*DATA, "undefd"])
        if kind == 3:
            return draw.choice(LITERALS)
        forms = {
            4: lambda: f"({one()} "
                       f"{draw.choice(['+', '-', '*', '%', '~'])} "
                       f"{one()})",
            5: lambda: f"({one()} "
                       f"{draw.choice(['==', '!=', '<', '>=', 'in'])} "
                       f"{one()})",
            6: lambda: f"({one()} {draw.choice(['and', 'or'])} {one()})",
            7: lambda: f"(not {one()})",
            8: lambda: f"({one()} if {one()} else {one()})",
            9: lambda: f"({one()})[{draw.choice(['0', '-1', '1:', '::-1'])}]",
            10: lambda: f"({one()})"
                        f".{draw.choice(['role', 'x', 'items', 'k', 'n'])}",
            11: lambda: f"({one()}).{draw.choice(METHODS)}",
            18: lambda: f"[{one()}, {one()}]",
            19: lambda: f"{{'p': {one()}, 'q': {one()}}}",
            20: lambda: f"({one()}, {one()})",
            21: lambda: f"{one()}[{one()}]",
        }
        if kind in forms:
            return forms[kind]()
        if kind <= 14:
            return f"({one()})|{draw.choice(FILTERS)}"
        return f"({one()} is {draw.choice(['', 'not '])}{draw.choice(TESTS)})"


def snippets(count, seed=3):
    """the corners, count by chance of white space, 4 times as many of
    expressions"""
    drawn = Drawn(seed)
    return (CORNERS + [drawn.body(5) for _ in range(count)]
            + ["{{ " + drawn.expression(3) + " }}" for _ in range(4 * count)])
