"""Handlers: methods that are bound to the requests that they serve, and what such a method may return.

    @handles(PullMessage)
    def pull(self, header: PullMessage, body: bytes, peer: Peer) -> Result: ...

Its result is
    a reply header    success
    None              success without fields
    Reply             anything else: another code, a remark, a body
    ReplyWhenDurable  the reply, once its message is safe: no task is made for any number of waiting requests
    PendingReply      the reply, once the handler calls its `answer`: no task either
    a coroutine       which returns one of the others; the only form that costs a task
It raises RemoteError to refuse a request. The dispatcher makes replies of all of them (remoting/request_dispatch.py).

Large answers are made one after another, in slices (`LargeAnswers`):

    short answer                  made at once, also while a large one is being made
    large answer                  begun when the one before it is complete; a peer that has gone gets none
    several for one peer          in turn with those for other peers

An answer with all topics has megabytes. Thousands of them, made together for peers that need not even read them, would
fill the memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

from sparrowmq.errors import SparrowError
from sparrowmq.loop.durability import Durability
from sparrowmq.loop.slices import Steps, WorkQueue, in_slices
from sparrowmq.protocol.wire.body import Body
from sparrowmq.protocol.wire.command import ONEWAY_FLAG, Command
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.protocol.wire.reply import Buffer
from sparrowmq.remoting.peer import Peer
from sparrowmq.remoting.session import Session

F = TypeVar("F", bound=Callable[..., Any])

# The requests of each method marked with `handles`.
REQUESTS_BY_METHOD: dict[Callable[..., Any], tuple[type[Request[Any]], ...]] = {}


def handles(*kinds: type[Request[Any]]) -> Callable[[F], F]:
    """Bind a method `(header, body, peer) -> Result` to the requests that it serves."""

    def bind(method: F) -> F:
        REQUESTS_BY_METHOD[method] = kinds
        return method

    return bind


class Reply:
    """A complete reply."""

    __slots__ = ("body", "code", "header", "remark")

    def __init__(
        self,
        code: int = 0,
        header: Header | None = None,
        remark: str | None = None,
        body: Body | Buffer | list[memoryview] = b"",
    ) -> None:
        self.code = code
        self.header = header
        self.remark = remark
        # A typed one is encoded by the dispatcher; a list is sent piece by piece without being joined first.
        self.body = body


class Unanswered(SparrowError):
    """A request was done in part, so no code says what became of it. It gets no answer. Raise it from the reason."""


class ReplyWhenDurable:
    """The reply to one request, to send once the log is as safe as `durability` promises up to `end`.

    If that takes too long, the reply has the code of the part that did not finish.
    """

    __slots__ = ("durability", "end", "reply")

    def __init__(self, durability: Durability, end: int, reply: Header | None) -> None:
        self.durability = durability
        self.end = end
        self.reply = reply


class PendingReply:
    """The reply to one request, which its handler sends later. `request` is that request, once the dispatcher waits."""

    __slots__ = ("request",)

    def __init__(self) -> None:
        self.request: PendingRequest | None = None

    @property
    def is_full(self) -> bool:
        return self.request is not None and self.request.session.is_full

    @property
    def is_doubtful(self) -> bool:
        """Whether accounts have changed since the request was allowed. Then its sender must ask again."""
        return self.request is not None and self.request.rights() is not self.request.accounts

    @property
    def is_unwanted(self) -> bool:
        """Whether the request wants no reply."""
        return self.request is not None and self.request.command.flag & ONEWAY_FLAG != 0

    def answer(self, answer: Reply | None, error: Exception | None) -> None:
        request, self.request = self.request, None
        if request is not None:
            request.finish(answer, error)

    def cancel(self) -> None:
        """The peer wants no answer any more. A handler that waits for messages takes none then."""

    def attempt(self, serve: Callable[[Any, bool], Reply | PendingReply | None], waiting: Any, is_over: bool) -> bool:
        """Send the answer that `serve(asked, is_over)` returns, or its error. Returns False for None: not yet. If it
        returns this, another sends the answer.
        """
        try:
            answer = serve(waiting, is_over)
        except Exception as error:
            self.answer(None, error)
            return True
        if answer is None:
            return False
        if isinstance(answer, Reply):
            self.answer(answer, None)
        return True


class PendingRequest(NamedTuple):
    """A request whose reply comes later."""

    session: Session
    command: Command
    rights: Callable[[], object]  # returns the accounts as they are now
    accounts: object  # those by which the request was allowed
    finish: Callable[[Reply | None, Exception | None], object]  # sends the reply, or the error's


Finished = Header | Reply | ReplyWhenDurable | PendingReply | None
Result = Finished | Awaitable[Finished]


def encode_in_steps(body: Body, header: Header | None = None) -> Steps[Reply]:
    pieces = yield from body.encoding()
    return Reply(header=header, body=pieces[0] if len(pieces) == 1 else [memoryview(piece) for piece in pieces])


class LargeAnswers:
    """The large answers of one handler."""

    def __init__(self) -> None:
        self._work_queue = WorkQueue()

    def make(self, peer: Peer, steps: Callable[[], Steps[Reply]]) -> Reply | Awaitable[Reply]:
        """Make an answer. `steps` begins the work, perhaps twice: what does not end in the first slice of a busy time
        begins again in its turn. Let it read the state, and change nothing.
        """
        if self._work_queue.is_busy:
            answer = in_slices(steps())
            if not isinstance(answer, Coroutine):
                return answer
            answer.close()
        return self._work_queue.work(_unless_gone(peer, steps), peer=peer)


def _unless_gone(peer: Peer, steps: Callable[[], Steps[Reply]]) -> Steps[Reply]:
    return Reply() if peer.closed else (yield from steps())
