from ..conformance.pipestream.fixtures import certificate, connect, friend, join, program, programs, reactor, sender

__all__ = ["certificate", "connect", "friend", "join", "program", "programs", "reactor", "sender"]
