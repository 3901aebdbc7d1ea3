"""Development certificates: a private CA and a certificate for this machine."""

import os

from penstock import _core

__all__ = ["write_certificates"]


def write_certificates(directory: str | os.PathLike[str]) -> str:
    """Write ``ca.pem``, ``cert.pem`` and ``key.pem`` for localhost, 127.0.0.1 and ::1.

    The key is readable only by its owner. Existing files are never overwritten. The certificate is valid for servers
    and for clients, until 2055.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     fingerprint = write_certificates(folder)
    ...     names = sorted(path.name for path in Path(folder).iterdir())
    >>> fingerprint[:7], len(fingerprint), names
    ('sha256:', 71, ['ca.pem', 'cert.pem', 'key.pem'])

    Returns:
        The certificate's fingerprint, ``sha256:HEX``, for clients that pin it.

    Raises:
        PipeStreamError: Of kind "io" if the files cannot be written, or if one of them exists already.
    """
    return _core.write_certificates(directory)
