"""The owner of a transaction: the driver proves it with a token whose hash the tasks' sessions carry."""

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from penstock._state import state_dir
from penstock.errors import SparkError
from penstock.spark._options import Options

__all__ = ["Ownership", "of_job", "of_stream", "read_secret"]

_ENVIRONMENT = "PENSTOCK_TRANSACTION_SECRET"
_SHORTEST = 16
_NAME = "penstock-transaction-secret"
_LATE = "late"


@dataclass(frozen=True)
class Ownership:
    """The proof to a sink that a commit comes from the client that prepared the sessions.

    >>> Ownership("0" * 64)
    Ownership(exclusive=False)
    """

    token: str = field(repr=False)
    """The token that the driver sends. No header, row or receipt that a reader sees contains it."""
    exclusive: bool = False
    """Whether a commit fails if another owner has committed the transaction: an earlier run may have had another."""

    @property
    def name(self) -> str:
        """The token's SHA-256 in hex, which the sessions carry."""
        return hashlib.sha256(self.token.encode()).hexdigest()


def read_secret(options: Options) -> str | None:
    """Read the secret from ``transactionSecret``, ``transactionSecretFile``, or else the environment.

    Raises:
        SparkError: Both options were given, the file cannot be read, or the secret is too short.
    """
    given, file = options.text("transactionSecret"), options.file("transactionSecretFile")
    if given is not None and file is not None:
        raise options.error("transactionSecret", "and transactionSecretFile are mutually exclusive")
    if given is not None:
        where, secret = "the option transactionSecret", given
    elif file is not None:
        where, secret = "the option transactionSecretFile", _content(options, file)
    else:
        where, secret = f"{_ENVIRONMENT} in the environment", os.environ.get(_ENVIRONMENT, "")
        if not secret:
            return None
    if len(secret.encode()) < _SHORTEST:
        raise SparkError(f"{where} has fewer than {_SHORTEST} bytes")
    return secret


def of_job(secret: str | None, *, named: bool) -> Ownership:
    """Return the owner of a batch job's transaction; ``named``: other jobs may use the same transaction."""
    if secret is not None:
        return _by(secret)
    if not named:
        return Ownership(secrets.token_hex(32))
    try:
        return _by(_kept(state_dir() / _NAME), exclusive=True)
    except OSError:
        # This job can be committed, and a job that runs again is rejected.
        return Ownership(secrets.token_hex(32), exclusive=True)


def of_stream(secret: str | None, checkpoint: str | None) -> Ownership:
    """Return the owner of a stream's transactions, which stays the same when the stream is restarted.

    Raises:
        SparkError: No secret can be stored where the next driver would find it.
    """
    if secret is not None:
        return _by(secret)
    try:
        folder = _local(checkpoint)
        if folder is None:
            # A driver on another machine has another secret, so a batch that it repeats is rejected, not stored twice.
            return _by(_kept(state_dir() / _NAME), exclusive=True)
        first, _, rest = _kept(folder / _NAME, _LATE if _has_commits(folder) else "").partition("\n")
        return _by(first, exclusive=rest.strip() == _LATE)
    except OSError as error:
        raise SparkError(
            f"the pipestream sink cannot store the secret of a stream's transactions: {error}. Set the option "
            f"transactionSecret or transactionSecretFile, or {_ENVIRONMENT} on the driver",
            "io",
        ) from error


def _by(secret: str, *, exclusive: bool = False) -> Ownership:
    """Derive the token from a secret, which itself is never sent."""
    first = secret.partition("\n")[0].strip()
    return Ownership(hmac.new(first.encode(), b"penstock.transaction-token", "sha256").hexdigest(), exclusive)


def _content(options: Options, file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise options.error("transactionSecretFile", f"cannot be read: {error}") from None


def _local(checkpoint: str | None) -> Path | None:
    """Return the folder of a checkpoint; ``None`` if it is not on this machine."""
    if checkpoint is None:
        return None
    parts = urlsplit(checkpoint)
    if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
        return None
    folder = Path(unquote(parts.path) if parts.scheme else checkpoint)
    return folder if folder.is_dir() else None


def _has_commits(checkpoint: Path) -> bool:
    """Return whether micro-batches have already been committed, under a secret that is now missing."""
    commits = checkpoint / "commits"
    return commits.is_dir() and any(path.name.isdecimal() for path in commits.iterdir())


def _kept(path: Path, remark: str = "") -> str:
    """Return the content of a secret file; a missing one is created atomically, so all processes read the same."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(f"{secrets.token_hex(32)}\n{remark}\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(new, path)
        except FileExistsError:
            pass
        finally:
            new.unlink()
    return path.read_text(encoding="utf-8")
