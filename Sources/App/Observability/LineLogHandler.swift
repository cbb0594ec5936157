internal import Glibc
internal import Jobs
public import Logging

/// Writes each record as one line with one `write(2)`, whatever the record holds: a line cannot be
/// forged from within a value, and is bounded in length.
public struct LineLogHandler: LogHandler {
  /// The least that is written.
  public var logLevel: Logger.Level
  /// What every record carries.
  public var metadata: Logger.Metadata = [:]
  /// What it carries of the task that logs.
  public var metadataProvider: Logger.MetadataProvider?
  private let label: String
  private let format: LogFormat
  private let now: @Sendable () -> timespec
  private let write: @Sendable (String) -> Void

  /// Writes to standard error.
  public init(label: String, level: Logger.Level, format: LogFormat) {
    self.init(
      label: label, level: level, format: format.resolved(for: STDERR_FILENO),
      now: LineLogHandler.wallClock, write: LineLogHandler.writeToStandardError)
  }

  init(
    label: String, level: Logger.Level, format: LogFormat, now: @escaping @Sendable () -> timespec,
    write: @escaping @Sendable (String) -> Void
  ) {
    (self.label, self.logLevel, self.format) = (label, level, format)
    (self.now, self.write) = (now, write)
  }

  /// One field that every record carries.
  public subscript(metadataKey key: String) -> Logger.Metadata.Value? {
    get { metadata[key] }
    set { metadata[key] = newValue }
  }

  /// Writes one record.
  public func log(event: LogEvent) {
    var record = LogRecord(
      time: Timestamp(now()).description, level: event.level, label: label,
      message: "\(event.message)")
    record.fields = LogRecord.flatten(fields(of: event))
    write(format == .json ? record.json : record.text)
  }

  /// The nearer to the call, the stronger.
  private func fields(of event: LogEvent) -> Logger.Metadata {
    var fields = metadata
    if let provided = metadataProvider?.get() { fields.merge(provided) { $1 } }
    if let given = event.metadata { fields.merge(given) { $1 } }
    if let error = event.error { fields["error"] = "\(error)" }
    return fields
  }

  private static func wallClock() -> timespec {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return time
  }

  private static func writeToStandardError(_ line: String) {
    var line = line
    line.withUTF8 { bytes in
      var rest = UnsafeRawBufferPointer(bytes)
      while !rest.isEmpty {
        let written = Glibc.write(STDERR_FILENO, rest.baseAddress, rest.count)
        if written < 0 && errno == EINTR { continue }
        // Nobody is there to be told that nobody is there.
        guard written > 0 else { return }
        rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(written))
      }
    }
  }
}

extension Timestamp {
  /// What the system's clock tells, to the millisecond.
  init(_ time: timespec) {
    self.init(milliseconds: Int64(time.tv_sec) * 1000 + Int64(time.tv_nsec) / 1_000_000)
  }
}
