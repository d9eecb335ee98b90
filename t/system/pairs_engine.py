"""An engine for the tests in pairs: it answers each form of requests, and the
router's questions, well or in one of many bad ways.
"""

import contextlib
import json
import random
import re
import socket
import struct
import threading
import time
import zlib

from scripted import chunk, fixed, head_of_chunks, read_request
from stage import free_port

WORD = re.compile(rb"\w+|[^\w\s]")
VOCABULARY = 50000
HELD = 0.4                      # seconds of an answer that is slow

# What it does with a request, and with a question, while it is faulty.

WAYS = (["well"] * 14 + ["slow"] * 4 + ["busy"] * 3 + ["later"]
        + ["close"] * 2 + ["reset", "cut", "garbage", "hostile", "error",
                           "hang"])
QUESTION_WAYS = ["well"] * 6 + ["slow"] * 5 + [
    "busy", "error", "close", "garbage", "hostile"]

HOSTILE = [
    b"{", b"null", b"[]", b'""', b"[" * 3000, b'{"usage":null}',
    b'{"usage":{"prompt_tokens":-1,"prompt_tokens_details":{"cached_tokens":'
    b'18446744073709551616}}}',
    b'{"usage":{"prompt_tokens":1e999,"prompt_tokens_details":[]}}',
    b'{"tokens":[1,2,-3]}', b'{"tokens":[4294967296],"token_ids":["x"]}',
    b'{"token_ids":' + b"[" * 70 + b"]" * 70 + b"}",
    b'{"kv_transfer_params":"\\ud800","tokens":{}}',
    b'{"kv_transfer_params":{"a":"\\u0000"},"tokens":[]}']


def ids_of(data):
    """Token ids of bytes, the same ones for the same words."""
    return [zlib.crc32(word) % VOCABULARY for word in WORD.findall(data)]


class Engine:
    """One engine, on a port that stays its own while it is dead, too."""

    def __init__(self, name, seed):
        self.name = name
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.faulty = self.pensive = False      # slow at all questions
        self._rng = random.Random(seed)
        self._lock = threading.Lock()
        self._peers = set()
        self._listener = None
        self.live()

    def live(self):
        """It listens."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(512)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,),
                         daemon=True).start()

    def die(self):
        """As a process that is killed: nobody listens, all is reset."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            peers = list(self._peers)
        for peer in peers:
            _reset(peer)

    def _accept(self, listener):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                with self._lock:
                    self._peers.add(peer)
                threading.Thread(target=self._serve, args=(peer,),
                                 daemon=True).start()

    def _serve(self, peer):
        try:
            with contextlib.suppress(OSError):
                going = True
                while going:
                    request = read_request(peer)
                    going = request is not None and self._answer(
                        peer, *request)
        finally:
            with self._lock:
                self._peers.discard(peer)
            peer.close()

    def _answer(self, peer, head, body):
        path = head.split(b" ", 2)[1].decode()
        asked = path.endswith(("/render", "/tokenize"))
        way = "well"
        if self.pensive and asked and b"Hello" not in body:
            way = "slow"
        elif self.faulty and head.startswith(b"POST") and b"Hello" not in body:
            with self._lock:
                way = self._rng.choice(QUESTION_WAYS if asked else WAYS)
        return getattr(self, "_" + way)(peer, path, body)

    # ----------------------------------------------------------------- ways

    def _well(self, peer, path, body):
        known = {
            "/v1/models": b'{"data":[{"id":"m","owned_by":"vllm"}]}',
            "/version": b'{"version":"0.32.0"}', "/health": b"well",
            "/metrics": b'vllm:num_requests_running{engine="0"} 1.0\n'
                        b'vllm:num_requests_waiting{engine="0"} 0.0\n'
                        b'vllm:cache_config_info{num_gpu_blocks="512",'
                        b'block_size="16"} 1.0\n'}.get(path)
        ids = ids_of(body)
        if known is None and path.endswith("/tokenize"):
            known = json.dumps({"count": len(ids), "tokens": ids}).encode()
        elif known is None and path.endswith("/render"):
            known = json.dumps({"token_ids": ids}).encode()
        elif known is None and b'"stream": true' in body:
            return self._stream(peer, path, len(ids), 4)
        if known is None:
            known = json.dumps(_whole(path, self.name, len(ids))).encode()
        peer.sendall(fixed(200, "application/json", known))
        return True

    def _stream(self, peer, path, n, pieces):
        peer.sendall(head_of_chunks(200, "text/event-stream"))
        for number in range(pieces):
            peer.sendall(chunk(b"data: %d\n\n" % number))
            time.sleep(0.01)
        last = json.dumps(_whole(path, self.name, n)).encode()
        peer.sendall(chunk(b"data: " + last + b"\n\ndata: [DONE]\n\n"))
        peer.sendall(chunk(b""))
        return True

    def _slow(self, peer, path, body):
        time.sleep(HELD)
        return self._well(peer, path, body)

    def _busy(self, peer, *_):
        peer.sendall(fixed(503, "text/plain", b"busy"))
        return True

    def _later(self, peer, *_):
        peer.sendall(b"HTTP/1.1 503 Later\r\nRetry-After: 1\r\n"
                     b"Content-Length: 0\r\n\r\n")
        return True

    def _error(self, peer, *_):
        peer.sendall(fixed(500, "text/plain", b"error"))
        return True

    def _close(self, *_):
        return False

    def _reset(self, peer, *_):
        _reset(peer)
        return False

    def _cut(self, peer, *_):
        peer.sendall(head_of_chunks(200, "text/event-stream"))
        peer.sendall(chunk(b"data: 1\n\n"))
        _reset(peer)
        return False

    def _garbage(self, peer, *_):
        peer.sendall(b"HTTP/1.1 200 OK\r\n\0\1\2 what is this?\r\n\r\n")
        return False

    def _hostile(self, peer, *_):
        with self._lock:
            body = self._rng.choice(HOSTILE)
        peer.sendall(fixed(200, "application/json", body))
        return True

    def _hang(self, peer, *_):
        while peer.recv(65536):
            pass
        return False


def _whole(path, name, n):
    """A whole answer, with the usage where the path's API has it."""
    usage = {"prompt_tokens": n, "total_tokens": n + 2, "completion_tokens": 2,
             "prompt_tokens_details": {"cached_tokens": n // 2},
             "input_tokens": n, "cache_read_input_tokens": n // 2,
             "input_tokens_details": {"cached_tokens": n // 2}}
    return {"id": "x", "usage": usage, "choices": [{
        "index": 0, "text": name, "message": {
            "role": "assistant", "content": f"I am {name}"}}],
            "content": [{"type": "text", "text": name}],
            "meta_info": {"prompt_tokens": n, "cached_tokens": n // 2},
            "kv_transfer_params": {"remote_host": name, "path": path}}


def _reset(peer):
    """Ends a connection by RST."""
    with contextlib.suppress(OSError):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                        struct.pack("ii", 1, 0))
        peer.shutdown(socket.SHUT_RD)   # wakes who waits in recv()
    with contextlib.suppress(OSError):
        peer.close()
