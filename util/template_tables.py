#!/usr/bin/env python3
"""Prints lua/resty/kv_router/template/unicode.lua: what str.lower(), upper(),
capitalize() and repr() of Python do with characters beyond ASCII.

    python3.11 util/template_tables.py > lua/resty/kv_router/template/unicode.lua

The tables are those of the Unicode version of the Python that runs this."""

import sys
import textwrap
import unicodedata

# Unicode 16 gives these an upper case, which earlier versions do not.
CHANGED = (0x019B, 0x0264)

HEAD = """\
-- Copyright (C) the nginx-kv-router authors
--
-- Characters beyond ASCII, by Unicode {version}: written by
-- util/template_tables.py.
--
--     unprintable, unassigned    ranges: the distance to the last one's end,
--                                and the length less 1
--     lower, upper               first, last, step, what is added, of each
--                                range of characters
--     lowers, uppers, titles     characters that become something else, as
--                                strings; titles: only where the title case
--                                is not the upper case
--     changed                    characters that a later version of Unicode
--                                maps in another way


return {{"""


def ranges(wanted):
    """distances and lengths of the ranges of characters that are wanted"""
    out, last, start = [], 0, None
    for code in range(128, 0x110001):
        inside = code < 0x110000 and wanted(code)
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            out += [start - last, code - 1 - start]
            last, start = code - 1, None
    return out


def unassigned(code):
    """a character that this version of Unicode does not have"""
    return unicodedata.category(chr(code)) == "Cn"


def unprintable(code):
    """a character that repr() escapes in every version"""
    return not unassigned(code) and not chr(code).isprintable()


def mapped(method):
    """ranges of characters that become one other, and the other characters"""
    runs, special = [], {}
    for code in range(128, 0x110000):
        text = method(chr(code))
        if text == chr(code):
            continue
        if len(text) > 1:
            special[code] = text
            continue
        added = ord(text) - code
        run = runs[-1] if runs else None
        if run and run[3] == added and (
                (run[0] == run[1] and code - run[1] in (1, 2))
                or code - run[1] == run[2]):
            run[2] = code - run[1]
            run[1] = code
        else:
            runs.append([code, code, 1, added])
    return [number for run in runs for number in run], special


def titles():
    """characters whose title case is not their upper case"""
    return {code: chr(code).title() for code in range(128, 0x110000)
            if chr(code).title() != chr(code).upper()}


def numbers(name, values):
    """a field of numbers"""
    text = textwrap.fill(", ".join(map(str, values)), 74)
    print(f"    {name} = {{\n{textwrap.indent(text, ' ' * 5)}\n    }},")


def strings(name, values):
    """a field of strings"""
    text = ", ".join(
        f"[{code}]=\"" + "".join(f"\\{byte}" for byte in value.encode()) + '"'
        for code, value in values.items())
    text = textwrap.fill(text, 74)
    print(f"    {name} = {{\n{textwrap.indent(text, ' ' * 5)}\n    }},")


def main():
    """prints the file"""
    print(HEAD.format(version=unicodedata.unidata_version))
    print(f'    version = "{unicodedata.unidata_version}",')
    numbers("unprintable", ranges(unprintable))
    numbers("unassigned", ranges(unassigned))
    for name, method in (("lower", str.lower), ("upper", str.upper)):
        runs, special = mapped(method)
        numbers(name, runs)
        strings(name + "s", special)
    strings("titles", titles())
    print("    changed = { " + ", ".join(f"[{code}] = true"
                                         for code in CHANGED) + " },")
    print("}")


if __name__ == "__main__":
    sys.exit(main())
