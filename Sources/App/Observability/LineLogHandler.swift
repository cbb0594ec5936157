internal import Glibc
internal import Jobs
internal import Logging

/// Formats each log record as exactly one line of bounded length. Values are escaped, so that they can't forge a line.
///
/// The calling thread never waits for the line to be written.
struct LineLogHandler: LogHandler {
  /// Records below this level are not written.
  var logLevel: Logger.Level
  /// Fields of every record.
  var metadata: Logger.Metadata = [:]
  /// Provides fields from the current task.
  var metadataProvider: Logger.MetadataProvider?
  private let label: String
  private let format: LogFormat
  private let now: @Sendable () -> Timestamp
  private let write: @Sendable (String) -> Void

  /// - Parameter write: receives each line, including its line feed.
  init(
    label: String, level: Logger.Level, format: LogFormat,
    now: @escaping @Sendable () -> Timestamp = { .wallClock },
    write: @escaping @Sendable (String) -> Void
  ) {
    (self.label, self.logLevel, self.format) = (label, level, format)
    (self.now, self.write) = (now, write)
  }

  /// A field of every record.
  subscript(metadataKey key: String) -> Logger.Metadata.Value? {
    get { metadata[key] }
    set { metadata[key] = newValue }
  }

  func log(event: LogEvent) {
    var record = LogRecord(
      time: now().description, level: event.level, label: label, message: "\(event.message)")
    record.fields = LogRecord.flatten(fields(of: event))
    write(format == .json ? record.json : record.text)
  }

  /// The record's fields. The call's fields override the task's, which override the handler's.
  private func fields(of event: LogEvent) -> Logger.Metadata {
    var fields = metadata
    if let provided = metadataProvider?.get() { fields.merge(provided) { $1 } }
    if let given = event.metadata { fields.merge(given) { $1 } }
    if let error = event.error { fields["error"] = "\(error)" }
    return fields
  }
}

extension Timestamp {
  /// The system's time, in whole milliseconds.
  static var wallClock: Timestamp {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return Timestamp(milliseconds: Int64(time.tv_sec) * 1000 + Int64(time.tv_nsec) / 1_000_000)
  }
}
