"""The protocols for asyncio: each module has the same names as its blocking counterpart.

Nothing blocks the event loop, and no thread is started for a call. See docs/asyncio.md.
"""

__all__: list[str] = []
