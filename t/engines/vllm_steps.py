"""vLLM's scheduler, of which each step is a line of a file:

    vllm serve … --no-async-scheduling --scheduler-cls vllm_steps.Steps

The environment variable STEPS names the file.  A line is a JSON object: `at`
and `end`, in seconds of the machine's monotonic clock, from before the step is
scheduled until its tokens are handed out; `prefill`, for each part of a prompt
its tokens and the tokens before it; `decode`, for each request that decodes
the tokens before it; `preempted`, requests that lost their blocks; `waiting`,
requests that wait; `free`, blocks that are not in use.

Runs in vLLM's environment, this folder on its path.
"""

import json
import os
import time

from vllm.v1.core.sched.scheduler import Scheduler


class Steps(Scheduler):
    """The scheduler, and its log."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._steps = open(os.environ["STEPS"], "a", encoding="ascii")
        self._step = {}

    def schedule(self, *args, **options):
        """A step begins."""
        at = time.monotonic()
        output = super().schedule(*args, **options)
        parts = [(part.req_id, part.num_computed_tokens)
                 for part in output.scheduled_new_reqs]
        cached = output.scheduled_cached_reqs
        parts += zip(cached.req_ids, cached.num_computed_tokens)
        self._step = {"at": at, "prefill": [], "decode": []}
        for name, before in parts:
            tokens = output.num_scheduled_tokens[name]
            request = self.requests[name]
            if before + tokens <= request.num_prompt_tokens or tokens > 1:
                self._step["prefill"].append((tokens, before))
            else:
                self._step["decode"].append(before)
        self._step["preempted"] = len(output.preempted_req_ids or ())
        self._step["waiting"] = len(self.waiting)
        self._step["free"] = (
            self.kv_cache_manager.block_pool.get_num_free_blocks())
        return output

    def update_from_output(self, *args, **options):
        """The step ends."""
        given = super().update_from_output(*args, **options)
        if self._step["prefill"] or self._step["decode"]:
            print(json.dumps({**self._step, "end": time.monotonic()}),
                  file=self._steps, flush=True)
        return given
