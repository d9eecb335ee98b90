#!/usr/bin/python3
"""fuzz/seeds.py DIR -- writes the seeds of the fuzz targets below DIR.

Events are those of t/vectors, as the engine sent them, in an envelope, and as
RouterEvents; request bodies and operations on the index are made here.
"""

import json
import random
import sys
from pathlib import Path

import msgpack

VECTORS = Path(__file__).resolve().parent.parent / "t" / "vectors"
EPOCH = 1700000000000

BODIES = [
    '{"model":"m","prompt":[1,2,3,4294967295],"stream":true}',
    '{"prompt":[[1,2],[3]],"max_tokens":16,"cache_salt":"a\\u00e9\\n"}',
    '{"prompt_token_ids":[0],"model":"\\ud83d\\ude00","stream":false}',
    '{"input_ids":[[5,6,7]],"prompt":"text","messages":[{"role":"user"}]}',
    ' { "prompt" : [ 1 , 2 ] , "x" : { "y" : [ null , -1.5e+3 ] } } ',
    '{"prompt":["a","b"],"max_tokens":18446744073709551615}',
    '{"prompt":[1,2],"prompt":[3],"model":"one","model":"two"}',
    '{"a":' + "[" * 64 + "]" * 64 + "}",
    "[1,22,333,4444,55555,666666,7777777,88888888,999999999,4294967295]",
    "[ 1, 2,\t3,\n4 ]",
    '{"k":"' + "x" * 200 + '","prompt":[' + ",".join(
        str(n * 977 % 151936) for n in range(200)) + "]}",
    '[true,false,null,0,-0,1e5,1.25,"\\\\\\"\\/\\b\\f\\n\\r\\t"]',
]

CHATS = [
    '{"messages":[{"role":"user","content":"' + "caf\u00e9 \u4f60\u597d " * 20
    + '\\n\\u00e9 \\ud83d\\ude00"},{"role":"assistant","content":[{"type":'
    '"text","text":"\U0001f600"}]}],"tools":[{"type":"function"}]}',
    '{"a":[' + ",".join(["null"] * 9) + '],"b":[1,2,3],"c":[[4],[5,6]]}',
    '{"prompt":[' + ", ".join(str(10 ** (n % 10)) for n in range(90)) + "]}",
    '{"x":"' + "y" * 31 + '\\"' + "z" * 64 + '\\\\"}',
]

ROUTER_EVENTS = [
    {"worker_id": "w", "event": {"event_id": 1, "dp_rank": 0, "data": {
        "stored": {"parent_hash": None, "blocks": [
            {"block_hash": 1, "tokens_hash": 18446744073709551615}]}}}},
    {"worker_id": 7, "storage_tier": "disk", "event": {
        "event_id": 2, "dp_rank": 3, "data": {"stored": {
            "parent_hash": 1, "blocks": [
                {"block_hash": 2, "tokens_hash": 3, "mm_extra_info": None},
                {"block_hash": 4, "tokens_hash": 5}]}}}},
    {"worker_id": 7, "event": {"event_id": 3, "data": {
        "removed": {"block_hashes": [1, 2, 4]}}}},
    {"worker_id": 7, "event": {"event_id": 4, "data": "cleared"}},
]

TENSORRT = [
    {"event_id": 0, "window_size": 64, "attention_dp_rank": 1, "data": {
        "type": "created", "num_blocks_per_cache_level": [5, 2]}},
    {"event_id": 1, "data": {"type": "stored", "parent_hash": None, "blocks": [
        {"type": "stored_block", "block_hash": 18446744073709551615,
         "tokens": [{"token_id": 5, "token_extra_id": 0}, {"token_id": 6}],
         "cache_level": 0, "priority": 35, "cache_salt": "s", "mm_keys": [
             {"type": "mm_key", "hash": "00" * 16, "start_offset": 0}]},
        {"block_hash": "-7", "cache_salt": "s", "cache_level": 1,
         "tokens": [{"token_id": "7"}, {"token_id": 8}]},
        {"block_hash": 9, "cache_salt": "s", "tokens": [{"token_id": 7}]}]}},
    {"event_id": 2, "window_size": 64, "data": {
        "type": "updated", "block_hash": 9, "priority": None, "cache_level": {
            "type": "event_diff", "old_value": 0, "new_value": 1}}},
    {"event_id": 3, "window_size": 32, "data": {
        "type": "removed", "block_hashes": [9, "ff00ff00ff00ff00"]}},
]

RFC_1527 = [
    {"event_id": 1, "timestamp": 5, "event_type": "stored", "model_name": "m",
     "block_size": 2, "additional_salt": "s", "lora_name": None,
     "tenant_id": "default", "backend_id": "b", "medium": "cpu", "dp_rank": 1,
     "seq_hashes": [42, 43], "base_block_idx": 0, "parent_hash": None,
     "token_ids": [1, 2, 3, 4], "group_id": "0"},
    {"event_id": 2, "event_type": "removed", "medium": "disk", "dp_rank": 1,
     "seq_hashes": [42], "base_block_idx": None},
    {"event_id": 3, "event_type": "cleared", "tenant_id": "other"},
]

ENGINE = [
    ["BlockStored", [7, 8], None, [[1, 2], [2, 3], [3, 4], [4, 5]], 2],
    {"type": "BlockRemoved", "block_hashes": [1, 2], "locality": "LOCAL",
     "remaining_copy_counts": [0, 1], "group_idx": 1},
    {"type": "BlockStored", "block_hashes": [b"0123456789abcdef", "ff" * 32],
     "parent_block_hash": -5, "token_ids": [1, 2, 3, 4], "block_size": 2,
     "origin": "REUSED", "kv_cache_spec_kind": "full_attention",
     "metadata": {"cache_salt": "s", "session_id": "x"}, "block_mm_infos": [
         None, {"mm_objects": [{"mm_hash": 1, "offsets": []}]}],
     "extra_keys": [["0123456789abcdef" * 4], [["ab" * 32, -3], "lora"]]},
    ["BlockStored", [9], 8, [], 0, None, "CPU_TIER2"],
    {"type": "BlockStored", "block_hashes": [-7], "parent_block_hash": None,
     "token_ids": [1, 2], "block_size": 2, "lora_id": None, "medium": "GPU",
     "cache_salt": "tenant", "session_id": "x", "lora_name": "sql",
     "metadata": {"cache_salt": "other"}},
]


def envelope(seq, payload, rank=None):
    """What the relay sends, around a batch or nothing."""
    return msgpack.packb(["kvr1", "w", EPOCH, seq, True, rank, payload])


def words(*numbers):
    """Hashes, as a normalised batch has them."""
    return b"".join(number.to_bytes(8, "little") for number in numbers)


def events():
    """Messages; the first byte says whether the worker is salted."""
    cases = json.loads((VECTORS / "kv_events.json").read_text())["cases"]
    for number, case in enumerate(cases):
        if "payload_hex" in case:
            payload = bytes.fromhex(case["payload_hex"])
            yield bytes([number & 1]) + payload
            if number % 4 == 0:
                yield b"\0" + envelope(number, payload)
    batch = msgpack.packb([
        ["s", 0, 0, None, words(1, 2), words(3, 4)],
        ["s", 1, 2, 2, words(5), words(6)], ["r", 0, 0, words(2, 9)],
        ["c", 0], ["s", 0, 1, None, words(1), b""],
        ["g", 1, 0, 3, 2, 16], ["b", 1, 0, words(2, 5), words(6)]])
    yield b"\0" + batch
    yield b"\0" + envelope(1, batch, 3)
    yield b"\0" + envelope(1, None)
    for event in ROUTER_EVENTS:
        yield b"\0" + json.dumps(event).encode()
    yield b"\0" + json.dumps(ROUTER_EVENTS).encode()
    for number, event in enumerate(TENSORRT):
        yield bytes([2 * number]) + json.dumps(event).encode()
    for row in (TENSORRT, RFC_1527, [7, RFC_1527, 1]):
        yield b"\0" + json.dumps(row).encode()
    for row in (RFC_1527, ENGINE):
        yield b"\1" + msgpack.packb([1.5, row, 3, "later"])
        yield b"\0" + msgpack.packb({"ts": 1.5, "events": row,
                                     "data_parallel_rank": 1})
    yield b"\0" + envelope(1, json.dumps(TENSORRT).encode())
    yield b"\0" + b"\n".join(json.dumps(e).encode() for e in RFC_1527)


def operations():
    """Rows of operations on the index; see op_read() in fuzz_index.c."""
    rng = random.Random(1)
    for size in (16, 64, 256, 1024, 2400):
        for room in range(16):
            yield bytes([room]) + rng.randbytes(size)
    for room in range(16):
        row = bytearray([room])
        for number in range(120):
            long = 0x60 if rng.random() < 0.3 else rng.choice((0, 0x40))
            kind = rng.choice((0, 0, 0, 7, 8, 11, 14, 12, 15))
            row.append(kind)
            if kind == 15:
                row.append(rng.randrange(256))
            elif kind == 12:
                row += rng.randbytes(4)
            else:
                row += bytes([
                    long | rng.randrange(4) | rng.choice((0, 0, 0, 0x14, 0x18)),
                    rng.choice((0, 0, rng.randrange(40))),
                    rng.randrange(256), rng.randrange(256),
                    rng.randrange(256), rng.randrange(4) * 10 + number % 3])
        yield bytes(row)


def stored(handles, parent, tokens, *more):
    """An engine's store of blocks of 4."""
    return ["BlockStored", handles, parent, tokens, 4, None, *more]


# copies, blocks that come back, filtered ones, groups, and a circle
ENGINE_EVENTS = [
    [stored([1, 2, 3], None, [*range(12)]), stored([3], 2, [8, 9, 10, 11]),
     ["BlockRemoved", [3]], ["BlockRemoved", [3, 2, 1]]],
    [["BlockStored", [3], None, [], 0, None, "CPU"],
     stored([4], 3, [1, 2, 3, 4]), ["BlockRemoved", [3], "CPU"]],
    [stored([5, 6], None, [*range(8)], "GPU", None, [None, ["key"]]),
     stored([7], 6, [1, 2, 3, 4]), ["BlockRemoved", [6]]],
    [stored([8], None, [1, 2, 3, 4], "GPU", None, None, 1, "mamba"),
     ["BlockRemoved", [8], "GPU", 1],
     stored([9], None, [1, 2, 3, 4], "GPU", None, None, 2, "mla_attention"),
     ["BlockRemoved", [9], "GPU", 2]],
    [stored([1], None, [1, 2, 3, 4]), stored([2], 1, [1, 2, 3, 4]),
     stored([1], 2, [1, 2, 3, 4]), ["BlockRemoved", [1, 2]],
     ["BlockStored", [1, 2], None, [], 0, None, "DISK"],
     ["AllBlocksCleared"]],
    [["BlockStored", [1], None, [*range(8)], 8, None, "GPU", None, None, 1,
      "full_attention"],
     stored([2], 9, [1, 2, 3, 4], "GPU", None, None, 1, "full_attention"),
     ["BlockRemoved", [2], "GPU", 1]],
    [stored([1, 2], None, [*range(8)], "GPU", None, None, 0,
            "sliding_window", 9),
     stored([1, 2], None, [*range(8)], "GPU", None, None, 1,
            "sliding_window", 9),
     stored([1, 2], None, [*range(8)], "GPU", None, None, 2,
            "full_attention"),
     stored([2], 1, [1, 2, 3, 4], "GPU", None, None, 3,
            "chunked_local_attention"),
     ["BlockRemoved", [2], "GPU", 0], ["BlockRemoved", [1], "GPU", 2],
     ["BlockRemoved", [1, 2], "GPU", 1]],
]


def message(what, data):
    """One message of a stream; see fuzz_ingest.c."""
    return bytes([what]) + len(data).to_bytes(2, "little") + data


def streams():
    """Rows of messages for a whole zone."""
    batches = [[["s", 0, 0, None, words(1, 2, 3), words(1, 2, 3)]],
               [["s", 0, 0, 3, words(4, 5), words(4, 5)],
                ["r", 0, 0, words(2)]],
               [["s", 0, 1, 1, words(2), words(2)], ["s", 1, 0, 9, words(8),
                                                     words(8)]],
               [["c", 0], ["s", 0, 0, None, words(1), words(7)]],
               [["r", 0, 0, words(1, 5)]],
               [["s", 0, 0, None, words(6, 7), words(1, 2, 3, 4, 5, 6)],
                ["s", 0, 1, None, words(6), b""], ["r", 0, 0, words(6)],
                ["s", 0, 0, 7, words(6), words(7, 8)]]]
    sent = [envelope(number + 1, msgpack.packb(batch))
            for number, batch in enumerate(batches)]
    yield b"".join(message(1, data) for data in sent)
    yield b"".join(message(3, sent[number]) for number in (0, 1, 3, 2, 2, 4))
    yield message(1, sent[0]) + message(1, envelope(9, None)) + message(
        15, b"\1\2") + message(14, b"") + message(5, sent[1])
    text = [json.dumps(event).encode() for event in ROUTER_EVENTS]
    yield b"".join(message(0x11, data) for data in text)
    for data in events():
        yield message(1, data[1:]) + message(0x13, data[1:])
    yield b"".join(message(1, msgpack.packb([1.5, engine_events, 0]))
                   for engine_events in ENGINE_EVENTS)
    yield b"".join(message(3, msgpack.packb([1.5, [event]]))
                   for batch in ENGINE_EVENTS for event in batch)


def record(handle, parent, *local, copies=(1, 0, 0, 0), flags=0, why=0,
           seed=1337):
    """A block in a relay's saved state; see src/normalise/kvr_normalise_save.c."""
    return (words(handle, parent, 99, seed)
            + b"".join(n.to_bytes(2, "little") for n in copies)
            + len(local).to_bytes(2, "little") + bytes([flags, why])
            + words(*local))


def states():
    """Events, parts of snapshots and of saved state; see fuzz_engine.c."""
    def part(rank, groups, *blocks):
        return msgpack.packb(["kve4", rank, groups, b"".join(blocks)])

    chain = msgpack.packb([["s", 0, 0, None, words(1, 2, 3), words(4, 5, 6)],
                           ["r", 0, 0, words(2)]])
    spans = msgpack.packb([["s", 1, 1, None, words(7), words(1, 2)]])
    groups = (b"\1\0\0\0\2\0\0\0\0\0\0\0\0\xff"
              b"\3\0\0\0\1\4\0\0\0\0\0\0\0\xff")
    classed = msgpack.packb(["kve4", 0, (
        b"\0\0\0\0\1\4\0\0\0\0\0\0\0\xff"
        b"\1\0\0\0\3\4\0\0\0\11\0\0\0\0"),
        record(1, 0, flags=0x10)])
    parts = [classed,
             part(0, groups, record(1, 0, 4, copies=(3, 0, 0, 0)),
                  record(2, 1, 5, flags=1, copies=(0, 0, 0, 0))),
             part(0, b"", record(9, 2, 8, flags=1), record(10, 9, 7, flags=1)),
             part(0, b"", record(11, 12, 1, flags=1),
                  record(12, 11, 1, flags=1)),
             part(1, b"", record(7, 0, 1, 2, copies=(0, 65535, 0, 0), seed=5)),
             part(2, b"", record(20, 0, flags=2, why=4),
                  record(21, 20, flags=3, why=1)),
             part(3, b"\0" * 4 + b"\1" + b"\0" * 8 + b"\xff")]
    later = [msgpack.packb([1.5, batch, rank])
             for rank, batch in enumerate(ENGINE_EVENTS)]
    later += [msgpack.packb([1.5, [
        ["BlockStored", [10, 9], None, [], 0, None, "CPU"],
        stored([30], 12, [1, 2, 3, 4]), stored([31], 21, [1, 2, 3, 4]),
        ["BlockRemoved", [1, 2, 3, 9]], ["BlockRemoved", [1], "CPU"]]])]
    for data in (*parts, chain, spans):
        yield message(0, chain) + message(2, data)
    yield b"".join([message(0, chain), message(0, spans),
                    *(message(2, data) for data in parts),
                    *(message(1, data) for data in later),
                    message(3, b""), *(message(2, data) for data in parts)])
    for data in later:
        yield (message(1, data) + message(2, parts[0]) + message(0, chain)
               + message(2, parts[1]) + message(1, later[-1]))


def event(name, count, *, view=0, parent=0, how=0, shape=0x0AAA):
    """The six bytes of an event: handles name, name + 1, ..."""
    return bytes([how | view, parent, count - 1, shape & 255, shape >> 8,
                  name])


def rolled_back():
    """Rows whose last transaction, of two events, is rolled back: memory
    that the first gives up and the second takes."""
    room, store, remove, backwards = b"\7", b"\0", b"\7", 0x40
    look = bytes([13, 0, 5, 1, 0])              # at the chain of handle 21
    yield (room + store + event(10, 12)         # an end, and another one
           + b"\x2e" + event(18, 4, how=backwards)
           + event(18, 4, parent=17, shape=0x0555) + look)
    yield (room + b"".join(store + event(10, 12, view=view)
                           for view in range(3))
           + remove + event(13, 1)              # holes, the last one filled,
           + remove + event(13, 1, view=1)      # and a third view's
           + b"\x3e" + event(13, 1, view=1, parent=12, shape=1)
           + event(15, 1, view=2) + look + bytes([13, 1, 5, 1, 0]))
    yield (room + store + event(10, 12)         # a whole run, and another
           + b"\x2e" + event(10, 12, how=backwards)
           + event(40, 12, view=1, shape=0x0555) + look)


def answers():
    """Answers of engines: metrics, and the ends of completions."""
    metrics = ('# TYPE vllm:num_requests_waiting gauge\n'
               'vllm:num_requests_waiting{engine="1",model_name="a\\"b"} 3.0\n'
               'vllm:num_requests_running 1e1 1700000000\n'
               'vllm:kv_cache_usage_perc{engine="0"} 0.25\n'
               'sglang:num_queue_reqs{dp_rank="2"} NaN\n')
    usage = ('"usage":{"prompt_tokens":70,"prompt_tokens_details":'
             '{"cached_tokens":64},"total_tokens":75}')
    yield metrics.encode()
    yield (f"HTTP/1.1 200 OK\r\nContent-Length: {len(metrics)}\r\n\r\n"
           + metrics).encode()
    yield ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
           f"{len(metrics):x}\r\n{metrics}\r\n0\r\n\r\n").encode()
    yield b"HTTP/1.0 404 Not Found\r\nServer: x\r\n\r\nnothing"
    yield ('{"choices":[{"text":"x"}],' + usage + "}").encode()
    yield (" " * 900 + usage + ',"prompt_logprobs":null}').encode()
    yield (f'data: {{"choices":[],{usage}}}\n\ndata: [DONE]\n\n').encode()
    yield b'{"meta_info":{"prompt_tokens":9,"cached_tokens":8}}'
    yield (b": ping\r\n\r\nevent: response.created\ndata: {}\n\n"
           b"event: message_start\ndata: {}\n\nevent: ping\ndata: {}\n\n"
           b"event: response.output_item.added\ndata: {}\n\n")


def relays():
    """What is said to a relay; see fuzz_relay.c."""
    replay, trtllm, ranks, room, salted, once = (1 << bit for bit in range(6))
    up, down = message(8, b"\1"), message(8, b"\0")
    works, later = message(13, b""), message(10, b"\x28")
    there, gone, ask = message(6, b"\1"), message(6, b"\0"), message(11, b"")
    end, stop = message(4, b"\xff"), message(12, b"")
    begun = up + works * 8

    batches = [msgpack.packb([1.5, batch]) for batch in ENGINE_EVENTS]
    maps = [msgpack.packb([1.5, [{
        "type": "BlockStored", "block_hashes": [-1, 2], "block_size": 4,
        "parent_block_hash": None, "token_ids": [*range(8)], "lora_id": None,
        "medium": "GPU", "lora_name": None}], 0]),
            msgpack.packb({"ts": 1.5, "events": [
                {"type": "BlockRemoved", "block_hashes": [2],
                 "medium": "GPU"}], "data_parallel_rank": 1})]

    def said(what, number, payload, rank=0):
        return message(what | rank << 4, bytes([number]) + payload)

    def parts(what, *frames):
        return message(what, b"".join(len(frame).to_bytes(2, "little") + frame
                                      for frame in frames))

    live = b"".join(said(2, n, data) for n, data in enumerate(batches))
    again = b"".join(said(4, n, data) for n, data in enumerate(batches))

    yield bytes([room]) + begun + there + live + works + stop + works
    yield (bytes([replay | room]) + begun + there + again + end + works * 2
           + said(2, 9, batches[0]) + again + end + works)
    yield (bytes([replay]) + begun + there + again + end + works + down + live
           + up + works * 4 + later + gone + there + end + again + end + works)
    yield (bytes([replay | ranks | room]) + begun + there
           + message(0x16, b"\1") + end + message(0x14, b"\xff")
           + said(2, 0, maps[0]) + said(2, 0, maps[1], 1) + works * 2 + ask
           + works * 4)
    topic = b"kv@a\0sgl-kv-epoch=one"
    for number, data in enumerate(batches):
        seq = number.to_bytes(8, "big")
        yield (bytes([once]) + begun + there + parts(0, topic, seq, data)
               + parts(0, topic + b"2", seq, data) + parts(0, seq)
               + parts(0, b"", b"", topic, seq, data) + works)
        yield (bytes([replay | salted]) + begun + there
               + parts(1, b"", seq, data) + parts(1, b"", topic, seq, data)
               + parts(1, b"", b"\xff" * 8) + parts(1, b"", b"", b"\xff" * 8,
                                                    b"") + works)
    for row in (TENSORRT, TENSORRT[1:3] * 2, [], {"error": 1}):
        data = json.dumps(row).encode()
        yield (bytes([trtllm | room]) + begun
               + (message(7, b"\0" + data) + later) * 3 + message(7, b"\7")
               + later + message(7, b"\4") + later + works * 2)

    def text(*values):
        """An array, as Redis answers it."""
        return b"*%d\r\n" % len(values) + b"".join(
            value if value[:1] == b"*" else b"$-1\r\n" if value == b"-"
            else b"$%d\r\n%s\r\n" % (len(value), value)
            for value in values)

    def answer(data):
        return message(9, data)

    def bulk(data):
        return answer(b"$%d\r\n%s\r\n" % (len(data), data))

    part = msgpack.packb([["s", 0, 0, None, words(1, 2, 3), words(4, 5, 6)]])
    state = msgpack.packb(["kve4", 0, b"", record(1, 0, 4, copies=(3, 0, 0, 0))])
    lines = [b"kv-relay 2 0 0\nsource 0 1\nlast 5 77 1 - \n",
             b"kv-relay 2 64 1\nsource 0 1\n"
             b"last 5 0 0 -one an offloaded block was lost\n"
             b"source 1 2\nlast 6 7 2 - \n"]
    entry = msgpack.packb(["kvr1", "w", EPOCH, 8, True, 0,
                           msgpack.packb([["r", 0, 0, words(3)]]), 6])
    for epoch, line in ((b"%d" % EPOCH, lines[0]), (b"%d" % EPOCH, lines[1]),
                        (b"18446744073709551615", lines[0])):
        yield (bytes([replay | room]) + up + answer(b"+OK\r\n")
               + answer(b"$%d\r\n%s\r\n" % (len(epoch), epoch))
               + answer(text(text(epoch + b"-7", text(b"m", entry))))
               + answer(text(epoch, b"7", b"1", b"2", b"1", b"4", b"0"))
               + bulk(part) + bulk(line) + bulk(state)
               + answer(text(text(epoch + b"-8", text(b"m", entry))))
               + works + there + said(4, 5, batches[0]) + end + works)
    yield (bytes([replay | room]) + begun + there + end + later + down + up
           + answer(b":1\r\n") + answer(b"-ERR no\r\n"))
    yield (bytes([replay | room]) + begun + there + answer(b":1\r\n") + again
           + end + answer(b"-OOM no\r\n") * 3 + later + works * 3 + ask + later
           + answer(b"$-1\r\n") + answer(b"-OOM no\r\n") * 3 + works)


def members():
    """What is said of a worker; see fuzz_member.c."""
    def field(number, value):
        return message(number << 4, value)

    def pointer(*values):
        return message(4, b"".join(
            b"\xff" if value is None
            else bytes([len(str(value))]) + str(value).encode()
            for value in values))

    register = message(6, b"")
    good = b"".join(field(number, value) for number, value in enumerate((
        b"127.0.0.1:8000", b"m", b"sql,chat", b"2", b"prefill", b"0.5",
        b"vllm", b"0", b"8192", b"4", b"0", b"1", b"late")))
    part = msgpack.packb([["s", 0, 0, None, words(1, 2, 3), words(4, 5, 6)],
                          ["s", 1, 1, None, words(7), words(7)],
                          ["r", 0, 0, words(2)]])
    later = envelope(8, msgpack.packb([["c", 0]]))
    yield good + register + pointer(1, EPOCH, 7, 1, 1, 4) + message(
        5, part) + message(5, later) + message(5, b"") + register
    yield good + register + pointer(1, EPOCH, 7, 0, 0, 8) + pointer(
        *[None] * 6) + pointer(2, 0, 18446744073709551615, 2, 65537, 4)
    for value in (b"[::1]:1", b"unix:/a/b", b"host:1", b"1.2.3.4:65536", b""):
        yield field(0, value) + register + message(2, value)
    for number, values in enumerate(((), (b"m", b"x" * 128, b"a\x7f"),
                                     (b"a,,b", b"x" * 512, b"\n"),
                                     (b"0", b"1024", b"1025", b"4294967297"),
                                     (b"both", b"decode", b"none"),
                                     (b".5", b"1e3", b"nan", b"0x1p3"),
                                     (b"vllm", b"none"), (b"1", b"2"),
                                     (b"0", b"1048577"), (b"4", b"16"),
                                     (b"1", b"2"), (b"0", b"yes"),
                                     (b"\n", b"x" * 200))):
        for value in values:
            yield good + field(number, value) + register + message(7, b"")
    for value in (b"redis://", b"redis://u:p%40@[::1]:6379/15", b"unix:/r?db=1",
                  b"redis://:p@h:1/0", b"rediss://h", b"unix://", b"redis://%2",
                  b"redis://" + b"h" * 300, b"redis://h:70000/1?x"):
        yield message(3, value)


def syncs():
    """Messages of routers."""
    head = [1, 0xFEDCBA9876543210, 77, 1 << 40]
    about = [5, 123456, False, "router-a", "0.1.0"]
    rows = [[7, 1, 1, 4096, 20, 300], [2**64 - 1, 0, 0, 0, 0, 0]]
    adds = [[1, 7, bytes(range(198))], [2**32 - 1, 8, b""]]
    for more in ([None, [], [], []], [about, rows, [], []],
                 [None, rows, adds, []], [None, [], [], [1, 70000]],
                 [about + [1], rows * 64, adds * 12, [*range(256)], {"x": 1}],
                 [None, [[7, -1, 2**41, 1.5, 0, 0]], [], []],
                 [None, [], [[1, 0, b"x" * 5]], []], [None, rows * 65, [], []]):
        yield msgpack.packb(head + more)


def tapes():
    """Texts for the tape: those of BODIES, and longer ones; some ill-formed."""
    for text in BODIES + CHATS:
        yield text.encode()
    for character in b"\xc3", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80":
        yield b'{"a":"' + b"x" * 40 + character + b'"}'
    for escape in "\\ud800", "\\udc00", "\\ud83dx\\ude00":
        yield ('["' + escape + '"]').encode()


def tokenizers():
    """Small tokenizers, with a component of each kind."""
    for parts in (
            {"pre_tokenizer": {"type": "ByteLevel"}},
            {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁"},
             "post_processor": {
                 "type": "TemplateProcessing",
                 "single": [{"SpecialToken": {"id": "a"}},
                            {"Sequence": {"id": "A"}}],
                 "special_tokens": {"a": {"ids": [0]}}}},
            {"normalizer": {"type": "Sequence", "normalizers": [
                {"type": "NFKC"}, {"type": "Strip", "strip_left": True},
                {"type": "Prepend", "prepend": "ab"}]}},
            {"pre_tokenizer": {"type": "Split", "behavior": "Isolated",
                               "pattern": {"Regex": "[a-z&&[^b]]+|\\p{N}"}}},
            {"normalizer": {"type": "Replace", "pattern": {"String": " "},
                            "content": "▁"}},
            {"added_tokens": [{"id": 3, "content": "<|im_end|>",
                               "special": True, "lstrip": True}]}):
        yield json.dumps({"model": {
            "type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2},
            "merges": ["a b"]}, **parts}).encode()


def main():
    """Writes all of them."""
    for name, seeds in (("index", [*operations(), *rolled_back()]),
                        ("event", events()), ("ingest", streams()),
                        ("engine", states()), ("relay", relays()),
                        ("member", members()), ("sync", syncs()),
                        ("json", (body.encode() for body in BODIES)),
                        ("tape", tapes()),
                        ("answer", answers()),
                        ("tokenizer", tokenizers())):
        folder = Path(sys.argv[1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds):
            (folder / f"{number:03}").write_bytes(seed)


if __name__ == "__main__":
    main()
