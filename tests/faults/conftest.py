from ..conformance.pipestream.fixtures import certificate, connect, program, programs, reactor, sender

__all__ = ["certificate", "connect", "program", "programs", "reactor", "sender"]
