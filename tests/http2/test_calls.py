"""What methods see of a call."""

from __future__ import annotations

from sparrowmq.http2.calls import Call, Caller, GrpcError


def test_a_caller_is_shown_as_its_address():
    assert str(Caller("10.0.0.1", 80)) == "10.0.0.1:80"
    assert str(Caller("::1", 80)) == "[::1]:80"


def test_the_time_left_ends_at_zero():
    now = 10.0
    call = Call("/a.B/C", {}, Caller(), deadline=12.5, now=lambda: now)
    assert call.time_left_s == 2.5
    now = 20.0
    assert call.time_left_s == 0.0
    assert Call("/a.B/C", {}, Caller()).time_left_s is None


def test_an_error_has_code_and_message():
    error = GrpcError(5, "no topic")
    assert (error.code, error.message) == (5, "no topic")
