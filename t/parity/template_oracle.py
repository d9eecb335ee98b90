"""What transformers makes of templates: run by the Python that has it.

    template_oracle.py chats TEMPLATES CASES OUT
    template_oracle.py snippets CASES OUT

CASES of chats: a conversation a line; of snippets: the variables, then a
template a line.  The clock stands at noon of 26 July 2026."""

import copy
import datetime
import json
import os
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

# pylint: disable=wrong-import-position,import-error
import jinja2                                                   # noqa: E402
import transformers                                             # noqa: E402
from transformers.utils import chat_template_utils              # noqa: E402

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
          "pad_token": "<pad>"}


class Noon(datetime.datetime):
    """a clock that stands"""

    @classmethod
    def now(cls, tz=None):
        return cls(2026, 7, 26, 12, 0, 0)


def told(render):
    """text, or error, of a rendering"""
    try:
        text = render()
        text.encode()
        return {"text": text}
    except MemoryError:
        raise
    except Exception as error:      # pylint: disable=broad-exception-caught
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def chat(source, case):
    """a conversation, rendered"""
    return chat_template_utils.render_jinja_template(
        [case["messages"]], tools=case["tools"],
        documents=case["documents"], chat_template=source,
        continue_final_message=case["continue_final_message"],
        add_generation_prompt=case["add_generation_prompt"],
        **{**TOKENS, **case["kwargs"]})[0][0]


def chats(folder, cases, out):
    """each template with each conversation"""
    cases = [json.loads(line) for line in open(cases, encoding="utf-8")]
    for path in sorted(Path(folder).glob("*.jinja")):
        source = path.read_bytes().decode()
        for case in cases:
            line = {"t": path.stem, "c": case["name"],
                    **told(lambda: chat(source, copy.deepcopy(case)))}
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


def snippets(cases, out):
    """each snippet with the variables"""
    lines = [json.loads(line) for line in open(cases, encoding="utf-8")]
    out.write(json.dumps(lines[0]) + "\n")
    compiled = chat_template_utils._cached_compile_jinja_template
    for source in lines[1:]:
        line = {"src": source, **told(lambda: compiled(source).render(
            **copy.deepcopy(lines[0])))}
        out.write(json.dumps(line, ensure_ascii=False) + "\n")


def main():
    """by its arguments"""
    chat_template_utils.datetime = Noon
    with open(sys.argv[-1], "w", encoding="utf-8") as out:
        if sys.argv[1] == "chats":
            chats(sys.argv[2], sys.argv[3], out)
        else:
            snippets(sys.argv[2], out)
    print(f"transformers {transformers.__version__}, jinja2 "
          f"{jinja2.__version__}, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
