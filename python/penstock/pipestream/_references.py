"""References: an object in a store instead of its bytes, and which keys may have encrypted it (sections 7.3, 10.9)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock import _core
from penstock.pipestream._fields import ReadableBuffer, as_bytes

__all__ = ["REFERENCE_TYPE", "EncryptionMetadata", "FileStorageReference", "References"]

REFERENCE_TYPE = "application/vnd.penstock.file-storage-reference"
"""The content type of an entity whose payload is a FileStorageReference."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EncryptionMetadata:
    """How a referenced object is encrypted: the EncryptionMetadata message (section 7.3). None means "not set".

    Neither its representation nor any log shows the wrapped key or the values of the context.

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
    """Who has the key: ``aws-kms``, ``azure-keyvault``, ``gcp-kms``, ``vault``."""
    key_id: str | None = None
    """The key's ARN, URI or ID, with its version where the provider's IDs have one."""
    wrapped_key: bytes | None = None
    """The data encryption key as the provider has wrapped it, 40 bytes to 16 KiB; never the key itself."""
    iv: bytes | None = None
    """The initialization vector: 12 or 16 bytes for GCM, 16 for CBC."""
    context: Mapping[str, str] = field(default_factory=dict)
    """What the provider needs besides to unwrap the key."""

    def __repr__(self) -> str:
        """Show what is no key material."""
        hidden = {name: _hidden(getattr(self, name)) for name in ("wrapped_key", "iv")}
        return (
            f"EncryptionMetadata(algorithm={self.algorithm!r}, key_provider={self.key_provider!r}, "
            f"key_id={self.key_id!r}, wrapped_key={hidden['wrapped_key']}, iv={hidden['iv']}, "
            f"context=<{', '.join(self.context)}>)"
        )

    @property
    def key(self) -> str | None:
        """The key's ID without its version: what stays when a key is rotated."""
        return None if self.key_id is None else _core.split_key(self.key_id)[0]

    @property
    def key_version(self) -> str | None:
        """The version that the key's ID names; None where it names none."""
        return None if self.key_id is None else _core.split_key(self.key_id)[1]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FileStorageReference:
    """Where an object is: the FileStorageReference message (section 7.3). None means "not set".

    `Session.send_reference` sends it instead of the object's bytes. These attributes say what the object must be; a
    server that fetches it fails the entity where it is not: ``size`` (bytes), ``sha256`` (hex), ``etag``, ``version``.
    ``content_type`` says what its bytes are, ``account`` whose container it is on Azure.

    >>> reference = FileStorageReference.of_url("s3://documents/in/a.pdf", size=1200, content_type="application/pdf")
    >>> reference.provider, reference.bucket, reference.key
    ('s3', 'documents', 'in/a.pdf')
    >>> FileStorageReference.decode(reference.encode()) == reference, reference.url
    (True, 's3://documents/in/a.pdf')
    """

    provider: str | None = None
    """``s3``, ``gcs``, ``azure``, or ``file`` for a file of the machine that fetches."""
    bucket: str | None = None
    """The bucket or container; nothing for a file."""
    key: str | None = None
    """The object's key as it stands, nothing escaped; for a file its path without the first slash."""
    region: str | None = None
    """A hint. Our server goes where its own options say."""
    attrs: Mapping[str, str] = field(default_factory=dict)
    """Attributes, of which the class says some; others are carried."""
    encryption: EncryptionMetadata | None = None
    """How the object is encrypted, if it is."""

    def __repr__(self) -> str:
        """Show what is no secret: an attribute may be a token for the store."""
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
        """Refer to the object at ``s3://``, ``gs://``, ``az://``, ``abfss://`` or ``file:///``.

        Raises:
            PipeStreamError: ENTITY_INVALID where it is no URL of an object.
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
            PipeStreamError: ENTITY_INVALID where nobody could go there.
        """
        return _core.reference_url(self)

    def encode(self) -> bytes:
        """Give the protobuf message, without a length.

        Raises:
            PipeStreamError: ENTITY_INVALID where it names no object, an attribute is not what it must be, or a key
                that is not wrapped stands in it; ENTITY_TOO_LARGE above 65,536 bytes.
        """
        return _core.encode_reference(self)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> "FileStorageReference":
        """Parse a message, all of ``data``: what `ReceivedEntity.read` gives of an entity of `REFERENCE_TYPE`.

        Raises:
            PipeStreamError: As `encode` does, and ENTITY_INVALID where it does not parse.
        """
        return reference_of(_core.decode_reference(as_bytes(data)))

    def check_keys(self, approved: Sequence[str]) -> None:
        """Refuse an encryption that section 10.9 does not allow.

        Args:
            approved: The key providers that are approved, each ``PROVIDER`` or ``PROVIDER=KEY``.

        Raises:
            PipeStreamError: ENTITY_INVALID: a provider or key that is not approved, a key ID of another provider, an
                unknown algorithm, a key that is not wrapped. A misuse where an entry is none.

        >>> encryption = EncryptionMetadata(algorithm="AES-256-GCM", key_provider="vault", key_id="transit/keys/a:v2")
        >>> reference = FileStorageReference.of_url("s3://documents/a", encryption=encryption)
        >>> reference.check_keys(["vault=transit/keys/a"])
        """
        _core.check_reference(self, list(approved))


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """What a server with a sink does with entities that refer to an object: `Server` takes it as ``references``.

    Without ``fetch_from`` it keeps the messages. With it, the sink has the objects' bytes, each with its message
    beside it as ``ENTITY.reference``; what lies elsewhere, is larger than ``max_payload``, or not what the reference
    says fails its entity.

    >>> References(fetch_from=["s3://documents/in", "file:///srv/documents"]).approved_key_providers is None
    True
    """

    fetch_from: Sequence[str] = ()
    """Prefixes that objects may be fetched from, as URLs; ``file:///FOLDER`` for files. No link is followed."""
    approved_key_providers: Sequence[str] | None = None
    """Whose keys may have encrypted an object: ``PROVIDER`` or ``PROVIDER=KEY``, which stands for all of the key's
    versions. None: encrypted objects are not fetched, and messages are kept whatever they say."""
    storage: Mapping[str, str] = field(default_factory=dict)
    """Options of the stores, ``{"endpoint": URL}``; by default the environment says it all."""


def reference_of(fields: "_core._ReferenceFields") -> FileStorageReference:
    """Make the dataclass from what the core decoded."""
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
