"""
Carries out a decider's verdicts on sockets: one listening port, one broker behind it.

Runs an event loop in a thread of its own; every public method may be called from any thread.  A test waits for
what happened (`FaultProxy.await_event`, `await_requests`), it never sleeps and hopes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from typing import TYPE_CHECKING

from support.clusters.decider import Decider, Event, Kind, Verdict
from support.clusters.frames import FrameSplitter
from support.clusters.rules import Match, Refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from typing import Any

    from support.clusters.rules import Rule

__all__ = ["FaultProxy"]

_HOST = "127.0.0.1"
_CHUNK = 256 * 1024
_COMMAND_SECONDS = 10.0
# a transport is made, and one that was aborted closes its socket, in later turns of the loop
_QUIET_TURNS = 5


class FaultProxy:
    """
    A proxy before one broker.

    Args:
        port: Where it listens, on the loopback address.
        upstream_port: Where the broker does.
        seed: Everything random follows from it.

    Raises:
        OSError: The port is taken.
    """

    def __init__(self, port: int, upstream_port: int, *, seed: int | str = 0) -> None:
        self.port = port
        self._upstream_port = upstream_port
        self._decider = Decider(seed)
        self._changed = threading.Condition()
        self._numbers = itertools.count(1)
        self._connections: dict[int, _Connection] = {}
        self._trouble: list[str] = []
        self._closing = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{port}", daemon=True)
        self._thread.start()
        try:
            self._server = self._run(asyncio.start_server(self._serve, _HOST, port))
        except BaseException:
            self._end_loop()
            raise

    def close(self) -> None:
        """Break all connections and stop listening."""
        self._run(self._shut())
        self._end_loop()

    # -- what it does to the traffic ---------------------------------------------------------------

    def arm(self, name: str, rule: Rule) -> None:
        """Let a rule hold from now on; one of the same name goes."""
        with self._changed:
            self._decider.arm(name, rule)
            self._changed.notify_all()

    def disarm(self, name: str) -> None:
        """Take a rule away; what it holds stays held."""
        with self._changed:
            self._decider.disarm(name)

    def release(self, name: str) -> None:
        """Deliver what a `Hold` of this name holds, in the order in which it came."""
        self._run(self._release(name))

    def cut(self, refuse_seconds: float = 0.0) -> None:
        """Break every connection on both sides, and refuse new ones for so long."""
        if refuse_seconds > 0:
            self.arm("cut", Refuse(until=time.monotonic() + refuse_seconds))
        self._run(self._break_all())

    def reset(self, seed: int | str = 0) -> None:
        """Break every connection, forget rules, what is held, counts and events; draw from a new seed."""
        self._run(self._break_all())
        with self._changed:
            self._decider.reset(seed)
            self._trouble.clear()

    # -- what it saw -------------------------------------------------------------------------------

    def requests(self, api_key: int | None = None, transactional_id: str | None = None) -> int:
        """How many requests came, of an API and a transaction where these are named."""
        with self._changed:
            return self._decider.seen(Match(api_key=api_key, transactional_id=transactional_id))

    def answers(self, api_key: int) -> int:
        """How many answers of an API the broker gave."""
        with self._changed:
            return self._decider.answers[api_key]

    def connections(self) -> int:
        """How many clients are connected."""
        with self._changed:
            return sum(not connection.cut for connection in self._connections.values())

    def events(self, kind: str = "", rule: str = "") -> list[Event]:
        """What happened so far, of one kind and by one rule where these are named."""
        with self._changed:
            return self._events(kind, rule)

    def trouble(self) -> list[str]:
        """What went wrong in the proxy itself, such as a client that speaks TLS."""
        with self._changed:
            return list(self._trouble)

    def await_event(self, kind: str, rule: str = "", *, nth: int = 1, seconds: float = 30.0) -> Event:
        """
        Wait for the n-th event of a kind, by a rule where one is named.

        Raises:
            AssertionError: It did not come in time; the events that did are named.
        """
        self._await(lambda: len(self._events(kind, rule)) >= nth, f"event {nth} {kind!r} {rule!r}", seconds)
        return self.events(kind, rule)[nth - 1]

    def await_requests(
        self, count: int, api_key: int, transactional_id: str | None = None, *, seconds: float = 30.0
    ) -> None:
        """
        Wait until so many requests have come in all.

        Raises:
            AssertionError: They did not come in time.
        """
        match = Match(api_key=api_key, transactional_id=transactional_id)
        self._await(lambda: self._decider.seen(match) >= count, f"{count} requests of {match}", seconds)

    def _events(self, kind: str, rule: str) -> list[Event]:
        return [
            event for event in self._decider.events if kind in ("", event.kind) and rule in ("", event.rule)
        ]

    def _await(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, seconds):
                last = "\n".join(f"  {event}" for event in self._decider.events[-20:])
                raise AssertionError(f"no {what} within {seconds:g} s; last events:\n{last}")

    # -- on the loop -------------------------------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_COMMAND_SECONDS)

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_COMMAND_SECONDS)
        self._loop.close()

    async def _shut(self) -> None:
        self._closing = True
        # accepting ends first, and what was accepted is served: CPython 3.11 leaves a socket behind when its server
        # is closed before the transport is made, and its warning comes at some later collection of garbage
        for listener in self._server.sockets:
            self._loop.remove_reader(listener.fileno())
        await self._break_all()
        quiet = 0
        while quiet < _QUIET_TURNS:
            await asyncio.sleep(0)
            if tasks := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(tasks)
                quiet = 0
            else:
                quiet += 1
        self._server.close()
        await self._server.wait_closed()

    async def _break_all(self) -> None:
        broken = list(self._connections.values())
        for connection in broken:
            connection.break_both()
        for connection in broken:
            await connection.gone.wait()

    async def _release(self, name: str) -> None:
        with self._changed:
            self._decider.release(name, self._loop.time())
            self._changed.notify_all()
        for connection in list(self._connections.values()):
            connection.release(name)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closing:
            writer.transport.abort()
            return
        number = next(self._numbers)
        with self._changed:
            greeting = self._decider.connect(number, self._loop.time())
            self._changed.notify_all()
        if not greeting.accepted:
            writer.transport.abort()
            return
        try:
            upstream = await asyncio.open_connection(_HOST, self._upstream_port, limit=_CHUNK)
        except OSError:
            # the broker is down: a client sees what it would see without us, a broken connection
            self._forget(number)
            writer.transport.abort()
            return
        if self._closing:
            self._forget(number)
            upstream[1].transport.abort()
            writer.transport.abort()
            return
        connection = _Connection(number, (reader, writer), upstream)
        with self._changed:
            self._connections[number] = connection
        timer = None
        if greeting.dies_at is not None:
            timer = self._loop.call_at(greeting.dies_at, connection.break_both)
        work = (
            self._requests(connection),
            self._answers(connection),
            self._deliver(connection, connection.to_broker, upstream[1]),
            self._deliver(connection, connection.to_client, writer),
        )
        jobs = [self._loop.create_task(self._guarded(connection, job)) for job in work]
        await connection.over.wait()
        if timer is not None:
            timer.cancel()
        connection.break_both()
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        self._forget(number)
        connection.gone.set()

    async def _guarded(self, connection: _Connection, work: Coroutine[Any, Any, None]) -> None:
        """A job that fails ends its connection, and is told at the end of the test."""
        try:
            await work
        except Exception as error:  # noqa: BLE001  whatever it is, it must not vanish in a task
            with self._changed:
                self._trouble.append(f"connection {connection.number}: {error!r}")
            connection.over.set()

    def _forget(self, number: int) -> None:
        with self._changed:
            self._connections.pop(number, None)
            self._decider.closed(number)
            self._changed.notify_all()

    async def _requests(self, connection: _Connection) -> None:
        """From the client: ask for verdicts until the client is gone."""
        async for frame in connection.frames(connection.client):
            verdict = self._ask(self._decider.request, connection, frame)
            if verdict.kind is Kind.DELIVER:
                connection.to_broker.put_nowait((verdict, frame))
            elif verdict.kind is Kind.HOLD:
                connection.held.append((verdict, frame))
            if verdict.cut and verdict.kind is not Kind.DELIVER:
                connection.cut_client()
                break
        connection.cut_client()
        with self._changed:
            self._decider.client_gone(connection.number, self._loop.time())
            self._changed.notify_all()
        # what was accepted is delivered first, then the broker's side goes, unless an answer is awaited
        await connection.to_broker.join()
        self._end_if_done(connection)

    async def _answers(self, connection: _Connection) -> None:
        """From the broker: ask for verdicts until the broker is gone."""
        async for frame in connection.frames(connection.upstream):
            verdict = self._ask(self._decider.answer, connection, frame)
            if verdict.kind is Kind.DELIVER:
                connection.to_client.put_nowait(
                    (verdict, frame if verdict.instead is None else verdict.instead)
                )
            self._end_if_done(connection)
        with contextlib.suppress(TimeoutError):
            # what the broker said before it hung up still belongs to the client
            await asyncio.wait_for(connection.to_client.join(), 5.0)
        connection.over.set()

    def _ask(
        self, decide: Callable[[int, bytes, float], Verdict], connection: _Connection, frame: bytes
    ) -> Verdict:
        with self._changed:
            verdict = decide(connection.number, frame, self._loop.time())
            self._changed.notify_all()
        return verdict

    def _end_if_done(self, connection: _Connection) -> None:
        with self._changed:
            lingers = self._decider.lingers(connection.number)
        if connection.cut and not lingers:
            connection.over.set()

    async def _deliver(
        self,
        connection: _Connection,
        frames: asyncio.Queue[tuple[Verdict, bytes]],
        writer: asyncio.StreamWriter,
    ) -> None:
        while True:
            verdict, frame = await frames.get()
            if (wait := verdict.at - self._loop.time()) > 0:
                await asyncio.sleep(wait)
            with contextlib.suppress(OSError):
                writer.write(frame)
                await writer.drain()
            if verdict.cut:
                connection.cut_client()
            frames.task_done()


class _Connection:
    """A client's connection and ours to its broker; lives on the loop's thread only."""

    def __init__(
        self,
        number: int,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.number = number
        self.client, self.client_writer = client
        self.upstream, self.upstream_writer = upstream
        # unbounded: a client has few requests in flight, which bounds the answers as well
        self.to_broker: asyncio.Queue[tuple[Verdict, bytes]] = asyncio.Queue()
        self.to_client: asyncio.Queue[tuple[Verdict, bytes]] = asyncio.Queue()
        self.held: list[tuple[Verdict, bytes]] = []
        self.cut = False
        self.over = asyncio.Event()  # it has to end
        self.gone = asyncio.Event()  # it has

    async def frames(self, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        """Whole frames from one side, until it is gone or speaks something else."""
        splitter = FrameSplitter()
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                for frame in splitter.feed(data):
                    yield frame

    def release(self, rule: str) -> None:
        """Put what a rule holds on its way."""
        for verdict, frame in self.held:
            if verdict.rule == rule:
                self.to_broker.put_nowait((Verdict(Kind.DELIVER), frame))
        self.held = [(verdict, frame) for verdict, frame in self.held if verdict.rule != rule]

    def cut_client(self) -> None:
        """Break the client's side; the broker's stays."""
        self.cut = True
        self.client_writer.transport.abort()

    def break_both(self) -> None:
        """Break both sides."""
        self.cut_client()
        self.upstream_writer.transport.abort()
        self.over.set()
