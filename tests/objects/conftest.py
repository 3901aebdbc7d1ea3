from .s3 import s3

__all__ = ["s3"]
