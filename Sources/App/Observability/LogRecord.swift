internal import Glibc
internal import Jobs
package import Logging
internal import Settings

/// One log line: its fields, and how they are written as text or JSON.
struct LogRecord {
  /// A field's value.
  indirect enum Value {
    case text(String)
    /// A number or a boolean in JSON's notation.
    case bare(String)
    case list([Value])
  }

  let time: String
  let level: Logger.Level
  let label: String
  let message: String
  /// Sorted by name.
  var fields: [(name: String, value: Value)] = []

  /// Flattens nested dictionaries to fields named `outer.inner`: at most 64 fields and 4 levels.
  static func flatten(_ metadata: Logger.Metadata) -> [(name: String, value: Value)] {
    var fields: [(name: String, value: Value)] = []
    append(metadata, prefix: "", depth: 0, to: &fields)
    fields.sort { $0.name < $1.name }
    // A field `a.b` and a dictionary `a` with a member `b` have the same name. Only the first is kept.
    return fields.enumerated().filter { index, field in
      index == 0 || fields[index - 1].name != field.name
    }.map(\.element)
  }

  /// The record as `time level message name=value …` and a line feed.
  var text: String {
    let level = level.rawValue
    var line = "\(time) \(level)" + String(repeating: " ", count: max(0, 5 - level.count)) + " "
    line += LineText.escaped(LogRecord.cut(message))
    for (name, value) in fields {
      line += " " + LogRecord.bare(name) + "=" + LogRecord.text(value)
    }
    return line + "\n"
  }

  /// The record as `{"time":…,"level":…,"logger":…,"message":…,…}` and a line feed.
  var json: String {
    var line = "{\"time\":\"\(time)\",\"level\":\"\(level.rawValue)\",\"logger\":"
    line += LineText.quoted(label) + ",\"message\":" + LineText.quoted(LogRecord.cut(message))
    for (name, value) in fields {
      // A duplicate of one of these names could be read in place of the record's own member.
      let isOurs = ["time", "level", "logger", "message"].contains(name)
      line += "," + LineText.quoted(isOurs ? "metadata." + name : name) + ":"
      line += LogRecord.json(value)
    }
    return line + "}\n"
  }

  private static func append(
    _ metadata: Logger.Metadata, prefix: String, depth: Int,
    to fields: inout [(name: String, value: Value)]
  ) {
    for (name, value) in metadata where fields.count < 64 {
      let name = prefix + cut(name, to: 64)
      if case .dictionary(let inner) = value, depth < 4 {
        append(inner, prefix: name + ".", depth: depth + 1, to: &fields)
      } else {
        fields.append((name, LogRecord.value(value, depth: depth)))
      }
    }
  }

  private static func value(_ value: Logger.Metadata.Value, depth: Int) -> Value {
    switch value {
    case .string(let text): .text(cut(text))
    case .stringConvertible(let value as any BinaryInteger): .bare(String(value))
    case .stringConvertible(let value as Bool): .bare("\(value)")
    case .stringConvertible(let value as Double) where value.isFinite: .bare("\(value)")
    case .stringConvertible(let value): .text(cut(value.description))
    case .array(let values) where depth < 4:
      .list(values.prefix(16).map { LogRecord.value($0, depth: depth + 1) })
    case .array, .dictionary: .text(cut("\(value)"))
    }
  }

  private static func text(_ value: Value) -> String {
    switch value {
    case .text(let text): bare(text)
    case .bare(let text): text
    case .list(let values): "[" + values.map(LogRecord.text).joined(separator: ",") + "]"
    }
  }

  private static func json(_ value: Value) -> String {
    switch value {
    case .text(let text): LineText.quoted(text)
    case .bare(let text): text
    case .list(let values): "[" + values.map(json).joined(separator: ",") + "]"
    }
  }

  /// The text without quotes if that is unambiguous, otherwise quoted.
  private static func bare(_ text: String) -> String {
    let isPlain =
      !text.isEmpty
      && text.unicodeScalars.allSatisfy { scalar in
        scalar.value > 0x20 && !LineText.isUnsafe(scalar)
          && !["\"", "\\", "=", "[", "]", ",", "\u{A0}"].contains(scalar)
      }
    return isPlain ? text : LineText.quoted(text)
  }

  private static func cut(_ text: String, to limit: Int = 2048) -> String {
    guard text.utf8.count > limit else { return text }
    return String(text.unicodeScalars.prefix(limit)) + "…"
  }
}

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

/// The format of log lines.
package enum LogFormat: String, Sendable, Equatable, CaseIterable {
  /// Text on a terminal, JSON otherwise.
  case auto
  /// `2026-11-21T09:30:00.123Z info  listening address=127.0.0.1 port=8080`.
  case text
  /// One JSON object per line.
  case json

  /// Replaces `auto` by the format for this descriptor.
  func resolved(for descriptor: Int32) -> LogFormat {
    self == .auto ? (isatty(descriptor) == 1 ? .text : .json) : self
  }

  /// Sets up logging to standard error. Call it once, before the first logger is created.
  ///
  /// - Returns: The service's logger.
  package static func start(_ configuration: Configuration.Log) -> Logger {
    let format = configuration.format.resolved(for: STDERR_FILENO)
    let writer = StandardError.writer(format)
    LoggingSystem.bootstrap { label in
      LineLogHandler(label: label, level: configuration.level, format: format, write: writer.add)
    }
    return Logger(label: "imagefetch")
  }
}
