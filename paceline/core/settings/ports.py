"""The setting `ports`: FIRST-LAST."""

_LOWEST, _HIGHEST = 1024, 65535


def port_range(text: str) -> range:
    """The ports that the text names; none if it is empty. ValueError if it can't be parsed."""
    if not text:
        return range(0)
    first, dash, last = text.partition("-")
    if dash and first.isdecimal() and last.isdecimal() and _LOWEST <= int(first) <= int(last) <= _HIGHEST:
        return range(int(first), int(last) + 1)
    raise ValueError(f"got {text!r}; expected FIRST-LAST of {_LOWEST} to {_HIGHEST}, like 7100-7119")
