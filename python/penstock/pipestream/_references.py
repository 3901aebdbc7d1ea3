"""References to objects in stores, and the keys that may have encrypted them (sections 7.3 and 10.9)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock import _core
from penstock.pipestream._fields import ReadableBuffer, as_bytes

__all__ = ["REFERENCE_TYPE", "EncryptionMetadata", "FileStorageReference", "References"]

REFERENCE_TYPE = "application/vnd.penstock.file-storage-reference"
"""The content type of an entity whose payload is a FileStorageReference."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EncryptionMetadata:
    """The EncryptionMetadata message: how a referenced object is encrypted (PipeStream, section 7.3).

    None means "not set". Neither ``repr`` nor any log shows the wrapped key or the values of the context.

    >>> encryption = EncryptionMetadata(
    ...     algorithm="AES-256-GCM",
    ...     key_provider="vault",
    ...     key_id="transit/keys/documents:v3",
    ...     wrapped_key=bytes(60),
    ...     context={"tenant": "acme"},
    ... )
    >>> encryption
    EncryptionMetadata(algorithm='AES-256-GCM', key_provider='vault', key_id='transit/keys/documents:v3', \
wrapped_key=<60 bytes>, iv=None, context=<tenant>)
    >>> encryption.key, encryption.key_version
    ('transit/keys/documents', 'v3')
    """

    algorithm: str | None = None
    """``AES-256-GCM`` or ``AES-256-CBC``."""
    key_provider: str | None = None
    """The provider that holds the key: ``aws-kms``, ``azure-keyvault``, ``gcp-kms`` or ``vault``."""
    key_id: str | None = None
    """The key's ARN, URI or ID, with its version if the provider's IDs have one."""
    wrapped_key: bytes | None = None
    """The data encryption key, wrapped by the provider, 40 bytes to 16 KiB; never the plain key."""
    iv: bytes | None = None
    """The initialization vector: 12 or 16 bytes for GCM, 16 for CBC."""
    context: Mapping[str, str] = field(default_factory=dict)
    """Additional values that the provider needs to unwrap the key."""

    def __repr__(self) -> str:
        """Return the fields without key material."""
        hidden = {name: _hidden(getattr(self, name)) for name in ("wrapped_key", "iv")}
        return (
            f"EncryptionMetadata(algorithm={self.algorithm!r}, key_provider={self.key_provider!r}, "
            f"key_id={self.key_id!r}, wrapped_key={hidden['wrapped_key']}, iv={hidden['iv']}, "
            f"context=<{', '.join(self.context)}>)"
        )

    @property
    def key(self) -> str | None:
        """The key's ID without its version, which stays the same when a key is rotated."""
        return None if self.key_id is None else _core.split_key(self.key_id)[0]

    @property
    def key_version(self) -> str | None:
        """The version in the key's ID; None if it has none."""
        return None if self.key_id is None else _core.split_key(self.key_id)[1]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FileStorageReference:
    """The FileStorageReference message: the location of an object (PipeStream, section 7.3). None means "not set".

    `Session.send_reference` sends it instead of the object's bytes. A server that fetches the object fails the entity
    if the object differs from one of these attributes: ``size`` (bytes), ``sha256`` (hex), ``etag``, ``version``. Also
    known are ``content_type``, the MIME type of the bytes, and ``account``, the account of the container on Azure.

    >>> reference = FileStorageReference.of_url("s3://documents/in/a.pdf", size=1200, content_type="application/pdf")
    >>> reference.provider, reference.bucket, reference.key
    ('s3', 'documents', 'in/a.pdf')
    >>> FileStorageReference.decode(reference.encode()) == reference, reference.url
    (True, 's3://documents/in/a.pdf')
    """

    provider: str | None = None
    """``s3``, ``gcs``, ``azure``, or ``file`` for a file on the machine that fetches it."""
    bucket: str | None = None
    """The bucket or container; empty for a file."""
    key: str | None = None
    """The object's key, without any escaping; for a file its path without the first slash."""
    region: str | None = None
    """A hint; `Server` uses the region of its own options."""
    attrs: Mapping[str, str] = field(default_factory=dict)
    """Attributes; those that the class does not describe are passed on."""
    encryption: EncryptionMetadata | None = None
    """How the object is encrypted; None if it is not."""

    def __repr__(self) -> str:
        """Return the fields without the values of attributes, which may be tokens for the store."""
        return (
            f"FileStorageReference(provider={self.provider!r}, bucket={self.bucket!r}, key={self.key!r}, "
            f"region={self.region!r}, attrs=<{', '.join(self.attrs)}>, encryption={self.encryption!r})"
        )

    @classmethod
    def of_url(
        cls,
        url: str,
        *,
        size: int | None = None,
        sha256: bytes | None = None,
        etag: str | None = None,
        version: str | None = None,
        content_type: str | None = None,
        region: str | None = None,
        encryption: EncryptionMetadata | None = None,
    ) -> "FileStorageReference":
        """Make a reference to the object at a URL: ``s3://``, ``gs://``, ``az://``, ``abfss://`` or ``file:///``.

        Args:
            url: The object's URL.
            size: The object's size in bytes.
            sha256: The SHA-256 of the object's bytes.
            etag: The object's ETag.
            version: The object's version in the store.
            content_type: The MIME type of the object's bytes.
            region: The bucket's region.
            encryption: How the object is encrypted.

        Raises:
            PipeStreamError: ENTITY_INVALID if it is not the URL of an object.
        """
        reference = reference_of(_core.reference_of_url(url))
        known = {
            "size": None if size is None else str(size),
            "sha256": None if sha256 is None else sha256.hex(),
            "etag": etag,
            "version": version,
            "content_type": content_type,
        }
        attrs = {**reference.attrs, **{name: value for name, value in known.items() if value is not None}}
        return replace(reference, attrs=attrs, region=region, encryption=encryption)

    @property
    def url(self) -> str:
        """The object's URL.

        Raises:
            PipeStreamError: ENTITY_INVALID if the reference does not locate an object.
        """
        return _core.reference_url(self)

    def encode(self) -> bytes:
        """Return the protobuf message, without a length prefix.

        Raises:
            PipeStreamError: ENTITY_INVALID if it names no object, has an invalid attribute, or contains a key that is
                not wrapped; ENTITY_TOO_LARGE above 65,536 bytes.
        """
        return _core.encode_reference(self)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> "FileStorageReference":
        """Decode a protobuf message, which must fill ``data``: the payload of an entity of type `REFERENCE_TYPE`.

        Raises:
            PipeStreamError: As `encode`, and ENTITY_INVALID if it does not parse.
        """
        return reference_of(_core.decode_reference(as_bytes(data)))

    def check_keys(self, approved: Sequence[str]) -> None:
        """Check that the encryption is allowed (PipeStream, section 10.9).

        Args:
            approved: The approved key providers, each as ``PROVIDER`` or ``PROVIDER=KEY``.

        Raises:
            PipeStreamError: ENTITY_INVALID for a provider or key that is not approved, a key ID of another provider, an
                unknown algorithm, or a key that is not wrapped; of kind "misuse" for an invalid entry of ``approved``.

        >>> encryption = EncryptionMetadata(algorithm="AES-256-GCM", key_provider="vault", key_id="transit/keys/a:v2")
        >>> reference = FileStorageReference.of_url("s3://documents/a", encryption=encryption)
        >>> reference.check_keys(["vault=transit/keys/a"])
        """
        _core.check_reference(self, list(approved))


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """How a server with a sink treats entities that refer to an object: the argument ``references`` of `Server`.

    Without ``fetch_from`` the server stores the messages. With ``fetch_from`` it stores the objects' bytes, each with
    its message next to it as ``ENTITY.reference``. An entity fails if its object is in none of these places, larger
    than ``max_payload``, or different from the reference.

    >>> References(fetch_from=["s3://documents/in", "file:///srv/documents"]).approved_key_providers is None
    True
    """

    fetch_from: Sequence[str] = ()
    """The URL prefixes from which objects may be fetched; ``file:///FOLDER`` for files. Links are not followed."""
    approved_key_providers: Sequence[str] | None = None
    """The keys that may have encrypted an object, as ``PROVIDER`` or ``PROVIDER=KEY``, which includes all versions of
    the key. None: encrypted objects are not fetched, and messages are stored whatever their encryption."""
    storage: Mapping[str, str] = field(default_factory=dict)
    """Options of the stores, ``{"endpoint": URL}``; by default the environment configures them."""


def reference_of(fields: "_core._ReferenceFields") -> FileStorageReference:
    """Return the dataclass for a reference that the core decoded."""
    encryption = fields["encryption"]
    return FileStorageReference(
        provider=fields["provider"],
        bucket=fields["bucket"],
        key=fields["key"],
        region=fields["region"],
        attrs=fields["attrs"],
        encryption=None if encryption is None else EncryptionMetadata(**encryption),
    )


def _hidden(value: bytes | None) -> str:
    return "None" if value is None else f"<{len(value)} bytes>"
