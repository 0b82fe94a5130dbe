"""Sizes in words."""


def human_size(size: int) -> str:
    """
    >>> human_size(100), human_size(259584), human_size(2**30)
    ('100 B', '253.5 KB', '1.0 GB')
    """
    amount = float(size)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1024:
            return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TB"
