internal import Glibc
internal import Jobs
internal import Logging
internal import Metrics
internal import Synchronization

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
