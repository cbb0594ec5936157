/// Names, labels and numbers in Prometheus's text format.
enum MetricName {
  /// Replaces characters that are not allowed (`[a-zA-Z_:][a-zA-Z0-9_:]*`) by `_`.
  static func sanitized(_ label: String) -> String {
    let name = String(
      label.unicodeScalars.map { scalar -> Character in
        isNameScalar(scalar) || scalar == ":" ? Character(scalar) : "_"
      })
    return name.first.map { $0.isNumber } ?? true ? "_" + name : name
  }

  /// The name of a counter, which ends in `_total`.
  static func counter(_ label: String) -> String {
    let name = sanitized(label)
    return name.hasSuffix("_total") ? name : name + "_total"
  }

  /// The name of a timer, which ends in `_seconds`.
  static func timer(_ label: String) -> String {
    let name = sanitized(label)
    return name.hasSuffix("_seconds") ? name : name + "_seconds"
  }

  /// The labels as written between braces, sorted by name. If a name occurs twice, its last value is used.
  static func labels(_ dimensions: [(String, String)]) -> String {
    if dimensions.isEmpty { return "" }
    var values: [String: String] = [:]
    for (label, value) in dimensions { values[labelName(label)] = value }
    return values.sorted { $0.key < $1.key }
      .map { "\($0.key)=\"\(escapedValue($0.value))\"" }
      .joined(separator: ",")
  }

  /// The text of a `# HELP` line, with backslashes and line feeds escaped.
  static func escapedHelp(_ text: String) -> String {
    escaped(text, quotes: false)
  }

  /// A sample's value.
  static func number(_ value: Double) -> String {
    if value.isNaN { return "NaN" }
    if value.isInfinite { return value < 0 ? "-Inf" : "+Inf" }
    if let whole = Int64(exactly: value) { return "\(whole)" }
    return "\(value)"
  }

  /// Prefixes reserved label names: `le` belongs to histograms, names that start with `__` to Prometheus.
  private static func labelName(_ label: String) -> String {
    let name = sanitized(label).replacing(":", with: "_")
    return name == "le" || name.hasPrefix("__") ? "label_" + name : name
  }

  private static func escapedValue(_ text: String) -> String {
    let limit = 256
    let scalars = text.unicodeScalars
    return escaped(scalars.count > limit ? String(scalars.prefix(limit)) : text, quotes: true)
  }

  private static func escaped(_ text: String, quotes: Bool) -> String {
    var result = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\\": result += "\\\\"
      case "\n": result += "\\n"
      case "\"" where quotes: result += "\\\""
      default: result.unicodeScalars.append(scalar)
      }
    }
    return result
  }

  private static func isNameScalar(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar {
    case "a"..."z", "A"..."Z", "0"..."9", "_": true
    default: false
    }
  }
}
