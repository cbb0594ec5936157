internal import Glibc
internal import Jobs
internal import Logging
internal import Metrics
internal import Synchronization

/// The process's standard error: the log and what the command tells people, in one order.
public enum StandardError {
  /// How long the end of the process waits for whoever reads.
  static let patience: Duration = .seconds(2)
  private static let shared = Mutex<LogWriter?>(nil)
  private static let display = Mutex<(@Sendable (String) -> Bool)?>(nil)

  /// Writes a line for people, and all that was logged before it. Whoever doesn't read it within two seconds misses it.
  public static func tell(_ line: String) {
    let writer = writer(.text)
    writer.add(line + "\n")
    writer.flush(within: patience)
  }

  /// Writes what was logged, before the process ends.
  public static func flush() { flush(within: patience) }

  /// Writes what was logged, for a process that is to end at once.
  public static func flushBriefly() { flush(within: .milliseconds(100)) }

  private static func flush(within limit: Duration) {
    _ = shared.withLock { $0 }?.flush(within: limit)
  }

  /// What takes the log's lines; made with the first of them.
  static func writer(_ format: LogFormat) -> LogWriter {
    shared.withLock { shared in
      if let shared { return shared }
      let writer = LogWriter(to: STDERR_FILENO, display: show) { LogRecord.dropped($0, format) }
      shared = writer
      FatalSignals.awaitLog()
      return writer
    }
  }

  /// Hands lines from now on to what draws on the same terminal, which says whether it shows them; nil ends that.
  public static func show(by display: (@Sendable (String) -> Bool)?) {
    self.display.withLock { $0 = display }
  }

  @Sendable private static func show(_ lines: ArraySlice<UInt8>) -> Bool {
    guard let display = display.withLock({ $0 }) else { return false }
    return display(String(decoding: lines, as: UTF8.self))
  }

  /// Counts from now on, and what was dropped so far.
  static func countDropped() {
    let counter = Counter(label: "imagefetch_log_dropped_total")
    shared.withLock { $0 }?.count(by: counter)
  }

  /// Opens `/dev/null` where the process was started without standard input, output or error: else the next file that
  /// is opened becomes that, and what is told to people is written into it. Before anything else is opened.
  public static func fillStandardDescriptors() {
    for descriptor in [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO]
    where fcntl(descriptor, F_GETFD) < 0 {
      // The lowest free one, which is it.
      _ = open("/dev/null", O_RDWR)
    }
  }
}

extension LogRecord {
  /// The line that stands in for those that had no room.
  static func dropped(_ lines: Int, _ format: LogFormat) -> String {
    var record = LogRecord(
      time: Timestamp.wallClock.description, level: .warning, label: "log",
      message: lines == 1 ? "1 line was dropped" : "\(lines) lines were dropped")
    record.fields = [("dropped", .bare("\(lines)"))]
    return format == .json ? record.json : record.text
  }
}
