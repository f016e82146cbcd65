"""The settings that only groups of 5.x have: the pauses between the tries of a message, and noted subscriptions.

    CUSTOMIZED   customizedRetryPolicy.next    pauses one by one; the first try takes the third, as level 3 is the
                                               first level of a retry; the last one stays
    EXPONENTIAL  initial, initial * multiplier, ... up to max

A group without a policy, or with CUSTOMIZED alone, has the 18 delay levels.
Source: GroupRetryPolicy, CustomizedRetryPolicy and ExponentialRetryPolicy, Java 5.4.0.
"""

# ruff: noqa: RUF012 - msgspec gives each body its own empty list

from __future__ import annotations

from typing import Final

from sparrowmq.core.safe_text import shown
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.delay_levels import DelayLevels, duration_word, level_ms
from sparrowmq.protocol.wire.body import Body

LONGEST_MS: Final = 40 * 86_400_000  # the longest delay that a broker allows by default
MOST_PAUSES: Final = 1000
_SKIPPED_PAUSES: Final = 2
_MOST_DOUBLINGS: Final = 32
_CLASSIC_MS: Final = DelayLevels.parse().delays_ms


class GroupSubscription(Body):
    """A subscription that a tool of 5.x notes with a group; no broker reads it. (Java: SimpleSubscriptionData)"""

    topic: str | None = None
    expression_type: str | None = None
    expression: str | None = None
    version: int = 0


class CustomizedRetryPolicy(Body):
    """Pauses in milliseconds."""

    next: list[int] = []


class ExponentialRetryPolicy(Body):
    """The first pause, the longest one, and the growth from one to the next; in milliseconds."""

    initial: int = 5000
    max: int = 7_200_000
    multiplier: int = 2


class GroupRetryPolicy(Body):
    """A policy; `type` says which of the two others counts."""

    type: str | None = None
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None

    @property
    def is_own(self) -> bool:
        """Whether it says more than the delay levels."""
        if self.type == "EXPONENTIAL":
            return self.exponential_retry_policy is not None
        return bool(self.customized_retry_policy and self.customized_retry_policy.next)

    def pause_ms(self, tries: int) -> int:
        """Return the pause before the next try of a message that came back `tries` times before."""
        tries = max(tries, 0)
        growing, customized = self.exponential_retry_policy, self.customized_retry_policy
        if self.type == "EXPONENTIAL" and growing is not None:
            growth: int = growing.multiplier ** min(tries, _MOST_DOUBLINGS)
            return min(growing.max, growing.initial * growth)
        pauses = customized.next if self.type != "EXPONENTIAL" and customized and customized.next else _CLASSIC_MS
        return pauses[min(tries + _SKIPPED_PAUSES, len(pauses) - 1)]

    def check(self) -> None:
        """Raises: ConfigError, a pause cannot be."""
        if self.type not in (None, "CUSTOMIZED", "EXPONENTIAL"):
            raise ConfigError(f"groupRetryPolicy has type {self.type!r}; it must be CUSTOMIZED or EXPONENTIAL")
        growing = self.exponential_retry_policy
        if growing is not None:
            _check_pause("initial", growing.initial)
            _check_pause("max", growing.max)
            if not 1 <= growing.multiplier <= MOST_PAUSES:
                raise ConfigError(
                    f"groupRetryPolicy has multiplier {growing.multiplier}; it must be 1 to {MOST_PAUSES}"
                )
        pauses = self.customized_retry_policy.next if self.customized_retry_policy else ()
        if len(pauses) > MOST_PAUSES:
            raise ConfigError(f"groupRetryPolicy has {len(pauses)} pauses in next; {MOST_PAUSES} are possible")
        for pause in pauses:
            _check_pause("next", pause)


CLASSIC: Final = GroupRetryPolicy("CUSTOMIZED")  # of a group without one


LEVELS: Final = "levels"


def policy_of(text: str | None) -> GroupRetryPolicy | None:
    """Return the policy of a text such as "10s 1m 5m" or "5s..2h"; CLASSIC for "levels", None for None. Raises:
    ConfigError, it is none.
    """
    if text is None or text == LEVELS:
        return CLASSIC if text else None
    if not isinstance(text, str):
        raise ConfigError(f"retry pauses {shown(text)} are no text; write '10s 1m 5m'")
    first, dots, last = text.partition("..")
    pauses = [level_ms(word) for word in ((first, last) if dots else text.split())]
    known_pauses = [pause for pause in pauses if pause is not None]
    if not known_pauses or len(known_pauses) < len(pauses):
        raise ConfigError(
            f"retry pauses {text!r} cannot be read; write '10s 1m 5m', or '5s..2h' for doubling, or '{LEVELS}'"
        )
    customized = CustomizedRetryPolicy([known_pauses[0]] * _SKIPPED_PAUSES + known_pauses)
    policy = (
        GroupRetryPolicy("EXPONENTIAL", ExponentialRetryPolicy(*known_pauses))
        if dots
        else GroupRetryPolicy("CUSTOMIZED", customized_retry_policy=customized)
    )
    policy.check()
    return policy


def text_of(policy: GroupRetryPolicy | None) -> str:
    """Return the text of a policy, the reverse of `policy_of`."""
    if policy is None or not policy.is_own:
        return LEVELS
    growing, customized = policy.exponential_retry_policy, policy.customized_retry_policy
    if policy.type == "EXPONENTIAL" and growing is not None:
        factor = "" if growing.multiplier == ExponentialRetryPolicy().multiplier else f" x{growing.multiplier}"
        return f"{_word(growing.initial)}..{_word(growing.max)}{factor}"
    pauses = customized.next if customized is not None else []
    return " ".join(map(_word, pauses[_SKIPPED_PAUSES:] or pauses[-1:]))


def _word(pause_ms: int) -> str:
    return f"{pause_ms}ms" if pause_ms % 1000 else duration_word(pause_ms)


def _check_pause(name: str, pause_ms: int) -> None:
    if not 0 <= pause_ms <= LONGEST_MS:
        raise ConfigError(f"groupRetryPolicy has {name} {pause_ms}; a pause is 0 to {LONGEST_MS} milliseconds")
