internal import Executors
internal import Glibc
internal import Jobs
internal import Logging
internal import Metrics
internal import Synchronization

/// Queues log lines without blocking, and writes them in order on its own thread. A slow or stuck reader of the log
/// delays only the log.
///
/// If the queue is full, lines are dropped and counted. In their place, one line reports how many were dropped.
final class LogWriter: @unchecked Sendable {  // all state behind `mutex`
  /// The capacity of the queue. The same amount may be in the process of being written.
  struct Limits {
    var lines = 8192
    var bytes = 1 << 20
  }

  /// Lines of all writers that were queued and not yet written. Atomic, because signal handlers read it and must not lock.
  static let unwritten = Atomic<Int>(0)

  private struct Batch {
    var bytes: [UInt8] = []
    var lines = 0
    /// The number of lines dropped after the last line of this batch.
    var dropped = 0
  }

  private let limits: Limits
  private let output: LogOutput
  private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
  private let arrived = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
  private let finished = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
  private var waiting = Batch()
  private var isWriting = false
  private var isClosed = false
  private var dropped = 0
  private var counter: Counter?

  /// - Parameter notice: returns the line that reports how many lines were dropped.
  init(
    to descriptor: Int32, limits: Limits = Limits(),
    display: @escaping LogOutput.Display = { _ in false },
    notice: @escaping @Sendable (Int) -> String
  ) {
    self.limits = limits
    output = LogOutput(descriptor, display: display, notice: notice)
    pthread_mutex_init(mutex, nil)
    pthread_cond_init(arrived, nil)
    var attributes = pthread_condattr_t()
    pthread_condattr_init(&attributes)
    // A change of the wall clock must not lengthen a wait.
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
    pthread_cond_init(finished, &attributes)
    pthread_condattr_destroy(&attributes)
    startThread(named: "log") { [self] in run() }
  }

  deinit {
    pthread_cond_destroy(finished)
    pthread_cond_destroy(arrived)
    pthread_mutex_destroy(mutex)
    finished.deallocate()
    arrived.deallocate()
    mutex.deallocate()
  }

  /// Queues a line, which includes its line feed, or drops it if the queue is full.
  func add(_ line: String) {
    var line = line
    line.withUTF8 { bytes in
      locked {
        let isFull =
          waiting.lines >= limits.lines || waiting.bytes.count + bytes.count > limits.bytes
        // After a drop, no line is queued until the writing thread has taken the batch. The notice about the dropped
        // lines then stands in their place.
        guard !isFull, waiting.dropped == 0 else {
          waiting.dropped += 1
          return countDropped(1)
        }
        waiting.bytes.append(contentsOf: bytes)
        waiting.lines += 1
        Self.unwritten.add(1, ordering: .relaxed)
        if waiting.lines == 1 { pthread_cond_signal(arrived) }
      }
    }
  }

  /// Waits until all queued lines are written or have failed.
  ///
  /// - Returns: False if `limit` passed first.
  @discardableResult
  func flush(within limit: Duration) -> Bool {
    var end = timespec()
    clock_gettime(CLOCK_MONOTONIC, &end)
    let nanoseconds = end.tv_nsec + Int(limit / .nanoseconds(1))
    end.tv_sec += nanoseconds / 1_000_000_000
    end.tv_nsec = nanoseconds % 1_000_000_000
    return locked {
      while waiting.lines > 0 || isWriting {
        guard pthread_cond_timedwait(finished, mutex, &end) == 0 else { return false }
      }
      return true
    }
  }

  /// Counts dropped lines with this counter, including those dropped before the call.
  func count(by counter: Counter) {
    locked {
      self.counter = counter
      counter.increment(by: dropped)
    }
  }

  var droppedLines: Int { locked { dropped } }

  /// The number of lines that the thread has not taken yet.
  var waitingLines: Int { locked { waiting.lines } }

  /// Stops the thread after it has written the queued lines.
  func close() {
    locked {
      isClosed = true
      pthread_cond_signal(arrived)
    }
  }

  private func run() {
    blockBrokenPipeSignal()
    var batch = Batch()
    while exchangeBatch(&batch) {
      let lost = output.write(batch.bytes, lines: batch.lines, dropped: batch.dropped)
      Self.unwritten.subtract(batch.lines, ordering: .relaxed)
      locked { countDropped(lost) }
    }
  }

  /// Waits for lines and replaces the written batch with them.
  ///
  /// - Returns: False if the writer is closed and its queue is empty.
  private func exchangeBatch(_ batch: inout Batch) -> Bool {
    batch.bytes.removeAll(keepingCapacity: true)
    (batch.lines, batch.dropped) = (0, 0)
    return locked {
      isWriting = false
      if waiting.lines == 0 { pthread_cond_broadcast(finished) }
      while waiting.lines == 0 {
        if isClosed { return false }
        pthread_cond_wait(arrived, mutex)
      }
      swap(&waiting, &batch)
      isWriting = true
      return true
    }
  }

  private func countDropped(_ lines: Int) {
    dropped += lines
    counter?.increment(by: lines)
  }

  /// Blocks SIGPIPE, so that a write to a closed pipe fails with an error instead of ending the process.
  private func blockBrokenPipeSignal() {
    var signals = sigset_t()
    sigemptyset(&signals)
    sigaddset(&signals, SIGPIPE)
    pthread_sigmask(SIG_BLOCK, &signals, nil)
  }

  private func locked<Value>(_ body: () -> Value) -> Value {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    return body()
  }
}

/// Writes log lines to a descriptor, which may be slow, full or closed. Used only by the thread of `LogWriter`.
final class LogOutput: @unchecked Sendable {  // used by one thread alone
  private let descriptor: Int32
  private let notice: @Sendable (Int) -> String
  private let display: Display
  /// Lines that were lost and not yet reported by a notice.
  private var unreported = 0

  /// Shows lines instead of writing them to the descriptor. Returns false if it did not show them.
  typealias Display = @Sendable (ArraySlice<UInt8>) -> Bool

  init(
    _ descriptor: Int32, display: @escaping Display, notice: @escaping @Sendable (Int) -> String
  ) {
    (self.descriptor, self.display, self.notice) = (descriptor, display, notice)
  }

  /// Writes lines. Blocks until the reader has taken them.
  ///
  /// - Parameter dropped: the number of lines that were dropped after these.
  /// - Returns: The number of lines that could not be written.
  func write(_ bytes: [UInt8], lines: Int, dropped: Int) -> Int {
    var written = 0
    if writeNotice() {
      var rest = bytes[...]
      while !rest.isEmpty {
        let piece = Self.wholeLines(of: rest)
        guard writeAll(piece) else { break }
        written += piece.count { $0 == UInt8(ascii: "\n") }
        rest = rest.dropFirst(piece.count)
      }
    }
    unreported += lines - written + dropped
    if written == lines { _ = writeNotice() }
    return lines - written
  }

  /// Writes a notice about the lost lines, if there are any.
  ///
  /// - Returns: False if the notice could not be written.
  private func writeNotice() -> Bool {
    guard unreported > 0 else { return true }
    guard writeAll(Array(notice(unreported).utf8)[...]) else { return false }
    unreported = 0
    return true
  }

  /// The first complete lines of `bytes`, up to `PIPE_BUF` bytes but at least one line.
  ///
  /// A pipe takes that many bytes atomically, so that lines of programs that share it do not mix (pipe(7)).
  private static func wholeLines(of bytes: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
    let limit = Int(PIPE_BUF)
    guard bytes.count > limit else { return bytes }
    let lineFeed = UInt8(ascii: "\n")
    let last = bytes.prefix(limit).lastIndex(of: lineFeed) ?? bytes.firstIndex(of: lineFeed)
    return last.map { bytes[...$0] } ?? bytes
  }

  /// Writes bytes to the display or the descriptor.
  ///
  /// - Returns: False on an error, such as a closed pipe or a full disk.
  private func writeAll(_ bytes: ArraySlice<UInt8>) -> Bool {
    if display(bytes) { return true }
    return bytes.withUnsafeBytes { bytes in
      var rest = bytes[...]
      while !rest.isEmpty {
        let piece = UnsafeRawBufferPointer(rebasing: rest)
        let count = Glibc.write(descriptor, piece.baseAddress, piece.count)
        if count > 0 {
          rest = rest.dropFirst(count)
        } else if count < 0 && errno == EAGAIN {
          // The descriptor was inherited in non-blocking mode.
          var wait = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
          poll(&wait, 1, -1)
        } else if count == 0 || errno != EINTR {
          return false
        }
      }
      return true
    }
  }
}

/// The process's standard error. Log lines and messages of commands go through one queue, so that their order is kept.
package enum StandardError {
  /// How long the end of the process waits for the lines to be written.
  static let flushTimeout: Duration = .seconds(2)
  private static let shared = Mutex<LogWriter?>(nil)
  private static let display = Mutex<(@Sendable (String) -> Bool)?>(nil)

  /// Writes a message after all earlier log lines. Waits up to two seconds.
  package static func printLine(_ line: String) {
    let writer = writer(.text)
    writer.add(line + "\n")
    writer.flush(within: flushTimeout)
  }

  /// Waits up to two seconds until all log lines are written. Call it before the process ends.
  package static func flush() { flush(within: flushTimeout) }

  /// Waits up to 100 ms until all log lines are written, for a process that must end at once.
  package static func flushBriefly() { flush(within: .milliseconds(100)) }

  private static func flush(within limit: Duration) {
    _ = shared.withLock { $0 }?.flush(within: limit)
  }

  /// Returns the writer of the process's log, and creates it on first use.
  static func writer(_ format: LogFormat) -> LogWriter {
    shared.withLock { shared in
      if let shared { return shared }
      let writer = LogWriter(to: STDERR_FILENO, display: show) { LogRecord.dropped($0, format) }
      shared = writer
      FatalSignals.installHandlers()
      return writer
    }
  }

  /// Passes lines to a display that draws on the same terminal; nil ends that.
  ///
  /// - Parameter display: returns false if it did not show the lines, which are then written to standard error.
  package static func show(by display: (@Sendable (String) -> Bool)?) {
    self.display.withLock { $0 = display }
  }

  @Sendable private static func show(_ lines: ArraySlice<UInt8>) -> Bool {
    guard let display = display.withLock({ $0 }) else { return false }
    return display(String(decoding: lines, as: UTF8.self))
  }

  /// Exports the number of dropped lines as a metric, including those dropped so far.
  static func countDropped() {
    let counter = Counter(label: "imagefetch_log_dropped_total")
    shared.withLock { $0 }?.count(by: counter)
  }

  /// Opens `/dev/null` for each of standard input, output and error that is closed.
  ///
  /// Otherwise the next file that is opened would get that descriptor, and messages would be written into it. Call it
  /// before anything else is opened.
  package static func fillStandardDescriptors() {
    for descriptor in [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO]
    where fcntl(descriptor, F_GETFD) < 0 {
      // open() returns the lowest free descriptor, which is this one.
      _ = open("/dev/null", O_RDWR)
    }
  }
}

extension LogRecord {
  /// The line that replaces dropped lines.
  static func dropped(_ lines: Int, _ format: LogFormat) -> String {
    var record = LogRecord(
      time: Timestamp.wallClock.description, level: .warning, label: "log",
      message: lines == 1 ? "1 line was dropped" : "\(lines) lines were dropped")
    record.fields = [("dropped", .bare("\(lines)"))]
    return format == .json ? record.json : record.text
  }
}
