internal import Logging

/// What one line of the log says.
struct LogRecord {
  /// A field's value.
  indirect enum Value {
    case text(String)
    /// A number or a boolean, as JSON has it.
    case bare(String)
    case list([Value])
  }

  let time: String
  let level: Logger.Level
  let label: String
  let message: String
  /// Sorted by name.
  var fields: [(name: String, value: Value)] = []

  /// Dictionaries within each other as `outer.inner`; bounded in depth and number.
  static func flatten(_ metadata: Logger.Metadata) -> [(name: String, value: Value)] {
    var fields: [(name: String, value: Value)] = []
    append(metadata, prefix: "", depth: 0, to: &fields)
    fields.sort { $0.name < $1.name }
    // `a.b` and a dictionary `a` with a `b` meet: one name, one value.
    return fields.enumerated().filter { index, field in
      index == 0 || fields[index - 1].name != field.name
    }.map(\.element)
  }

  /// `time level message name=value …` and a line feed.
  var text: String {
    let level = level.rawValue
    var line = "\(time) \(level)" + String(repeating: " ", count: max(0, 5 - level.count)) + " "
    line += LineText.escaped(LogRecord.cut(message))
    for (name, value) in fields {
      line += " " + LogRecord.bare(name) + "=" + LogRecord.text(value)
    }
    return line + "\n"
  }

  /// `{"time":…,"level":…,"logger":…,"message":…,…}` and a line feed.
  var json: String {
    var line = "{\"time\":\"\(time)\",\"level\":\"\(level.rawValue)\",\"logger\":"
    line += LineText.quoted(label) + ",\"message\":" + LineText.quoted(LogRecord.cut(message))
    for (name, value) in fields {
      // A second member of the record's own names could pass for the first.
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

  /// As it is where nobody could take it for something else.
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
