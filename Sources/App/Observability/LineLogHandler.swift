internal import Glibc
internal import Jobs
internal import Logging

/// Makes each record one line, whatever it holds: a line cannot be forged from within a value, and is bounded in length.
/// Whoever logs never waits for the line to be written.
struct LineLogHandler: LogHandler {
  /// The least that is written.
  var logLevel: Logger.Level
  /// What every record carries.
  var metadata: Logger.Metadata = [:]
  /// What it carries of the task that logs.
  var metadataProvider: Logger.MetadataProvider?
  private let label: String
  private let format: LogFormat
  private let now: @Sendable () -> Timestamp
  private let write: @Sendable (String) -> Void

  /// - Parameter write: takes a line, its line feed included.
  init(
    label: String, level: Logger.Level, format: LogFormat,
    now: @escaping @Sendable () -> Timestamp = { .wallClock },
    write: @escaping @Sendable (String) -> Void
  ) {
    (self.label, self.logLevel, self.format) = (label, level, format)
    (self.now, self.write) = (now, write)
  }

  /// One field that every record carries.
  subscript(metadataKey key: String) -> Logger.Metadata.Value? {
    get { metadata[key] }
    set { metadata[key] = newValue }
  }

  /// Writes one record.
  func log(event: LogEvent) {
    var record = LogRecord(
      time: now().description, level: event.level, label: label, message: "\(event.message)")
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
}

extension Timestamp {
  /// What the system's clock tells, to the millisecond.
  static var wallClock: Timestamp {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return Timestamp(milliseconds: Int64(time.tv_sec) * 1000 + Int64(time.tv_nsec) / 1_000_000)
  }
}
