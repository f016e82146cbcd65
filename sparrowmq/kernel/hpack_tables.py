"""The fixed table of headers, and Huffman's code of their strings (RFC 7541, appendices A and B)."""

from __future__ import annotations

from typing import Final

# Headers 1 to 61, and the values of those that have one.
_FIXED: Final = """
:authority; :method=GET | POST; :path=/ | /index.html; :scheme=http | https; :status=200 | 204 | 206 | 304 | 400 |
404 | 500; accept-charset; accept-encoding=gzip, deflate; accept-language; accept-ranges; accept;
access-control-allow-origin; age; allow; authorization; cache-control; content-disposition; content-encoding;
content-language; content-length; content-location; content-range; content-type; cookie; date; etag; expect;
expires; from; host; if-match; if-modified-since; if-none-match; if-range; if-unmodified-since; last-modified; link;
location; max-forwards; proxy-authenticate; proxy-authorization; range; referer; refresh; retry-after; server;
set-cookie; strict-transport-security; transfer-encoding; user-agent; vary; via; www-authenticate
"""
# The bits of the code of each byte, and of the end, as letters from A for 5. The code is canonical: shorter codes come
# first, and among equal ones smaller bytes.
_BITS: Final = (
    "ISXXXXXXXTZXXZXXXXXXXXZXXXXXXXXXBFFHIBDGFFDGDBBBAAABBBBBBBCDKBHFIBCCCCCCCCCCCCCCCCCCCCCCDCDIOIJBKABA"
    "BABBBACCBBBABCBAABCCCCCKGJIXPRPPRRRSRSSSSSTSTTRSTSSSSQRSRSSTRQPRRSSQSRRTQRSSQQRQSRSSPRRRSRRSVVPORSRU"
    "VVVWWVTUOQVWWVWTQQVVXWWWPTPQRQQSRRUUTTVSVWVVWWWWWXWWWWWVZ"
)
_END_OF_TEXT: Final = 256
MAY_END: Final = 0x100
EMITS: Final = 0x200
FAILS: Final = 0x400


def _fixed() -> tuple[tuple[bytes, bytes], ...]:
    found: list[tuple[bytes, bytes]] = []
    for row in _FIXED.replace("\n", " ").split(";"):
        name, _, values = row.strip().partition("=")
        found += [(name.encode(), value.encode()) for value in values.split(" | ")]
    return tuple(found)


def _tree() -> list[list[int]]:
    """The nodes of Huffman's tree: what a bit leads to, either another node, or byte `n` as -1 - n."""
    order = sorted(range(len(_BITS)), key=lambda byte: (_BITS[byte], byte))
    nodes = [[0, 0]]
    code, size = 0, ord(_BITS[order[0]]) - 60
    for byte in order:
        code <<= ord(_BITS[byte]) - 60 - size
        size = ord(_BITS[byte]) - 60
        node = 0
        for shift in range(size - 1, 0, -1):
            bit = code >> shift & 1
            if not nodes[node][bit]:
                nodes[node][bit] = len(nodes)
                nodes.append([0, 0])
            node = nodes[node][bit]
        nodes[node][code & 1] = -1 - byte
        code += 1
    return nodes


def _steps() -> bytes:
    """A step for each node and each half byte, as int32: the next node << 16 | flags | the byte that it ends."""
    nodes = _tree()
    ends, node = {0}, 0  # a text may end within seven ones
    for _ in range(7):
        node = nodes[node][1]
        ends.add(node)
    found = bytearray()
    for begin in range(len(nodes)):
        for half in range(16):
            node, step = begin, 0
            for shift in (3, 2, 1, 0):
                node = nodes[node][half >> shift & 1]
                if node < 0:
                    step |= FAILS if node == -1 - _END_OF_TEXT else EMITS | -1 - node
                    node = 0
            found += (node << 16 | step | (MAY_END if node in ends else 0)).to_bytes(4, "big")
    return bytes(found)


FIXED: Final = _fixed()
STEPS: Final = _steps()
