"""The demo's story, in order."""

import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from twinlog.cli.common import INTERRUPTED, SUCCESS
from twinlog.cli.demo.programs import Background, DemoFailed, finish, program, shown_path, typed
from twinlog.cli.demo.screen import Progress, Screen
from twinlog.cli.demo.stage import (
    PARTITIONS,
    RECORDS_PER_SECOND,
    SEED,
    TOPIC,
    Producing,
    Stage,
    fetch,
    fetched,
    fill,
    kept,
    running,
    set_up,
)
from twinlog.cli.demo.watch import Watch, failure, lag, mirrored, reached
from twinlog.errors import TwinlogError
from twinlog.testing.errors import BenchFailed

MIRROR: Final = "demo"
POLL_S: Final = 0.25
STALLED_AFTER_S: Final = 60.0
"""Without any progress for so long, something is wrong."""
NEARLY_THERE_S: Final = 5.0
"""With the producer running, a lag of exactly 0 may not be seen for a while: then below a second's worth will do."""


def show_all() -> int:
    """Run the whole demo; returns the exit code. Raises TwinlogError, its text a sentence that names the logs."""
    screen = Screen()
    with _terminable():
        try:
            with ExitStack() as stack:
                return _Demo(screen, stack).run()
        except KeyboardInterrupt:
            screen.line("Interrupted; nothing is left behind.")
            return INTERRUPTED
        except SystemError as error:
            # Ctrl-C inside of librdkafka's flush: its Python binding loses the KeyboardInterrupt on the way.
            if "flush" not in str(error):
                raise
            screen.line("Interrupted; nothing is left behind.")
            return INTERRUPTED


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the demo as Ctrl-C does, with everything cleaned up."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    former = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@dataclass
class _Demo:
    """The story; what has to be undone at its end, whatever that is, goes on `stack`."""

    screen: Screen
    stack: ExitStack
    acknowledged: int = 0
    worker_pid: int = 0
    commands: dict[str, list[str]] = field(default_factory=dict)

    def run(self) -> int:
        stage = self._start_clusters()
        try:
            return self._tell(stage)
        except TwinlogError as error:
            raise DemoFailed(f"{str(error).rstrip('.')}. The logs are in {stage.keep_logs()}.") from error

    def _start_clusters(self) -> Stage:
        release = fetched()
        if release is None:
            with self.screen.waiting("Fetching Kafka (once, some 45 MB) into the user's cache folder"):
                release = fetch()
        try:
            with self.screen.waiting(f"Starting two Kafka {release.version} clusters"):
                stage = self.stack.enter_context(set_up())
        except BenchFailed as error:
            first, *_ = str(error).split("\n")
            raise DemoFailed(f"{first.rstrip('.:')}. What is known of it is in {kept(str(error))}.") from error
        self.screen.line(f"source:      {stage.source.bootstrap}")
        self.screen.line(f"destination: {stage.destination.bootstrap}")
        return stage

    def _tell(self, stage: Stage) -> int:
        self._prepare_commands(stage)
        self._fill(stage)
        self._create(stage)
        watch = self.stack.enter_context(Watch(stage.source.bootstrap, stage.destination.bootstrap))
        worker = self._start_worker(stage)
        producing = self._produce(stage, SEED)
        self._catch_up(watch, worker)
        self.acknowledged += producing.stop()
        self._compare(watch, worker)
        self._say_what_next(stage)
        if self.screen.live:
            self._keep_running(stage, watch)
        return SUCCESS

    def _prepare_commands(self, stage: Stage) -> None:
        mirrors = [program("kafka-mirrors"), "--bootstrap-server", stage.destination.bootstrap]
        twinlog = program("twinlog")
        config = str(stage.folder / "mirror.properties")
        both = ["--source", stage.source.bootstrap, "--destination", stage.destination.bootstrap]
        self.commands = {
            "create": [*mirrors, "--create", "--mirror", MIRROR, "--mirror-config", config],
            "start": [*mirrors, "--start", "--mirror", MIRROR, "--topics", TOPIC],
            "stop": [*mirrors, "--stop", "--mirror", MIRROR, "--topics", TOPIC],
            "describe": [*mirrors, "--describe", "--mirror", MIRROR],
            "worker": [twinlog, "worker", "--bootstrap-server", stage.destination.bootstrap],
            "verify": [twinlog, "verify", *both, "--topic", TOPIC],
        }

    def _fill(self, stage: Stage) -> None:
        self.screen.step(
            f"A source topic '{TOPIC}' with {PARTITIONS} partitions and data of every kind: five codecs, transactions "
            f"(committed, aborted, interleaved), nulls, headers, odd timestamps"
        )
        with self.screen.waiting("Filling it"):
            self.acknowledged = fill(stage)
        self.screen.line(f"{self.acknowledged:,} records were acknowledged, not counting the aborted ones")

    def _create(self, stage: Stage) -> None:
        self.screen.step("A mirror of it, created and started at the destination")
        content = f"bootstrap.servers={stage.source.bootstrap}\n"
        path = stage.folder / "mirror.properties"
        path.write_text(content, "utf-8")
        self.screen.command(f"cat {path}")
        self.screen.output(content)
        self._run("create")
        self._run("start")

    def _run(self, name: str) -> str:
        """Run a command in sight of the user; returns its output. Raises DemoFailed where it fails."""
        words = self.commands[name]
        self.screen.command(typed(words))
        done = finish(words)
        self.screen.output(done.stdout)
        if done.returncode:
            raise DemoFailed(f"`{typed(words)}` ended with {done.returncode}: {done.stderr.strip()}")
        self.screen.output(done.stderr)
        return done.stdout

    def _start_worker(self, stage: Stage) -> Background:
        words = self.commands["worker"]
        self.screen.step("A worker, which does the mirroring")
        self.screen.command(f"{typed(words)} 2> {stage.worker_log} &")
        worker = self.stack.enter_context(running(words, stage.worker_log))
        self.worker_pid = worker.pid
        return worker

    def _produce(self, stage: Stage, seed: int) -> Producing:
        producing = Producing(stage, seed)
        self.stack.callback(producing.abandon)
        return producing

    def _catch_up(self, watch: Watch, worker: Background) -> None:
        self.screen.line(f"Meanwhile a producer goes on, with about {RECORDS_PER_SECOND} records a second")
        with self.screen.progress() as progress:
            near_since = float("inf")

            def caught_up() -> bool:
                nonlocal near_since
                behind = lag(watch.rows(MIRROR))
                near = 0 <= behind < RECORDS_PER_SECOND
                near_since = min(near_since, time.monotonic()) if near else float("inf")
                return behind == 0 or time.monotonic() - near_since > NEARLY_THERE_S

            self._until(caught_up, watch, worker, progress)

    def _until(self, done: Callable[[], bool], watch: Watch, worker: Background, progress: Progress) -> None:
        """Show progress until `done`. Raises DemoFailed for a failed partition, a dead worker, or a standstill."""
        most, moved = -1, time.monotonic()
        while not done():
            rows = watch.rows(MIRROR)
            progress.show(rows)
            worker.check()
            failed = failure(rows)
            if failed is not None:
                raise DemoFailed(f"A partition has failed: {failed}")
            if mirrored(rows) > most:
                most, moved = mirrored(rows), time.monotonic()
            if time.monotonic() - moved > STALLED_AFTER_S:
                words = worker.last_line()
                raise DemoFailed(f"Nothing was mirrored for {STALLED_AFTER_S:.0f} s; the worker's last words: {words}")
            time.sleep(POLL_S)
        progress.last(watch.rows(MIRROR))

    def _compare(self, watch: Watch, worker: Background) -> None:
        self.screen.step("The producer pauses, and both clusters are compared offset by offset")
        bounds = watch.source_bounds(TOPIC, PARTITIONS)
        ends = {partition: end for partition, (_, end) in bounds.items()}
        with self.screen.progress() as progress:
            self._until(lambda: reached(watch.rows(MIRROR), ends), watch, worker, progress)
        said = self._run("verify")
        records = _records(said)
        if records != self.acknowledged:
            raise DemoFailed(
                f"The producers had {self.acknowledged:,} records acknowledged, and both clusters show {records:,}."
            )
        offsets = sum(end - start for start, end in bounds.values())
        self.screen.good(
            f"Identical: {PARTITIONS} partitions, {offsets:,} offsets, of which {records:,} are records (just as many "
            f"as the producers had acknowledged) and {offsets - records:,} are blanks."
        )

    def _say_what_next(self, stage: Stage) -> None:
        say, show = self.screen.line, self.screen.command
        if not self.screen.live:
            self.screen.step("What to try next:")
            say("Run the demo in a terminal: it then keeps running, and says what can be done with it.")
            say("With clusters of your own, the same commands do; docs/tutorial.md goes through them.")
            return
        self.screen.step("Try, from another terminal in this folder, while all of it keeps running:")
        say("How is the mirror?")
        show(typed(self.commands["describe"]))
        say("Read a record at the destination, then at the source: the same one at the same offset")
        for kafka in (stage.destination, stage.source):
            show(_reading(kafka.bootstrap))
        say("Failover: stop the mirroring, and the destination's topic is an ordinary one; --start takes it up again")
        show(typed(self.commands["stop"]))
        show(typed(self.commands["start"]))
        say(f"Start a second worker, kill the first (kill -9 {self.worker_pid}), and see the second take over")
        show(typed(self.commands["worker"]))
        say("What the first worker says")
        show(f"tail -f {stage.worker_log}")

    def _keep_running(self, stage: Stage, watch: Watch) -> None:
        self.screen.step("The producer goes on. Ctrl-C ends everything.")
        self._produce(stage, SEED + 1)
        try:
            with self.screen.progress() as progress:
                while True:
                    progress.show(watch.rows(MIRROR))
                    time.sleep(POLL_S)
        except KeyboardInterrupt:
            self.screen.line("Ending the worker and both clusters; nothing of them stays behind.")


def _records(said: str) -> int:
    found = re.search(r"([\d,]+) records", said)
    return int(found.group(1).replace(",", "")) if found else -1


def _reading(bootstrap: str) -> str:
    """A command that reads one record with nothing but what is installed here."""
    code = (
        "from confluent_kafka import Consumer, TopicPartition as T; "
        f"c = Consumer({{'bootstrap.servers': '{bootstrap}', 'group.id': 'x'}}); c.assign([T('{TOPIC}', 0, 5000)]); "
        "m = c.consume(1, 10)[0]; print(m.offset(), m.timestamp(), m.key(), m.value()[:40])"
    )
    return f'{shown_path(Path(sys.executable))} -c "{code}"'
