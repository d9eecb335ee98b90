# Copyright (C) the nginx-kv-router authors

"""Scripts: what engines store and drop, and what is asked, as a file.

Both programs read the same file and do the same in the same order; each
lookup comes with its answer, worked out here by a plain model (a trie, and how
much each worker holds of each of its edges), so that no index is measured
against itself.

A prompt is a row of segments, a segment a number and a length; block j of
segment g has the hash local(g, j) of workload.h.  All numbers are little
endian:

    u32 magic, nprompts, nsegments, nops
    nprompts  x u32  the prompt's segments
    nsegments x u64 number, u32 blocks, u32 0        prompt after prompt
    nops      x u32 kind, worker, prompt, from, n, holders

    'f'  find     the first n blocks of the prompt.  The best match is `from`
                  blocks, the worker has that much, `holders` have any
    's'  store    the worker stores blocks [from, from + n) in one event
    'r'  remove   the worker drops the same, the last one first
"""

import json
import struct

MAGIC = 0x3142564b
WORKERS = 128
BLOCK = 16                      # tokens, of the trace's prompts
TOKENS_PER_ID = 512             # of the trace

CHAT_SEGMENT = 1 << 40          # first number
CHAT_CONVERSATIONS = 6000
CHAT_SYSTEMS = 16
CHAT_TURNS = 12                 # at most
CHAT_ROOM = 32                  # numbers of a conversation
TRACE_SEGMENT = 1 << 41


def mix(x):
    """The finaliser of splitmix64, as in workload.h."""
    x = (x + 0x9e3779b97f4a7c15) & (1 << 64) - 1
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & (1 << 64) - 1
    x = (x ^ x >> 27) * 0x94d049bb133111eb & (1 << 64) - 1
    return x ^ x >> 31


class Script:
    """The operations, and the model that knows what they lead to."""

    def __init__(self):
        self.prompts = []       # [[(segment, blocks)]]
        self.ops = []
        self.pairs = 0
        self.edges = {}         # (edge, segment) -> edge; 0 is the root
        self.held = [None]      # of an edge: {worker: blocks}

    def prompt(self, segments):
        self.prompts.append(segments)
        return len(self.prompts) - 1

    def depths(self, prompt):
        """{worker: blocks it holds}, those with none left out."""
        depths, edge, base, on = {}, 0, 0, None

        for segment, blocks in self.prompts[prompt]:
            edge = self.edges.get((edge, segment))
            if edge is None:
                break
            held = self.held[edge]
            for worker in held if on is None else on:
                if held.get(worker):
                    depths[worker] = base + min(held[worker], blocks)
            on = [w for w in (held if on is None else on)
                  if held.get(w, 0) >= blocks]
            base += blocks

        return depths

    def find(self, prompt):
        """Writes a lookup; the worker with the longest match, and that."""
        depths = self.depths(prompt)
        best = max(depths.values(), default=0)
        worker = min((w for w, d in depths.items() if d == best), default=0)
        self.ops.append((ord('f'), worker, prompt, best, self.blocks(prompt),
                         len(depths)))
        return worker, best

    def store(self, worker, prompt):
        """An engine has computed a prompt: it tells what it hadn't before."""
        start = self.depths(prompt).get(worker, 0)
        n = self.blocks(prompt) - start
        edge = 0

        if n == 0:
            return

        self.ops.append((ord('s'), worker, prompt, start, n, 0))
        self.pairs += n

        for segment, blocks in self.prompts[prompt]:
            edge = self.edges.setdefault((edge, segment), len(self.held))
            if edge == len(self.held):
                self.held.append({})
            held = self.held[edge]
            held[worker] = max(held.get(worker, 0), blocks)

    def remove_all(self):
        """What was stored, backwards."""
        self.ops += [(ord('r'),) + op[1:] for op in reversed(self.ops)
                     if op[0] == ord('s')]

    def blocks(self, prompt):
        return sum(blocks for _, blocks in self.prompts[prompt])

    def write(self, path):
        segments = [s for p in self.prompts for s in p]

        with open(path, 'wb') as f:
            f.write(struct.pack('<4I', MAGIC, len(self.prompts),
                                len(segments), len(self.ops)))
            f.write(struct.pack('<%dI' % len(self.prompts),
                                *map(len, self.prompts)))
            for number, blocks in segments:
                f.write(struct.pack('<QII', number, blocks, 0))
            for op in self.ops:
                f.write(struct.pack('<6I', *op))


def chat():
    """Conversations of several turns, turns taken in rounds.

    16 system prompts of 16 to 256 blocks; a turn, question and answer, adds 2
    to 49 blocks, mostly few.  Each fourth conversation is another one up to
    some turn, and goes on differently (an edited question, an answer made
    anew).  Each eighth turn goes to another worker, which must compute the
    whole prompt, but for what it has.  Then the next turn of each, which is
    new, is looked up.
    """
    script = Script()
    talks = []

    def dice(c, t, what):
        return mix(mix(CHAT_SEGMENT + c * CHAT_ROOM + t) + what)

    for c in range(CHAT_CONVERSATIONS):
        turns = 1 + min(dice(c, 0, 0) % CHAT_TURNS, dice(c, 0, 1) % CHAT_TURNS)
        system = min(dice(c, 0, 2) % CHAT_SYSTEMS,
                     dice(c, 0, 3) % CHAT_SYSTEMS)
        parts = [(CHAT_SEGMENT - 1 - system, 16 + system * 16)]
        worker = dice(c, 0, 4) % WORKERS

        for t in range(turns + 1):
            few = min(dice(c, t, 5) % 48, dice(c, t, 6) % 48)
            parts.append((CHAT_SEGMENT + c * CHAT_ROOM + t, 2 + few))

        if c % 4 == 3:
            _, other = talks[c - 1]
            same = 1 + dice(c, 0, 7) % (len(other) - 1)
            parts = other[:same] + parts[1:]
            worker = talks[c - 1][0]

        talks.append((worker, parts))

    rounds = max(len(parts) for _, parts in talks)

    for t in range(2, rounds):
        for c, (worker, parts) in enumerate(talks):
            if t < len(parts):
                if dice(c, t, 8) % 8 == 0:
                    worker = dice(c, t, 9) % WORKERS
                script.store(worker, script.prompt(parts[:t]))

    for _, parts in talks:
        script.find(script.prompt(parts))

    script.remove_all()
    return script


def trace(path):
    """The Mooncake conversation trace, prompts in blocks of 16 tokens.

    Requests of one timestamp come together: all are looked up, then stored.
    Each goes to the worker with the longest match where that is at least half
    of the prompt, else to the next in turn.  Nothing is dropped until the end.
    """
    script = Script()
    now, turn, waiting = None, 0, []

    with open(path, encoding='utf-8') as lines:
        requests = [json.loads(line) for line in lines]

    for request in requests + [None]:
        if request is None or request['timestamp'] != now:
            for worker, prompt in waiting:
                script.store(worker, prompt)
            waiting = []

        if request is None:
            break

        now = request['timestamp']
        left = request['input_length'] // BLOCK
        parts = []

        for number in request['hash_ids']:
            blocks = min(left, TOKENS_PER_ID // BLOCK)
            if blocks:
                parts.append((TRACE_SEGMENT + number, blocks))
            left -= blocks

        if not parts:
            continue

        prompt = script.prompt(parts)
        worker, best = script.find(prompt)

        if best * 2 < script.blocks(prompt):
            worker = turn
            turn = (turn + 1) % WORKERS

        waiting.append((worker, prompt))

    script.remove_all()
    return script
