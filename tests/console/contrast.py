"""The contrast of white or coloured text on its background, as WCAG defines it, of what a browser shows."""

from __future__ import annotations

from playwright.async_api import Locator

# The colours of an element and of the first background behind it that is not transparent, as [red, green, blue].
_COLOURS = """each => {
    const parts = text => (text.match(/[\\d.]+/g) || []).map(Number);
    let behind = each;
    while (behind && (parts(getComputedStyle(behind).backgroundColor)[3] ?? 1) === 0) behind = behind.parentElement;
    const background = behind ? parts(getComputedStyle(behind).backgroundColor) : [255, 255, 255];
    return [parts(getComputedStyle(each).color).slice(0, 3), background.slice(0, 3)];
}"""


async def contrast(element: Locator) -> float:
    """The ratio, from 1 to 21."""
    text, background = await element.evaluate(_COLOURS)
    lighter, darker = sorted((_luminance(text), _luminance(background)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: list[float]) -> float:
    parts = [part / 255 for part in colour]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
