"""The protocols for asyncio: each module here has the names of its blocking twin.

Nothing blocks the event loop, and no thread is started for a call. See docs/asyncio.md.
"""

__all__: list[str] = []
