"""Certificates for development: a CA of one's own and a certificate for this machine."""

import os

from penstock import _core

__all__ = ["write_certificates"]


def write_certificates(directory: str | os.PathLike[str]) -> str:
    """Write ``ca.pem``, ``cert.pem`` and ``key.pem`` for localhost, 127.0.0.1 and ::1.

    The key is readable by its owner only. Files that are there are never written over. The certificate serves as a
    server's and as a client's, until 2055 (decision 21).

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
        PipeStreamError: Of kind "io", where the files cannot be written, or of kind "misuse" where they exist.
    """
    return _core.write_certificates(directory)
