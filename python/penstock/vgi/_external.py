"""Conversion of external-batch configurations for the core."""

from typing import TYPE_CHECKING, TypeAlias

from penstock import _core

if TYPE_CHECKING:
    from penstock.vgi.external import ClientExternalConfig, ServerExternalConfig

    ExternalConfig: TypeAlias = ServerExternalConfig | ClientExternalConfig

__all__ = ["core_external", "core_uploads"]


def core_external(config: "ExternalConfig | None") -> "_core.VgiExternal | None":
    """Return the core's configuration; None without a configuration, which leaves pointers as they are."""
    if config is None:
        return None
    from penstock.vgi.external import ServerExternalConfig, https_only_validator
    from penstock.vgi.file import FileStorage

    storage = config.storage if isinstance(config, ServerExternalConfig) else None
    compression = config.compression if isinstance(config, ServerExternalConfig) else None
    root = storage.folder if isinstance(storage, FileStorage) else None
    # The default validator implies that private addresses are rejected; a custom one decides for itself.
    guarded = config.url_validator is https_only_validator
    return _core.VgiExternal(
        config.fetch_config.fetcher(private=not guarded, root=root),
        max_retries=config.max_retries,
        retry_delay=config.retry_delay_seconds,
        validator=config.url_validator,
        storage=storage,
        threshold=config.externalize_threshold_bytes if isinstance(config, ServerExternalConfig) else None,
        compression_level=None if compression is None else compression.level,
    )


def core_uploads(config: "ExternalConfig | None") -> "_core.VgiExternal | None":
    """Return the core's configuration for uploading requests that are too large for a server.

    Without a configuration it is that of a default ClientExternalConfig.
    """
    from penstock.vgi.external import ClientExternalConfig

    return core_external(ClientExternalConfig() if config is None else config)
