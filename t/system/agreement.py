"""What the router said of a prompt, beside what its engine had cached."""

import re

BLOCK = 16                      # tokens: the zone's, and that of the engines


def agreement(line):
    """The tokens of the overlap and the cached ones, by a line of the access
    log; an AssertionError unless both are above 0 and agree.

    README's rule: with token ids they are equal, and for a text they differ by
    a block at most.
    """
    overlap = BLOCK * int(re.search(r" overlap=(\d+)", line)[1])
    cached = int(re.search(r" cached=(\d+)", line)[1])
    text = "/chat/" in line
    assert overlap and cached, line
    assert abs(overlap - cached) <= (BLOCK if text else 0), line
    return overlap, cached
